"""How fast ``fiprof top``, ``timeline`` and ``story`` read a run with a large trace.

    python benchmarks/trace.py [--kernels 5000000] [--keep FOLDER] [--python PYTHON] [--command COMMAND]...

Imports a recorded export and writes its tables anew with every kernel and its launch call many times over: the copies
stand one after the other where the original was, in its NVTX ranges, on its thread, and take 70 to 100 % of its time.
Each command is a process of its own. ``--keep``: a folder in which the run is made once and stays; ``--python``: that
of another checkout to hold against this one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from import_trace import timed
from parse_nsys import RECORDED

from fiprof.model import tables

COMMANDS = ("top", "top --by range", "timeline", "timeline --phase all", "story")
ROW_GROUP = 1 << 18


def fan_out(folder: Path, kernels: int) -> int:
    """Write the tables of a small run anew with at least so many kernels. Returns how many there are."""
    generator = np.random.default_rng(0)
    launched = tables.read(folder, "kernels", ["correlation"])["correlation"].combine_chunks()
    copies = -(-kernels // len(launched))
    for name in ("kernels", "api"):
        original = tables.read(folder, name)
        original = original.filter(pc.is_in(original["correlation"], launched)).sort_by("start_ns").combine_chunks()
        with tables.writer(folder, name) as write:
            for first in range(0, original.num_rows, per_group := max(ROW_GROUP // copies, 1)):
                rows = original.slice(first, per_group)
                piece = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), copies)))
                start, end, correlation = (
                    np.repeat(np.array(rows[column].to_pylist()), copies)
                    for column in ("start_ns", "end_ns", "correlation")
                )
                number = np.tile(np.arange(copies), rows.num_rows)
                times = {"start_ns": start * copies + number * (end - start)}
                duration = ((end - start) * generator.uniform(0.7, 1, len(start))).astype(np.int64)
                times |= {"end_ns": times["start_ns"] + duration, "duration_ns": duration}
                for column, values in (times | {"correlation": correlation * copies + number}).items():
                    if column in piece.column_names:
                        piece = piece.set_column(piece.column_names.index(column), column, pa.array(values))
                write(piece)
    ranges = tables.read(folder, "ranges")
    for column in ("start_ns", "end_ns"):
        ranges = ranges.set_column(ranges.column_names.index(column), column, pc.multiply(ranges[column], copies))
    tables.write(folder, "ranges", ranges)
    return int(len(launched) * copies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--command", action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not folder.exists() or not list(folder.iterdir()):
            folder.mkdir(exist_ok=True)
            subprocess.run((sys.executable, "-m", "fiprof", "import", str(RECORDED)), cwd=folder, check=True)
            (tables_folder,) = folder.glob("artifacts/*/tables")
            print(f"{fan_out(tables_folder, options.kernels):,} kernels", flush=True)
        for command in options.command or COMMANDS:
            used = timed((options.python, "-m", "fiprof", *command.split(), "latest"), folder)
            print(f"{command:24} {used.wall:7.1f} s {used.cpu:7.1f} s of CPU {used.gb:6.2f} GB", flush=True)


if __name__ == "__main__":
    main()
