"""What ncu's own rules say about a launch, and which of it is about the limit."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import CONFLICTS, EXCESS, LEAST_GAIN, UNUSED
from fiprof.analysis.verdict.model import Kind, Part, Verdict
from fiprof.model.finding import Finding, finding, plain
from fiprof.model.quantities import BANK_CONFLICTS, Row, number
from fiprof.model.run import Run
from fiprof.model.work import dominant_tensor_kind, mostly_mma
from fiprof.text import csv_rows

LONGEST_MESSAGE = 200  # characters of a rule's message that are quoted


class QuotedRule(NamedTuple):
    """A finding of one of ncu's rules."""

    section: str
    rule: str
    kind: str  # OPT, INF or WRN
    message: str  # its first sentences
    speedup_kind: str | None  # ``global``: of the kernel; ``local``: of the section's share. None without an estimate.
    speedup_pct: float | None  # its estimate of the time that could be saved, percent
    rejected: Finding | None = None  # why it is no step; None where it is one, or may be

    def fields(self) -> dict[str, Any]:
        return {**self._asdict(), "rejected": plain(self.rejected)}


RULES = csv_rows(Path(__file__).with_name("ncu_rules.csv"))
"""ncu's rules: the parts and kinds of verdict that each is about, and where what it says of a launch begins; or why it
is never a step."""
CONFLICT_RULES = ("SharedMemoryConflicts", "UncoalescedSharedAccess")
BALANCE_RULES = ("LaunchConfiguration", "WorkloadImbalance")
SECTOR_RULES = ("MemoryCacheAccessPattern", "UncoalescedGlobalAccess")


def by_launch(run: Run) -> Mapping[int, tuple[QuotedRule, ...]]:
    """Launch -> what ncu's rules say; empty where they were not collected."""

    def quoted(row: dict[str, Any]) -> QuotedRule:
        texts = {name: row[name] or "" for name in ("section", "rule", "kind", "message")}
        begins = RULES.get(texts["rule"], {}).get("begins", "")
        own = texts["message"][max(texts["message"].find(begins), 0) :]
        return QuotedRule(**{**row, **texts, "message": _beginning(own)})

    columns = ("section", "rule", "kind", "message", "speedup_kind", "speedup_pct")
    return run.by_launch("rules", columns, lambda rows: tuple(map(quoted, rows)))


def weighed(
    rules: tuple[QuotedRule, ...], verdict: Verdict, row: Row, excess_bytes: float | None = None
) -> tuple[QuotedRule, ...]:
    """The rules with an estimate or about the whole, the largest estimate first, each with why it is no step.

    Of a rule that speaks several times, what it says with its largest estimate. row: the launch's. excess_bytes: DRAM
    bytes that ncu counted over those that the case needs; None where that is not known.
    """
    once: dict[str, QuotedRule] = {}
    for rule in sorted(rules, key=lambda rule: -(rule.speedup_pct or 0.0)):
        if rule.speedup_pct is not None or rule.rule == "SOLBottleneck":
            once.setdefault(rule.rule, rule)
    return tuple(rule._replace(rejected=_rejected(rule, verdict, row, excess_bytes)) for rule in once.values())


def by_warpgroups(row: Row) -> bool:
    """Whether the tensor operations are wgmma: asynchronous, so that few warps do, and more find no registers."""
    kind = dominant_tensor_kind(row)
    if kind is None or number(row, f"tensor_peak_{kind}_ops_per_cycle") is None:
        return False
    return (number(row, "tensor_active_pct") or 0.0) >= UNUSED and not mostly_mma(row, kind)


def _rejected(rule: QuotedRule, verdict: Verdict, row: Row, excess_bytes: float | None) -> Finding | None:
    known_rule = RULES.get(rule.rule)
    if known_rule and known_rule["never"]:
        return finding(known_rule["never"], known_rule["why"])
    if verdict.kind is Kind.LAUNCH:
        return finding("host", "it is about the kernel, and the GPU waits for the host")
    if rule.speedup_pct is not None and rule.speedup_pct < LEAST_GAIN:
        return finding("small", "its estimate is below {least_pct:g}%", least_pct=LEAST_GAIN)
    # What limits, the runner-up too where it is close.
    limits = (*verdict.limits, *([verdict.runner_up] if verdict.close and verdict.runner_up else []))
    bound = {each for limit in limits for each in (str(limit.kind), limit.part)}
    conflicts = BANK_CONFLICTS.of(row)
    if rule.rule in CONFLICT_RULES and conflicts is not None and conflicts < CONFLICTS / 100:
        words = "bank conflicts are {share:.1%} of all passes through shared memory"
        return finding("few_conflicts", words, share=conflicts)
    if rule.rule in SECTOR_RULES and Part.DRAM in bound and excess_bytes is not None and excess_bytes < EXCESS:
        words = "DRAM moves {factor:.2f} times the bytes that the algorithm needs"
        return finding("no_excess", words, factor=excess_bytes)
    if rule.rule == "TheoreticalOccupancy":
        if by_warpgroups(row):
            return finding("warpgroups", "pipelines hide the latency of wgmma, not warps")
        if (waves := occupancy(row).waves) is not None and not waves.full:
            words = "the grid has fewer blocks than fit at once; more room on a multiprocessor does not help"
            return finding("small_grid", words)
    if known_rule is None:
        return None
    about = [Part(each) if each in {*Part} else each for each in known_rule["about"].split()]
    if bound.isdisjoint(about):
        named = tuple(part for part in about if part is not Part.SHARED_MEMORY_OR_L1)
        words = "it is about {about}; this launch is {verdict}"
        return finding("other_bottleneck", words, about=named, verdict=verdict.finding)
    if rule.speedup_kind == "local":
        return finding("local", "its estimate is of the section's part, not of the launch's time")
    return None


@functools.lru_cache(4096)
def _beginning(message: str) -> str:
    """Whole sentences as far as they fit, at least one; markers of links and lines are taken out."""
    text = re.sub(r" \(https?://[^\s)]*\)", "", re.sub(r"\s+", " ", message)).strip()
    if len(text) <= LONGEST_MESSAGE:
        return text
    ends = [match.end() for match in re.finditer(r"(?<=[a-z)%])[.:] |(?<=\d)[.] (?=[A-Z])", text)]
    fits = [end for end in ends if end <= LONGEST_MESSAGE]
    return text[: fits[-1]].strip() if fits else f"{text[: LONGEST_MESSAGE - 1].rstrip()}…"
