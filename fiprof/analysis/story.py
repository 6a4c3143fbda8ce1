"""What happened, in order of time: a program's phases and steps, what each took, which repeat inside a step, and what
in them surprises.

Moments tile the time from a GPU's first call or work to its last: the program's NVTX ranges down to the outermost that
repeat, and what lies between them; without ranges the repetitions that :mod:`steady` finds in the order of the kernels.
"""

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fiprof.analysis import samples
from fiprof.analysis.comm import waited
from fiprof.analysis.frames import Column, Narrow
from fiprof.analysis.host import host_times
from fiprof.analysis.idle import between
from fiprof.analysis.program import ALLOCATES, LAUNCHES, LAYER_NS, LOADS, WAITS, Program
from fiprof.analysis.requests import Kind, Request, Step, kv_tokens, requests, says, served
from fiprof.analysis.steady import FEWEST_STEPS, By, steady
from fiprof.analysis.telling import Beat, tell
from fiprof.analysis.trace import SEPARATOR, Marks, calls, kernel_calls, marks, phases, thread_keys
from fiprof.errors import FiprofError
from fiprof.model.arrays import Floats, Ints, coded, numbers
from fiprof.model.finding import Finding, Worded, finding
from fiprof.model.ranks import COLLECTIVE, ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, innermost, split

FEW_STEPS = 5
"""Of one name, from which on what is usual can be told."""
NEIGHBOURS = 15
"""Steps whose median a step is held against: what is usual may change as a sequence grows."""
SPREADS, LEAST_SHARE, LEAST_NS = 6.0, 0.5, 50_000
"""A step surprises that takes longer than its neighbours by so many standard deviations (1.4826 median absolute
deviations), by this share of them, and by so much."""
MOST_SURPRISES = 8
"""Steps of one name that are explained, the longest first."""
COMPILES = re.compile(r"\b(run_ninja|nvrtc\w*|compile\w*|_?jit\w*|build_and_load)\b", re.IGNORECASE)
"""Python functions, and their files, that compile."""
GARBAGE = "gc generation"
"""Beginning of the ranges in which Python collects garbage, as ``fiprof.range`` marks them."""
EXPLAINS = 0.4
"""Share of a step's excess from which on something is its cause."""
SHOWN = 0.005
"""Share of the time below which a phase is told with the others."""
LONGEST_PERIOD, LONGEST_STEP = 4096, 1 << 16
"""Kernels of a layer and of a step in which layers are looked for, at most."""
LAYERED = 0.5
"""Share of a step's kernels that its layers hold at least."""
BEFORE = "before the first range"
"""What it was is told, but it has no share of the time: imports, mostly."""
OTHER_LAYER = 1.25
"""Times the median layer: what takes longer than that, in the middle of the steps looked at, differs."""
LEAST_GROWTH = 0.02
"""Share of the first step by which steps grow, or shrink, at least, from the first to the last, to be told."""
MOST_CHANGES = 4
"""Changes of the kernels of steps of one name that are told."""
LAYER_STEPS = 20
"""Steps that the layers are the median of, at most."""


class Does(Worded):
    """What the launching thread does."""

    HOST = "host", "host work"
    """It is in no CUDA call."""
    LAUNCHING = "launching", "launching"
    WAITING = "waiting", "waiting for the GPU"
    ALLOCATING = "allocating", "allocating"
    LOADING = "loading", "loading code"
    CALLS = "calls", "other CUDA calls"
    """Copies among them."""


DOES = tuple(Does)
_CALLS = ((Does.LAUNCHING, LAUNCHES), (Does.WAITING, WAITS), (Does.ALLOCATING, ALLOCATES), (Does.LOADING, LOADS))


def _does(call: str) -> Does:
    """What a thread does in a CUDA call of this name."""
    return next((does for does, begins in _CALLS if begins.match(call)), Does.CALLS)


HAPPENED = (
    Column("at_ms", "at", "ms", ",.1f", "Since the trace began; of steps of one name the first."),
    Column("what", "what", meaning="The range, its numbers as *; what lies outside ranges."),
    Column("level", meaning="Ranges around it, from 0."),
    Column("count", "x", spec=",d", meaning="How often."),
    Column("each_ms", "each", "ms", ",.3f", "Median: from its begin, or the end of what came before, to its end."),
    Column("spread", "spread", spec=".0%", meaning="(p90 - p10) / median."),
    Column("total_ms", "time", "ms", ",.1f", "Of all of them, one after the other."),
    Column("share", "share", spec=".1%", meaning="Of the time from the first range on."),
    Column("busy", "GPU busy", spec=".0%", meaning="Share of it in which kernels ran that were launched in it."),
    Column("kernels", "kernels", spec=",.0f", meaning="Launched in each; median."),
    Column("copied_bytes", meaning="In all of them."),
    Column("memory_bytes", meaning="Device memory at its end, as CUDA has it."),
    Column("does", "the host", narrow=Narrow.DROP, meaning="What the launching thread does, share of its time."),
    Column("kernel", "longest kernel", narrow=Narrow.DROP, meaning="In all of them, with its share of their kernels."),
    Column("sms_active_pct", "SMs", "%", ".0f", "", narrow=Narrow.DROP),
    Column("tensor_active_pct", "tensor", "%", ".0f", narrow=Narrow.DROP),
    Column("dram_pct", "DRAM", "%", ".0f", "DRAM's throughput by nsys's samples.", narrow=Narrow.DROP),
    Column("hot", meaning="What takes most time."),
)
STEPS = (
    Column("number", "step", spec="d", meaning="Among those of its name, from 0."),
    Column("what", "what", narrow=Narrow.BELOW, meaning="The range as the program names it."),
    Column("at_ms", "at", "ms", ",.3f", "Its begin, or the end of what came before, since the trace began."),
    Column("length_ms", "time", "ms", ",.3f", "From then until the host and the GPU are done with it."),
    Column("busy_ms", "GPU busy", "ms", ",.3f", "With kernels that were launched in it."),
    Column("kernels", "kernels", spec=",d"),
    Column("copied_bytes", "copied", "bytes", ",d"),
    Column("memory_bytes", meaning="Device memory at its end, as CUDA has it."),
    Column("kind", meaning="What it is for: prefill, decode, both (mixed) or other, as it says or is called."),
    Column("kv_tokens", meaning="In the KV cache, of the requests that get a token in it."),
    *(Column(f"{does}_ms", does.words, "ms", ",.3f", "Of the launching thread, in the step.") for does in DOES),
)
"""One moment; the host's times are those of the launching thread. What its range says in numbers follows, each with
``says_`` before its word."""
SAYS = "says_"
MEMORY = (
    Column("at_ms", "at", "ms", ",.1f"),
    Column("bytes", "bytes", spec=",d"),
    Column("range", "range", meaning="Of the thread that allocates, outermost first.", narrow=Narrow.BELOW),
    Column("call", "call"),
    Column("total_bytes", "in all", spec=",d", meaning="Of the process on this GPU, after it."),
)
"""An allocation of device memory, of the largest."""
MOST_ALLOCATIONS = 12
PART_OF_STEP = (
    Column("part", "of the step"),
    Column("name", "which"),
    Column("count", "x", spec=",d"),
    Column("total_ms", "time", "ms", ",.3f"),
    Column("usual_ms", "usually", "ms", ",.3f"),
)
LAYERS = (
    Column("layer", "layer", spec="d"),
    Column("name", "which", meaning="The range that it was launched, or captured, in; else its number."),
    Column("busy_us", "kernels", "µs", ",.2f"),
    Column("share", "share", spec=".1%", meaning="Of the step's kernels."),
)

