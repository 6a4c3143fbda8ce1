"""A step as data: what to do, the most that it saves, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.model.finding import Finding


class StepId(StrEnum):
    """Something to do."""

    USE_ALTERNATIVE = "use_alternative"
    USE_GRAPH = "use_graph"
    LARGER_GRAPH = "larger_graph"
    LARGER_LAUNCHES = "larger_launches"
    MORE_BLOCKS = "more_blocks"
    FULLER_LAST_WAVE = "fuller_last_wave"
    EVEN_WORK = "even_work"
    LONGER_LAUNCH = "longer_launch"
    LESS_STALL = "less_stall"
    READ_HOTSPOTS = "read_hotspots"
    OVERLAP_WGMMA = "overlap_wgmma"
    OVERLAP_MMA = "overlap_mma"
    FILL_WAVE = "fill_wave"
    MORE_WARPS = "more_warps"
    LESS_WASTED_WORK = "less_wasted_work"
    USE_WGMMA = "use_wgmma"
    USE_FP8 = "use_fp8"
    CLOSE_TENSOR_GAPS = "close_tensor_gaps"
    FEWER_INSTRUCTIONS = "fewer_instructions"
    LESS_FMA = "less_fma"
    LESS_ALU = "less_alu"
    LESS_XU = "less_xu"
    SINGLE_PRECISION = "single_precision"
    WIDER_ACCESSES = "wider_accesses"
    FIND_UNIT = "find_unit"
    FIND_MEMORY_PART = "find_memory_part"
    PACKED_HALVES = "packed_halves"
    USE_TENSOR_CORES = "use_tensor_cores"
    MOVE_FEWER_BYTES = "move_fewer_bytes"
    NEED_FEWER_BYTES = "need_fewer_bytes"
    SHORTER_RAMP = "shorter_ramp"
    MORE_LOADS = "more_loads"
    LESS_L2 = "less_l2"
    NO_BANK_CONFLICTS = "no_bank_conflicts"
    FEWER_L1_PASSES = "fewer_l1_passes"
    FEWER_SHARED_PASSES = "fewer_shared_passes"
    FUSE_MULTIPLY_ADD = "fuse_multiply_add"
    NCU_RULE = "ncu_rule"


class Basis(StrEnum):
    """What a step and its bound rest on."""

    MEASURED = "measured"
    WAITS = "waits"
    WAITS_FIRST = "waits_first"
    IDLE = "idle"
    OVERHEAD = "overhead"
    STALL_SHARE = "stall_share"
    LONGEST_WAITS = "longest_waits"
    WAIT = "wait"
    USED = "used"
    NOTHING_USED = "nothing_used"
    DISTANCE = "distance"
    DISTANCE_AND_WAIT = "distance_and_wait"
    EMPTY_PLACES = "empty_places"
    MORE_WAIT = "more_wait"
    EXCESS_OPS = "excess_ops"
    PEAKS = "peaks"
    PEAKS_AND_USE = "peaks_and_use"
    STAYS = "stays"
    HALF = "half"
    TENSOR_CORES_WOULD = "tensor_cores_would"
    STAYS_BESIDE_TENSOR_CORES = "stays_beside_tensor_cores"
    EXCESS_BYTES = "excess_bytes"
    BYTES_BIND = "bytes_bind"
    BYTES_MOVED = "bytes_moved"
    BYTES_KEPT = "bytes_kept"
    CONFLICTS = "conflicts"
    NCU_ESTIMATE = "ncu_estimate"
    NCU_ESTIMATE_OF = "ncu_estimate_of"


class TimeOf(StrEnum):
    """Whose time a bound is of."""

    LAUNCH = "launch"
    ITERATION = "iteration"


@dataclass(frozen=True)
class Step:
    """Something to do next."""

    action: Finding
    """A StepId, with the numbers that its wording needs."""
    bound_pct: float | None
    """The most that it saves, percent of the time of ``of``; None where nothing bounds it but the work itself."""
    basis: Finding
    """A Basis, with its numbers."""
    of: TimeOf = TimeOf.LAUNCH
    measured_pct: float | None = None
    """What it saved where it was measured, percent of the time of ``of``; None for a step that is only bounded."""
    rules: tuple[QuotedRule, ...] = ()
    """ncu's rules that the step restates; of NCU_RULE and FUSE_MULTIPLY_ADD the one whose estimate it is."""

    @property
    def id(self) -> StepId:
        assert isinstance(self.action.kind, StepId)
        return self.action.kind

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        action = self.action.fields()
        return {
            "id": action.pop("id"), "bound_pct": self.bound_pct, "measured_pct": self.measured_pct,
            "of": self.of.value, **action, "basis": self.basis.fields(), "rules": [rule.rule for rule in self.rules],
        }  # fmt: skip
