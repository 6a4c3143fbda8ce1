"""What a profiler sees of the runner: NVTX ranges in the domain ``fiprof`` and the CUDA profiler's start and stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

DOMAIN = "fiprof"
SETUP, WARMUP, MEASURE = "setup", "warmup", "measure"


class Marks:
    """Push/pop ranges in the domain ``fiprof``; does nothing where the package nvtx is not installed."""

    def __init__(self) -> None:
        try:
            import nvtx
        except ImportError:
            self._domain = None
        else:
            self._domain = nvtx.get_domain(DOMAIN)

    @property
    def visible(self) -> bool:
        """Whether a profiler can see the ranges."""
        return self._domain is not None

    @contextlib.contextmanager
    def range(self, *names: str) -> Iterator[None]:
        """The named ranges around a block, the first outermost."""
        domain = self._domain
        if domain is None:
            yield
            return
        for name in names:
            domain.push_range(domain.get_event_attributes(message=name))
        try:
            yield
        finally:
            for _ in names:
                domain.pop_range()


@contextlib.contextmanager
def cuda_profiler() -> Iterator[None]:
    """cudaProfilerStart and cudaProfilerStop around a block, for tools told to watch that range only."""
    from torch.cuda import profiler

    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
