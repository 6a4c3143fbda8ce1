"""How fast ``fiprof import`` and ``fiprof top`` read a large trace, next to ``nsys stats`` and ``nsys-ai``.

    python benchmarks/import_trace.py [--kernels 5000000] [--rounds 3] [--link] [--nsys PATH] [--nsys-ai PATH]

The trace is that of ``parse_nsys.py``; beside it one of two GPUs and two processes, with a sample of a GPU metric for
each kernel, is imported with its rows in order of time and as nsys writes them: thread after thread, GPU after GPU.
Each side is a process of its own, in turns: an import copies the SQLite, takes its checksum, clears it of environments
and makes all tables; ``nsys stats`` and ``nsys-ai summary`` (where installed) print their summaries of the kernels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from parse_nsys import RECORDED, fan_out, two_gpus

FIPROF = (sys.executable, "-m", "fiprof")


class Run(NamedTuple):
    """Seconds of a command by the clock and by the processor, and its peak GB."""

    wall: float
    cpu: float
    gb: float


def timed(argv: tuple[str, ...], folder: Path) -> Run:
    begin = time.perf_counter()
    process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(argv)} failed")
    return Run(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--nsys", default=shutil.which("nsys") or ".nsys/bin/nsys")
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    options = parser.parse_args()
    link = ("--link",) if options.link else ()
    sides = {
        "in order": (*FIPROF, "import", "ordered.sqlite", *link),
        "not in order": (*FIPROF, "import", "unordered.sqlite", *link),
        "import": (*FIPROF, "import", "trace.sqlite", *link),
        "top": (*FIPROF, "top", "latest"),
        "nsys stats": (os.path.abspath(options.nsys), "stats", "--report", "gpukernsum", "trace.sqlite"),
    }
    if options.nsys_ai:
        sides["nsys-ai summary"] = (os.path.abspath(options.nsys_ai), "summary", "trace.sqlite")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = fan_out(RECORDED, folder / "trace.sqlite", options.kernels)
        for ordered in (True, False):
            file = folder / f"{'' if ordered else 'un'}ordered.sqlite"
            shutil.copy(folder / "trace.sqlite", file)
            two_gpus(file, ordered=ordered)
        size = (folder / "trace.sqlite").stat().st_size
        print(f"{rows:,} kernels, {size / 1e6:,.0f} MB of SQLite, best of {options.rounds}", flush=True)
        found: dict[str, list[Run]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            shutil.rmtree(folder / "artifacts", ignore_errors=True)
            for cache in folder.glob("*.nsys-cache*"):
                shutil.rmtree(cache) if cache.is_dir() else cache.unlink()
            for side, argv in sides.items():
                found[side].append(run := timed(argv, folder))
                print(f"{side:16} {run.wall:7.1f} s {run.cpu:7.1f} s of CPU {run.gb:6.2f} GB", flush=True)
    wall, cpu = ({side: min(getattr(run, of) for run in found[side]) for side in sides} for of in ("wall", "cpu"))
    ratio = cpu["not in order"] / cpu["in order"]
    print(f"two GPUs, not in order of time: {ratio:.2f} of the processor time of the same rows in order")
    for side in list(sides)[4:]:
        ratios = [(best["import"] + best["top"]) / best[side] for best in (wall, cpu)]
        print(f"import and top take {ratios[0]:.2f} of {side}, {ratios[1]:.2f} of its processor time")
    print(f"peak {max(run.gb for side in ('import', 'top') for run in found[side]):.2f} GB")


if __name__ == "__main__":
    main()
