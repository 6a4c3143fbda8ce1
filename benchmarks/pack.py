"""What packing a run takes and leaves: zstd, as runs are made.

``python -m benchmarks.pack [RUN]`` packs copies of a run's raw files, those of the recorded one of all kernels by
default, and prints seconds and bytes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from fiprof.model import packing

RECORDED = Path(__file__).parents[1] / "artifacts/recorded/20261121-120959-all"


def main() -> None:
    run = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(run, Path(scratch) / "run"))
        packing.unpack(folder)
        plain = size(folder)
        print(f"plain  {plain / 1e6:7.2f} MB")
        begin = time.perf_counter()
        packing.pack(folder)
        took_s = time.perf_counter() - begin
        print(f"packed {size(folder) / 1e6:7.2f} MB  {size(folder) / plain:6.1%}  {took_s:6.2f} s")


def size(folder: Path) -> int:
    """Bytes of the raw files."""
    return sum(path.stat().st_size for name in ("nsys", "ncu") for path in (folder / name).glob("*"))


if __name__ == "__main__":
    main()
