"""How long fiprof takes to start: ``fiprof --help`` and ``fiprof stalls RUN`` beside ``python -c "import click"``.

The three take turns, so that the machine's mood is the same for all. Prints the medians and the ratios.
Bars: --help at most 1.5x, stalls at most 7x.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BARS = {"fiprof --help": 1.5, "fiprof stalls": 7.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=min(REPOSITORY.glob("artifacts/recorded/2*-all"), default=None))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    commands = {
        "import click": [sys.executable, "-c", "import click"],
        "fiprof --help": [sys.executable, "-m", "fiprof", "--help"],
        "fiprof stalls": [sys.executable, "-m", "fiprof", "stalls", str(options.run)],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, argv in commands.items():
            begin = time.perf_counter()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["import click"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        bar = f"  (bar {BARS[name]:g}x)" if name in BARS else ""
        print(f"{name:14} {median * 1e3:7.1f} ms  {median / base:5.2f}x{bar}")


if __name__ == "__main__":
    main()
