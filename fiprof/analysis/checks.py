"""How sure the numbers of a run are: the checks that it makes on itself, one function each, and what failed of them.

A check is a row of ``checks.csv`` (its unit, its limits as far as they are the same in every run, its words) and a
function of that name. The limits are fiprof's own choice, wide enough for what healthy runs on an H200 show.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.arrays import finite_rows
from fiprof.model.finding import Finding, Label, Value, plain, template_fields
from fiprof.model.manifest import CaseEntry, Reference
from fiprof.model.quantities import DURATION, Formula, Row, number
from fiprof.model.run import Launch, Run, once
from fiprof.model.selection import by_key, title
from fiprof.text import csv_rows

PLAIN_TOLERANCE = 0.10  # of the plain time, between it and nsys's
WAITS_APART, NSYS_HOST_US, NSYS_CALL_US = 0.25, 40.0, 5.0
"""Share of an iteration in which the GPU waits, by which a loop without a profiler may differ from nsys's; and what
nsys may cost the host in an iteration, and in each launch: up to 30 and 2.5 µs in 303 recorded cases. None fails."""
PLAIN_OVERHEAD_US = 3.0  # what CUDA events and a launch gap add to the plain time, for each kernel of an iteration
NCU_LOW, NCU_HIGH = 0.8, 1.5
"""ncu's duration over nsys's: ncu flushes the caches and may lock the clocks, so it is rather the longer."""
NCU_ALLOWANCE_US = 2.0  # difference of the two that is always allowed
DRAM_LOW = 0.9  # counted bytes over the least that the algorithm needs
SPREAD_HIGH = 0.10  # (p90 - p10) / median over the iterations
SPREAD_ALLOWANCE_US = 1.0  # (p90 - p10) that is always allowed
CLOCK_LOW = 0.8  # multiprocessor clock during a launch over the highest
SAMPLING = ("sample_sum", "dropped_samples")  # checks of a launch's warp samples
CHECKS = csv_rows(Path(__file__).with_name("checks.csv"))
"""Check -> unit, low, high; the kinds of verdict that rest on it: one that failed says nothing about the others, and
work, bytes and samples bear on none; what it holds, and its finding by outcome."""
NAMED = {(row["of"], name): row["words"] for name, row in csv_rows(Path(__file__).with_name("check_words.csv")).items()}
"""Values of checks that are names, in words: why it could not be made, which operations were counted, what iterations
were timed with, what ncu did with the caches before each kernel."""


@dataclass(frozen=True)
class Check:
    """One check, a row of the table ``checks``."""

    check: str
    passed: bool | None = None  # None where there was not enough to tell
    value: float | None = None  # what was found
    low: float | None = None  # smallest value that passes; None for none
    high: float | None = None  # largest value that passes; None for none
    unit: str = ""  # of value, low and high
    case: str | None = None  # case id; None where it is about the whole run
    launch: int | None = None  # ncu's launch ID; None where it is about more
    values: Mapping[str, Value] = field(default_factory=dict)  # what else goes into its words; of NAMED a name

    @property
    def finding(self) -> Finding:
        """For words and for JSON: of the kind of the check, with its outcome; else of the kind of what was missing."""
        if "why" in self.values:
            why = str(self.values["why"])
            return Finding(why, {"check": self.check}, NAMED["why", why])
        below = self.low is not None and self.value is not None and self.value < self.low
        outcome = str(self.values.get("outcome", "passed" if self.passed else "too_low" if below else "too_high"))
        own = {name: getattr(self, name) for name in ("value", "low", "high", "unit", "case", "launch")}
        more = {
            name: Label(str(value), NAMED[name, str(value)]) if (name, value) in NAMED else value
            for name, value in self.values.items()
        }
        values = {**{name: value for name, value in own.items() if value is not None}, **more, "outcome": outcome}
        return Finding(self.check, values, NAMED.get(("outcome", outcome)) or CHECKS[self.check][outcome])


CheckValues = str | dict[str, Any]
"""Why a check could not be made, a name of NAMED; or its ``value``, those of ``low`` and ``high`` that are not in the
table, and what goes into its words."""


def made(check: Callable[..., CheckValues], run: Run, about: CaseEntry | Launch | None = None) -> Check:
    """A check of a run, of one of its cases, or of one of its launches."""
    name, of = check.__name__, dict[str, Any]()
    if about is not None:
        of = {"case": about.case, "launch": about.launch} if isinstance(about, Launch) else {"case": about.id}
    result = check(run) if about is None else check(run, about)
    if isinstance(result, str):
        return Check(name, values={"why": result}, **of)
    row, value = CHECKS[name], result.pop("value")
    low, high = (result.pop(end) if end in result else float(row[end]) if row[end] else None for end in ("low", "high"))
    passed = (low is None or value >= low) and (high is None or value <= high)
    return Check(name, passed, value, low, high, row["unit"], values=result, **of)


def other_processes(run: Run) -> CheckValues:
    """Whether something else was on the GPU before or after the run. processes: what, without the program's own."""
    states = [run.environment("gpu_state", when) for when in ("before", "after")]
    recorded = [state["other_processes"] for state in states if isinstance(state, dict) and "other_processes" in state]
    if not recorded:
        return "imported" if run.imported else "no_gpu_state"
    own = {f"{tables.own_pid(row['pid'])} ({row['process']})" for row in run.rows("processes", ("pid", "process"))}
    others = tuple(sorted({process for processes in recorded for process in processes} - own))
    return {"value": len(others), "processes": others}


