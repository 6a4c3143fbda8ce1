"""Whether the traces of a run lie on one axis of time: checks of a run that was imported from several."""

from __future__ import annotations

from typing import Any

from fiprof.analysis.checks import Check, CheckName, judge, unknown
from fiprof.analysis.comm_match import trace_clocks
from fiprof.model.finding import Finding
from fiprof.model.run import Run

CLOCK_HIGH_US = 1000.0
"""What a trace's clock may be off. Session starts of one H200 machine lay 0.1 ms apart; NTP holds machines to 1 ms."""


def traces(run: Run) -> list[dict[str, Any]]:
    """Traces with kernels of a run of several, by their files; none of one.

    ``file``, ``host``, ``session_start_ns``, by which it is placed, None where it does not say; ``first_ns`` and
    ``last_ns`` of its kernels, on the run's axis.
    """
    return run.once(_traces)


def _traces(run: Run) -> list[dict[str, Any]]:
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
    tied = {traces(run)[0]["file"], *(clock.file for clock in trace_clocks(run))}
    hosts = {trace["host"] for trace in traces(run)}
    together = {trace["host"] for trace in traces(run) if trace["file"] in tied}
    names = tuple(sorted(host for host in hosts if host is not None))
    return judge(CheckName.TRACE_HOSTS, 1 + len(hosts - together), high=1, unit="hosts", hosts=names)


def trace_clocks_agree(run: Run) -> Check:
    """How far the times of the traces may be off one another, by their collectives."""
    off_ns = [abs(clock.shift_ns) + clock.error_ns for clock in trace_clocks(run)]
    if not off_ns:
        return unknown(CheckName.TRACE_CLOCKS, "no_collectives")
    return judge(CheckName.TRACE_CLOCKS, max(off_ns) / 1e3, high=CLOCK_HIGH_US, unit="µs")


def trace_doubts(run: Run) -> tuple[Finding, ...]:
    """The findings of those that failed, TRACE_CLOCKS aside, which ``fiprof comm`` sets right."""
    made = [check(run) for check in (trace_starts, trace_gap, trace_hosts)] if traces(run) else []
    return tuple(check.finding for check in made if check.passed is False)


TRACE_CHECKS = (trace_starts, trace_gap, trace_hosts, trace_clocks_agree)
