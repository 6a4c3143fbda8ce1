"""Where a whole program's GPU time goes: by kernel, by range, by what binds the profiled launches, and idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.analysis.frames import Column, Narrow
from fiprof.analysis.idle import DEVICE, RANK, Activity, activities, idle
from fiprof.analysis.program import CaseShape, shape
from fiprof.analysis.trace import NOTHING, Kinds, calls, database, insert, kernel_calls, phases, pieces, rows_of
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from fiprof.model.arrays import numbers
from fiprof.model.collectives import COLLECTIVE
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import NOBODY, ranks_of
from fiprof.model.run import Run
from fiprof.model.wording import Worded
from fiprof.text import functor

if TYPE_CHECKING:
    from fiprof.model.arrays import Ints


class Spent(Worded):
    """What the GPU's time went into, where that is no kernel's verdict."""

    NOT_PROFILED = "not_profiled", "not profiled"
    """Kernels without a launch under ncu."""
    COLLECTIVES = "collectives", "collectives"
    """Kernels that wait for another GPU's, which ncu cannot repeat."""
    COPIES = "copies", "only copies"
    """Copies and memory sets while no kernel ran."""
    IDLE = "idle", "idle"


BY_RANGE = Column("range", "range", narrow=Narrow.BELOW)
TIME = (
    RANK,
    DEVICE,
    Column("what", "what"),
    Column("part"),
    Column("total_ms", "time", "ms", ",.3f"),
    Column("share", "share", spec=".1%"),
)
KERNELS = (
    RANK,
    DEVICE,
    Column("kernel"),
    Column("kernel_full"),
    BY_RANGE,
    Column("count", "x", spec=",d"),
    Column("total_ms", "time", "ms", ",.3f"),
    Column("share", "share", spec=".1%"),
    Column("median_us", "median", "µs", ",.2f"),
    Column("p90_us", "p90", "µs", ",.2f"),
    Column("spread", "spread", spec=".0%"),
    Column("shapes"),
    Column("verdict", "verdict"),
    Column("part"),
    Column("profiled", "profiled", spec=".0%"),
)
RANGES = (
    RANK,
    DEVICE,
    Column("range", "range", narrow=Narrow.ABOVE),
    Column("count", "kernels", spec=",d"),
    Column("total_ms", "time", "ms", ",.3f"),
    Column("share", "share", spec=".1%"),
    Column("longest", "longest kernel", narrow=Narrow.BELOW),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Top:
    """What ``fiprof top`` shows. Rows have their time as ``total_ns`` too."""

    activities: tuple[Activity, ...]
    parts: list[Row]
    """Rows of TIME, what each GPU's time from its first work to its last went into, the largest first."""
    idle: list[Row]
    """Rows of ``idle.IDLE``."""
    kernels: list[Row]
    """Rows of KERNELS: all executions of a kernel by a rank, or where asked those in one range. verdict: what binds
    most of its time, by the launches that ncu profiled; profiled: the share of its time with their grids and blocks."""
    ranges: list[Row]
    """Rows of RANGES: the kernels launched in an NVTX range, without those of the ranges in it."""
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
    groups, quantiles = _groups(run, range_.lower(), kernel.lower(), rank, by_range)
    wanted = [row for row in groups if row["of"] is not None]
    if not wanted:
        asked = (kernel, range_ and f"in a range {range_}", "" if rank is None else f"of rank {rank}")
        raise FiprofError(
            f"{run.manifest.name} has no kernel {' '.join(filter(None, asked))}", "fiprof top shows those it has"
        )
    for row in groups:
        row["bound"] = bound.get((row.get("case"), shape(row)))
    active = activities(run)
    return Top(
        activities=active,
        parts=list(_parts(active, groups)),
        idle=idle(run),
        kernels=list(_kernels(wanted, quantiles, by_range)),
        ranges=list(_ranges(wanted)),
        warnings=(*run.status_warning(), *_warnings(groups, bound)),
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


Quantiles = dict[int, tuple[float, float, float]]
"""Kernel, by its number -> p10, median and p90 of its durations in ns, interpolated between neighbours."""


def _groups(run: Run, range_: str, kernel: str, rank: int | None, by_range: bool) -> tuple[list[Row], Quantiles]:
    """All kernels of a trace by rank, device, name, grid, block and range, a row each. ``of``: the number of the row
    that it is shown in; None where it is not wanted."""
    ranks, kinds, at = ranks_of(run), Kinds(), 0
    names = ["device", "kernel", "kernel_full", "grid", "block", *(["case"] if _of_ranges(run) else [])]
    started_by = kernel_calls(run)
    with database() as query:
        query.execute("CREATE TABLE kernels (kind INTEGER, ns BIGINT)")
        for piece in pieces(run, "kernels", (*names, "pid", "duration_ns")):
            labels = calls(run).phases_of(started_by[at : at + piece.num_rows])
            at += piece.num_rows
            own: dict[str, Ints] = {"rank": ranks.of_rows(piece.select(["pid", "device"]))} if ranks.several else {}
            numbered = kinds.of(piece.select(names), range=labels, **own)
            insert(query, "kernels", kind=numbered, ns=numbers(piece["duration_ns"]))
        totals = query.execute("SELECT kind, count(*), sum(ns)::BIGINT FROM kernels GROUP BY kind ORDER BY kind")
        shown: dict[Any, int] = {}
        groups = []
        for values, (_, count, total_ns) in zip(kinds.numbers, totals.fetchall(), strict=True):
            row: Row = dict(zip((*names, "range", *own), values, strict=True))
            label, row["range"] = row["range"], phases(run).path(row["range"])
            row |= {"count": count, "ns": total_ns, "rank": None if row.get("rank") == NOBODY else row.get("rank")}
            device = next((each.device for each in ranks.all if each.rank == row["rank"]), None)
            row["place"] = (row["rank"], device if ranks.several else row["device"])
            full = row["kernel_full"] or row["kernel"] or ""
            named = kernel in full.lower() and rank in (None, row["rank"])
            key = row["place"], full, label if by_range else NOTHING
            wanted = named and (range_ in row["range"].lower() if row["range"] else not range_)
            groups.append(row | {"of": shown.setdefault(key, len(shown)) if wanted else None})
        return groups, _quantiles(query, groups)


def _quantiles(query: Any, groups: Sequence[Row]) -> Quantiles:
    import numpy as np

    wanted = np.array([(kind, row["of"]) for kind, row in enumerate(groups) if row["of"] is not None], np.int32)
    query.execute("CREATE TABLE shown (kind INTEGER, kernel INTEGER)")
    insert(query, "shown", kind=wanted.reshape(-1, 2)[:, 0], kernel=wanted.reshape(-1, 2)[:, 1])
    found = query.execute(
        "SELECT kernel, quantile_cont(ns, [0.1, 0.5, 0.9]) FROM kernels JOIN shown USING (kind) GROUP BY kernel"
    )
    return dict(found.fetchall())


def _by(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    """The rows by what is the same in them, those with most time first."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return sorted(found.values(), key=lambda group: -_total(group))


def _total(rows: Sequence[Row]) -> int:
    return sum(row["ns"] for row in rows)


def _times(rows: Sequence[Row], of_places: Mapping[Any, int]) -> Row:
    """What rows of one place have in common. of_places: the time of all that are shown, by place."""
    (rank, device), total = rows[0]["place"], _total(rows)
    share = total / max(of_places[rank, device], 1)
    count = sum(row["count"] for row in rows)
    return {
        "rank": rank, "device": device, "count": count, "total_ns": total, "total_ms": total / 1e6, "share": share
    }  # fmt: skip


def _of_places(wanted: Sequence[Row]) -> dict[Any, int]:
    return {rows[0]["place"]: _total(rows) for rows in _by(wanted, "place")}


def _kernels(wanted: Sequence[Row], quantiles: Quantiles, by_range: bool) -> Iterator[Row]:
    of_places = _of_places(wanted)
    for rows in _by(wanted, "of"):
        p10, median, p90 = quantiles[rows[0]["of"]]
        time: dict[tuple[Kind, Part | None] | None, int] = defaultdict(int)
        for row in rows:
            time[row["bound"]] += row["ns"]
        unknown, total = time.pop(None, 0), _total(rows)
        best = max(time, key=time.__getitem__) if time else None
        full = rows[0]["kernel_full"] or rows[0]["kernel"] or ""
        yield _times(rows, of_places) | {
            "range": rows[0]["range"] if by_range else None,
            "kernel": rows[0]["kernel"] or "",
            "detail": functor(full),
            "kernel_full": full,
            "median_us": median / 1e3,
            "p90_us": p90 / 1e3,
            "spread": (p90 - p10) / median if median else 0.0,
            "shapes": len({(row["grid"], row["block"]) for row in rows}),
            "verdict": named(*best) if best else None,
            "part": best[1] if best else None,
            "profiled": 1 - unknown / total if total else 0.0,
        }


def _ranges(wanted: Sequence[Row]) -> Iterator[Row]:
    of_places = _of_places(wanted)
    for rows in _by(wanted, "place", "range"):
        longest = _by(rows, "kernel")[0][0]["kernel"] or ""
        yield _times(rows, of_places) | {"range": rows[0]["range"], "longest": longest}


def _parts(active: Sequence[Activity], groups: Sequence[Row]) -> Iterator[Row]:
    """What each GPU's time went into. Where kernels run side by side, each has its part of their common time."""
    for each in active:
        mine = [row for row in groups if row["device"] == (None if each.device < 0 else each.device)]
        together = _total(mine) or 1
        spent: dict[Any, float] = defaultdict(float)
        for row in mine:
            other = Spent.COLLECTIVES if COLLECTIVE.search(row["kernel"] or "") else Spent.NOT_PROFILED
            spent[row["bound"] or other] += row["ns"] / together * each.kernels_ns
        spent[Spent.COPIES], spent[Spent.IDLE] = each.only_copies_ns, each.idle_ns
        for what, ns in sorted(spent.items(), key=lambda item: -item[1]):
            if ns:
                verdict, part = (what, None) if isinstance(what, Spent) else (named(*what), what[1])
                yield {
                    "rank": each.rank, "device": each.device, "what": verdict, "part": part,
                    "total_ns": ns, "total_ms": ns / 1e6, "share": ns / each.window_ns,
                }  # fmt: skip


def _warnings(groups: Sequence[Row], bound: Bound) -> Iterator[Finding]:
    traced = {(row.get("case"), shape(row)) for row in groups}
    if lost := sorted({key[1][0].split()[0] for key in bound if key not in traced}):
        yield finding(
            "not_matched",
            "the trace has no {kernels} with the grid and block that ncu profiled: the two runs of the program differ",
            kernels=tuple(lost),
        )
