"""What ncu's own rules say about a launch, and which of it is about what binds."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.verdict.model import Judgement
from fiprof.analysis.verdict.rules import DRAM, ISSUE, L1_DATA, L2, SHARED, SHARED_OR_L1, TENSOR
from fiprof.model.expressions import Row, number
from fiprof.model.quantities import dominant_tensor_kind, mostly_mma
from fiprof.model.run import Run

LONGEST_MESSAGE = 200
"""Characters of a rule's message that are quoted."""
LEAST_GAIN_PCT = 1.0
"""An estimate from which something is a step."""
CONFLICT_SHARE = 0.1
"""Of the passes through shared memory, from which bank conflicts are one: that of ncu's rule SharedMemoryConflicts,
which takes loads and stores each for itself, so that it speaks of stores that are one pass in a hundred."""
UNUSED_PCT = 1.0
"""Use of the tensor cores below which a kernel does not use them: RMSNorm, which has no matrices, reads 0.7%."""
EXCESS = 1.1
"""Counted over needed work or bytes, likewise: fiprof's choice."""


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
    def restates(self) -> bool:
        """Whether it says about every launch what it says about this one."""
        return self.rule in _NEVER

    @property
    def estimate(self) -> str:
        """``27% (global)``; empty without one."""
        return "" if self.speedup_pct is None else f"{self.speedup_pct:.3g}% ({self.speedup_kind})"


_COMPRESSION = (
    "only memory allocated as compressible can be compressed, which frameworks do not do; the estimate is how much "
    "L2 is used, not what compression would save"
)
_RESTATES = "this is how busy a unit is, which the verdict rests on already"

_NEVER: Mapping[str, str] = {
    "MemoryL2Compression": _COMPRESSION,
    "HighPipeUtilization": _RESTATES,
    "IssueSlotUtilization": _RESTATES,
    "SOLBottleneck": _RESTATES,
    "SOLFPRoofline": "it places the launch on a roofline; see fiprof roofline",
    "PMSamplingData": "it is about ncu's sampling in time, which nothing here uses",
}

_CONFLICTS = ("SharedMemoryConflicts", "UncoalescedSharedAccess")
_SECTORS = ("MemoryCacheAccessPattern", "UncoalescedGlobalAccess")

_PIPES = ("FMA pipe", "ALU pipe", "XU pipe", "FP64 pipe", "LSU pipe", ISSUE)
_LATENCY, _IMBALANCE = "latency", "imbalance"

_ABOUT: Mapping[str, tuple[str, ...]] = {
    # Rule -> the parts (or latency, imbalance) that it is about.
    "MemoryCacheAccessPattern": (DRAM, L2, L1_DATA),
    "UncoalescedGlobalAccess": (DRAM, L2, L1_DATA),
    "SharedMemoryConflicts": (SHARED, L1_DATA, SHARED_OR_L1),
    "UncoalescedSharedAccess": (SHARED, L1_DATA, SHARED_OR_L1),
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
    for row in run.rows("rules", columns):
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


def weighed(
    rules: tuple[QuotedRule, ...], judgement: Judgement, row: Row, excess_bytes: float | None = None
) -> tuple[QuotedRule, ...]:
    """The rules with an estimate or about the whole, the largest estimate first, each with why it is no step.

    Of a rule that speaks several times, what it says with its largest estimate. row: the launch's. excess_bytes: DRAM
    bytes that ncu counted over those that the case needs; None where that is not known.
    """
    kept = [rule for rule in rules if rule.speedup_pct is not None or rule.rule == "SOLBottleneck"]
    once: dict[str, QuotedRule] = {}
    for rule in sorted(kept, key=lambda rule: -(rule.speedup_pct or 0.0)):
        once.setdefault(rule.rule, rule)
    return tuple(
        dataclasses.replace(rule, why_not=_why_not(rule, judgement, row, excess_bytes)) for rule in once.values()
    )


def conflict_share(row: Row) -> float | None:
    """Of the passes through shared memory, those that bank conflicts added, 0 to 1; None where not collected."""
    passes, conflicts = number(row, "shared_wavefronts"), number(row, "shared_bank_conflicts")
    return None if not passes or passes < 0 or conflicts is None else min(max(conflicts / passes, 0.0), 1.0)


def by_warpgroups(row: Row) -> bool:
    """Whether the tensor operations are wgmma: asynchronous, so that few warps do, and more find no registers."""
    kind = dominant_tensor_kind(row)
    if kind is None or number(row, f"tensor_peak_{kind}_ops_per_cycle") is None:
        return False
    return (number(row, "tensor_active_pct") or 0.0) >= UNUSED_PCT and not mostly_mma(row, kind)


def _why_not(rule: QuotedRule, judgement: Judgement, row: Row, excess_bytes: float | None) -> str:
    if rule.rule in _NEVER:
        return _NEVER[rule.rule]
    if judgement.kind == "launch":
        return "it is about the kernel, and the GPU waits for the host"
    if rule.speedup_pct is not None and rule.speedup_pct < LEAST_GAIN_PCT:
        return f"its estimate is below {LEAST_GAIN_PCT:g}%"
    conflicts = conflict_share(row)
    if rule.rule in _CONFLICTS and conflicts is not None and conflicts < CONFLICT_SHARE:
        return f"bank conflicts are {conflicts:.1%} of all passes through shared memory"
    if rule.rule in _SECTORS and DRAM in bound_by(judgement) and excess_bytes is not None and excess_bytes < EXCESS:
        return f"DRAM moves {excess_bytes:.2f} times the bytes that the algorithm needs: no sectors are wasted there"
    if rule.rule == "TheoreticalOccupancy" and by_warpgroups(row):
        return "products by warpgroups (wgmma) run beside their warps: pipelines hide their latency, not warps"
    if rule.rule == "TheoreticalOccupancy" and (waves := occupancy(row).waves) is not None and not waves.full:
        return "the grid has fewer blocks than fit at once already: more room on a multiprocessor does nothing for it"
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
    return " or ".join(part for part in about if part != SHARED_OR_L1)


def _beginning(message: str) -> str:
    """Whole sentences as far as they fit, at least one; markers of links and lines are taken out."""
    text = re.sub(r" \(https?://[^\s)]*\)", "", re.sub(r"\s+", " ", message)).strip()
    if len(text) <= LONGEST_MESSAGE:
        return text
    ends = [match.end() for match in re.finditer(r"(?<=[a-z)%])[.:] |(?<=\d)[.] (?=[A-Z])", text)]
    fits = [end for end in ends if end <= LONGEST_MESSAGE]
    return text[: fits[-1]].strip() if fits else f"{text[: LONGEST_MESSAGE - 1].rstrip()}…"
