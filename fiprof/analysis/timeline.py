"""Kernels and what the hardware did while they ran, in order of time."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from fiprof.analysis import samples
from fiprof.analysis.checks import trace_caveats
from fiprof.analysis.copies import speed
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.samples import Samples
from fiprof.analysis.trace import calls, marks
from fiprof.model import tables
from fiprof.model.arrays import MISSING, Ints, Kinds, Quantiles, grid_size, numbers
from fiprof.model.finding import Finding, finding
from fiprof.model.quantities import quantity
from fiprof.model.ranks import NOBODY, ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import EVERYTHING, Selection, by_key
from fiprof.model.spans import LONG_AGO, NOTHING, by_thread, covered, split, union

PHASES = ("measure", "setup", "warmup", "all")
PIECES = 79  # cells of a track by default
TENSOR_ACTIVE = quantity("tensor_active_pct")
KNOWN_PCT = 5.0  # tensor activity below this is too little to compare ncu's with nsys's
AGREEMENT = (0.75, 1.33)  # nsys's tensor level over ncu's: their windows and clocks differ, but not by more
FULL_PCT = 75.0  # SMs Active at least, while a kernel with a block for each SM fills whole samples
NO_SHARES = "the sampled levels of SMs and tensor cores are not shares of this GPU"
NO_OTHERS = "Compare them within the run only"
FIPROF_DOMAIN = "fiprof"
NAMES = ("phase", "case", "device", "kernel", "kernel_full", "grid", "block")  # columns that make a kind of kernel
LEAST_GAP_NS = -(1 << 41)  # 37 minutes: kernels of a GPU overlap by less

SPANS = columns("timeline")
"""A row is all executions of a kernel with one grid and block in a case; docs/keys.md describes the columns. Rows also
have ``rank``, None in a run of one rank."""
Track = tuple[str, tuple[float | None, ...], float | None]
"""One line of a chart: its title; its cells from the left, 0 to 1, None where nothing was sampled; and the value of 1,
percent as nsys gives it, None for the kernels' share of the time."""


@dataclass(frozen=True)
class CasePhase:
    """What a GPU did in a phase of a case."""

    phase: str | None
    label: str
    device: int | None
    several_devices: bool
    rank: int | None  # None in a run of one rank
    start_us: float  # since the trace began; of a case with several turns, of its longest
    end_us: float
    busy: float  # share of ``length_us`` in which a kernel, a copy or a memory set ran
    copying: float  # share in which a copy or a memory set ran and no kernel
    spans: list[Row]  # rows of SPANS
    tracks: list[Track]  # kernels, then what was sampled, from ``start_us`` to ``end_us``
    copies: list[Row]  # ``kind``, ``memory``, ``count``, ``total_ms`` and columns of ``copies.speed``, longest first
    calls: list[Row]  # ``name``, ``count``, ``total_us``, the longest first
    turns: int  # how often the case ran, with other cases in between
    length_us: float  # from the first kernel's start to the last one's end, summed over the turns


@dataclass(frozen=True)
class Timeline:
    """What ``fiprof timeline`` shows of a run."""

    phases: tuple[CasePhase, ...]
    period_us: float | None  # between two samples; None without samples
    warnings: tuple[Finding, ...]


