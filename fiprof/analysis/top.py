"""Where a whole program's GPU time goes: by kernel, by range, by what binds the profiled launches, and idle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fiprof.analysis.host import phases
from fiprof.analysis.idle import Activity, Idle, activities, idle
from fiprof.analysis.launched import calls, kernel_calls, numbers, pieces, rows_of, sums
from fiprof.analysis.program import Shape, shape
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from fiprof.model.collectives import COLLECTIVE
from fiprof.model.finding import Finding
from fiprof.model.run import Run
from fiprof.text import functor

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.analysis.host import Ints

DURATION_BITS, NAME_BITS = 38, 18
"""Of a kernel's duration in ns, 4.6 minutes, and of the number of its name, beside its GPU in one integer."""
MASK = (1 << DURATION_BITS) - 1


class TopWarning(StrEnum):
    """What limits what is shown of a trace."""

    NOT_MATCHED = "not_matched"


class Spent(StrEnum):
    """What the GPU's time went into, where that is no kernel's verdict."""

    NOT_PROFILED = "not_profiled"
    """Kernels without a launch under ncu."""
    COLLECTIVES = "collectives"
    """Kernels that wait for another GPU's, which ncu cannot repeat."""
    COPIES = "copies"
    """Copies and memory sets while no kernel ran."""
    IDLE = "idle"


@dataclass(frozen=True)
class KernelTime:
    """All executions of a kernel on a GPU."""

    device: int | None
    kernel: str
    detail: str
    """What tells it from others of its name: the functor among its template arguments; empty for none."""
    kernel_full: str
    count: int
    total_ns: int
    share: float
    """Of the time of all kernels of its GPU."""
    median_us: float
    p90_us: float
    spread: float
    """(p90 - p10) / median."""
    shapes: int
    """Different grids and blocks."""
    verdict: Finding | None
    """What binds it, by the launches that ncu profiled: that of most of its time; None where it profiled none."""
    profiled: float
    """Share of its time whose grid and block ncu profiled."""


@dataclass(frozen=True)
class RangeTime:
    """The kernels launched in an NVTX range, without those of the ranges in it."""

    device: int | None
    range: str | None
    """Outermost first; None outside all."""
    count: int
    total_ns: int
    share: float
    """Of the time of all kernels of its GPU."""
    longest: str
    """The kernel that takes most of it."""


@dataclass(frozen=True)
class TimePart:
    """A part of a GPU's time from its first work to its last."""

    device: int
    what: Finding | Spent
    """A verdict, or where there is none what it was."""
    ns: float
    share: float


@dataclass(frozen=True)
class Top:
    """What ``fiprof top`` shows."""

    activities: tuple[Activity, ...]
    parts: tuple[TimePart, ...]
    """Of each GPU, the largest first; they sum to its time."""
    idle: tuple[Idle, ...]
    kernels: tuple[KernelTime, ...]
    ranges: tuple[RangeTime, ...]
    warnings: tuple[Finding, ...]


def top(run: Run, *, range_: str = "", kernel: str = "") -> Top:
    """Where the time of a run's trace went.

    range_, kernel: only kernels launched in ranges, or with names, that have this in them; the GPU's own time, and why
    it was idle, are the whole's.
    Raises FiprofError where the run has no kernels under nsys, or none of these, or a table cannot be read.
    """
    if not rows_of(run, "kernels"):
        raise FiprofError(f"{run.manifest.name} has no trace of kernels", why=run.missing("nsys"))
    bound = _bound(run)
    groups = _Groups(run, range_, kernel)
    if not groups.rows:
        raise FiprofError(
            f"{run.manifest.name} has no kernel {' '.join(filter(None, (kernel, range_ and f'in a range {range_}')))}",
            "fiprof top shows those it has",
        )
    kernels = tuple(groups.kernels(bound))
    active = activities(run)
    return Top(
        activities=active,
        parts=tuple(_parts(active, groups.shapes, bound)),
        idle=idle(run),
        kernels=kernels,
        ranges=tuple(groups.ranges()),
        warnings=tuple(_warnings(run, groups, bound)),
    )


def _bound(run: Run) -> dict[Shape, tuple[Kind, Part | None]]:
    """What binds the kernels that ncu profiled; of launches of one shape the longest."""
    if not run.has("launches") or not run.launches:
        return {}
    found = sorted(verdicts(run).launches, key=lambda each: each.duration_us or 0.0)
    return {shape(each.row): (each.kind, each.part) for each in found}


NAMES = ("device", "kernel", "kernel_full", "grid", "block")


