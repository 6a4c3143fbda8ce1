"""Where a whole program's GPU time goes: by kernel, by range, by what limits the profiled launches, and idle."""

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiprof.analysis.checks import trace_caveats
from fiprof.analysis.copies import copies
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.idle import Activity, idle, parts
from fiprof.analysis.program import Program, program
from fiprof.analysis.steady import steady
from fiprof.analysis.trace import CaseShape, calls, phases, stand_ins
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.errors import FiprofError
from fiprof.model.arrays import Ints, Kinds, Quantiles, numbers
from fiprof.model.finding import Finding, Wording, finding
from fiprof.model.ranks import COLLECTIVE, NOBODY, ranks_of
from fiprof.model.run import Run, shape
from fiprof.model.selection import by_key, sums_by_key
from fiprof.model.spans import NOTHING
from fiprof.text import kernel_detail


class Spent(Wording):
    """What the GPU's time went into, where that is no kernel's verdict."""

    KERNELS = "kernels"  # all that do not communicate, where verdicts are not told apart
    NOT_PROFILED = "not_profiled", "not profiled"  # kernels without a launch under ncu
    COLLECTIVES = "collectives", "collectives"  # kernels that wait for another GPU's, which ncu cannot repeat
    COPIES = "copies", "only copies"  # copies and memory sets while no kernel ran
    IDLE = "idle", "idle"


KERNELS = columns("kernels")
RANGES = columns("ranges")


@dataclass(frozen=True)
class Top:
    """What ``fiprof top`` shows. Rows have their time as ``total_ns`` too."""

    program: Program  # the verdict of the whole
    activities: tuple[Activity, ...]
    parts: list[Row]  # ``what``, ``part`` and time: what each GPU's time went into, the largest first
    idle: list[Row]  # rows of ``idle.IDLE``
    copies: list[Row]  # rows of ``copies.COPIES``
    kernels: list[Row]
    """Rows of KERNELS: all executions of a kernel by a rank, or where asked those in one range. verdict: what limits
    most of its time, by the launches that ncu profiled; profiled: the share of its time with their grids and blocks."""
    ranges: list[Row]  # rows of RANGES: the kernels launched in an NVTX range, without those of the ranges in it
    warnings: tuple[Finding, ...]


def top(
    run: Run,
    *,
    range_: str = "",
    kernel: str = "",
    rank: int | None = None,
    by_range: bool = False,
    within_steady: bool = False,
) -> Top:
    """Where the time of a run's trace went, in its steady part or in all.

    range_, kernel: only kernels launched in ranges, or with names, that have this in them. rank: only this one's. The
    GPU's own time, and why it was idle, are the whole's. by_range: a kernel in each range by itself.
    Raises FiprofError where the run has no kernels under nsys, or none of these.
    """
    if not run.row_count("kernels"):
        raise FiprofError(f"{run.manifest.name} has no trace of kernels", why=run.missing("nsys"))
    bound = _bound(run)
    everywhere, quantiles, changing = _groups(run, "", "", None, False, within_steady)
    groups = [row for row in everywhere if row["count"]]
    _judge(groups, bound, run.of_program)
    together = [row | _kernel(rows, False, *quantiles[rows[0]["of"]]) for row, rows in _by(groups, "place", "of")]
    found = program(run, together, within_steady=within_steady, changing=changing)
    if range_ or kernel or rank is not None or by_range:
        found_rows, quantiles, _ = _groups(run, range_.lower(), kernel.lower(), rank, by_range, within_steady)
        groups = [row for row in found_rows if row["count"]]
        _judge(groups, bound, run.of_program)
    in_ranges = [row for row in groups if row["of"] != NOTHING]
    if not in_ranges:
        asked = (kernel, range_ and f"in a range {range_}", "" if rank is None else f"of rank {rank}")
        what = f"{run.manifest.name} has no kernel {' '.join(filter(None, asked))}"
        raise FiprofError(what, "fiprof top shows those it has", exit_code=2)
    warnings = [*run.status_warning(), *trace_caveats(run)]
    traced = {(row.get("case"), shape(row)) for row in everywhere}
    if lost := sorted({key[1][0].split()[0] for key in bound if key not in traced}):
        words = "the trace has no {kernels} with the grid and block that ncu profiled: the program's two runs differ"
        warnings.append(finding("not_matched", words, kernels=tuple(lost)))
    active = tuple(parts(run, within_steady=within_steady).values())
    return Top(
        program=found,
        activities=active,
        parts=list(_parts(active, groups)),
        idle=idle(run, within_steady=within_steady),
        copies=copies(run, within_steady=within_steady),
        kernels=[
            row | _kernel(rows, by_range, *quantiles[rows[0]["of"]]) for row, rows in _by(in_ranges, "place", "of")
        ],
        ranges=[
            row | {"range": rows[0]["range"], "longest": _by(rows, "kernel")[0][1][0]["kernel"] or ""}
            for row, rows in _by(in_ranges, "place", "range")
        ],
        warnings=tuple(warnings),
    )