def timeline(run: Run, *, wanted: Selection = EVERYTHING, phase: str = "measure", cells: int = PIECES) -> Timeline:
    """The timeline of a run; without phases, and with warnings that say why, where the run has no kernels in one.

    wanted: only these kernels; a launch's number means its kernel. phase: one of PHASES. cells: cells of a track; 0
    for the kernels alone, without tracks, copies, calls and memory.

    Raises FiprofError where the run has kernels in the phase, and none is wanted.
    """
    kinds, kind_of, turns = _kinds(run)
    sampled = samples.read(run)
    phased = any(kind["phase"] for kind in kinds)
    if run.imported and not phased:
        phase = "all"
    chosen_kinds = [kind for kind in kinds if phase in ("all", kind["phase"])]
    selected = _selected(run, chosen_kinds, wanted)
    groups = by_key((kind["group"], kind) for kind in chosen_kinds)
    groups = {group: each for group, each in groups.items() if any(kind["number"] in selected for kind in each)}
    copies, calls = (_copies(run), _calls(run) if phased else {}) if cells else ({}, {})
    memory = samples.device_memory(run) if cells else {}

    # Of each group the moments between which kernels' time counts: edges of cells, of turns and of copies.
    parts: dict[int, list[Any]] = {}
    for group, of_group in groups.items():
        begin, end = max(turns[group], key=lambda turn: turn[1] - turn[0])
        bounds = np.array([(start, max(stop, start + 1)) for start, stop in turns[group]])
        times, _ = copies.get(_place(of_group[0]), (np.empty((2, 0), np.int64), []))
        copied = zip(*(union(*np.clip(times, *turn)) for turn in bounds), strict=True)
        parts[group] = [np.linspace(begin, max(end, begin + 1), cells + 1), *bounds.T, *map(np.concatenate, copied)]
    covered_ns = {group: np.zeros(sum(map(len, each))) for group, each in parts.items()}
    nothing = np.empty(0, np.int64)
    executions: dict[int, list[tuple[Ints, Ints]]] = defaultdict(lambda: [(nothing, nothing)])
    since = min((each.times[0] for each in sampled.values()), default=0)
    until = max((each.times[-1] + each.period_ns for each in sampled.values()), default=0)
    reached, at = dict.fromkeys(groups, LONG_AGO), 0
    group_of = np.array([kind["group"] for kind in kinds])
    for piece in run.pieces("kernels", ("start_ns", "end_ns")) if groups else ():
        kind_here = kind_of[at : (at := at + piece.num_rows)]
        starts, ends = map(numbers, piece.columns)
        for group, rows in split(group_of[kind_here]) if cells else ():
            if group in groups:
                alone = union(starts[rows], ends[rows], since=reached[group])
                covered_ns[group] += covered(*alone, np.concatenate(parts[group]))
                reached[group] = max(reached[group], int(ends[rows].max()))
        if sampled and starts.min() < until and ends.max() > since:
            for number, rows in split(kind_here):
                if number in selected:
                    executions[number].append((starts[rows], ends[rows]))

    phases = []
    for group, of_group in groups.items():
        first, samples_here = of_group[0], sampled.get(of_group[0]["device"] or 0)
        edges, begins, stops, copied_from, copied_to = parts[group]
        *covers, hidden_from, hidden_to = np.split(covered_ns[group], np.cumsum([*map(len, parts[group])])[:-1])
        length = float((stops - begins).sum())
        copying = (copied_to - copied_from).sum() - (hidden_to - hidden_from).sum()
        busy = (covers[2] - covers[1]).sum() + copying
        shares = np.diff(covers[0]) / np.diff(edges)
        spans = [kind for kind in of_group if kind["number"] in selected]
        for kind in spans:
            gpu = MISSING if kind["device"] is None else kind["device"]
            times, totals = memory.get((gpu, kind["pid"]), (nothing, nothing))
            place = int(np.searchsorted(times, kind["start_ns"], side="right"))
            kind["memory_bytes"] = int(totals[place - 1]) if place else None
            kind.update({"metric_samples": 0, **{column: None for _, column in samples.METRICS.values()}})
            if samples_here:
                kind.update(samples_here.levels(*map(np.concatenate, zip(*executions[kind["number"]], strict=True))))
        start_ns, end_ns = max(turns[group], key=lambda turn: turn[1] - turn[0])
        phases.append(
            CasePhase(
                **{name: first[name] for name in ("phase", "label", "rank", "device")},
                several_devices=len({kind["device"] for kind in kinds}) > 1,
                start_us=start_ns / 1e3,
                end_us=end_ns / 1e3,
                busy=float(busy) / length,
                copying=float(copying) / length,
                spans=spans,
                tracks=[("kernels", tuple(shares.tolist()), None), *_levels(samples_here, edges)] if cells else [],
                copies=copies.get(_place(first), (None, []))[1],
                calls=calls.get((first["phase"], first["case"], first["rank"]), []),
                turns=len(turns[group]),
                length_us=length / 1e3,
            )
        )
    return Timeline(
        phases=tuple(phases),
        period_us=max((each.period_ns / 1e3 for each in sampled.values()), default=None),
        warnings=(
            *run.status_warning(),
            *trace_caveats(run),
            *_missing(run, bool(kinds), phased, bool(chosen_kinds), phase, sampled),
            *_caveats(run, phases, sampled),
        ),
    )


