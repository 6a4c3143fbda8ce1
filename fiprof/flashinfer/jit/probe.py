"""Times one case's first call and those after it, as JSON lines: environment, then call or failure.

``python …/probe.py 'rmsnorm' FILE`` by an interpreter that has torch and flashinfer; it needs no fiprof. A FlashInfer
that caches elsewhere than FLASHINFER_WORKSPACE_BASE says is refused before it compiles or loads anything.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

if not __package__:
    # Makes this file's package importable; the runner's main function is not run under this name.
    runpy.run_path(str(Path(__file__).parents[2] / "workloads/__main__.py"), run_name="fiprof_bootstrap")

from fiprof.errors import FiprofError
from fiprof.workloads.__main__ import results, say
from fiprof.workloads.case import parse_case
from fiprof.workloads.environment import gpu_facts, package_versions
from fiprof.workloads.runner import Record, import_modules, one_line

REPEATS = 5  # calls after the first
VERSION_TIMEOUT_S = 30


def main(text: str, out: str) -> None:
    """Emit what is found, or why there is nothing: without an environment before it, the machine's fault, not the
    case's. ninja's output and the steps go to stdout and stderr."""
    with results(out) as emit:
        try:
            probe(text, Path(os.environ["FLASHINFER_WORKSPACE_BASE"]), emit)
        except Exception as error:
            emit({"kind": "failure", "message": one_line(error), "remedy": getattr(error, "remedy", "")})
            raise


def probe(text: str, cache: Path, emit: Callable[[Record], None]) -> None:
    """Time the first call of a case in this process, then REPEATS more: plan, launch, wait for the GPU.

    Raises FiprofError where something that a call needs is missing, or FlashInfer caches outside of ``cache``.
    """
    case = parse_case(text)
    say("import")
    import_modules([case])
    used = Path(importlib.import_module("flashinfer.jit.env").FLASHINFER_WORKSPACE_DIR)
    if not used.resolve().is_relative_to(cache.resolve()):
        what = f"this FlashInfer caches in {used} though FLASHINFER_WORKSPACE_BASE is {cache}"
        raise FiprofError(what, "fiprof jit leaves that cache alone: it needs FlashInfer 0.5.3 or later")
    emit({"kind": "environment", **_environment()})
    import torch

    seconds: list[float] = []
    for _ in range(REPEATS + 1):
        workload = case.build()
        # Made before the clock starts: the inputs of the packaged workloads are a cached property.
        _ = getattr(workload, "inputs", None)
        torch.cuda.synchronize()
        if not seconds:
            say("first call")
        begin = time.perf_counter()
        workload.setup()()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    emit({"kind": "call", "case": case.id, "first_s": seconds[0], "again_s": seconds[1:]})


def _environment() -> Record:
    """What the times depend on. Raises FiprofError naming what a first call needs and is not there."""
    import torch

    if not torch.cuda.is_available():
        what = "torch sees no CUDA device: a first call launches its kernel"
        remedy = "run fiprof jit on a machine with an NVIDIA GPU; --read FILE.json shows what was measured on one"
        raise FiprofError(what, remedy)
    if os.environ.get("FLASHINFER_DISABLE_JIT"):
        raise FiprofError("FLASHINFER_DISABLE_JIT is set: nothing is compiled just in time", "unset it for fiprof jit")
    ahead = [name for name in ("flashinfer_jit_cache", "flashinfer_cubin") if find_spec(name) is not None]
    # The compiler that FlashInfer takes.
    nvcc, version = os.environ.get("FLASHINFER_NVCC") or "nvcc", None
    with contextlib.suppress(Exception):
        if nvcc == "nvcc":
            nvcc = str(Path(importlib.import_module("flashinfer.jit.cpp_ext").get_cuda_path()) / "bin" / "nvcc")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [nvcc, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True)
        found = re.search(r"release [\d.]+, V([\d.]+)", done.stdout)
        version = found[1] if found else None
    if version is None and not ahead:
        what = f"no CUDA compiler: {nvcc} does not run"
        raise FiprofError(what, "install the CUDA toolkit of torch's CUDA version, or name one with CUDA_HOME")
    if not ahead and shutil.which("ninja") is None:
        what = "ninja was not found, with which FlashInfer builds"
        remedy = f"put the interpreter's own programs on PATH ({Path(sys.executable).parent}), or pip install ninja"
        raise FiprofError(what, remedy)
    return {
        "packages": {name: text for name, text in package_versions().items() if name != "python_executable"},
        "gpu": gpu_facts(),
        "nvcc": version,
        "cores": len(os.sched_getaffinity(0)),
        "max_jobs": os.environ.get("MAX_JOBS"),
        "compiled_ahead": ahead,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
