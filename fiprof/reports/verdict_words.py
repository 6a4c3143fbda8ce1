"""Verdicts in words: one sentence a fact, for the terminal, reports and studies alike."""

from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Kind, Part, TimeOf, Verdict
from fiprof.analysis.verdict.ncu_rules import QuotedRule
from fiprof.analysis.verdict.steps import Step
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.finding import TracedText, join, say, words_of
from fiprof.model.quantities import calculated


def short_title(of: Verdict) -> str:
    """``latency-bound: barriers``, ``memory-bound (DRAM) and latency-bound``."""
    return words_of(of.finding)


def distance(of: Verdict) -> TracedText:
    """How far it is from what limits it: ``47% (tensor cores at 53%)``; what it waits for, of what is no resource."""
    what_for = {Kind.LAUNCH: "waiting", Kind.CONCURRENT: "shared", Kind.IMBALANCE: "idle"}.get(of.kind)
    if what_for and of.evidence:
        return say("{number} {what_for}", number=of.evidence[0].number.as_(".0f", "%"), what_for=what_for)
    top = (of.part and of.resource(of.part)) or of.busiest
    if of.kind is Kind.UNKNOWN or top is None or top.comparison is None:
        return TracedText()
    used = top.comparison.number.as_(".0f", "%")
    left = calculated("max(100 - a, 0)", used, spec=".0f", unit="%")
    return say("{left} ({part} at {use})", left=left, part=top.part, use=used)


_PARTS = {str(part): part for part in Part}


def what(of: Comparison) -> TracedText:
    """What was compared: ``use of DRAM``."""
    return say(of.quantity.title or "use of {of}", of=_PARTS.get(str(of.of), of.of))


def limits(of: Comparison) -> list[str]:
    """``at least 80%``, and who chose it; nothing where it was compared with nothing."""
    if of.threshold is None:
        return []
    test = "at least" if of.reached else "below"
    return [f"{test} {of.threshold:g}{of.number.unit}", words_of(of.threshold.origin)]


def comparison(of: Comparison) -> TracedText:
    """``use of DRAM 88.6%, at least 80% (ncu's rule SOLBottleneck)``."""
    words = "{what} {number}, {limits[0]} ({limits[1]})" if of.threshold is not None else "{what} {number}"
    return say(words, what=what(of), number=of.number, limits=limits(of))


def reason(of: Verdict) -> TracedText:
    """The verdict with the number that decided it."""
    if not of.evidence:
        return say("{verdict}", verdict=of.finding)
    shown = [*(cause.evidence[0] for cause in of.causes[:1]), of.evidence[0]]
    return say("{verdict}: {shown}", verdict=of.finding, shown=join("; ", map(comparison, shown)))


def runner_up(of: Verdict) -> str:
    """The runner-up and how close it was; empty where there is none, or it is named as the second of a pair."""
    if of.pair or of.runner_up is None or of.margin_points is None:
        return ""
    words = "{runner_up}, {points:.1f} points ahead, but it feeds the limit"
    if of.margin_points >= 0:
        words = "{runner_up}, only {points:.1f} points away" if of.close else "{runner_up}, {points:.1f} points away"
    return say(words, runner_up=of.runner_up.finding, points=abs(of.margin_points))


def confidence(of: LaunchVerdict) -> TracedText:
    """``medium: borderline: …; short launch, …``."""
    return join(": ", [words_of(of.confidence), join("; ", map(words_of, of.caveats))])


def basis(of: Step) -> str:
    """What it rests on; with ncu's estimates where rules say the same."""
    if of.id == "ncu_rule" or not of.rules:
        return words_of(of.basis)
    rules = tuple(f"{rule.rule} {estimate(rule)}" for rule in of.rules)
    return say("{basis}; ncu's rule: {rules}", basis=of.basis, rules=rules)


def step(of: Step) -> TracedText:
    """``… (saves at most 12% of the launch: …)``."""
    words = "{action} (no bound: {basis})"
    if of.measured_pct is not None:
        words = "{action} (saved {measured:.3g}% of {of}: measured, {basis})"
    elif of.estimated and of.bound_pct is not None:
        words = "{action} (saves {estimate:.3g}% of {of} by estimate, at most {bound:.3g}%: {basis})"
    elif of.estimated:
        words = "{action} (saves {estimate:.3g}% of {of} by estimate: {basis})"
    elif of.little_known:
        words = "{action} (little is known: at most {bound:.3g}% of {of}; {basis})"
    elif of.bound_pct is not None:
        words = "{action} (saves at most {bound:.3g}% of {of}: {basis})"
    pct = {"bound": of.bound_pct, "estimate": of.estimate_pct, "measured": of.measured_pct}
    because = basis(of) if of.basis.words or of.rules else ""
    return say(words if because else words.replace(": {basis}", ""), action=of.action, of=of.of, basis=because, **pct)


def short_step(of: Step) -> TracedText:
    """``fewer instructions, ≤ 33%``; ``fuse or batch, ~1.2% of all kernel time``."""
    words, pct = "{action}, ≤ {pct}%", of.bound_pct
    if of.measured_pct is not None:
        words, pct = "{action}, saved {pct}%", of.measured_pct
    elif of.estimated:
        words, pct = "{action}, ~{pct}%", of.estimate_pct
    elif of.little_known:
        words = "{action}, little known (≤ {pct}%)"
    words += "" if of.of is TimeOf.LAUNCH else " of {of}"
    action = say(of.short, **of.action.values)
    return (
        say(words, action=action, pct=f"{pct:{'.0f' if pct >= 1 else '.1g'}}", of=of.of) if pct is not None else action
    )


def estimate(of: QuotedRule) -> str:
    """``27% (global)``; empty without one."""
    return "" if of.speedup_pct is None else f"{of.speedup_pct:.3g}% ({of.speedup_kind})"


def rule(of: QuotedRule) -> str:
    """What a rule of ncu says, or why it is no step: ``ncu's rule CPIStall, 28.1% (global): …``."""
    words = "ncu's rule {head}: no step, {rejected}" if of.rejected else "ncu's rule {head}: {message}"
    head = ", ".join(filter(None, (of.rule, estimate(of))))
    return say(words, head=head, rejected=of.rejected, message=of.message)


def case_kind(of: CaseVerdict) -> str:
    """``launch-bound``, ``bound by its kernels``."""
    return of.bound.words.partition(":")[0]


def case(of: CaseVerdict) -> str:
    """``decode: launch-bound: the GPU waits …``."""
    return say("{label}: {verdict}", label=of.label, verdict=of.finding)
