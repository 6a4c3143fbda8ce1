"""Kernels and what the hardware did while they ran, in order of time."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from fiprof.analysis import samples
from fiprof.analysis.samples import Levels
from fiprof.analysis.trace import NOTHING, Kinds, database, innermost, insert, pieces, rows_of, thread_keys
from fiprof.analysis.trace_checks import trace_doubts
from fiprof.model import tables
from fiprof.model.arrays import MISSING, coded, numbers
from fiprof.model.finding import Finding, finding
from fiprof.model.formula import Row
from fiprof.model.quantities import metric
from fiprof.model.ranks import ranks_of, rows_by_rank
from fiprof.model.run import Run
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.model.wording import Worded

if TYPE_CHECKING:
    from fiprof.analysis.samples import Floats, Samples
    from fiprof.model.arrays import Ints

MEASURE = "measure"
PHASES = (MEASURE, "setup", "warmup", "all")
PIECES = 79
"""Of a track, where none are asked for."""
TENSOR_ACTIVE = metric("tensor_active_pct")
KNOWN_PCT = 5.0
"""Tensor activity below this is too little to compare ncu's with nsys's."""
AGREEMENT = (0.75, 1.33)
"""nsys's tensor level over ncu's: their windows and clocks differ, but not by more."""
FULL_PCT = 75.0
"""SMs Active of at least this is expected where a kernel with a block for each of them fills whole samples."""


class TrackName(Worded):
    """What a track shows."""

    KERNELS = "kernels", "kernels"
    SMS = "sms_active", "SMs"
    TENSOR = "tensor_active", "tensor"
    DRAM = "dram", "DRAM"


@dataclass(frozen=True)
class KernelSpan:
    """A kernel of a case, all its executions folded: those with the same grid and block."""

    phase: str | None
    case: str | None
    label: str
    """The case in short."""
    rank: int | None
    """None in a run of one."""
    device: int | None
    kernel: str
    kernel_full: str | None
    grid: str | None
    block: str | None
    count: int
    """Executions."""
    start_us: float
    """The first one's start, since the trace began."""
    end_us: float
    """The last one's end, since the trace began."""
    median_us: float
    spread: float
    """(p90 - p10) / median."""
    gap_us: float | None
    """Median time to the start of the GPU's next kernel of the case; negative where that starts before this ends."""
    launch_us: float | None
    """Median duration of the CUDA call that launched it."""
    memory_bytes: int | None
    """Device memory of its process when the first one started."""
    levels: Levels
    """What the hardware did meanwhile."""


@dataclass(frozen=True)
class Track:
    """One line of a chart."""

    name: TrackName
    cells: tuple[float | None, ...]
    """0 to 1, from the left; None where nothing was sampled."""
    largest: float | None
    """What 1 stands for, percent as nsys gives it; None for the kernels' share of the time."""


@dataclass(frozen=True)
class CasePhase:
    """A case in a phase on a GPU."""

    phase: str | None
    label: str
    device: int | None
    several_devices: bool
    rank: int | None
    """None in a run of one."""
    start_us: float
    end_us: float
    """Since the trace began; of a case that came several times, of its longest turn."""
    busy: float
    """Share of ``length_us`` in which a kernel, a copy or a memory set ran."""
    spans: tuple[KernelSpan, ...]
    tracks: tuple[Track, ...]
    """Kernels, then what was sampled, from ``start_us`` to ``end_us``."""
    copies: tuple[Totals, ...] = ()
    calls: tuple[Totals, ...] = ()
    """The longest first."""
    turns: int = 1
    """How often the case came, between others."""
    length_us: float = 0.0
    """From the first kernel's start to the last one's end, of all turns together."""


