"""Quantities of a case: what its iterations took by each tool, and the least that it needs, with their provenance.

Each is a function of a run and a case id that gives a traced number, or None where the run does not have it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from fiprof.model.arrays import Kinds, arrow, coded, numbers
from fiprof.model.finding import RATIO, SUM, Provenance, TracedNumber
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import (
    BESIDE,
    DURATION,
    QUANTITIES,
    STALL_SHARE,
    Formula,
    Key,
    calculated,
    number,
    quantity,
    table,
    unit_text,
)
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Launch, Run, once
from fiprof.model.selection import by_key
from fiprof.model.spans import side_by_side, split, union_by, within
from fiprof.model.times import Times, measured, slowest, summarize
from fiprof.model.work import FLOAT_OPS_WITHOUT_CONVERSIONS, TENSOR_OPS, main_work, peak_of
from fiprof.text import csv_rows

CaseNumber = Callable[[Run, str], TracedNumber | None]  # of a case id; None where the run does not have it
DEVICE_BITS, STREAM_BITS = 8, 24  # of the key of a stream: process, GPU and stream


@once
def busy_times(run: Run) -> dict[str, tuple[Times, float]]:
    """Case id -> time of an iteration in which a kernel or a copy ran, in the phase ``measure``, and the median time
    from the begin of one's work to that of the next, µs (nan for one alone); empty without nsys."""
    ranks, kinds, parts = ranks_of(run), Kinds(), [(np.empty(0, np.int64),) * 3]
    for name in ("kernels", "copies"):
        for piece in run.pieces(name, ("start_ns", "end_ns", "phase", "case", "iteration", "pid", "device")):
            work = piece.take(arrow(measured(piece)))
            rank = np.zeros(work.num_rows, np.int64)
            if ranks.several:
                rank = np.maximum(ranks.of_rows(work.select(["pid", "device"])), 0)
            of = kinds.of(work.select(["case"]), rank=rank, iteration=numbers(work["iteration"]))
            parts.append((of, numbers(work["start_ns"]), numbers(work["end_ns"])))
    of, starts, ends = union_by(*map(np.concatenate, zip(*parts, strict=True)))
    working_ns = np.bincount(of, ends - starts, len(kinds.numbers))  # exact below 2^53 ns
    begins = starts[np.unique(of, return_index=True)[1]]
    by_rank = by_key(((case, rank), number) for number, (case, rank, _) in enumerate(kinds.numbers))
    # The ranks' GPUs work at the same time: an iteration takes as long as the slowest one.
    of_ranks = (
        {case: (times, float(np.median(np.diff(np.sort(begins[rows])))) / 1e3 if len(rows) > 1 else math.nan)}
        for (case, _), rows in by_rank.items()
        if (times := summarize(working_ns[rows] / 1e3))
    )
    return slowest(of_ranks, lambda each: each[0].median_us)


