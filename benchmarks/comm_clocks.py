"""How far ``fiprof comm`` is off for ranks whose clocks are apart and drift: the jobs of tests/simulated_ranks.py.

python -m benchmarks.comm_clocks [--runs 5]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

from tests.simulated_ranks import Job, Judged, judge

OFFSETS_US, DRIFTS_PPM, RANKS = (0.0, 10.0, 100.0, 1000.0), (0.0, 20.0, 200.0), (2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="Jobs of each kind.")
    runs = parser.parse_args().runs
    print("ranks  offset  drift  lateness off by (p50, p99, worst)  beyond 5 % and 20 µs  wrong rank  stated error")
    for ranks, offset, drift in itertools.product(RANKS, OFFSETS_US, DRIFTS_PPM):
        all_: list[Judged] = []
        for seed in range(runs):
            job = Job(ranks, offset, drift, seed, point_to_point=seed % 2 == 1, always=seed % 3 == 2)
            with tempfile.TemporaryDirectory() as folder:
                all_.append(judge(job, job.comm(Path(folder))))
        off = np.array([us for each in all_ for us in each.off_us])
        p50, p99 = np.percentile(off, (50, 99))
        beyond, wrong = sum(each.beyond for each in all_) / len(off), sum(each.wrong for each in all_)
        print(
            f"{ranks:5}  {offset:4.0f} µs  {drift:3.0f} ppm  {p50:5.1f} {p99:5.1f} {off.max():5.1f} µs"
            f"  {beyond:.1%}  {wrong}  {max(each.error_us for each in all_):.0f} µs",
            flush=True,
        )


if __name__ == "__main__":
    main()