def reference(run: Run, case: CaseEntry) -> CheckValues:
    """The result against the float32 reference: the relative error."""
    compared = run.baseline[case.id].reference if case.id in run.baseline else Reference()
    error, tolerance = compared.get("relative_error"), compared.get("tolerance")
    if error is None or tolerance is None:
        return "imported" if run.imported else "no_reference"
    return {"value": error, "high": tolerance}


def nsys_vs_plain(run: Run, case: CaseEntry) -> CheckValues:
    """Kernel time under nsys over an iteration's time without a profiler, which events and gaps make longer. Where
    these agree and the loops around them do not: by how much less of one the GPU waits without a profiler."""
    plain, traced = run.plain.get(case.id), run.trace.cases.get(case.id)
    if run.imported or plain is None or traced is None:
        return "imported" if run.imported else "no_plain_time" if plain is None else "no_nsys_time"
    from fiprof.model.case_quantities import busy_times

    nsys_us, plain_us = traced.iteration.median_us, plain.median_us
    low = 1 - max(PLAIN_TOLERANCE, PLAIN_OVERHEAD_US * max(traced.executions, 1.0) / plain_us)
    values: dict[str, Any] = {"value": nsys_us / plain_us, "low": low, "high": 1 + PLAIN_TOLERANCE}
    (busy, loop_us), wall_us = busy_times(run)[case.id], run.baseline[case.id].wall_us
    waits, plain_waits = (max(1 - busy.median_us / max(each, 1e-3), 0.0) for each in (loop_us, wall_us))
    slowed = 0 < loop_us - wall_us <= NSYS_HOST_US + NSYS_CALL_US * traced.executions
    if low <= values["value"] <= values["high"] and abs(waits - plain_waits) > WAITS_APART and not slowed:
        outcome = "waits_traced" if waits > plain_waits else "waits_plain"
        values = {"value": waits - plain_waits, "low": -WAITS_APART, "high": WAITS_APART, "outcome": outcome}
        values |= {"waits": waits, "plain_waits": plain_waits, "loop_us": loop_us, "wall_us": wall_us}
    return {**values, "nsys_us": nsys_us, "plain_us": plain_us}


def spread(run: Run, case: CaseEntry) -> CheckValues:
    """(p90 - p10) / median over the iterations, by nsys, else without a profiler. iterations: how many."""
    traced = run.trace.cases.get(case.id)
    times = traced.iteration if traced else run.plain.get(case.id)
    if times is None or times.count < 3:
        return "few_iterations"
    high, timed = max(SPREAD_HIGH, SPREAD_ALLOWANCE_US / times.median_us), "nsys" if traced else "plain"
    return {"value": times.spread, "high": high, "iterations": times.count, "timed": timed}


def profiled(run: Run, case: CaseEntry) -> CheckValues:
    """Launches that ncu has of a case, which it profiled at least once; a file cut short loses some."""
    if not run.launches:
        return "nothing_profiled"
    return {"value": len(run.launches_of(case.id))}


def flops(run: Run, case: CaseEntry) -> CheckValues:
    """Counted over modelled operations: tensor operations where there are any, else those of the other pipes. Whole
    tiles on a causal diagonal, softmax and square roots come on top."""
    if not run.launches_of(case.id):
        return "case_not_profiled"
    from fiprof.model.case_quantities import counted_ops

    counted, tensor = counted_ops(run, case)
    if counted is None or not case.flops:
        return "no_operations"
    return {"value": counted / case.flops, "operations": "tensor" if tensor else "other"}


def dram_reads(run: Run, case: CaseEntry) -> CheckValues:
    """Bytes read from DRAM over the input bytes."""
    read = run.per_iteration(case.id, lambda row: number(row, "dram_read_bytes"))
    if read is None or not case.bytes_read:
        return "no_dram_reads"
    caches = "flushed" if run.settings.cache_control == "all" else "kept"
    return {"value": read / case.bytes_read, "low": DRAM_LOW, "caches": caches}