class _Groups:
    """The kernels of a trace by device, name, grid, block and range: a row each, whatever they count."""

    def __init__(self, run: Run, range_: str, kernel: str) -> None:
        import numpy as np
        import pyarrow as pa

        self.paths = phases(run).paths
        self._inside = np.array([range_.lower() in path.lower() for path in self.paths] + [not range_])
        self._kernel = kernel.lower()
        self._full: dict[str, int] = {}
        """Full names of kernels, numbered."""
        self._keys: Ints = np.empty(rows_of(run, "kernels"), np.int64)
        """Of each wanted kernel what it is, and its duration in ns in the low bits."""
        self._noted = 0
        found, at = [], 0
        started_by = kernel_calls(run)
        for piece in pieces(run, "kernels", (*NAMES, "duration_ns")):
            places = calls(run).phases_of(started_by[at : at + piece.num_rows])
            at += piece.num_rows
            # Which of them are wanted is told later: the shapes are of all.
            found.append(sums(piece.append_column("place", pa.array(places)), (*NAMES, "place")))
            self._note(piece, places)
        every = sums(pa.concat_tables(found).unify_dictionaries(), (*NAMES, "place")).to_pylist() if found else []
        self.shapes: list[dict[str, Any]] = every
        """Of all kernels of the trace."""
        self.rows = [row for row in every if self._wanted(row["kernel_full"] or row["kernel"] or "", row["place"])]
        self._of_device: dict[Any, int] = defaultdict(int)
        for row in self.rows:
            self._of_device[row["device"]] += row["ns"]

    def _wanted(self, full: str, place: int) -> bool:
        return self._kernel in full.lower() and bool(self._inside[place])

    def _note(self, piece: pa.Table, places: Ints) -> None:
        """Remember the durations of a piece's kernels, those that are wanted."""
        import numpy as np

        name = piece["kernel_full"].combine_chunks()
        texts = [text or "" for text in name.dictionary.to_pylist()]
        known = np.array([self._full.setdefault(text, len(self._full)) for text in (*texts, "")])
        named = np.array([self._kernel in text.lower() for text in (*texts, "")])
        at = numbers(name.indices)
        keys = (numbers(piece["device"]) + 1) << NAME_BITS | known[at]
        keys = keys << DURATION_BITS | np.minimum(numbers(piece["duration_ns"]), MASK)
        wanted = keys[named[at] & self._inside[places]]
        self._keys[self._noted : self._noted + len(wanted)] = wanted
        self._noted += len(wanted)

    def kernels(self, bound: dict[Shape, tuple[Kind, Part | None]]) -> Iterator[KernelTime]:
        """Each kernel, those with most time first."""
        by_kernel: dict[tuple[Any, str], list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            by_kernel[row["device"], row["kernel_full"] or row["kernel"] or ""].append(row)
        quantiles = self._quantiles()
        for (device, full), rows in sorted(by_kernel.items(), key=lambda item: -_total(item[1])):
            p10, median, p90 = quantiles[device, full]
            time: dict[tuple[Kind, Part | None] | None, int] = defaultdict(int)
            for row in rows:
                time[bound.get(shape(row))] += row["ns"]
            unknown, total = time.pop(None, 0), _total(rows)
            best = max(time, key=time.__getitem__) if time else None
            yield KernelTime(
                device=device,
                kernel=rows[0]["kernel"] or "",
                detail=functor(full),
                kernel_full=full,
                count=sum(row["count"] for row in rows),
                total_ns=total,
                share=total / max(self._of_device[device], 1),
                median_us=median / 1e3,
                p90_us=p90 / 1e3,
                spread=(p90 - p10) / median if median else 0.0,
                shapes=len({(row["grid"], row["block"]) for row in rows}),
                verdict=named(*best) if best else None,
                profiled=1 - unknown / total if total else 0.0,
            )

    def ranges(self) -> Iterator[RangeTime]:
        """Each range in which kernels were launched, those with most time first."""
        by_range: dict[tuple[Any, int], list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            by_range[row["device"], row["place"]].append(row)
        for (device, place), rows in sorted(by_range.items(), key=lambda item: -_total(item[1])):
            kernels: dict[str, int] = defaultdict(int)
            for row in rows:
                kernels[row["kernel"] or ""] += row["ns"]
            yield RangeTime(
                device=device,
                range=self.paths[place] if place >= 0 else None,
                count=sum(row["count"] for row in rows),
                total_ns=_total(rows),
                share=_total(rows) / max(self._of_device[device], 1),
                longest=max(kernels, key=kernels.__getitem__),
            )

    def _quantiles(self) -> dict[tuple[Any, str], tuple[float, float, float]]:
        """Device and kernel -> p10, median and p90 of the durations in ns, interpolated between neighbours."""
        import numpy as np

        keys = self._keys[: self._noted]
        keys.sort()
        texts, found = list(self._full), {}
        first = 0
        while first < len(keys):
            group = int(keys[first]) >> DURATION_BITS
            after = int(np.searchsorted(keys, (group + 1) << DURATION_BITS))
            device, text = divmod(group, 1 << NAME_BITS)
            ends = [first + part * (after - 1 - first) for part in (0.1, 0.5, 0.9)]
            values = [
                (int(keys[math.floor(at)]) & MASK) * (1 - at % 1) + (int(keys[math.ceil(at)]) & MASK) * (at % 1)
                for at in ends
            ]
            found[device - 1 if device else None, texts[text]] = (values[0], values[1], values[2])
            first = after
        return found


def _total(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["ns"] for row in rows)


def _parts(
    active: Sequence[Activity], shapes: Sequence[dict[str, Any]], bound: dict[Shape, tuple[Kind, Part | None]]
) -> Iterator[TimePart]:
    """What each GPU's time went into. Where kernels run side by side, each has its part of their common time."""
    for each in active:
        mine = [row for row in shapes if row["device"] in (each.device, None if each.device < 0 else each.device)]
        together = _total(mine) or 1
        spent: dict[Any, float] = defaultdict(float)
        for row in mine:
            verdict = bound.get(shape(row))
            other = Spent.COLLECTIVES if COLLECTIVE.search(row["kernel"] or "") else Spent.NOT_PROFILED
            spent[verdict or other] += row["ns"] / together * each.kernels_ns
        spent[Spent.COPIES], spent[Spent.IDLE] = each.only_copies_ns, each.idle_ns
        for what, ns in sorted(spent.items(), key=lambda item: -item[1]):
            if ns:
                finding = what if isinstance(what, Spent) else named(*what)
                yield TimePart(each.device, finding, ns, ns / each.window_ns)


def _warnings(run: Run, groups: _Groups, bound: dict[Shape, Any]) -> Iterator[Finding]:
    yield from run.status_warning()
    traced = set(map(shape, groups.shapes))
    if lost := sorted({shape[0].split()[0] for shape in bound if shape not in traced}):
        yield Finding(TopWarning.NOT_MATCHED, {"kernels": tuple(lost)})
