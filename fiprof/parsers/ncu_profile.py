"""What a report of ncu holds, whichever way it was read: its launches, their metrics in base units, their stalls."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiprof.model.redaction import mask
from fiprof.parsers.names import short_name
from fiprof.text import csv_rows

SAMPLED = "smsp__pcsamp_"  # how the names of ncu's counts of warp samples begin
DURATION = "gpu__time_duration.sum"
DEFAULT_DOMAIN = "<default domain>"  # what ncu calls NVTX's own domain
# A range as the CSV prints it: domain, name, payload type and value, colour type and value, message type, and the
# name once more. It may hold colons itself; that it comes twice says where it ends. One of nvtxRangePush has no more.
_RANGE = re.compile(r"(?P<domain>[^:]*):(?P<name>.*)(?:(?::[^:]*){5}:(?P=name)|(?::none){6})", re.DOTALL)
_QUOTED = re.compile(r'"(.*?)"(?=\s|$)', re.DOTALL)
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}  # ncu scales bytes by 1000 too
_TIMES = {
    "ns": 1.0, "nsecond": 1.0,
    "us": 1e3, "usecond": 1e3,
    "ms": 1e6, "msecond": 1e6,
    "s": 1e9, "sec": 1e9, "second": 1e9,
}  # fmt: skip
"""Nanoseconds of each: a time's base unit is the nanosecond, a rate's the second."""
_THINGS = {
    "%", "block", "branches", "byte", "cluster", "cycle", "hz", "inst", "pass", "register", "request", "sample",
    "sector", "sectors", "SM", "thread", "warp",
}  # fmt: skip
_SAMPLED = re.compile(SAMPLED + r"warps_issue_stalled_(\w+?)(_not_issued)?")
_SPELLINGS = csv_rows(Path(__file__).with_name("stall_spellings.csv"))
"""ncu's other spellings of a reason -> the row with the one of its per-issue ratios, which the tables use."""


@dataclass(frozen=True)
class Profile:
    """All launches with all their metrics."""

    launches: Mapping[str, Sequence[Any]]
    """The columns of the table ``launches`` that ncu knows, of which ``launch`` and ``kernel_full`` have no null; and
    ``ranges``: the push/pop ranges around each, as :func:`ranges_of` gives them."""
    metrics: tuple[str, ...]  # ncu's names
    units: tuple[str, ...]  # base unit of each metric; as found where it is not known
    values: NDArray[np.float64]  # metrics x launches, in the base unit; NaN for text and for what was not collected
    texts: Mapping[str, Sequence[str | None]]  # metric -> the text of each launch's cell; only metrics that have one
    unscaled: frozenset[str] = frozenset()  # metrics whose unit is not known, their values as found
    left_out: tuple[str, ...] = ()  # what ncu wrote and cannot have measured, a sentence each

    @classmethod
    def sound(
        cls, launches: Mapping[str, Sequence[Any]], values: NDArray[np.float64], metrics: tuple[str, ...], **others: Any
    ) -> Profile:
        """A profile without infinities, and without negative or broken counts of samples: those become NaN.

        A launch that ncu failed on has no value but those of its shape and its GPU; it is named.
        """
        counts = np.array([name.startswith(SAMPLED) for name in metrics], bool)[:, None]
        with np.errstate(invalid="ignore"):
            unsound = np.isinf(values) | (counts & ((values < 0) | (np.abs(values - np.rint(values)) > 1e-9 * values)))
            unsound |= counts & (values >= 2.0**63)
        rows = np.flatnonzero(unsound.any(axis=1))
        values[unsound] = np.nan
        names = ", ".join(metrics[row] for row in rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
        left_out = [f"values that no launch has are left out: {names}"] if len(rows) else []
        if DURATION in metrics:
            untimed = np.flatnonzero(np.isnan(values[metrics.index(DURATION)])).tolist()
            left_out += [
                f"ncu failed on launch {launches['launch'][place]} ({short_name(launches['kernel_full'][place])}):"
                " it has no duration"
                for place in untimed
            ]
        return cls(launches=launches, values=values, metrics=metrics, left_out=tuple(left_out), **others)

    def of(self, metric: str) -> NDArray[np.float64] | None:
        """A metric's value for each launch; None where the report has no such metric."""
        place = self._places.get(metric)
        return None if place is None else self.values[place]

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.metrics)}


Ranges = tuple[tuple[str, str], ...]
"""Push/pop ranges, domain (empty for the default one) and name, outermost first in each domain."""


def ranges_of(cell: str) -> Ranges:
    """The ranges in a cell of the column for push/pop ranges, without secrets.

    ``7 "fiprof:measure:none:none:RGB:0xff:REGISTERED:measure" …`` -> ``(("fiprof", "measure"), …)``
    """
    matches = (_RANGE.fullmatch(text) for text in _QUOTED.findall(cell))
    return tuple((plain_domain(match["domain"]), mask(match["name"])) for match in matches if match)


def masked_cell(cell: str, mask: Callable[[str], str]) -> str:
    """A cell of a page without secrets, which still tells its ranges. mask: takes them out of a text."""

    def masked(quoted: re.Match[str]) -> str:
        match, text = _RANGE.fullmatch(quoted[1]), quoted[0]
        for part in match.group("domain", "name") if match else (quoted[1],):
            text = text.replace(part, mask(part))
        return text

    found, count = _QUOTED.subn(masked, cell)
    return found if count else mask(cell)


def plain_domain(name: str) -> str:
    return "" if name == DEFAULT_DOMAIN else name


@functools.cache
def to_base(unit: str) -> tuple[str, float] | None:
    """The base unit and the factor that brings values to it; None for a unit that is not known.

    ``Mbyte`` -> ``("byte", 1e6)``, ``us`` -> ``("ns", 1e3)``, ``Kbyte/s`` -> ``("byte/s", 1e3)``, ``cycle/nsecond`` ->
    ``("hz", 1e9)``, ``%/Kbyte`` -> ``("%/byte", 1e3)``. A count's unit is empty.
    """
    if not unit:
        return "", 1.0
    numerator, slash, denominator = unit.partition("/")
    above = _thing(numerator)
    if not slash or above is None:
        return above
    if denominator in _TIMES:
        base = f"{above[0]}/s"
        return ("hz" if base == "cycle/s" else base), above[1] * (1e9 / _TIMES[denominator])
    below = _thing(denominator)
    # ncu prints 5,022 %/byte as 5.022 %/Kbyte: its prefix is the whole value's.
    return below and (f"{above[0]}/{below[0]}", above[1] * below[1])


def _thing(unit: str) -> tuple[str, float] | None:
    if unit in _TIMES:
        return "ns", _TIMES[unit]
    if unit in _THINGS:
        return unit, 1.0
    if unit[:1] in _PREFIXES and (rest := unit[1:].lower()) in _THINGS:
        return rest, _PREFIXES[unit[0]]
    if unit.lower() in _THINGS:
        return unit.lower(), 1.0
    return None


def spelled(reason: str) -> str:
    """A stall reason as the tables spell it: ``long_sb`` of the source page is ``long_scoreboard``."""
    return _SPELLINGS[reason]["reason"] if reason in _SPELLINGS else reason


def sampled_metrics(names: tuple[str, ...], *, not_issued: bool = False) -> dict[str, str]:
    """Of ncu's metrics those with the samples of a stall reason: reason -> metric.

    not_issued: those with the samples in cycles in which the scheduler issued nothing.
    """
    matches = ((name, _SAMPLED.fullmatch(name)) for name in names)
    return {spelled(match[1]): name for name, match in matches if match and bool(match[2]) == not_issued}
