"""Runs cases in this process: sets up, warms up, checks against the reference, measures.

Under a profiler the NVTX ranges say what is what: ``setup``, ``warmup`` and ``measure`` > case id >
``iter <i>``. Without one, CUDA events time each iteration.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fiprof.errors import FiprofError
from fiprof.workloads.case import Case
from fiprof.workloads.environment import gpu_facts, package_versions
from fiprof.workloads.nvtx import MEASURE, SETUP, WARMUP, Marks, cuda_profiler
from fiprof.workloads.registry import find

if TYPE_CHECKING:
    from torch import Tensor

Record = dict[str, Any]
"""One JSON line; its key ``kind`` is environment, case or error."""

# The SM clock of the fastest parts, to turn seconds into the cycles that torch.cuda._sleep takes.
SLEEP_CLOCK_HZ = 2e9
LONGEST_SLEEP_S = 0.2

LEAST_ITERATIONS = 3

GATE_VARIABLE = "FIPROF_GATE"
GATE_OPEN = "go"


@dataclass(frozen=True)
class RunnerRequest:
    """What one process of the runner is to do."""

    cases: tuple[Case, ...]
    iterations: int
    """Launches in each case's ``measure`` range."""
    warmup: int
    """Launches before it."""
    seed: int
    check: bool
    """Compare the first launch with the reference."""
    timing: bool
    """Time with CUDA events (off under a profiler, which times itself)."""
    rounds: int = 1
    """Turns that each case has; between two of its turns every other case has one, in another order each time, so
    that a drift of the clocks spreads over all cases."""
    budget_ms: float | None = None
    """Longest GPU time for the launches of a turn: it may make them fewer than ``iterations``, down to
    LEAST_ITERATIONS."""
    keep_going: bool = False
    """Count cases that fail as results while one works."""


