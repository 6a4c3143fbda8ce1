"""Where a kernel's code lives in the installed FlashInfer: files and lines, found by their definitions.

``python -m fiprof.workloads.sources`` in the workload's interpreter prints JSON; it reads the installed package's
files and imports nothing of it. Also started by path, so this file needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

PACKAGE = "flashinfer-python"
MODULE = "flashinfer"
SCHEMA_VERSION = 1

CPP_GLOBS = (
    "data/include/flashinfer/*.*h",
    "data/include/flashinfer/attention/**/*.*h",
    "data/include/flashinfer/norm/*.*h",
    "data/csrc/*.cu",
    "data/csrc/*.*h",
)
PYTHON_GLOBS = ("*.py", "norm/**/*.py", "rope/**/*.py", "jit/*.py", "jit/attention/**/*.py")
LONGEST_SNIPPET = 200

Language = Literal["python", "c++"]


@dataclass(frozen=True)
class SourcePlace:
    """A definition in the installed package."""

    topic: str
    """What it belongs to, e.g. ``decode on CUDA cores``."""
    part: str
    """entry, plan, run, module, generator, binding, dispatch, kernel, device, scheduler, traits or set."""
    name: str
    """What is defined; its line has the name in it."""
    path: str
    """Relative to the folder that the package was installed into, e.g. ``flashinfer/decode.py``."""
    line: int
    """From 1."""
    snippet: str
    """That line."""


@dataclass(frozen=True)
class Tunable:
    """A template parameter of a kernel, or of its traits."""

    kernel: str
    """Name as it was asked for: with the template arguments that were profiled, or short."""
    name: str
    kind: str
    """Its type, e.g. ``uint32_t``."""
    value: str | None
    """In that kernel; None where only the short name was given."""
    meaning: str
    """In fiprof's words; empty where its glossary does not have it."""
    source_says: str
    """What a comment above the definition says of it; empty where none does."""
    declared: SourcePlace
    set_at: SourcePlace | None
    """Where the host code chooses it; None where that was not found."""


@dataclass(frozen=True)
class SourceMap:
    """What was found for some kernels."""

    version: str
    """Of the package; empty where it has none."""
    places: list[SourcePlace]
    tunables: list[Tunable]
    missing: list[str]
    """What was looked for and is not there: kernels, parts of a topic that this version does not have, parameters."""
    package: str = PACKAGE
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Part:
    """Something to look for."""

    part: str
    name: str
    """A function, a class or ``Class.method``."""
    language: Language = "c++"
    optional: bool = False
    """Versions without it are nothing to speak of."""


@dataclass(frozen=True)
class Topic:
    """What belongs to a kernel, from the Python call down to the device."""

    name: str
    kernels: tuple[str, ...]
    parts: tuple[Part, ...] = field(default=())


def _python(*parts: tuple[str, str], optional: bool = False) -> tuple[Part, ...]:
    return tuple(Part(part, name, "python", optional) for part, name in parts)


def _cpp(*parts: tuple[str, str], optional: bool = False) -> tuple[Part, ...]:
    return tuple(Part(part, name, "c++", optional) for part, name in parts)


_PREFILL_PYTHON = _python(
    ("entry", "BatchPrefillWithPagedKVCacheWrapper"),
    ("plan", "BatchPrefillWithPagedKVCacheWrapper.plan"),
    ("run", "BatchPrefillWithPagedKVCacheWrapper.run"),
    ("module", "get_batch_prefill_module"),
    ("generator", "gen_batch_prefill_module"),
    ("generator", "gen_customize_batch_prefill_module"),
)
_FA2 = _cpp(
    ("binding", "BatchPrefillWithKVCachePlan"),
    ("binding", "BatchPrefillWithPagedKVCacheRun"),
    ("dispatch", "BatchPrefillWithPagedKVCacheDispatched"),
    ("device", "BatchPrefillWithPagedKVCacheDevice"),
    ("scheduler", "PrefillPlan"),
    ("scheduler", "PrefillSplitQOKVIndptr"),
    ("scheduler", "PrefillBinarySearchKVChunkSize"),
    ("scheduler", "FA2DetermineCtaTileQ"),
    ("traits", "KernelTraits"),
)

