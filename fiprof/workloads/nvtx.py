"""What a profiler sees of the runner: NVTX ranges in the domain ``fiprof`` and the CUDA profiler's start and stop."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

DOMAIN = "fiprof"
SETUP, WARMUP, MEASURE = "setup", "warmup", "measure"


@functools.cache
def _library() -> Any:
    """The package nvtx; None where it is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx


class Range(contextlib.ContextDecorator):
    """A push/pop range in the domain ``fiprof`` around a block or a function's calls; nothing without nvtx."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Range:
        if _library() is not None:
            _library().push_range(self._name, domain=DOMAIN)
        return self

    def __exit__(self, *_: object) -> None:
        if _library() is not None:
            _library().pop_range(domain=DOMAIN)


class Marks:
    """The runner's ranges."""

    @property
    def visible(self) -> bool:
        """Whether a profiler can see the ranges."""
        return _library() is not None

    @contextlib.contextmanager
    def range(self, *names: str) -> Iterator[None]:
        """The named ranges around a block, the first outermost."""
        with contextlib.ExitStack() as ranges:
            for name in names:
                ranges.enter_context(Range(name))
            yield


@contextlib.contextmanager
def cuda_profiler() -> Iterator[None]:
    """cudaProfilerStart and cudaProfilerStop around a block, for tools told to watch that range only."""
    from torch.cuda import profiler

    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