def dram_writes(run: Run, case: CaseEntry) -> CheckValues:
    """Bytes written to DRAM over the output bytes; L2 may keep as many as it holds beyond the kernel's end."""
    written = run.per_iteration(case.id, lambda row: number(row, "dram_write_bytes"))
    l2_bytes = run.environment("gpu", "l2_bytes")
    if written is None or not case.bytes_written:
        return "no_dram_writes"
    if not isinstance(l2_bytes, int | float):
        return "no_l2_size"
    if case.bytes_written * DRAM_LOW <= l2_bytes:
        return "fits_in_l2"
    return {"value": written / case.bytes_written, "low": DRAM_LOW - l2_bytes / case.bytes_written}


def ncu_vs_nsys(run: Run, launch: Row) -> CheckValues:
    """ncu's duration over nsys's median of the same kernel in the same case. ncu_us, nsys_us: the two."""
    traced, ncu_us = run.trace.kernels.get((launch["case"], launch["kernel"])), DURATION.of(launch)
    if traced is None or ncu_us is None or not traced.median_us:
        return "no_kernel_time"
    nsys_us, allowance = traced.median_us, NCU_ALLOWANCE_US / traced.median_us
    low, high = min(NCU_LOW, 1 - allowance), max(NCU_HIGH, 1 + allowance)
    control = {name: run.manifest.settings.get(name, "?") for name in ("clock_control", "cache_control")}
    return {"value": ncu_us / nsys_us, "low": low, "high": high, "ncu_us": ncu_us, "nsys_us": nsys_us, **control}


def stall_sum(run: Run, launch: Row) -> CheckValues:
    """The sum of the stalls' warps per issue over the warp latency, which ncu measures on its own."""
    ratios = [row.warps_per_issue for row in run.stall_reasons.get(launch["launch"], ())]
    given_ratios, latency = [ratio for ratio in ratios if ratio is not None], launch["warp_latency_cycles"]
    if not given_ratios or not latency:
        return "no_stalls"
    return {"value": sum(given_ratios) / latency, "stall_cycles": sum(given_ratios), "warp_latency_cycles": latency}


def sample_sum(run: Run, launch: Row) -> CheckValues:
    """The samples of all stall reasons against ncu's count of samples."""
    samples = [row.samples for row in run.stall_reasons.get(launch["launch"], ()) if row.samples is not None]
    expected = launch["stall_samples"]
    if not samples or expected is None:
        return "not_sampled"
    return {"value": sum(samples), "low": expected, "high": expected}


def dropped_samples(run: Run, launch: Row) -> CheckValues:  # noqa: ARG001
    """Samples that ncu lost because its buffer was full."""
    dropped = launch["stall_dropped_bytes"]
    return "not_sampled" if dropped is None else {"value": dropped}


def sm_clock(run: Run, launch: Row) -> CheckValues:
    """The multiprocessors' clock during the launch against the highest that the driver names, highest_mhz."""
    highest = run.environment("gpu_state", "before", "max_sm_clock_mhz")
    clock_hz = Formula("sm_hz").value(launch)
    if not isinstance(highest, int | float) or not highest or clock_hz is None:
        return "no_clock"
    return {"value": clock_hz / 1e6, "low": CLOCK_LOW * highest, "highest_mhz": highest}


# About the traces of a run that was imported from several: whether they lie on one axis of time


@once
def traces(run: Run) -> list[dict[str, Any]]:
    """Traces with kernels of a run of several, by their files; none of one.

    ``file``, ``host``, ``session_start_ns``, by which it is placed, None where it does not say; ``first_ns`` and
    ``last_ns`` of its kernels, on the run's axis.
    """
    by_file = {row["file"]: row for row in run.rows("processes", ("file", "host", "session_start_ns"))}
    # Tables of an older fiprof do not have it.
    if len(by_file) < 2 or "session_start_ns" not in run.columns("processes"):
        return []
    for piece in run.pieces("kernels", ("file", "start_ns", "end_ns")):
        of_files = piece.group_by("file", use_threads=False).aggregate([("start_ns", "min"), ("end_ns", "max")])
        for row in of_files.to_pylist():
            trace, first, last = by_file.get(row["file"], {}), row["start_ns_min"], row["end_ns_max"]
            trace["first_ns"] = min(trace.get("first_ns", first), first)
            trace["last_ns"] = max(trace.get("last_ns", last), last)
    return [trace for _, trace in sorted(by_file.items()) if "first_ns" in trace]


def trace_starts(run: Run) -> CheckValues:
    """Traces that do not say when their session began: with one of them the times of all are since their own start."""
    undated = tuple(trace["file"] for trace in traces(run) if trace["session_start_ns"] is None)
    return {"value": len(undated), "files": undated}