TOPICS = (
    Topic(
        "decode on CUDA cores",
        ("BatchDecodeWithPagedKVCacheKernel",),
        _python(
            ("entry", "BatchDecodeWithPagedKVCacheWrapper"),
            ("plan", "BatchDecodeWithPagedKVCacheWrapper.plan"),
            ("run", "BatchDecodeWithPagedKVCacheWrapper.run"),
            ("module", "get_batch_decode_module"),
            ("generator", "gen_batch_decode_module"),
            ("generator", "gen_customize_batch_decode_module"),
        )
        + _cpp(
            ("binding", "BatchDecodeWithPagedKVCachePlan"),
            ("binding", "BatchDecodeWithPagedKVCacheRun"),
            ("dispatch", "BatchDecodeWithPagedKVCacheDispatched"),
            ("device", "BatchDecodeWithPagedKVCacheDevice"),
            ("scheduler", "DecodePlan"),
            ("scheduler", "BatchDecodeWithPagedKVCacheWorkEstimationDispatched"),
            ("scheduler", "PartitionPagedKVCacheBinarySearchMinNumPagePerBatch"),
            ("scheduler", "DecodeSplitKVIndptr"),
        ),
    ),
    Topic("prefill fa2", ("BatchPrefillWithPagedKVCacheKernel",), _PREFILL_PYTHON + _FA2),
    Topic(
        "decode on tensor cores",
        ("BatchPrefillWithPagedKVCacheKernel",),
        _python(
            ("entry", "BatchDecodeWithPagedKVCacheWrapper"),
            ("plan", "BatchDecodeWithPagedKVCacheWrapper.plan"),
            ("run", "BatchDecodeWithPagedKVCacheWrapper.run"),
            ("module", "get_batch_prefill_module"),
            ("generator", "gen_batch_prefill_module"),
        )
        + _FA2,
    ),
    Topic(
        "prefill fa3",
        ("PrefillWithKVCacheKernel",),
        _PREFILL_PYTHON
        + _cpp(
            ("binding", "BatchPrefillWithKVCacheSM90Plan"),
            ("binding", "BatchPrefillWithPagedKVCacheSM90Run"),
            ("dispatch", "BatchPrefillWithPagedKVCacheDispatched"),
            ("dispatch", "BatchPrefillWithPagedKVCacheKernelTraitsDispatched"),
            ("device", "SparseCollectiveMainloop"),
            ("device", "mma_f16"),
            ("scheduler", "PrefillSM90Plan"),
            ("scheduler", "cost_function"),
            ("scheduler", "BatchPrefillTileScheduler"),
            ("traits", "AttentionKernelTraits"),
        ),
    ),
    Topic(
        "split-K merge",
        ("PersistentVariableLengthMergeStatesKernel",),
        _cpp(("dispatch", "VariableLengthMergeStates"), ("device", "state_t")),
    ),
    Topic(
        "rmsnorm",
        ("RMSNormKernel",),
        _python(("entry", "rmsnorm"), ("module", "get_norm_module"), ("generator", "gen_norm_module"))
        + _cpp(("binding", "rmsnorm"), ("dispatch", "RMSNorm"))
        + _python(("kernel in CuTe DSL", "RMSNormKernel"), ("launch in CuTe DSL", "rmsnorm_cute"), optional=True),
    ),
    Topic(
        "fused_add_rmsnorm",
        ("FusedAddRMSNormKernel",),
        _python(("entry", "fused_add_rmsnorm"), ("module", "get_norm_module"), ("generator", "gen_norm_module"))
        + _cpp(("binding", "fused_add_rmsnorm"), ("dispatch", "FusedAddRMSNorm"))
        + _python(
            ("kernel in CuTe DSL", "FusedAddRMSNormKernel"),
            ("launch in CuTe DSL", "fused_add_rmsnorm_cute"),
            optional=True,
        ),
    ),
    Topic(
        "rope",
        ("BatchQKApplyRotaryKernel",),
        _python(
            ("entry", "apply_rope_inplace"),
            ("entry", "apply_llama31_rope_inplace"),
            ("module", "get_rope_module"),
            ("generator", "gen_rope_module"),
        )
        + _cpp(
            ("binding", "apply_rope"),
            ("binding", "apply_llama31_rope"),
            ("dispatch", "BatchQKApplyRotary"),
            ("dispatch", "BatchQKApplyLlama31Rotary"),
            ("device", "vec_apply_llama_rope"),
        ),
    ),
    Topic(
        "rope with a cos/sin cache",
        ("BatchQKApplyRotaryPosIdsCosSinCacheKernel", "BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel"),
        _python(
            ("entry", "apply_rope_with_cos_sin_cache_inplace"),
            ("module", "get_rope_module"),
            ("generator", "gen_rope_module"),
        )
        + _cpp(
            ("binding", "apply_rope_pos_ids_cos_sin_cache"),
            ("dispatch", "BatchQKApplyRotaryPosIdsCosSinCache"),
            ("device", "vec_apply_llama_rope_cos_sin"),
        ),
    ),
)
KERNELS = tuple(dict.fromkeys(kernel for topic in TOPICS for kernel in topic.kernels))
"""The kernels that are looked for unless others are named."""

