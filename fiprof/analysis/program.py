"""One verdict for a whole program: all that takes its time in one ranking, each with its share of the time, what to do
about it, and the most that this saves of the program. It is about the steady part; the start-up is told beside it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from fiprof.analysis.comm import COMMUNICATION, KERNEL, NOBODY, Delay, delays
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.host import FEWEST_LOOKS, HostWork, host_times
from fiprof.analysis.idle import OWN_WORK_NS, Activity, IdleCause, Why, between, outside, parts
from fiprof.analysis.samples import device_memory
from fiprof.analysis.steady import LAYER_NS, WHOLE, By, Steady, steady
from fiprof.analysis.trace import FEWEST_STEPS, SEPARATOR, calls, of_device, phases
from fiprof.analysis.verdict.model import TimeOf
from fiprof.analysis.verdict.steps import OF_CALLERS, Step, library_of, of_program
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.arrays import Ints, coded, numbers
from fiprof.model.finding import Finding, Wording, finding
from fiprof.model.ranks import COLLECTIVE, ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import by_key, sums_by_key
from fiprof.model.spans import NOTHING, Stretches, split
from fiprof.model.tables import PIECE_ROWS

LOADS = re.compile(r"cu(da)?(Library|Module|Kernel(?!GetName))|cu(da)?GetFuncBySymbol")
ALLOCATES = re.compile(
    r"cu(da)?(Malloc|Free|Mem(Alloc|Free|Create|Map|Unmap|Release|Address)|Host(Alloc|Free))(?!.*Async)"
)
FREES = re.compile(r"cu(da)?(Mem)?(Host)?(Free|Unmap|Release)(?!.*Async)")
WAITS = re.compile(r"cu(da)?\w*Synchronize")
WAITS_ON_GPU = re.compile(r"cu(da)?StreamWaitEvent")
LAUNCHES = re.compile(r"cu(da)?(Launch(?!HostFunc)|GraphLaunch)")
INSTANTIATES = re.compile(r"cu(da)?GraphInstantiate")
CAPTURES = re.compile(r"cu(da)?(Stream(Begin|End)Capture|Graph(Exec)?(Instantiate|Destroy))")
GRAPH_UPDATES = re.compile(r"cu(da)?GraphExec\w*(SetParams|Update)")
COPY_CALLS = re.compile(r"cu(da)?Memcpy")
GRAPH_LAUNCHES = re.compile(r"cu(da)?GraphLaunch")
AWAITING = re.compile(r"\b(wait|poll|select|get|acquire|recv|recv_bytes|read|join)\b|dataloader|queue", re.IGNORECASE)
"""Python functions, with their files, in which a thread waits for another thread or process."""
WRITES_STACK = "format_stack (traceback.py)"  # which PyTorch's anomaly detection calls for each operation
OF_NAN_TESTS = ("or", "CompareEq")  # in parentheses in the names of the kernels by which it looks for NaN
REMAKES_WORKERS = re.compile(r"\b(__init__|__del__|_shutdown_workers) \(torch/utils/data/dataloader\.py\)")
AWAITS_GPU = re.compile(r"\b(_value|block_until_ready) \(jax/")  # likewise, for the GPU's results
COMPILES = re.compile(
    r"\b(run_ninja|nvrtc\w*|build_and_load|_?(do_)?compile\w*) \(|/compiler/"
    r"|torch/_(dynamo/(?!eval_frame|utils|external_utils)|inductor/(graph|scheduler|codegen|codecache|lowering))"
)
"""Python functions, with their files, that compile; what runs compiled code lies beside them."""
TO_HOST, TO_DEVICE, AND_BACK = OVER_BUS = "Device-to-Host", "Host-to-Device", "Device-to-Host and back"
ELEMENTWISE = re.compile(r"^(?!distribution|_scatter|index).*elementwise|^triton_poi")
"""PyTorch's, and its compiler's; not those that take an index for each element, which is most of their time."""
LAYOUTS = re.compile(r"nchwToNhwc|nhwcToNchw")  # cuDNN's, around kernels that know channels last alone
SHORT_US = 5.0  # a kernel below this takes about as long as its launch: 5 to 7 µs from the call to its start on an H200
HALF, FEW_LONG, LONGER = 0.5, 0.1, 5.0
"""Share of the time that few steps hold, the most that these are of all, and times the usual length that they take."""
NOTICED = 0.02  # share of the time from which on something is said before what takes more time and has no step
MATTERS, GUESS = 0.1, 1 / 3
"""Share of the time from which on a kernel that was not under ncu is to be, and what of its time that may save."""
DOUBLES = re.compile(r"<(\([\w ]+\)\d+, )*double[,>]|lambda\(double\b|_float64")
"""In a kernel's full name: a template's or a lambda's first type, as PyTorch and Thrust have that of elements there, or
a type of CuPy's."""
HALF_BYTES = 0.5  # float32's over float64's
NARROW = re.compile(r"cutlass_\w*tensorop\w*_align([12])$")
"""cuBLAS takes these where a row of a matrix is no multiple of 16 bytes; those for rows that are take wgmma and TMA."""
ATTENTION = re.compile(r"^cudnn_generated_\w*sdpa")  # as cuDNN makes it for each shape, on the host
BY_NAME = {
    "keep_type": re.compile(r"\((b?float\d+|half|float8\w*)_copy"),  # PyTorch's copies into another element type
    "sort_less": re.compile(r"RadixSort|MergeSort|bitonicSort|SortKernel", re.IGNORECASE),  # of CUB, Thrust and PyTorch
    "small_factors": re.compile("bluestein", re.IGNORECASE),  # cuFFT's, for a length with a prime factor above 127
    "index_otherwise": re.compile("^indexing_backward_kernel"),  # PyTorch's
    "factor_once": re.compile(r"getr[fs]|potr[fs]|geqrf|gesvd|syev|heev|sytr[df]"),  # of cuSOLVER, named as LAPACK's
    "add_by_rows": re.compile("^indexFunc(Large|Small)Index"),  # PyTorch's index_add_ and the like, by atomics
    "write_in_place": re.compile(r"^CatArrayBatchedCopy"),  # PyTorch's torch.cat and torch.stack
    "keep_layout": re.compile(r"^elementwise_kernel \(direct_copy"),  # PyTorch's copies into another order of elements
    "fill_once": re.compile(r"^vectorized_elementwise_kernel \(Fill"),  # PyTorch's zeros, ones, full and fill_
    "lighter_optimizer": re.compile(r"^multi_tensor_apply_kernel \((FusedAdam|FusedSgd|FusedAdagrad|Lamb|Lars)"),
}
"""Steps that a kernel's name tells, what tells it from others in parentheses."""
NULL_STREAM = 7  # CUPTI's number of the legacy default stream in the first context of a process
OFTEN, CHANGING = 1.5, 0.25
"""Waits a step that cannot all lie at its end; share of the steps that differ from the one before in their kernels."""
LOADING_SHARE = 0.2
"""Share of the first steps' excess from which on loading code is the reason: the rest is what libraries do on the host
when they are first used."""
LENGTHENED = 1 - 1 / 1.2, 1 - 1 / 1.44, 1 - 1 / 1.7
"""Part of a step that launching holds up which is nsys's own, least, middle and most: nine such programs of PyTorch's
took 1.2 to 1.7 times as long under it as without (H100 and H200; docs/how-sure.md)."""
CALL_NS = 1e3, 4e3, 8e3  # of a traced call that are nsys's own, likewise: the part is no more than these of all calls
MOST_LINES = 4  # that launch kernels, to be named
NEAR_NS, FEW_LOOKS = 250_000, 8
"""How far from a launch a look tells where it is made; of a kernel's looks the nearest eighth count, or so many."""
OF_GRADIENTS = re.compile("AllReduce|ReduceScatter")  # collectives that may sum gradients
IN_TURNS = 0.25  # share of the time that each of some ranks waits for the next, as stages of a pipeline do
FULL = 0.9  # part of the GPU's memory from which on there is none left for what would be kept
CALL_SHARE = 0.05  # share of the time from which on a call that is for no launch, copy or allocation stands by itself
LEAST_OUTSIDE_NS = 50_000  # outside the steady part, to be told of
MOSTLY = 0.75  # share of something's time that lies in the range that is named


