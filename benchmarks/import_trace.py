"""How fast ``fiprof import`` and ``fiprof top`` read a large trace, next to ``nsys stats`` of the same file.

    python benchmarks/import_trace.py [--kernels 5000000] [--rounds 3] [--link] [--nsys PATH]

The trace is that of ``parse_nsys.py``. Each side is a process of its own, in turns: an import copies the SQLite, takes
its checksum, clears it of environments and makes all tables; ``nsys stats`` prints its summary of the kernels.
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

from parse_nsys import RECORDED, fan_out

FIPROF = (sys.executable, "-m", "fiprof")


def timed(argv: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Seconds and peak GB of a command."""
    begin = time.perf_counter()
    process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(argv)} failed")
    return time.perf_counter() - begin, used.ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--nsys", default=shutil.which("nsys") or ".nsys/bin/nsys")
    options = parser.parse_args()
    nsys = str(Path(options.nsys).absolute())
    stats = (nsys, "stats", "--report", "gpukernsum", "--format", "csv", "trace.sqlite")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = fan_out(RECORDED, folder / "trace.sqlite", options.kernels)
        size = (folder / "trace.sqlite").stat().st_size
        print(f"{rows:,} kernels, {size / 1e6:,.0f} MB of SQLite, best of {options.rounds}", flush=True)
        sides = {
            "import": (*FIPROF, "import", "trace.sqlite", *(("--link",) if options.link else ())),
            "top": (*FIPROF, "top", "latest"),
            "nsys stats": stats,
        }
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            shutil.rmtree(folder / "artifacts", ignore_errors=True)
            for side, argv in sides.items():
                found[side].append(timed(argv, folder))
                print(f"{side:12} {found[side][-1][0]:7.1f} s {found[side][-1][1]:6.2f} GB", flush=True)
    best = {side: min(seconds for seconds, _ in each) for side, each in found.items()}
    ratio = (best["import"] + best["top"]) / best["nsys stats"]
    peak_gb = max(gb for side in ("import", "top") for _, gb in found[side])
    print(f"import and top take {ratio:.2f} of nsys stats; peak {peak_gb:.2f} GB")


if __name__ == "__main__":
    main()
