"""How wide a kernel's global memory instructions are, and what that makes of its sectors a request."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fiprof.model.run import Run

WARP_THREADS = 32
SECTOR_BYTES = 32

ACCESS_BYTES = 4
"""Bytes of a thread that SASS loads or stores unless the instruction says otherwise (.U8, .64, .128, …)."""

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_GLOBAL = re.compile(r"\b(LDGSTS|LDG|STG)\b((?:\.\w+)*)")


@dataclass(frozen=True)
class IdealSectors:
    """Sectors a request where a warp's 32 threads read neighbours: 32 threads x width / 32 bytes.

    4 for accesses of 4 bytes, 16 for those of 16. More than that touches sectors of which it uses a part; fewer is
    what threads that share an address, or do not take part, need.
    """

    low: float
    """Of the narrowest instruction."""
    high: float
    """Of the widest."""


@dataclass(frozen=True)
class GlobalWidths:
    """Bytes of a thread in an access to global memory, of the instructions in a kernel's SASS, ascending."""

    loads: tuple[int, ...] = ()
    """Copies from global to shared memory (LDGSTS) among them; those by TMA are not."""
    stores: tuple[int, ...] = ()

    @property
    def ideal_loads(self) -> IdealSectors | None:
        """None without SASS."""
        return _ideal(self.loads)

    @property
    def ideal_stores(self) -> IdealSectors | None:
        """None without SASS."""
        return _ideal(self.stores)


def widths_by_launch(run: Run) -> dict[int, GlobalWidths]:
    """Launch -> the widths of its kernel's accesses, as its SASS has them; empty without SASS.

    Raises FiprofError for a table that cannot be read.
    """
    found: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in run.rows("hotspots", ("launch", "sass")):
        if access := _GLOBAL.search(row["sass"] or ""):
            kind = "stores" if access[1] == "STG" else "loads"
            found[row["launch"]][kind].add(_width(access[2].split(".")))
    return {
        launch: GlobalWidths(**{kind: tuple(sorted(widths)) for kind, widths in kinds.items()})
        for launch, kinds in found.items()
    }


def _width(modifiers: Iterable[str]) -> int:
    """The last one that is a width: ``LDGSTS.E.BYPASS.LTC128B.128`` has 16 bytes."""
    return next((_WIDTHS[word] for word in reversed(list(modifiers)) if word in _WIDTHS), ACCESS_BYTES)


def _ideal(widths: tuple[int, ...]) -> IdealSectors | None:
    if not widths:
        return None
    low, high = (WARP_THREADS * width / SECTOR_BYTES for width in (min(widths), max(widths)))
    return IdealSectors(low, high)
