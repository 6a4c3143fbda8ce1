"""Communication between the ranks of a run: which rank waits for which, how long, and what the late rank did then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fiprof.analysis import comm_match
from fiprof.analysis.checks import trace_caveats
from fiprof.analysis.comm_clocks import Clock
from fiprof.analysis.comm_match import OPS, UNKNOWN, Bools, Kernels, Matched, Op
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.trace import SEPARATOR, calls, folded, marks, phases
from fiprof.model.arrays import Floats, Ints, numbers
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import Rank, Ranks, ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import by_key
from fiprof.model.spans import NOTHING, Stretches, by_thread, split, union, within
from fiprof.model.tables import own_pid
from fiprof.text import short_kernel

KERNEL, COMMUNICATION, COPY, CALL, HOST = DOING = ("kernel", "communication", "copy", "call", "host")
"""What keeps a rank from its collective: its GPU runs a kernel of its own, another collective, or a copy; or its thread
is in a CUDA call, or in host code. Where several apply, the first one counts."""
NOT_KNOWN = ("", "", "")
SMALLEST_SHARE = 0.01  # of a delay: what the late rank did for a smaller part of it is not listed with the collective
MOST_BUFFERED = 4.0  # transfer of a send/receive over its skew, from which on its bandwidth is shown
PARTS, ONCE = 4, 2.0
"""Of so many parts of the collectives: a delay over ONCE times the longest one of the second worst does not recur."""
CELLS = 60  # cells of a rank's track
NEARLY, MOSTLY = 0.9, 0.75
"""Part of the time to the last rank's start after which another one comes as late, and of the others' waiting for which
this has to be so."""
TOGETHER = (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL)
"""Operations whose size nccl-tests counts as that of all ranks together (its doc/PERFORMANCE.md)."""

CLOCK_WORDS = {
    "clock": "the clock of trace {file} is within {error_us:,.0f} µs of the first one's, by the ends of collectives",
    "clock_steps": "with no steady clock do {count} of {of} collectives of trace {file} begin before they end: its "
    "clock was set, or kernels are missing. Its times may be off by {error_us:,.0f} µs",
    "clock_unknown": "the clock of trace {file} is as its session's start time says: no all-reduce, all-gather or "
    "reduce-scatter ties it to the first one's",
}
MOVED = "; it was moved by up to {shift_us:,.1f} µs, with a drift of {drift_ppm:,.1f} ppm"
RANKS = columns("ranks")
CAUSES = columns("causes")
COLLECTIVES = columns("collectives")
"""docs/keys.md describes the columns."""
Stretch = tuple[str, str, str, float]
"""What a rank did (one of DOING), name of the kernel or call, innermost NVTX range of the thread, µs; "" for none."""


@dataclass(frozen=True)
class Comm:
    """What ``fiprof comm`` shows of a run."""

    ranks: list[Row]  # rows of RANKS
    causes: list[Row]  # rows of CAUSES, the longest first
    collectives: list[Row]  # rows of COLLECTIVES, by the last rank's start
    charts: list[Row]
    """Two charts, of all collectives and of the one with the longest wait: ``start_us``, ``end_us``, ``number``
    (position of the collective, None for all) and ``tracks``. A track has ``rank`` and, for cells of equal length,
    shares of the time, 0 to 1: ``compute``, another kernel ran; ``transfer``, only communication, all ranks having
    begun; ``wait``, only communication, and a rank had not begun."""
    warnings: tuple[Finding, ...]

    @property
    def worst(self) -> list[Row]:
        """The collectives, that with the longest wait of a rank first."""
        return sorted(self.collectives, key=lambda row: -row["wait_us"])


def comm(run: Run, *, cells: int = CELLS) -> Comm:
    """The communication of a run. cells: of a track."""
    ranks = ranks_of(run)
    if not run.has("kernels") or not ranks.several:
        missing = finding("no_trace", "no communication: {why}", why=run.missing("nsys"))
        if run.has("kernels"):
            words = "no communication: the run has one rank. Several processes with a GPU each are ranks, under one "
            missing = finding("one_rank", words + "nsys or as one trace each")
        return Comm([], [], [], [], (*run.status_warning(), missing))
    kernels, communicating = comm_match.communication(run)
    tied = {clock.file: clock for clock in comm_match.trace_clocks(run)}
    clocks = {rank: tied.get(file, Clock(file)) for rank, file in ranks.files.items()}
    start, end = kernels.start.copy(), kernels.end.copy()
    for rank, clock in clocks.items():
        of_rank = kernels.rank == rank
        start[of_rank], end[of_rank] = clock.to_first(start[of_rank]), clock.to_first(end[of_rank])
    matched = comm_match.match(replace(kernels, start=start, end=end), ranks, comm_match.local_ranks(run, ranks))
    activity = RankActivity(run, ranks, communicating, clocks)
    steps = Steps(run, kernels)
    collectives, causes = _collectives(matched, activity, steps)
    return Comm(
        ranks=[_totals(rank, collectives, activity, steps) for rank in ranks.all] if len(kernels) else [],
        causes=causes,
        collectives=collectives,
        charts=list(_charts(collectives, matched, activity, cells)),
        warnings=(*run.status_warning(), *trace_caveats(run), *_warnings(matched, collectives, clocks)),
    )


class Delay(NamedTuple):
    """How long a rank delayed others in collectives to which it came last; sums over the collectives."""

    rank: int  # the late rank
    ns: float  # how long others ran nothing else while they waited for it; of several in a collective the longest
    waited_ns: float  # how long the rank in question waited for it
    exposed_ns: float  # the part of this in which no other kernel ran on the waiting rank
    idle_ns: float  # the part of this in which the late rank's GPU had nothing to do
    even_ns: float  # what all ranks waited likewise, on average: what they save who share the work out evenly
    transfer_ns: float  # time of the waiting rank in the collectives once all had come, while no other kernel ran there
    collectives: int
    doing: Finding  # what the late rank did most
    as_late: tuple[int, ...]  # other ranks that come about as late


def delays(run: Run, rank: int, begins: Ints, ends: Ints, groups: Ints) -> dict[int, list[Delay]]:
    """Group -> which ranks came last to the collectives that ``rank`` began in the group's stretches of time, the
    longest delay first. begins, ends (ns since the trace began, in order), groups: of the stretches."""
    parts_of = defaultdict[tuple[int, int], list[tuple[float, ...]]](list)
    rows_of = defaultdict[tuple[int, int], list[Row]](list)
    done = defaultdict[tuple[int, int], Counter[tuple[str, str, str]]](Counter)
    for row in run.once(comm).collectives if len(begins) else ():
        for each in row["arrivals"]:
            at, late = each["start_us"] * 1e3, row["late_rank"]
            place = int(np.searchsorted(begins, at, side="right")) - 1
            if each["rank"] != rank or place < 0 or at >= ends[place]:
                continue
            key = int(groups[place]), late
            waited, exposed = (each[name] * 1e3 if late != rank else 0.0 for name in ("wait_us", "exposed_us"))
            idle = 0.0
            for doing in row["meanwhile"]:
                done[key][doing["doing"], doing["doing_name"], folded(doing["range"])] += doing["us"]
                idle += exposed * doing["us"] / row["skew_us"] if doing["doing"] in (CALL, HOST) else 0.0
            even = 1e3 * sum(of["exposed_us"] for of in row["arrivals"]) / len(row["arrivals"])
            parts_of[key].append((lost_us(row) * 1e3, waited, exposed, idle, even, each["alone_us"] * 1e3 - exposed))
            rows_of[key].append(row)
    delayed = []
    for key, collectives in parts_of.items():
        doing = doing_words(*max(done[key], key=done[key].__getitem__, default=NOT_KNOWN))
        ns, waited_ns, exposed_ns, idle_ns, even_ns, transfer_ns = map(sum, zip(*collectives, strict=True))
        times = ns, waited_ns, exposed_ns, idle_ns, even_ns, transfer_ns
        delayed.append(Delay(key[1], *times, len(collectives), doing, as_late(rows_of[key])))
    by_delay = sorted(zip(parts_of, delayed, strict=True), key=lambda each: -each[1].ns)
    return by_key((group, delay) for (group, _), delay in by_delay)


def lost_us(collective: Row) -> float:
    """How long a rank that waited for the last one ran nothing else; of several the longest."""
    return float(max(each["exposed_us"] for each in collective["arrivals"]))


def as_late(collectives: Sequence[Row]) -> tuple[int, ...]:
    """Ranks that come about as late to collectives as those that come last, in most of what these cost."""
    cost, total_us = defaultdict[int, float](float), 0.0
    for row in collectives:
        us = lost_us(row)
        total_us += us
        for each in row["arrivals"] if len(row["arrivals"]) > 2 else ():
            if each["rank"] != row["late_rank"] and each["start_us"] - row["start_us"] > NEARLY * row["skew_us"]:
                cost[each["rank"]] += us
    enough = MOSTLY * total_us
    return tuple(sorted(rank for rank, us in cost.items() if us > enough))


def doing_words(doing: str, name: str, range_: str) -> Finding:
    """A finding of what a rank did. doing: one of DOING. name: of the kernel or call."""
    words = {KERNEL: "kernel {name}", COMMUNICATION: "another collective", COPY: "copy", CALL: "{name}"}
    inside = " in {range}" if range_ and doing in (CALL, HOST) else ""
    template = words.get(doing, "host code" if doing else "not known") + inside
    return finding("doing", template, doing=doing, name=short_kernel(name), range=range_)


NOBODY = Delay(UNKNOWN, 0, 0, 0, 0, 0, 0, 0, doing_words(*NOT_KNOWN), ())  # delays no rank


def _collectives(matched: Matched, activity: RankActivity, steps: Steps) -> tuple[list[Row], list[Row]]:
    """Rows of COLLECTIVES, and of CAUSES."""
    kernels, present, count = matched.kernels, matched.there, len(matched.index)
    if not count:
        return [], []
    # When each rank came (start, end: collective x rank), and how long it waited for the last one to come.
    start, end = matched.of(kernels.start), matched.of(kernels.end)
    first = matched.of(kernels.start, np.iinfo(np.int64).max).min(axis=1)
    latest = matched.of(kernels.start, np.iinfo(np.int64).min)
    last, late = latest.max(axis=1), latest.argmax(axis=1)
    wait = np.where(present, np.clip(last[:, None] - start, 0, end - start), 0)
    waiting, row = wait.argmax(axis=1), np.arange(count)
    # What of that was not hidden behind other kernels of the rank.
    hidden, exposed, alone = np.zeros(count), *np.zeros((2, *wait.shape))
    for column, rank in enumerate(matched.ranks):
        here = np.flatnonzero(present[:, column])
        begin, stop = start[here, column], end[here, column]
        until = np.maximum(np.minimum(last[here], stop), begin)
        activity.wait[rank] = union(begin, until)
        exposed[here, column] = _uncovered(activity.compute[rank], begin, until)
        alone[here, column] = _uncovered(activity.compute[rank], begin, stop)
        in_steps = present[:, column] & (steps.lengths[matched.index[:, column]] != UNKNOWN)
        counted = present[:, column] if steps.of_rank(rank) is None else in_steps
        activity.lost_us[rank] = float(exposed[counted, column].sum()) / 1e3
        overlap = within(activity.compute[rank], start[:, column], end[:, column])
        hidden += np.where(present[:, column], overlap, 0)
    overlap = hidden / np.maximum(np.where(present, end - start, 0).sum(axis=1), 1)

    # The step of each collective, on the rank that waited longest.
    length = steps.lengths[matched.index[row, waiting]]
    for column in range(len(matched.ranks)):
        of_rank = np.flatnonzero(present[:, column])
        since = np.append(UNKNOWN, np.diff(end[of_rank, column]))
        by_end = (waiting[of_rank] == column) & (length[of_rank] == UNKNOWN)
        length[of_rank[by_end]] = np.maximum(since[by_end], UNKNOWN)

    # What the late rank did from the first rank's start to its own.
    activities: list[list[Stretch]] = [[] for _ in range(count)]
    thread = kernels.thread[matched.index[row, late]]
    for column, rank in enumerate(matched.ranks):
        of_rank = late == column
        if (unknown := of_rank & (thread == UNKNOWN)).any():
            thread[unknown] = activity.busiest_thread(rank)
        for each, places in split(thread[of_rank]):
            placed = np.flatnonzero(of_rank)[places]
            placed = placed[last[placed] > first[placed]]
            of_placed = activity.stretches(rank, each, first[placed], last[placed])
            for place, stretches in zip(placed, of_placed, strict=True):
                activities[place] = stretches

    per_arrival = {
        "start_us": start, "wait_us": wait, "exposed_us": exposed, "duration_us": end - start, "alone_us": alone,
    }  # fmt: skip
    # Rows of the collectives; by rank the delays, and by what it did the time in each collective.
    rows, delays = [], defaultdict[int, float](float)
    spent = defaultdict[tuple[Any, ...], defaultdict[int, float]](lambda: defaultdict(float))
    for place, index in enumerate(matched.index):
        columns = np.flatnonzero(present[place]).tolist()
        missing = np.flatnonzero(matched.expected[place] & ~present[place])
        kernel, size = index[late[place]], int(kernels.bytes[index[columns]].max())
        op, owner, late_rank = OPS[kernels.op[kernel]], int(kernels.communicator[kernel]), matched.ranks[late[place]]
        skew_us = float(last[place] - first[place]) / 1e3
        transfer_us = float(end[place, late[place]] - last[place]) / 1e3
        step_us = None if length[place] == UNKNOWN else float(length[place]) / 1e3
        arrivals = [
            {"rank": matched.ranks[column]}
            | {name: float(each[place, column]) / 1e3 for name, each in per_arrival.items()}
            for column in columns
        ]
        wait_us = float(wait[place].max()) / 1e3
        algorithm_gbps, bus_gbps = _bandwidths(op, len(columns), size, transfer_us, skew_us)
        rows.append({
            "op": op, "kernel": kernels.names[kernels.name[kernel]], "number": int(matched.number[place]),
            "communicator": None if owner == UNKNOWN else owner, "channels": int(kernels.grid[kernel]),
            "message_bytes": None if size == UNKNOWN else size, "start_us": float(first[place]) / 1e3,
            "skew_us": skew_us, "transfer_us": transfer_us, "wait_us": wait_us,
            "waiting_us": sum(each["wait_us"] for each in arrivals), "waiting_rank": matched.ranks[waiting[place]],
            "late_rank": late_rank, "algorithm_gbps": algorithm_gbps, "bus_gbps": bus_gbps,
            "overlap_share": float(overlap[place]), "range": str(steps.names[index[waiting[place]]]),
            "step_us": step_us, "lost_share": min(wait_us / step_us, 1.0) if step_us else None,
            "arrivals": tuple(arrivals),
            "missing_ranks": tuple({"rank": matched.ranks[column]} for column in missing),
            "meanwhile": tuple(
                {"doing": doing, "doing_name": name, "range": range_, "us": us}
                for doing, name, range_, us in activities[place] if us >= SMALLEST_SHARE * skew_us
            ),
        })  # fmt: skip
        cost_us = lost_us(rows[-1])
        delays[late_rank] += cost_us
        for doing, name, range_, us in activities[place] if cost_us else ():
            spent[late_rank, doing, name, folded(range_)][place] += us * cost_us / skew_us
    causes = [
        {
            "rank": rank, "doing": doing, "doing_name": name, "range": range_, "doing_us": sum(times.values()),
            "recurring_us": recurring(times, count), "collectives": len(times),
            "delay_share": sum(times.values()) / delays[rank],
        }
        for (rank, doing, name, range_), times in spent.items()
    ]  # fmt: skip
    return rows, sorted(causes, key=lambda row: (-row["recurring_us"], -row["doing_us"]))


def _bandwidths(op: Op, ranks: int, size: int, transfer_us: float, skew_us: float) -> tuple[float | None, float | None]:
    """Algorithm and bus bandwidth of a collective, GB/s, as nccl-tests defines them; None where they are not known."""
    # A send begins before the receiver comes, into NCCL's buffers: the receiver's time alone is not the link's.
    buffered_us = skew_us if op is Op.SEND_RECV else 0.0
    if size == UNKNOWN or transfer_us <= MOST_BUFFERED * buffered_us:
        return None, None
    algorithm, share = size * (ranks if op in TOGETHER else 1) / (transfer_us + buffered_us) / 1e3, (ranks - 1) / ranks
    return algorithm, algorithm * (2 * share if op is Op.ALL_REDUCE else share if op in TOGETHER else 1.0)


def _uncovered(covers: tuple[Ints, Ints], begins: Ints, ends: Ints) -> Floats:
    """How much of each of some intervals no cover lies over; what several of them share counts for the first."""
    order = np.argsort(begins, kind="stable")
    until = np.maximum.accumulate(ends[order])
    since = np.maximum(begins[order], np.append(begins[order[:1]], until[:-1]))
    uncovered = np.empty(len(order))
    uncovered[order] = until - since - within(covers, since, until)
    return uncovered


def recurring(times: Mapping[int, float], count: int) -> float:
    """The sum of the times that recur (see PARTS). times: position of a collective -> time. count: of collectives."""
    longest = [0.0] * PARTS
    for place, us in times.items():
        part = place * PARTS // count
        longest[part] = max(longest[part], us)
    most = ONCE * sorted(longest)[-2]
    return sum(us for us in times.values() if us <= most)


def _totals(rank: Rank, collectives: Sequence[Row], activity: RankActivity, steps: Steps) -> Row:
    """The row of RANKS of a rank."""
    arrivals = [(row, each) for row in collectives for each in row["arrivals"] if each["rank"] == rank.rank]
    late = {place: lost_us(row) for place, row in enumerate(collectives) if row["late_rank"] == rank.rank}
    wait_us = sum(each["exposed_us"] for _, each in arrivals)
    starts, ends = activity.communicate[rank.rank]
    total = float(np.sum(ends - starts))
    whole_us = steps.of_rank(rank.rank) or (float(ends[-1] - starts[0]) / 1e3 if len(ends) else 0.0)
    begins, stops = activity.compute[rank.rank]
    return {
        **{name: getattr(rank, name) for name in ("rank", "file", "process", "host", "device", "gpu", "uuid")},
        "pid": own_pid(rank.pid),
        "collectives": len(arrivals),
        "late_collectives": len(late),
        "delay_us": sum(late.values()),
        "recurring_us": recurring(late, len(collectives)),
        "wait_us": wait_us,
        "communication_us": total / 1e3,
        "overlap_share": float(np.sum(within(activity.compute[rank.rank], starts, ends))) / total if total else 0.0,
        "compute_us": float(np.sum(stops - begins)) / 1e3,
        "lost_share": min(activity.lost_us.get(rank.rank, 0.0) / whole_us, 1.0) if whole_us else None,
    }


def _warnings(matched: Matched, collectives: Sequence[Row], clocks: Mapping[int, Clock]) -> Iterator[Finding]:
    kernels = matched.kernels
    if not len(kernels):
        words = "no communication: the trace has no kernels of NCCL or another library that communicates"
        yield finding("no_communication", words)
        return
    if not (kernels.communicator != UNKNOWN).any():
        words = "sizes and communicators are unknown: the trace lacks the payloads of NCCL's NVTX ranges (nsys export "
        yield finding("no_payload", words + "--include-json=true, NCCL 2.19 or later, --trace=nvtx)")
    if len(matched.alone):
        words = "{count} of {of} communication kernels have no partner: point to point, outside the other ranks' "
        words += "traces, or lost. No waiting is counted for them"
        yield finding("alone", words, count=len(matched.alone), of=len(kernels))
    if incomplete := [row["missing_ranks"] for row in collectives if row["missing_ranks"]]:
        words = "{count} of {of} collectives lack kernels of {ranks:rank|ranks}: the trace ends before them, or the "
        words += "rank never came"
        absent = tuple(sorted({each["rank"] for missing in incomplete for each in missing}))
        yield finding("incomplete", words, count=len(incomplete), of=len(collectives), ranks=absent)
    taking_part = np.array(matched.ranks)[matched.there.any(axis=0)].tolist()
    for clock in [*{clocks[rank].file: clocks[rank] for rank in taking_part}.values()][1:]:
        kind = "clock_unknown" if not clock.collectives else "clock_steps" if clock.impossible else "clock"
        words = CLOCK_WORDS[kind] + (MOVED if clock.furthest_ns else "")
        values: Row = {"file": clock.file, "count": clock.impossible, "of": clock.collectives}
        values |= {"shift_us": clock.furthest_ns / 1e3, "drift_ppm": clock.drift * 1e6}
        values |= {"error_us": clock.error_ns / 1e3 if clock.collectives else None}
        yield finding("clock_off" if kind == "clock" and clock.furthest_ns else kind, words, **values)


def _charts(collectives: Sequence[Row], matched: Matched, activity: RankActivity, cells: int) -> Iterator[Row]:
    if not collectives:
        return
    first = matched.of(matched.kernels.start, np.iinfo(np.int64).max).min(axis=1)
    last = matched.of(matched.kernels.end, np.iinfo(np.int64).min).max(axis=1)
    worst = max(range(len(collectives)), key=lambda place: collectives[place]["wait_us"])
    length = max(int(1.25 * collectives[worst]["skew_us"] * 1e3), int(last[worst] - first[worst]))
    near = int(last[worst]) - int(1.15 * length), int(last[worst]) + int(0.05 * length)
    for number, (begin, end) in ((None, (int(first.min()), int(last.max()))), (worst, near)):
        edges = np.linspace(begin, end, cells + 1).astype(np.int64)
        width = (end - begin) / cells or 1.0
        tracks = []
        for rank in matched.ranks:
            alone, with_wait, both = (
                within(union(*np.concatenate([activity.compute[rank], *more], axis=1)), edges[:-1], edges[1:]) / width
                for more in ((), (activity.wait[rank],), (activity.communicate[rank],))
            )
            shares = {"compute": alone, "transfer": both - with_wait, "wait": with_wait - alone}
            tracks.append({"rank": rank} | {name: np.clip(each, 0, 1).tolist() for name, each in shares.items()})
        yield {"start_us": begin / 1e3, "end_us": end / 1e3, "tracks": tracks, "number": number}


class RankActivity:
    """What ranks did, on the first trace's clock: rank -> starts and ends of disjoint intervals, by start."""

    def __init__(self, run: Run, ranks: Ranks, communicating: Bools, clocks: Mapping[int, Clock]) -> None:
        """communicating: which rows of the table ``kernels`` are collectives. clocks: rank -> its trace's clock."""
        self._run, self._ranks, self._clocks = run, ranks, clocks
        nothing = np.empty(0, np.int64)
        self.compute, self.communicate, self.copy = (dict.fromkeys(clocks, (nothing, nothing)) for _ in range(3))
        self.wait: dict[int, tuple[Ints, Ints]] = dict.fromkeys(clocks, (nothing, nothing))
        """In which a rank's collective waited for another rank's to begin; empty until that is known."""
        self.lost_us: dict[int, float] = {}
        """Of that, rank -> time in its steps in which it ran nothing else; without steps, of all; likewise."""
        self._kernels: dict[int, tuple[Ints, Ints]] = {}
        """Rank -> starts and names (positions in ``_names``) of its kernels that are no collectives."""
        self._names, name = comm_match.texts_of(run.table("kernels", ["kernel"])["kernel"])
        for table in ("kernels", "copies"):
            if not run.has(table):
                continue
            start, end = map(numbers, run.table(table, ["start_ns", "end_ns"]).columns)
            of = ranks.of(table)
            for rank, clock in clocks.items():
                of_rank = np.flatnonzero(of == rank)
                of_rank = of_rank[np.argsort(start[of_rank], kind="stable")]
                begin, stop = clock.to_first(start[of_rank]), clock.to_first(end[of_rank])
                if table == "copies":
                    self.copy[rank] = union(begin, stop)
                    continue
                common = communicating[of_rank]
                self.compute[rank] = union(begin[~common], stop[~common])
                self.communicate[rank] = union(begin[common], stop[common])
                self._kernels[rank] = begin[~common], name[of_rank[~common]]

    def busiest_thread(self, rank: int) -> int:
        """The thread of a rank with most CUDA calls; UNKNOWN where no call was traced."""
        if not self._run.row_count("api"):
            return UNKNOWN
        counts = np.bincount(calls(self._run).thread[self._ranks.of("api") == rank])
        return list(calls(self._run).threads)[counts.argmax()] if counts.any() else UNKNOWN

    def stretches(self, rank: int, thread: int, begins: Ints, ends: Ints) -> list[list[Stretch]]:
        """What a rank did in each of some intervals, the longest first. thread: whose calls and ranges count."""
        nothing = Stretches(*(np.empty(0, np.int64),) * 3)
        traced, clock = calls(self._run), self._clocks[rank]
        in_calls = traced.nested.get(traced.threads.get(thread, NOTHING), nothing)
        in_ranges = phases(self._run).threads.get(thread, nothing)
        starts, names = self._kernels[rank]
        on_gpu = {COPY: self.copy[rank], COMMUNICATION: self.communicate[rank], KERNEL: self.compute[rank]}
        gpu_edges = [each for intervals in on_gpu.values() for each in intervals]
        thread_edges = [clock.to_first(each) for of in (in_calls, in_ranges) for each in (of.starts, of.ends)]
        # The intervals in pieces, at whose edges alone what the rank does changes.
        bounds = np.sort(np.concatenate([*gpu_edges, *thread_edges, starts, begins, ends]))
        bounds = bounds[np.diff(bounds, prepend=-1) > 0]  # np.unique by hash is ten times slower
        interval, begin, end, _ = Stretches(bounds[:-1], bounds[1:], bounds[:-1]).overlaps(begins, ends)
        call, range_ = (each.at(clock.to_own(begin)) for each in (in_calls, in_ranges))
        doing = np.where(call != NOTHING, DOING.index(CALL), DOING.index(HOST))
        for each, intervals in on_gpu.items():
            doing[Stretches(*intervals, np.zeros(len(intervals[0]), int)).at(begin) != NOTHING] = DOING.index(each)
        what = np.where(doing == DOING.index(CALL), call, UNKNOWN)
        if len(starts):
            running = names[np.maximum(np.searchsorted(starts, begin, side="right") - 1, 0)]
            what = np.where(doing == DOING.index(KERNEL), running, what)
        range_ = np.where(doing >= DOING.index(CALL), range_, UNKNOWN)
        groups, of = np.unique(np.column_stack([interval, doing, what, range_]), axis=0, return_inverse=True)
        lengths: Floats = np.bincount(of.ravel(), weights=end - begin, minlength=len(groups)) / 1e3
        by_interval: list[list[Stretch]] = [[] for _ in range(len(begins))]
        for (number, kind, name, label), us in zip(groups.tolist(), lengths.tolist(), strict=True):
            if us > 0:
                names_of = self._names if DOING[kind] == KERNEL else traced.names
                inside = (phases(self._run).path(label) or "").rpartition(SEPARATOR)[2]
                by_interval[number].append((DOING[kind], names_of[name] if name >= 0 else "", inside, us))
        return [sorted(each, key=lambda stretch: -stretch[3]) for each in by_interval]


