"""How fast ``fiprof top``, ``timeline`` and ``story`` read a run with a large trace.

    python benchmarks/trace.py [--kernels 5000000] [--ranges] [--keep FOLDER] [--python PYTHON] [--command COMMAND]...

Imports a recorded export and writes its tables anew with every kernel and its launch call many times over: the copies
stand one after the other where the original was, in its NVTX ranges, on its thread, and take 70 to 100 % of its time.
``--ranges``: two ranges of a program around each launch call, in layers of 20 calls and steps of 600. Each command
is a process of its own. ``--keep``: a folder in which the run is made once and stays; ``--python``: that of another
checkout to hold against this one.
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


def with_ranges(folder: Path) -> int:
    """Write the launching thread's ranges: ``step N`` > ``layer N`` > ``module N`` > ``op N``. Returns how many."""
    api = tables.read(folder, "api", ["start_ns", "end_ns", "pid", "tid"])
    starts, ends, pids, tids = (np.asarray(column) for column in api.columns)
    of_thread = np.flatnonzero((pids == pids[0]) & (tids == tids[0]))
    of_thread = of_thread[np.argsort(starts[of_thread], kind="stable")][: len(of_thread) // 600 * 600]
    begin, end = starts[of_thread].reshape(-1, 600), ends[of_thread].reshape(-1, 600)
    end = np.minimum(end, np.append(begin.ravel()[1:], end.max()).reshape(end.shape))
    texts = np.array(
        [f"layer {n}" for n in range(30)] + [f"module {n}" for n in range(20)] + [f"op {n}" for n in range(40)]
    )
    # The rows of a step: itself, and of each layer itself and two a call.
    layer = np.repeat(np.arange(30), 41)
    place = np.tile(np.arange(41), 30)
    call = layer * 20 + np.maximum(place - 1, 0) // 2
    depth = np.where(place == 0, 1, 2 + (place - 1) % 2)
    parent = np.where(depth == 1, 0, np.where(depth == 2, 1 + 41 * layer, np.arange(len(layer))))
    name = np.where(depth == 1, layer, np.where(depth == 2, 30 + call % 20, 50 + call % 40))
    schema, size = tables.schema("ranges"), len(layer) + 1
    pieces: list[pa.Table] = []
    with tables.writer(folder, "ranges") as write:
        for number, (begins, done) in enumerate(zip(begin, end, strict=True)):
            until = np.where(depth == 1, done[layer * 20 + 19], done[call])
            columns = {
                "domain": [""] * size,
                "name": [f"step {number}: {number % 9} requests", *texts[name]],
                "start_ns": np.append(begins[0], begins[call]),
                "end_ns": np.append(done[-1], until),
                "depth": np.append(0, depth),
                "parent": [None, *(number * size + parent).tolist()],
                "kind": ["push_pop"] * size,
                "pid": np.full(size, pids[0]),
                "tid": np.full(size, tids[0]),
            }
            nothing = pa.nulls(size)
            made = [pa.array(columns.get(each.name, nothing)).cast(each.type) for each in schema]
            pieces.append(pa.table(made, schema=schema))
            # As an import writes them.
            if len(pieces) * size >= 4 * ROW_GROUP or number + 1 == len(begin):
                write(pa.concat_tables(pieces).unify_dictionaries().combine_chunks())
                pieces.clear()
    return len(begin) * size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--ranges", action="store_true")
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
            if options.ranges:
                print(f"{with_ranges(tables_folder):,} ranges", flush=True)
        for command in options.command or COMMANDS:
            used = timed((options.python, "-m", "fiprof", *command.split(), "latest"), folder)
            print(f"{command:24} {used.wall:7.1f} s {used.cpu:7.1f} s of CPU {used.gb:6.2f} GB", flush=True)


if __name__ == "__main__":
    main()