def run_cases(request: RunnerRequest, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
    """Run every case; give each result to ``emit`` after its last turn and each step's name to ``say``.

    A case that fails is emitted as an error, has no further turn, and the others still run.
    Raises FiprofError at the end if any case failed (with keep_going, if all did), or at once where torch or CUDA is
    missing.
    """
    import_modules(request.cases)
    await_gate()
    require_cuda()
    import torch

    marks = Marks()
    if not request.timing and not marks.visible:
        raise FiprofError(
            "the package nvtx is missing: a profiler would see no ranges",
            "pip install nvtx in this interpreter",
        )
    emit({"kind": "environment", "packages": package_versions(), "gpu": gpu_facts()})
    # What the imports made stays: looking through it again after every case would take longer than the case.
    gc.collect()
    gc.freeze()
    failed: dict[str, str] = {}
    turns: dict[str, list[Record]] = {case.id: [] for case in request.cases}
    for turn in range(request.rounds):
        for number, case in enumerate(turn_order(request, turn), 1):
            if case.id in failed:
                continue
            where = f"{number}/{len(request.cases)} {case.id}" + (f" round {turn + 1}" if request.rounds > 1 else "")
            try:
                done = turns[case.id]
                done.append(_run_case(case, request, done, marks, lambda step, where=where: say(f"{step} {where}")))  # type: ignore[misc]
                if len(done) == request.rounds:
                    emit(merged(done))
            except Exception as error:
                failed[case.id] = _one_line(error)
                emit({"kind": "error", "case": case.id, "error": failed[case.id]})
                if not _cuda_works():
                    raise FiprofError(
                        f"{case.id}: {failed[case.id]}",
                        "CUDA is unusable after it, so the cases that follow were not run",
                    ) from error
            gc.collect()
            torch.cuda.empty_cache()
    if failed and not (request.keep_going and len(failed) < len(request.cases)):
        first = next(iter(failed))
        raise FiprofError(
            f"{len(failed)} of {len(request.cases)} cases failed, the first {first}: {failed[first]}",
            "the reason of each stands in its line of the results",
        )


def turn_order(request: RunnerRequest, turn: int) -> tuple[Case, ...]:
    """The cases in the order of their turns: as given, then shuffled anew each time with the request's seed."""
    cases = list(request.cases)
    if turn:
        random.Random(f"{request.seed} {turn}").shuffle(cases)
    return tuple(cases)


def merged(turns: Sequence[Record]) -> Record:
    """A case's turns as one record: the first one's, with the times of all in their order."""
    record = {**turns[0], "peak_memory_bytes": max(turn["peak_memory_bytes"] for turn in turns)}
    if len(turns) > 1:
        record["rounds"] = len(turns)
        if "gpu_us" in record:
            record["gpu_us"] = [us for turn in turns for us in turn["gpu_us"]]
            record["wall_us"] = statistics.median(turn["wall_us"] for turn in turns)
    return record


def _run_case(
    case: Case, request: RunnerRequest, before: Sequence[Record], marks: Marks, say: Callable[[str], None]
) -> Record:
    """A turn of a case. before: its earlier turns; each has as many iterations as the first."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    workload = case.build(seed=request.seed)
    cost = workload.cost()
    say("setup")
    with marks.range(SETUP, case.id):
        launch = workload.setup()
        torch.cuda.synchronize()
    record: Record = {
        "kind": "case",
        "case": case.id,
        "workload": case.workload,
        "params": dict(case.params),
        "seed": request.seed,
        "cost": asdict(cost),
    }
    if plan := dict(workload.facts()):
        record["plan"] = plan
    if request.check and not before:
        say("check")
        expected = workload.reference()
        if expected is not None:
            record["reference"] = compare(launch(), expected, workload.tolerance)
            del expected
    say("warmup")
    with marks.range(WARMUP, case.id):
        host_s = _host_seconds(launch, request.warmup)
        torch.cuda.synchronize()
        iterations = before[0]["iterations"] if before else _iterations(launch, request)
    say("measure")
    record["iterations"] = iterations
    if request.timing:
        record |= measure(launch, iterations, host_s)
    else:
        first = len(before) * iterations
        with cuda_profiler(), marks.range(MEASURE, case.id):
            for i in range(first, first + iterations):
                with marks.range(f"iter {i}"):
                    launch()
            torch.cuda.synchronize()
    record["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    return record


def _iterations(launch: Callable[[], object], request: RunnerRequest) -> int:
    """How many launches fit into the request's time, by one launch timed; between LEAST_ITERATIONS and its number."""
    if request.budget_ms is None:
        return request.iterations
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch()
    end.record()
    torch.cuda.synchronize()
    fitting = int(request.budget_ms / max(begin.elapsed_time(end), 1e-3))
    return min(request.iterations, max(LEAST_ITERATIONS, fitting))


def compare(got: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> Record:
    """The relative Frobenius error of each tensor against its float32 reference; the largest counts.

    Raises FiprofError when it exceeds the tolerance, is not a number, or the shapes differ.
    """
    if len(got) != len(expected):
        raise FiprofError(f"the kernel wrote {len(got)} tensors, the reference has {len(expected)}")
    errors = []
    for one, want in zip(got, expected, strict=True):
        if one.numel() != want.numel():
            raise FiprofError(f"the kernel wrote {tuple(one.shape)}, the reference is {tuple(want.shape)}")
        difference = one.float().reshape(want.shape) - want
        errors.append(float(difference.norm() / want.norm()))
    worst = max(errors)
    if not worst <= tolerance:
        raise FiprofError(
            f"wrong result: relative error {worst:.2e} against the float32 reference, {tolerance:.0e} allowed",
            "a kernel that computes something else is not worth measuring; --no-check measures it all the same",
        )
    return {"relative_error": worst, "tolerance": tolerance}


def measure(launch: Callable[[], object], iterations: int, host_s: float) -> Record:
    """Times without a profiler, L2 as the previous iteration left it.

    gpu_us: each iteration between two CUDA events, launches queued ahead so that the GPU never waits for the host.
    wall_us: host time an iteration, back to back, as a loop without CUDA graphs sees it.
    host_s: seconds that one launch takes on the host, to know how long to hold the queue.
    """
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(iterations):
        launch()
    torch.cuda.synchronize()
    wall_us = (time.perf_counter() - begin) / iterations * 1e6

    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    torch.cuda._sleep(int(min(1.5 * host_s * iterations + 1e-3, LONGEST_SLEEP_S) * SLEEP_CLOCK_HZ))
    events[0].record()
    for event in events[1:]:
        launch()
        event.record()
    torch.cuda.synchronize()
    gpu_us = [before.elapsed_time(after) * 1e3 for before, after in itertools.pairwise(events)]
    return {"iterations": iterations, "gpu_us": gpu_us, "wall_us": wall_us}


def _host_seconds(launch: Callable[[], object], warmup: int) -> float:
    """Host seconds of the last of ``warmup`` launches (the first ones load modules); 0 without any."""
    seconds = 0.0
    for _ in range(warmup):
        begin = time.perf_counter()
        launch()
        seconds = time.perf_counter() - begin
    return seconds


def import_modules(cases: Sequence[Case]) -> None:
    """Import what the cases need, before anything touches the GPU. Raises FiprofError naming what is missing."""
    for name in dict.fromkeys(module for case in cases for module in find(case.workload).imports):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise FiprofError(
                f"{name} cannot be imported by {sys.executable}: {error}",
                f"{sys.executable} -m pip install torch flashinfer-python nvtx, or name another with --python PATH",
            ) from error


def await_gate() -> None:
    """Wait until whoever started this process opens the gate, if it set one up.

    Importing takes seconds and disturbs nobody, so fiprof starts the next tool's process while the last one
    still has the GPU. The gate is a locked file: it also opens, empty, when its owner dies.
    Raises FiprofError in that case.
    """
    path = os.environ.get(GATE_VARIABLE)
    if not path:
        return
    with open(path) as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
        if gate.read() != GATE_OPEN:
            raise FiprofError("the fiprof that started this process is gone")


def require_cuda() -> None:
    """Raise FiprofError where there is no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise FiprofError(
            "no CUDA device: kernels can only be run on a machine with an NVIDIA GPU",
            "collect --replay RUN re-reads an archived run without one",
        )


def _one_line(error: Exception) -> str:
    """The error's first meaningful line, with its kind, and a remedy for a full GPU."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if type(error).__name__ == "OutOfMemoryError":
        return f"does not fit in the GPU's memory: {text} (make the case smaller, or free the GPU)"
    return text if isinstance(error, FiprofError) else f"{type(error).__name__}: {text}"


def _cuda_works() -> bool:
    """Whether the CUDA context survived; an illegal address or the like poisons it for good."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