class Waste(Wording):
    """What takes a program's time. Behind its words stand its step in ``steps.csv`` (LAUNCHES and KERNEL have steps of
    their own), ``gpu`` where the GPU is not idle in it, and ``twice`` where kernels have its time in rows of their own.
    """

    @property
    def step(self) -> str:
        return self.also[0]

    LAUNCHES = "launches", "launching"  # calls that launch, and the host's work of up to OWN_WORK_NS between them
    HOST = "host", "host work", "less_host_work"
    GIL = "gil", "waiting for Python's lock", "free_lock"
    INPUT = "input", "waiting for input", "faster_input"  # Python waits for another thread or process
    SYNCHRONIZATION = "synchronization", "drained by a wait", "fewer_waits"
    """From the end of the work that the host waited for to the start of what it launched then."""
    ALLOCATION = "allocation", "allocating", "keep_memory"
    LOADING = "loading", "loading code", "load_before"
    CAPTURES = "captures", "capturing CUDA graphs", "capture_once"  # from the begin of one to its end, and making it
    CALL = "call", "CUDA call", "call_before"
    TURNS = "turns", "processes in turns", "share_gpu"  # each has work waiting, and the GPU changes to it
    GPU = "gpu", "between kernels", "fuse_kernels"
    UNKNOWN = "unknown", "not traced"
    PAGEABLE_COPIES = "pageable_copies", "only copies, pageable", "pin_memory gpu"
    COPIES = "copies", "only copies", "overlap_copies gpu"
    RANKS = "ranks", "waiting for a rank", "help_rank gpu"
    STREAMS = "streams", "streams in turns", "overlap_streams gpu twice"
    """Kernels of several streams, each of a part of the GPU, one after the other."""
    ELEMENTWISE = "elementwise", "elementwise kernels in a row", "fuse_elementwise gpu twice"
    """That read and write what one kernel could keep in registers."""
    DOUBLES = "doubles", "float64 kernels", "use_floats gpu twice"
    RECOMPUTED = "recomputed", "forward passes repeated", "keep_activations gpu twice"
    """For the backward pass (activation checkpointing)."""
    LAYOUTS = "layouts", "layout conversions", "channels_last gpu"
    SMALL_KERNELS = "small_kernels", "small kernels", "fuse_kernels gpu"
    KERNEL = "kernel", "kernel", "gpu"


COUNTED = {Waste.ALLOCATION: ALLOCATES, Waste.LOADING: LOADS, Waste.CAPTURES: INSTANTIATES}
"""Calls of which such a row says how many there are a step."""
OF_GPU, TWICE = (frozenset(cause for cause in Waste if kind in cause.also) for kind in ("gpu", "twice"))
OF_ONE_RANK = {Waste.HOST, Waste.INPUT}  # what a rank may do alone; launches and waits are alike on all
FIRST_STEPS = "first steps"
OUTSIDE = "outside every range"
"""Name of host work that no range holds and no sample names: perhaps there was nothing to do."""

RANKING = columns("program")
"""name: of the kernel, the call, the host's function or the kind of copies. per_step: how often in a step: launches,
calls. share: of the steady part. bound_pct: percent of the steady part's time that the step saves at most."""


@dataclass(frozen=True)
class Program:
    """A program's verdict."""

    rows: list[Row]
    """Rows of RANKING, what saves most first; of items that several ranks have, the one of the rank that loses most."""
    every: list[Row]  # the same of every GPU
    answer: Finding  # the first row as a sentence
    steady: Finding  # which part it is about
    idle_in: Finding | None
    """The lines of Python in which the host was while the GPU was idle; None where they are not known."""
    launched_in: Finding | None  # the lines of Python that launch the kernels; None where they are not known
    startup: Finding | None  # what came before, and why it took so long; None where all is one part

    def fields(self) -> Row:
        keys = [column.key for column in RANKING]
        rows = [{key: row[key] for key in keys} | {"step": row["step"] and row["step"].fields()} for row in self.rows]
        parts = ("answer", "steady", "idle_in", "launched_in", "startup")
        return {key: (part := getattr(self, key)) and part.fields() for key in parts} | {"rows": rows}


def program(run: Run, kernels: Sequence[Row], *, within_steady: bool = True, changing: Mapping[int, float]) -> Program:
    """The verdict. kernels: groups of a kernel's executions in that part: place, kernel, detail, count, ns, median_us,
    ``verdict`` (of a launch under ncu, None without). changing: device -> share of its steps that differ from the one
    before."""
    rows: list[Row] = []
    of_gpu = {}
    for device, part in parts(run, within_steady=within_steady).items():
        at = steady(run)[device] if within_steady else WHOLE
        own = [row for row in kernels if (NOTHING if row["device"] is None else row["device"]) == device]
        gpu = _Gpu(run, part, at, own, changing.get(device, 0.0))
        gpu.of_idle_and_copies()
        gpu.of_kernels()
        gpu.of_elementwise()
        gpu.of_recomputed()
        gpu.of_streams()
        gpu.of_loading()
        rows += gpu.rows
        of_gpu[device] = gpu
    for row in (row for row in rows if row["cause"] is Waste.RANKS):
        # What leaves a late rank's GPU idle, other than work of its own, is the cause, and has a row there.
        idle = [of for of in rows if f"rank {of['rank']}" == row["name"] and of["cause"] not in OF_GPU]
        alike = (of["share"] for of in idle if of["cause"] not in OF_ONE_RANK)
        own = [of for of in idle if of["cause"] in OF_ONE_RANK and of["name"] not in (of["range"], OUTSIDE)]
        if 100 * max(alike, default=0.0) >= HALF * row["idle_pct"]:
            row["size_pct"] -= row["idle_pct"]
        elif own and row["idle_pct"] >= HALF * row["bound_pct"]:
            because, place = row["step"].basis, max(own, key=lambda of: of["share"])["name"]
            because = finding(because.kind, because.words + ", most in {place}", **because.values, place=place)
            row["step"] = row["step"]._replace(basis=because)
    most: dict[Any, Row] = {}
    for row in sorted(rows, key=_order):
        most.setdefault((row["cause"], row["name"]), row)
    ranking = [row for row in most.values() if row["share"] > 0]
    first = of_gpu[ranking[0]["device"]] if ranking else next(iter(of_gpu.values()))
    sentences = first.answer(ranking), first.steady_words(), first.idle_in(), first.launched_in(), first.startup()
    return Program(ranking, rows, *sentences)


def _order(row: Row) -> tuple[float, float]:
    """What saves most first; what has no step, or saves next to nothing, by its share. What leaves the GPU idle counts
    by its share: its bound may hold idle time of other causes. Of a kernel that was not under ncu it is a guess."""
    saves = row["size_pct"] if row["cause"] in OF_GPU else min(row["size_pct"], 100 * row["share"])
    return -(saves if saves >= 100 * NOTICED else 0.0), -row["share"]


def saves_more(row: Row) -> bool:
    """Whether what is done about idle time may save more than that: the host, ahead of the GPU then, hides other."""
    of_itself = row["cause"] in OF_GPU or row["cause"] is Waste.CAPTURES
    return not of_itself and row["name"] != FIRST_STEPS and (row["bound_pct"] or 0) > 101 * row["share"]