def _place(row: Row) -> tuple[Any, ...]:
    """Phase, case, rank and GPU: the key by which kernels and copies are grouped."""
    return row["phase"], row["case"], row["rank"], row["device"]


def _kinds(run: Run) -> tuple[list[Row], Ints, dict[int, list[list[int]]]]:
    """The kinds of kernels of a trace (the same names, grid and block in a case, a phase and on a GPU), a row each; the
    kind of each kernel; and of each group (see :func:`_place`) its turns, begin and end, ns.

    Where a run measured its cases in rounds, a group has several turns: one ends where another group's kernel begins on
    the GPU.
    """
    count, ranks, in_rounds = run.row_count("kernels"), ranks_of(run), run.settings.rounds > 1
    numbered, kinds, kind_of, at = Kinds(), list[Row](), np.empty(count, np.int32), 0
    gaps = Quantiles(count, LEAST_GAP_NS)
    groups: dict[Any, int] = {}
    gpus: dict[Any, int] = {}
    last: dict[int, tuple[int, int]] = {}  # group -> kind and end of its last kernel
    turns: dict[int, list[list[int]]] = defaultdict(list)
    current: dict[int, int] = {}  # GPU -> the group whose turn it is
    for piece in run.pieces("kernels", (*NAMES, "pid", "start_ns", "end_ns")):
        start, end = numbers(piece["start_ns"]), numbers(piece["end_ns"])
        own = {"rank": ranks.of_rows(piece.select(["pid", "device"]))} if ranks.several else {}
        kind = kind_of[at : (at := at + piece.num_rows)] = numbered.of(piece.select(NAMES), **own)
        for number, values in enumerate(itertools.islice(numbered.numbers, len(kinds), None), len(kinds)):
            row: Row = {"number": number, "rank": None, **dict(zip((*NAMES, *own), values, strict=True))}
            group = groups.setdefault(_place(row), len(groups))
            gpu = gpus.setdefault((row["rank"], row["device"]) if in_rounds else group, len(gpus))
            row |= {"group": group, "gpu": gpu, "label": run.labels(row["case"]), "kernel": row["kernel"] or ""}
            pid = piece["pid"][int(np.argmax(kind == number))].as_py()
            kinds.append(row | {"pid": pid, "start_ns": -LONG_AGO, "end_ns": LONG_AGO, "ns": 0, "executions": 0})
        counts, times = np.bincount(kind), np.bincount(kind, end - start)
        starts, ends = (np.full(len(counts), each) for each in (-LONG_AGO, LONG_AGO))
        np.minimum.at(starts, kind, start)
        np.maximum.at(ends, kind, end)
        for number in np.flatnonzero(counts).tolist():
            row = kinds[number]
            row["start_ns"] = min(row["start_ns"], int(starts[number]))
            row["end_ns"] = max(row["end_ns"], int(ends[number]))
            row["ns"] += int(times[number])
            row["executions"] += int(counts[number])
        group_of, gpu_of = (np.array([row[key] for row in kinds])[kind] for key in ("group", "gpu"))
        for group, rows in split(group_of):
            owner, reached = last.get(group, (NOTHING, 0))
            owners, until = np.append(owner, kind[rows]), np.append(reached, end[rows])
            skipped = int(owner == NOTHING)
            gaps.add(owners[skipped:-1], (start[rows] - until[:-1])[skipped:])
            last[group] = int(owners[-1]), int(until[-1])
        for gpu, rows in split(gpu_of):
            of = group_of[rows]
            begins = np.append(0, np.flatnonzero(np.diff(of)) + 1)
            bounds = zip(np.minimum.reduceat(start[rows], begins), np.maximum.reduceat(end[rows], begins), strict=True)
            for group, (begin, stop) in zip(of[begins].tolist(), bounds, strict=True):
                if current.get(gpu) != group:
                    turns[group].append([int(begin), int(stop)])
                current[gpu], turn = group, turns[group][-1]
                turn[:] = min(turn[0], int(begin)), max(turn[1], int(stop))
    gap_us = {number: median_ns / 1e3 for number, (*_, median_ns, _) in gaps.spreads().items()}
    del gaps
    durations, calls = (_quantiles(run, column, kind_of) for column in ("duration_ns", "launch_call_ns"))
    for number, row in enumerate(kinds):
        _, p10, middle, p90 = durations.get(number, (0, 0.0, 0.0, 0.0))
        row |= {
            "start_us": row["start_ns"] / 1e3,
            "end_us": row["end_ns"] / 1e3,
            "nsys_duration_us": middle / 1e3,
            "nsys_spread": (p90 / 1e3 - p10 / 1e3) / (middle / 1e3) if middle else 0.0,
            "gap_us": gap_us.get(number),
            "launch_call_us": calls[number][2] / 1e3 if number in calls else None,
        }
    return kinds, kind_of, turns