GLOSSARY = {
    "POS_ENCODING_MODE": "positional encoding applied inside the kernel; 0 none",
    "MASK_MODE": "0 no mask, 1 causal, 2 a mask of the caller's",
    "num_stages_smem": "stages of the pipeline that copies keys and values into shared memory",
    "num_smem_stages": "stages of the pipeline that copies partial states into shared memory",
    "tile_size_per_bdx": "keys that a row of bdx threads handles in one step",
    "vec_size": "elements that a thread loads at once",
    "VEC_SIZE": "elements that a thread loads at once",
    "bdx": "threads of a block along a head's elements (blockDim.x)",
    "bdy": "rows of such threads in a block (blockDim.y)",
    "bdz": "layers of them (blockDim.z)",
    "CTA_TILE_Q": "query rows of a block's tile; query heads that share a KV head are rows of it",
    "NUM_MMA_Q": "16-row tensor-core tiles of queries that a warp holds",
    "NUM_MMA_KV": "16-key tensor-core tiles that a warp works on in one step",
    "NUM_MMA_D_QK": "16-element tiles of the query's and key's head",
    "NUM_MMA_D_VO": "16-element tiles of the value's head",
    "NUM_WARPS_Q": "warps of a block along the queries",
    "NUM_WARPS_KV": "warps of a block along the keys",
    "USE_TMA_LOAD_KV": "keys and values are loaded by the tensor memory accelerator; paged ones cannot be",
    "HEAD_DIM": "elements of a head",
    "head_dim": "elements of a head",
    "HEAD_DIM_QK": "elements of a query's and key's head",
    "HEAD_DIM_VO": "elements of a value's head",
    "CTA_Q": "query rows of a block's tile",
    "CTA_KV": "keys of a block's tile",
    "NUM_STAGES": "tiles of keys and values in flight in shared memory",
    "LEFT_SLIDING_WINDOW": "keys further back than a window are left out",
    "CAUSAL": "keys after the query are left out",
    "interleave": "rotated pairs are neighbours; else the head's halves",
    "INTERLEAVE": "rotated pairs are neighbours; else the head's halves",
}
"""In fiprof's words, for parameters that the source names without a word."""


def source_map(root: Path, kernels: Sequence[str] = KERNELS) -> SourceMap:
    """Places and tunables of some kernels in an installed package.

    root: the package's folder (``…/site-packages/flashinfer``). kernels: names as profiled, short or full with
    template arguments (``void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(…)``).
    """
    tree = _Tree(root)
    places: dict[SourcePlace, None] = {}
    tunables: dict[Tunable, None] = {}
    missing: dict[str, None] = {}
    for full in kernels:
        short = short_name(full)
        dsl = _dsl_kernel(short)
        definition = None if dsl else tree.cpp(short)
        topics = [topic for topic in TOPICS if (dsl or short) in topic.kernels]
        if definition is None and not dsl:
            missing[f"kernel {short}"] = None
        for topic in topics or [Topic(short, (short,))]:
            for part in topic.parts:
                found = tree.find(part, near=definition)
                if found is not None:
                    places[found.place(topic.name, part.part)] = None
                elif not part.optional:
                    missing[f"{topic.name}: {part.part} {part.name}"] = None
            if definition is not None:
                places[definition.place(topic.name, "kernel")] = None
        if definition is not None:
            if not _fits(definition, full):
                missing[f"kernel {short}: its template has other parameters than the profiled one"] = None
            tunables |= dict.fromkeys(_tunables(tree, (topics or [Topic(short, ())])[0], definition, full))
    order = {part: index for index, part in enumerate(_ORDER)}
    return SourceMap(
        version="",
        places=sorted(places, key=lambda place: (_topic_index(place.topic), order.get(place.part, len(order)))),
        tunables=list(tunables),
        missing=list(missing),
    )


