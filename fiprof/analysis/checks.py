"""How sure the numbers of a run are: checks of the run's own numbers, a function each, and which of them failed.

A check is a row of ``checks.csv`` (its unit, its words, and the limits that are the same in every run) and a function
of that name. The limits are fiprof's own choice, wide enough for healthy runs on an H200.
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
"""ncu's duration over nsys's: ncu flushes the caches and may lock the clocks, so its duration is usually the longer."""
NCU_ALLOWANCE_US = 2.0  # difference of these durations that is always allowed
DRAM_LOW = 0.9  # counted bytes over the least that the algorithm needs
SPREAD_HIGH = 0.10  # (p90 - p10) / median over the iterations
SPREAD_ALLOWANCE_US = 1.0  # (p90 - p10) that is always allowed
CLOCK_LOW = 0.8  # multiprocessor clock during a launch over the highest
SAMPLING = ("sample_sum", "dropped_samples")  # checks of a launch's warp samples
CHECKS = csv_rows(Path(__file__).with_name("checks.csv"))
"""Check -> unit, low, high; the kinds of verdict that rest on it (where it fails, their confidence is lower); what it
checks, and the words of its finding by outcome."""
NAMED = {(row["of"], name): row["words"] for name, row in csv_rows(Path(__file__).with_name("check_words.csv")).items()}
"""Kind of value and name -> words: why a check could not be made, which operations were counted, what timed the
iterations, what ncu did with the caches before each kernel."""


@dataclass(frozen=True)
class Check:
    """One check of a run, case or launch; a row of the table ``checks``."""

    check: str
    passed: bool | None = None  # None where the run lacks what it needs
    value: float | None = None
    low: float | None = None  # smallest value that passes; None for none
    high: float | None = None  # largest value that passes; None for none
    unit: str = ""  # of value, low and high
    case: str | None = None  # case id; None where it is about the whole run
    launch: int | None = None  # ncu's launch ID; None where it is about a case or the run
    values: Mapping[str, Value] = field(default_factory=dict)  # further values of its words, those of NAMED by name

    @property
    def finding(self) -> Finding:
        """The check in words, as a finding of its own kind; of a check that could not be made, of the kind of why."""
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
"""What the function of a check returns: why it could not be made, a name of NAMED; or its ``value``, ``low`` and
``high`` where they differ from run to run, and further values of its words."""


def _check(check: Callable[..., CheckValues], run: Run, about: CaseEntry | Launch | None = None) -> Check:
    """Make a check of a run, of one of its cases, or of one of its launches."""
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
    """Other processes on the GPU before or after the run: how many, and which, without the program's own."""
    states = [run.environment("gpu_state", when) for when in ("before", "after")]
    recorded = [state["other_processes"] for state in states if isinstance(state, dict) and "other_processes" in state]
    if not recorded:
        return "imported" if run.imported else "no_gpu_state"
    own = {f"{tables.own_pid(row['pid'])} ({row['process']})" for row in run.rows("processes", ("pid", "process"))}
    others = tuple(sorted({process for processes in recorded for process in processes} - own))
    return {"value": len(others), "processes": others}


def reference(run: Run, case: CaseEntry) -> CheckValues:
    """Relative error of the result, compared with a float32 reference."""
    compared = run.baseline[case.id].reference if case.id in run.baseline else Reference()
    error, tolerance = compared.get("relative_error"), compared.get("tolerance")
    if error is None or tolerance is None:
        return "imported" if run.imported else "no_reference"
    return {"value": error, "high": tolerance}