def _quantiles(run: Run, column: str, kind_of: Ints) -> dict[int, tuple[int, float, float, float]]:
    """Kind -> count and quantiles of a column of times, ns, where it has any."""
    quantiles, at = Quantiles(len(kind_of)), 0
    for piece in run.pieces("kernels", (column,)):
        times = numbers(piece[column])
        kind = kind_of[at : (at := at + len(times))]
        quantiles.add(kind[times != MISSING], times[times != MISSING])
    return quantiles.spreads()


def _selected(run: Run, chosen_kinds: Sequence[Row], wanted: Selection) -> set[int]:
    """The numbers of the kinds that the user wants; a kernel is wanted in all its phases, on all ranks and GPUs."""
    named = {
        (each.case, each.kernel, each.grid): each.launch
        for each in (run.launches if wanted.launches else ())
        if each.launch in wanted.launches
    }
    names = ("case", "kernel", "kernel_full", "grid", "block")
    items: list[Any] = []
    for kinds in by_key((tuple(kind[name] for name in names), kind) for kind in chosen_kinds).values():
        launch = named.get((kinds[0]["case"], kinds[0]["kernel"], kinds[0]["grid"]))
        duration_us = sum(kind["ns"] for kind in kinds) / 1e3
        items.append(SimpleNamespace(**kinds[0], launch=launch, duration_us=duration_us, kinds=kinds))
    chosen = wanted.of(items, run.manifest.name) if chosen_kinds else []
    return {kind["number"] for each in chosen for kind in each.kinds}


def _levels(sampled: Samples | None, edges: Any) -> Iterable[Track]:
    for key, name in (("sms_active", "SMs"), ("tensor_active", "tensor"), ("dram", "DRAM")):
        if sampled is not None and (largest := sampled.largest.get(key)):
            levels = sampled.means(key, edges).tolist()
            cells = tuple(
                None if math.isnan(level) else level / largest if level > samples.SMALLEST else 0.0 for level in levels
            )
            if any(cell is not None for cell in cells):
                yield name, cells, largest