def overlap_share(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """BESIDE of a kernel in a case; None without nsys."""
    share = overlap_shares(run).get((case, kernel))
    source = Provenance("nsys", "100 * sum(beside_ns) / sum(duration_ns)", case=case, kernel=kernel)
    return None if share is None else TracedNumber(100 * share, source, ".0f", "%")


@once
def overlap_shares(run: Run) -> dict[tuple[str | None, str], float]:
    """(Case id, kernel) -> share of its time under nsys, 0 to 1, in which a kernel of another stream of the same
    process ran on the same GPU: ncu runs kernels alone. Kernels of set-up and warm-up are left out.

    Kernels of one stream do not count, though a programmatic dependent launch starts one before the other has ended.
    Empty without nsys.
    """
    if not run.row_count("kernels"):
        return {}
    table = run.table("kernels", ("start_ns", "end_ns", "device", "stream", "pid", "phase", "case", "kernel"))
    starts, ends, device, stream, pid = map(numbers, table.columns[:5])
    gpu = pid << DEVICE_BITS | np.maximum(device, 0)
    stream = gpu << STREAM_BITS | np.maximum(stream, 0) & (1 << STREAM_BITS) - 1
    shared_ns = np.zeros(len(starts))
    for _, rows in split(gpu):
        if np.ptp(stream[rows]):
            shared_ns[rows] = within(side_by_side(stream[rows], starts[rows], ends[rows]), starts[rows], ends[rows])
    phases, phase = coded(table["phase"])
    counted, kinds = np.array([text not in ("setup", "warmup") for text in phases])[phase], Kinds()
    kind = kinds.of(table.select(["case", "kernel"]))
    shared, whole = (np.bincount(kind, each * counted, len(kinds.numbers)) for each in (shared_ns, ends - starts))
    return {
        (case, kernel or ""): float(shared[number] / whole[number])
        for (case, kernel), number in kinds.numbers.items()
        if whole[number]
    }


@dataclass(frozen=True)
class CaseQuantity(Key):
    """A number of a case; its row of ``quantities.csv`` says its unit, format and meaning."""

    spec: str  # format for people
    trace: CaseNumber  # the number, in any format

    def traced(self, run: Run, case: str | None) -> TracedNumber | None:
        """The number with its provenance; None without it. case: its id."""
        # Every launch of a case asks for it, and it is made of all of them.
        traced = None if case is None else run.once(self.trace, case)
        return traced and traced.as_(self.spec, unit_text(self.unit))

    def of(self, run: Run, case: str | None) -> float | None:
        """The number in its unit."""
        traced = self.traced(run, case)
        return None if traced is None else traced.value


def _quantity(key: str, trace: CaseNumber) -> CaseQuantity:
    row = table()[key]
    return CaseQuantity(key, row["unit"], row["meaning"], row["format"], trace, title=row["title"])


def _ratio(key: str, formula: str, part: CaseNumber, whole: CaseNumber) -> CaseQuantity:
    """The quantity that is a formula over two numbers of the case, a (part) and b (whole); None where a is 0."""

    def trace(run: Run, case: str) -> TracedNumber | None:
        amount = part(run, case)
        return calculated(formula, amount, whole(run, case)) if amount and amount.value else None

    return _quantity(key, trace)


# What an iteration took


def timed(times: Times | None, of: Provenance) -> tuple[TracedNumber | None, TracedNumber | None]:
    """Median (µs) and spread ((p90 - p10) / median) of durations, with where they come from."""
    if times is None:
        return None, None
    in_us = "" if of.origin == "plain" else " / 1000"
    return (
        TracedNumber(times.median_us, of._replace(formula=f"median({of.formula}){in_us}"), ",.2f", " µs"),
        TracedNumber(times.spread, of._replace(formula=f"spread({of.formula})"), ".1%"),
    )


def _plain(run: Run, case: str) -> tuple[TracedNumber | None, TracedNumber | None]:
    return timed(run.plain.get(case), Provenance("plain", "gpu_us", case=case))


def _iteration(run: Run, case: str) -> tuple[TracedNumber | None, TracedNumber | None]:
    """Median and spread of an iteration's kernel time under nsys."""
    traced = run.trace.cases.get(case)
    return timed(traced and traced.iteration, Provenance("nsys", "iteration_ns", case=case))


def kernel_times(run: Run, case: str | None, kernel: str) -> tuple[TracedNumber | None, TracedNumber | None]:
    """Median and spread of a kernel's executions in a case under nsys."""
    source = Provenance("nsys", "duration_ns", case=case, kernel=kernel)
    return timed(run.trace.kernels.get((case or "", kernel)), source)


def _under_ncu(run: Run, case: str) -> TracedNumber | None:
    """Kernel time of an iteration under ncu, the median of the iterations; None where a launch has no duration."""
    durations = [(launch.iteration, launch.traced(DURATION)) for launch in run.launches_of[case]]
    by_iteration = by_key((iteration, us) for iteration, us in durations if us is not None)
    if not durations or None in (us for _, us in durations):
        return None
    totals = [_together(SUM, sum, each) for each in by_iteration.values()]
    return _together("median(parts)", median, totals)


def _together(formula: str, of: Callable[[list[float]], float], numbers: Sequence[TracedNumber]) -> TracedNumber:
    """Several numbers as one, written as the first."""
    if len(numbers) == 1:
        return numbers[0]
    source = Provenance("facts", formula, parts=tuple(number.source for number in numbers))
    return TracedNumber(of([number.value for number in numbers]), source, numbers[0].spec, numbers[0].unit)


def _wall(run: Run, case: str) -> TracedNumber | None:
    wall_us = run.baseline[case].wall_us if case in run.baseline else float("nan")
    return TracedNumber(wall_us, Provenance("plain", "wall_us", case=case)) if wall_us == wall_us else None


def _kernels(run: Run, case: str) -> TracedNumber | None:
    of = run.trace.cases.get(case)
    return TracedNumber(of.executions, Provenance("nsys", "executions / iterations", case=case)) if of else None


def _peak_memory(run: Run, case: str) -> TracedNumber | None:
    peak = run.baseline[case].peak_memory_bytes if case in run.baseline else None
    return None if peak is None else TracedNumber(peak, Provenance("plain", "peak_memory_bytes", case=case))


def _busy(run: Run, case: str) -> TracedNumber | None:
    """Working time of an iteration by nsys; without a trace the kernels' time by ncu."""
    times, _ = busy_times(run).get(case, (None, 0.0))
    busy, _ = timed(times, Provenance("nsys", "iteration_busy_ns", case=case))
    return busy or NCU.traced(run, case)


NOT_IN = "max(100 * (1 - a / b), 0)"  # percent of a whole time that is not in a part of it
PLAIN = _quantity("case_plain_us", lambda run, case: _plain(run, case)[0])
PLAIN_SPREAD = _quantity("case_plain_spread", lambda run, case: _plain(run, case)[1])
WALL = _quantity("case_wall_us", _wall)
NSYS = _quantity("case_nsys_us", lambda run, case: _iteration(run, case)[0])
NSYS_SPREAD = _quantity("case_nsys_spread", lambda run, case: _iteration(run, case)[1])
NCU = _quantity("case_ncu_us", _under_ncu)
KERNEL_TIME = _quantity("case_kernel_us", lambda run, case: NSYS.traced(run, case) or NCU.traced(run, case))
BUSY = _quantity("case_busy_us", _busy)
COPYING = _ratio("case_copying_pct", NOT_IN, NSYS.traced, BUSY.traced)
KERNELS = _quantity("case_kernels", _kernels)
PEAK_MEMORY = _quantity("case_peak_memory_bytes", _peak_memory)
WAITING = _ratio("case_waiting_pct", NOT_IN, BUSY.traced, WALL.traced)


def kernels(run: Run, case: str) -> int | None:
    """Kernels of an iteration that ncu saw; under nsys where ncu saw none."""
    per_iteration = run.per_iteration(case, lambda _: 1.0)
    if per_iteration is None and (traced := run.trace.cases.get(case)):
        per_iteration = traced.executions
    return None if per_iteration is None else round(per_iteration)


# What a case needs at the least, by its workload's cost model


def _least(*names: str) -> CaseNumber:
    """Gives the sum of some numbers of a case's cost model in run.json."""

    def trace(run: Run, case: str) -> TracedNumber | None:
        entry, source = run.case(case), Provenance("run.json", " + ".join(names), case=case)
        return TracedNumber(sum(getattr(entry, name) for name in names), source) if entry else None

    return trace


def _longest(run: Run, case: str) -> Launch | None:
    """The launch of a case that took most time under ncu."""
    return max(run.launches_of[case], key=lambda launch: launch.duration_us or 0.0, default=None)


def _peak(launch: Launch | None, of: Formula | None) -> TracedNumber | None:
    """A peak rate (operations or bytes a second) at a launch's clocks; None where it is not known or 0."""
    peak = of.value(launch) if launch is not None and of is not None else None
    if launch is None or of is None or not peak:
        return None
    return TracedNumber(peak, Provenance("ncu", launch.written(of), launch=launch.launch))


def _compute_peak(run: Run, case: str) -> TracedNumber | None:
    longest = _longest(run, case)
    work = None if longest is None else main_work(longest)
    return _peak(longest, None if work is None else peak_of(work))


def _time(run: Run, case: str) -> TracedNumber | None:
    return NCU.traced(run, case) or NSYS.traced(run, case)


MODEL_FLOPS = _quantity("case_model_flops", _least("flops"))
MODEL_BYTES = _quantity("case_model_bytes", _least("bytes_read", "bytes_written"))
MODEL_TFLOPS = _ratio("case_model_tflops", "a / b / 1e6", MODEL_FLOPS.traced, _time)
MODEL_TFLOPS_SHARE = _ratio("case_model_tflops_roof_share", "a * 1e12 / b", MODEL_TFLOPS.traced, _compute_peak)
MODEL_GB_PER_S = _ratio("case_model_gb_per_s", "a / b / 1e3", MODEL_BYTES.traced, _time)
MODEL_GB_PER_S_SHARE = _ratio(
    "case_model_gb_per_s_roof_share",
    "a * 1e9 / b",
    MODEL_GB_PER_S.traced,
    lambda run, case: _peak(_longest(run, case), Formula("dram_peak")),
)
MODEL_INTENSITY = _ratio("model_flop_per_byte", "a / b", MODEL_FLOPS.traced, MODEL_BYTES.traced)


def work_factor(run: Run, case: CaseEntry) -> TracedNumber | None:
    """Operations that ncu counted in an iteration over those of the cost model, as the check ``flops`` takes them:
    tensor operations where there are any, else those outside the tensor cores without half additions.

    None without a cost model, and where ncu saw several iterations or did not count.
    """
    (counted, tensor), launches = counted_ops(run, case), run.launches_of[case.id]
    if counted is None or not case.flops or len({launch.iteration for launch in launches}) > 1:
        return None
    ops = TENSOR_OPS if tensor else FLOAT_OPS_WITHOUT_CONVERSIONS
    parts = [Provenance("ncu", launch.written(ops), launch=launch.launch) for launch in launches]
    source = Provenance("facts", RATIO, parts=(*parts, Provenance("run.json", "flops", case=case.id)))
    return TracedNumber(counted / case.flops, source)


def counted_ops(run: Run, case: CaseEntry) -> tuple[float | None, bool]:
    """Operations that ncu counted in an iteration, and whether they are tensor operations: those where there are any,
    else those of the other pipes without half additions. None where they were not counted."""
    tensor = run.per_iteration(case.id, TENSOR_OPS.value)
    return (tensor, True) if tensor else (run.per_iteration(case.id, FLOAT_OPS_WITHOUT_CONVERSIONS.value), False)


def excess_ops(run: Run, case: CaseEntry) -> float | None:
    """Operations that ncu counted in an iteration over those that the case needs; None where either is not known."""
    counted, _ = counted_ops(run, case)
    return counted / case.flops if counted and case.flops else None


def excess_bytes(run: Run, case: CaseEntry) -> float | None:
    """DRAM bytes that ncu counted in an iteration over those that the case needs; None where either is not known."""
    moved, least = run.per_iteration(case.id, Formula("dram_bytes").value), case.bytes_read + case.bytes_written
    return moved / least if moved is not None and least else None


# The least that an iteration takes on its GPU, and how much of DRAM's peak its kernel uses
#
# ncu counts one launch with cold caches, and what a launch writes may still lie in L2 when it ends: an RMSNorm of
# 33.6 MB wrote 13.5 of them to DRAM. In a loop all of it crosses. So DRAM's use is the larger of two: what ncu counted,
# and the bytes that the workload has to move over the time that its loop takes. The second holds only where these bytes
# have to cross DRAM in each iteration: not where all of them fit into L2, where a loop finds them again.

MAIN_SHARE = 0.9
"""Share of its iteration's kernel time under ncu from which a kernel is the case's main one: it is taken to move the
case's least bytes, in the time of the whole iteration."""


class DramUse(NamedTuple):
    """How much of DRAM's peak a launch uses, percent: two lower bounds, of which the larger counts."""

    quantity: Key  # the larger one's: DRAM_FLOOR, or ncu's dram_throughput_pct
    number: TracedNumber
    by_ncu: TracedNumber | None


def dram_use(run: Run, launch: Launch) -> DramUse | None:
    """How much of DRAM's peak a launch uses; None where neither bound is known.

    The floor is left out where the bytes may stay in L2, and for a kernel that is not the case's main one.
    """
    by_ncu = launch.traced(quantity("dram_throughput_pct"))
    by_floor = DRAM_FLOOR.traced(run, launch.case) if is_main(run, launch) else None
    if by_floor is not None and (by_ncu is None or by_floor.value > by_ncu.value):
        return DramUse(DRAM_FLOOR, by_floor, by_ncu)
    return None if by_ncu is None else DramUse(quantity("dram_throughput_pct"), by_ncu, by_ncu)


class Floor(NamedTuple):
    """The least time of an iteration of a case, µs, by its cost model and the peaks of the launch that takes most of
    it, at the clocks measured during that."""

    warm: TracedNumber  # what it takes in a loop: the kernels' time under nsys, else the plain one
    of_bytes: TracedNumber | None
    """Least bytes over DRAM's peak; None where they may stay in L2, or something is not known."""
    of_work: TracedNumber | None
    """Least operations over the peak of the longest kernel's main kind of work (of a tensor kind, its fastest dense
    instruction's); None where something is not known."""

    def saving_pct(self, *, other_work: bool = False) -> TracedNumber | None:
        """The most that anything can save of the warm time, percent.

        other_work: for steps that move the operations to another kind (tensor cores, a smaller type): the floor of the
        operations does not apply to them. None without a floor.
        """
        floors = [each for each in (self.of_bytes, None if other_work else self.of_work) if each is not None]
        saving = calculated("100 * (1 - a / b)", max(floors, key=lambda each: each.value, default=None), self.warm)
        return saving and saving.as_(".0f", "%")


def floor(run: Run, case: str) -> Floor | None:
    """The least time of an iteration of a case; None where no loop was timed or nothing of it is known."""
    longest = _longest(run, case)
    # Kernels shorter than 30 µs are timed by nsys to 0.1 µs, where two CUDA events by themselves are some 2 µs.
    warm = NSYS.traced(run, case) or PLAIN.traced(run, case)
    if warm is None or warm.value <= 0 or longest is None:
        return None

    def least_time(amount: TracedNumber | None, most: Formula) -> TracedNumber | None:
        """An amount at a peak rate, µs; None where the case took less time: then it needs less than that."""
        time = calculated("1e6 * a / b", amount, _peak(longest, most))
        return time.as_(",.2f", " µs") if time is not None and 0 < time.value <= warm.value else None

    work, moved, cache = main_work(longest), MODEL_BYTES.traced(run, case), number(longest, "l2_bytes")
    crosses = moved is not None and cache is not None and moved.value > cache
    of_bytes = least_time(moved, Formula("dram_peak")) if crosses else None
    of_work = None if work is None else least_time(MODEL_FLOPS.traced(run, case), peak_of(work, fastest=True))
    return None if of_bytes is None and of_work is None else Floor(warm, of_bytes, of_work)


DRAM_FLOOR = _quantity(
    "case_dram_floor_pct",
    lambda run, case: calculated("100 * a / b", of.of_bytes, of.warm) if (of := run.once(floor, case)) else None,
)
LARGEST_SAVING = _quantity(
    "case_largest_saving_pct", lambda run, case: found.saving_pct() if (found := run.once(floor, case)) else None
)


def is_main(run: Run, launch: Launch) -> bool:
    """Whether the launch takes MAIN_SHARE of its iteration's time under ncu or more."""
    count, together_us = iterations(run)[launch.case, launch.iteration]
    traced = run.trace.cases.get(launch.case or "")
    if launch.duration_us is None or (traced is not None and traced.executions > count):
        return False  # ncu was asked for some of the kernels only
    return launch.duration_us >= MAIN_SHARE * together_us


@once
def iterations(run: Run) -> dict[tuple[str | None, int | None], tuple[int, float]]:
    """Case and iteration -> how many launches ncu has of it, and their time, µs."""
    of = by_key(((launch.case, launch.iteration), launch.duration_us or 0.0) for launch in run.launches)
    return {key: (len(times_us), sum(times_us)) for key, times_us in of.items()}


_OTHERS = [Key(**row) for row in csv_rows(Path(__file__).with_name("keys.csv")).values()]
_OF_CASES = [each for each in list(vars().values()) if isinstance(each, CaseQuantity)]
KEYS: dict[str, Key] = {key.key: key for key in (*_OTHERS, STALL_SHARE, BESIDE, *QUANTITIES.values(), *_OF_CASES)}
"""Every key of the JSON output, with its unit and meaning: one key a quantity, the same in every command.

``quantities.csv`` has those of launches and cases, ``keys.csv`` the rest. docs/keys.md is made from all of them and
from the columns that are declared with a meaning; a test compares the page with the output.
"""
