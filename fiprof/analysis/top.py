"""Where a whole program's GPU time goes: by kernel, by range, by what binds the profiled launches, and idle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fiprof.analysis.host import NOTHING, phases
from fiprof.analysis.idle import Activity, Idle, activities, idle
from fiprof.analysis.launched import calls, kernel_calls, pieces, rows_of, sums
from fiprof.analysis.program import CaseShape, shape
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from fiprof.model.arrays import coded, numbers
from fiprof.model.collectives import COLLECTIVE
from fiprof.model.finding import Finding
from fiprof.model.ranks import NOBODY, ranks_of
from fiprof.model.run import Run
from fiprof.text import functor

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.analysis.host import Ints

DURATION_BITS, NAME_BITS = 38, 18
"""Of a kernel's duration in ns, 4.6 minutes, and of the number of its name, beside its GPU or rank in one integer."""
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
    """All executions of a kernel by a rank, or where asked those in one NVTX range."""

    rank: int | None
    """None in a run of one."""
    device: int | None
    range: str | None
    """Outermost first; None where that was not asked, and outside all."""
    kernel: str
    detail: str
    """What tells it from others of its name: the functor among its template arguments; empty for none."""
    kernel_full: str
    count: int
    total_ns: int
    share: float
    """Of the time of all kernels of its rank."""
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

    rank: int | None
    """None in a run of one."""
    device: int | None
    range: str | None
    """Outermost first; None outside all."""
    count: int
    total_ns: int
    share: float
    """Of the time of all kernels of its rank."""
    longest: str
    """The kernel that takes most of it."""


@dataclass(frozen=True)
class TimePart:
    """A part of a GPU's time from its first work to its last."""

    rank: int | None
    """As in Activity."""
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


