"""How sure the numbers of a run are: the checks that it makes on itself, one function each, and what failed of them.

The thresholds are fiprof's own choice, wide enough for what healthy runs on an H200 show.
"""

import contextlib
import csv
import dataclasses
import functools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.arrays import finite_rows
from fiprof.model.finding import Finding, Phrase, Value, plain
from fiprof.model.manifest import CaseEntry, Reference
from fiprof.model.quantities import DURATION, Formula, Row, number
from fiprof.model.run import Run, once
from fiprof.model.selection import title

PLAIN_TOLERANCE = 0.10
"""Of the plain time, between it and nsys's."""
PLAIN_OVERHEAD_US = 3.0
"""What CUDA events and a launch gap add to the plain time, for each kernel of an iteration."""
NCU_LOW, NCU_HIGH = 0.8, 1.5
"""ncu's duration over nsys's: ncu flushes the caches and may lock the clocks, so it is rather the longer."""
NCU_ALLOWANCE_US = 2.0
"""Difference of the two that is always allowed."""
LATENCY_TOLERANCE = 0.02
"""Of the warp latency, between it and the sum of the stalls."""
FLOPS_LOW, FLOPS_HIGH = 0.9, 2.5
"""Counted over modelled operations: whole tiles on a causal diagonal, softmax and square roots come on top."""
DRAM_LOW = 0.9
"""Counted bytes over the least that the algorithm needs."""
SPREAD_HIGH = 0.10
"""(p90 - p10) / median over the iterations."""
SPREAD_ALLOWANCE_US = 1.0
"""(p90 - p10) that is always allowed."""
CLOCK_LOW = 0.8
"""Multiprocessor clock during a launch over the highest."""
TRACE_CLOCK_HIGH_US = 1000.0
"""What a trace's clock may be off. Session starts of one H200 machine lay 0.1 ms apart; NTP holds machines to 1 ms."""


class CheckName(StrEnum):
    """The checks; which numbers each has beside its value stands at its function."""

    OTHER_PROCESSES = "other_processes"
    REFERENCE = "reference"
    NSYS_VS_PLAIN = "nsys_vs_plain"
    SPREAD = "spread"
    PROFILED = "profiled"
    FLOPS = "flops"
    DRAM_READS = "dram_reads"
    DRAM_WRITES = "dram_writes"
    NCU_VS_NSYS = "ncu_vs_nsys"
    STALL_SUM = "stall_sum"
    SAMPLE_SUM = "sample_sum"
    DROPPED_SAMPLES = "dropped_samples"
    SM_CLOCK = "sm_clock"
    TRACE_STARTS = "trace_starts"
    TRACE_GAP = "trace_gap"
    TRACE_HOSTS = "trace_hosts"
    TRACE_CLOCKS = "trace_clocks"
    TRACE_TIMES = "trace_times"


SAMPLING = (CheckName.SAMPLE_SUM, CheckName.DROPPED_SAMPLES)
"""Those about a launch's warp samples."""

NAMED: Mapping[str, Mapping[str, str]] = {
    "why": {
        "imported": "the run was imported: it has no plain run, and nobody looked at the GPU meanwhile",
        "no_gpu_state": "the driver did not say what else was on the GPU",
        "no_reference": "the result was not compared with a reference",
        "no_plain_time": "there is no time without a profiler to compare",
        "no_nsys_time": "there is no time under nsys to compare",
        "few_iterations": "fewer than three iterations were timed",
        "nothing_profiled": "ncu profiled nothing in this run",
        "case_not_profiled": "ncu did not profile this case",
        "no_operations": "ncu counted no operations, or the case has no cost model",
        "no_dram_reads": "ncu counted no DRAM reads, or the case has no cost model",
        "no_dram_writes": "ncu counted no DRAM writes, or the case has no cost model",
        "no_l2_size": "the size of L2 is not known, and it may hold what was written",
        "fits_in_l2": "what the case writes fits in L2 and need not reach DRAM while it runs",
        "no_kernel_time": "nsys has no time of this kernel in this case",
        "no_stalls": "ncu did not collect the stall ratios and the warp latency",
        "not_sampled": "ncu did not sample the warps",
        "no_clock": "the clock during the launch or the highest one is not known",
        "no_session_start": "not every trace says when its session began",
        "no_collectives": "the traces have no collective in common that would tell",
    },
    "operations": {"tensor": "tensor operations", "other": "operations outside the tensor cores"},
    "timed": {"nsys": "under nsys", "plain": "without a profiler"},
    "caches": {
        "flushed": (
            "although the caches were flushed; the cost model is wrong for this kernel, or an earlier one filled L2"
        ),
        "kept": "part of the data was in L2 already, so DRAM is not this kernel's roof",
    },
}
"""Value of a check -> the names that it may have, each in words. why: that it could not be made. operations: which were
counted. timed: what iterations were timed with. caches: what ncu did with them before each kernel."""