def trace_gap(run: Run) -> CheckValues:
    """The longest time between the kernels of one trace and those of the next, in which no trace has any."""
    by_start = sorted(traces(run), key=lambda trace: trace["first_ns"])
    if any(trace["session_start_ns"] is None for trace in by_start):
        return "no_session_start"
    gap_ns, reached = 0, by_start[0]["last_ns"]
    for trace in by_start[1:]:
        gap_ns = max(gap_ns, trace["first_ns"] - reached)
        reached = max(reached, trace["last_ns"])
    return {"value": gap_ns / 1e9}


def trace_hosts(run: Run) -> CheckValues:
    """Machines whose clocks no collective ties together. hosts: all machines."""
    from fiprof.analysis import comm_match

    tied = {traces(run)[0]["file"], *(clock.file for clock in comm_match.trace_clocks(run))}
    hosts = {trace["host"] for trace in traces(run)}
    together = {trace["host"] for trace in traces(run) if trace["file"] in tied}
    names = tuple(sorted(host for host in hosts if host is not None))
    return {"value": 1 + len(hosts - together), "hosts": names}


def trace_clocks(run: Run) -> CheckValues:
    """How far the times of the traces may be off one another, by their collectives. Session starts of one H200 machine
    lay 0.1 ms apart; NTP holds machines to 1 ms."""
    from fiprof.analysis import comm_match

    off_ns = [abs(clock.furthest_ns) + clock.error_ns for clock in comm_match.trace_clocks(run)]
    return {"value": max(off_ns) / 1e3} if off_ns else "no_collectives"


def trace_times(run: Run) -> CheckValues:
    """Tables of nsys of which rows were left out, for their times cannot be. rows: how many of each."""
    found = [row["text"] for row in run.rows("diagnostics", ("severity", "text")) if row["severity"] == tables.LEFT_OUT]
    return {"value": len(found), "rows": tuple(found)}


RUN_CHECKS = (other_processes,)
CASE_CHECKS = (reference, nsys_vs_plain, spread, profiled, flops, dram_reads, dram_writes)
LAUNCH_CHECKS = (ncu_vs_nsys, stall_sum, sample_sum, dropped_samples, sm_clock)
TRACE_CHECKS = (trace_starts, trace_gap, trace_hosts, trace_clocks)


def evaluate(run: Run) -> list[Check]:
    """Every check: those about the run, then about each case, then about each launch."""
    of_run = (*RUN_CHECKS, *(TRACE_CHECKS if traces(run) else ()))
    of_run += () if made(trace_times, run).passed else (trace_times,)
    return [
        *(made(check, run) for check in of_run),
        *(made(check, run, case) for case in run.manifest.cases for check in CASE_CHECKS),
        *(made(check, run, launch) for launch in run.launches for check in LAUNCH_CHECKS),
    ]


def compute(run: Run) -> pa.Table:
    """Every check of a run, as the table ``checks``. What it compares: the run's tables, baseline and manifest as they
    are now; what is missing makes a check null."""
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
    values = {of: tuple(value) if isinstance(value, list) else value for of, value in json.loads(row["values"]).items()}
    if (row["passed"] is None) != ("why" in values):
        raise ValueError
    if row["check"] not in CHECKS or any((of, values[of]) not in NAMED for of, _ in NAMED if of in values):
        raise ValueError
    check = Check(**{**row, "values": values})
    said = check.finding
    if not said.values.keys() >= {name for _, name, _ in template_fields(said.words) if name}:
        raise ValueError
    return check


def of_run(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """What there is to say about the whole run."""
    return tuple(check.finding for check in checks if check.case is None and check.launch is None)


def by_launch(checks: Iterable[Check]) -> dict[int, tuple[Finding, ...]]:
    found = by_key((check.launch, check.finding) for check in checks if check.launch is not None)
    return {launch: tuple(each) for launch, each in found.items()}


def trace_caveats(run: Run) -> tuple[Finding, ...]:
    """The findings of those that failed, TRACE_CLOCKS aside, which ``fiprof comm`` sets right."""
    wanted = (trace_times, *((trace_starts, trace_gap, trace_hosts) if traces(run) else ()))
    return tuple(found.finding for check in wanted if (found := made(check, run)).passed is False)


def subject(run: Run, check: Check) -> str:
    """What a check of a case or a launch is about, in short."""
    launch = next((each for each in run.launches if each.launch == check.launch), None)
    return title(launch.label, launch.kernel) if launch else run.labels(check.case)


def summarized(checks: Sequence[Check], run: Run) -> tuple[Finding, ...]:
    """A finding for each kind of check: what it found first, and others: further launches' IDs, or how many cases."""
    summaries = []
    for first, *rest in by_key((check.check, check) for check in checks).values():
        values: dict[str, Value] = {"check": first.finding}
        if first.case is None and first.launch is None:
            summaries.append(Finding("run", values, "{check}"))
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
        summaries.append(Finding(kind, values, words))
    return tuple(summaries)
