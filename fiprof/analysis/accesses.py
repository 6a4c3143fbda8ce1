"""How wide a kernel's global memory instructions are, and what that makes of its sectors a request."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.analysis.instructions import Family, access_bytes, by_launch, family
from fiprof.model.run import Run

WARP_THREADS = 32
SECTOR_BYTES = 32

Ideal = tuple[float, float] | None
"""Sectors a request of the narrowest and of the widest instruction where a warp's 32 threads read neighbours:
32 threads x width / 32 bytes, 4 for accesses of 4 bytes, 16 for those of 16. More than that touches sectors of which it
uses a part; fewer is what threads that share an address, or do not take part, need. None without SASS."""


@dataclass(frozen=True)
class GlobalWidths:
    """Bytes of a thread in an access to global memory, of the instructions in a kernel's SASS, ascending."""

    loads: tuple[int, ...] = ()
    """Copies from global to shared memory (LDGSTS) among them; those by TMA are not."""
    stores: tuple[int, ...] = ()

    @property
    def ideal_loads(self) -> Ideal:
        """Ideal sectors a request of the loads."""
        return _ideal(self.loads)

    @property
    def ideal_stores(self) -> Ideal:
        """Ideal sectors a request of the stores."""
        return _ideal(self.stores)


def _ideal(widths: tuple[int, ...]) -> Ideal:
    low, high = (WARP_THREADS * width / SECTOR_BYTES for width in (min(widths, default=0), max(widths, default=0)))
    return (low, high) if widths else None


def widths_by_launch(run: Run) -> dict[int, GlobalWidths]:
    """Launch -> the widths of its kernel's accesses, as its SASS has them; empty without SASS.

    Raises FiprofError for a table that cannot be read.
    """

    def widths(lines: tuple[str, ...], *kinds: Family) -> tuple[int, ...]:
        return tuple(sorted({access_bytes(line) for line in lines if family(line) in kinds}))

    found = {launch: tuple(listing.code.lines) for launch, listing in by_launch(run).items()}
    return {
        launch: GlobalWidths(widths(lines, Family.GLOBAL_LOAD, Family.ASYNC_COPY), widths(lines, Family.GLOBAL_STORE))
        for launch, lines in found.items()
    }