@dataclass(frozen=True)
class Check:
    """One check, a row of the table ``checks``."""

    check: CheckName
    passed: bool | None = None
    """None where there was not enough to tell."""
    value: float | None = None
    """What was found."""
    low: float | None = None
    """Smallest value that passes; None for none."""
    high: float | None = None
    """Largest value that passes; None for none."""
    unit: str = ""
    """Of value, low and high."""
    case: str | None = None
    """Case id; None where it is about the whole run."""
    launch: int | None = None
    """ncu's launch ID; None where it is about more."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """What else goes into its words; of NAMED a name."""

    @property
    def finding(self) -> Finding:
        """For words and for JSON: of the kind of the check, with its outcome; else of the kind of what was missing."""
        if "why" in self.values:
            why = str(self.values["why"])
            return Finding(why, {"check": self.check}, NAMED["why"][why])
        below = self.low is not None and self.value is not None and self.value < self.low
        outcome = "passed" if self.passed else "too_low" if below else "too_high"
        own = {name: getattr(self, name) for name in ("value", "low", "high", "unit", "case", "launch")}
        more = {
            name: Phrase(str(value), NAMED[name][str(value)]) if name in NAMED else value
            for name, value in self.values.items()
        }
        values = {"outcome": outcome, **{name: value for name, value in own.items() if value is not None}, **more}
        return Finding(self.check, values, words()[self.check][outcome])


@functools.cache
def words() -> dict[str, dict[str, str]]:
    """``checks.csv``: check -> what it holds, and its finding by outcome."""
    text = Path(__file__).with_name("checks.csv").read_text(encoding="utf-8")
    return {row["check"]: row for row in csv.DictReader(text.splitlines())}


def judge(
    check: CheckName,
    value: float,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    **values: Value,
) -> Check:
    """A check that was made. values: what goes into its words beside the value."""
    passed = (low is None or value >= low) and (high is None or value <= high)
    return Check(check, passed, value, low, high, unit, values=values)


def unknown(check: CheckName, why: str) -> Check:
    """A check that could not be made. why: a name of NAMED."""
    return Check(check, values={"why": why})


# About the run


def other_processes(run: Run) -> Check:
    """Whether something else was on the GPU before or after the run. processes: what, without the program's own."""
    states = [run.environment("gpu_state", when) for when in ("before", "after")]
    known = [state["other_processes"] for state in states if isinstance(state, dict) and "other_processes" in state]
    if not known:
        return unknown(CheckName.OTHER_PROCESSES, "imported" if run.imported else "no_gpu_state")
    own = {f"{tables.own_pid(row['pid'])} ({row['process']})" for row in run.rows("processes", ("pid", "process"))}
    others = tuple(sorted({process for processes in known for process in processes} - own))
    return judge(CheckName.OTHER_PROCESSES, len(others), high=0, unit="processes", processes=others)


# About a case


def reference(run: Run, case: CaseEntry) -> Check:
    """The result against the float32 reference: the relative error."""
    compared = run.baseline[case.id].reference if case.id in run.baseline else Reference()
    error, tolerance = compared.get("relative_error"), compared.get("tolerance")
    if error is None or tolerance is None:
        return unknown(CheckName.REFERENCE, "imported" if run.imported else "no_reference")
    return judge(CheckName.REFERENCE, error, high=tolerance)