def _copies(run: Run) -> dict[tuple[Any, ...], tuple[Any, list[Row]]]:
    """Group (:func:`_place`) -> starts and ends of its copies, and a row for each kind of copy, the longest first."""
    ranks, kinds = ranks_of(run), Kinds()
    parts: dict[int, list[Any]] = defaultdict(list)
    names = ("phase", "case", "device", "kind", "memory")
    for piece in run.pieces("copies", (*names, "pid", "start_ns", "end_ns", "bytes")):
        rank = ranks.of_rows(piece.select(["pid", "device"])) if ranks.several else np.full(piece.num_rows, NOBODY)
        times = np.stack([numbers(piece[name]) for name in ("start_ns", "end_ns", "bytes")])
        for number, rows in split(kinds.of(piece.select(names), rank=rank)):
            parts[number].append(times[:, rows])
    by_group: dict[tuple[Any, ...], tuple[list[Any], list[Row]]] = defaultdict(lambda: ([], []))
    for number, (phase, case, device, kind, memory, of_rank) in enumerate(kinds.numbers):
        starts, ends, sizes = np.concatenate(parts[number], axis=1)
        intervals, totals = by_group[phase, case, of_rank if ranks.several else None, device]
        intervals.append((starts, ends))
        size, ns = int(np.maximum(sizes, 0).sum()), int((ends - starts).sum())
        total = {"kind": kind, "memory": memory, "count": len(starts), "total_ms": ns / 1e6}
        totals.append(total | speed(run, kind or "", size, ns))
    return {
        place: (np.concatenate(each, axis=1), sorted(totals, key=lambda row: -row["total_ms"]))
        for place, (each, totals) in by_group.items()
    }


def _calls(run: Run) -> dict[tuple[Any, ...], list[Row]]:
    """Phase, case and rank -> a row for each CUDA call in fiprof's ranges of the case, the longest first."""
    ranges, ranks = marks(run), ranks_of(run)
    ours, phase = (
        np.array([each in wanted for each in names], bool)
        for names, wanted in ((ranges.domains, (FIPROF_DOMAIN,)), (ranges.texts, PHASES))
    )
    rows = np.flatnonzero(ours[ranges.domain] & (ranges.parents != NOTHING) & (ranges.ends != NOTHING))
    rows, traced = rows[phase[ranges.name[ranges.parents[rows]]]], calls(run)
    if cases := {case.id for case in run.cases}:
        rows = rows[np.array([each in cases for each in ranges.texts], bool)[ranges.name[rows]]]
    rows = rows[np.lexsort((ranges.ends[rows], ranges.starts[rows]))]
    rank = ranks.of("ranges")[rows] if ranks.several and len(rows) else np.full(len(rows), NOBODY)
    outer, inner = ranges.name[ranges.parents[rows]], ranges.name[rows]
    places, label = np.unique([outer, inner, rank], axis=1, return_inverse=True)
    threads = by_thread(ranges.threads[rows], ranges.starts[rows], ranges.ends[rows], label.ravel())
    within = traced.within(np.arange(run.row_count("api") if len(rows) else 0), threads)
    inside, rows_of = np.flatnonzero(within != NOTHING), [list[Row]() for _ in places.T]
    both = within[inside].astype(np.int64) * len(traced.names) + traced.name[inside]
    counts, times = np.bincount(both), np.bincount(both, (traced.ends - traced.starts)[inside])
    for each in np.flatnonzero(counts).tolist():
        place, name = divmod(each, len(traced.names))
        called = {"name": traced.names[name] or "?", "count": int(counts[each])}
        rows_of[place].append(called | {"total_us": float(times[each]) / 1e3})
    sorted_rows = (sorted(each, key=lambda row: -row["total_us"]) for each in rows_of)
    keys = [(*(ranges.texts[n] for n in each), who if ranks.several else None) for *each, who in places.T.tolist()]
    return dict(zip(keys, sorted_rows, strict=True))


