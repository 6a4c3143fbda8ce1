"""Stands in for the interpreter that has torch and flashinfer under ``fiprof jit``: takes the probe's command lines,
compiles nothing, and leaves the cache and the records of a recorded build.

The build was recorded with FlashInfer 0.6.13, nvcc 13.0 and ninja 1.13 on two cores without a GPU: the launch's times
are made up. FAKE_JIT names how it is to behave: ok, no-gpu (nothing works), fails:WORD (cases with it in their
name do), compile-error, disk-full, ahead (modules come ready made), recompiles (the disk cache is not used), hang.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "data" / "jit"
DECODE = next(path.name for path in (RECORDED / "cache").iterdir() if path.name != "rope")
FIRST_S = {"rope": (44.311, 0.062), DECODE: (24.388, 0.0626)}
"""Module -> seconds of the first call with an empty cache, and with the cache on disk."""
AGAIN_S = [0.0004, 0.0002, 0.0003, 0.0002, 0.0009]
NO_SPACE = "fatal error: error writing to /tmp/x.s: No space left on device\n"
COMPILE_ERROR = "/site-packages/cudaUtils.h:25:10: fatal error: cublasLt.h: No such file or directory\n"

CACHES = "TORCH_EXTENSIONS_DIR TRITON_CACHE_DIR CUDA_CACHE_PATH CUTE_DSL_CACHE_DIR FLASHINFER_CUBIN_DIR"
PACKAGES = {"torch": "2.13.0", "flashinfer-python": "0.6.13"}
GPU = {"name": "NVIDIA H200"}


def main() -> None:
    behaviour = os.environ.get("FAKE_JIT", "ok")
    base = Path(os.environ["FLASHINFER_WORKSPACE_BASE"])
    assert os.environ["FLASHINFER_JIT_DEBUG"] == "0", "verbose alone would mean a debug build"
    _, _, case, out = sys.argv
    assert all(Path(os.environ[name]).is_relative_to(base) for name in CACHES.split()), "a cache of the user's is warm"
    assert os.environ["FLASHINFER_NVCC_LAUNCHER"] == "", "a compiler's cache is warm"
    with open(out, "w") as lines:
        run(case, base, behaviour, lambda record: lines.write(json.dumps(record) + "\n"))


def run(case: str, base: Path, behaviour: str, emit: Any) -> None:
    if behaviour == "hang":
        print("fiprof: first call", file=sys.stderr, flush=True)
        time.sleep(300)
    if behaviour == "no-gpu":
        emit({"kind": "failure", "message": "torch sees no CUDA device", "remedy": "take a machine with one"})
        sys.exit(1)
    ahead = ["flashinfer_jit_cache"] if behaviour == "ahead" else []
    facts = {"packages": PACKAGES, "gpu": GPU, "nvcc": "13.0.88", "cores": 2, "max_jobs": None, "compiled_ahead": ahead}
    emit({"kind": "environment", **facts, "says": os.environ.get("FAKE_JIT_SAYS")})
    word = behaviour.partition(":")[2]
    if (word and word in case) or behaviour in ("compile-error", "disk-full"):
        sys.stdout.write({"compile-error": COMPILE_ERROR, "disk-full": NO_SPACE}.get(behaviour, ""))
        emit({"kind": "failure", "message": "RuntimeError: Ninja build failed.", "remedy": ""})
        sys.exit(1)
    module = "rope" if case.startswith("rope") else DECODE
    cold = not folder(base, module).exists()
    if not ahead:
        fill(base, module)
    if not cold and behaviour == "recompiles":
        with (folder(base, module) / ".ninja_log").open("a") as log:
            log.write(f"0\t5000\t1\t{folder(base, module)}/csrc_rope.cuda.o\tabc\n")
    emit({"kind": "call", "case": case, "first_s": FIRST_S[module][not cold], "again_s": AGAIN_S})


def folder(base: Path, module: str) -> Path:
    return base / ".cache" / "flashinfer" / "0.6.13" / "90a" / "cached_ops" / module


def fill(base: Path, module: str) -> None:
    """Leave the module's files, the binary ones empty but for the library."""
    target = folder(base, module)
    if target.exists():
        return
    shutil.copytree(RECORDED / "cache" / module, target)
    for name, ending in (("build.ninja", "build.ninja"), ("ninja_log", ".ninja_log")):
        text = (target / name).read_text().replace("@CACHE@", str(base))
        (target / name).unlink()
        (target / ending).write_text(text)
    (target / f"{module}.so").write_bytes(b"\x7fELF" + bytes(1020))
    (target.parents[1] / "flashinfer_jit.log").write_text(f"INFO - flashinfer.jit: built {target}\n")


if __name__ == "__main__":
    main()