def plain_against_nsys(run: Run, case: CaseEntry) -> Check:
    """Kernel time under nsys over an iteration's time without a profiler, which events and gaps make longer.

    nsys_us, plain_us: the two.
    """
    plain, traced = run.plain.get(case.id), run.trace.cases.get(case.id)
    if run.imported or plain is None or traced is None:
        why = "imported" if run.imported else "no_plain_time" if plain is None else "no_nsys_time"
        return unknown(CheckName.NSYS_VS_PLAIN, why)
    nsys_us, plain_us = traced.iteration.median_us, plain.median_us
    low = 1 - max(PLAIN_TOLERANCE, PLAIN_OVERHEAD_US * max(traced.executions, 1.0) / plain_us)
    high = 1 + PLAIN_TOLERANCE
    return judge(CheckName.NSYS_VS_PLAIN, nsys_us / plain_us, low=low, high=high, nsys_us=nsys_us, plain_us=plain_us)


def spread(run: Run, case: CaseEntry) -> Check:
    """(p90 - p10) / median over the iterations, by nsys, else without a profiler. iterations: how many."""
    traced = run.trace.cases.get(case.id)
    times = traced.iteration if traced else run.plain.get(case.id)
    if times is None or times.count < 3:
        return unknown(CheckName.SPREAD, "few_iterations")
    high, timed = max(SPREAD_HIGH, SPREAD_ALLOWANCE_US / times.median_us), "nsys" if traced else "plain"
    return judge(CheckName.SPREAD, times.spread, high=high, iterations=times.count, timed=timed)


def profiled(run: Run, case: CaseEntry) -> Check:
    """Launches that ncu has of a case, which it profiled at least once; a file cut short loses some."""
    if not run.launches:
        return unknown(CheckName.PROFILED, "nothing_profiled")
    return judge(CheckName.PROFILED, len(run.launches_of(case.id)), low=1, unit="launches")


def flops(run: Run, case: CaseEntry) -> Check:
    """Counted over modelled operations: tensor operations where there are any, else those of the other pipes."""
    if not run.launches_of(case.id):
        return unknown(CheckName.FLOPS, "case_not_profiled")
    from fiprof.model.case_quantities import counted_ops

    counted, tensor = counted_ops(run, case)
    if counted is None or not case.flops:
        return unknown(CheckName.FLOPS, "no_operations")
    operations = "tensor" if tensor else "other"
    return judge(CheckName.FLOPS, counted / case.flops, low=FLOPS_LOW, high=FLOPS_HIGH, operations=operations)


def dram_reads(run: Run, case: CaseEntry) -> Check:
    """Bytes read from DRAM over the input bytes."""
    read = run.per_iteration(case.id, lambda row: number(row, "dram_read_bytes"))
    if read is None or not case.bytes_read:
        return unknown(CheckName.DRAM_READS, "no_dram_reads")
    caches = "flushed" if run.settings.cache_control == "all" else "kept"
    return judge(CheckName.DRAM_READS, read / case.bytes_read, low=DRAM_LOW, caches=caches)


def dram_writes(run: Run, case: CaseEntry) -> Check:
    """Bytes written to DRAM over the output bytes; L2 may keep as many as it holds beyond the kernel's end."""
    written = run.per_iteration(case.id, lambda row: number(row, "dram_write_bytes"))
    l2_bytes = run.environment("gpu", "l2_bytes")
    if written is None or not case.bytes_written:
        return unknown(CheckName.DRAM_WRITES, "no_dram_writes")
    if not isinstance(l2_bytes, int | float):
        return unknown(CheckName.DRAM_WRITES, "no_l2_size")
    if case.bytes_written * DRAM_LOW <= l2_bytes:
        return unknown(CheckName.DRAM_WRITES, "fits_in_l2")
    return judge(CheckName.DRAM_WRITES, written / case.bytes_written, low=DRAM_LOW - l2_bytes / case.bytes_written)


