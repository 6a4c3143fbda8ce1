"""How long fiprof takes to start: ``fiprof --help`` and ``fiprof stalls RUN`` beside ``python -c "import click"``.

The three take turns, so that the machine's mood is the same for all, and times are the processor's in user mode.
Bytecode is cached, as after any first start. Prints the medians and the ratios.
Bars: --help at most 1.5x, stalls at most 7x.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
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
    # Without the cache fiprof's own modules, which nobody has compiled, would weigh most.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(options.rounds + 1):
        for name, argv in commands.items():
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"{name} failed")
            if number:
                times[name].append(used.ru_utime)
    base = statistics.median(times["import click"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        bar = f"  (bar {BARS[name]:g}x)" if name in BARS else ""
        print(f"{name:14} {median * 1e3:7.1f} ms  {median / base:5.2f}x{bar}")


if __name__ == "__main__":
    main()