def program_of(run: Run) -> Program | None:
    """The verdict of a whole program; None for a run of cases that fiprof measured one by one, and without a trace."""
    traced = run.row_count("kernels") and (run.of_program or run.imported)
    return top(run, within_steady=True).program if traced else None


def _bound(run: Run) -> dict[CaseShape, LaunchVerdict]:
    """The verdicts of the kernels that ncu profiled; of launches of one shape (and range) the longest."""
    if not run.has("launches") or not run.launches:
        return {}
    by_duration = sorted(verdicts(run).launches, key=lambda each: each.duration_us or 0.0)
    return {(each.case if _of_ranges(run) else None, shape(each.row)): each for each in by_duration}


def _judge(groups: Sequence[Row], bound: Mapping[CaseShape, LaunchVerdict], along: bool) -> None:
    """Give each group its launch under ncu, and what limits it; None without. along: whether launches stand for other
    grids of their kernel, as in a program."""
    times: dict[CaseShape, tuple[int, int]] = {}
    for row in groups:
        count, ns = times.get((row.get("case"), shape(row)), (0, 0))
        times[row.get("case"), shape(row)] = count + row["count"], ns + row["ns"]
    by = stand_ins(times, bound) if along else {}
    for row in groups:
        key = row.get("case"), shape(row)
        row["judged"] = judged = bound.get(by.get(key, key))
        row["bound"] = (judged.kind, judged.part) if judged else None


def _of_ranges(run: Run) -> bool:
    """Whether launches belong to the NVTX range that they were profiled in."""
    return (run.of_program or run.imported) and bool(run.cases)


