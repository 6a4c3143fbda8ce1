"""A step as data: what to do, the most that it saves, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fiprof.analysis.verdict.model import CauseId
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.model.finding import Finding, plain
from fiprof.model.provenance import Provenance, TracedNumber


class StepId(StrEnum):
    """Something to do."""

    USE_ALTERNATIVE = "use_alternative"
    USE_GRAPH = "use_graph"
    LARGER_GRAPH = "larger_graph"
    LARGER_LAUNCHES = "larger_launches"
    LESS_COPYING = "less_copying"
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
    SMALLER_OPERANDS = "smaller_operands"
    CLOSE_TENSOR_GAPS = "close_tensor_gaps"
    COPY_BY_TMA = "copy_by_tma"
    FEWER_INSTRUCTIONS = "fewer_instructions"
    LESS_FMA = "less_fma"
    LESS_ALU = "less_alu"
    LESS_XU = "less_xu"
    SINGLE_PRECISION = "single_precision"
    FEWER_ACCESSES = "fewer_accesses"
    LESS_OF_PIPE = "less_of_pipe"
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
    # For a cause
    AGGREGATE_ATOMICS = "aggregate_atomics"
    SPREAD_ATOMICS = "spread_atomics"
    FEWER_BARRIERS = "fewer_barriers"
    SMALLER_BLOCKS = "smaller_blocks"
    FEWER_SPILLS = "fewer_spills"
    CONSTANT_INDICES = "constant_indices"
    NEIGHBOURING_ACCESS = "neighbouring_access"
    STAGE_IN_SHARED = "stage_in_shared"
    SAME_PATH = "same_path"
    SMALLER_CODE = "smaller_code"
    WHOLE_WARPS = "whole_warps"
    UNIFORM_CONSTANTS = "uniform_constants"
    FEWER_CONSTANTS = "fewer_constants"
    FEWER_FENCES = "fewer_fences"
    SHARE_AWAITED_WORK = "share_awaited_work"
    COPY_TO_DEVICE = "copy_to_device"


class Way(StrEnum):
    """How to do a step: those that the kernel's instructions do not show it does already."""

    STALL_HELPS = "stall_helps"
    """What usually helps against a stall reason, where the instructions say no more."""
    LOADS_IN_FLIGHT = "loads_in_flight"
    WIDER_LOADS = "wider_loads"
    ASYNC_COPIES = "async_copies"
    SEVERAL_CHAINS = "several_chains"
    MORE_STAGES = "more_stages"
    EARLIER_COPIES = "earlier_copies"
    NO_LOCAL = "no_local"
    NO_RESULT = "no_result"
    PACKED = "packed"
    FEWER_CONVERSIONS = "fewer_conversions"
    ADDRESSES_ONCE = "addresses_once"
    UNROLLED = "unrolled"
    KEPT = "kept"
    IN_REGISTERS = "in_registers"
    COALESCED = "coalesced"
    WIDER_SHARED = "wider_shared"
    SHUFFLES = "shuffles"
    NO_CONFLICTS = "no_conflicts"
    LOADED_EARLIER = "loaded_earlier"
    POLYNOMIALS = "polynomials"
    WARP_SYNC = "warp_sync"
    NAMED_BARRIERS = "named_barriers"
    DOUBLE_BUFFER = "double_buffer"
    FEWER_COMPARISONS = "fewer_comparisons"
    UNIFORM_INDICES = "uniform_indices"
    FEWER_BARRIERS = "fewer_barriers"
    FEWER_BRANCHES = "fewer_branches"
    FEWER_FETCHES = "fewer_fetches"
    LESS_UNIFORM = "less_uniform"
    MERGED_LOGIC = "merged_logic"


class Basis(StrEnum):
    """What a step and its bound rest on."""

    MEASURED = "measured"
    BOTH = "both"
    WAITS = "waits"
    WAITS_FIRST = "waits_first"
    COPYING = "copying"
    IDLE = "idle"
    OVERHEAD = "overhead"
    RAMP = "ramp"
    LONGEST_WAITS = "longest_waits"
    WAIT = "wait"
    USED = "used"
    NOTHING_USED = "nothing_used"
    FLOOR = "floor"
    STAYS = "stays"
    STILL = "still"
    EMPTY_PLACES = "empty_places"
    MORE_WAIT = "more_wait"
    EXCESS_OPS = "excess_ops"
    PEAKS = "peaks"
    TENSOR_CORES_WOULD = "tensor_cores_would"
    EXCESS_BYTES = "excess_bytes"
    BYTES_BIND = "bytes_bind"
    BYTES_MOVED = "bytes_moved"
    BYTES_KEPT = "bytes_kept"
    CONFLICTS = "conflicts"
    NCU_ESTIMATE = "ncu_estimate"
    NCU_ESTIMATE_OF = "ncu_estimate_of"
    CODE = "code"
    """Instructions in the code."""
    EXECUTED = "executed"
    """Families of instructions that are executed most."""
    FAMILY = "family"
    HOT = "hot"
    HOT_WAITS = "hot_waits"
    LOCAL_REQUESTS = "local_requests"
    SPILLS = "spills"
    SECTORS = "sectors"
    SECTORS_AT = "sectors_at"
    THREADS = "threads"
    THREADS_OF_BLOCK = "threads_of_block"
    CODE_SIZE = "code_size"


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
    """The most that it saves, percent of the time of ``of``: nothing that it leaves as it is could be faster. None
    where nothing bounds it but the work itself."""
    basis: Finding
    """A Basis, with its numbers."""
    of: TimeOf = TimeOf.LAUNCH
    measured_pct: float | None = None
    """What it saved where it was measured, percent of the time of ``of``; None for a step that is only bounded."""
    estimate_pct: float | None = None
    """What it saves where everything else keeps its time, likewise; an estimate, that of ncu's rule or of the work that
    would be left. None where there is none."""
    cause: CauseId | None = None
    """The cause that it is for; None for one that is for what binds."""
    rules: tuple[QuotedRule, ...] = ()
    """ncu's rules that the step restates; of NCU_RULE and FUSE_MULTIPLY_ADD the one whose estimate it is."""
    bound_source: Provenance | None = None
    """Where the bound comes from; None without one, and where nothing that the step leaves as it is was used."""

    @property
    def id(self) -> StepId:
        assert isinstance(self.action.kind, StepId)
        return self.action.kind

    @property
    def bound(self) -> TracedNumber | None:
        """The bound with its provenance; None where it has none."""
        if self.bound_pct is None or self.bound_source is None:
            return None
        return TracedNumber(self.bound_pct, self.bound_source, ".0f", "%")

    @property
    def size_pct(self) -> float | None:
        """What it is ranked by: the smaller of bound and estimate; None without either."""
        known = [each for each in (self.bound_pct, self.estimate_pct) if each is not None]
        return min(known, default=None)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        action = self.action.fields()
        return {
            "id": action.pop("id"), "bound_pct": self.bound_pct, "estimate_pct": self.estimate_pct,
            "measured_pct": self.measured_pct, "of": self.of.value, "cause": plain(self.cause), **action,
            "basis": self.basis.fields(), "rules": [rule.rule for rule in self.rules],
        }  # fmt: skip