# About a launch


def ncu_against_nsys(run: Run, launch: Row) -> Check:
    """ncu's duration over nsys's median of the same kernel in the same case. ncu_us, nsys_us: the two."""
    traced, ncu_us = run.trace.kernels.get((launch["case"], launch["kernel"])), DURATION.of(launch)
    if traced is None or ncu_us is None or not traced.median_us:
        return unknown(CheckName.NCU_VS_NSYS, "no_kernel_time")
    nsys_us, allowance = traced.median_us, NCU_ALLOWANCE_US / traced.median_us
    low, high = min(NCU_LOW, 1 - allowance), max(NCU_HIGH, 1 + allowance)
    control = {name: run.manifest.settings.get(name, "?") for name in ("clock_control", "cache_control")}
    return judge(CheckName.NCU_VS_NSYS, ncu_us / nsys_us, low=low, high=high, ncu_us=ncu_us, nsys_us=nsys_us, **control)


def stall_sum(run: Run, launch: Row) -> Check:
    """The sum of the stalls' warps per issue over the warp latency, which ncu measures on its own.

    stall_cycles, warp_latency_cycles: the two.
    """
    ratios = [row.warps_per_issue for row in run.stall_reasons.get(launch["launch"], ())]
    known, latency = [ratio for ratio in ratios if ratio is not None], launch["warp_latency_cycles"]
    if not known or not latency:
        return unknown(CheckName.STALL_SUM, "no_stalls")
    return judge(
        CheckName.STALL_SUM,
        sum(known) / latency,
        low=1 - LATENCY_TOLERANCE,
        high=1 + LATENCY_TOLERANCE,
        stall_cycles=sum(known),
        warp_latency_cycles=latency,
    )


def sample_sum(run: Run, launch: Row) -> Check:
    """The samples of all stall reasons against ncu's count of samples."""
    samples = [row.samples for row in run.stall_reasons.get(launch["launch"], ()) if row.samples is not None]
    expected = launch["stall_samples"]
    if not samples or expected is None:
        return unknown(CheckName.SAMPLE_SUM, "not_sampled")
    return judge(CheckName.SAMPLE_SUM, sum(samples), low=expected, high=expected, unit="samples")


def dropped_samples(run: Run, launch: Row) -> Check:  # noqa: ARG001
    """Samples that ncu lost because its buffer was full."""
    dropped = launch["stall_dropped_bytes"]
    if dropped is None:
        return unknown(CheckName.DROPPED_SAMPLES, "not_sampled")
    return judge(CheckName.DROPPED_SAMPLES, dropped, high=0, unit="bytes")


def sm_clock(run: Run, launch: Row) -> Check:
    """The multiprocessors' clock during the launch against the highest that the driver names, highest_mhz."""
    highest = run.environment("gpu_state", "before", "max_sm_clock_mhz")
    clock_hz = Formula("sm_hz").value(launch)
    if not isinstance(highest, int | float) or not highest or clock_hz is None:
        return unknown(CheckName.SM_CLOCK, "no_clock")
    return judge(CheckName.SM_CLOCK, clock_hz / 1e6, low=CLOCK_LOW * highest, unit="MHz", highest_mhz=highest)


# About the traces of a run that was imported from several: whether they lie on one axis of time


@once
def traces(run: Run) -> list[dict[str, Any]]:
    """Traces with kernels of a run of several, by their files; none of one.

    ``file``, ``host``, ``session_start_ns``, by which it is placed, None where it does not say; ``first_ns`` and
    ``last_ns`` of its kernels, on the run's axis.
    """
    said = {row["file"]: row for row in run.rows("processes", ("file", "host", "session_start_ns"))}
    # Tables of an older fiprof do not have it.
    if len(said) < 2 or "session_start_ns" not in run.columns("processes"):
        return []
    for piece in run.pieces("kernels", ("file", "start_ns", "end_ns")):
        of_files = piece.group_by("file", use_threads=False).aggregate([("start_ns", "min"), ("end_ns", "max")])
        for row in of_files.to_pylist():
            trace, first, last = said.get(row["file"], {}), row["start_ns_min"], row["end_ns_max"]
            trace["first_ns"] = min(trace.get("first_ns", first), first)
            trace["last_ns"] = max(trace.get("last_ns", last), last)
    return [trace for _, trace in sorted(said.items()) if "first_ns" in trace]