def top(run: Run, *, range_: str = "", kernel: str = "", rank: int | None = None, by_range: bool = False) -> Top:
    """Where the time of a run's trace went.

    range_, kernel: only kernels launched in ranges, or with names, that have this in them. rank: only this one's. The
    GPU's own time, and why it was idle, are the whole's. by_range: a kernel in each range by itself.
    Raises FiprofError where the run has no kernels under nsys, or none of these, or a table cannot be read.
    """
    if not rows_of(run, "kernels"):
        raise FiprofError(f"{run.manifest.name} has no trace of kernels", why=run.missing("nsys"))
    bound = _bound(run)
    groups = _Groups(run, range_, kernel, rank, by_range)
    if not groups.rows:
        asked = (kernel, range_ and f"in a range {range_}", "" if rank is None else f"of rank {rank}")
        raise FiprofError(
            f"{run.manifest.name} has no kernel {' '.join(filter(None, asked))}", "fiprof top shows those it has"
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


Bound = dict[CaseShape, tuple[Kind, Part | None]]


def _bound(run: Run) -> Bound:
    """What binds the kernels that ncu profiled; of launches of one shape, and range where that matters, the longest."""
    if not run.has("launches") or not run.launches:
        return {}
    found = sorted(verdicts(run).launches, key=lambda each: each.duration_us or 0.0)
    return {(each.case if _of_ranges(run) else None, shape(each.row)): (each.kind, each.part) for each in found}


def _of_ranges(run: Run) -> bool:
    """Whether launches belong to the NVTX range that they were profiled in."""
    return (run.of_program or run.imported) and bool(run.cases)


def _case_shape(row: dict[str, Any]) -> CaseShape:
    return row.get("case"), shape(row)


NAMES = ("device", "kernel", "kernel_full", "grid", "block")


Place = tuple[int | None, int | None]
"""Rank and GPU; of a run of one no rank."""


class _Places:
    """The ranks of a run, of a run of one its GPUs, numbered."""

    def __init__(self, run: Run) -> None:
        self._ranks = ranks_of(run)
        self.columns = ("device", "pid") if self._ranks.several else ("device",)

    def of(self, piece: pa.Table) -> Ints:
        """The number of each kernel's."""
        import numpy as np

        if not self._ranks.several:
            return numbers(piece["device"]) + 1
        known = [rank.rank for rank in self._ranks.all]
        found = self._ranks.of_rows(piece.select(list(self.columns)))
        return np.where(found == NOBODY, len(known), np.searchsorted(known, found))

    def __getitem__(self, number: int) -> Place:
        if not self._ranks.several:
            return None, number - 1 if number else None
        known = self._ranks.all
        return (known[number].rank, known[number].device) if number < len(known) else (None, None)


class _Groups:
    """The kernels of a trace by rank, device, name, grid, block and range: a row each, whatever they count."""

    def __init__(self, run: Run, range_: str, kernel: str, rank: int | None, by_range: bool) -> None:
        import numpy as np
        import pyarrow as pa

        self.paths = phases(run).paths
        self._places, self._rank, self._by_range = _Places(run), rank, by_range
        self._inside = np.array([range_.lower() in path.lower() for path in self.paths] + [not range_])
        self._kernel = kernel.lower()
        self._full: dict[tuple[str, int], int] = {}
        """Full names of kernels, by range with that, numbered."""
        self._keys: Ints = np.empty(rows_of(run, "kernels"), np.int64)
        """Of each wanted kernel what it is, and its duration in ns in the low bits."""
        self._noted = 0
        found, at = [], 0
        started_by = kernel_calls(run)
        names = (*NAMES, "case") if _of_ranges(run) else NAMES
        keys = (*names, "place", "range")
        for piece in pieces(run, "kernels", (*dict.fromkeys((*names, *self._places.columns)), "duration_ns")):
            ranges = calls(run).phases_of(started_by[at : at + piece.num_rows])
            places = self._places.of(piece)
            at += piece.num_rows
            # Which of them are wanted is told later: the shapes are of all.
            placed = piece.append_column("place", pa.array(places)).append_column("range", pa.array(ranges))
            found.append(sums(placed, keys))
            self._note(piece, places, ranges)
        every = sums(pa.concat_tables(found).unify_dictionaries(), keys).to_pylist() if found else []
        self.shapes: list[dict[str, Any]] = every
        """Of all kernels of the trace."""
        self.rows = [row for row in every if self._wanted(row)]
        self._of_place: dict[int, int] = defaultdict(int)
        for row in self.rows:
            self._of_place[row["place"]] += row["ns"]

    def _wanted(self, row: dict[str, Any]) -> bool:
        named = self._kernel in (row["kernel_full"] or row["kernel"] or "").lower()
        return named and self._rank in (None, self._places[row["place"]][0]) and bool(self._inside[row["range"]])

    def _note(self, piece: pa.Table, places: Ints, ranges: Ints) -> None:
        """Remember the durations of a piece's kernels, those that are wanted."""
        import numpy as np

        texts, at = coded(piece["kernel_full"])
        texts, wanted = [text or "" for text in texts], self._inside[ranges]
        wanted &= np.array([self._kernel in text.lower() for text in texts])[at]
        durations, at, ranges = numbers(piece["duration_ns"])[wanted], at[wanted], ranges[wanted]
        if self._by_range:
            distinct, which = np.unique(at * (len(self.paths) + 1) + ranges + 1, return_inverse=True)
            pairs = [divmod(each, len(self.paths) + 1) for each in distinct.tolist()]
        else:
            which, pairs = at, [(number, 0) for number in range(len(texts))]
        known = [self._full.setdefault((texts[text], range_ - 1), len(self._full)) for text, range_ in pairs]
        keys = places[wanted] << NAME_BITS | np.array(known, np.int64)[which]
        keys = keys << DURATION_BITS | np.clip(durations, 0, MASK)
        self._keys[self._noted : self._noted + len(keys)] = keys
        self._noted += len(keys)

    def kernels(self, bound: Bound) -> Iterator[KernelTime]:
        """Each kernel, those with most time first."""
        by_kernel: dict[tuple[int, str, int], list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            range_ = row["range"] if self._by_range else NOTHING
            by_kernel[row["place"], row["kernel_full"] or row["kernel"] or "", range_].append(row)
        quantiles = self._quantiles()
        self._keys = self._keys[:0].copy()  # 400 MB of 50 million kernels
        for (place, full, range_), rows in sorted(by_kernel.items(), key=lambda item: -_total(item[1])):
            # Kernels without a full name share theirs.
            p10, median, p90 = quantiles.get((place, full, range_)) or quantiles[place, "", range_]
            time: dict[tuple[Kind, Part | None] | None, int] = defaultdict(int)
            for row in rows:
                time[bound.get(_case_shape(row))] += row["ns"]
            unknown, total = time.pop(None, 0), _total(rows)
            best = max(time, key=time.__getitem__) if time else None
            yield KernelTime(
                *self._places[place],
                range=self._path(range_),
                kernel=rows[0]["kernel"] or "",
                detail=functor(full),
                kernel_full=full,
                count=sum(row["count"] for row in rows),
                total_ns=total,
                share=total / max(self._of_place[place], 1),
                median_us=median / 1e3,
                p90_us=p90 / 1e3,
                spread=(p90 - p10) / median if median else 0.0,
                shapes=len({(row["grid"], row["block"]) for row in rows}),
                verdict=named(*best) if best else None,
                profiled=1 - unknown / total if total else 0.0,
            )

    def ranges(self) -> Iterator[RangeTime]:
        """Each range in which kernels were launched, those with most time first."""
        by_range: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            by_range[row["place"], row["range"]].append(row)
        for (place, range_), rows in sorted(by_range.items(), key=lambda item: -_total(item[1])):
            kernels: dict[str, int] = defaultdict(int)
            for row in rows:
                kernels[row["kernel"] or ""] += row["ns"]
            yield RangeTime(
                *self._places[place],
                range=self._path(range_),
                count=sum(row["count"] for row in rows),
                total_ns=_total(rows),
                share=_total(rows) / max(self._of_place[place], 1),
                longest=max(kernels, key=kernels.__getitem__),
            )

    def _path(self, range_: int) -> str | None:
        return None if range_ == NOTHING else self.paths[range_]

    def _quantiles(self) -> dict[tuple[int, str, int], tuple[float, float, float]]:
        """Place, kernel and range -> p10, median and p90 of the durations in ns, interpolated between neighbours."""
        import numpy as np

        keys = self._keys[: self._noted]
        keys.sort()
        texts, found = list(self._full), {}
        first = 0
        while first < len(keys):
            group = int(keys[first]) >> DURATION_BITS
            after = int(np.searchsorted(keys, (group + 1) << DURATION_BITS))
            place, text = divmod(group, 1 << NAME_BITS)
            ends = [first + part * (after - 1 - first) for part in (0.1, 0.5, 0.9)]
            values = [
                (int(keys[math.floor(at)]) & MASK) * (1 - at % 1) + (int(keys[math.ceil(at)]) & MASK) * (at % 1)
                for at in ends
            ]
            found[place, *texts[text]] = (values[0], values[1], values[2])
            first = after
        return found


def _total(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["ns"] for row in rows)


def _parts(active: Sequence[Activity], shapes: Sequence[dict[str, Any]], bound: Bound) -> Iterator[TimePart]:
    """What each GPU's time went into. Where kernels run side by side, each has its part of their common time."""
    for each in active:
        mine = [row for row in shapes if row["device"] in (each.device, None if each.device < 0 else each.device)]
        together = _total(mine) or 1
        spent: dict[Any, float] = defaultdict(float)
        for row in mine:
            verdict = bound.get(_case_shape(row))
            other = Spent.COLLECTIVES if COLLECTIVE.search(row["kernel"] or "") else Spent.NOT_PROFILED
            spent[verdict or other] += row["ns"] / together * each.kernels_ns
        spent[Spent.COPIES], spent[Spent.IDLE] = each.only_copies_ns, each.idle_ns
        for what, ns in sorted(spent.items(), key=lambda item: -item[1]):
            if ns:
                finding = what if isinstance(what, Spent) else named(*what)
                yield TimePart(each.rank, each.device, finding, ns, ns / each.window_ns)


def _warnings(run: Run, groups: _Groups, bound: Bound) -> Iterator[Finding]:
    yield from run.status_warning()
    traced = set(map(_case_shape, groups.shapes))
    if lost := sorted({key[1][0].split()[0] for key in bound if key not in traced}):
        yield Finding(TopWarning.NOT_MATCHED, {"kernels": tuple(lost)})
