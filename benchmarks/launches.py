"""How long the commands take for a run of very many launches under ncu, and how much memory.

``python -m benchmarks.launches [LAUNCHES]`` makes such a run from a recorded one: its launches again and again as more
iterations of its cases, with their stalls, rules, checks and kernels under nsys; of ncu's raw metrics those of the
first alone, which no figure of these commands is made of. Bar: a minute and 4 GB each for 100,000 launches.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fiprof.model import tables
from fiprof.model.run import Run
from fiprof.orchestrator.parse import parse_all

RECORDED = Path(__file__).parents[1] / "artifacts/recorded/20261121-121126-decode"
LAUNCHES = 100_000
COMMANDS = (("verdict",), ("show",), ("stalls",), ("roofline",), ("report",), ("verdict", "--format", "json"))


def make(folder: Path, launches: int) -> None:
    """A copy of the recorded run with so many launches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shutil.copytree(RECORDED, folder, ignore=shutil.ignore_patterns("tables"))
    parse_all(folder)
    run = Run(folder)
    recorded = len(run.launches)
    iterations = 1 + max(launch.iteration or 0 for launch in run.launches)
    length = pc.max(run.table("kernels")["end_ns"]).as_py() + 1

    def shifted(table: pa.Table, turn: int) -> pa.Table:
        steps = {"launch": recorded, "iteration": iterations, "start_ns": length, "end_ns": length}
        for column in set(steps) & set(table.column_names):
            moved = pc.add(table[column], pa.scalar(turn * steps[column], table.schema.field(column).type))
            table = table.set_column(table.column_names.index(column), column, moved)
        return table

    for name in ("launches", "stalls", "rules", "checks", "kernels"):
        table = run.table(name)
        turns = [shifted(table, turn) for turn in range(-(-launches // recorded))]
        tables.write(run.tables_path, name, pa.concat_tables(turns))


def main() -> None:
    launches = int(sys.argv[1]) if len(sys.argv) > 1 else LAUNCHES
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make(run, launches)
        for command in COMMANDS:
            start = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "fiprof", command[0], str(run), *command[1:]], stdout=subprocess.DEVNULL
            )
            _, _, used = __import__("os").wait4(process.pid, 0)
            print(f"fiprof {' '.join(command):22} {time.perf_counter() - start:6.1f} s {used.ru_maxrss / 1e6:5.1f} GB")


if __name__ == "__main__":
    main()