def nsys_vs_plain(run: Run, case: CaseEntry) -> CheckValues:
    """Kernel time of an iteration under nsys over its time without a profiler, which includes events and gaps. Where
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
    """(p90 - p10) / median over the iterations, by nsys, else without a profiler."""
    traced = run.trace.cases.get(case.id)
    times = traced.iteration if traced else run.plain.get(case.id)
    if times is None or times.count < 3:
        return "few_iterations"
    high, timed = max(SPREAD_HIGH, SPREAD_ALLOWANCE_US / times.median_us), "nsys" if traced else "plain"
    return {"value": times.spread, "high": high, "iterations": times.count, "timed": timed}


def profiled(run: Run, case: CaseEntry) -> CheckValues:
    """Launches of a case under ncu: at least one; a file that is cut short loses some."""
    if not run.launches:
        return "nothing_profiled"
    return {"value": len(run.launches_of[case.id])}


def flops(run: Run, case: CaseEntry) -> CheckValues:
    """Operations that ncu counted over those of the cost model: tensor operations where there are any, else those of
    the other pipes. More are counted for whole tiles on a causal diagonal, softmax and square roots."""
    if not run.launches_of[case.id]:
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
    """ncu's duration of a launch over nsys's median of the same kernel in the same case."""
    traced, ncu_us = run.trace.kernels.get((launch["case"], launch["kernel"])), DURATION.of(launch)
    if traced is None or ncu_us is None or not traced.median_us:
        return "no_kernel_time"
    nsys_us, allowance = traced.median_us, NCU_ALLOWANCE_US / traced.median_us
    low, high = min(NCU_LOW, 1 - allowance), max(NCU_HIGH, 1 + allowance)
    control = {name: run.manifest.settings.get(name, "?") for name in ("clock_control", "cache_control")}
    return {"value": ncu_us / nsys_us, "low": low, "high": high, "ncu_us": ncu_us, "nsys_us": nsys_us, **control}


def stall_sum(run: Run, launch: Row) -> CheckValues:
    """The sum of the stalls' warps per issue over the warp latency, which ncu measures separately."""
    reasons = run.stall_reasons.get(launch["launch"], ())
    ratios, latency = [each.warps_per_issue or 0.0 for each in reasons], launch["warp_latency_cycles"]
    if all(each.warps_per_issue is None for each in reasons) or not latency:
        return "no_stalls"
    return {"value": sum(ratios) / latency, "stall_cycles": sum(ratios), "warp_latency_cycles": latency}


def sample_sum(run: Run, launch: Row) -> CheckValues:
    """The samples of all stall reasons together: as many as ncu's count of samples."""
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
    """SM clock during a launch, MHz: at least CLOCK_LOW of the highest that the driver names."""
    highest = run.environment("gpu_state", "before", "max_sm_clock_mhz")
    clock_hz = Formula("sm_hz").value(launch)
    if not isinstance(highest, int | float) or not highest or clock_hz is None:
        return "no_clock"
    return {"value": clock_hz / 1e6, "low": CLOCK_LOW * highest, "highest_mhz": highest}


# Of a run that was imported from several traces: whether these lie on one time axis


@once
def traces(run: Run) -> list[dict[str, Any]]:
    """The traces with kernels, by file; empty for a run of one trace.

    ``file``, ``host``, ``session_start_ns`` (which places it on the time axis; None where the trace does not say it),
    ``first_ns`` and ``last_ns`` of its kernels, on the run's axis.
    """
    by_file = {row["file"]: row for row in run.rows("processes", ("file", "host", "session_start_ns"))}
    # Tables of an older fiprof lack the session's start.
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
    """Traces that do not say when their session began. With one of them, each trace's times are since its own start."""
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
    """Machines whose clocks no collective ties to the first one's. hosts: all machines."""
    from fiprof.analysis import comm_match

    tied = {traces(run)[0]["file"], *(clock.file for clock in comm_match.trace_clocks(run))}
    hosts = {trace["host"] for trace in traces(run)}
    together = {trace["host"] for trace in traces(run) if trace["file"] in tied}
    names = tuple(sorted(host for host in hosts if host is not None))
    return {"value": 1 + len(hosts - together), "hosts": names}


def trace_clocks(run: Run) -> CheckValues:
    """How far the clocks of the traces may be apart, by their collectives. Session starts on one H200 machine were 0.1
    ms apart; NTP keeps machines within 1 ms."""
    from fiprof.analysis import comm_match

    off_ns = [abs(clock.furthest_ns) + clock.error_ns for clock in comm_match.trace_clocks(run)]
    return {"value": max(off_ns) / 1e3} if off_ns else "no_collectives"


def trace_times(run: Run) -> CheckValues:
    """Tables of nsys with rows that were left out because of impossible times. rows: a sentence for each table."""
    texts = [row["text"] for row in run.rows("diagnostics", ("severity", "text")) if row["severity"] == tables.LEFT_OUT]
    return {"value": len(texts), "rows": tuple(texts)}


