"""Verdicts in words: one sentence a fact, for the terminal, reports and studies alike."""

from __future__ import annotations

from fiprof.analysis.verdict.model import Bottleneck, CaseVerdict, Comparison, Kind, Part, Verdict, named
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.step import Step, StepId
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, join, sentence
from fiprof.reports.words import phrase, templates_of, worded


def title(of: Verdict | Bottleneck) -> str:
    """``memory-bound (DRAM)``."""
    return worded(of.finding)


def short_title(of: Verdict) -> str:
    """``latency-bound: barriers``, without the uses that nothing stands out of."""
    return worded(named(of.kind, None)) if of.kind is Kind.NO_SINGLE_LIMIT else title(of)


def distance(of: Verdict) -> TracedText:
    """How far it is from what limits it: ``47% (tensor cores at 53%)``; what it waits for, of what is no resource."""
    if of.kind in (Kind.LAUNCH, Kind.CONCURRENT, Kind.IMBALANCE) and of.evidence:
        return phrase(f"distance.{of.kind.name.lower()}", number=of.evidence[0].number.as_(".0f", "%"))
    top = (of.part and of.resource(of.part)) or of.busiest
    if of.kind is Kind.UNKNOWN or top is None or top.comparison is None:
        return sentence("")
    used = top.comparison.number.as_(".0f", "%")
    left = TracedNumber(
        max(100 - used.value, 0.0), Provenance("facts", "max(100 - a, 0)", parts=(used.source,)), ".0f", "%"
    )
    return phrase("distance.resource", left=left, part=top.part, use=used)


def what(quantity: str, of: Part | str | None) -> TracedText:
    """What was compared, by its key and the resource or stall reason: ``use of DRAM``."""
    part = next((part for part in Part if part == of), None)
    own = f"evidence.{quantity}"
    return phrase(own if part is None or own in templates_of("evidence") else "evidence.use", of=part or of)


def limit(of: Comparison) -> str:
    """``at least 80%``; empty where there is none."""
    if of.test is None:
        return ""
    return phrase("evidence.limit", test=of.test, threshold=of.threshold, unit=of.number.unit)


def origin(of: Comparison) -> str:
    """Who chose the threshold; empty where there is none."""
    return worded(of.origin) if of.origin else ""


def comparison(of: Comparison) -> TracedText:
    """``use of DRAM 88.6%, at least 80% (ncu's rule SOLBottleneck)``."""
    key = "evidence.compared" if of.origin else "evidence.alone"
    return phrase(key, what=what(of.quantity.key, of.of), number=of.number, limit=limit(of), origin=of.origin)


def reason(of: Verdict) -> TracedText:
    """The verdict with the number that decided it."""
    if not of.evidence:
        return sentence("{}", title(of))
    decided = comparison(of.evidence[0])
    if of.causes:
        return phrase("evidence.caused", verdict=of.finding, cause=comparison(of.causes[0].top), evidence=decided)
    return phrase("evidence.decided", verdict=of.finding, evidence=decided)


def runner_up(of: Verdict) -> str:
    """The runner-up and how close it was; empty where there is none."""
    if of.runner_up is None or of.margin_points is None:
        return ""
    kind = "feeds" if of.margin_points < 0 else "close" if of.close else "away"
    return phrase(f"runner_up.{kind}", runner_up=of.runner_up.finding, points=abs(of.margin_points))


def confidence(of: LaunchVerdict) -> TracedText:
    """``medium: borderline: …; short launch, …``."""
    doubts = join("; ", [worded(each) for each in of.doubts])
    return join(": ", [worded(of.confidence), *([doubts] if doubts else [])])


def basis(of: Step) -> str:
    """What it rests on; with ncu's estimates where rules say the same."""
    own = of.id in (StepId.NCU_RULE, StepId.FUSE_MULTIPLY_ADD)
    if own or not of.rules:
        return worded(of.basis)
    rules = tuple(f"{rule.rule} {estimate(rule)}" for rule in of.rules)
    return phrase("step.also", basis=of.basis, rules=rules)


def step(of: Step) -> TracedText:
    """``… (saves at most 12% of the launch: …)``."""
    bounds = [name for name, pct in (("estimated", of.estimate_pct), ("bound", of.bound_pct)) if pct is not None]
    kind = "measured" if of.measured_pct is not None else "_".join(bounds) or "unbound"
    return phrase(
        f"step.{kind}",
        action=of.action, bound=of.bound_pct, estimate=of.estimate_pct, measured=of.measured_pct, of=of.of,
        basis=basis(of),
    )  # fmt: skip


def short_step(of: Step) -> TracedText:
    """``fewer instructions, saves at most 33%``."""
    kind = "measured" if of.measured_pct is not None else "estimated" if of.estimate_pct is not None else "bound"
    pct = {"measured": of.measured_pct, "estimated": of.estimate_pct, "bound": of.bound_pct}[kind]
    action = phrase(f"short_step.{of.id}", **of.action.values)
    return action if pct is None else phrase(f"step.short_{kind}", action=action, pct=pct)


def estimate(of: QuotedRule) -> str:
    """``27% (global)``; empty without one."""
    if of.speedup_pct is None:
        return ""
    return phrase("quoted_rule.estimate", pct=of.speedup_pct, kind=of.speedup_kind)


def rule_head(of: QuotedRule) -> str:
    """``CPIStall, 28.1% (global)``."""
    return phrase("quoted_rule.head", rule=of.rule, estimate=estimate(of)) if estimate(of) else of.rule


def rule(of: QuotedRule) -> str:
    """What a rule of ncu says, or why it is no step."""
    key = "quoted_rule.rejected" if of.rejected else "quoted_rule.quoted"
    return phrase(key, rule=rule_head(of), rejected=of.rejected, message=of.message)


def case_kind(of: CaseVerdict) -> str:
    """``launch-bound``, ``bound by its kernels``."""
    return phrase(f"case_kind.{of.bound.name.lower()}")


def case(of: CaseVerdict) -> str:
    """``decode: launch-bound: the GPU waits …``."""
    return phrase("case.named", label=of.label, verdict=of.finding)
