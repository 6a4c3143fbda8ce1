"""What a profiler sees of the runner: NVTX ranges in the domain ``fiprof``."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

DOMAIN, PYTHON = "fiprof", "Python"
SETUP, WARMUP, MEASURE = "setup", "warmup", "measure"
RANGES_VARIABLE = "FIPROF_RANGES"  # file that takes the times of the ranges of a program that is compared with another


@functools.cache
def _library() -> Any:
    """The package nvtx; None where it is not installed."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx


@functools.cache
def _mark_collections() -> None:
    """From now on Python's garbage collections are ranges too, where nsys looks on."""
    library = _library()
    if library is None or "NSYS_PROFILING_SESSION_ID" not in os.environ:
        return

    def mark(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            library.push_range(f"gc generation {details['generation']}", domain=PYTHON)
        else:
            library.pop_range(domain=PYTHON)

    gc.callbacks.append(mark)


class Range(contextlib.ContextDecorator):
    """A push/pop range in the domain ``fiprof`` around a block or a function's calls; nothing without nvtx."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._out = os.environ.get(RANGES_VARIABLE)
        self._begun: list[float] = []
        _mark_collections()

    def __enter__(self) -> Range:
        if self._out:
            self._begun.append(_gpu_done())
        if _library() is not None:
            _library().push_range(self._name, domain=DOMAIN)
        return self

    def __exit__(self, *_: object) -> None:
        if _library() is not None:
            _library().pop_range(domain=DOMAIN)
        if self._out:
            us = (_gpu_done() - self._begun.pop()) * 1e6
            with open(self._out, "a", encoding="utf-8") as out:
                out.write(json.dumps({"kind": "range", "name": self._name, "us": us}) + "\n")


def _gpu_done() -> float:
    """The time, s, once torch's GPU has nothing left to do."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def visible() -> bool:
    """Whether a profiler can see the ranges."""
    return _library() is not None


@contextlib.contextmanager
def ranges(*names: str) -> Iterator[None]:
    """The named ranges around a block, the first outermost."""
    with contextlib.ExitStack() as held:
        for name in names:
            held.enter_context(Range(name))
        yield
