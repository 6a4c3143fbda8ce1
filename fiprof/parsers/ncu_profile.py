"""What a report of ncu holds, whichever way it was read: from the raw page's CSV or from the ``.ncu-rep`` itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DOMAIN = "fiprof"
SAMPLED = "smsp__pcsamp_"
"""How the names of ncu's counts of warp samples begin."""
MEASURE = "measure"
_ITERATION = re.compile(r"iter (\d{1,9})")
# A range as the CSV prints it: domain, name, payload type and value, colour type and value, message type, and the
# name once more. It may hold colons itself; that it comes twice says where it ends.
_RANGE = re.compile(rf"{DOMAIN}:(?P<name>.*)(?::[^:]*){{5}}:(?P=name)", re.DOTALL)


@dataclass(frozen=True)
class Launch:
    """A profiled kernel launch."""

    id: int
    """ncu's launch ID, unique in the report."""
    kernel_full: str
    """Demangled name as ncu prints it."""
    grid: str
    """Blocks, e.g. ``132x1x1``."""
    block: str
    """Threads of a block, e.g. ``384x1x1``."""
    ranges: tuple[str, ...] = ()
    """Push/pop ranges of the domain ``fiprof`` around it, outermost first."""
    pid: int | None = None
    context: int | None = None
    stream: int | None = None
    device: int | None = None
    cc: str | None = None
    """Compute capability, e.g. ``9.0``."""

    @property
    def case(self) -> str | None:
        """The case: the range inside ``measure``; None outside."""
        return self._inside_measure[0] if self._inside_measure else None

    @property
    def iteration(self) -> int | None:
        """i of the innermost range ``iter <i>`` inside the case; None where there is none."""
        found = [int(match[1]) for name in self._inside_measure[1:] if (match := _ITERATION.fullmatch(name))]
        return found[-1] if found else None

    @property
    def _inside_measure(self) -> tuple[str, ...]:
        return self.ranges[self.ranges.index(MEASURE) + 1 :] if MEASURE in self.ranges else ()


@dataclass(frozen=True)
class Profile:
    """All launches with all their metrics."""

    launches: tuple[Launch, ...]
    metrics: tuple[str, ...]
    """ncu's names."""
    units: tuple[str, ...]
    """Base unit of each metric; as found where it is not known."""
    values: NDArray[np.float64]
    """Metrics x launches, in the base unit; NaN for text and for what was not collected."""
    texts: Mapping[str, Sequence[str | None]]
    """Metric -> the text of each launch's cell; only metrics that have one."""
    unscaled: frozenset[str] = frozenset()
    """Metrics whose unit is not known, their values as found."""
    left_out: tuple[str, ...] = ()
    """What ncu wrote and cannot have measured, a sentence each."""

    @classmethod
    def sound(cls, *, values: NDArray[np.float64], metrics: tuple[str, ...], **others: Any) -> Profile:
        """A profile without infinities, and without negative or broken counts of samples: those become NaN."""
        import numpy as np

        counts = np.array([name.startswith(SAMPLED) for name in metrics], bool)[:, None]
        with np.errstate(invalid="ignore"):
            unsound = np.isinf(values) | (counts & ((values < 0) | (values != np.floor(values)) & ~np.isnan(values)))
            unsound |= counts & (values >= 2.0**63)
        rows = np.flatnonzero(unsound.any(axis=1))
        values[unsound] = np.nan
        names = ", ".join(metrics[row] for row in rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
        left_out = (f"values that no launch has are left out: {names}",) if len(rows) else ()
        return cls(values=values, metrics=metrics, left_out=left_out, **others)

    def of(self, metric: str) -> NDArray[np.float64] | None:
        """A metric's value for each launch; None where the report has no such metric."""
        index = self._index.get(metric)
        return None if index is None else self.values[index]

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.metrics)}


def ranges_of(cell: str) -> tuple[str, ...]:
    """The ``fiprof`` ranges in a cell of the column for push/pop ranges, outermost first.

    ``7  "fiprof:measure:none:none:RGB:0xff:REGISTERED:measure"  "fiprof:iter 0:…:iter 0"`` -> ``("measure", "iter 0")``
    """
    found = (_RANGE.fullmatch(text) for text in re.findall(r'"(.*?)"(?=\s|$)', cell, re.DOTALL))
    return tuple(match["name"] for match in found if match)


def dimensions(cell: str) -> str:
    """``(132, 1, 1)`` -> ``132x1x1``."""
    return "x".join(re.findall(r"\d+", cell))
