"""What a report of ncu holds, whichever way it was read: from the raw page's CSV or from the ``.ncu-rep`` itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.parsers.names import short_name
from fiprof.parsers.range_cases import FIPROF_DOMAIN, case_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLED = "smsp__pcsamp_"
"""How the names of ncu's counts of warp samples begin."""
DURATION = "gpu__time_duration.sum"
MEASURE = "measure"
_ITERATION = re.compile(r"iter (\d{1,9})")
# A range as the CSV prints it: domain, name, payload type and value, colour type and value, message type, and the
# name once more. It may hold colons itself; that it comes twice says where it ends. One of nvtxRangePush has no more.
_RANGE = re.compile(r"(?P<domain>[^:]*):(?P<name>.*)(?:(?::[^:]*){5}:(?P=name)|(?::none){6})", re.DOTALL)
DEFAULT_DOMAIN = "<default domain>"
"""How ncu calls NVTX's own."""


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
    ranges: tuple[tuple[str, str], ...] = ()
    """Push/pop ranges around it, domain (empty for the default one) and name, outermost first in each domain."""
    pid: int | None = None
    context: int | None = None
    stream: int | None = None
    device: int | None = None
    cc: str | None = None
    """Compute capability, e.g. ``9.0``."""

    def scope(self, declared: Sequence[str] = ()) -> tuple[str | None, int | None]:
        """Case and iteration: of the runner's ranges inside ``measure``, or the innermost declared range.

        ncu does not tell how often a range has been, so that a declared one has no iteration. None where there is none.
        """
        for domain, name in reversed(self.ranges):
            if case := case_of(domain, name, declared):
                return case, None
        inside = self._inside_measure
        found = [int(match[1]) for name in inside[1:] if (match := _ITERATION.fullmatch(name))]
        return (inside[0] if inside else None), (found[-1] if found else None)

    @property
    def _inside_measure(self) -> tuple[str, ...]:
        own = tuple(name for domain, name in self.ranges if domain == FIPROF_DOMAIN)
        return own[own.index(MEASURE) + 1 :] if MEASURE in own else ()


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
    def sound(
        cls, *, launches: tuple[Launch, ...], values: NDArray[np.float64], metrics: tuple[str, ...], **others: Any
    ) -> Profile:
        """A profile without infinities, and without negative or broken counts of samples: those become NaN.

        A launch that ncu failed on has no value but those of its shape and its GPU; it is named.
        """
        import numpy as np

        counts = np.array([name.startswith(SAMPLED) for name in metrics], bool)[:, None]
        with np.errstate(invalid="ignore"):
            unsound = np.isinf(values) | (counts & ((values < 0) | (np.abs(values - np.rint(values)) > 1e-9 * values)))
            unsound |= counts & (values >= 2.0**63)
        rows = np.flatnonzero(unsound.any(axis=1))
        values[unsound] = np.nan
        names = ", ".join(metrics[row] for row in rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
        left_out = [f"values that no launch has are left out: {names}"] if len(rows) else []
        if DURATION in metrics:
            untimed = np.flatnonzero(np.isnan(values[metrics.index(DURATION)]))
            failed = [f"{launches[place].id} ({short_name(launches[place].kernel_full)})" for place in untimed]
            left_out += [f"ncu failed on launch {each}: it has no duration" for each in failed]
        return cls(launches=launches, values=values, metrics=metrics, left_out=tuple(left_out), **others)

    def of(self, metric: str) -> NDArray[np.float64] | None:
        """A metric's value for each launch; None where the report has no such metric."""
        index = self._index.get(metric)
        return None if index is None else self.values[index]

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.metrics)}


def ranges_of(cell: str) -> tuple[tuple[str, str], ...]:
    """The ranges in a cell of the column for push/pop ranges, as ``Launch.ranges``.

    ``7  "fiprof:measure:none:none:RGB:0xff:REGISTERED:measure"  …`` -> ``(("fiprof", "measure"), …)``
    """
    found = (_RANGE.fullmatch(text) for text in re.findall(r'"(.*?)"(?=\s|$)', cell, re.DOTALL))
    return tuple((plain_domain(match["domain"]), match["name"]) for match in found if match)


def plain_domain(name: str) -> str:
    return "" if name == DEFAULT_DOMAIN else name


def dimensions(cell: str) -> str:
    """``(132, 1, 1)`` -> ``132x1x1``."""
    return "x".join(re.findall(r"\d+", cell))
