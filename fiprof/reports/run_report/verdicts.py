"""What binds each kernel, as a report says it: at the head of its part, in the summary, and as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.verdict.quoted_rules import LEAST_GAIN_PCT
from fiprof.analysis.verdict.steps import Step
from fiprof.analysis.verdict.verdict import CaseVerdict, LaunchVerdict, Sure, Verdicts, verdicts
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import kernel_median
from fiprof.model.provenance import TracedNumber, TracedText, join, sentence
from fiprof.model.quantities import DURATION
from fiprof.model.run import Run
from fiprof.reports.pages.page import Block, Bullets, Link, Observation, Table, Text
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.view import Column
from fiprof.reports.words import worded
from fiprof.text import short_kernel

MOST_RULES = 2
"""Of ncu's own that are quoted in a kernel's part; the appendix has all."""
SURE_WORDS: dict[Sure, str] = {"high": "sure", "fair": "fairly sure", "low": "not sure"}
UNKNOWN = "unknown"
"""Kind of a verdict that says «not enough evidence»."""


def of_run(run: Run) -> Verdicts:
    """The verdicts of a run; none where it has nothing to judge.

    Raises FiprofError for a table that cannot be read.
    """
    if not run.has("launches") and not run.has("kernels"):
        return Verdicts(run.manifest.name, (), ())
    try:
        return verdicts(run)
    except FiprofError:
        if any(run.has(name) and run.table(name).num_rows for name in ("launches", "kernels")):
            measured = Analyses(run)
            if measured.run.launches or measured.run.trace.cases:
                raise
        return Verdicts(run.manifest.name, (), ())


def head(verdict: LaunchVerdict) -> list[Block]:
    """What stands at the head of a kernel's part: the verdict, the next steps, what ncu's rules say beside it."""
    found = verdict.judgement
    evidence = [reading.said() for reading in found.readings if not reading.rules_out]
    ruled_out = [sentence("not {}: {}", each.rules_out, each.said()) for each in found.readings if each.rules_out]
    if ruled_out:
        evidence.append(join("; ", ruled_out))
    if verdict.runner_up:
        evidence.append(sentence("runner-up: {}", verdict.runner_up))
    why = "; ".join((SURE_WORDS[verdict.sure], *map(worded, verdict.doubts)))
    blocks: list[Block] = [
        Observation(
            anchor=f"verdict-{verdict.launch}",
            observation=sentence("{}.", _capital(verdict.title)),
            evidence=tuple(evidence),
            implication=step_words(verdict.steps[0]) if verdict.steps else "no step follows from this evidence.",
            sure=f"{why}.",
        )
    ]
    rest = [Text((sentence("Then: {}", step_words(step)),)) for step in verdict.steps[1:]]
    notes = [Text((f"{note}.",)) for note in found.notes]
    worth = [rule for rule in verdict.rules if (rule.speedup_pct or 0.0) >= LEAST_GAIN_PCT]
    quoted = [
        Text(
            (
                f"ncu's {rule.rule}, {rule.estimate}: {rule.message}"
                + (f" No step: {rule.why_not}." if rule.why_not else ""),
            )
        )
        for rule in [rule for rule in worth if not rule.restates][:MOST_RULES]
    ]
    restating: dict[str, list[str]] = defaultdict(list)
    for rule in worth:
        if rule.restates:
            restating[rule.why_not].append(f"{rule.rule}, {rule.estimate}")
    quoted += [Text((f"ncu's {' and '.join(rules)}: no step, {why}.",)) for why, rules in restating.items()]
    if rest or quoted or notes:
        blocks.append(Bullets((*rest, *quoted, *notes)))
    return blocks


def step_words(step: Step) -> TracedText:
    """``Issue fewer instructions … It saves at most 33% of the launch: shared memory would still need …``."""
    if step.gain_pct is None:
        return sentence("{}. No estimate: {}.", step.action.rstrip("."), step.basis)
    return sentence(
        "{}. It saves at most {}% of {}: {}.", step.action.rstrip("."), f"{step.gain_pct:.0f}", step.of, step.basis
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_COLUMNS = (
    Column("launch", "#"),
    Column("case", "case"),
    Column("kernel", "kernel"),
    Column("verdict", "what binds it"),
    Column("sure", "sure"),
    Column("margin", "margin", "points", ".1f"),
)


def overview(found: Verdicts, groups: Iterable[Group], widest: int) -> Table | None:
    """Every kernel's verdict in a line; None without any. widest: cells of the cases' labels."""
    from dataclasses import replace

    rows: list[list[Cell]] = []
    for group in groups:
        verdict = found.of(group.launch)
        if verdict is not None:
            kernel = Link(short_kernel(group.kernel), f"#{group.anchor}")
            margin = verdict.judgement.margin
            rows.append([group.launch, group.label, kernel, verdict.title, verdict.sure, margin])
    if not rows:
        return None
    columns = [replace(each, least=widest) if each.key == "case" else each for each in _COLUMNS]
    notes = ["margin: by how much the evidence would have to differ for the runner-up; fiprof verdict says all of it."]
    if any(isinstance(row[-1], float) and row[-1] < 0 for row in rows):
        notes.append("A negative margin: the runner-up is busier, but with feeding what binds.")
    return table(columns, rows, anchor="kernels-verdicts", title="What binds each kernel", notes=tuple(notes))


@dataclass(frozen=True)
class First:
    """The step with the largest gain of a run."""

    group: Group
    step: Step
    saves_us: float
    """At most, of an iteration."""


def first_step(measured: Analyses, found: Verdicts) -> First | None:
    """The step that may save most time of an iteration, of all kernels; None where no step has an estimate."""
    best: First | None = None
    for group in measured.longest:
        verdict, time = found.of(group.launch), kernel_median(measured.run, group.case, group.kernel)
        time = time or group.median.traced(DURATION)
        if verdict is None or time is None:
            continue
        for step in verdict.steps:
            if step.gain_pct is None or step.of != "the launch":
                continue
            saves = time.value * step.gain_pct / 100
            if best is None or saves > best.saves_us:
                best = First(group, step, saves)
    return best


def bound(verdict: LaunchVerdict) -> TracedText:
    """``is memory-bound (DRAM): use of DRAM 66.5%, …; fairly sure, runner-up latency-bound, 6.5 points away.``"""
    readings = verdict.judgement.readings
    words = (
        [sentence("is {}", verdict.title)]
        if verdict.judgement.kind != UNKNOWN
        else [sentence("has not enough evidence for a verdict")]
    )
    if readings:
        words.append(readings[0].said())
    text = join(": ", words)
    runner = f", runner-up {verdict.runner_up}" if verdict.runner_up else ""
    return sentence("{}; {}{}.", text, SURE_WORDS[verdict.sure], runner)


def waiting(found: Verdicts, least_pct: float) -> list[tuple[CaseVerdict, TracedNumber]]:
    """Cases of whose iteration the GPU waits for at least so many percent, the longest first."""
    cases = [
        (case, case.waiting.fact.as_(".0f", "%"))
        for case in found.cases
        if case.waiting is not None and case.waiting.value >= least_pct
    ]
    return sorted(cases, key=lambda pair: -pair[1].value)