def trace_starts(run: Run) -> Check:
    """Traces that do not say when their session began: with one of them the times of all are since their own start."""
    undated = tuple(trace["file"] for trace in traces(run) if trace["session_start_ns"] is None)
    return judge(CheckName.TRACE_STARTS, len(undated), high=0, unit="traces", files=undated)


def trace_gap(run: Run) -> Check:
    """The longest time between the kernels of one trace and those of the next, in which no trace has any."""
    found = sorted(traces(run), key=lambda trace: trace["first_ns"])
    if any(trace["session_start_ns"] is None for trace in found):
        return unknown(CheckName.TRACE_GAP, "no_session_start")
    gap_ns, reached = 0, found[0]["last_ns"]
    for trace in found[1:]:
        gap_ns = max(gap_ns, trace["first_ns"] - reached)
        reached = max(reached, trace["last_ns"])
    return judge(CheckName.TRACE_GAP, gap_ns / 1e9, high=0, unit="s")


def trace_hosts(run: Run) -> Check:
    """Machines whose clocks no collective ties together. hosts: all machines."""
    from fiprof.analysis.comm_match import trace_clocks

    tied = {traces(run)[0]["file"], *(clock.file for clock in trace_clocks(run))}
    hosts = {trace["host"] for trace in traces(run)}
    together = {trace["host"] for trace in traces(run) if trace["file"] in tied}
    names = tuple(sorted(host for host in hosts if host is not None))
    return judge(CheckName.TRACE_HOSTS, 1 + len(hosts - together), high=1, unit="hosts", hosts=names)


def trace_clocks_agree(run: Run) -> Check:
    """How far the times of the traces may be off one another, by their collectives."""
    from fiprof.analysis.comm_match import trace_clocks

    off_ns = [abs(clock.furthest_ns) + clock.error_ns for clock in trace_clocks(run)]
    if not off_ns:
        return unknown(CheckName.TRACE_CLOCKS, "no_collectives")
    return judge(CheckName.TRACE_CLOCKS, max(off_ns) / 1e3, high=TRACE_CLOCK_HIGH_US, unit="µs")


def trace_times(run: Run) -> Check:
    """Tables of nsys of which rows were left out, for their times cannot be. rows: how many of each."""
    found = [row["text"] for row in run.rows("diagnostics", ("severity", "text")) if row["severity"] == tables.LEFT_OUT]
    return judge(CheckName.TRACE_TIMES, len(found), high=0, unit="tables", rows=tuple(found))


RUN_CHECKS = (other_processes,)
CASE_CHECKS = (reference, plain_against_nsys, spread, profiled, flops, dram_reads, dram_writes)
LAUNCH_CHECKS = (ncu_against_nsys, stall_sum, sample_sum, dropped_samples, sm_clock)
TRACE_CHECKS = (trace_starts, trace_gap, trace_hosts, trace_clocks_agree)


# All of a run


def evaluate(run: Run) -> list[Check]:
    """Every check: those about the run, then about each case, then about each launch."""
    of_run: tuple[Callable[[Run], Check], ...] = (*RUN_CHECKS, *(TRACE_CHECKS if traces(run) else ()))
    of_run += () if trace_times(run).passed else (trace_times,)
    return [
        *(check(run) for check in of_run),
        *(dataclasses.replace(check(run, case), case=case.id) for case in run.manifest.cases for check in CASE_CHECKS),
        *(
            dataclasses.replace(check(run, launch), case=launch.case, launch=launch.launch)
            for launch in run.launches
            for check in LAUNCH_CHECKS
        ),
    ]


