"""How long fiprof takes to read a raw page of ncu, beside the least that a reader of it in plain Python does.

The page: 1,000 launches x 2,240 columns, made from a recorded one, each number changed a little.
(a1) ``read_raw`` and the tables launches, metrics and stalls as Arrow tables in memory.
(a2) ``fiprof.parsers.ncu.parse``: the same, and all five tables written as Parquet.
(b) ``csv.DictReader``, commas removed and ``float()`` for each cell; a dict a launch is kept, as (a1) keeps its tables.
(b0) The same, and each number is thrown away as soon as it is made.
All run in turn in this process, imports done before; the best of each counts, and the ratios are to (b). On a machine
that others use too, the processor's time is the steadier one.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fiprof.parsers import ncu
from fiprof.parsers.ncu_pages import read_raw

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "ncu" / "full.raw.csv"
FIRST_METRIC = 13


def make_page(path: Path, launches: int) -> None:
    """Write a raw page of as many launches, the same each time."""
    with RECORDED.open(newline="") as file:
        header, units, *rows = csv.reader(file)
    jitter = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows((header, units))
        for launch in range(launches):
            row = rows[launch % len(rows)]
            metrics = (changed(cell, jitter.uniform(0.9, 1.1)) for cell in row[FIRST_METRIC:])
            writer.writerow((launch, *row[1:FIRST_METRIC], *metrics))


def changed(cell: str, factor: float) -> str:
    """A number times the factor, printed as ncu does; anything else, 0 and 1 as they are."""
    digits = cell.replace(",", "")
    if digits.isdigit():
        return f"{round(int(digits) * factor):,}"
    try:
        return f"{float(digits) * factor:,.2f}" if digits != "nan" else cell
    except ValueError:
        return cell


def plain_python(path: Path) -> int:
    """(b0); the number of cells that are numbers."""
    numbers = 0
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for cell in row.values():
                try:
                    float(cell.replace(",", ""))
                except ValueError:
                    continue
                numbers += 1
    return numbers


def plain_python_kept(path: Path) -> list[dict[str, float | str]]:
    """(b)."""
    rows = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            kept: dict[str, float | str] = {}
            for name, cell in row.items():
                try:
                    kept[name] = float(cell.replace(",", ""))
                except ValueError:
                    kept[name] = cell
            rows.append(kept)
    return rows


def in_memory(path: Path) -> None:
    """(a1)."""
    profile = read_raw(path)
    ncu.launches_table(profile)
    ncu.metrics_table(profile)
    ncu.stalls_table(profile)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """What the work takes on the clock, and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page, out = Path(folder, "raw.csv"), Path(folder, "tables")
        make_page(page, args.launches)
        ncu.parse(page, out)
        works: dict[str, Callable[[], object]] = {
            "(a1) fiprof, in memory": lambda: in_memory(page),
            "(a2) fiprof, tables written": lambda: ncu.parse(page, out),
            "(b) DictReader and float()": lambda: plain_python_kept(page),
            "(b0) the same, nothing kept": lambda: plain_python(page),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(args.repeat):
            for name, work in works.items():
                times[name].append(seconds(work))
        print(f"{args.launches} launches, {page.stat().st_size / 1e6:.1f} MB, best of {args.repeat}")
        plain = [min(taken) for taken in zip(*times["(b) DictReader and float()"], strict=True)]
        for name, measured in times.items():
            wall, cpu = (min(taken) for taken in zip(*measured, strict=True))
            print(
                f"{name:28} {wall:6.3f} s, {wall / plain[0]:5.3f} of (b);"
                f" of the processor {cpu:6.3f} s, {cpu / plain[1]:5.3f} of (b)"
            )


if __name__ == "__main__":
    main()