@dataclass(frozen=True)
class Timeline:
    """What ``fiprof timeline`` shows of a run."""

    phases: tuple[CasePhase, ...]
    period_us: float | None
    """Between two samples; None without."""
    warnings: tuple[Finding, ...]

    @property
    def levels_are_shares(self) -> bool:
        """Whether nothing speaks against reading nsys's levels as shares of the whole GPU."""
        return not any(each.kind in ("tensor_differs", "sms_differ") for each in self.warnings)

    @property
    def measured(self) -> Timeline:
        """Of the phase measure alone; all of it where nothing was measured."""
        phases = tuple(part for part in self.phases if part.phase == MEASURE)
        return replace(self, phases=phases) if phases else self


FIPROF_DOMAIN = "fiprof"
_NAMES = ("phase", "case", "device", "kernel", "kernel_full", "grid", "block")
_SHOWN = (*_NAMES, "rank", "label", "count", "median_us", "spread", "gap_us", "launch_us")


def timeline(run: Run, *, wanted: Selection = EVERYTHING, phase: str = "measure", cells: int = PIECES) -> Timeline:
    """The timeline of a run, as far as it has one.

    wanted: only these kernels; a launch's number means its kernel. phase: one of PHASES. cells: pieces of a track.

    Raises FiprofError where nothing is left of kernels that are there, and for a table that cannot be read.
    """
    trace, sampled = _Trace(run), samples.read(run)
    phased = any(kind.phase for kind in trace.kinds)
    if run.imported and not phased:
        phase = "all"
    found = [kind for kind in trace.kinds if phase in ("all", kind.phase)]
    kept = _selected(run, found, wanted)
    groups: dict[int, list[_Kind]] = defaultdict(list)
    for kind in found:
        groups[kind.group].append(kind)
    groups = {group: kinds for group, kinds in groups.items() if any(kind.number in kept for kind in kinds)}
    gpus = trace.activities(groups, cells)
    calls, copies, memory = _calls(run), _together(trace.copies, "kind"), _DeviceMemory(run)
    several = len({kind.device for kind in trace.kinds}) > 1
    executions = trace.executions(sampled, kept)
    phases = []
    for group, kinds in groups.items():
        first, gpu, here = kinds[0], gpus[group], sampled.get(kinds[0].device or 0)
        spans = tuple(
            KernelSpan(
                **{name: getattr(kind, name) for name in _SHOWN}, start_us=kind.start_ns / 1e3,
                end_us=kind.end_ns / 1e3, memory_bytes=memory.at(kind.pid, kind.device, kind.start_ns),
                levels=here.levels(*executions[kind.number]) if here else Levels(),
            )
            for kind in kinds
            if kind.number in kept
        )  # fmt: skip
        phases.append(
            CasePhase(
                phase=first.phase,
                label=first.label,
                rank=first.rank,
                device=first.device,
                several_devices=several,
                start_us=gpu.start / 1e3,
                end_us=gpu.end / 1e3,
                busy=gpu.busy,
                spans=spans,
                tracks=tuple(_tracks(gpu, here)),
                copies=copies.get((first.phase, first.case, first.rank, first.device), ()),
                calls=calls.get((first.phase, first.case, first.rank), ()),
                turns=gpu.turns,
                length_us=gpu.length / 1e3,
            )
        )
    return Timeline(
        phases=tuple(phases),
        period_us=max((s.period_ns / 1e3 for s in sampled.values()), default=None),
        warnings=(
            *run.status_warning(),
            *trace_doubts(run),
            *_missing(run, bool(trace.kinds), phased, bool(found), phase, sampled),
            *_doubts(run, phases, sampled),
        ),
    )


@dataclass
class _Kind:
    """The executions of a kernel with the same grid and block in a case, a phase and a GPU."""

    number: int
    group: int
    """Number of its phase, case, rank and GPU."""
    launch: int | None
    """A launch of it under ncu that was asked for."""
    label: str
    phase: str | None
    case: str | None
    rank: int | None
    device: int | None
    kernel: str
    kernel_full: str | None
    grid: str | None
    block: str | None
    pid: int = 0
    """Of the first one."""
    count: int = 0
    start_ns: int = 0
    end_ns: int = 0
    duration_us: float = 0.0
    """All together."""
    median_us: float = 0.0
    spread: float = 0.0
    gap_us: float | None = None
    launch_us: float | None = None


