"""What ncu's own rules say about a launch, and which of it is about what binds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from fiprof.parsers.run import Run
from fiprof.reports import source
from fiprof.reports.verdict_rules import (
    DRAM,
    ISSUE,
    L1_DATA,
    L2,
    SHARED,
    TENSOR,
    Judgement,
)

LONGEST_MESSAGE = 200
"""Characters of a rule's message that are quoted."""
LEAST_GAIN_PCT = 1.0
"""A rule's estimate from which it becomes a step."""


@dataclass(frozen=True)
class QuotedRule:
    """A finding of one of ncu's rules."""

    section: str
    rule: str
    kind: str
    """OPT, INF or WRN."""
    message: str
    """Its first sentences."""
    speedup_kind: str | None
    """``global``: of the kernel; ``local``: of the section's share. None without an estimate."""
    speedup_pct: float | None
    """Its estimate of the time that could be saved, percent."""
    why_not: str = ""
    """Why it is no step; empty where it is one, or may be."""

    @property
    def estimate(self) -> str:
        """``27 % (global)``; empty without one."""
        return "" if self.speedup_pct is None else f"{self.speedup_pct:.3g} % ({self.speedup_kind})"


_COMPRESSION = (
    "only memory allocated as compressible can be compressed, which frameworks do not do; its estimate is how much "
    "L2 is used, not what compression would save"
)
_RESTATES = "it says how busy a unit is, which the verdict rests on already"

_NEVER: Mapping[str, str] = {
    "MemoryL2Compression": _COMPRESSION,
    "HighPipeUtilization": _RESTATES,
    "IssueSlotUtilization": _RESTATES,
    "SOLBottleneck": _RESTATES,
    "SOLFPRoofline": "it places the launch on a roofline; see fiprof roofline",
    "PMSamplingData": "it is about ncu's sampling in time, which nothing here uses",
}

_PIPES = ("FMA pipe", "ALU pipe", "XU pipe", "FP64 pipe", "LSU pipe", ISSUE)
_LATENCY, _IMBALANCE = "latency", "imbalance"

_ABOUT: Mapping[str, tuple[str, ...]] = {
    # Rule -> the parts (or latency, imbalance) that it is about.
    "MemoryCacheAccessPattern": (DRAM, L2, L1_DATA),
    "UncoalescedGlobalAccess": (DRAM, L2, L1_DATA),
    "SharedMemoryConflicts": (SHARED, L1_DATA, "shared memory or L1"),
    "UncoalescedSharedAccess": (SHARED, L1_DATA, "shared memory or L1"),
    "LocalMemoryUsage": (DRAM, L2, L1_DATA, "LSU pipe"),
    "FPInstructions": ("FMA pipe", "FP64 pipe", ISSUE),
    "ThreadDivergence": _PIPES,
    "SlowPipeLimiter": _PIPES,
    "HotPipe": _PIPES,
    "TensorUsage": (TENSOR, *_PIPES),
    "CPIStall": (_LATENCY,),
    "AchievedOccupancy": (_LATENCY,),
    "TheoreticalOccupancy": (_LATENCY,),
    "LaunchConfiguration": (_IMBALANCE,),
    "WorkloadImbalance": (_IMBALANCE,),
}


def by_launch(run: Run) -> dict[int, tuple[QuotedRule, ...]]:
    """Launch -> what ncu's rules say; empty where they were not collected.

    Raises FiprofError for a table that cannot be read.
    """
    columns = ("launch", "section", "rule", "kind", "message", "speedup_kind", "speedup_pct")
    found: dict[int, list[QuotedRule]] = defaultdict(list)
    for row in source.rows(run, "rules", columns):
        found[row["launch"]].append(
            QuotedRule(
                section=row["section"] or "",
                rule=row["rule"] or "",
                kind=row["kind"] or "",
                message=_beginning(row["message"] or ""),
                speedup_kind=row["speedup_kind"],
                speedup_pct=row["speedup_pct"],
            )
        )
    return {launch: tuple(rules) for launch, rules in found.items()}


def weighed(rules: tuple[QuotedRule, ...], judgement: Judgement) -> tuple[QuotedRule, ...]:
    """The rules with an estimate or about the whole, the largest estimate first, each with why it is no step."""
    kept = [rule for rule in rules if rule.speedup_pct is not None or rule.rule == "SOLBottleneck"]
    ordered = sorted(kept, key=lambda rule: -(rule.speedup_pct or 0.0))
    return tuple(QuotedRule(**{**vars(rule), "why_not": _why_not(rule, judgement)}) for rule in dict.fromkeys(ordered))


def _why_not(rule: QuotedRule, judgement: Judgement) -> str:
    if rule.rule in _NEVER:
        return _NEVER[rule.rule]
    if rule.speedup_pct is not None and rule.speedup_pct < LEAST_GAIN_PCT:
        return f"its estimate is below {LEAST_GAIN_PCT:g} %"
    about = _ABOUT.get(rule.rule)
    if about is None:
        return ""
    bound = bound_by(judgement)
    if not bound & set(about):
        return f"it is about {_list(about)}, and this launch is {judgement.title}"
    if rule.speedup_kind == "local":
        return "its estimate is of the section's part, not of the launch's time"
    return ""


def bound_by(judgement: Judgement) -> set[str]:
    """The parts that bind; the runner-up's too where it is close."""
    found = {judgement.part, judgement.kind}
    if judgement.close and judgement.runner_up is not None:
        found |= {judgement.runner_up.part, judgement.runner_up.kind}
    return found - {""}


def _list(about: tuple[str, ...]) -> str:
    return " or ".join(part for part in about if part != "shared memory or L1")


def _beginning(message: str) -> str:
    """Whole sentences as far as they fit, at least one; markers of links and lines are taken out."""
    text = re.sub(r"\s+", " ", message).strip()
    if len(text) <= LONGEST_MESSAGE:
        return text
    ends = [match.end() for match in re.finditer(r"(?<=[a-z)%])[.:] ", text)]
    fits = [end for end in ends if end <= LONGEST_MESSAGE]
    return text[: fits[-1]].strip() if fits else f"{text[: LONGEST_MESSAGE - 1].rstrip()}…"
