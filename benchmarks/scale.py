"""What it costs to hand a study out: ``python -m benchmarks.scale [WORKERS]``.

First a study of a million cases is planned for 64 boards. Then one of 120 cases a worker is measured twice with the
tests' stand-ins for nsys, ncu and the workload, which replay a recorded run: by one process on one GPU, with as many
batches, and by a pool of WORKERS simulated GPUs (64). The difference in processor time, of all processes, is what the
pool costs; with more workers than cores the wall time says little.

``python -m benchmarks.scale --gpus [OPTION ...]``, where there are several: ``fiprof study flashinfer --quick`` with
these options on one and on all, after a first time that fills the JIT cache: both times, the cells, and the anchors.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fiprof.orchestrator import batches, study
from tests.conftest import fake_programs, ran
from tests.recorded_runs import RUNS

CASES = 120
MILLION: dict[str, Any] = {
    "name": "million",
    "cases": [
        {
            "workload": "decode",
            "batch": list(range(1, 251)),
            "kv_len": list(range(16, 2016, 16)),
            "tensor_cores": [False, True],
            "cuda_graph": [False, True],
            "kv_heads": [8, 16],
            "page_size": [8, 16],
            "dtype": ["fp16", "bf16"],
        }
    ],
}


def plan() -> None:
    began = time.process_time()
    found = study._definition(MILLION, "million", quick=False)
    grouped = batches.groups(found.cases)
    batches.anchors(grouped), batches.fillers(grouped)
    made = batches.deal(found.cases, grouped, 64, found.settings.batch_cases)
    seconds, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{sum(map(len, made)):,} cases in {len(made):,} batches: {seconds:.1f} s of processor time, {peak:.2f} GB")


def measure(folder: Path, workers: int) -> None:
    lengths = ", ".join(str(16 * number) for number in range(1, workers + 1))
    (folder / "wide.toml").write_text(
        f'name = "wide"\n[settings]\nncu_set = "quick"\nbatch_cases = {CASES}\n[[cases]]\nworkload = "decode"\n'
        f"kv_len = [{lengths}]\nkv_heads = [1, 2, 4, 8, 32]\nq_heads = [32, 64, 96]\npage_size = [8, 16]\n"
        'tensor_cores = [false, true]\ndtype = ["fp16", "bf16"]\n'
    )
    cards = ",".join(f"GPU-{folder}-{number}" for number in range(workers))
    env = {**os.environ, **fake_programs(folder, RUNS["decode"]), "CUDA_VISIBLE_DEVICES": cards}
    env["XDG_CACHE_HOME"] = str(folder / "cache")
    took = {}
    for name, words in (("one", ()), ("pool", ("--on", "local"))):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        argv = (
            sys.executable,
            "-m",
            "fiprof",
            "study",
            "wide.toml",
            *words,
            "--out",
            name,
            "--no-documents",
            "--quiet",
        )
        done = ran(*argv, cwd=folder, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        took[name] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        runs = len(list((folder / name).glob("2*/run.json")))
        print(f"{name}: {runs} runs, {took[name]:.1f} s of processor time, {time.monotonic() - began:.1f} s")
    cells = workers * CASES
    print(f"{workers} workers, {cells} cells: {(took['pool'] - took['one']) / cells * 1e3:.1f} ms a cell more")


def cells(folder: Path) -> Counter[str]:
    """Case id -> how many complete runs have it for their own."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("2*/run.json")]
    whole = (manifest["cases"] for manifest in manifests if manifest["status"] == "complete")
    return Counter(case["id"] for cases in whole for case in cases if not case["anchor"])


def on_gpus(folder: Path, options: Sequence[str]) -> None:
    took = {}
    for name, words in (
        ("first", ("--only", "rope", "--on", "local:1")),
        ("one", options),
        ("all", (*options, "--on", "local")),
    ):
        began = time.monotonic()
        argv = ("study", "flashinfer", "--quick", *words, "--out", str(folder / name), "--no-documents")
        subprocess.run([sys.executable, "-m", "fiprof", *argv], check=True)
        took[name] = time.monotonic() - began
        print(f"{name}: {took[name]:.1f} s, {len(cells(folder / name))} cells", flush=True)
    one, several = cells(folder / "one"), cells(folder / "all")
    same = one.keys() == several.keys()
    most = max(several.values())
    print(f"all / one: {took['all'] / took['one']:.3f} of the time; the same cells: {same}; most often {most}")
    for case, times in json.loads((folder / "all/results/environment_info.json").read_text())["anchors"].items():
        print(f"{case}: {times}, {max(times.values()) / min(times.values()) - 1:.2%} apart")


if __name__ == "__main__":
    if "--gpus" in sys.argv:
        with tempfile.TemporaryDirectory() as made:
            on_gpus(Path(made), sys.argv[2:])
        sys.exit()
    plan()
    with tempfile.TemporaryDirectory() as made:
        measure(Path(made), int(sys.argv[1]) if sys.argv[1:] else 64)
