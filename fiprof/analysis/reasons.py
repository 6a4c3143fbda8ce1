"""The states of a warp, what they mean, and what usually helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reason:
    """A state that a warp is in while it does not, or does, issue."""

    name: str
    kind: Literal["stall", "ready", "issue"]
    """A ready warp waits for nothing but its turn."""
    meaning: str
    """What warps in this state do, to follow «warps»."""
    helps: str
    """What usually makes it less."""


REASONS: dict[str, Reason] = {
    reason.name: reason
    for reason in (
        Reason(
            "barrier",
            "stall",
            "wait at a barrier for the other warps of their block",
            "an even split of the work before the barrier, smaller blocks with more of them on a multiprocessor, "
            "or barriers over fewer warps",
        ),
        Reason(
            "branch_resolving",
            "stall",
            "wait until a branch has computed its target",
            "fewer jumps: unrolled loops, predication, shorter call chains",
        ),
        Reason(
            "dispatch_stall",
            "stall",
            "are held back by the dispatcher, which has a conflict or lacks a resource",
            "a look at the instruction mix around the hot spots; register bank conflicts are one cause",
        ),
        Reason(
            "drain",
            "stall",
            "have ended and wait for their last stores to leave, before their resources are freed",
            "coalesced or fewer stores at the end of the kernel",
        ),
        Reason(
            "gmma",
            "stall",
            "wait for asynchronous matrix multiplications of their warpgroup (wgmma)",
            "more independent work between issue and wait: deeper pipelines, ping-pong warpgroups",
        ),
        Reason(
            "imc_miss",
            "stall",
            "wait for a constant that was not in the constant cache",
            "fewer distinct constants and kernel parameters read at first; in a short kernel it is the cold start",
        ),
        Reason(
            "lg_throttle",
            "stall",
            "wait for room in the queue of local and global memory instructions",
            "fewer and wider memory instructions, and no spilled registers",
        ),
        Reason(
            "long_scoreboard",
            "stall",
            "wait for data from global, local or texture memory (through L1TEX)",
            "more loads in flight a warp, more warps, coalesced access, or data kept in shared memory or cache; "
            "where DRAM is at its roof, only fewer bytes",
        ),
        Reason(
            "math_pipe_throttle",
            "stall",
            "wait for an arithmetic pipe that is busy",
            "a mix of instructions that uses other pipes too, or fewer instructions: this pipe is near its limit",
        ),
        Reason("membar", "stall", "wait at a memory fence", "fewer fences, or of a narrower scope"),
        Reason(
            "mio_throttle",
            "stall",
            "wait for room in the queue of shared memory, special function and dynamic branch instructions",
            "wider shared memory accesses, fewer bank conflicts, fewer special functions",
        ),
        Reason("misc", "stall", "wait for something that the hardware does not tell apart", "nothing in particular"),
        Reason(
            "no_instruction",
            "stall",
            "wait for their next instruction to be fetched",
            "smaller code: less unrolling, fewer jumps; in a short kernel it is the cold start",
        ),
        Reason(
            "not_selected",
            "ready",
            "could issue, but the scheduler took another one",
            "nothing: there are more ready warps than needed, and fewer of them would do",
        ),
        Reason("selected", "issue", "issue an instruction", "fewer instructions"),
        Reason(
            "short_scoreboard",
            "stall",
            "wait for a result of shared memory, a special function or another MIO instruction",
            "fewer bank conflicts, wider shared memory accesses, fewer exponentials and conversions, "
            "or independent work in between",
        ),
        Reason("sleeping", "stall", "sleep (nanosleep)", "shorter sleeps in spin loops"),
        Reason(
            "tex_throttle",
            "stall",
            "wait for room in the queue of texture instructions",
            "fewer texture and surface instructions in flight, or global loads instead",
        ),
        Reason(
            "wait",
            "stall",
            "wait out the fixed latency of their own last instruction",
            "more warps, or more independent instructions in each: it is what dense arithmetic looks like",
        ),
    )
}
"""ncu's warp states under our names, after NVIDIA's description of them in the Nsight Compute profiling guide."""


def reason_of(name: str) -> Reason:
    """What is known of a reason; a later ncu may have others."""
    return REASONS.get(name) or Reason(name, "stall", "are in a state that this fiprof does not know", "unknown")