Row = dict[str, Any]
Detail = dict[tuple[str, str], tuple[float, int]]
"""What a moment is made of: part (kernel, call, host, host work, range) and name -> ns and count."""


@dataclass(frozen=True)
class Layers:
    """What repeats inside a step."""

    of: str
    """The steps."""
    count: int
    period: int
    """Kernels of each."""
    kernels: tuple[str, ...]
    """Their names, in order."""
    rows: list[Row]
    """Rows of LAYERS: medians over the steps looked at."""
    said: Finding
    slow: Finding | None
    """Where few of them, not the first or the last alone, take longer than the others in every step."""


@dataclass(frozen=True)
class Story:
    """What ``fiprof story`` tells of one GPU."""

    rank: int | None
    device: int
    several: int
    """GPUs of the run."""
    told: list[Row]
    """Rows of TOLD: lines in order of time."""
    happened: list[Row]
    """Rows of HAPPENED, in order of time."""
    steps: list[Row]
    """Rows of STEPS: every moment of the names that repeat."""
    memory: list[Row]
    """Rows of MEMORY: the largest allocations, in order of time."""
    peak: tuple[Finding, ...]
    """The most memory, and whose it is."""
    again: tuple[Finding, ...]
    """How to see findings again, with the value to expect."""
    said: tuple[str, ...]
    """Columns of what the steps say, with SAYS."""
    requests: list[Row]
    """Rows of REQUESTS."""
    served: tuple[Finding, ...]
    """What the requests came to."""
    surprises: tuple[Finding, ...]
    """Each slow step, change of kernels, slow layer and leak."""
    causes: tuple[Finding, ...]
    """The surprises, those of one cause as one."""
    first_steps: tuple[Finding, ...]
    """Of each name the first step, where it takes longer than the others."""
    layers: tuple[Layers, ...]
    laws: tuple[Finding, ...]
    """How steps of a name grow longer from one to the next."""
    summary: tuple[Finding, ...]


class Launched(NamedTuple):
    """A kernel of a moment."""

    name: str
    ns: int
    label: int
    """Of the range in :func:`phases`; NOTHING outside all."""


@dataclass(frozen=True)
class _Moments:
    """Disjoint stretches of time, by start, and what they are called."""

    edges: Ints
    """ns; the begin of each, and the end of the last."""
    group: Ints
    """Number of each one's name."""
    names: list[tuple[int, str, bool]]
    """Level, name, whether it repeats; by group."""
    texts: list[str]
    """Each one's name as the program has it; empty for those without."""
    on_gpu: bool
    """Kernels belong to the moment in which they start, not to that in which they are launched."""


def story(run: Run, program: Program, *, rank: int | None = None) -> Story:
    """What happened on one GPU: that of a rank, or of the first row of the program's verdict.

    Raises FiprofError for a run of cases, where this rank is not there, or for a table that cannot be read.
    """
    if run.cases and not (run.of_program or run.imported):
        raise FiprofError(
            f"{run.manifest.name} measured cases one after the other: there is no program to tell of",
            f"fiprof timeline {run.manifest.name} shows each case in time",
        )
    devices = sorted(steady(run))
    device = program.rows[0]["device"] if program.rows else devices[0]
    if rank is not None:
        found = [each.device for each in ranks_of(run).all if each.rank == rank]
        if not found:
            raise FiprofError(f"{run.manifest.name} has no rank {rank}", "fiprof top shows those it has")
        device = NOTHING if found[0] is None else found[0]
    teller = _Teller(run, device)
    return teller.story(len(devices), program)


