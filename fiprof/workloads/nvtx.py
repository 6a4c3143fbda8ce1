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
            self._nvtx = None
        else:
            self._nvtx = nvtx

    @property
    def visible(self) -> bool:
        """Whether a profiler can see the ranges."""
        return self._nvtx is not None

    @contextlib.contextmanager
    def range(self, *names: str) -> Iterator[None]:
        """The named ranges around a block, the first outermost."""
        if self._nvtx is None:
            yield
            return
        for name in names:
            self._nvtx.push_range(name, domain=DOMAIN)
        try:
            yield
        finally:
            for _ in names:
                self._nvtx.pop_range(domain=DOMAIN)


@contextlib.contextmanager
def cuda_profiler() -> Iterator[None]:
    """cudaProfilerStart and cudaProfilerStop around a block, for tools told to watch that range only."""
    from torch.cuda import profiler

    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
