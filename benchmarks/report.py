"""How long ``fiprof report`` takes for a trace of many different kernels.

``python -m benchmarks.report [KERNELS]`` makes such a run from the recorded one: its trace again and again, every
execution under a name of its own, which is the hardest for charts and tables. It prints the command's time.
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

RECORDED = Path(__file__).parents[1] / "artifacts/recorded/20261121-120959-all"
KERNELS = 3400


def make(folder: Path, kernels: int) -> None:
    """A copy of the recorded run whose trace has so many kernels, a name each."""
    import pandas as pd
    import pyarrow as pa

    shutil.copytree(RECORDED, folder)
    parse_all(folder)
    run = Run(folder)
    frame = run.frame("kernels")
    length = int(frame["end_ns"].max() - frame["start_ns"].min()) + 1
    copies = [
        frame.assign(start_ns=frame["start_ns"] + turn * length, end_ns=frame["end_ns"] + turn * length)
        for turn in range(-(-kernels // len(frame)))
    ]
    made = pd.concat(copies, ignore_index=True).head(kernels)
    made["kernel"] = [f"{name}_{number}" for number, name in enumerate(made["kernel"].astype(str))]
    made["kernel_full"] = made["kernel"]
    table = pa.Table.from_pandas(made, preserve_index=False)
    tables.write(
        run.tables_path, "kernels", table.select(tables.schema("kernels").names).cast(tables.schema("kernels"))
    )


def main() -> None:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else KERNELS
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make(run, kernels)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fiprof", "report", str(run)], check=True, stdout=subprocess.DEVNULL)
        print(f"fiprof report of {kernels:,} kernels: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
