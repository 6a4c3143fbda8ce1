"""Runs cases in this process: sets up, warms up, checks against the reference, measures.

Under a profiler the NVTX ranges say what is what: ``setup``, ``warmup`` and ``measure`` > case id >
``iter <i>``. Without one, CUDA events time each iteration.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fiprof.errors import FiprofError
from fiprof.workloads.case import Case
from fiprof.workloads.environment import gpu_facts, package_versions
from fiprof.workloads.nvtx import MEASURE, SETUP, WARMUP, ranges, visible
from fiprof.workloads.registry import find
from fiprof.workloads.timing import SmClock, group_of, host_seconds, launch_times, measure

if TYPE_CHECKING:
    from torch import Tensor

    from fiprof.workloads.base import Workload

Record = dict[str, Any]  # one JSON line; its key ``kind`` is environment, case or error

LEAST_ITERATIONS = 3

REPEATED_SHARE = 0.1  # of all turns of several rounds: most that are repeated because the clock was not back

CLEANING_S_PER_BYTE = 3e-12
"""The GPU cleans memory that was given back to the driver in the background (2.3 ms a GB on an H100 and an H200), which
takes DRAM bandwidth from whatever runs meanwhile."""

GATE_VARIABLE = "FIPROF_GATE"
GATE_OPEN = "go"


@dataclass(frozen=True)
class RunnerRequest:
    """What one process of the runner is to do."""

    cases: tuple[Case, ...]
    iterations: int  # launches in each case's ``measure`` range
    warmup: int  # launches before it
    seed: int
    check: bool = False  # compare the first launch with the reference
    timing: bool = True  # time with CUDA events (off under a profiler, which times itself)
    keep_memory: bool = True
    """Give no memory back between cases, and let the clock recover before each turn. Off under ncu, which saves and
    restores the memory that a kernel may write."""
    rounds: int = 1
    """Turns that each case has; between two of its turns every other case has one, in another order each time, so that
    a drift of the clocks spreads over all cases."""
    budget_ms: float | None = None
    """Longest GPU time for the launches of a turn: it may make them fewer than ``iterations``, down to
    LEAST_ITERATIONS."""
    keep_going: bool = False  # count cases that fail as results while one works

    def fitting(self, launch_us: float) -> int:
        """Launches of this length that fit into the budget; between LEAST_ITERATIONS and ``iterations``."""
        if self.budget_ms is None:
            return self.iterations
        return min(self.iterations, max(LEAST_ITERATIONS, int(1e3 * self.budget_ms / max(launch_us, 1.0))))


def run_cases(request: RunnerRequest, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
    """Run every case; give each result to ``emit`` after its last turn and each step's name to ``say``.

    A case that fails is emitted as an error, has no further turn, and the others still run.
    Raises FiprofError at the end if any case failed (with keep_going, if all did), or at once where torch or CUDA is
    missing.
    """
    import_modules(request.cases)
    await_gate()
    require_cuda()

    if not request.timing and not visible():
        what = "the package nvtx is missing: a profiler would see no ranges"
        raise FiprofError(what, "pip install nvtx in this interpreter")
    emit({"kind": "environment", "packages": package_versions(), "gpu": gpu_facts()})
    # What the imports made stays: looking through it again after every case would take longer than the case.
    gc.collect()
    gc.freeze()
    session = _Session(request, emit, say)
    session.run()
    failed = session.failed
    if failed and not (request.keep_going and len(failed) < len(request.cases)):
        first = next(iter(failed))
        what = f"{len(failed)} of {len(request.cases)} cases failed, the first {first}: {failed[first]}"
        raise FiprofError(what, "the reason of each stands in its line of the results")


class _Cases:
    """The cases of one process: one that fails is told, and the others still run."""

    def __init__(self, request: RunnerRequest, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
        self.request = request
        self.emit = emit
        self.say = say
        self.failed: dict[str, str] = {}  # case id -> why

    @contextlib.contextmanager
    def trying(self, case: Case, **place: int) -> Iterator[None]:
        """A block about a case: what fails in it is emitted as the case's error.

        Raises FiprofError where CUDA is unusable after it.
        """
        import torch

        try:
            yield
        except Exception as error:
            self.failed[case.id] = one_line(error)
            self.emit({"kind": "error", "case": case.id, **place, "error": self.failed[case.id]})
            try:
                # An illegal address or the like poisons the context for good.
                torch.cuda.synchronize()
            except RuntimeError:
                remedy = "CUDA is unusable after it, so the cases that follow were not run"
                raise FiprofError(f"{case.id}: {self.failed[case.id]}", remedy) from error


class _Session(_Cases):
    """Cases that have their turns, by their ids: how each compared with its reference, and its turns so far."""

    def __init__(self, request: RunnerRequest, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
        super().__init__(request, emit, say)
        self.checked: dict[str, Record] = {}
        self.turns: dict[str, list[Record]] = {case.id: [] for case in request.cases}
        self.clock = SmClock() if request.keep_memory else None
        self.given_back = 0

    def run(self) -> None:
        """Check every case, then give each its turns; some of those without the clock are repeated at the end."""
        request = self.request
        if request.check and request.rounds > 1:
            # The largest first: what follows fits into the memory that it leaves.
            for number, case in enumerate(sorted(request.cases, key=_least_bytes, reverse=True), 1):
                with self.trying(case):
                    self._set_up(case, case.build(seed=request.seed), f"{number}/{len(request.cases)} {case.id}")
        repeats = 0
        if request.timing and request.rounds > 1:
            repeats = math.ceil(REPEATED_SHARE * request.rounds * len(request.cases))
        for turn in range(request.rounds):
            last = turn == request.rounds - 1
            for case in self._round(turn, turn_order(request, turn)):
                if last and not (repeats and self._spoiled(case)):
                    self._emit(case)
        waiting = [case for case in turn_order(request, request.rounds) if repeats and self._spoiled(case)]
        for turn in range(request.rounds, 2 * request.rounds):
            cases = [case for case in waiting if self._spoiled(case)][:repeats]
            repeats -= len(list(self._round(turn, cases)))
        for case in waiting:
            self._emit(case)

    def _round(self, turn: int, cases: Sequence[Case]) -> Iterator[Case]:
        """A turn of each case, in order; gives each after it."""
        for number, case in enumerate(cases, 1):
            if case.id not in self.failed:
                where = f"{number}/{len(cases)} {case.id}" + (f" round {turn + 1}" if self.request.rounds > 1 else "")
                with self.trying(case):
                    self._turn(case, where)
            yield case

    def _spoiled(self, case: Case) -> bool:
        """Whether fewer turns than wanted had the clock."""
        return case.id not in self.failed and sum(map(has_clock, self.turns[case.id])) < self.request.rounds

    def _emit(self, case: Case) -> None:
        """The first turn's record with the times of as many as there are rounds, in the order of time: those without
        the clock only where others lack."""
        if case.id in self.failed:
            return
        turns = self.turns[case.id]
        best = sorted(range(len(turns)), key=lambda index: not has_clock(turns[index]))[: self.request.rounds]
        turns = [turns[index] for index in sorted(best)]
        record = {**turns[0], "peak_memory_bytes": max(turn["peak_memory_bytes"] for turn in turns)}
        if len(turns) > 1:
            record["rounds"] = len(turns)
            for name in {"sm_clock_mhz", "clock_recovered", "gpu_us"} & record.keys():
                record[name] = [value for turn in turns for value in turn[name]]
            if "wall_us" in record:
                record["wall_rounds_us"] = [turn["wall_us"] for turn in turns]
                record["wall_us"] = statistics.median(record["wall_rounds_us"])
        self.emit(record)

    @contextlib.contextmanager
    def trying(self, case: Case, **place: int) -> Iterator[None]:
        """And what the case had is given back after it."""
        import torch

        with super().trying(case, **place):
            yield
        gc.collect()
        if not self.request.keep_memory:
            torch.cuda.empty_cache()

    def _set_up(
        self, case: Case, workload: Workload[Any], where: str, *, check: bool = True
    ) -> Callable[[], Sequence[Tensor]]:
        """What launches a case; compared with its reference, where it has one. Raises as :func:`compare`."""
        import torch

        self.say(f"setup {where}")
        with ranges(SETUP, case.id):
            launch = workload.setup()
            torch.cuda.synchronize()
        if check:
            self.say(f"check {where}")
            if (expected := workload.reference()) is not None:
                self.checked[case.id] = compare(launch(), expected, workload.tolerance)
        return launch

    def _turn(self, case: Case, where: str) -> None:
        """One turn; each of a case has as many iterations as the first."""
        import torch

        request, before = self.request, self.turns[case.id]
        workload = case.build(seed=request.seed)
        record: Record = {
            "kind": "case",
            "case": case.id,
            "workload": case.workload,
            "params": dict(case.params),
            "seed": request.seed,
            "cost": asdict(workload.cost()),
        }
        launch = self._set_up(case, workload, where, check=request.check and request.rounds == 1)
        torch.cuda.reset_peak_memory_stats()  # what its reference takes is not the case's
        with ranges(SETUP, case.id):
            plan = dict(workload.facts())
        if plan:
            record["plan"] = plan
        if case.id in self.checked:
            record["reference"] = self.checked[case.id]
        self.say(f"warmup {where}")
        iterations = before[0]["iterations"] if before else request.iterations
        with ranges(WARMUP, case.id):
            host_s = host_seconds(launch, request.warmup)
            torch.cuda.synchronize()
            if not before and request.budget_ms is not None:
                iterations = request.fitting(launch_times(launch, 1, host_s)[0][0])
        if self.clock is not None:
            # The GPU cleans what was given back, and the clock is to be what it was.
            given_back = int(torch.cuda.memory_stats().get("reserved_bytes.all.freed", 0))
            time.sleep((given_back - self.given_back) * CLEANING_S_PER_BYTE)
            self.given_back = given_back
            mhz, recovered = self.clock.recover()
            record["sm_clock_mhz"], record["clock_recovered"] = [mhz], [recovered]
        self.say(f"measure {where}")
        record["iterations"] = iterations
        if request.timing:
            record |= measure(launch, iterations, host_s)
        else:
            first = len(before) * iterations
            with torch.cuda.profiler.profile(), ranges(MEASURE, case.id):
                for i in range(first, first + iterations):
                    with ranges(f"iter {i}"):
                        launch()
                torch.cuda.synchronize()
        record["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        before.append(record)


def _least_bytes(case: Case) -> int:
    """What a case has to move, as a measure of its memory."""
    try:
        cost = case.build(seed=0).cost()
    except Exception:
        # Its own turn says what is wrong with it.
        return 0
    return cost.bytes_read + cost.bytes_written


def turn_order(request: RunnerRequest, turn: int) -> tuple[Case, ...]:
    """The cases in the order of a round: by chance, another in each; of two the same whatever else is measured.

    A single round's is as given.
    """
    if request.rounds == 1:
        return request.cases
    return tuple(sorted(request.cases, key=lambda case: random.Random(f"{request.seed} {turn} {case.id}").random()))


def has_clock(turn: Record) -> bool:
    """Whether the SM clock was as usual when the turn began, as far as it was read."""
    return all(turn.get("clock_recovered", ()))


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
        what = f"wrong result: relative error {worst:.2e} against the float32 reference, {tolerance:.0e} allowed"
        remedy = "a kernel that computes something else is not worth measuring; --no-check measures it all the same"
        raise FiprofError(what, remedy)
    return {"relative_error": worst, "tolerance": tolerance}


def import_modules(cases: Sequence[Case]) -> None:
    """Import what the cases need, before anything touches the GPU. Raises FiprofError naming what is missing."""
    for name in dict.fromkeys(module for case in cases for module in find(case.workload).imports):
        try:
            importlib.import_module(name)
        except ImportError as error:
            ours = f"{sys.executable} -m pip install torch flashinfer-python nvtx"
            way = ours if name in ("torch", "flashinfer") else "install it there"
            what = f"{name} cannot be imported by {sys.executable}: {error}"
            raise FiprofError(what, f"{way}, or name another with --python PATH") from error


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
    import torch

    if not torch.cuda.is_available():
        what = "no CUDA device: kernels can only be run on a machine with an NVIDIA GPU"
        raise FiprofError(what, "collect --replay RUN re-reads an archived run without one")


def one_line(error: Exception) -> str:
    """The error's first meaningful line, with its kind, and a remedy for a full GPU."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if type(error).__name__ == "OutOfMemoryError":
        return f"does not fit in the GPU's memory: {text} (make the case smaller, or free the GPU)"
    return text if isinstance(error, FiprofError) else f"{type(error).__name__}: {text}"