class Steps:
    """The steps of the ranks' programs: on each thread the outermost ranges whose names repeat but for numbers."""

    def __init__(self, run: Run, kernels: Kernels) -> None:
        """kernels: the collectives, with the times of their own traces."""
        self._rank = kernels.rank
        ranges, row = marks(run), np.full(len(kernels), UNKNOWN, np.int64)
        ended = ranges.own & (ranges.ends != UNKNOWN)
        steps = ranges.repeating(ended)
        for chosen in map(np.flatnonzero, (ended & (ranges.depths == 0), steps)):
            rows = chosen[np.argsort(ranges.starts[chosen], kind="stable")]
            threads = by_thread(ranges.threads[rows], ranges.starts[rows], ranges.ends[rows], rows)
            for thread, these in split(kernels.thread):
                if thread in threads:
                    at = threads[thread].at(kernels.called[these])
                    row[these] = np.where(at == NOTHING, row[these], at)
        self.names = np.array([*ranges.texts, ""], object)[np.append(ranges.name, len(ranges.texts))[row]]
        """Name of each kernel's step; of a kernel without one, of the outermost range that it was launched in."""
        self._step = np.where(np.append(steps, False)[row], row, UNKNOWN)
        self.lengths = np.full(len(kernels), UNKNOWN, np.int64)
        """ns of each kernel's step: from its begin, or the end of that before, until host and GPU are done with it."""
        for rank in np.unique(kernels.rank):
            of_rank = np.flatnonzero((kernels.rank == rank) & (self._step != UNKNOWN))
            each, step = np.unique(self._step[of_rank], return_inverse=True)
            begins, done = ranges.starts[each], ranges.ends[each]
            np.maximum.at(done, step, kernels.end[of_rank])
            order = np.argsort(begins, kind="stable")
            done[order] = np.maximum.accumulate(done[order])
            begins[order[1:]] = np.maximum(begins[order[1:]], done[order[:-1]])
            self.lengths[of_rank] = (done - begins)[step]

    def of_rank(self, rank: int) -> float | None:
        """Length of the rank's steps with collectives, µs; None without steps."""
        of_rank = (self._rank == rank) & (self._step != UNKNOWN)
        _, first = np.unique(self._step[of_rank], return_index=True)
        return float(self.lengths[of_rank][first].sum()) / 1e3 if len(first) else None
