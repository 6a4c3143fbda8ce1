"""What a collect is asked to do, as one value."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fiprof.workloads.case import Case

Tool = Literal["nsys", "ncu"]
NcuSet = Literal["full", "quick"]


@dataclass(frozen=True)
class CollectRequest:
    """One run: the cases, the tools and how they are to measure."""

    cases: tuple[Case, ...]
    tools: tuple[Tool, ...] = ("nsys", "ncu")
    ncu_set: NcuSet = "full"
    """full: ``ncu --set full`` and the tensor roofline; quick: the sections that stalls and show need."""
    iterations: int = 20
    """Launches of each case in the plain run and under nsys."""
    measure_iterations: int = 1
    """Launches of each case under ncu, which replays each of them for every pass."""
    warmup: int = 3
    """Launches before the measured ones, except under ncu, where one is enough."""
    seed: int = 0
    """Of the random inputs."""
    check: bool = True
    """Compare each case with its float32 reference in the plain run."""
    gpu: int | None = None
    """Index as nvidia-smi lists the GPUs; None for the first that CUDA_VISIBLE_DEVICES leaves."""
    python: str = sys.executable
    """The interpreter that has torch and flashinfer."""
    clock_control: str = "none"
    """ncu's: none leaves the clocks as the plain run has them; base and boost lock them."""
    cache_control: str = "all"
    """ncu's: all flushes the caches before every pass, none leaves them warm."""
    timeout_s: float = 1800.0
    """Longest time for each tool's process."""
    gpu_metrics_hz: int = 10_000
    """Samples a second of nsys's GPU metrics; 0 leaves them out."""
    rounds: int = 1
    """Turns of each case in the plain run and under nsys, each with ``iterations`` launches; in every round the cases
    come in another order."""
    budget_ms: float | None = None
    """GPU time that the launches of a turn may take, so that those of a long kernel are fewer."""
    keep_going: bool = False
    """A case that fails by itself is left out and named in a warning, instead of failing the run."""

    @property
    def label(self) -> str:
        """What the run folder's name ends in: the workloads, or ``all``."""
        from fiprof.workloads.case import short_name
        from fiprof.workloads.registry import builtin

        names = list(dict.fromkeys(short_name(case.workload) for case in self.cases))
        if set(names) == set(builtin()):
            return "all"
        return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"

    def settings(self) -> dict[str, Any]:
        """For the manifest: everything but the cases, which stand there on their own."""
        settings = asdict(self)
        del settings["cases"]
        return {**settings, "tools": list(self.tools)}
