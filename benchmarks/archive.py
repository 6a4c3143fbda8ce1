"""What an archive of 10,000 runs costs to list, to publish as a site, and to publish again after one new run; what many
traces cost to import and to ask.

The runs are small recorded ones with other names and moments, their tables made and their key figures scattered by
5 %; two of them are damaged. Bars, in processor time: ``fiprof runs`` 8 s the first time, 0.5 s again; ``publish`` of
2,000 runs 180 s, again after one more 5 s.

The traces have 163,000 kernels in 20 MB and are of four hosts, of which one is slower: 32 files under many names. One
is corrupt, one an nsys-rep whose export hangs, one whose export takes more memory than an import may. Bars: imported in
0.9 of the sum of single imports, of which some are measured, half before and half after; kernels by host in 5 s.

    python benchmarks/archive.py [--runs 10000] [--published 2000] [--traces 100] [--all] [--url postgresql+psycopg://…]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import parse_nsys

RECORDED = Path(__file__).parents[1] / "artifacts/recorded"
SMALL_BYTES = 400_000
"""Of a recorded run that counts as small: one or a few kernels, or a short trace."""
FIRST = datetime(2026, 1, 1).astimezone()
APART = timedelta(minutes=7)
SCATTER = 0.05
DAMAGED = 2
KERNELS, HOSTS, SLOWER = 163_000, 4, 1.2
"""Of a trace; of all traces; of the last host."""
DISTINCT, SINGLE = 8, 50
"""Files of a host; of so many traces one is imported by itself too."""
EACH_BYTES = 1 << 30
"""What an import may take: twice what the largest does, a third of what the huge one would."""
LIMITED = f"""import os, psutil
from fiprof import __main__
from fiprof.orchestrator import many
many.MEMORY_SHARE = {EACH_BYTES} * len(os.sched_getaffinity(0)) / psutil.virtual_memory().total
__main__.main()"""
ASKED = 2000
"""Traces that are asked across."""


def recorded(folder: Path, *, every: bool) -> list[Path]:
    """Copies of recorded runs, with tables."""
    found = []
    for manifest in sorted(RECORDED.glob("*/run.json")):
        source = manifest.parent
        if every or sum(path.stat().st_size for path in source.rglob("*") if path.is_file()) < SMALL_BYTES:
            copy = Path(shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("tables")))
            # By a process of its own: what this one ever held is counted among what the commands hold.
            subprocess.run([sys.executable, "-m", "fiprof", "parse", copy], check=True, capture_output=True)
            found.append(copy)
    return found


def add(archive: Path, source: Path, number: int, *, link: bool = True) -> Path:
    """A run like a recorded one, of its own moment. link: its files are other names of the source's."""
    began = FIRST + number * APART
    run = archive / f"{began:%Y%m%d-%H%M%S}-{source.name[16:]}"
    shutil.copytree(source, run, copy_function=os.link if link else shutil.copy2)
    manifest = json.loads((source / "run.json").read_text())
    manifest |= {"name": run.name, "started": began.isoformat()}
    replace(run / "run.json", json.dumps(manifest, indent=1))
    summary = json.loads((source / "tables/summary.json").read_text())
    factor = random.Random(number).lognormvariate(0, SCATTER)
    for result in summary["results"]:
        result["values"] = {key: value * factor for key, value in result["values"].items()}
    replace(run / "tables/summary.json", json.dumps(summary))
    return run


def replace(path: Path, text: str) -> None:
    """Another file in place of one that may be the source's too."""
    path.unlink()
    path.write_text(text)


def make(archive: Path, sources: list[Path], count: int) -> None:
    """So many runs, the sources in turn, of which some are damaged."""
    for number in range(count):
        run = add(archive, sources[number % len(sources)], number)
        if number < DAMAGED:
            (run / "run.json").write_text("{")


def make_traces(folder: Path, count: int) -> None:
    """So many traces, the files of a host under several names, and a corrupt, a hanging and a huge one."""
    for number in range(count):
        host, place = number % HOSTS, number // HOSTS
        trace = folder / f"host{host}/trace{place}.sqlite"
        if place >= DISTINCT:
            os.link(trace.with_name(f"trace{place % DISTINCT}.sqlite"), trace)
            continue
        parse_nsys.fan_out(parse_nsys.RECORDED, trace, KERNELS)
        connection = sqlite3.connect(trace)
        connection.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        connection.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', ?)", (f"host{host}",))
        times = (SLOWER if host == HOSTS - 1 else 1) * (1 - place / 10_000)
        longer = f'"end" = start + CAST(("end" - start) * {times} AS INT)'
        connection.execute(f"UPDATE {parse_nsys.KERNEL} SET {longer}")
        connection.commit()
        connection.close()
    (folder / "host0/corrupt.sqlite").write_bytes(trace.read_bytes()[: 1 << 20])
    for name in ("hangs", "huge"):
        (folder / f"host0/{name}.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report")
    nsys = folder / "nsys"
    nsys.write_text(f"""#!/bin/sh
case "$*" in
*--version*) echo "NVIDIA Nsight Systems version 2026.1.1" ;;
*huge*) head -c {3 * EACH_BYTES} /dev/zero | tail ;;
*) sleep 3600 ;;
esac
""")
    nsys.chmod(0o755)
    os.environ["FIPROF_NSYS"] = str(nsys)


