"""One colour for one thing, in every chart of every page: stall reasons, kernel families, units of the GPU.

Each has a contrast of 3 and more to the paper of both schemes; the first eight of the list are told apart with any
colour blindness (CIE76 distance above 22 in the simulations of Machado et al. 2009). ``tests/test_output.py``
holds both.
"""

import re
import zlib
from collections.abc import Sequence

from fiprof.model.ranks import COLLECTIVE

COLOURS = (
    "#2994ff", "#a54a1d", "#999900", "#9841aa", "#2a6f63", "#ff3d9e", "#c48464", "#5d3dff",
    "#009933", "#ff5500", "#0099cc", "#bb3355", "#777744", "#aa00cc", "#4455dd", "#885588",
)  # fmt: skip
GREY, DARK_GREY, LIGHT_GREY = "#7f8790", "#5f6873", "#8b939c"

_REASONS = (
    "long_scoreboard", "math_pipe_throttle", "wait", "barrier", "short_scoreboard", "mio_throttle", "dispatch_stall",
    "lg_throttle", "imc_miss", "no_instruction", "membar", "drain", "sleeping", "gmma", "branch_resolving",
    "tex_throttle",
)  # fmt: skip
STALLS = {**dict(zip(_REASONS, COLOURS, strict=True)), "selected": DARK_GREY, "not_selected": LIGHT_GREY}
"""Of ncu's stall reasons, greys for issuing and ready to, which are no stalls; any other is grey."""
COMMUNICATION = "#aa00cc"
FAMILIES = (
    ("communication", COLLECTIVE.pattern, COMMUNICATION),
    ("prefill", "prefill", "#a54a1d"),
    ("decode", "decode", "#2994ff"),
    ("merge", "merge", "#0099cc"),
    ("norm", "norm(?!al)", "#2a6f63"),
    ("rope", "rotary|rope", "#9841aa"),
    ("attention", "attention|fmha|flash", "#ff5500"),
    ("matmul", "gemm|gemv|matmul|nvjet|wgrad", "#009933"),
    ("elementwise", "elementwise|fill|copy|catarray|distribution", "#777744"),
    ("sort", "radixsort|randperm|mergesort", "#885588"),
    ("reduction", "scan|reduce|reduction|softmax|argmax", "#c48464"),
    ("lookup", "index|gather|scatter|embedding", "#bb3355"),
)
"""Family, pattern of the names of its kernels in small letters (the first family that fits), colour."""
_OTHERS = ("#4455dd", "#bb3355", "#c48464", "#999900")  # of kernels without a family


def kernel(name: str) -> tuple[str, str]:
    """The family of a kernel, its own name where it has none, and the family's colour."""
    for family, pattern, colour in FAMILIES:
        if re.search(pattern, name.lower()):
            return family, colour
    return name, _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)]


def series(names: Sequence[str]) -> dict[str, str]:
    """Name -> colour: the first of a kernel family has its colour, the others those that are left, then grey."""
    own = {family: colour for family, _, colour in FAMILIES}
    firsts = {kernel(name)[0]: name for name in reversed(names)}
    chosen = {name: own[family] for family, name in firsts.items() if family in own}
    left = [colour for colour in COLOURS if colour not in chosen.values()]
    others = [name for name in dict.fromkeys(names) if name not in chosen]
    return {**chosen, **dict.fromkeys(others, GREY), **dict(zip(others, left, strict=False))}
