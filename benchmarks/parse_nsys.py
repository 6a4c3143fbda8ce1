"""How fast fiprof reads a large nsys export, next to the straightforward way with pandas.

    python benchmarks/parse_nsys.py [--kernels 5000000] [--rounds 3]

Fans a recorded export out to millions of kernels in a temporary folder (120 bytes each, its launch call included) and
reads it in processes of their own, in turns: kernels with names, the duration of each launch call, and count, total,
median, least and most time by kernel. fiprof does all of ``fiprof parse`` (seven tables as Parquet, phases and cases)
and the summary; pandas reads the same columns once, and once only those that the summary needs.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

RECORDED = Path(__file__).parents[1] / "tests/data/nsys/h200-five-kernels.sqlite"
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"

# The source columns of the table kernels; the summary needs those of the first line only.
NEEDED = 'k.start, k."end", k.correlationId, k.globalPid, names.value AS kernel'
FURTHER = (
    "k.deviceId, k.streamId, k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ, k.registersPerThread,"
    " k.staticSharedMemory, k.dynamicSharedMemory, k.graphNodeId"
)

Facts = dict[str, Any]
"""rows, total_ns, launch_ns: what both sides must agree on."""


def fan_out(recorded: Path, large: Path, kernels: int) -> int:
    """Copy the recorded export, each kernel and its launch call many times over. Returns the number of kernels.

    Time is stretched by the number of copies, which stand one after the other where the original was: every copy is
    in the original's range, on its thread, and rows stay in order.
    """
    large.write_bytes(recorded.read_bytes())
    connection = sqlite3.connect(large)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    (originals,) = connection.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()
    copies = -(-kernels // originals)
    connection.execute("CREATE TEMP TABLE copies (copy INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO copies VALUES (?)", ((copy,) for copy in range(copies)))
    connection.execute(f"DELETE FROM {RUNTIME} WHERE correlationId NOT IN (SELECT correlationId FROM {KERNEL})")
    connection.execute(f'UPDATE NVTX_EVENTS SET start = start * {copies}, "end" = "end" * {copies}')
    changed = {
        "start": f'start * {copies} + copy * ("end" - start)',
        "end": f'start * {copies} + (copy + 1) * ("end" - start)',
        "correlationId": f"correlationId * {copies} + copy",
    }
    for table in (KERNEL, RUNTIME):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"CREATE TEMP TABLE original AS SELECT * FROM {table} ORDER BY start")
        connection.execute(f"DELETE FROM {table}")
        values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
        connection.execute(f"INSERT INTO {table} SELECT {values} FROM original, copies ORDER BY {changed['start']}")
        connection.execute("DROP TABLE original")
    connection.commit()
    connection.close()
    return int(originals * copies)


def two_gpus(large: Path, *, ordered: bool) -> None:
    """Make a fanned-out export one of two processes with a GPU each, and add a GPU metric sample for each kernel.

    ordered: all rows by time. Otherwise calls come thread after thread and samples GPU after GPU, as nsys writes them.
    """
    connection = sqlite3.connect(large)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    rank, thread = "correlationId % 2", "correlationId / 2 % 2"
    connection.execute(f"UPDATE {KERNEL} SET globalPid = globalPid + ({rank} << 24), deviceId = {rank}")
    connection.execute(f"UPDATE {RUNTIME} SET globalTid = globalTid + ({rank} << 24) + {thread}")
    connection.execute("DELETE FROM GPU_METRICS WHERE rowid > 1")
    connection.execute(f"""INSERT INTO GPU_METRICS (rawTimestamp, timestamp, typeId, metricId, value)
        SELECT k.start, k.start, m.typeId + {rank}, 1 + k.rowid % 20, k.rowid % 100
        FROM {KERNEL} k, GPU_METRICS m ORDER BY {"k.start" if ordered else f"{rank}, k.start"}""")
    connection.execute(f"CREATE TEMP TABLE original AS SELECT * FROM {RUNTIME}")
    connection.execute(f"DELETE FROM {RUNTIME}")
    connection.execute(f"INSERT INTO {RUNTIME} SELECT * FROM original ORDER BY {'' if ordered else 'globalTid,'} start")
    connection.commit()
    connection.close()


def with_fiprof(large: Path, scratch: Path) -> Facts:
    """All of ``fiprof parse``, then the summary by kernel and case."""
    from fiprof.model import tables
    from fiprof.parsers import nsys

    nsys.parse(large, scratch)
    columns = ["case", "kernel", "duration_ns", "launch_call_ns"]
    kernels = tables.read(scratch, "kernels", columns).to_pandas()
    return summarized(kernels, ["case", "kernel"])


def with_pandas(large: Path, columns: str) -> Facts:
    """The kernels joined with their names and launch calls, and the summary by kernel."""
    import pandas as pd

    connection = sqlite3.connect(large)
    kernels = pd.read_sql(
        f"SELECT {columns} FROM {KERNEL} k JOIN StringIds names ON names.id = k.demangledName", connection
    )
    calls = pd.read_sql(f'SELECT start, "end", globalTid, correlationId FROM {RUNTIME}', connection)
    kernels["pid"] = (kernels["globalPid"] // 2**24) % 2**24
    calls["pid"] = (calls["globalTid"] // 2**24) % 2**24
    calls["launch_call_ns"] = calls["end"] - calls["start"]
    kernels["duration_ns"] = kernels["end"] - kernels["start"]
    kernels = kernels.merge(calls[["pid", "correlationId", "launch_call_ns"]], how="left", on=["pid", "correlationId"])
    return summarized(kernels, ["kernel"])


def summarized(kernels: pd.DataFrame, by: list[str]) -> Facts:
    groups = kernels.groupby(by, observed=True, dropna=False)
    summary = groups["duration_ns"].agg(["count", "sum", "median", "min", "max"])
    return {
        "rows": int(summary["count"].sum()),
        "total_ns": int(summary["sum"].sum()),
        "launch_ns": int(kernels["launch_call_ns"].sum()),
    }


SIDES: dict[str, Callable[[Path, Path], Facts]] = {
    "fiprof": with_fiprof,
    "pandas, the same columns": lambda large, _: with_pandas(large, f"{NEEDED}, {FURTHER}"),
    "pandas, the summary's columns only": lambda large, _: with_pandas(large, NEEDED),
}


def run_side(side: str, large: Path, scratch: Path) -> None:
    """In a process of its own: one side, its times (imports included) and peak memory as a line of JSON."""
    begin = time.perf_counter()
    facts = SIDES[side](large, scratch)
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
    print(json.dumps({"facts": facts, **figures}))


def measure(side: str, large: Path) -> Facts:
    with tempfile.TemporaryDirectory(dir=large.parent) as scratch:
        command = [sys.executable, __file__, "--side", side, "--file", str(large), "--scratch", scratch]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: Facts = json.loads(output)
    return result


def compare(kernels: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "trace.sqlite"
        rows = fan_out(RECORDED, large, kernels)
        print(f"{rows:,} kernels, {large.stat().st_size / 1e6:,.0f} MB of SQLite, best of {rounds}")
        results: dict[str, list[Facts]] = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side, found in results.items():
                found.append(measure(side, large))
    if any(result["facts"] != results["fiprof"][0]["facts"] for found in results.values() for result in found):
        raise SystemExit(f"the sides disagree: {results}")
    best = {side: min(result["seconds"] for result in found) for side, found in results.items()}
    for side, found in results.items():
        peak_gb = max(result["peak_bytes"] for result in found) / 1e9
        cpu = min(result["cpu_seconds"] for result in found)
        share = f"fiprof takes {best['fiprof'] / best[side]:.2f} of it" if side != "fiprof" else ""
        print(f"{side:36} {best[side]:7.1f} s {cpu:6.1f} s of CPU {peak_gb:6.2f} GB  {share}".rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_side(options.side, options.file, options.scratch)
    else:
        compare(options.kernels, options.rounds)


if __name__ == "__main__":
    main()