def measure(what: str, bar: str, *words: str, program: Sequence[str] = ("-m", "fiprof")) -> tuple[float, float]:
    """Run fiprof, and print what it took. Returns the seconds by the clock and of processor time."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, *program, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = process.stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.monotonic() - begin, used.ru_utime + used.ru_stime
    ended = f"exit {process.returncode}, {len(lines)} lines"
    print(f"{what:42} {cpu:8.2f} s CPU {wall:8.2f} s {used.ru_maxrss / 1e3:6.0f} MB  {ended:20} bar: {bar}", flush=True)
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--published", type=int, default=2_000)
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--timeout", default="60", help="seconds after which an import hangs; more on a loaded machine")
    parser.add_argument("--all", action="store_true", help="of every recorded run, large ones too")
    parser.add_argument("--url", help="a database of its own, e.g. postgresql+psycopg://…; else SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (templates := Path(folder) / "templates").mkdir()
        sources = recorded(templates, every=options.all) if options.runs or options.published else []
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        # As installed, with its bytecode.
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        if options.url:
            os.environ["FIPROF_CATALOG"] = options.url
        if options.runs:
            (large := Path(folder) / "large").mkdir()
            make(large, sources, options.runs)
            where = ("--artifacts", str(large))
            measure(f"runs, the first time, {options.runs:,}", "8 s", "runs", *where)
            measure("runs, again", "0.5 s", "runs", *where)
            measure("runs --all --format json", "none", "runs", "--all", "--format", "json", *where)
            measure("index --rebuild", "500 runs/s", "index", "--rebuild", *where)
            measure("show latest", "none", "show", "latest", *where)
            shutil.rmtree(large)
        if options.published:
            (small := Path(folder) / "small").mkdir()
            make(small, sources, options.published)
            words = ("publish", f"{folder}/site", "--artifacts", str(small))
            measure(f"publish, the first time, {options.published:,}", "180 s", *words)
            add(small, sources[0], options.published, link=False)
            measure("publish, one new run", "5 s", *words)
        if options.traces:
            for host in range(HOSTS):
                (Path(folder) / f"traces/host{host}").mkdir(parents=True)
            make_traces(Path(folder) / "traces", options.traces)
            one, many = ("--artifacts", f"{folder}/one"), ("--artifacts", f"{folder}/many")
            files = sorted(str(path) for path in Path(folder).glob("traces/*/trace*"))[::SINGLE]
            measure("import one trace, the first", "none", "import", files[0], *one)
            alone = [measure("import one trace", "none", "import", file, *one) for file in files[::2]]
            asked = ("import", f"{folder}/traces/**/*.*", "--timeout", options.timeout, *many)
            what = f"import {options.traces:,} and three bad ones"
            together = measure(what, "0.9", *asked, program=("-c", LIMITED))
            alone += [measure("import one trace", "none", "import", file, *one) for file in files[1::2]]
            wall, cpu = (
                ours / (sum(single) / len(alone) * options.traces)
                for ours, single in zip(together, zip(*alone, strict=True), strict=True)
            )
            print(f"{wall:.2f} of the sum of single imports, {cpu:.2f} of its processor time, by {len(alone)} of them")
            # Asked of 2,000: copies of what is asked.
            runs = list((Path(folder) / "many").glob("[!.]*/digest.parquet"))
            for number in range(max(ASKED - len(runs), 0)):
                source = runs[number % len(runs)].parent
                (copy := source.with_name(f"{source.name}-{number}")).mkdir()
                for name in ("run.json", "digest.parquet"):
                    os.link(source / name, copy / name)
            measure(f"kernels by host of {ASKED:,}", "5 s", "top", "--over", f"{folder}/many", "--by", "host")
            measure("hosts unlike the others", "5 s", "top", "--over", f"{folder}/many", "--table", "outliers")


if __name__ == "__main__":
    main()