def locate(root: Path, kernels: Sequence[str] = KERNELS) -> list[SourcePlace]:
    """The places alone; see :func:`source_map`."""
    return source_map(root, kernels).places


_ORDER = (
    "entry",
    "plan",
    "run",
    "module",
    "generator",
    "binding",
    "scheduler",
    "dispatch",
    "traits",
    "kernel",
    "device",
)


def _topic_index(name: str) -> int:
    return next((index for index, topic in enumerate(TOPICS) if topic.name == name), len(TOPICS))


def _dsl_kernel(short: str) -> str:
    """The class of a kernel that CuTe DSL made, whose name has the class's in it; empty for other kernels."""
    if not short.startswith("kernel_cutlass"):
        return ""
    return max((kernel for kernel in KERNELS if kernel in short), key=len, default="")


def short_name(full: str) -> str:
    """``RMSNormKernel`` of a kernel's full name: without return type, namespaces, template and call arguments."""
    head = re.split(r"[<(]", re.sub(r"<unnamed>|\(anonymous namespace\)", "_", full), maxsplit=1)[0]
    return head.split()[-1].rpartition("::")[2] if head.split() else ""


@dataclass(frozen=True)
class _Definition:
    """A definition in a file."""

    file: Path
    path: str
    name: str
    line: int
    text: str
    """The line."""
    position: int
    """Of the name in the file's text; -1 in Python."""

    def place(self, topic: str, part: str) -> SourcePlace:
        return SourcePlace(topic, part, self.name, self.path, self.line, self.text.strip()[:LONGEST_SNIPPET])


class _Tree:
    """The files of an installed package, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpp_files = _globbed(root, CPP_GLOBS)
        self.python_files = _globbed(root, PYTHON_GLOBS)
        self._found: dict[tuple[str, Path | None], _Definition | None] = {}

    def find(self, part: Part, *, near: _Definition | None) -> _Definition | None:
        return self.python(part.name) if part.language == "python" else self.cpp(part.name, near=near)

    def cpp(self, name: str, *, near: _Definition | None = None) -> _Definition | None:
        """The definition of a function or class template; among several the one in the kernel's file, or nearest."""
        key = (name, near.file if near else None)
        if key not in self._found:
            found = [each for file in self.cpp_files for each in self._cpp_in(file, name)]
            self._found[key] = min(found, key=lambda each: _distance(each.file, near), default=None)
        return self._found[key]

    def _cpp_in(self, file: Path, name: str) -> Iterator[_Definition]:
        text = _text(file)
        if name not in text:
            return
        code = code_of(file)
        for position in definitions(code, name):
            yield self.at(file, name, position)

    def at(self, file: Path, name: str, position: int) -> _Definition:
        """What stands at a position of a file's text."""
        text = _text(file)
        line = text.count("\n", 0, position) + 1
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        return _Definition(file, self.relative(file), name, line, text[start : end if end >= 0 else None], position)

    def python(self, name: str) -> _Definition | None:
        """The class, function or ``Class.method``; the one that the package exports comes first."""
        outer, _, inner = name.partition(".")
        exported = _exporter(self.root, outer)
        for file in ([exported] if exported else []) + self.python_files:
            if not re.search(rf"^\s*(?:class|def|async def) {re.escape(outer)}\b", _text(file), re.MULTILINE):
                continue
            node = _last_definition(_parsed(file).body, outer)
            if node is not None and inner:
                node = _last_definition(getattr(node, "body", []), inner)
            if node is not None:
                text = _text(file).splitlines()[node.lineno - 1]
                return _Definition(file, self.relative(file), inner or outer, node.lineno, text, -1)
        return None

    def relative(self, file: Path) -> str:
        return str(Path(MODULE) / file.relative_to(self.root))