def compute(run: Run) -> pa.Table:
    """Every check of a run, as the table ``checks``.

    What it compares: the run's tables, baseline and manifest as they are now; what is missing makes a check null.
    """
    rows = [
        {**vars(check), "values": json.dumps({name: plain(value) for name, value in check.values.items()})}
        for check in evaluate(run)
    ]
    return pa.Table.from_pylist(rows, schema=tables.schema("checks"))


@once
def every(run: Run) -> tuple[Check, ...]:
    """Every check: from the table ``checks`` where the run has one that is whole and of this version, else made now."""
    found = _recorded(run)
    return tuple(evaluate(run)) if found is None else found


@once
def failed(run: Run) -> tuple[Check, ...]:
    found = _recorded(run, failed=True)
    return tuple(check for check in every(run) if check.passed is False) if found is None else found


def _recorded(run: Run, *, failed: bool = False) -> tuple[Check, ...] | None:
    """What the table has, or of it what failed; None where it is missing, damaged or of another version."""
    if run.has("checks"):
        with contextlib.suppress(FiprofError, ValueError, TypeError, AttributeError):
            table = run.table("checks", [field.name for field in dataclasses.fields(Check)])
            if not failed:
                return tuple(map(_check, finite_rows(table)))
            passed = table["passed"].to_pylist()
            # One that could not be made tells the version too.
            untold = passed.index(None) if None in passed else None
            wanted = [outcome is False or place == untold for place, outcome in enumerate(passed)]
            return tuple(check for row in finite_rows(table, wanted) if (check := _check(row)).passed is False)
    return None


def _check(row: dict[str, Any]) -> Check:
    """Raises ValueError, TypeError or AttributeError for a row that is not of this version."""
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(row["values"]).items()
    }
    if (row["passed"] is None) != ("why" in values):
        raise ValueError
    if any(values[name] not in NAMED[name] for name in NAMED if name in values):
        raise ValueError
    check = Check(**{**row, "check": CheckName(row["check"]), "values": values})
    if not check.finding.values.keys() >= set(re.findall(r"{(\w+)", check.finding.words)):
        raise ValueError
    return check


# What is said of them


def of_run(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """What there is to say about the whole run."""
    return tuple(check.finding for check in checks if check.case is None and check.launch is None)


def by_launch(checks: Iterable[Check]) -> dict[int, tuple[Finding, ...]]:
    found: dict[int, tuple[Finding, ...]] = defaultdict(tuple)
    for check in checks:
        if check.launch is not None:
            found[check.launch] += (check.finding,)
    return dict(found)


def trace_doubts(run: Run) -> tuple[Finding, ...]:
    """The findings of those that failed, TRACE_CLOCKS aside, which ``fiprof comm`` sets right."""
    made = (trace_times, *((trace_starts, trace_gap, trace_hosts) if traces(run) else ()))
    return tuple(found.finding for check in made if (found := check(run)).passed is False)


def subject(run: Run, check: Check) -> str:
    """What a check of a case or a launch is about, in short."""
    launch = next((each for each in run.launches if each.launch == check.launch), None)
    return title(launch.label, launch.kernel) if launch else run.labels(check.case)


def summarized(checks: Sequence[Check], run: Run) -> tuple[Finding, ...]:
    """A finding for each kind of check: what it found first, and what else it found it for.

    others: launches' IDs, or the number of further cases.
    """
    alike: dict[CheckName, list[Check]] = defaultdict(list)
    for check in checks:
        alike[check.check].append(check)
    found = []
    for first, *rest in alike.values():
        values: dict[str, Value] = {"check": first.finding}
        if first.case is None and first.launch is None:
            found.append(Finding("run", values, "{check}"))
            continue
        values["label"] = subject(run, first)
        if first.launch is None:
            kind, words = "case", "{label}: {check}"
            if rest:
                kind, words, values["others"] = "cases", words + "; likewise {others:more case|more cases}", len(rest)
        else:
            kind, words, values["launch"] = "launch", "launch {launch} ({label}): {check}", first.launch
            if rest:
                kind, words = "launches", words + "; likewise {others:launch|launches}"
                values["others"] = tuple(check.launch for check in rest)
        found.append(Finding(kind, values, words))
    return tuple(found)