def _groups(
    run: Run, range_: str, kernel: str, rank: int | None, by_range: bool, within_steady: bool
) -> tuple[list[Row], dict[int, tuple[int, float, float, float]], dict[int, float]]:
    """All kernels of a trace by rank, device, name, grid, block and range, a row each (count 0: of those outside the
    steady part); the quantiles of the rows that are shown; and of each device the share of its steps that have other
    kernels than the one before. ``of``: the number of the row that it is shown in; NOTHING where it is not wanted."""
    ranks, kinds, at = ranks_of(run), Kinds(), 0
    names = ["device", "kernel", "kernel_full", "grid", "block", *(["case"] if _of_ranges(run) else [])]
    started_by, durations = calls(run).of("kernels"), Quantiles(run.row_count("kernels"))
    device_of: dict[int | None, int | None] = {each.rank: each.device for each in ranks.all}
    groups: list[Row] = []
    shown: dict[Any, int] = {}
    parts_of = steady(run) if within_steady else {}
    signatures = {device: np.zeros(len(part.steps) + 1) for device, part in parts_of.items()}
    for piece in run.pieces("kernels", (*names, "pid", "start_ns", "duration_ns")):
        labels = calls(run).phases_of(started_by[at : (at := at + piece.num_rows)])
        own: dict[str, Ints] = {"rank": ranks.of_rows(piece.select(["pid", "device"]))} if ranks.several else {}
        kind, ns = kinds.of(piece.select(names), range=labels, **own), numbers(piece["duration_ns"])
        starts, devices = numbers(piece["start_ns"]), numbers(piece["device"])
        for values in itertools.islice(kinds.numbers, len(groups), None):
            row: Row = {"rank": None, **dict(zip((*names, "range", *own), values, strict=True))}
            label, row["range"] = row["range"], phases(run).path(row["range"])
            row["rank"] = None if row["rank"] == NOBODY else row["rank"]
            row["place"] = row["rank"], device_of.get(row["rank"]) if ranks.several else row["device"]
            full = row["kernel_full"] or row["kernel"] or ""
            asked_for = (
                kernel in full.lower() and rank in (None, row["rank"]) and range_ in (row["range"] or "").lower()
            )
            key = row["place"], full, label if by_range else NOTHING
            row["hash"] = zlib.crc32(f"{full} {row['grid']} {row['block']}".encode()) & 0xFFFFF
            groups.append(
                row | {"of": shown.setdefault(key, len(shown)) if asked_for else NOTHING, "count": 0, "ns": 0}
            )
        for device, part in parts_of.items():
            on_device = devices == device
            if len(part.steps) and on_device.any():
                hashed = np.array([row["hash"] for row in groups])[kind[on_device]]
                places = np.searchsorted(part.steps, starts[on_device], side="right")
                signatures[device] += np.bincount(places, hashed, len(part.steps) + 1)
            inside = part.holds(starts)
            if not (unprofiled := ~on_device | inside).all():
                kind, ns, starts, devices = kind[unprofiled], ns[unprofiled], starts[unprofiled], devices[unprofiled]
        counts, times = np.bincount(kind), np.bincount(kind, ns)  # exact below 2^53 ns
        for number in np.flatnonzero(counts).tolist():
            groups[number]["count"] += int(counts[number])
            groups[number]["ns"] += int(times[number])
        of = np.array([row["of"] for row in groups])[kind]
        durations.add(of[of != NOTHING], ns[of != NOTHING])
    changing = {device: float((np.diff(each[1:]) != 0).mean()) for device, each in signatures.items() if len(each) > 2}
    return groups, durations.spreads(), changing


def _by(rows: Sequence[Row], *keys: str) -> list[tuple[Row, list[Row]]]:
    """The rows by what is the same in them, those with most time first, and what each have in common."""
    of_place, rows_by = sums_by_key((row["place"], row["ns"]) for row in rows), []
    for group in by_key((tuple(row[key] for key in keys), row) for row in rows).values():
        (rank, device), total = group[0]["place"], sum(row["ns"] for row in group)
        share = total / max(of_place[rank, device], 1)
        common = {"rank": rank, "device": device, "count": sum(row["count"] for row in group), "share": share}
        rows_by.append((common | {"total_ns": total, "total_ms": total / 1e6}, group))
    return sorted(rows_by, key=lambda each: -each[0]["total_ns"])


def _kernel(rows: Sequence[Row], by_range: bool, _: int, p10: float, median: float, p90: float) -> Row:
    """What a kernel's row has of its own. p10, median, p90: of its durations, ns."""
    time: dict[tuple[Kind, Part | None] | None, int] = sums_by_key((row["bound"], row["ns"]) for row in rows)
    total, unknown = sum(time.values()), time.pop(None, 0)
    best = max(time, key=time.__getitem__) if time else None
    full = rows[0]["kernel_full"] or rows[0]["kernel"] or ""
    return {
        "range": rows[0]["range"] if by_range else None, "kernel": rows[0]["kernel"] or "", "kernel_full": full,
        "detail": kernel_detail(full), "median_us": median / 1e3, "p90_us": p90 / 1e3,
        "spread": (p90 - p10) / median if median else 0.0,
        "shapes": len({(row["grid"], row["block"]) for row in rows}),
        "judged": [(row["ns"], row["judged"]) for row in rows if row["judged"]],
        "verdict": named(*best) if best else None, "part": best[1] if best else None,
        "profiled": 1 - unknown / total if total else 0.0,
    }  # fmt: skip


def _parts(active: Sequence[Activity], groups: Sequence[Row]) -> Iterator[Row]:
    """What each GPU's time went into. Where kernels run side by side, each has its part of their common time."""
    for each in active:
        of_device = [row for row in groups if row["device"] == (None if each.device < 0 else each.device)]
        together = sum(row["ns"] for row in of_device) or 1
        spent: dict[Any, float] = defaultdict(float)
        for row in of_device:
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