@dataclass(frozen=True)
class _Body:
    """A function's body on the host, where template parameters are chosen."""

    definition: _Definition
    begin: int
    end: int


def _bodies(tree: _Tree, topic: Topic, kernel: _Definition) -> list[_Body]:
    """Of the topic's dispatching functions, then of its bindings."""
    found = []
    for wanted in ("dispatch", "binding"):
        for part in topic.parts:
            definition = tree.find(part, near=kernel) if part.part == wanted else None
            if definition is not None:
                code = code_of(definition.file)
                opening = code.find("{", definition.position)
                found.append(_Body(definition, opening, closing(code, opening, "{}") or len(code)))
    return found


def _tunables(tree: _Tree, topic: Topic, kernel: _Definition, full: str) -> Iterator[Tunable]:
    """The parameters of a kernel's template, and of the traits that it is given, with their values in ``full``."""
    bodies = _bodies(tree, topic, kernel)
    values = template_arguments(full, kernel.name) if _fits(kernel, full) else []
    for index, (kind, name, position) in enumerate(_parameters_of(kernel)):
        value = values[index] if index < len(values) else None
        struct = _traits(tree, topic, kernel, kind, name, value)
        if struct is not None:
            inside = template_arguments(value or "", struct.name)
            chosen = _arguments_at(bodies, struct.name, inside)
            for number, (its_kind, its_name, its_position) in enumerate(_parameters_of(struct)):
                if _is_value(its_kind):
                    its_value = inside[number] if number < len(inside) else None
                    set_at = _written(tree, chosen, number, its_name) or _chosen(tree, bodies, its_name)
                    yield _tunable(tree, topic, full, struct, its_kind, its_name, its_position, its_value, set_at)
        elif _is_value(kind):
            set_at = _chosen(tree, bodies, name)
            yield _tunable(tree, topic, full, kernel, kind, name, position, value, set_at)


def _fits(kernel: _Definition, full: str) -> bool:
    """Whether the template arguments of a kernel's full name can be those of its definition here."""
    values, parameters = template_arguments(full, kernel.name), _parameters_of(kernel)
    return len(values) <= len(parameters) and all(
        _is_value(kind) == bool(re.fullmatch(r"-?\d+|true|false", value))
        for value, (kind, _, _) in zip(values, parameters, strict=False)
    )


def _traits(
    tree: _Tree, topic: Topic, kernel: _Definition, kind: str, name: str, value: str | None
) -> _Definition | None:
    """The class of constants that a template parameter stands for, if it does; the topic's where no value tells."""
    if _is_value(kind):
        return None
    given = re.match(r"(?:\w+::)*(\w*KernelTraits)<", value or "")
    named = [part.name for part in topic.parts if part.part == "traits"] if name.endswith("raits") else []
    wanted = given.group(1) if given else next(iter(named), None) if value is None else None
    return tree.cpp(wanted, near=kernel) if wanted else None


def _parameters_of(definition: _Definition) -> list[tuple[str, str, int]]:
    return template_parameters(code_of(definition.file), definition.position)


def _tunable(
    tree: _Tree,
    topic: Topic,
    full: str,
    owner: _Definition,
    kind: str,
    name: str,
    position: int,
    value: str | None,
    set_at: _Definition | None,
) -> Tunable:
    plain = name.rstrip("_")
    part = "traits" if owner.name.endswith("Traits") else "kernel"
    return Tunable(
        kernel=full,
        name=plain,
        kind=kind,
        value=value,
        meaning=GLOSSARY.get(plain, ""),
        source_says=_said(_text(owner.file), plain, owner.position),
        declared=tree.at(owner.file, plain, position).place(topic.name, part),
        set_at=set_at.place(topic.name, "set") if set_at else None,
    )


def _chosen(tree: _Tree, bodies: Sequence[_Body], name: str) -> _Definition | None:
    """Where a body assigns a constant of this name, or one of FlashInfer's DISPATCH_… macros makes it."""
    plain = re.escape(name.rstrip("_"))
    patterns = (
        rf"\b(?:constexpr|const)\s+[\w:]+\s+({plain})\s*=",
        # The macro's name for it may be in capitals where the kernel's is not.
        rf"\bDISPATCH_\w+\([^;{{]*?\b((?i:{plain}))\s*,\s*\{{",
    )
    for body in bodies:
        code = code_of(body.definition.file)
        for pattern in patterns:
            found = re.compile(pattern).search(code, body.begin, body.end)
            if found is not None:
                return tree.at(body.definition.file, found.group(1), found.start(1))
    return None