class _Gpu:
    """What takes a GPU's time, as rows."""

    def __init__(self, run: Run, part: Activity, at: Steady, kernels: Sequence[Row], changing: float) -> None:
        self.run, self.part, self.at, self.rows = run, part, at, list[Row]()
        self.window_ns = max(part.window_ns, 1)
        self.steps = len(at.steps)
        traced = calls(run)
        pids = {rank.pid for rank in ranks_of(run).all if (rank.device or 0) == max(part.device, 0)}
        self.threads = {key: number for key, number in traced.threads.items() if not pids or key >> 32 in pids}
        counts = np.zeros(len(traced.names), np.int64)
        for first in range(0, len(traced.name), PIECE_ROWS):
            rows = slice(first, first + PIECE_ROWS)
            inside = at.holds(traced.starts[rows])
            if len(self.threads) < len(traced.threads):
                inside &= np.isin(traced.thread[rows], [*self.threads.values()])
            counts += np.bincount(traced.name[rows][inside], minlength=len(counts))
        self.counts: dict[str, int] = dict(zip(traced.names, counts.tolist(), strict=True))
        self.changing, self.kernels = changing, kernels
        # Where kernels run side by side, each has its part of their common time.
        self.scale = part.kernels_ns / max(sum(row["total_ns"] for row in kernels), 1)
        self.layouts = [row for row in kernels if LAYOUTS.search(row["kernel"])]
        self.small = [
            row
            for row in kernels
            if row["total_ns"] < 1e3 * SHORT_US * row["count"]
            and not COLLECTIVE.search(row["kernel"])
            and row not in self.layouts
        ]
        self.small_ns = sum(row["total_ns"] for row in self.small) * self.scale
        self.nsys_ns: Sequence[float] = (0.0, 0.0, 0.0)  # of the launching, the least, the middle and the most
        self.taken_ns = 0.0  # of these what the estimate leaves out
        self.copying: dict[str | None, int] = defaultdict(int)  # ns in calls that copy, before the copy began
        self.host_ns: dict[tuple[Waste, str | None], int] = defaultdict(int)
        """What the launching threads were seen to do, also while the GPU worked."""
        self.planning_ns: Counter[str | None] = Counter()  # host work by its name that cuDNN's attention began after

    def count(self, names: re.Pattern[str] | str) -> int:
        """Calls in the part."""
        if isinstance(names, str):
            return self.counts.get(names, 0)
        return sum((count for name, count in self.counts.items() if names.match(name)), 0)

    def attention(self) -> tuple[Ints, Ints]:
        """When the GPU's kernels begin, and 1 for each that is cuDNN's attention, 0 at the end. Empty where none is."""
        pieces = [np.zeros((2, 0), np.int64)]
        if not any(ATTENTION.match(row["kernel"]) for row in self.kernels):
            return pieces[0][0], np.zeros(1, np.int64)
        for _, starts, (texts, code) in of_device(self.run, "kernels", self.part.device, "start_ns", "kernel"):
            pieces.append(np.stack([starts, np.array([bool(ATTENTION.match(text or "")) for text in texts])[code]]))
        starts, of_cudnn = np.concatenate(pieces, axis=1)
        order = np.argsort(starts)
        return starts[order], np.append(of_cudnn[order], 0)

    def called_in(self, names: re.Pattern[str]) -> Finding | None:
        """In which line of Python some calls take most of their time; None where nsys saw none, or too few."""
        matching = [number for number, name in enumerate(calls(self.run).names) if names.match(name)]
        within = (
            (thread, begins[here], ends[here])
            for thread, begins, ends, labels in self.looked_at
            for here in [np.isin(labels, matching)]
        )
        place = host_times(self.run).most_seen(within)
        return finding("called_in", "most often called in {place}", place=place) if place else None

    @cached_property
    def looked_at(self) -> list[tuple[int, Ints, Ints, Ints]]:
        """Of each thread that nsys looked at its calls in the part: thread, begins, ends, numbers of their names."""
        traced, pieces = calls(self.run), list[tuple[int, Ints, Ints, Ints]]()
        for thread, number in self.threads.items() if host_times(self.run).looks else ():
            if (nested := traced.nested.get(number)) is not None:
                pieces.append((thread, *nested.overlaps(self.at.begins, self.at.ends)[1:]))
        return pieces

    def delays(self, rank: int | None) -> list[Delay]:
        """Who kept a rank waiting in the part, the longest first."""
        groups = np.zeros(len(self.at.begins), int)
        return [] if rank is None else delays(self.run, rank, self.at.begins, self.at.ends, groups).get(0, [])

    @cached_property
    def late(self) -> list[Delay]:
        return self.delays(self.part.rank)

    def add(
        self, cause: Waste, ns: float, name: str | None = None, range_: str | None = None, count: float | None = None,
        *, saves_ns: float | None = None, estimate_ns: float | None = None, kind: str | None = None,
        because: Finding | None = None,
    ) -> None:  # fmt: skip
        """A row with a step. count: of launches, or calls, in the part. saves_ns: what the step saves at most, where
        that is not all. kind: of the step, by default that of the cause."""
        pct = 100 * (ns if saves_ns is None else saves_ns) / self.window_ns
        per_step = (count or 0) / self.steps if self.steps else 0.0
        about = {"name": name or "", "range": range_ or "the program", "per_step": per_step}
        step = of_program(kind or cause.step, pct, because or Finding("share", {}, ""), about)
        if estimate_ns is not None:
            step = step._replace(estimate_pct=100 * estimate_ns / self.window_ns)
        self.row(cause, ns, name, range_, count, step)

    def row(
        self, cause: Waste, ns: float, name: str | None, range_: str | None, count: float | None, step: Step | None
    ) -> None:
        """A row, with a step or without."""
        sizes = [each for each in (step and step.bound_pct, step and step.estimate_pct) if each is not None]
        unknown = GUESS * 100 * ns / self.window_ns if step else 0.0
        per_step = count / self.steps if self.steps and count is not None else None
        if step and step.estimate_pct is not None and cause is Waste.LAUNCHES:  # of the time without nsys
            without = step.estimate_pct * self.window_ns / (self.window_ns - self.taken_ns)
            step = step._replace(estimate_pct=without)
        self.rows.append({
            "rank": self.part.rank, "device": self.part.device, "cause": cause, "name": name, "range": range_,
            "per_step": per_step, "total_ns": ns, "total_ms": ns / 1e6, "share": ns / self.window_ns,
            "bound_pct": step and step.bound_pct, "estimate_pct": step and step.estimate_pct, "step": step,
            "size_pct": min(sizes, default=unknown),
        })  # fmt: skip

    # Idle

    def of_idle_and_copies(self) -> None:
        """Why it had nothing to run, or nothing but copies."""
        of_call = sums_by_key((why.call, ns) for why, ns in self.part.causes.items())
        sums: dict[tuple[Waste, str | None], dict[str | None, int]] = defaultdict(lambda: defaultdict(int))
        for why, ns in self.part.causes.items():
            cause, name = self._waste(why, of_call[why.call] / self.window_ns)
            if cause is Waste.COPIES:
                self.copying[why.range] += ns
            else:
                sums[cause, name][why.range] += ns
        self._of_host(sums)
        self._of_copies(sums)
        launching, gaps = (
            sum(sum(ranges.values()) for (of, _), ranges in sums.items() if of is cause)
            for cause in (Waste.LAUNCHES, Waste.GPU)
        )
        if launching > LENGTHENED[0] * self.window_ns:
            called = sum(self.counts.values())
            of_nsys = zip(LENGTHENED, CALL_NS, strict=True)
            self.nsys_ns = [min(part * self.window_ns, call * called, launching) for part, call in of_nsys]
        for (cause, name), ranges in sums.items():
            ns, range_ = sum(ranges.values()), where(ranges)
            if cause is Waste.LAUNCHES:
                self._launches(ns, range_, gaps)
            elif cause is Waste.UNKNOWN:
                self.row(cause, ns, name, range_, None, None)
            else:
                counted = COUNTED.get(cause, name)
                unknown = isinstance(counted, str) and counted not in self.counts
                count = self.count(counted) if counted and not unknown else None
                # Without it the host is ahead by all of its time, and the GPU idle for no less than nothing.
                saves: float = min(max(self.host_ns[cause, name], ns), self.part.idle_ns)
                because = None
                if cause is Waste.ALLOCATION:
                    because = self.called_in(FREES)
                if because is None and counted and not unknown:
                    because = self.called_in(re.compile(f"{counted}$") if isinstance(counted, str) else counted)
                estimate = None
                if cause is Waste.ALLOCATION:
                    names = [number for number, call in enumerate(calls(self.run).names) if ALLOCATES.match(call)]
                    if sum(bool(np.isin(labels, names).any()) for *_, labels in self.looked_at) > 1:
                        saves = self.part.idle_ns  # the other threads of Python stand at the allocator's lock
                if cause is Waste.CAPTURES:
                    more, because = self._of_captures(because)
                    saves = min(max(ns, more) if more else ns + launching, self.part.idle_ns)
                if cause is Waste.SYNCHRONIZATION:  # and launches ahead
                    saves, estimate = ns + launching, ns
                kind = "mark_ranges" if name == OUTSIDE else None
                if cause in (Waste.HOST, Waste.SYNCHRONIZATION) and self.anomaly_ns:
                    kind, saves, estimate = "detect_no_anomaly", self.part.idle_ns + self.anomaly_ns, None
                kind = "keep_workers" if cause is Waste.INPUT and REMAKES_WORKERS.search(name or "") else kind
                kind = "compile_before" if cause is Waste.HOST and COMPILES.search(name or "") else kind
                kind = "keep_plans" if cause is Waste.HOST and self.planning_ns[name] > MOSTLY * ns else kind
                kind = "same_arguments" if cause is Waste.CALL and GRAPH_UPDATES.match(name or "") else kind
                saved = {"saves_ns": saves, "estimate_ns": estimate}
                self.add(cause, ns, name, range_, count, **saved, kind=kind, because=because)

    def _of_captures(self, called: Finding | None) -> tuple[float, Finding]:
        """By how much the steps with a capture are longer than the others usually are, all in all, ns: what is done
        around it too, as a run to warm up before. 0 where no step is without one. And why capturing takes time."""
        edges, traced = np.append(self.at.steps, self.at.ends[-1]), calls(self.run)
        wanted = np.isin(traced.name, [number for number, name in enumerate(traced.names) if INSTANTIATES.match(name)])
        place = np.searchsorted(edges, traced.starts[wanted], side="right") - 1
        with_calls, lengths, count = np.isin(np.arange(self.steps), place), np.diff(edges), self.count(INSTANTIATES)
        usual = np.median(lengths[~with_calls]) if not with_calls.all() else lengths
        more_ns = float((lengths - usual)[with_calls].sum())
        words, values = "{count:graph is|graphs are} captured and instantiated", dict[str, Any](count=count)
        if self.steps:
            words += " in {steps:step|steps}"
            values["steps"] = self.steps
        if more_ns > 0:
            words += ", {more_ms:,.1f} ms each with what else such a step does more"
            values["more_ms"] = more_ns / count / 1e6
        if called:
            words, values = words + "; {called}", values | {"called": called, **called.values}
        return more_ns, finding("captures", words, **values)

    def _waste(self, why: Why, share: float) -> tuple[Waste, str | None]:
        """What a cause counts as, and the name that it goes by. share: of the time, of its call."""
        cause, call = why.cause, why.call or ""
        if cause is IdleCause.UNKNOWN:
            return Waste.UNKNOWN, None
        if cause is IdleCause.TURN:
            return Waste.TURNS, None
        if cause in (IdleCause.GPU, IdleCause.GRAPH):
            return Waste.GPU, cause.words
        of_calls = ((Waste.ALLOCATION, ALLOCATES), (Waste.LOADING, LOADS), (Waste.CAPTURES, CAPTURES))
        if cause is IdleCause.CALL and (waste := next((each for each, names in of_calls if names.match(call)), None)):
            return waste, None
        if why.long and cause in (IdleCause.HOST, IdleCause.HOST_AFTER_WAIT, IdleCause.OUTSIDE_RANGES):
            return Waste.HOST, None
        if why.drained_in and ALLOCATES.match(why.drained_in):
            return Waste.ALLOCATION, None
        if why.drained_in:
            return Waste.SYNCHRONIZATION, why.drained_in
        if cause is IdleCause.COPY_CALL:
            return Waste.COPIES, None
        if cause is IdleCause.CALL and share >= CALL_SHARE:
            return Waste.CALL, call
        return Waste.LAUNCHES, None

    def _of_host(self, waste: dict[tuple[Waste, str | None], dict[str | None, int]]) -> None:
        """Host work by the function that was seen in it, else by range."""
        ranges = waste.pop((Waste.HOST, None), {})
        kernels_start, of_cudnn = self.attention()
        idle = [
            (planned, *each)
            for thread, begins, ends, labels in self.part.host
            for planned, of_planned in split(of_cudnn[np.searchsorted(kernels_start, ends)])
            for each in self._functions(thread, begins[of_planned], ends[of_planned], labels[of_planned])
        ]
        names: dict[tuple[Waste, HostWork], Counter[str]] = defaultdict(Counter)
        for _, cause, work, name, path, ns in idle:
            names[cause, work][name] += ns
            ranges[path] = ranges.get(path, 0) - ns
        name_of = {key: seen.most_common(1)[0][0] for key, seen in names.items()}
        for planned, cause, work, _, path, ns in idle:
            waste[cause, name_of[cause, work] or None][path] += ns
            if planned and cause is Waste.HOST:
                self.planning_ns[name_of[cause, work] or None] += ns
        # While the GPU worked too.
        first, last = (np.clip(each, *self.part.span) for each in (self.at.begins, self.at.ends))
        for thread in {thread for thread, *_ in self.part.host} & host_times(self.run).threads.keys():
            nested = calls(self.run).nested.get(calls(self.run).threads[thread])
            if nested is not None:
                _, begins, ends, labels = between(nested, only=True).overlaps(first, last)
                long = ends - begins >= OWN_WORK_NS
                for cause, work, name, _, ns in self._functions(thread, begins[long], ends[long], labels[long]):
                    self.host_ns[cause, name_of.get((cause, work), name) or None] += ns
        for range_, ns in folded(ranges).items():
            if ns > 0:
                outside = OUTSIDE if phases(self.run).threads else None
                waste[Waste.HOST, range_ or outside][range_] += ns

    def _functions(
        self, thread: int, begins: Ints, ends: Ints, labels: Ints
    ) -> Iterator[tuple[Waste, HostWork, str, str | None, int]]:
        """What a thread was seen to do in some stretches: cause, function, its name there, range, ns."""
        for label, here in split(labels):
            for work, ns in host_times(self.run).during(thread, begins[here], ends[here]).items():
                cause, name = Waste.INPUT if AWAITING.search(work.called) else Waste.HOST, work.label
                if work.waits_for_gil:
                    cause, name = Waste.GIL, work.holder
                elif AWAITS_GPU.search(work.called):
                    cause = Waste.SYNCHRONIZATION
                if work.label:
                    yield cause, work.whole, name, phases(self.run).path(label), ns

    def _of_copies(self, waste: dict[tuple[Waste, str | None], dict[str | None, int]]) -> None:
        """Copies while no kernel ran, with the calls that kept them from beginning. Those to the host that take less
        than the GPU then waits, as of a single number, are part of that wait."""
        sums: dict[tuple[Waste, str], dict[str | None, int]] = defaultdict(lambda: defaultdict(int))
        over_bus = sum(ns for copying, ns in self.part.copies.items() if copying.kind in OVER_BUS)
        back = over_bus >= NOTICED * self.window_ns and self._come_back()
        bus = dict.fromkeys((TO_HOST, TO_DEVICE), AND_BACK) if back else {}
        for copying, ns in self.part.copies.items():
            pageable = copying.memory == "pageable"
            kind = bus.get(copying.kind, copying.kind)
            sums[Waste.PAGEABLE_COPIES if pageable else Waste.COPIES, kind][copying.range] += ns
        if self.copying:
            most = max(sums, key=lambda key: sum(sums[key].values()), default=(Waste.COPIES, "calls"))
            for range_, ns in self.copying.items():
                sums[most][range_] += ns
        waits = {key: sum(ranges.values()) for key, ranges in waste.items() if key[0] is Waste.SYNCHRONIZATION}
        longest = max(waits, key=waits.__getitem__, default=None)
        over_bus = sum(sum(ranges.values()) for (_, kind), ranges in sums.items() if kind in OVER_BUS)
        # While the host does its own work no copy keeps it from launching.
        working = sum(sum(ranges.values()) for (of, _), ranges in waste.items() if of in (Waste.HOST, Waste.INPUT))
        for (cause, kind), ranges in sums.items():
            ns, device = sum(ranges.values()), kind not in OVER_BUS
            if kind == TO_HOST and longest and ns <= waits[longest]:
                for range_, of_range in ranges.items():
                    waste[longest][range_] += of_range
                continue
            hidden = ns if device else min(ns, self.part.kernels_ns)
            if cause is Waste.PAGEABLE_COPIES:  # which the host waits for, as it does not for others
                hidden = ns + min(ns, self.part.idle_ns - working)
            if kind == AND_BACK:  # what the host does about them is not to be done either
                hidden = ns + self.part.idle_ns
            because = self.called_in(COPY_CALLS) if not device and ns >= MOSTLY * over_bus else None
            step = "less_copying" if device else "stay_on_gpu" if kind == AND_BACK else None
            self.add(cause, ns, kind, where(ranges), saves_ns=hidden, kind=step, because=because)

    @cached_property
    def anomaly_ns(self) -> float:
        """Of the kernels by which PyTorch looks for anomalies; 0 where nsys seldom saw it write down a stack for that,
        or there are few such kernels."""
        looks = (host_times(self.run).looks.get(thread) for thread in self.threads)
        seen = [
            int(self.at.holds(moments[[work.called == WRITES_STACK for work in works]]).sum())
            for moments, works, _ in filter(None, looks)
        ]
        tests = [row for row in self.kernels if row["detail"] in OF_NAN_TESTS]
        if sum(seen) < FEWEST_LOOKS or sum(row["count"] for row in tests) <= OFTEN * self.steps:
            return 0.0
        return float(self.scale * sum(row["total_ns"] for row in tests))

    def _come_back(self) -> bool:
        """Whether most bytes that go to the host come back in copies of their sizes, and few others go to the GPU."""
        moved: dict[str | None, Counter[int]] = defaultdict(Counter)
        columns = ("start_ns", "bytes", "kind")
        for _, starts, sizes, (kinds, kind) in of_device(self.run, "copies", self.part.device, *columns):
            here = np.flatnonzero(self.at.holds(starts) & (sizes > 0))
            for number, rows in split(kind[here]):
                for size, copies in zip(*np.unique(sizes[here[rows]], return_counts=True), strict=True):
                    moved[kinds[number]][int(size)] += int(size * copies)
        both = (moved[TO_HOST] & moved[TO_DEVICE]).total()
        return both > MOSTLY * max(moved[TO_HOST].total(), moved[TO_DEVICE].total())

    def _launches(self, ns: float, range_: str | None, gaps: float) -> None:
        """Launching: a CUDA graph where nothing keeps the step from one, else fewer launches. gaps: ns between
        kernels."""
        launches, graphs = self.count(LAUNCHES), self.count(GRAPH_LAUNCHES)
        # What repeats so soon is a layer, whose one wait is not the end of a step.
        often = 1 / OFTEN if self.at.by is By.PATTERN and (self.at.step_ns or 0.0) < LAYER_NS else OFTEN
        against = [
            finding("waits", "{count:.3g} waits a step ({name})", name=name, count=self.counts[name] / self.steps)
            for name in self.counts
            if self.steps and WAITS.match(name) and self.counts[name] >= often * self.steps
        ]
        if self.steps and (allocated := self.count(ALLOCATES)) >= self.steps / 2:
            words = "{count:.3g} allocations and releases a step"
            against.append(finding("allocations", words, count=allocated / self.steps))
        if self.steps and (sent := self.sent_between()) > OFTEN * self.steps:
            words = "copies from pageable memory between kernels {count:.3g} times a step"
            against.append(finding("sent", words, count=sent / self.steps))
        if self.changing > CHANGING:
            words = "other kernels or grids from step to step ({share:.0%} of the steps)"
            against.append(finding("changing", words, share=self.changing))
        kind = "capture_step"
        kernels = sum(row["count"] for row in self.kernels)
        if graphs and kernels - (launches - graphs) > kernels / 2:
            kind = "larger_graph"
        elif against or not self.steps:
            kind = "fewer_launches"
        words, values = "{count:launch|launches} a step", dict[str, Any](count=round(launches / max(self.steps, 1)))
        if not self.steps:
            words = "{count:launch|launches}"
        messages = sum(row["count"] for row in self.kernels if COLLECTIVE.search(row["kernel"]))
        if messages and MATTERS * launches <= messages <= launches:
            words, values["messages"] = words + ", {messages} of them communicate", round(messages / max(self.steps, 1))
        if against:
            words, values = words + "; against a CUDA graph: {against}", values | {"against": tuple(against)}
        # What is fused is no kernel of its own any more; where these take longer, that is a row of its own.
        fused = kind != "larger_graph" and self.small_ns < ns
        # Where launching is most of it, so it is on the other ranks, for whose hosts this one waits.
        waits = sum(each.idle_ns for each in self.late) if ns >= HALF * self.part.idle_ns else 0.0
        saves, estimate = ns + waits + (self.small_ns + gaps if fused else 0.0), None
        least, middle, most = self.nsys_ns
        if most:
            words += "; nsys itself takes some {nsys_least:.0%} to {nsys_most:.0%} of the time"
            values |= {"nsys_least": least / self.window_ns, "nsys_most": most / self.window_ns}
            # Where without nsys the GPU may never be idle, only what else goes with the launches is sure.
            busy = self.part.idle_ns + waits - most < MATTERS * self.window_ns and not graphs
            self.taken_ns = most if busy else middle
            estimate = saves - self.taken_ns
        because = finding("launches", words, **values)
        if called := self.called_in(LAUNCHES):
            because = finding("launches", words + "; {called}", **values, called=called, **called.values)
        saved = {"saves_ns": saves, "estimate_ns": estimate}
        self.add(Waste.LAUNCHES, ns, None, range_, launches, **saved, kind=kind, because=because)

    def sent_between(self) -> int:
        """How often copies from the host's pageable memory come between kernels: PyTorch refuses to capture them."""
        copies, columns = [np.empty(0, np.int64)], ("start_ns", "kind", "memory")
        for _, starts, (kinds, kind), (memories, memory) in of_device(self.run, "copies", self.part.device, *columns):
            sent = np.array([each == TO_DEVICE for each in kinds])[kind]
            pageable = np.array([each == "pageable" for each in memories])[memory]
            copies.append(starts[sent & pageable & self.at.holds(starts)])
        if not len(moments := np.concatenate(copies)):
            return 0
        kernels = [starts for _, starts in of_device(self.run, "kernels", self.part.device, "start_ns")]
        return len(np.unique(np.searchsorted(np.sort(np.concatenate(kernels)), moments)))

    def of_loading(self) -> None:
        """Steps before the steady part that load code, where it is not the first one alone, which always does."""
        if len(self.at.early) < 2 or self.at.step_ns is None or self.at.by is not By.RANGES:
            return
        (first, begin), end = self.at.early[:2], int(self.at.begins[0])
        loading, names = 0, [n for n, name in enumerate(calls(self.run).names) if LOADS.match(name)]
        for nested in calls(self.run).nested.values():
            _, starts, ends, labels = nested.overlaps(np.array([begin]), np.array([end]))
            loading += int((ends - starts)[np.isin(labels, names)].sum())
        steps = len(self.at.early)
        excess = end - begin - (steps - 1) * self.at.step_ns
        if loading < LOADING_SHARE * excess:
            return
        # Of all steps, steady or not.
        scale = self.window_ns / (int(self.at.ends[-1]) - first)
        words = "the first {count:step|steps}, which load code, beyond their usual time"
        because = finding("early", words, count=steps)
        saves = excess + begin - first - self.at.step_ns
        self.add(Waste.LOADING, saves * scale, FIRST_STEPS, self.at.name, because=because)
        self.rows[-1]["total_ms"] = saves / 1e6  # total_ns is as its share: others are added to it

    # Kernels and streams

    def of_kernels(self) -> None:
        """Kernels by name, small ones and those that convert layouts together, and waiting for other ranks."""
        kernels, layouts = self.kernels, self.layouts
        (waits, exposed), scale = self._of_ranks(), self.scale
        communicating = sum(row["total_ns"] for row in kernels if COLLECTIVE.search(row["kernel"])) * scale
        small = self.small
        single = (row for row in kernels if row not in layouts and (row not in small or len(small) == 1))
        names = by_key(((row["kernel"], row["detail"]), row) for row in single)
        for (kernel, detail), rows in names.items():
            name = f"{kernel} ({detail})" if detail else kernel
            ns, count = (sum(row[key] for row in rows) for key in ("total_ns", "count"))
            step, ns = None, ns * scale
            if COLLECTIVE.search(kernel):
                part, ns = ns / communicating, ns * max(1 - waits / communicating, 0)
                if (alone := min(part * exposed, ns)) >= NOTICED * self.window_ns:
                    because = finding("alone", "no other kernel runs for {share:.0%} of its time", share=alone / ns)
                    kind = "hide_communication" if OF_GRADIENTS.search(kernel) else "start_ahead"
                    step = of_program(kind, 100 * ns / self.window_ns, because, {})
                    estimate = 100 * alone / self.window_ns if alone < MOSTLY * ns else None  # hidden by part already
                    step = step._replace(estimate_pct=estimate)
            else:
                judged = [each for row in rows for each in row["judged"]]
                library = library_of(name)
                step = _of_name(name, detail, ns / self.window_ns)
                step = step or self._of_verdicts(judged, scale, OF_CALLERS if library else None)
                if step is None and ns >= MATTERS * self.window_ns and (library or not judged):
                    kind, values = ("ask_for_another", {"library": library}) if judged else ("profile_kernel", {})
                    step = of_program(kind, None, Finding("unknown", {}, ""), values)
            self.row(Waste.KERNEL, ns, name, None, count, step)
        if layouts:
            ns, count = (sum(row[key] for row in layouts) for key in ("total_ns", "count"))
            self.add(Waste.LAYOUTS, ns * scale, count=count)
        doubles = [row for row in kernels if DOUBLES.search(row["kernel_full"] or "") and row not in small]
        ns, count = (sum(row[key] for row in doubles) for key in ("total_ns", "count"))
        if (ns := ns * scale) >= NOTICED * self.window_ns:
            because = finding("names", "by the names of {kernels} kernels; half as many bytes", kernels=len(doubles))
            self.add(Waste.DOUBLES, ns, count=count, estimate_ns=HALF_BYTES * ns, because=because)
        if len(small) > 1:
            ns, count = (sum(row[key] for row in small) for key in ("total_ns", "count"))
            words = "{kernels} kernels of less than {most_us:.0f} µs, {per_launch:.2g} µs each"
            because = finding("small", words, kernels=len(small), most_us=SHORT_US, per_launch=ns / count / 1e3)
            self.add(Waste.SMALL_KERNELS, ns * scale, count=count, because=because)

    def _of_verdicts(
        self, judged: Sequence[tuple[float, LaunchVerdict]], scale: float, only: Collection[str] | None
    ) -> Step | None:
        """The step of a kernel that saves most, its bound that of all its launches' first steps. judged: ns that each
        stands for. only: ids of steps; None for all."""
        saved: list[tuple[float, float, Step]] = []
        for ns, verdict in judged:
            for first in [step for step in verdict.steps if only is None or step.id in only][:1]:
                share = ns * scale / self.window_ns
                bound, size = (each if each is not None else 100.0 for each in (first.bound_pct, first.size_pct))
                if first.measured_pct is not None:
                    bound = size = first.measured_pct
                elif first.of_kernels and first.bound_pct:
                    # Its bound is the launch's own part of the kernels' time.
                    bound, size = 100.0, 100 * size / first.bound_pct
                saved.append((bound * share, size * share, first))
        if not saved:
            return None
        first = max(saved, key=lambda each: each[1])[2]
        bound, size = min(sum(each[0] for each in saved), 100.0), sum(each[1] for each in saved)
        measured = bound if all(step.measured_pct is not None for *_, step in saved) else None
        step_of_all = first._replace(of=TimeOf.PROGRAM, bound_source=None, measured_pct=measured)
        if all(step.size_pct is step.measured_pct is None for *_, step in saved):
            return step_of_all
        return step_of_all._replace(bound_pct=bound, estimate_pct=size if size < bound else None)

    def _of_ranks(self) -> tuple[float, float]:
        """Waiting for other ranks in collectives. Returns its ns, and for how long these communicated alone."""
        count = sum(each.collectives for each in self.late)
        behind = defaultdict[tuple[int, bool], list[tuple[Delay, Delay]]](list)
        for each in self.late:
            in_turns = self._in_turns(each)
            late = each if in_turns else self._behind(each)
            behind[late.rank, in_turns].append((each, late))
        for (rank, in_turns), waits in behind.items():
            ns, idle_ns = (sum(getattr(each, name) for each, _ in waits) for name in ("exposed_ns", "idle_ns"))
            longest, late = max(waits, key=lambda each: each[0].exposed_ns)
            values: Row = {"late_rank": rank, "doing": late.doing}
            words = "meanwhile rank {late_rank}: {doing}"
            if late.as_late:
                words += "; as late: {as_late:rank|ranks}"
                values["as_late"] = late.as_late
            if late is longest and not in_turns and late.doing.values["doing"] == KERNEL:
                words += "; work shared out evenly saves some {even:.0%}"
                values["even"] = late.even_ns / self.window_ns
            if ns:
                kind, because = "smaller_batches" if in_turns else None, finding("meanwhile", words, **values)
                self.add(Waste.RANKS, ns, f"rank {rank}", count=count, because=because, kind=kind)
                self.rows[-1]["idle_pct"] = 100 * (idle_ns if late is longest else late.idle_ns) / self.window_ns
        return sum(each.waited_ns for each in self.late), sum(each.transfer_ns for each in self.late)

    def _behind(self, late: Delay) -> Delay:
        """The delay behind one: where the rank that comes late does so out of another collective, that of the rank
        which it waited for there about as long."""
        met = {self.part.rank, late.rank}
        while late.doing.values["doing"] == COMMUNICATION:
            before = max(self.delays(late.rank), key=lambda each: each.exposed_ns, default=NOBODY)
            if before.rank in met or before.exposed_ns < HALF * late.exposed_ns:
                break
            met.add(before.rank)
            late = before
        return late

    def _in_turns(self, late: Delay) -> bool:
        """Whether a rank waits long for one that waits long itself, and so on round to one that was met: none of them
        is to be sped up alone. What a host holds up does not count."""
        met, waits = {self.part.rank}, self.late
        while sum(each.exposed_ns - each.idle_ns for each in waits) >= IN_TURNS * self.window_ns:
            if late.rank in met:
                return True
            met.add(late.rank)
            waits = self.delays(late.rank)  # seldom
            late = max(waits, key=lambda each: each.exposed_ns - each.idle_ns, default=NOBODY)
        return False

    def of_streams(self) -> None:
        """Streams that take turns although each kernel leaves room for another's."""
        busy, waits = sum(self.part.streams.values()), self.count(WAITS_ON_GPU)
        turns, each = self.part.switches, max(self.steps, 1)
        others = [ns for stream, ns in self.part.streams.items() if stream & 0xFFFFFFFF != NULL_STREAM]
        if len(self.part.streams) < 2 or not busy or self.part.side_by_side_ns > 0.05 * busy or turns < each:
            return
        words = "{streams} streams change {count:.3g} times a step, with "
        if waits >= turns / 2 and turns >= 2 * each:
            words += "{waits:.3g} calls of cudaStreamWaitEvent"
            communicating = sum(row["total_ns"] for row in self.kernels if COLLECTIVE.search(row["kernel"]))
            saves = max(busy - max(self.part.streams.values()) - communicating, 0)
        elif 1 < len(others) < len(self.part.streams):
            words += "work on the default stream between, which waits for the others as they do for it"
            saves = sum(others) - max(others)
        else:
            return
        because = finding("turns", words, streams=len(self.part.streams), count=turns / each, waits=waits / each)
        self.add(Waste.STREAMS, saves, f"{len(self.part.streams)} streams", count=turns, because=because)

    def idle_in(self) -> Finding | None:
        """The lines of Python in which the threads that launch were while the GPU was idle, by the part of that time,
        whichever rows have it. None where it seldom was, or most of the time nsys saw none."""
        if self.part.idle_ns < MATTERS * self.window_ns or not host_times(self.run).looks:
            return None
        pieces = [
            np.stack(piece)
            for table in ("kernels", "copies")
            for piece in of_device(self.run, table, self.part.device, "start_ns", "end_ns")
        ]
        by, starts, ends = np.concatenate(pieces, axis=1)
        by, starts, ends = (each[np.argsort(starts, kind="stable")] for each in (by, starts, ends))
        until = np.maximum.accumulate(ends)[:-1]
        # The next work, where it is known what launched it, ends a stretch of its thread.
        opens = np.flatnonzero((starts[1:] > until) & (by[1:] != NOTHING))
        labels = calls(self.run).thread[by[1:][opens]]
        idle = Stretches(until[opens], starts[1:][opens], labels).overlaps(self.at.begins, self.at.ends)
        lines = Counter[str]()
        for thread, number in self.threads.items():
            _, begins, stops = (each[idle[3] == number] for each in idle[:3])
            for work, ns in host_times(self.run).during(thread, begins, stops).items():
                lines[work.label] += ns
        most = [(line, ns) for line, ns in lines.most_common(MOST_LINES) if ns >= MATTERS * self.part.idle_ns and line]
        if sum(ns for _, ns in most) < HALF * self.part.idle_ns:
            return None
        told = ((line, ns / self.part.idle_ns) for line, ns in most)
        parts = tuple(finding("line", "{place} {share:.0%}", place=line, share=share) for line, share in told)
        return finding("idle_in", "Where the host was while the GPU was idle: {lines} of that time.", lines=parts)

    def launched_in(self) -> Finding | None:
        """The lines of Python in which the kernels are launched, by the part of the kernels' time: each kernel's, on a
        grid, is divided as the looks nearest to its launches are. None where nsys saw none, or too few."""
        host, traced = host_times(self.run), calls(self.run)
        kinds, places = dict[tuple[str | None, ...], int](), dict[str, int]()
        spent, placed = Counter[int](), [np.zeros((3, 0), np.int64)]
        columns = ("start_ns", "duration_ns", "kernel_full", "grid")
        pieces = of_device(self.run, "kernels", self.part.device, *columns) if host.looks else ()
        for by, starts, ns, (names, name), (grids, grid) in pieces:
            kind = np.empty(len(starts), np.int64)
            for code, rows in split(name * len(grids) + grid):
                kind[rows] = kinds.setdefault((names[code // len(grids)], grids[code % len(grids)]), len(kinds))
            within = np.flatnonzero(self.at.holds(starts) & (by != NOTHING))
            for number, rows in split(kind[within]):
                spent[number] += int(ns[within[rows]].sum())
            for thread, number in traced.threads.items():
                own = within[traced.thread[by[within]] == number]
                look, far_ns, works = host.near(thread, traced.starts[by[own]])
                near = far_ns <= (NEAR_NS if works else -1)
                place = np.array([places.setdefault(work.place, len(places)) for work in works], np.int64)
                placed.append(np.stack([kind[own][near], far_ns[near], place[look[near]]]))
        kind, far_ns, place = np.concatenate(placed, axis=1)
        lines, line_names = defaultdict[str, float](float), tuple(places)
        for number, rows in split(kind):
            by_distance = place[rows][np.argsort(far_ns[rows], kind="stable")]
            nearest = by_distance[: max(len(by_distance) // 8, FEW_LOOKS)].tolist()
            for line in nearest if len(nearest) >= FEWEST_LOOKS else ():
                lines[line_names[line]] += spent[number] / len(nearest)
        whole = spent.total()
        if not whole or sum(lines.values()) < MOSTLY * whole:
            return None
        most = sorted(lines.items(), key=lambda item: -item[1])[:MOST_LINES]
        shown = ((line, ns / whole) for line, ns in most if ns >= CALL_SHARE * whole)
        parts = tuple(finding("line", "{place} {share:.0%}", place=line, share=share) for line, share in shown)
        words = "Lines that launch the kernels, by nsys's Python samples: {lines} of their time."
        return finding("launched_in", words, lines=parts)

    def of_elementwise(self) -> None:
        """Elementwise kernels of a stream with no other between them, where they take time that counts."""
        small = {row["kernel_full"] for row in self.small}
        own = [row for row in self.kernels if ELEMENTWISE.match(row["kernel"]) and row["kernel_full"] not in small]
        if sum(row["total_ns"] for row in own) * self.scale < NOTICED * self.window_ns:
            return
        names, pieces = {row["kernel_full"] for row in own}, list[Ints]()
        columns = ("start_ns", "duration_ns", "stream", "kernel_full")
        for _, starts, ns, stream, (texts, code) in of_device(self.run, "kernels", self.part.device, *columns):
            pieces.append(np.stack([stream, starts, ns, np.array([text in names for text in texts])[code]]))
        stream, starts, ns, plain = np.concatenate(pieces, axis=1)
        order = np.lexsort((starts, stream))
        order = order[self.at.holds(starts[order])]
        # A row begins where the kernel before it is another, or on another stream.
        row = np.cumsum(np.append(0, (np.diff(plain[order]) != 0) | (np.diff(stream[order]) != 0)))
        first = np.flatnonzero(np.append(True, np.diff(row) != 0))
        sums, longest, shortest = (of.reduceat(ns[order], first) for of in (np.add, np.maximum, np.minimum))
        counts = np.diff(np.append(first, len(row)))
        several = (plain[order][first] > 0) & (counts > 1)
        if not several.any():
            return
        words = "rows of up to {most} kernels; as one, each takes its shortest's time at least, about its longest's"
        because = finding("rows", words, most=int(counts[several].max()))
        parts = sums, sums - shortest, sums - longest
        total, saves, estimate = (float(values[several].sum()) * self.scale for values in parts)
        saved = {"saves_ns": saves, "estimate_ns": estimate}
        self.add(Waste.ELEMENTWISE, total, count=int(counts[several].sum()), **saved, because=because)

    def of_recomputed(self) -> None:
        """Kernels of forward passes that are repeated for the backward pass: at most those that the thread which was
        seen to repeat them launches as often as others launch the like. Without them the GPU would also not be idle
        before them."""
        traced = calls(self.run)
        threads = [number for key, number in self.threads.items() if key in host_times(self.run).recomputing]
        if not threads:
            return
        table = self.run.table("kernels", ("start_ns", "end_ns", "device", "kernel_full", "grid", "block"))
        starts, ends, devices = map(numbers, table.columns[:3])
        on_device = np.flatnonzero((devices == self.part.device) & self.at.holds(starts))
        on_device = on_device[np.argsort(starts[on_device])]
        starts, ends, by = starts[on_device], ends[on_device], calls(self.run).of("kernels")[on_device]
        kinds = np.stack([coded(column)[1][on_device] for column in table.columns[3:]])
        kind = np.unique(kinds, axis=1, return_inverse=True)[1].ravel()
        again = (by != NOTHING) & np.isin(traced.thread[by], threads)
        most = np.maximum.accumulate(ends)
        until_ns = np.diff(most, prepend=starts[:1])  # from the end of the kernel before
        count, others = (np.bincount(kind[here], minlength=kind.max() + 1) for here in (again, ~again))
        part = np.minimum(count, others) / np.maximum(count, 1)
        ns, saves = (float((part[kind[again]] * each[again]).sum()) for each in (ends - starts, until_ns))
        if (ns := ns * self.scale) < NOTICED * self.window_ns:
            return
        held = sum(int(held.max()) for (of, _), (_, held) in device_memory(self.run).items() if of == self.part.device)
        environment = self.run.environment
        room = environment("gpu", "memory_bytes") or environment("gpu_state", "before", "memory_total_bytes")
        times = int(np.minimum(count, others).sum())
        if room and held >= FULL * room:
            self.row(Waste.RECOMPUTED, ns, None, None, times, None)
            return
        words = "{held_gb:.3g} of {room_gb:.3g} GB of the GPU's memory are used" if held and room else ""
        because = finding("memory", words, held_gb=held / 1e9, room_gb=(room or 0) / 1e9)
        self.add(Waste.RECOMPUTED, ns, count=times, saves_ns=saves, because=because)

    # In words

    def steady_words(self) -> Finding:
        """Which part it is about."""
        at, activity = self.at, self.part
        others = outside(self.run)[activity.device].window_ns if at.by is not By.WHOLE else 0
        values: Row = {
            "steps": self.steps, "step_ms": (at.step_ns or 0.0) / 1e6, "steady_ms": activity.window_ns / 1e6,
            "window_ms": (activity.window_ns + others) / 1e6, "name": at.name,
        }  # fmt: skip
        words = "Steady part: {steps:step|steps}" + (", one every" if self.steps > 1 else " of")
        words += " {step_ms:,.3f} ms ({name}), "
        words += "{steady_ms:,.1f} of {window_ms:,.1f} ms."
        if at.by is By.WHOLE:
            repeats = steady(self.run)[activity.device].by is not By.WHOLE
            words = "The whole trace, {window_ms:,.1f} ms" + ("." if repeats else ": nothing in it repeats.")
        elif at.by is By.MEASURE:
            words = "Measured part: {steady_ms:,.1f} of {window_ms:,.1f} ms."
        if self.steps:
            ends = at.ends[np.searchsorted(at.begins, at.steps, side="right") - 1]
            lengths = np.minimum(np.append(at.steps[1:], ends[-1]), ends) - at.steps
            longest = np.sort(lengths)[::-1]
            held = np.cumsum(longest) / activity.window_ns
            count = int(np.searchsorted(held, HALF)) + 1
            if count <= FEW_LONG * self.steps and longest[count - 1] > LONGER * np.median(lengths):
                values |= {"long_steps": count, "long_share": float(held[count - 1])}
                words += " {long_steps:of the steps takes|of the steps take} {long_share:.0%} of it: see fiprof story."
        return Finding(at.by.value, values, words)

    def startup(self) -> Finding | None:
        """What took the time outside the steady part."""
        if self.at.by is By.WHOLE:
            return None
        other = outside(self.run)[self.part.device]
        sums = sums_by_key((self._waste(why, 0.0)[0], ns) for why, ns in other.causes.items())
        sums[Waste.KERNEL], sums[Waste.COPIES] = other.kernels_ns, other.only_copies_ns
        if (total := other.window_ns) < LEAST_OUTSIDE_NS:
            return None
        shown = [
            finding("part", "{cause} {share:.0%}", cause=cause, share=ns / total)
            for cause, ns in sorted(sums.items(), key=lambda item: -item[1])[:3]
            if ns >= CALL_SHARE * total
        ]
        words = "Outside it: {outside_ms:,.1f} ms: {causes}."
        values: Row = {"outside_ms": total / 1e6, "causes": tuple(shown)}
        seen = (host_times(self.run).during(thread, begins, ends).items() for thread, begins, ends, _ in other.host)
        doing = sums_by_key((work.label, ns) for work, ns in chain.from_iterable(seen) if work.label)
        most = max(doing, key=doing.__getitem__, default="")
        if doing.get(most, 0) >= HALF * total:
            words += " Most of it in {most}."
            values["most"] = most
        if self.at.early and self.at.step_ns is not None:
            first, *others = np.diff([*self.at.early, int(self.at.begins[0])]).tolist()
            # Many steps before the steady part, those of another phase, have a usual length of their own.
            usual_ns = float(np.median(others)) if len(others) >= FEWEST_STEPS else self.at.step_ns
            values |= {"first_step_excess_ms": (first - usual_ns) / 1e6, "early_steps": len(self.at.early)}
            if first - usual_ns >= LEAST_OUTSIDE_NS:
                words += " The first step" if not others else " The first of the {early_steps} steps before it"
                words += " takes {first_step_excess_ms:,.1f} ms more than "
                words += "the others." if len(others) >= FEWEST_STEPS else "usual."
        return finding("startup", words, **values) if shown else None

    def answer(self, ranking: Sequence[Row]) -> Finding:
        """The first row as a sentence."""
        activity = self.part
        values: Row = {name: getattr(activity, name) for name in ("rank", "device")}
        values["idle_share"] = activity.idle_ns / self.window_ns
        words = "The GPU is idle" if activity.rank is None else "Rank {rank}: the GPU is idle"
        of = "time" if self.at.by is By.WHOLE else "measured part" if self.at.by is By.MEASURE else "steady part"
        words += " for {idle_share:.0%} of the " + of
        if self.steps:
            words += " ({steps:step|steps})"
            values["steps"] = self.steps
        if (copies_share := activity.only_copies_ns / self.window_ns) > NOTICED:
            words += ", and copies without running a kernel for {copies_share:.0%}"
            values["copies_share"] = copies_share
        words += "."
        if not ranking:
            return finding("nothing", words, **values)
        row = ranking[0]
        step: Step | None = row["step"]
        told = ("cause", "name", "range", "share", "per_step", "bound_pct", "estimate_pct")
        values |= {key: row[key] for key in told}
        words += " First: {cause}"
        words += " ({name})" if row["name"] else ""
        words += " in {range}" if row["range"] and row["range"] != row["name"] else ""
        first_steps = row["name"] == FIRST_STEPS
        idle = "" if row["cause"] in OF_GPU or first_steps else "idle for "
        of = "time of all steps" if first_steps else of
        words += f", {idle}{{share:.0%}}" + (f" of the {of}" if first_steps else "")
        if step is None:
            return finding("no_step", words + ".", **values)
        values |= {"step": step.id, "action": step.action, "basis": step.basis}
        if step.bound_pct is None:
            return finding("first", words + ". {action}" + (" ({basis})." if step.basis.words else "."), **values)
        if step.measured_pct is not None:
            words += ". {action} (saved {bound_pct:.3g}% of the " + of + ": measured, {basis})."
            return finding("first", words, **values)
        words += ". {action} (saves at most {bound_pct:.3g}% of the " + of
        words += ", {estimate_pct:.3g}% by estimate" if step.estimate_pct is not None else ""
        words += ", as the host then launches ahead" if saves_more(row) and row["cause"] is not Waste.LAUNCHES else ""
        return finding("first", words + (": {basis})." if step.basis.words else ")."), **values)


def _of_name(name: str, detail: str, share: float) -> Step | None:
    """The step of a kernel that its name tells: by BY_NAME, or as a matrix product of CUTLASS's on tensor cores whose
    rows can be read by one or two elements at a time alone. share: its part of the time."""
    for kind, named in BY_NAME.items():
        if named.search(name) and share >= NOTICED:
            return of_program(kind, None, Finding("named", {}, ""), {})
    if (found := NARROW.match(detail)) is None:
        return None
    words = "its name says that rows allow {elements:element|elements} a load"
    return of_program("pad_rows", 100 * share, finding("alignment", words, elements=int(found[1])), {})


def folded(ranges: Mapping[str | None, int]) -> dict[str | None, int]:
    """ns by range, ranges whose names differ in numbers alone as one."""
    alike = {path: path and re.sub(r"\d+", "*", path) for path in ranges}
    count = Counter(alike.values())
    return sums_by_key((path if count[alike[path]] == 1 else alike[path], ns) for path, ns in ranges.items())


def where(ranges: Mapping[str | None, int]) -> str | None:
    """The innermost range that holds most of the time; None outside all."""
    merged = folded(ranges)
    total, path = sum(merged.values()), ""
    while True:
        below: dict[str, int] = defaultdict(int)
        for each, ns in merged.items():
            if each is not None and f"{each}{SEPARATOR}".startswith(path) and each != path.removesuffix(SEPARATOR):
                below[path + each[len(path) :].partition(SEPARATOR)[0]] += ns
        best = max(below, key=below.__getitem__, default="")
        if not best or below[best] < MOSTLY * total:
            return path.removesuffix(SEPARATOR) or None
        path = best + SEPARATOR
