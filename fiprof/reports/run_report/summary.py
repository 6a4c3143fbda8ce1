"""A run in three sentences: where the time goes, what bounds the most expensive kernel, what to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis import alternatives
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.check_rules import Check
from fiprof.analysis.thresholds import WAITING
from fiprof.analysis.verdict import measured as measured_step
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.model.case_quantities import KERNEL_TIME, kernel_median, total
from fiprof.model.labels import NO_CASE
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, join, more, numbers_of, sentence
from fiprof.model.quantities import DRAM_SHARE, DURATION
from fiprof.model.work import work_share
from fiprof.reports import verdict_words
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Section, Text
from fiprof.reports.run_report import verdicts
from fiprof.reports.words import known, phrase, worded
from fiprof.text import short_kernel

MOST_NAMED = 3
"""Kernels whose share of an iteration is said."""


@dataclass(frozen=True)
class KernelTime:
    """A kernel's time in an iteration of a case, or in a launch outside of cases."""

    case: str
    kernel: str
    time: TracedNumber
    """µs."""


def kernel_times(measured: Analyses) -> tuple[KernelTime, ...]:
    """The kernels of all cases, the most expensive first: by nsys, and by ncu where there is no trace."""
    executions = list(measured.run.trace.kernels)
    if executions:
        times = [(case, kernel, _per_iteration(measured, case, kernel)) for case, kernel in executions]
    else:
        times = [
            (group.case or "", group.kernel, group.median.traced(DURATION))
            for group in measured.groups
            if len(group.launches) == measured.iterations(group)
        ]
    found = [KernelTime(case, kernel, time) for case, kernel, time in times if time is not None and time.value]
    return tuple(sorted(found, key=lambda item: -item.time.value))


def _per_iteration(measured: Analyses, case: str, kernel: str) -> TracedNumber | None:
    """A kernel's time in an iteration: its median times its executions in one; None where these differ."""
    times, whole = measured.run.trace.kernels[case, kernel], measured.run.trace.cases.get(case)
    time = kernel_median(measured.run, case, kernel)
    if whole is None or time is None or times.count % whole.iteration.count:
        return None
    count = times.count // whole.iteration.count
    if count == 1:
        return time
    formula = f"median(duration_ns) * {count} / 1000"
    return TracedNumber(time.value * count, Provenance("nsys", formula, case=case, kernel=kernel), time.spec, time.unit)


def section(measured: Analyses, checks: Sequence[Check], found: Verdicts) -> Section:
    """The executive summary. found: the run's verdicts."""
    run = measured.run
    blocks: list[Block] = [Caution(worded(found)) for found in run.status_warning()]
    blocks += [Caution(f"no {what}: {why}") for what, why in lacks(measured)]
    sentences = [parts for parts in (_where(measured), _bound(measured, found), _first(measured, found)) if parts]
    if sentences:
        blocks.append(Bullets(tuple(map(Text, sentences))))
    blocks.append(Text((_sure(checks), " ", Link("How sure the numbers are", "#sure"), " names each.")))
    return Section("summary", "Executive summary", tuple(blocks))


def lacks(measured: Analyses) -> list[tuple[str, str]]:
    """What the run has nothing of, and why."""
    run = measured.run
    found: list[tuple[str, str]] = []
    if not run.launches:
        found.append((phrase("summary.counters"), worded(run.missing("ncu"))))
    if not run.has("kernels"):
        found.append((phrase("summary.story"), worded(run.missing("nsys"))))
    elif not run.trace.cases:
        why = "other_ranges" if run.has("ranges") else "no_ranges"
        found.append((phrase("summary.case_times"), phrase(f"summary.{why}")))
    if not run.plain:
        found.append((phrase("summary.plain"), phrase("summary.no_plain")))
    return found


def most_expensive(measured: Analyses) -> Group | None:
    """The kernel under ncu with most time of an iteration, of the cases without a faster alternative; None without
    ncu."""
    slower = alternatives.of_run(measured.run)
    for item in kernel_times(measured):
        for group in measured.groups:
            if (group.case, group.kernel) == (item.case or None, item.kernel) and item.case not in slower:
                return group
    return measured.longest[0] if measured.longest else None