@dataclass(frozen=True)
class _Arguments:
    """Template arguments as a body writes them."""

    file: Path
    spans: tuple[tuple[int, int], ...]


def _arguments_at(bodies: Sequence[_Body], name: str, values: Sequence[str]) -> _Arguments | None:
    """The arguments that a body gives to a class; of several, those whose literals are the profiled values."""
    best: tuple[int, _Arguments] | None = None
    for body in bodies:
        code = code_of(body.definition.file)
        for match in re.compile(rf"\b{re.escape(name)}\s*<").finditer(code, body.begin, body.end):
            end = closing(code, match.end() - 1, "<>")
            spans = tuple(_split_positions(code, match.end(), end)) if end else ()
            literals = [(code[a:b].strip(), value) for (a, b), value in zip(spans, values, strict=False)]
            numbers = [(word, value) for word, value in literals if word.isdigit()]
            if any(word != value for word, value in numbers):
                continue
            if best is None or len(numbers) > best[0]:
                best = (len(numbers), _Arguments(body.definition.file, spans))
    return best[1] if best else None


def _written(tree: _Tree, arguments: _Arguments | None, number: int, name: str) -> _Definition | None:
    """Where an argument is a literal with its parameter's name beside it: ``/*CTA_KV_=*/96``."""
    if arguments is None or number >= len(arguments.spans):
        return None
    begin, end = arguments.spans[number]
    plain = name.rstrip("_")
    found = re.compile(rf"/\*\s*({plain})_?\s*=\s*\*/").search(_text(arguments.file), begin, end)
    return tree.at(arguments.file, plain, found.start(1)) if found else None


def _said(text: str, name: str, before: int) -> str:
    """What the last ``\\tparam name …`` comment above a position says."""
    pattern = rf"[\\@]tparam\s+{re.escape(name)}_?\s+((?:(?!\*/|[\\@]\w|\n\s*\n).)+)"
    found = list(re.finditer(pattern, text[:before], re.DOTALL))
    return " ".join(re.sub(r"\n\s*(?:\*|//+)?", " ", found[-1].group(1)).split()) if found else ""


def _is_value(kind: str) -> bool:
    return not re.search(r"\b(?:typename|class|template)\b", kind)


# C++


def definitions(code: str, name: str) -> list[int]:
    """Positions of a name where a function or a class of it is defined, not called or declared.

    code: C++ without comments and strings, see :func:`blanked`.
    """
    found = [
        match.start(1)
        for match in re.finditer(rf"\b(?:struct|class)\s+({re.escape(name)})\b(?=\s*(?:final\s*)?[:{{])", code)
    ]
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", code):
        before = code[: match.start()].rstrip()
        last_word = re.search(r"(\w+)$", before[-80:])
        if not before or (before[-1] not in ")>&*" and last_word is None):
            continue
        if last_word is not None and last_word.group(1) in _NO_TYPES:
            continue
        end = closing(code, match.end() - 1, "()")
        if end is not None and re.match(r"\s*(?:const|noexcept|override|final|\s)*\{", code[end + 1 :][:200]):
            found.append(match.start())
    return sorted(found)


_NO_TYPES = frozenset({"return", "new", "else", "case", "throw", "do", "delete", "co_return", "and", "or", "not"})


def template_parameters(code: str, position: int) -> list[tuple[str, str, int]]:
    """Kind, name and position of each parameter of the template that a definition at a position has; none without."""
    start = code.rfind("template", 0, position)
    opening = code.find("<", start) if start >= 0 else -1
    end = closing(code, opening, "<>") if 0 <= opening < position else None
    if end is None or end > position or re.search(r"[;{}]", code[end + 1 : position]):
        return []
    found = []
    for begin, stop in _split_positions(code, opening + 1, end):
        declaration = re.sub(r"=.*", "", code[begin:stop], flags=re.DOTALL)
        match = re.search(r"(\w+)\s*$", declaration)
        if match is not None:
            found.append((" ".join(declaration[: match.start()].split()), match.group(1), begin + match.start(1)))
    return found


