"""Both parsers beside the straightforward way: a large nsys export and pandas, a wide ncu page and csv.DictReader.

    python benchmarks/parse.py

Bars: nsys at most a quarter of the other's time, within 2 GB; ncu at most a quarter too (not reached, see README.md).
``parse_nsys.py`` and ``parse_ncu.py`` say what is measured and take options of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> None:
    for name in ("parse_nsys", "parse_ncu"):
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=True)


if __name__ == "__main__":
    main()