def _where(measured: Analyses) -> tuple[str, ...]:
    """Each kernel's share of an iteration; of several cases, which make no pipeline, the range of their times."""
    found = kernel_times(measured)
    if not found:
        return ()
    run, by = measured.run, "nsys" if measured.run.trace.cases else "ncu"
    ids = dict.fromkeys(item.case for item in found if item.case)
    if len(ids) != 1:
        totals = [(time, run.labels(case)) for case in ids if (time := KERNEL_TIME.traced(run, case)) is not None]
        times = totals or [(item.time, short_kernel(item.kernel)) for item in found]
        (low, least), (high, most) = (pick(times, key=lambda item: item[0].value) for pick in (min, max))
        key = "cases" if totals else "launches"
        return (phrase(f"summary.{key}", count=len(times), low=low, least=least, high=high, most=most, by=by),)
    whole = total([item.time for item in found])
    assert whole is not None
    named = [
        sentence("{} {}", (item.time / whole).as_(".0%"), short_kernel(item.kernel)) for item in found[:MOST_NAMED]
    ]
    rest = len(found) - len(named)
    return (
        phrase(
            "summary.iteration",
            time=whole,
            by=by,
            kernels=join(", ", named),
            more=phrase("summary.more", count=rest) if rest else "",
        ),
    )


def _bound(measured: Analyses, found: Verdicts) -> tuple[str, ...]:
    """What bounds the most expensive kernel, and how sure that is."""
    group = most_expensive(measured)
    if group is None:
        return ()
    verdict = found.of(group.launch)
    return (_link(group), " ", verdicts.bound(verdict) if verdict else _roofs(measured, group))


def _lower(text: str) -> TracedText:
    """A sentence in the middle of another; a name keeps its capitals."""
    lowered = TracedText(text[:1].lower() + text[1:] if text[1:2].islower() else text)
    lowered.facts = numbers_of(text)
    return lowered


def _link(group: Group) -> Link:
    return Link(_name(group.kernel, group.label), f"#{group.anchor}")


def _name(kernel: str, label: str) -> str:
    """A kernel with its case, where that says more."""
    return f"{short_kernel(kernel)} ({label})" if label not in ("", NO_CASE, kernel) else short_kernel(kernel)


def _first(measured: Analyses, found: Verdicts) -> tuple[str, ...]:
    """What to do first: what was measured to be faster, else the step that may save most; and where no kernel helps."""
    told: list[str] = []
    faster = max(
        alternatives.of_run(measured.run).values(),
        key=lambda each: (-len(each.changes), each.saving_us),
        default=None,
    )
    first = verdicts.first_step(measured, found)
    if faster is not None:
        step = verdict_words.step(measured_step.step(faster), sentences=True)
        rest = len(alternatives.of_run(measured.run)) - 1
        others = phrase("summary.others_faster", others=more(rest, "case")) if rest else ""
        told.append(phrase("summary.faster", label=measured.run.labels(faster.case), step=_lower(step), others=others))
    elif first is not None:
        what = phrase(
            "verdict_page.first",
            step=_lower(worded(first.step.action)),
            bound=first.step.bound_pct,
            saves_us=first.saves_us,
            of="an iteration" if first.group.case else "a launch",
            basis=verdict_words.basis(first.step),
        )
        told += [phrase("verdict_page.first_in"), _link(first.group), what]
    idle = verdict_words.waiting(found, WAITING.value)
    if idle:
        case, share = idle[0]
        key, others = "waits_too" if len(idle) > 1 else "waits", more(len(idle) - 1, "case")
        told.append(phrase(f"verdict_page.{key}", label=case.label, share=share, others=others))
    return tuple(told)


def _roofs(measured: Analyses, group: Group) -> TracedText:
    """How far it is from its roofs, where no verdict says more."""
    work = measured.rooflines[group.launch].work
    share = None if work is None else group.median.traced(work_share(work.kind))
    of_dram = known("summary.of_dram", share=group.median.traced(DRAM_SHARE))
    parts = (known("summary.of_roof", share=share, kind=work and work.kind), of_dram)
    return known("summary.reaches", roofs=join(" and ", parts) or None) or phrase("summary.no_roofs")


def _sure(checks: Sequence[Check]) -> str:
    failed, unknown = (sum(check.passed is outcome for check in checks) for outcome in (False, None))
    if not checks:
        return phrase("summary.no_checks")
    key = "failed" if failed else "unknown" if unknown > len(checks) / 2 else "passed"
    return phrase(f"summary.{key}", failed=failed, unknown=unknown, all=len(checks))
