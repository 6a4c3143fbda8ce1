"""What binds each kernel, as a report says it: at the head of its part, in the summary, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.thresholds import LEAST_GAIN
from fiprof.analysis.verdict.model import Kind
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.step import Step, TimeOf
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts, verdicts
from fiprof.model.case_quantities import kernel_median
from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedText, join, sentence
from fiprof.model.quantities import DURATION
from fiprof.model.run import Run
from fiprof.reports import verdict_words as words
from fiprof.reports.columns import widened
from fiprof.reports.pages.page import Block, Bullets, Link, Observation, Table, Text
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded
from fiprof.text import short_kernel

MOST_RULES = 2
"""Of ncu's own that are quoted in a kernel's part; the appendix has all."""


def of_run(run: Run) -> Verdicts:
    """The verdicts of a run; none where it has nothing to judge.

    Raises FiprofError for a table that cannot be read.
    """
    if run.launches or run.trace.cases:
        return verdicts(run)
    return Verdicts(run.manifest.name, (), ())


def head(verdict: LaunchVerdict) -> list[Block]:
    """What stands at the head of a kernel's part: the verdict, the next steps, what ncu's rules say beside it."""
    evidence = [words.comparison(each) for each in verdict.evidence if words.ruled_out(each) is None]
    ruled_out = [said for each in verdict.evidence if (said := words.ruled_out(each)) is not None]
    if ruled_out:
        evidence.append(join("; ", ruled_out))
    if verdict.runner_up:
        evidence.append(phrase("verdict_page.runner_up", runner_up=words.runner_up(verdict)))
    first, *rest = verdict.steps or (None,)
    blocks: list[Block] = [
        Observation(
            anchor=f"verdict-{verdict.launch}",
            observation=sentence("{}.", _capital(words.title(verdict))),
            evidence=tuple(evidence),
            implication=words.step(first, sentences=True) if first else phrase("verdict_page.no_step"),
            sure=phrase("verdict_page.confidence", confidence=words.confidence(verdict)),
        )
    ]
    lines = [phrase("verdict_page.then", step=words.step(step, sentences=True)) for step in rest if step]
    lines += [*_quoted(verdict), *(sentence("{}", worded(note)) for note in verdict.notes)]
    if lines:
        blocks.append(Bullets(tuple(Text((line,)) for line in lines)))
    return blocks


def _quoted(verdict: LaunchVerdict) -> list[TracedText]:
    """ncu's rules: the largest estimates about this launch; those that restate what is known share a line."""
    worth = [rule for rule in verdict.rules if (rule.speedup_pct or 0.0) >= LEAST_GAIN.value]
    lines = [
        phrase(
            "verdict_page.rejected" if rule.rejected else "verdict_page.quoted",
            rule=words.rule_head(rule), message=rule.message, rejected=rule.rejected,
        )
        for rule in [rule for rule in worth if not rule.restates][:MOST_RULES]
    ]  # fmt: skip
    restating: dict[str, tuple[Finding, list[QuotedRule]]] = {}
    for rule in worth:
        if rule.restates and rule.rejected is not None:
            restating.setdefault(rule.rejected.kind, (rule.rejected, []))[1].append(rule)
    for rejected, rules in restating.values():
        named = tuple(words.rule_head(rule) for rule in rules)
        lines.append(phrase("verdict_page.restate", rules=named, rejected=rejected))
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_COLUMNS: TracedColumns = (
    (Column("launch", "#"), lambda pair: pair[0].launch),
    (Column("case", "case"), lambda pair: pair[0].label),
    (Column("kernel", "kernel"), lambda pair: Link(short_kernel(pair[0].kernel), f"#{pair[0].anchor}")),
    (Column("verdict", "what binds it"), lambda pair: words.title(pair[1])),
    (Column("confidence", "confidence"), lambda pair: pair[1].confidence.value),
    (Column("margin", "margin", "points", ".1f"), lambda pair: pair[1].margin_points),
)
"""Of a kernel's launches and their verdict."""


def overview(found: Verdicts, groups: Sequence[Group]) -> Table | None:
    """Every kernel's verdict in a line; None without any."""
    judged = [(group, verdict) for group in groups if (verdict := found.of(group.launch)) is not None]
    if not judged:
        return None
    fed = any((verdict.margin_points or 0.0) < 0 for _, verdict in judged)
    notes = [phrase("verdict_page.margin"), *([phrase("verdict_page.negative_margin")] if fed else [])]
    columns = widened(_COLUMNS, (group.label for group, _ in judged))
    return listed(columns, judged, anchor="kernels-verdicts", title=phrase("verdict_page.title"), notes=tuple(notes))


@dataclass(frozen=True)
class FirstStep:
    """The step with the largest gain of a run."""

    group: Group
    step: Step
    saves_us: float
    """At most, of an iteration."""


def first_step(measured: Analyses, found: Verdicts) -> FirstStep | None:
    """The step that may save most time of an iteration, of all kernels; None where no step has an estimate."""
    best: FirstStep | None = None
    most_us = 0.0
    for group in measured.longest:
        verdict, time = found.of(group.launch), kernel_median(measured.run, group.case, group.kernel)
        time = time or group.median.traced(DURATION)
        if verdict is None or time is None:
            continue
        for step in verdict.steps:
            if step.bound_pct is None or step.of is not TimeOf.LAUNCH:
                continue
            size_us = time.value * (step.size_pct or 0.0) / 100
            if size_us > most_us:
                best, most_us = FirstStep(group, step, time.value * step.bound_pct / 100), size_us
    return best


def bound(verdict: LaunchVerdict) -> TracedText:
    """``is memory-bound (DRAM): use of DRAM 66.5%, …; confidence medium, runner-up latency-bound, 6.5 points away.``"""
    known = verdict.kind is not Kind.UNKNOWN
    return phrase(
        f"verdict_page.{'bound' if known else 'unknown'}{'' if verdict.runner_up else '_alone'}",
        reason=words.reason(verdict), confidence=verdict.confidence, runner_up=words.runner_up(verdict),
    )  # fmt: skip