class _Teller:
    """What a GPU and the thread that launches its work did in each moment."""

    def __init__(self, run: Run, device: int) -> None:
        self.run, self.device = run, device
        self.thread, first, last = self._launched()
        self.key = next((key for key, number in calls(run).threads.items() if number == self.thread), NOTHING)
        """The same as in ``thread_keys``."""
        self.moments = self._of_ranges(first, last) or self._of_pattern(first, last)
        self.count = len(self.moments.group)
        self.begins = self.moments.edges[:-1]
        self._of_kernels()
        self._of_copies()
        self._of_host()
        ends = np.maximum(self.moments.edges[1:], self.last) if not self.moments.on_gpu else self.moments.edges[1:]
        done = np.maximum.accumulate(ends)
        self.from_ = np.maximum(self.begins, np.append(self.begins[:1], done[:-1]))
        self.length = np.maximum(done - self.from_, 0)
        self.done = done

    # Moments

    def _launched(self) -> tuple[int, int, int]:
        """Number of the thread (``Calls.thread``) that launched most of the GPU's kernels, NOTHING without calls; and
        from the first kernel, or call of this thread, to the last, ns."""
        started_by, at = kernel_calls(self.run), 0
        counts: Counter[int] = Counter()
        first, last = [], []
        for piece in self.run.pieces("kernels", ("start_ns", "end_ns", "device")):
            starts, ends, devices = map(numbers, piece.columns)
            rows = started_by[at : (at := at + piece.num_rows)]
            mine = np.flatnonzero(devices == self.device)
            if not len(mine):
                continue
            first.append(int(starts[mine].min()))
            last.append(int(ends[mine].max()))
            if len(rows := rows[mine][rows[mine] != NOTHING]):
                counts.update(dict(enumerate(np.bincount(calls(self.run).thread[rows]).tolist())))
        thread = counts.most_common(1)[0][0] if counts else NOTHING
        if thread != NOTHING:
            nested = calls(self.run).nested[thread]
            first.append(int(nested.starts[0]))
            last.append(int(nested.ends[-1]))
        return thread, min(first), max(last)

    def _of_ranges(self, first: int, last: int) -> _Moments | None:
        """The launching thread's ranges down to those that repeat; None where none does."""
        found = marks(self.run)
        mine = found.own & (found.threads == self.key)
        if not mine.any():
            return None
        counts = np.bincount(found.alike[mine], minlength=len(found.folded))
        repeats = mine & (counts[found.alike] >= FEWEST_STEPS)
        if not repeats.any():
            return None
        inside = _inside(found, mine, repeats)
        repeats |= _beside_steps(found, mine, repeats & ~inside)
        nodes = np.flatnonzero(mine & ~inside & ~found.inside(repeats))
        ends = np.where(found.ends[nodes] == NOTHING, last, found.ends[nodes])
        order = np.lexsort((-ends, found.starts[nodes]))
        nodes, ends = nodes[order], ends[order]
        stretches = innermost(found.starts[nodes], ends, np.arange(len(nodes)))
        first, last = min(first, int(stretches.starts[0])), max(last, int(stretches.ends[-1]))
        tiles = between(stretches)
        starts, stops = np.clip(tiles.starts, first, last), np.clip(tiles.ends, first, last)
        kept = stops > starts
        starts, stops, labels = starts[kept], stops[kept], tiles.labels[kept]
        nodes = np.append(nodes, 0)
        names: dict[tuple[int, str, bool], int] = {}
        outside_first = int(np.flatnonzero(labels != NOTHING)[0])
        named = found.alike[nodes[labels]].astype(np.int64)
        keys = np.where(labels == NOTHING, NOTHING, named << 16 | found.depths[nodes[labels]])
        keys[:outside_first] = NOTHING - 1
        group = np.empty(len(keys), np.int64)
        shown = found.folded
        for key, rows in split(keys):
            if key < 0:
                name = (0, BEFORE if key == NOTHING - 1 else "outside every range", False)
            else:
                node = nodes[labels[rows][0]]
                words = shown[found.alike[node]]
                # What lies between the ranges in it comes in several pieces.
                pieces = len(np.unique(labels[rows])) < len(labels[rows])
                name = (
                    int(found.depths[node]),
                    f"{words}, between its ranges" if pieces else words,
                    bool(repeats[node]),
                )
            group[rows] = names.setdefault(name, len(names))
        texts = ["" if label == NOTHING else found.texts[found.name[nodes[label]]] or "" for label in labels.tolist()]
        return _Moments(np.append(starts, stops[-1]), group, list(names), texts, on_gpu=False)

    def _of_pattern(self, first: int, last: int) -> _Moments:
        """The steps of the steady part, what came before them, and what lies between."""
        at = steady(self.run)[self.device]
        if at.by in (By.WHOLE, By.MEASURE) or not len(at.steps):
            inside = [int(at.begins[0]), int(at.ends[-1])] if at.by is By.MEASURE else []
            cuts = [first, *(each for each in inside if first < each < last), last]
            names = [(0, "before the measured part", False), (0, "the measured part", False), (0, "after it", False)]
            names = names if len(cuts) == 4 else [(0, "the whole trace", False)]
            group = np.arange(len(cuts) - 1) % len(names)
            return _Moments(np.array(cuts), group, names, [""] * len(group), on_gpu=True)
        steps = np.append(np.array(at.early, np.int64), at.steps)
        edges = np.unique(np.concatenate([[first], steps, at.begins, at.ends, [last]]))
        edges = edges[(edges >= first) & (edges <= last)]
        group = np.where(np.isin(edges[:-1], steps), 1, 2)
        group[: np.searchsorted(edges, steps[0])] = 0
        names = [
            (0, "before the steps", False),
            (0, f"steps of {at.name}", True),
            (0, "between and after steps", False),
        ]
        return _Moments(edges, group, names, [""] * len(group), on_gpu=True)

    def _of(self, starts: Ints, rows: Ints) -> Ints:
        """The number of the moment that each piece of the GPU's work belongs to. rows: of the calls that began it."""
        called_at, times = calls(self.run).starts, starts
        if not self.moments.on_gpu and len(called_at):
            times = np.where(rows == NOTHING, starts, called_at[rows])
        found: Ints = np.clip(np.searchsorted(self.moments.edges, times, side="right") - 1, 0, self.count - 1)
        return found

    # What was done in each

    def _kernels(self, *more: str) -> Iterator[tuple[list[str | None], Ints, Ints, Ints, Ints, Ints, Any]]:
        """Pieces of the GPU's kernels: their names, and of each its name's place, start, end, moment and the call that
        launched it; and further columns, of all GPUs' kernels, with those of this GPU."""
        started_by, at = kernel_calls(self.run), 0
        for piece in self.run.pieces("kernels", ("start_ns", "end_ns", "device", "kernel", *more)):
            starts, ends, devices = map(numbers, piece.columns[:3])
            rows = started_by[at : (at := at + piece.num_rows)]
            mine = np.flatnonzero(devices == self.device)
            if not len(mine):
                continue
            starts, ends, rows = starts[mine], ends[mine], rows[mine]
            values, places = coded(piece["kernel"])
            further = [numbers(piece[column])[mine] for column in more]
            yield values, places[mine], starts, ends, self._of(starts, rows), rows, further

    def _of_kernels(self) -> None:
        self.busy, self.kernels = np.zeros(self.count), np.zeros(self.count, np.int64)
        self.last, self.signature = np.full(self.count, NOTHING), np.zeros(self.count)
        self.first_used: dict[str, int] = {}
        """Kernel -> the moment that is the first to launch it."""
        self.kernel_ns: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        reached = NOTHING
        for names, place, starts, ends, of, _, _ in self._kernels():
            until = np.maximum.accumulate(np.append(reached, ends))
            alone = np.maximum(ends - np.maximum(starts, until[:-1]), 0)
            reached = int(until[-1])
            self.busy += np.bincount(of, alone, self.count)
            self.kernels += np.bincount(of, minlength=self.count)
            np.maximum.at(self.last, of, ends)
            hashes = np.array([zlib.crc32((name or "").encode()) & 0xFFFFF for name in names])
            self.signature += np.bincount(of, hashes[place], self.count)
            width = len(names)
            earliest = np.full(width, self.count)
            np.minimum.at(earliest, place, of)
            for name, moment in zip(names, earliest.tolist(), strict=True):
                if moment < self.first_used.get(name or "", self.count):
                    self.first_used[name or ""] = moment
            keys, inverse = np.unique(self.moments.group[of] * width + place, return_inverse=True)
            for key, ns in zip(keys.tolist(), np.bincount(inverse, ends - starts).tolist(), strict=True):
                self.kernel_ns[key // width][names[key % width] or ""] += ns

    def _of_copies(self) -> None:
        self.copied = np.zeros(self.count)
        by, at = calls(self.run).of("copies"), 0
        for piece in self.run.pieces("copies", ("start_ns", "bytes", "device")):
            starts, sizes, devices = map(numbers, piece.columns)
            rows = by[at : (at := at + piece.num_rows)]
            mine = devices == self.device
            of = self._of(starts[mine], rows[mine])
            self.copied += np.bincount(of, np.maximum(sizes[mine], 0), self.count)

    def _of_host(self) -> None:
        self.does: Floats = np.zeros((self.count, len(DOES)))
        if self.thread == NOTHING:
            return
        kinds = [DOES.index(_does(name)) for name in calls(self.run).names]
        of, begins, ends, names = calls(self.run).nested[self.thread].overlaps(self.begins, self.moments.edges[1:])
        keys = of * len(DOES) + np.array(kinds)[names]
        sums = np.bincount(keys, ends - begins, self.count * len(DOES)).astype(float)
        self.does = sums.reshape(-1, len(DOES))
        self.does[:, 0] = np.diff(self.moments.edges) - self.does[:, 1:].sum(axis=1)

    # Told

    def story(self, several: int, program: Program) -> Story:
        """All of it."""
        of_group = {group: np.flatnonzero(self.moments.group == group) for group in range(len(self.moments.names))}
        of_group = {group: rows for group, rows in of_group.items() if len(rows)}
        happened = self._happened(of_group)
        repeated = {group: rows for group, rows in of_group.items() if self.moments.names[group][2]}
        long = {
            group: rows
            for group, rows in repeated.items()
            if len(rows) >= FEW_STEPS and not (self.moments.on_gpu and np.median(self.length[rows]) < LAYER_NS)
        }
        late = {group: self._late(rows) for group, rows in long.items()}
        alike = {group: self._alike(rows) for group, rows in repeated.items()}
        wanted = {int(long[group][n]) for group, pairs in late.items() for pair in pairs.items() for n in pair}
        changes = {group: self._changes(rows) for group, rows in long.items()}
        compared = {place for pairs in changes.values() for pair in pairs for place in pair}
        sequences = self._sequences(wanted | compared | {int(place) for places in alike.values() for place in places})
        details = self._details(sequences, wanted)
        surprises, slow_first, laws = list[Finding](), list[Finding](), list[Finding]()
        for group, rows in long.items():
            at_first = next(n for n in range(len(rows) + 1) if n not in late[group])
            for each in self._surprises(group, rows, late[group], details):
                (slow_first if each.values["number"] < at_first else surprises).append(each)
            surprises += [self._changed(group, *pair, sequences) for pair in changes[group]]
            surprises += self._leak(group, rows)
            laws += self._law(group, rows)
        layers = [
            found
            for group, places in alike.items()
            if (found := self._layers(group, [sequences[int(place)] for place in places]))
        ]
        # A warm-up and the steps have the same ones: those that come last are told.
        layers = list({(each.count, each.period, each.kernels): each for each in layers}.values())
        surprises += [each.slow for each in layers if each.slow]
        steps = [row for rows in repeated.values() for row in self._steps(rows)]
        words = dict.fromkeys(word for row in steps for word in row if word.startswith(SAYS))
        served_steps = self._of_server()
        made = requests(marks(self.run), served_steps)
        lengths = kv_tokens(made)
        memory, peak = self._allocations()
        return Story(
            rank=ranks_of(self.run).on(self.device),
            device=self.device,
            several=several,
            told=tell(self._beats(surprises + slow_first), made, SHOWN * float(self.length.sum()) / 1e6),
            happened=happened,
            steps=[dict.fromkeys(words) | row | {"kv_tokens": lengths.get(row["what"])} for row in steps],
            said=tuple(words),
            memory=memory,
            peak=peak,
            again=tuple(self._again(happened, surprises, made)),
            requests=[each.row() for each in made],
            served=tuple(served(made, served_steps)),
            surprises=tuple(surprises),
            causes=tuple(_folded(surprises)),
            first_steps=tuple(_folded(slow_first)),
            layers=tuple(layers),
            laws=tuple(laws),
            summary=(self._told(happened), program.answer),
        )

    def _happened(self, of_group: Mapping[int, Ints]) -> list[Row]:
        before = np.array([name == BEFORE for _, name, _ in self.moments.names])[self.moments.group]
        total = max(float(self.length[~before].sum()), 1.0)
        memory = self._memory()
        sampled = self._sampled(of_group)
        rows = []
        for group, places in of_group.items():
            level, name, _ = self.moments.names[group]
            lengths = self.length[places]
            low, median, high = np.percentile(lengths, (10, 50, 90)).tolist()
            whole = float(lengths.sum())
            kernels = self.kernel_ns.get(group, {})
            longest = max(kernels, key=kernels.__getitem__, default=None)
            rows.append(
                {
                    "at_ms": int(self.begins[places[0]]) / 1e6,
                    "what": name,
                    "level": level,
                    "count": len(places),
                    "each_ms": median / 1e6,
                    "spread": (high - low) / median if len(places) > 1 and median else None,
                    "total_ms": whole / 1e6,
                    "share": None if name == BEFORE else whole / total,
                    "busy": min(float(self.busy[places].sum()) / whole, 1.0) if whole else None,
                    "kernels": float(np.median(self.kernels[places])),
                    "copied_bytes": int(self.copied[places].sum()),
                    "memory_bytes": None if memory is None else int(memory[places[-1]]),
                    "does": self._doing(self.does[places].sum(axis=0)),
                    "kernel": longest
                    and finding(
                        "longest",
                        "{kernel}, {share:.0%}",
                        kernel=longest,
                        share=kernels[longest] / sum(kernels.values()),
                    ),
                    **sampled[group],
                    "hot": "",
                }
            )
        max(rows, key=lambda row: row["share"] or 0.0)["hot"] = "◀ most time"
        return sorted(rows, key=lambda row: row["at_ms"])

    def _memory(self) -> Ints | None:
        """Device memory at the end of each moment, bytes; None where it was not traced."""
        if not self.run.row_count("memory"):
            return None
        table = self.run.table("memory", ["time_ns", "device", "total_bytes"])
        times, devices, totals = map(numbers, table.columns)
        mine = np.flatnonzero(devices == self.device)
        if not len(mine):
            return None
        order = mine[np.argsort(times[mine], kind="stable")]
        place = np.searchsorted(times[order], self.moments.edges[1:], side="right") - 1
        return np.where(place < 0, 0, totals[order][place])

    def _allocations(self) -> tuple[list[Row], tuple[Finding, ...]]:
        """Rows of MEMORY; and the peak with the ranges whose allocations it is made of."""
        if not self.run.row_count("memory"):
            return [], ()
        table = self.run.table("memory", ["time_ns", "device", "bytes", "total_bytes", "address", "kind"])
        times, devices, sizes, totals, addresses = map(numbers, table.columns[:5])
        kinds, kind = coded(table["kind"])
        rows = np.flatnonzero(devices == self.device)
        rows = rows[np.argsort(times[rows], kind="stable")]
        given = np.array([each == "Allocation" for each in kinds])[kind]
        if not given[rows].any():
            return [], ()
        ranges = phases(self.run).threads.get(self.key)
        label = np.full(len(times), NOTHING) if ranges is None else ranges.at(times)
        nested = calls(self.run).nested.get(self.thread)
        call = np.full(len(times), NOTHING) if nested is None else nested.at(times)
        largest = rows[given[rows]]
        largest = np.sort(largest[np.argsort(-sizes[largest], kind="stable")[:MOST_ALLOCATIONS]])
        made: list[Row] = [
            {
                "at_ms": int(times[row]) / 1e6,
                "bytes": int(sizes[row]),
                "range": phases(self.run).path(int(label[row])),
                "call": None if call[row] == NOTHING else calls(self.run).names[call[row]],
                "total_bytes": int(totals[row]),
            }
            for row in largest[np.argsort(times[largest], kind="stable")].tolist()
        ]
        peak = int(np.argmax(totals[rows]))
        until = rows[: peak + 1]
        # Of each address the last event until then: memory that was not given back.
        held = until[_last_of(addresses[until])]
        held = held[given[held]]
        sums = Counter[str]()
        for owner, of in split(label[held]):
            path = phases(self.run).path(owner)
            sums[(path or "outside every range").partition(SEPARATOR)[0]] += int(sizes[held][of].sum())
        owners = tuple(
            finding("owner", "{gb:,.3f} GB in {range}", gb=size / 1e9, range=name) for name, size in sums.most_common(4)
        )
        words = "Device memory is at most {peak_gb:,.3f} GB, at {at_ms:,.1f} ms: {owners}."
        at_ms = int(times[rows[peak]]) / 1e6
        return made, (finding("peak", words, peak_gb=int(totals[rows[peak]]) / 1e9, at_ms=at_ms, owners=owners),)

    def _again(
        self, happened: Sequence[Row], surprises: Sequence[Finding], made: Sequence[Request]
    ) -> Iterator[Finding]:
        """A command for each of the most important findings, and what it says."""
        name = self.run.manifest.name
        slow = [each for each in surprises if each.kind == "slow_step"]
        for each in sorted(slow, key=lambda each: -each.values["more_ms"])[:2]:
            yield finding(
                "again",
                "{command}: {what} takes {length_ms:,.3f} ms.",
                command=f"fiprof story {name} --around {each.values['at_ms']:.1f}",
                what=each.values["what"].partition(": ")[0],
                length_ms=each.values["length_ms"],
            )
        firsts = [row["ttft_ms"] for each in made if (row := each.row())["ttft_ms"] is not None]
        if firsts:
            command = f"fiprof story {name} --table requests --format csv"
            words = "{command}: the median of ttft_ms is {ttft_ms:,.3f}."
            yield finding("again", words, command=command, ttft_ms=float(np.median(firsts)))
        steps = max((row for row in happened if row["count"] > 1), key=lambda row: row["total_ms"], default=None)
        if steps:
            command = f"fiprof story {name} --format csv"
            words = "{command}: each_ms of {what} is {each_ms:,.3f}."
            yield finding("again", words, command=command, what=steps["what"], each_ms=steps["each_ms"])

    def _sampled(self, of_group: Mapping[int, Ints]) -> dict[int, Row]:
        """Means of nsys's samples in the moments of each group, percent; None without."""
        keys = {"sms_active_pct": "sms_active", "tensor_active_pct": "tensor_active", "dram_pct": "dram"}
        of_device = samples.read(self.run).get(max(self.device, 0))
        found: dict[int, Row] = {group: dict.fromkeys(keys) for group in of_group}
        if of_device is None:
            return found
        edges = np.append(self.from_, self.done[-1]).astype(np.float64)
        for column, key in keys.items():
            means = of_device.means(key, np.maximum.accumulate(edges))
            for group, places in of_group.items():
                there = places[np.isfinite(means[places])]
                if self.length[there].sum():
                    found[group][column] = float(np.average(means[there], weights=self.length[there]))
        return found

    def _beats(self, surprises: Sequence[Finding]) -> list[Beat]:
        """The moments to be told."""
        slow = {each.values["place"]: each for each in surprises if each.kind == "slow_step"}
        memory, found = self._memory(), list[Beat]()
        counts = np.bincount(self.moments.group)
        for place, group in enumerate(self.moments.group.tolist()):
            _, name, repeats = self.moments.names[group]
            begin, end = int(self.from_[place]), int(self.done[place])
            step = Step(self._name(place), begin, end, says(self.moments.texts[place]), float(self.busy[place]))
            found.append(
                Beat(
                    place,
                    name,
                    step,
                    repeats,
                    int(self.kernels[place]),
                    None if memory is None else int(memory[place]),
                    self._doing(self.does[place]) if counts[group] < FEW_STEPS else (),
                    () if repeats else self._functions(begin, int(self.moments.edges[place + 1])),
                    slow.get(place),
                )
            )
        return found

    def _doing(self, host: Floats) -> tuple[Finding, ...]:
        """What the launching thread does most, with its share. host: ns of each of DOES."""
        shares = sorted(zip((host / max(host.sum(), 1.0)).tolist(), DOES, strict=True), reverse=True)
        return tuple(
            finding("doing", "{share:.0%} {does}", share=share, does=does) for share, does in shares[:2] if share >= 0.1
        )

    def _functions(self, begin: int, end: int) -> tuple[Finding, ...]:
        """The Python functions in which the launching thread was for a tenth of some time or more."""
        work = host_times(self.run).during(self.key, np.array([begin]), np.array([end]))
        longest = sorted(((ns, each.label) for each, ns in work.items() if each.label), reverse=True)[:3]
        return tuple(
            finding("function", "{ms:,.0f} ms {name}", ms=ns / 1e6, name=name)
            for ns, name in longest
            if ns >= 0.1 * (end - begin)
        )

    def _of_server(self) -> list[Step]:
        """The moments that say what they are for, or are called by it, in order of time."""
        found = []
        for place, text in enumerate(self.moments.texts):
            if text:
                step = Step(text, int(self.begins[place]), int(self.done[place]), says(text), float(self.busy[place]))
                found += [step] if step.kind is not Kind.OTHER or step.said else []
        return found

    def _steps(self, places: Ints) -> Iterator[Row]:
        memory = self._memory()
        for number, place in enumerate(places.tolist()):
            step = Step(text := self.moments.texts[place], 0, 0, says(text))
            said = {
                f"{SAYS}{word}": list(value) if isinstance(value, tuple) else value for word, value in step.said.items()
            }
            yield {
                "number": number,
                "what": self._name(place),
                "at_ms": int(self.from_[place]) / 1e6,
                "length_ms": int(self.length[place]) / 1e6,
                "busy_ms": float(self.busy[place]) / 1e6,
                "kernels": int(self.kernels[place]),
                "copied_bytes": int(self.copied[place]),
                "memory_bytes": None if memory is None else int(memory[place]),
                "kind": step.kind,
                **said,
                **{f"{does}_ms": float(self.does[place, n]) / 1e6 for n, does in enumerate(DOES)},
            }

    def _name(self, place: int) -> str:
        return self.moments.texts[place] or self.moments.names[self.moments.group[place]][1]

    def _told(self, happened: Sequence[Row]) -> Finding:
        """The phases in a sentence, what takes time only."""
        shown = [row for row in happened if (row["share"] or 0.0) >= 0.02]
        return finding(
            "told",
            "{length_s:.3f} s: {phases}.",
            length_s=sum(row["total_ms"] for row in happened if row["share"] is not None) / 1e3,
            phases=tuple(
                finding(
                    "phase",
                    "{count} x {what} ({share:.0%})" if row["count"] > 1 else "{what} ({share:.0%})",
                    count=row["count"],
                    what=row["what"],
                    share=row["share"],
                )
                for row in shown
            ),
        )

    # What surprises

    def _usual(self, rows: Ints) -> Floats:
        """Of each of these moments the median length of its neighbours, ns."""
        lengths = self.length[rows].astype(float)
        half = min(NEIGHBOURS, len(rows)) // 2
        padded = np.pad(lengths, half, mode="reflect") if len(rows) > half else lengths
        found: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
        return found

    def _late(self, rows: Ints) -> dict[int, int]:
        """The steps that take longer than their neighbours, each with the nearest usual one: by number."""
        usual, lengths = self._usual(rows), self.length[rows]
        excess = lengths - usual
        spread = 1.4826 * float(np.median(np.abs(excess - np.median(excess))))
        least = np.maximum(np.maximum(SPREADS * spread, LEAST_SHARE * usual), LEAST_NS)
        late = np.flatnonzero(excess > least)
        late = np.sort(late[np.argsort(-excess[late], kind="stable")][:MOST_SURPRISES])
        others = np.setdiff1d(np.arange(len(rows)), late)
        if not len(others):
            return {}
        return {int(n): int(others[np.argmin(np.abs(others - n) + 1e-3 * np.abs(excess[others]))]) for n in late}

    def _surprises(
        self, group: int, rows: Ints, late: Mapping[int, int], details: Mapping[int, Detail]
    ) -> Iterator[Finding]:
        """Of the late steps what each did more of than a usual one."""
        usual, lengths = self._usual(rows), self.length[rows]
        for number, other in late.items():
            place, excess = int(rows[number]), float(lengths[number] - usual[number])
            names = [self._name(int(rows[each])) for each in (number, other)]
            cause = self._cause(
                details[place], details[int(rows[other])], excess, [*names, self.moments.names[group][1]]
            )
            if cause.kind == "kernels" and COLLECTIVE.search(cause.values["name"]):
                cause = self._late_rank(place, excess) or cause
            first = tuple(name for name, moment in self.first_used.items() if moment == place)
            words = "{what}, step {number}" if names[0] == self.moments.names[group][1] else "{what}"
            words += ": {length_ms:,.3f} ms where {usual_ms:,.3f} are usual: {cause}, {more_ms:,.3f} ms more"
            yield finding(
                "slow_step",
                words + ("; first use of {first_use}." if first else "."),
                what=names[0],
                of=self.moments.names[group][1],
                number=number,
                place=place,
                at_ms=int(self.from_[place]) / 1e6,
                length_ms=float(lengths[number]) / 1e6,
                usual_ms=float(usual[number]) / 1e6,
                more_ms=cause.values.get("more_ms", excess / 1e6),
                cause=cause,
                first_use=first,
            )

    def _late_rank(self, place: int, excess: float) -> Finding | None:
        """The rank that a step waits for in its collectives; None where that explains too little of its excess."""
        rank = ranks_of(self.run).on(self.device)
        waits = None if rank is None else waited(self.run, rank, self.from_[[place]], self.done[[place]])
        if waits is None or max(waits.ns.values(), default=0.0) < EXPLAINS * excess:
            return None
        other = max(waits.ns, key=waits.ns.__getitem__)
        doing = waits.meanwhile[other]
        return finding(
            "late_rank",
            "waiting for rank {late_rank}" + (", meanwhile {doing}" if doing else ""),
            more_ms=waits.ns[other] / 1e6,
            range="",
            name=f"rank {other} {doing}",
            late_rank=other,
            doing=doing,
        )

    def _changes(self, rows: Ints) -> list[tuple[int, int]]:
        """Where steps begin to run other kernels, and FEW_STEPS before and after each run the same: of each change the
        last step before it and the first after it."""
        edges = np.flatnonzero(np.diff(self.signature[rows])) + 1
        lengths = np.diff(np.concatenate([[0], edges, [len(rows)]]))
        both = (lengths[:-1] >= FEW_STEPS) & (lengths[1:] >= FEW_STEPS)
        return [(int(rows[at - 1]), int(rows[at])) for at in edges[both].tolist()][:MOST_CHANGES]

    def _changed(self, group: int, before: int, after: int, sequences: Mapping[int, Sequence[Launched]]) -> Finding:
        """Which kernels a step runs that the one before it does not."""
        old, new = (Counter(each.name for each in sequences[place]) for place in (before, after))
        more, less = (
            tuple(f"{count} x {name}" for name, count in each.most_common(3)) for each in (new - old, old - new)
        )
        words = "{what}: from here on "
        words += "{more} more a step" if more else "fewer kernels"
        return finding(
            "kernels_change",
            words + (", and {less} less." if less else "."),
            what=self._name(after),
            of=self.moments.names[group][1],
            at_ms=int(self.from_[after]) / 1e6,
            more=more,
            less=less,
        )

    def _leak(self, group: int, rows: Ints) -> list[Finding]:
        """Device memory that grows until the end in steps of one name and is never given back."""
        memory = self._memory()
        if memory is None or len(rows) < 2 * FEW_STEPS:
            return []
        grown = np.diff(memory[rows])
        since = int(np.argmax(grown > 0))
        last = grown[-max(len(grown) // 4, FEW_STEPS) :]
        if (grown < 0)[since:].any() or (grown > 0).sum() < FEW_STEPS or (last > 0).mean() < 0.5 or not since:
            return []
        return [
            finding(
                "leak",
                "{what}: device memory grows by {more_mb:,.1f} MB from here to the last step, in {count:step|steps}, "
                "and none of it is given back.",
                what=self._name(int(rows[since + 1])),
                of=self.moments.names[group][1],
                at_ms=int(self.from_[rows[since + 1]]) / 1e6,
                more_mb=float(grown.sum()) / 1e6,
                count=int((grown > 0).sum()),
            )
        ]

    def _sequences(self, wanted: set[int]) -> dict[int, list[Launched]]:
        """The kernels of some moments, in order: name, ns, and the range that each was launched in, or, of a CUDA
        graph, captured in."""
        found: dict[int, list[Launched]] = {place: [] for place in wanted}
        places, traced = np.array(sorted(wanted), np.int64), calls(self.run)
        pieces = self._kernels("pid", "captured_tid", "captured_ns") if wanted else ()
        for names, name, starts, ends, of, rows, (pids, tids, captured) in pieces:
            here = np.flatnonzero(np.isin(of, places))
            labels = traced.phases_of(rows[here])
            threads = thread_keys(pids[here], tids[here])
            for thread, stretches in phases(self.run).threads.items():
                graph = np.flatnonzero((threads == thread) & (captured[here] > 0))
                labels[graph] = stretches.at(captured[here][graph])
            for row, label in zip(here.tolist(), labels.tolist(), strict=True):
                found[int(of[row])].append(Launched(names[name[row]] or "", int(ends[row] - starts[row]), label))
        return found

    def _details(self, sequences: Mapping[int, Sequence[Launched]], wanted: set[int]) -> dict[int, Detail]:
        """What each of some moments is made of. sequences: their kernels."""
        found: dict[int, Detail] = {place: {} for place in wanted}

        def add(place: int, part: str, name: str, ns: float, count: int = 1) -> None:
            before = found[place].get((part, name), (0.0, 0))
            found[place][part, name] = before[0] + ns, before[1] + count

        for place in wanted:
            for name, ns, _ in sequences[place]:
                add(place, "kernel", name, ns)
        places = np.array(sorted(wanted), np.int64)
        if self.thread == NOTHING or not wanted:
            return found
        begins, ends = self.begins[places], self.moments.edges[places + 1]
        traced = calls(self.run)
        nested = traced.nested[self.thread]
        for n, start, end, name in zip(*(each.tolist() for each in nested.overlaps(begins, ends)), strict=True):
            add(int(places[n]), "call", traced.names[name], end - start)
        own = between(nested, only=True)
        of, starts, stops, _ = own.overlaps(begins, ends)
        for n, place in enumerate(places.tolist()):
            here = of == n
            for work, ns in host_times(self.run).during(self.key, starts[here], stops[here]).items():
                if work.label:
                    add(place, "host", work.label, ns)
            add(place, "host work", "", float((stops - starts)[here].sum()), 0)
            if self.key in phases(self.run).threads:
                inner = phases(self.run).threads[self.key].overlaps(begins[n : n + 1], ends[n : n + 1])
                for _, start, stop, label in zip(*(each.tolist() for each in inner), strict=True):
                    path = phases(self.run).paths[label].rpartition(SEPARATOR)[2]
                    add(place, "range", path, stop - start)
        return found

    def _cause(
        self,
        of: Detail,
        usual: Detail,
        excess: float,
        names: Sequence[str],
    ) -> Finding:
        """What a step did more of than a usual one: of what explains most of its excess, the innermost."""
        more = {key: (ns - usual.get(key, (0.0, 0))[0], n - usual.get(key, (0.0, 0))[1]) for key, (ns, n) in of.items()}
        sums: dict[str, float] = defaultdict(float)
        for (part, name), (ns, _) in more.items():
            sums[str(_does(name)) if part == "call" else part] += ns

        def largest(part: str, pattern: re.Pattern[str] | None = None) -> tuple[str, float, int]:
            items = [
                (name, *values)
                for (of_part, name), values in more.items()
                if of_part == part and (pattern is None or pattern.match(name))
            ]
            return max(items, key=lambda each: each[1], default=("", 0.0, 0))

        range_, ns, _ = largest("range")
        range_ = range_ if ns >= EXPLAINS * excess and range_ not in names else ""
        inside = ", in {range}" if range_ else ""

        def cause(kind: str, words: str, ns: float, **values: Any) -> Finding:
            return finding(kind, words, more_ms=ns / 1e6, range=range_, **values)

        if range_.startswith(GARBAGE):
            return cause("garbage", "Python's garbage collection ({range})", ns)
        for does, pattern in ((Does.LOADING, LOADS), (Does.ALLOCATING, ALLOCATES)):
            if sums[does] >= EXPLAINS * excess:
                name, _, count = largest("call", pattern)
                return cause(does.value, "{did} ({name})" + inside, sums[does], did=does, name=name, count=count)
        if sums["kernel"] >= EXPLAINS * excess:
            name, _, count = largest("kernel")
            about = "its kernels take longer, {name} most" + (" ({count:+d} launches)" if count else "")
            return cause("kernels", about, sums["kernel"], name=name, count=count)
        if sums["host work"] >= EXPLAINS * excess:
            name, ns, _ = largest("host")
            if ns >= EXPLAINS * excess:
                compiles = COMPILES.search(name)
                return cause("compiling" if compiles else "function", "{name}" + inside, ns, name=name)
            return cause("host", "{did}" + inside, sums["host work"], did=Does.HOST)
        if sums[Does.WAITING] >= EXPLAINS * excess:
            name, _, count = largest("call", WAITS)
            about = "{did} ({name})" + (", {count:call|calls} more" if count > 0 else "")
            return cause("waiting", about, sums[Does.WAITING], did=Does.WAITING, name=name, count=count)
        name, ns, _ = largest("call")
        if ns >= EXPLAINS * excess:
            return cause("call", "{name}" + inside, ns, name=name)
        return finding("unknown", "the trace does not tell why")

    def _law(self, group: int, rows: Ints) -> list[Finding]:
        """How the steps grow longer from one to the next: a line through their lengths, where both halves lie on it."""
        lengths = self.length[rows].astype(float)
        kept = np.flatnonzero(lengths <= (1 + LEAST_SHARE) * self._usual(rows))
        if len(kept) < 4 * FEW_STEPS:
            return []
        half = len(kept) // 2
        (slope, error, first), *halves = (_line(each, lengths[each]) for each in (kept, kept[:half], kept[half:]))
        grown = slope * float(kept[-1] - kept[0]) / max(first, 1.0)
        one_line = all(abs(each - slope) < abs(slope) / 2 for each, _, _ in halves)
        if abs(slope) < 6 * error or abs(grown) < LEAST_GROWTH or not one_line:
            return []
        return [
            finding(
                "law",
                "{what}: {first_ms:,.3f} ms {slope_us:+,.3f} µs (± {error_us:,.3f}) a step over {count} steps: "
                "{grown:+.0%} from the first to the last.",
                what=self.moments.names[group][1],
                first_ms=first / 1e6,
                slope_us=slope / 1e3,
                error_us=2 * error / 1e3,
                count=len(kept),
                grown=grown,
            )
        ]

    # What repeats inside a step

    def _layer_ranges(self, kernels: Sequence[Launched]) -> tuple[list[str], Ints] | None:
        """The outermost ranges in a step whose names are the same but for their numbers: three or more of them, with
        LAYERED of its kernels' time. Their names, and which of them each kernel is of, NOTHING outside."""
        known = phases(self.run).paths
        paths = [known[each.label].split(SEPARATOR) if each.label != NOTHING else [] for each in kernels]
        of_name: dict[tuple[int, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for path, each in zip(paths, kernels, strict=True):
            for depth, name in enumerate(path):
                of_name[depth, re.sub(r"\d+", "*", name)][name] += each.ns
        whole = sum(each.ns for each in kernels)
        found = min(
            (
                key
                for key, names in of_name.items()
                if len(names) >= FEWEST_STEPS and sum(names.values()) >= LAYERED * whole and "*" in key[1]
            ),
            default=None,
        )
        if found is None:
            return None
        names = list(of_name[found])
        numbered = {name: number for number, name in enumerate(names)}
        return names, np.array(
            [numbered.get(path[found[0]], NOTHING) if len(path) > found[0] else NOTHING for path in paths]
        )

    def _slow_layer(
        self, what: str, names: Sequence[str], times: Floats, usual: float, kernels: Ints, usual_kernels: int
    ) -> Finding | None:
        """Layers that take longer than the others in every step: one in four of them at most."""
        if not len(names):
            return None
        words = (
            "{what}: {which} takes {longest_us:,.1f} µs of kernels in every step where the others take {usual_us:,.1f}"
        )
        words += ", with {kernels:kernel|kernels} instead of {usual_kernels}." if max(kernels) > usual_kernels else "."
        return finding(
            "slow_layer",
            words,
            what=what,
            of=what,
            which=tuple(names),
            longest_us=float(times.max()) / 1e3,
            usual_us=usual / 1e3,
            kernels=int(max(kernels)),
            usual_kernels=usual_kernels,
        )

    def _alike(self, rows: Ints) -> Ints:
        """Some steps from the middle of those that run the same kernels as most; none where layers are not looked
        for."""
        values, counts = np.unique(self.signature[rows], return_counts=True)
        alike: Ints = rows[self.signature[rows] == values[np.argmax(counts)]]
        if not 2 * FEWEST_STEPS <= self.kernels[alike[0]] <= LONGEST_STEP:
            return alike[:0]
        found: Ints = alike[max(len(alike) // 2 - LAYER_STEPS // 2, 0) :][:LAYER_STEPS]
        return found

    def _layers(self, group: int, sequences: Sequence[Sequence[Launched]]) -> Layers | None:
        """What repeats in the kernels of some steps, in the median over those that have the same as the first."""
        first = sequences[0] if sequences else ()
        order = [each.name for each in first]
        of_ranges = self._layer_ranges(first)
        found = None if of_ranges else repeated(order)
        if not of_ranges and found is None:
            return None
        durations = np.array([[each.ns for each in one] for one in sequences if [k.name for k in one] == order])
        if of_ranges:
            names, layer = of_ranges
            count = len(names)
            sums = np.stack([durations[:, layer == number].sum(axis=1) for number in range(count)], axis=1)
            sizes = np.bincount(layer[layer >= 0], minlength=count)
            period = int(np.median(sizes))
            typical = np.flatnonzero(layer == int(np.argmin(np.abs(sizes - period))))
        else:
            assert found is not None
            start, period, count = found
            names = [str(number) for number in range(count)]
            sums = durations[:, start : start + period * count].reshape(len(durations), count, period).sum(axis=2)
            sizes, typical = np.full(count, period), np.arange(start, start + period)
        median = np.median(sums, axis=0)
        whole = float(np.median(durations.sum(axis=1)))
        usual = float(np.median(median))
        low, high = np.percentile(median, (10, 90)).tolist()
        others = np.flatnonzero(median > OTHER_LAYER * usual).tolist()
        words = "{what}: {count} x the same {period:kernel|kernels}, {usual_us:,.1f} µs each, spread {spread:.0%}, "
        words += "{share:.0%} of the step's kernels"
        if others:
            words += "; longer: {others} ({longest_us:,.1f} µs at most)"
        name = self.moments.names[group][1]
        values: dict[str, Any] = {
            "what": name,
            "count": count,
            "period": period,
            "usual_us": usual / 1e3,
            "spread": (high - low) / usual if usual else 0.0,
            "share": float(median.sum()) / whole,
            "others": tuple(names[other] for other in others),
            "longest_us": float(median.max()) / 1e3,
        }
        return Layers(
            of=name,
            count=count,
            period=period,
            kernels=tuple(order[each] for each in typical),
            slow=self._slow_layer(
                name, [names[other] for other in others], median[others], usual, sizes[others], period
            ),
            rows=[
                {"layer": n, "name": names[n], "busy_us": float(ns) / 1e3, "share": float(ns) / whole}
                for n, ns in enumerate(median)
            ],
            said=finding("layers", words + ".", **values),
        )


def _inside(found: Marks, mine: Any, repeats: Any) -> Any:
    """Whether each range of a thread lies in a longer one that repeats, of any domain."""
    inside = found.inside(repeats)
    rows = np.flatnonzero(repeats & ~inside)
    rows = rows[np.lexsort((-found.ends[rows], found.starts[rows]))]
    reached = np.maximum.accumulate(found.ends[rows])
    # The last one that begins before it, and those around that one, reach as far as any.
    own = np.flatnonzero(mine & ~inside)
    place = np.searchsorted(found.starts[rows], found.starts[own], side="right") - 1
    until = np.where(place < 0, NOTHING, reached[place])
    first = np.searchsorted(reached, until)
    around = (place >= 0) & (until >= found.ends[own]) & (found.ends[own] != NOTHING)
    longer = rows[np.minimum(first, len(rows) - 1)]
    inside[own] |= around & (found.ends[longer] - found.starts[longer] > found.ends[own] - found.starts[own])
    return inside


def _folded(found: Sequence[Finding]) -> Iterator[Finding]:
    """Slow steps of one name and cause as one finding, in the order of the first; other findings as they are."""
    alike: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for place, each in enumerate(found):
        cause = each.values.get("cause")
        same = (each.values["of"], cause.kind, cause.values.get("name")) if cause else (place,)
        alike[same].append(each)
    for several in alike.values():
        if len(several) == 1:
            yield several[0]
            continue
        times = [each.values["more_ms"] for each in several]
        first = tuple(dict.fromkeys(name for each in several for name in each.values["first_use"]))
        words = "{count:step|steps} of {of} ({steps}): {cause}, {from_ms:,.1f} to {to_ms:,.1f} ms more each"
        if first:
            words += "; kernels run for the first time in {using} of them ({new}, {longest} one)"
        yield finding(
            "slow_steps",
            words + ".",
            of=several[0].values["of"],
            steps=tuple(_head(each) for each in several),
            count=len(several),
            from_ms=min(times),
            to_ms=max(times),
            cause=several[0].values["cause"],
            using=sum(bool(each.values["first_use"]) for each in several),
            new=len(first),
            longest=first[0] if first else "",
            first_use=first,
        )


def _head(slow: Finding) -> str:
    """A slow step's name without what it says of itself, or its number."""
    what = slow.values["what"].partition(": ")[0]
    return str(slow.values["number"]) if what == slow.values["of"] else what


def _beside_steps(found: Marks, mine: Any, outermost: Any) -> Any:
    """Which ranges come once or twice beside repeating ones that are more than those that repeat inside them: a prefill
    beside its decode steps, a warm-up before the steps; and others of their name."""
    beside, inside = np.zeros((2, len(mine) + 1), np.int32)
    owners = found.parents[outermost]
    np.add.at(beside, owners, 1)
    while len(owners := owners[owners != NOTHING]):
        np.add.at(inside, owners, 1)
        owners = found.parents[owners]
    chosen = mine & ~outermost & (inside[:-1] > 0)
    return chosen & np.isin(found.alike, found.alike[chosen & (beside[found.parents] > inside[:-1])])


def _last_of(keys: Ints) -> Ints:
    """The last row of each distinct key, ascending."""
    found: Ints = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    return np.sort(found)


def _line(x: Ints, y: Floats) -> tuple[float, float, float]:
    """The least-squares line: slope, its standard error, and its value at 0."""
    slope, first = np.polyfit(x, y, 1)
    rest = y - (slope * x + first)
    error = np.sqrt((rest**2).sum() / (len(x) - 2) / ((x - x.mean()) ** 2).sum())
    return float(slope), float(error), float(first)


def repeated(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Where a sequence begins to repeat, the length of what repeats, and how often: the shortest that holds LAYERED of
    it and comes FEWEST_STEPS times or more; None where nothing does. One kernel alone is no layer."""
    codes = np.unique(names, return_inverse=True)[1]
    best: tuple[int, int, int] | None = None
    for period in range(2, min(len(codes) // FEWEST_STEPS, LONGEST_PERIOD) + 1):
        same = codes[period:] == codes[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same.view(np.int8), [0]])))
        if not len(edges):
            continue
        lengths = edges[1::2] - edges[::2]
        longest = int(np.argmax(lengths))
        count = (int(lengths[longest]) + period) // period
        start = int(edges[2 * longest])
        if count < FEWEST_STEPS or count * period < LAYERED * len(codes):
            continue
        if len(np.unique(codes[start : start + period])) < 2:
            continue
        if best is None or count * period > 1.1 * best[1] * best[2]:
            best = start, period, count
    return best