def template_arguments(full: str, name: str) -> list[str]:
    """The template arguments that a kernel's full name gives to ``name``, without casts as in ``(unsigned int)8``."""
    match = re.search(rf"\b{re.escape(name)}\s*<", full)
    end = closing(full, match.end() - 1, "<>") if match else None
    if match is None or end is None:
        return []
    return [
        re.sub(r"^\([\w: ]+\)\s*(?=[\w-])", "", full[begin:stop].strip())
        for begin, stop in _split_positions(full, match.end(), end)
    ]


def closing(text: str, opening: int, pair: str) -> int | None:
    """Where the bracket at a position closes; inside angle brackets, round ones are skipped."""
    depth, round_depth = 0, 0
    for position in range(opening, len(text)):
        char = text[position]
        if pair == "<>" and char in "()":
            round_depth += 1 if char == "(" else -1
        elif round_depth:
            continue
        elif char == pair[0]:
            depth += 1
        elif char == pair[1]:
            depth -= 1
            if depth == 0:
                return position
    return None


def _split_positions(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part between commas that stand in no bracket."""
    depth, start = 0, begin
    for position in range(begin, end):
        char = text[position]
        if char in "<([{":
            depth += 1
        elif char in ">)]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield start, position
            start = position + 1
    if text[start:end].strip():
        yield start, end


_BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)


def blanked(text: str) -> str:
    """C++ with spaces for comments, strings and preprocessor lines; positions and lines stay."""
    return _BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


@functools.lru_cache(maxsize=512)
def code_of(file: Path) -> str:
    return blanked(_text(file))


@functools.lru_cache(maxsize=4096)
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _globbed(root: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in root.glob(pattern) if file.is_file()})


def _distance(file: Path, near: _Definition | None) -> tuple[int, int, str]:
    """How far a definition is from the kernel's file: 0 in the same, more for every folder between.

    Among equals those for quantized elements come last, and those in headers before others.
    """
    quantized = int("fp8" in file.name or "quantization" in file.parts)
    if near is None:
        return ("csrc" in file.parts, quantized, str(file))
    common = len([None for a, b in zip(file.parts, near.file.parts, strict=False) if a == b])
    return (0 if file == near.file else 1 + len(near.file.parts) - common, quantized, str(file))


# Python


@functools.lru_cache(maxsize=256)
def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(_text(file))
    except SyntaxError:
        # Of a later Python than this one; what it defines is then missing.
        return ast.Module([], [])


def _last_definition(body: Sequence[ast.stmt], name: str) -> ast.stmt | None:
    """The last definition of a name that is no overload; those behind an if or a try count too."""
    found: ast.stmt | None = None
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            found = _last_definition([*node.body, *node.orelse], name) or found
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
            and not any("overload" in ast.dump(decorator) for decorator in node.decorator_list)
        ):
            found = node
    return found


def _exporter(root: Path, name: str) -> Path | None:
    """The file that the package's ``__init__`` takes a name from."""
    for node in ast.walk(_parsed(root / "__init__.py") if (root / "__init__.py").exists() else ast.Module([], [])):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in [alias.name for alias in node.names]:
            base = root.joinpath(*(node.module or "").split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file():
                    return file
    return None


# The program


def installed_root() -> Path | None:
    """The folder of the installed package, found without importing it."""
    spec = importlib.util.find_spec(MODULE)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def main(arguments: list[str] | None = None) -> int:
    """Print the map as JSON. Exit status: 0 done, 1 no FlashInfer here."""
    parser = argparse.ArgumentParser(
        prog="python -m fiprof.workloads.sources", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="names as profiled (default: FlashInfer's usual ones)"
    )
    parser.add_argument("--root", type=Path, help="the package's folder (default: the installed one)")
    options = parser.parse_args(arguments)
    root = options.root or installed_root()
    if root is None or not root.is_dir():
        sys.stderr.write(f"fiprof: error: {root or 'flashinfer'} is not installed for {sys.executable}\n")
        return 1
    found = source_map(root, options.kernels or KERNELS)
    try:
        known = "" if options.root else version(PACKAGE)
    except PackageNotFoundError:
        known = ""
    sys.stdout.write(json.dumps(dataclasses.asdict(dataclasses.replace(found, version=known)), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