def follow(
    request: RunnerRequest,
    orders: Iterable[str],
    emit: Callable[[Record], None],
    say: Callable[[str], None],
    *,
    imports_from: str = "",
) -> None:
    """Set the cases up, then do what the orders say until there are none.

    request: ``iterations`` and ``budget_ms`` are of a case in a round; when to check and to time is in the orders.
    imports_from: folder that something has to be imported from; empty for none.
    Orders name cases by their place: ``{"do": "clock"}`` reads the idle clock; ``plan`` chooses the launches of its
    ``cases``; ``measure`` has ``round`` and ``cases``, [place, launches, launches timed together] in their order;
    ``check`` holds its ``cases`` against their references. A case that fails is answered with its error.
    Raises FiprofError where CUDA is missing, or unusable after a failure.
    """
    import_modules(request.cases)
    require_cuda()
    emit({"kind": "environment", "packages": package_versions(), "gpu": gpu_facts()})
    warm = _Warm(request, emit, say, imports_from)
    emit({"kind": "done"})
    for line in orders:
        order = json.loads(line)
        getattr(warm, order.pop("do"))(**order)
        emit({"kind": "done"})


class _Warm(_Cases):
    """Cases that are set up, and stay."""

    def __init__(
        self, request: RunnerRequest, emit: Callable[[Record], None], say: Callable[[str], None], imports_from: str
    ) -> None:
        import torch

        super().__init__(request, emit, say)
        self.launches: dict[int, Callable[[], Sequence[Tensor]]] = {}
        for place in range(len(request.cases)):
            with self._trying(place, "setup"):
                before = torch.cuda.memory_allocated()
                self.launches[place] = request.cases[place].build(seed=request.seed).setup()
                torch.cuda.reset_peak_memory_stats()
                for _ in range(request.warmup + 1):
                    self.launches[place]()
                torch.cuda.synchronize()
                peak_bytes = torch.cuda.max_memory_allocated() - before
                self.emit({"kind": "memory", "place": place, "peak_bytes": peak_bytes})
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        if imports_from and not any(file.startswith(imports_from + "/") for file in files):
            raise FiprofError(
                f"nothing was imported from {imports_from}",
                "git:REF:FOLDER names the folder that the package lies in; one that has to be built needs python:PATH",
            )
        # What there is stays: no collection in a round looks through it.
        gc.collect()
        gc.freeze()

    def clock(self) -> None:
        self._clock = SmClock()
        self.emit({"kind": "clock", "idle_mhz": self._clock.idle_mhz})

    def plan(self, cases: Sequence[int]) -> None:
        request = self.request
        for place in cases:
            with self._trying(place, "plan"):
                host_s = self._warm_up(place)
                typical_us = statistics.median(launch_times(self.launches[place], LEAST_ITERATIONS, host_s)[0])
                if typical_us <= 0:
                    raise FiprofError("its launch takes no GPU time")
                group = group_of(typical_us)
                iterations = request.fitting(typical_us * group)
                self.emit({"kind": "plan", "place": place, "iterations": iterations, "launches_per_time": group})

    def measure(self, round: int, cases: Sequence[tuple[int, int, int]]) -> None:
        for place, iterations, group in cases:
            with self._trying(place, f"round {round + 1}"):
                host_s = self._warm_up(place)
                mhz, recovered = self._clock.recover()
                times_us, host_us = launch_times(self.launches[place], iterations, host_s, group)
                record = {"kind": "round", "round": round, "place": place, "gpu_us": times_us, "host_us": host_us}
                clock = {"sm_clock_mhz": mhz, "clock_recovered": recovered}
                self.emit({**record, "launches_per_time": group, **clock})

    def check(self, cases: Sequence[int]) -> None:
        for place in cases:
            with self._trying(place, "check"):
                workload = self.request.cases[place].build(seed=self.request.seed)
                launch = workload.setup()
                if (expected := workload.reference()) is not None:
                    self.emit({"kind": "check", "place": place, **compare(launch(), expected, workload.tolerance)})

    def _trying(self, place: int, step: str) -> contextlib.AbstractContextManager[None]:
        """A block that is a step of the case at this place."""
        case = self.request.cases[place]
        self.say(f"{step} {place + 1}/{len(self.request.cases)} {case.id}")
        return self.trying(case, place=place)

    def _warm_up(self, place: int) -> float:
        """Launch a few times. Returns the host's seconds for one."""
        import torch

        host_s = host_seconds(self.launches[place], self.request.warmup)
        torch.cuda.synchronize()
        return host_s
