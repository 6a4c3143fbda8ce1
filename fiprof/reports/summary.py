"""A run in three sentences: where the time goes, what bounds the most expensive kernel, what to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.reports import source
from fiprof.reports.check_rules import Check
from fiprof.reports.facts import Fact, Said, join, say
from fiprof.reports.labels import short_kernel
from fiprof.reports.measured import Group, Measured, total
from fiprof.reports.page import Block, Bullets, Caution, Link, Section, Text

MOST_NAMED = 3
"""Kernels whose share of the time is said."""


@dataclass(frozen=True)
class Share:
    """A kernel's part in the time of the run's iterations."""

    case: str
    kernel: str
    time: Fact
    """Of an iteration, µs."""
    share: Fact
    """Of the kernel time of one iteration of every case."""


def shares(measured: Measured) -> tuple[Share, ...]:
    """The kernels of all cases, the most expensive first: by nsys, and by ncu where there is no trace."""
    executions = list(measured.evidence.trace.kernels)
    if executions:
        times = [(case, kernel, _per_iteration(measured, case, kernel)) for case, kernel in executions]
    else:
        times = [
            (group.case or "", group.kernel, measured.duration(group.row))
            for group in measured.groups
            if len(group.rows) == measured.iterations(group)
        ]
    known = [(case, kernel, time) for case, kernel, time in times if time is not None]
    whole = total([time for *_, time in known])
    if whole is None or not whole.value:
        return ()
    found = [Share(case, kernel, time, (time / whole).as_(".0%")) for case, kernel, time in known]
    return tuple(sorted(found, key=lambda item: -item.time.value))


def _per_iteration(measured: Measured, case: str, kernel: str) -> Fact | None:
    """A kernel's median time; None where an iteration launches it several times, and their sum is not its median."""
    times, whole = measured.evidence.trace.kernels[case, kernel], measured.evidence.trace.cases.get(case)
    if whole is None or times.count != whole.iteration.count:
        return None
    return measured.nsys_kernel(case, kernel)


@dataclass(frozen=True)
class Judged:
    """What is known of the most expensive kernel: by its verdict, where there is one."""

    bound: str
    """A sentence: what bounds it, and how sure that is."""
    first: str
    """A sentence: what to do first, with the gain that is estimated; empty where nothing follows."""


def section(measured: Measured, checks: Sequence[Check], judged: Judged | None) -> Section:
    """The executive summary.

    judged: of :func:`most_expensive`.
    """
    run = measured.run
    blocks: list[Block] = [Caution(text) for text in source.status_warning(run)]
    blocks += [Caution(f"no {what}: {why}") for what, why in lacks(measured)]
    sentences = [
        Text(parts)
        for parts in (_where(measured), _bound(measured, judged), ((judged.first,) if judged and judged.first else ()))
        if parts
    ]
    if sentences:
        blocks.append(Bullets(tuple(sentences)))
    blocks.append(Text((_sure(checks), " ", Link("How sure the numbers are", "#sure"), " names each.")))
    return Section("summary", "Executive summary", tuple(blocks))


def lacks(measured: Measured) -> list[tuple[str, str]]:
    """What the run has nothing of, and why."""
    run, found = measured.run, []
    if not measured.evidence.launches:
        found.append(("counters, occupancy, stalls and roofs", source.why_missing(run, "ncu")))
    if not run.has("kernels"):
        found.append(("execution story and times by nsys", source.why_missing(run, "nsys")))
    elif not measured.evidence.trace.cases:
        found.append(("times of cases by nsys", _why_no_cases(run.has("ranges"))))
    if not measured.evidence.plain:
        found.append(("times without a profiler", "the plain run left none"))
    return found


def _why_no_cases(ranges: bool) -> str:
    found = "no NVTX ranges of fiprof" if ranges else "no NVTX ranges at all"
    return f"the trace has {found}, so that no kernel can be told to belong to a case"


def most_expensive(measured: Measured) -> Group | None:
    """The kernel under ncu with most time of an iteration; None without ncu."""
    for item in shares(measured):
        for group in measured.groups:
            if (group.case, group.kernel) == (item.case or None, item.kernel):
                return group
    return measured.longest[0] if measured.longest else None


def _where(measured: Measured) -> tuple[str, ...]:
    found = shares(measured)
    if not found:
        return ()
    cases = len({item.case for item in found})
    whole = total([item.time for item in found])
    assert whole is not None
    named = [
        say("{} {}{}", item.share, short_kernel(item.kernel), f" ({measured.labels(item.case)})" if cases > 1 else "")
        for item in found[:MOST_NAMED]
    ]
    rest = len(found) - len(named)
    more = f", and {rest} more" if rest else ""
    what = f"One iteration of each of the {cases} cases takes" if cases > 1 else "An iteration takes"
    by = "nsys" if measured.evidence.trace.cases else "ncu"
    return (say("{} {} of kernel time by {}: {}{}.", what, whole, by, join(", ", named), more),)


def _bound(measured: Measured, judged: Judged | None) -> tuple[str, ...]:
    group = most_expensive(measured)
    if group is None:
        return ()
    name = Link(f"{short_kernel(group.kernel)} ({group.label})", f"#{group.anchor}")
    return (name, " ", judged.bound if judged else _roofs(measured, group))


def _roofs(measured: Measured, group: Group) -> Said:
    """How far it is from its roofs, where no verdict says more."""
    work = measured.rooflines[group.launch].work
    parts = []
    if work is not None and (share := measured.work_share(group.row, work)) is not None:
        parts.append(say("{} of the {} roof", share, work.kind))
    if (dram := measured.dram_share(group.row)) is not None:
        parts.append(say("{} of DRAM's", dram))
    return say("reaches {}.", join(" and ", parts)) if parts else say("has no counters of its roofs.")


def _sure(checks: Sequence[Check]) -> str:
    failed = sum(check.passed is False for check in checks)
    if not checks:
        return "The run has nothing to check itself by."
    return f"{failed} of the run's {len(checks)} checks on itself failed." if failed else "No check of the run failed."
