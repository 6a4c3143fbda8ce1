"""How wide a kernel's global memory instructions are, and what that makes of its sectors a request."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.analysis.instructions import Family, Listing, access_bytes, by_launch, family
from fiprof.model.run import Run

_LOADS = (Family.GLOBAL_LOAD, Family.ASYNC_COPY)

WARP_THREADS = 32
SECTOR_BYTES = 32


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
    return {launch: _widths(listing) for launch, listing in by_launch(run).items()}


def _widths(listing: Listing) -> GlobalWidths:
    loads, stores = set[int](), set[int]()
    for line in listing.code.lines:
        kind = family(line)
        if kind in _LOADS:
            loads.add(access_bytes(line))
        elif kind is Family.GLOBAL_STORE:
            stores.add(access_bytes(line))
    return GlobalWidths(tuple(sorted(loads)), tuple(sorted(stores)))


def _ideal(widths: tuple[int, ...]) -> IdealSectors | None:
    if not widths:
        return None
    low, high = (WARP_THREADS * width / SECTOR_BYTES for width in (min(widths), max(widths)))
    return IdealSectors(low, high)
