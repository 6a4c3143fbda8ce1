"""Cases that are set up once, kept warm, and measured when told: one process of a comparison.

It takes orders, a JSON line each, and writes records: what was asked for, then ``{"kind": "done"}``. Between orders it
leaves the GPU alone, so nothing is imported, compiled or allocated while another process measures. Nothing is freed.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError
from fiprof.workloads.case import Case
from fiprof.workloads.environment import gpu_facts, package_versions
from fiprof.workloads.runner import (
    LEAST_ITERATIONS,
    Record,
    compare,
    cuda_works,
    import_modules,
    one_line,
    require_cuda,
)
from fiprof.workloads.timing import SmClock, gpu_times, group_of, host_seconds

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RoundsRequest:
    """What one process is to keep warm.

    iterations: most launches of a case in a round; warmup: launches before them. budget_ms: GPU time of a case's
    launches in a round, which may make them fewer, down to LEAST_ITERATIONS. imports_from: folder that something has to
    be imported from; empty for none.
    """

    cases: tuple[Case, ...]
    iterations: int
    warmup: int
    seed: int
    budget_ms: float
    imports_from: str = ""


def follow(
    request: RoundsRequest, orders: Iterable[str], emit: Callable[[Record], None], say: Callable[[str], None]
) -> None:
    """Set the cases up, then do what the orders say until there are none.

    Orders name cases by their place: ``{"do": "clock"}`` reads the idle clock; ``plan`` chooses the launches of its
    ``cases``; ``measure`` has ``round`` and ``cases``, [place, launches, launches timed together] in their order;
    ``check`` holds its ``cases`` against their references. A case that fails is answered with its error.
    Raises FiprofError where CUDA is missing, or unusable after a failure.
    """
    import_modules(request.cases)
    require_cuda()
    emit({"kind": "environment", "packages": package_versions(), "gpu": gpu_facts()})
    warm = _Warm(request, emit, say)
    emit({"kind": "done"})
    for line in orders:
        order = json.loads(line)
        getattr(warm, order.pop("do"))(**order)
        emit({"kind": "done"})


class _Warm:
    """The cases of a process, set up."""

    def __init__(self, request: RoundsRequest, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
        self.request = request
        self.emit = emit
        self.say = say
        self.launches: dict[int, Callable[[], Sequence[Tensor]]] = {}
        for place in range(len(request.cases)):
            self._try(place, "setup", self._set_up)
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        if request.imports_from and not any(file.startswith(request.imports_from + "/") for file in files):
            raise FiprofError(
                f"nothing was imported from {request.imports_from}",
                "git:REF:FOLDER names the folder that the package lies in; one that has to be built needs python:PATH",
            )
        # What there is stays: no collection in a round looks through it.
        gc.collect()
        gc.freeze()

    def clock(self) -> None:
        self._clock = SmClock()
        self.emit({"kind": "clock", "idle_mhz": self._clock.idle_mhz})

    def plan(self, cases: Sequence[int]) -> None:
        for place in cases:
            self._try(place, "plan", self._plan)

    def measure(self, round: int, cases: Sequence[tuple[int, int, int]]) -> None:
        for place, iterations, group in cases:
            self._try(place, f"round {round + 1}", self._measure, round, iterations, group)

    def check(self, cases: Sequence[int]) -> None:
        for place in cases:
            self._try(place, "check", self._check)

    def _try(self, place: int, step: str, work: Callable[..., None], *more: int) -> None:
        """Do something with a case; tell the error where it fails. Raises FiprofError where CUDA is unusable then."""
        case = self.request.cases[place]
        self.say(f"{step} {place + 1}/{len(self.request.cases)} {case.id}")
        try:
            work(place, *more)
        except Exception as error:
            self.emit({"kind": "error", "case": case.id, "place": place, "error": one_line(error)})
            if not cuda_works():
                raise FiprofError(f"{case.id}: {one_line(error)}", "CUDA is unusable after it") from error

    def _set_up(self, place: int) -> None:
        import torch

        self.launches[place] = self.request.cases[place].build(seed=self.request.seed).setup()
        for _ in range(self.request.warmup + 1):
            self.launches[place]()
        torch.cuda.synchronize()

    def _plan(self, place: int) -> None:
        request, launch = self.request, self.launches[place]
        host_s = self._warm_up(place)
        typical_us = statistics.median(gpu_times(launch, LEAST_ITERATIONS, host_s))
        if typical_us <= 0:
            raise FiprofError("its launch takes no GPU time")
        group = group_of(typical_us)
        fitting = int(request.budget_ms * 1e3 / max(typical_us * group, 1.0))
        iterations = min(request.iterations, max(LEAST_ITERATIONS, fitting))
        self.emit({"kind": "plan", "place": place, "iterations": iterations, "launches_per_time": group})

    def _measure(self, place: int, round: int, iterations: int, group: int) -> None:
        host_s = self._warm_up(place)
        mhz, recovered = self._clock.recover()
        times = gpu_times(self.launches[place], iterations, host_s, group)
        record = {"kind": "round", "round": round, "place": place, "gpu_us": times, "launches_per_time": group}
        self.emit({**record, "sm_clock_mhz": mhz, "clock_recovered": recovered})

    def _check(self, place: int) -> None:
        workload = self.request.cases[place].build(seed=self.request.seed)
        launch = workload.setup()
        if (expected := workload.reference()) is not None:
            self.emit({"kind": "check", "place": place, **compare(launch(), expected, workload.tolerance)})

    def _warm_up(self, place: int) -> float:
        """Launch a few times. Returns the host's seconds for one."""
        import torch

        host_s = host_seconds(self.launches[place], self.request.warmup)
        torch.cuda.synchronize()
        return host_s