def _missing(
    run: Run, kernels: bool, phased: bool, any_chosen: bool, phase: str, sampled: dict[int, Samples]
) -> Iterable[Finding]:
    """What the timeline lacks, and why. kernels, phased, any_chosen: whether there are any, in a phase, in this one."""
    if not kernels:
        kind = "no_kernels" if run.has("kernels") else "no_trace"
        yield finding(kind, "no timeline: {why}", why=run.missing("nsys"))
        return
    # A program of the user's has no cases, and needs no ranges for them.
    if (run.cases or run.imported) and not phased:
        texts = [row["text"] or "" for row in run.rows("diagnostics", ("text",))]
        kind, why = "no_ranges", "the trace has no NVTX ranges at all. Is the Python package nvtx there?"
        if run.row_count("ranges"):
            kind, why = "other_ranges", "the trace does not have the NVTX domain {domain}"
            if run.imported:
                kind, why = "no_cases", "fiprof import --range NAME makes cases of NVTX ranges"
        elif any(tables.NVTX_INCOMPATIBLE in text for text in texts):
            kind = "ranges_unreadable"
            why = "this nsys could not read the program's NVTX ranges. nsys from 2024.4 on can, or the Python package "
            why += "nvtx 0.2.11"
        elif run.imported:
            kind, why = "unmarked", "the trace has no NVTX ranges"
        yield finding(kind, f"no phases, cases and iterations: {why}", domain=FIPROF_DOMAIN)
    if not any_chosen:
        words = "no kernel was launched in phase {phase}; --phase all shows every kernel"
        yield finding("nothing_in_phase", words, phase=phase)
    if not sampled:
        words = "the trace has no samples of GPU metrics; nsys takes them with --gpu-metrics-devices and counter "
        missing = finding("no_samples", words + "permission")
        if run.settings.gpu_metrics_hz == 0:
            missing = finding("not_asked", "GPU metrics were not asked for (--gpu-metrics-hz 0)")
        elif run.manifest.warnings and not run.imported:
            missing = finding("warned", "{warnings}", warnings=tuple(run.manifest.warnings))
        elif not run.has("gpu_metrics"):
            missing = run.missing("nsys")
        yield finding("no_levels", "no levels of SMs, tensor cores and DRAM: {why}", why=missing)


def _caveats(run: Run, phases: Sequence[CasePhase], sampled: dict[int, Samples]) -> Iterable[Finding]:
    """A finding where ncu's counters or a grid show that the sampled levels are not shares of the whole GPU."""
    spans = [span for part in phases for span in part.spans if span["metric_samples"]]
    actives = (((each.case, each.kernel), TENSOR_ACTIVE.of(each) or 0.0) for each in run.launches)
    counted = by_key((of, active) for of, active in actives if active >= KNOWN_PCT)
    for span in spans:
        counts, level = counted.get((span["case"], span["kernel"])), span["sampled_tensor_active_pct"]
        if counts and level is not None and not AGREEMENT[0] <= level / median(counts) <= AGREEMENT[1]:
            words = "{kernel} has Tensor Active {sampled_tensor_active_pct:.1f} here and {tensor_active_pct:.1f} by "
            values = {"sampled_tensor_active_pct": level, "tensor_active_pct": median(counts)}
            words = f"{NO_SHARES}: {words}ncu's counters. {NO_OTHERS}"
            yield finding("tensor_differs", words, kernel=span["kernel"], **values)
            return
    multiprocessors = run.environment("gpu", "multiprocessors")
    for span in spans:
        blocks = grid_size(span["grid"])
        largest = sampled[span["device"] or 0].largest.get("sms_active", 100.0)
        full = multiprocessors and blocks >= multiprocessors
        if full and span["sms_active_pct"] is not None and largest < FULL_PCT:
            words = "SMs Active is never more than {largest_sms_active_pct:.0f}, also while the {blocks} blocks of "
            values = {"blocks": blocks, "multiprocessors": multiprocessors, "largest_sms_active_pct": largest}
            words = f"{NO_SHARES}: {words}{{kernel}} ran on {{multiprocessors}} SMs. {NO_OTHERS}"
            yield finding("sms_differ", words, kernel=span["kernel"], **values)
            return