RUN_CHECKS = (other_processes,)
CASE_CHECKS = (reference, nsys_vs_plain, spread, profiled, flops, dram_reads, dram_writes)
LAUNCH_CHECKS = (ncu_vs_nsys, stall_sum, sample_sum, dropped_samples, sm_clock)
TRACE_CHECKS = (trace_starts, trace_gap, trace_hosts, trace_clocks)


def evaluate(run: Run) -> list[Check]:
    """Make every check: those of the run, then of each case, then of each launch."""
    run_checks = (*RUN_CHECKS, *(TRACE_CHECKS if traces(run) else ()))
    run_checks += () if _check(trace_times, run).passed else (trace_times,)
    return [
        *(_check(check, run) for check in run_checks),
        *(_check(check, run, case) for case in run.manifest.cases for check in CASE_CHECKS),
        *(_check(check, run, launch) for launch in run.launches for check in LAUNCH_CHECKS),
    ]


def compute(run: Run) -> pa.Table:
    """The table ``checks``, made of the run's tables, baseline and manifest; ``passed`` is null for lack of these."""
    rows = [
        {**vars(check), "values": json.dumps({name: plain(value) for name, value in check.values.items()})}
        for check in evaluate(run)
    ]
    return pa.Table.from_pylist(rows, schema=tables.schema("checks"))


@once
def every(run: Run) -> tuple[Check, ...]:
    """Every check: those of the table ``checks``, where the run has one of this version, else made now."""
    recorded = _recorded(run)
    return tuple(evaluate(run)) if recorded is None else recorded


@once
def failed(run: Run) -> tuple[Check, ...]:
    """The checks that failed, read as :func:`every`."""
    recorded = _recorded(run, failed=True)
    return tuple(check for check in every(run) if check.passed is False) if recorded is None else recorded


def _recorded(run: Run, *, failed: bool = False) -> tuple[Check, ...] | None:
    """The checks of the table, or those that failed; None where it is missing, damaged or of another version."""
    if run.has("checks"):
        with contextlib.suppress(FiprofError, ValueError, TypeError, AttributeError):
            table = run.table("checks", [field.name for field in dataclasses.fields(Check)])
            if not failed:
                return tuple(map(_from_row, finite_rows(table)))
            passed = table["passed"].to_pylist()
            # One that could not be made is read too: its row shows the table's version.
            unmade = passed.index(None) if None in passed else None
            wanted = [outcome is False or place == unmade for place, outcome in enumerate(passed)]
            return tuple(check for row in finite_rows(table, wanted) if (check := _from_row(row)).passed is False)
    return None


def _from_row(row: dict[str, Any]) -> Check:
    """A check of a row of the table. Raises ValueError, TypeError or AttributeError for a row of another version."""
    values = {of: tuple(value) if isinstance(value, list) else value for of, value in json.loads(row["values"]).items()}
    if (row["passed"] is None) != ("why" in values):
        raise ValueError
    if row["check"] not in CHECKS or any((of, values[of]) not in NAMED for of, _ in NAMED if of in values):
        raise ValueError
    check = Check(**{**row, "values": values})
    about = check.finding
    if not about.values.keys() >= {name for _, name, _ in template_fields(about.words) if name}:
        raise ValueError
    return check


def of_run(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """The findings of the checks that are about the whole run."""
    return tuple(check.finding for check in checks if check.case is None and check.launch is None)


def by_launch(checks: Iterable[Check]) -> dict[int, tuple[Finding, ...]]:
    """Launch -> the findings of its checks."""
    findings = by_key((check.launch, check.finding) for check in checks if check.launch is not None)
    return {launch: tuple(each) for launch, each in findings.items()}


def trace_caveats(run: Run) -> tuple[Finding, ...]:
    """The findings of the trace's checks that failed; without trace_clocks: ``fiprof comm`` corrects the clocks."""
    wanted = (trace_times, *((trace_starts, trace_gap, trace_hosts) if traces(run) else ()))
    return tuple(each.finding for check in wanted if (each := _check(check, run)).passed is False)


def subject(run: Run, check: Check) -> str:
    """The case or launch of a check, in short."""
    launch = next((each for each in run.launches if each.launch == check.launch), None)
    return title(launch.label, launch.kernel) if launch else run.labels(check.case)


def summarized(checks: Sequence[Check], run: Run) -> tuple[Finding, ...]:
    """A finding for each kind of check: the first one's, with the IDs of further launches, or the number of cases."""
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
