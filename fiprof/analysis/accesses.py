"""How well a launch's memory instructions use the hardware: bank conflicts, sectors a request, spilled registers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fiprof.model.expressions import Row, number
from fiprof.model.run import Run

WARP_THREADS = 32
SECTOR_BYTES = 32

ACCESS_BYTES = 4
"""Bytes of a thread that SASS loads or stores unless the instruction says otherwise (.U8, .64, .128, …)."""

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_GLOBAL = re.compile(r"\b(LDGSTS|LDG|STG)\b((?:\.\w+)*)")


@dataclass(frozen=True)
class SharedAccess:
    """Loads from shared memory, or stores to it."""

    wavefronts: float
    """Passes through the data stage of shared memory."""
    conflicts: float
    """Those of them that bank conflicts added."""

    @property
    def conflict_share(self) -> float:
        """Conflicts a wavefront, 0 to 1."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0

    @property
    def ways(self) -> float | None:
        """Passes for each one that would be there without conflicts: 1 is ideal; None without any.

        ncu's rule SharedMemoryConflicts divides by the requests instead, so that a 16-byte load, which needs four
        passes, is a 4-way conflict to it.
        """
        needed = self.wavefronts - self.conflicts
        return self.wavefronts / needed if needed > 0 else None


@dataclass(frozen=True)
class GlobalAccess:
    """Loads from global memory, or stores to it."""

    requests: float
    """Warp instructions at L1."""
    sectors: float
    """Sectors of 32 bytes that they touched."""
    widths: tuple[int, ...] = ()
    """Bytes of a thread in an access, of the instructions in the kernel's SASS, ascending; empty without SASS."""

    @property
    def sectors_per_request(self) -> float | None:
        """None without requests."""
        return self.sectors / self.requests if self.requests else None

    @property
    def ideal(self) -> tuple[float, float] | None:
        """Sectors a request where a warp's 32 threads read neighbours, of the narrowest and the widest instruction.

        32 threads x width / 32 bytes: 4 for accesses of 4 bytes, 16 for those of 16. More than that touches sectors
        of which it uses a part; fewer is what threads that share an address, or do not take part, need.
        None without SASS.
        """
        if not self.widths:
            return None
        return _ideal_sectors(min(self.widths)), _ideal_sectors(max(self.widths))


@dataclass(frozen=True)
class Accesses:
    """A launch's memory accesses; None is what was not collected (``--set full`` has all)."""

    shared_loads: SharedAccess | None = None
    shared_stores: SharedAccess | None = None
    global_loads: GlobalAccess | None = None
    """Copies from global to shared memory (LDGSTS) among them; those by TMA are not."""
    global_stores: GlobalAccess | None = None
    local_requests: float | None = None
    """Loads and stores of local memory: arrays of a thread that are no registers, and spilled registers."""
    spill_requests: float | None = None
    """Those of them because registers were spilled."""


def accesses(row: Row, widths: Mapping[str, tuple[int, ...]] | None = None) -> Accesses:
    """The accesses of a launch. row: of ``launches``; widths: of its kernel, from :func:`widths_by_launch`."""
    sass = widths or {}
    local = [number(row, "local_load_requests"), number(row, "local_store_requests")]
    return Accesses(
        shared_loads=_shared(row, "load"),
        shared_stores=_shared(row, "store"),
        global_loads=_global(row, "load", sass.get("load", ())),
        global_stores=_global(row, "store", sass.get("store", ())),
        local_requests=None if None in local else sum(value for value in local if value is not None),
        spill_requests=number(row, "spill_requests"),
    )


def widths_by_launch(run: Run) -> dict[int, dict[str, tuple[int, ...]]]:
    """Launch -> "load" and "store" -> bytes of a thread in an access, as its SASS has them; empty without SASS.

    Raises FiprofError for a table that cannot be read.
    """
    found: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in run.rows("hotspots", ("launch", "sass")):
        if access := _GLOBAL.search(row["sass"] or ""):
            kind = "store" if access[1] == "STG" else "load"
            found[row["launch"]][kind].add(_width(access[2].split(".")))
    return {launch: {kind: tuple(sorted(widths)) for kind, widths in kinds.items()} for launch, kinds in found.items()}


def _width(modifiers: Iterable[str]) -> int:
    """The last one that is a width: ``LDGSTS.E.BYPASS.LTC128B.128`` has 16 bytes."""
    return next((_WIDTHS[word] for word in reversed(list(modifiers)) if word in _WIDTHS), ACCESS_BYTES)


def _shared(row: Row, kind: str) -> SharedAccess | None:
    wavefronts = number(row, f"shared_{kind}_wavefronts")
    conflicts = number(row, f"shared_{kind}_bank_conflicts")
    return None if wavefronts is None or conflicts is None else SharedAccess(wavefronts, conflicts)


def _global(row: Row, kind: str, widths: tuple[int, ...]) -> GlobalAccess | None:
    requests, sectors = number(row, f"global_{kind}_requests"), number(row, f"global_{kind}_sectors")
    return None if requests is None or sectors is None else GlobalAccess(requests, sectors, widths)


def _ideal_sectors(width: int) -> float:
    return WARP_THREADS * width / SECTOR_BYTES