@dataclass
class _Gpu:
    """A group's GPU: ns since the trace began."""

    start: int
    """Of the longest turn, as ``end``."""
    end: int
    turns: int
    length: float
    """Of all turns together."""
    busy: float
    edges: Floats
    shares: Floats
    """Between neighbouring edges the share of the time in which a kernel ran."""


class _Trace:
    """The kernels of a trace: which kind each is, and what DuckDB says of the kinds."""

    def __init__(self, run: Run) -> None:
        import numpy as np

        self._run, self._ranks = run, ranks_of(run)
        self.copies = rows_by_rank(run, "copies", ("start_ns", "end_ns", "bytes", "kind", "device", "phase", "case"))
        self.kinds: list[_Kind] = []
        self._kind: Ints = np.empty(rows_of(run, "kernels"), np.int32)
        numbers_, at = Kinds(), 0
        groups: dict[Any, int] = {}
        last: dict[int, tuple[int, int]] = {}
        with database() as query:
            query.execute("CREATE TABLE kernels (kind INTEGER, start BIGINT, stop BIGINT, call BIGINT)")
            query.execute("CREATE TABLE gaps (kind INTEGER, gap BIGINT)")
            for piece in pieces(run, "kernels", (*_NAMES, "pid", "start_ns", "end_ns", "launch_call_ns")):
                ranks: dict[str, Ints] = {}
                if self._ranks.several:
                    ranks["rank"] = self._ranks.of_rows(piece.select(["pid", "device"]))
                kind = numbers_.of(piece.select(_NAMES), **ranks)
                for number, values in list(enumerate(numbers_.numbers))[len(self.kinds) :]:
                    row: dict[str, Any] = {"rank": None, **dict(zip((*_NAMES, *ranks), values, strict=True))}
                    group = row["phase"], row["case"], row["rank"], row["device"]
                    self.kinds.append(
                        _Kind(
                            number, groups.setdefault(group, len(groups)), None, run.labels(row["case"]),
                            pid=piece["pid"][int(np.argmax(kind == number))].as_py(),
                            **row | {"kernel": row["kernel"] or ""},
                        )
                    )  # fmt: skip
                self._kind[at : at + len(kind)] = kind
                at += len(kind)
                start, stop, call = (numbers(piece[name]) for name in ("start_ns", "end_ns", "launch_call_ns"))
                insert(query, "kernels", kind=kind, start=start, stop=stop, call=call)
                of = np.array([each.group for each in self.kinds])[kind]
                for group_, rows in _split(of):
                    before = last.get(group_, (NOTHING, 0))
                    ends, owners = np.append(before[1], stop[rows]), np.append(before[0], kind[rows])
                    first = int(before[0] == NOTHING)
                    insert(query, "gaps", kind=owners[first:-1].astype(np.int32), gap=(start[rows] - ends[:-1])[first:])
                    last[group_] = int(owners[-1]), int(ends[-1])
            self._ask(query)

    def _ask(self, query: Any) -> None:
        durations = query.execute(
            "SELECT kind, count(*), min(start), max(stop), sum(stop - start)::BIGINT,"
            " quantile_cont(stop - start, [0.1, 0.5, 0.9]) FROM kernels GROUP BY kind"
        )
        for kind, count, start, stop, total, (p10, median_, p90) in durations.fetchall():
            each = self.kinds[kind]
            each.count, each.start_ns, each.end_ns, each.duration_us = count, start, stop, total / 1e3
            each.median_us = median_ / 1e3
            each.spread = (p90 / 1e3 - p10 / 1e3) / each.median_us if median_ else 0.0
        for kind, gap in query.execute("SELECT kind, median(gap) FROM gaps GROUP BY kind").fetchall():
            self.kinds[kind].gap_us = gap / 1e3
        launches = f"SELECT kind, median(call) FROM kernels WHERE call != {MISSING} GROUP BY kind"
        for kind, call in query.execute(launches).fetchall():
            self.kinds[kind].launch_us = call / 1e3

    def _work(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Kind, start and end of the kernels, piece by piece."""
        at = 0
        for piece in pieces(self._run, "kernels", ("start_ns", "end_ns")):
            yield self._kind[at : at + piece.num_rows], numbers(piece["start_ns"]), numbers(piece["end_ns"])
            at += piece.num_rows

    def executions(self, sampled: dict[int, Samples], kept: Collection[int]) -> dict[int, tuple[Ints, Ints]]:
        """Kind -> starts and ends of its kernels, where something was sampled."""
        import numpy as np

        parts: dict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
        for kind, start, end in self._work() if sampled else ():
            for number, rows in _split(kind):
                if number in kept:
                    parts[number].append((start[rows], end[rows]))
        return {number: tuple(map(np.concatenate, zip(*each, strict=True))) for number, each in parts.items()}  # type: ignore[misc]

    def activities(self, groups: Mapping[int, Sequence[_Kind]], cells: int) -> dict[int, _Gpu]:
        """Group -> when its GPU worked, and for how much of each of so many cells."""
        import numpy as np

        turns = list(self._turns())
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for (_, start, end), pieces_ in zip(self._work(), turns, strict=True):
            for unit, rows in pieces_:
                begin, stop = spans.get(unit, (int(start[rows][0]), 0))
                spans[unit] = min(begin, int(start[rows].min())), max(stop, int(end[rows].max()))
        moments, copied = {}, {}
        for group, kinds in groups.items():
            units = [unit for unit in spans if unit[0] == group]
            longest = max(units, key=lambda unit: spans[unit][1] - spans[unit][0])
            who = kinds[0].phase, kinds[0].case, kinds[0].rank, kinds[0].device
            own = [row for row in self.copies if (row["phase"], row["case"], row["rank"], row["device"]) == who]
            times = np.array(sorted((row["start_ns"], row["end_ns"]) for row in own), np.int64).reshape(-1, 2)
            for unit in units:
                begin, stop = spans[unit][0], max(spans[unit][1], spans[unit][0] + 1)
                edges = np.linspace(begin, stop, cells + 1 if unit == longest else 2)
                copied[unit] = np.concatenate(samples.disjoint(*np.clip(times, begin, stop).T))
                moments[unit] = np.concatenate([edges, copied[unit]])
        covered = {unit: np.zeros(len(each)) for unit, each in moments.items()}
        reached: dict[Any, int] = {}
        for (_, start, end), pieces_ in zip(self._work(), turns, strict=True):
            for unit, rows in pieces_:
                if unit in covered:
                    begins, ends = samples.disjoint(start[rows], end[rows], reached.get(unit, 0))
                    covered[unit] += samples.covered(begins, ends, moments[unit])
                    reached[unit] = max(reached.get(unit, 0), int(end[rows].max()))
        found = {}
        for group in groups:
            units = [unit for unit in moments if unit[0] == group]
            longest = max(units, key=lambda unit: len(moments[unit]) - len(copied[unit]))
            worked = length = 0.0
            for unit in units:
                last = len(moments[unit]) - len(copied[unit]) - 1
                begins, ends = np.split(copied[unit], 2)
                hidden = np.diff(np.split(covered[unit][last + 1 :], 2), axis=0)
                worked += covered[unit][last] - covered[unit][0] + float(np.sum(ends - begins) - np.sum(hidden))
                length += moments[unit][last] - moments[unit][0]
            count = len(moments[longest]) - len(copied[longest])
            edges_ns = moments[longest][:count]
            shares = np.diff(covered[longest][:count]) / np.diff(edges_ns)
            found[group] = _Gpu(*spans[longest], len(units), length, worked / length, edges_ns, shares)
        return found

    def _turns(self) -> Iterator[list[tuple[tuple[int, int], Ints]]]:
        """Of each piece the rows of each group and turn: one ends where another group's kernel begins on its GPU.

        Only where the run measured its cases in rounds; one turn otherwise.
        """
        import numpy as np

        groups = np.array([kind.group for kind in self.kinds])
        places: dict[Any, int] = {}
        place = np.array([places.setdefault((kind.rank, kind.device), len(places)) for kind in self.kinds])
        current: dict[int, int] = {}
        counts: dict[int, int] = defaultdict(int)
        for kind, _, _ in self._work():
            if self._run.settings.rounds < 2:
                yield [((group, 0), rows) for group, rows in _split(groups[kind])]
                continue
            found: dict[tuple[int, int], list[Ints]] = defaultdict(list)
            for here, rows in _split(place[kind]):
                of = groups[kind[rows]]
                for part in np.split(rows, np.flatnonzero(np.diff(of)) + 1):
                    group = int(groups[kind[part[0]]])
                    if current.get(here) != group:
                        current[here] = group
                        counts[group] += 1
                    found[group, counts[group]].append(part)
            yield [(unit, np.concatenate(parts)) for unit, parts in found.items()]


def _split(values: Ints) -> Iterator[tuple[int, Any]]:
    """Each distinct value with its rows, in their order."""
    import numpy as np

    if len(values) and (values == values[0]).all():
        yield int(values[0]), np.arange(len(values))
        return
    order = np.argsort(values, kind="stable")
    found, first = np.unique(values[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, first[1:]), strict=False)


def _selected(run: Run, found: Sequence[_Kind], wanted: Selection) -> set[int]:
    """The numbers of the kinds that were asked for; phases, ranks and GPUs of a kernel go together."""
    asked = {
        (each.case, each.kernel, each.grid): each.launch
        for each in (run.launches if wanted.launches else ())
        if each.launch in wanted.launches
    }
    groups: dict[tuple[Any, ...], list[_Kind]] = defaultdict(list)
    for kind in found:
        groups[kind.case, kind.kernel, kind.kernel_full, kind.grid, kind.block].append(kind)
    shown = [
        replace(kinds[0], launch=asked.get((case, kernel, grid)), duration_us=sum(each.duration_us for each in kinds))
        for (case, kernel, _, grid, _), kinds in groups.items()
    ]
    chosen = wanted.of(shown, run.manifest.name) if found else []
    return {
        kind.number
        for each in chosen
        for kind in groups[each.case, each.kernel, each.kernel_full, each.grid, each.block]
    }


def _tracks(gpu: _Gpu, sampled: Samples | None) -> Iterable[Track]:
    yield Track(TrackName.KERNELS, tuple(map(float, gpu.shares)), None)
    for name in (TrackName.SMS, TrackName.TENSOR, TrackName.DRAM):
        if sampled is not None and (largest := sampled.largest.get(name)):
            levels = [
                level if math.isnan(level) or level > samples.SMALLEST else 0.0
                for level in sampled.means(name, gpu.edges)
            ]
            cells = tuple(None if math.isnan(level) else float(level) / largest for level in levels)
            if any(cell is not None for cell in cells):
                yield Track(name, cells, largest)


# What happens beside the kernels: copies, CUDA calls, and allocations of device memory


@dataclass(frozen=True)
class Totals:
    """Copies of a kind, or CUDA calls of a name, all together."""

    name: str
    count: int
    total_us: float
    bytes: int | None = None
    """Of copies."""


class _DeviceMemory:
    """Device memory over time."""

    def __init__(self, run: Run) -> None:
        self._totals: dict[tuple[Any, Any], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        events = run.rows("memory", ("time_ns", "device", "pid", "total_bytes"))
        for event in sorted(events, key=lambda event: event["time_ns"]):
            times, totals = self._totals[event["pid"], event["device"]]
            times.append(event["time_ns"])
            totals.append(event["total_bytes"])

    def at(self, pid: int | None, device: int | None, time_ns: int) -> int | None:
        """Bytes; None where no allocation had been seen."""
        times, totals = self._totals.get((pid, device), ([], []))
        index = bisect.bisect_right(times, time_ns)
        return totals[index - 1] if index else None


def _together(rows: Iterable[Row], key: str) -> dict[tuple[Any, ...], tuple[Totals, ...]]:
    """Copies by phase, case, rank and GPU, those of a kind together, the longest time first."""
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["phase"], row["case"], row["rank"], row["device"]][row[key] or "?"].append(row)
    return {
        of: _longest(
            Totals(
                name,
                len(group),
                sum(row["end_ns"] - row["start_ns"] for row in group) / 1e3,
                sum(row["bytes"] or 0 for row in group),
            )
            for name, group in kinds.items()
        )
        for of, kinds in groups.items()
    }


def _longest(totals: Iterable[Totals]) -> tuple[Totals, ...]:
    return tuple(sorted(totals, key=lambda item: -item.total_us))


def _calls(run: Run) -> dict[tuple[Any, ...], tuple[Totals, ...]]:
    """CUDA calls by phase, case and rank, in fiprof's ranges of the case; those of a name together."""
    import numpy as np

    rows = rows_by_rank(run, "ranges", ("domain", "name", "start_ns", "end_ns", "parent", "pid", "tid"))
    ours: dict[tuple[Any, ...], int] = {}
    inside: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    cases = {case.id for case in run.cases}
    for row in rows:
        if row["domain"] == FIPROF_DOMAIN and row["parent"] is not None and row["end_ns"] is not None:
            of = rows[int(row["parent"])]["name"], row["name"], row["rank"]
            if of[0] in PHASES and (not cases or of[1] in cases):
                thread = int(thread_keys(row["pid"], row["tid"]))
                inside[thread].append((row["start_ns"], row["end_ns"], ours.setdefault(of, len(ours))))
    threads = {thread: innermost(*np.array(sorted(each), np.int64).reshape(-1, 3).T) for thread, each in inside.items()}
    found: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for piece in pieces(run, "api", ("name", "start_ns", "end_ns", "pid", "tid")) if threads else ():
        names, name = coded(piece["name"])
        start, end, pid, tid = (numbers(piece[each]) for each in ("start_ns", "end_ns", "pid", "tid"))
        keys = thread_keys(pid, tid)
        for thread, stretches in threads.items():
            mine = np.flatnonzero(keys == thread)
            label = stretches.at(start[mine])
            mine, label = mine[label != NOTHING], label[label != NOTHING]
            both = label.astype(np.int64) * len(names) + name[mine]
            counts, times = np.bincount(both), np.bincount(both, end[mine] - start[mine])
            for each in np.flatnonzero(counts).tolist():
                total = found[each // len(names), names[each % len(names)] or "?"]
                total[0] += int(counts[each])
                total[1] += int(times[each])
    of_label: dict[int, list[Totals]] = defaultdict(list)
    for (label_, name_), (count, ns) in found.items():
        of_label[label_].append(Totals(name_, count, ns / 1e3))
    return {of: _longest(of_label[number]) for of, number in ours.items()}


# What is missing, and what is doubtful


def _missing(
    run: Run, kernels: bool, phased: bool, found: bool, phase: str, sampled: dict[int, Samples]
) -> Iterable[Finding]:
    """kernels: whether there are any; phased: whether some belong to a phase; found: some to the phase asked for."""
    if not run.has("kernels"):
        yield finding("no_trace", "no timeline: {why}", why=run.missing("nsys"))
        return
    if not kernels:
        yield finding(
            "no_kernels", "no timeline: nsys ran and saw no kernel. The program used no GPU, or ended before it did"
        )
        return
    # A program of the user's has no cases, and needs no ranges for them.
    if (run.cases or run.imported) and not phased:
        yield _no_phases(run)
    if not found:
        yield finding(
            "nothing_in_phase", "no kernel was launched in phase {phase}; --phase all shows every kernel", phase=phase
        )
    if not sampled:
        yield finding("no_levels", "no levels of SMs, tensor cores and DRAM: {why}", why=_why_not_sampled(run))


def _no_phases(run: Run) -> Finding:
    said = run.rows("diagnostics", ("text",))
    if run.rows("ranges", ("domain",)):
        kind, why = "other_ranges", "the trace does not have the NVTX domain {domain}"
        if run.imported:
            kind, why = "no_cases", "fiprof import --range NAME makes cases of NVTX ranges"
    elif any(tables.NVTX_INCOMPATIBLE in (row["text"] or "") for row in said):
        kind = "ranges_unreadable"
        why = (
            "this nsys could not read the program's NVTX ranges. nsys from 2024.4 on can, or the Python package "
            "nvtx 0.2.11"
        )
    elif run.imported:
        kind, why = "unmarked", "the trace has no NVTX ranges"
    else:
        kind, why = "no_ranges", "the trace has no NVTX ranges at all. Is the Python package nvtx there?"
    return finding(kind, f"no phases, cases and iterations: {why}", domain=FIPROF_DOMAIN)


def _why_not_sampled(run: Run) -> Finding:
    if run.settings.gpu_metrics_hz == 0:
        return finding("not_asked", "GPU metrics were not asked for (--gpu-metrics-hz 0)")
    if run.manifest.warnings and not run.imported:
        return finding("warned", "{warnings}", warnings=tuple(run.manifest.warnings))
    if not run.has("gpu_metrics"):
        return run.missing("nsys")
    return finding(
        "no_samples",
        "the trace has no samples of GPU metrics; nsys takes them with --gpu-metrics-devices and counter permission",
    )


def _doubts(run: Run, phases: Sequence[CasePhase], sampled: dict[int, Samples]) -> Iterable[Finding]:
    """Whether the levels can be read as shares of the whole GPU."""
    spans = [span for part in phases for span in part.spans if span.levels.samples]
    counted: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for launch in run.launches:
        if (active := TENSOR_ACTIVE.of(launch) or 0.0) >= KNOWN_PCT:
            counted[launch.case, launch.kernel].append(active)
    for span in spans:
        there, level = counted.get((span.case, span.kernel)), span.levels.tensor_active
        if there and level is not None and not AGREEMENT[0] <= level / median(there) <= AGREEMENT[1]:
            yield finding(
                "tensor_differs",
                "the sampled levels of SMs and tensor cores are not shares of this GPU: {kernel} has Tensor "
                "Active {sampled_tensor_active_pct:.1f} here and {tensor_active_pct:.1f} by ncu's counters. "
                "Compare them within the run only",
                kernel=span.kernel,
                sampled_tensor_active_pct=level,
                tensor_active_pct=median(there),
            )
            return
    multiprocessors = run.environment("gpu", "multiprocessors")
    for span in spans:
        blocks = math.prod(int(n) for n in (span.grid or "0").split("x") if n.isdigit())
        largest = sampled[span.device or 0].largest.get("sms_active", 100.0)
        full = multiprocessors and blocks >= multiprocessors
        if full and span.levels.sms_active is not None and largest < FULL_PCT:
            yield finding(
                "sms_differ",
                "the sampled levels of SMs and tensor cores are not shares of this GPU: SMs Active is never more "
                "than {largest_sms_active_pct:.0f}, also while the {blocks} blocks of {kernel} ran on "
                "{multiprocessors} SMs. Compare them within the run only",
                kernel=span.kernel,
                blocks=blocks,
                multiprocessors=multiprocessors,
                largest_sms_active_pct=largest,
            )
            return
