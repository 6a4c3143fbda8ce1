"""What an archive of 10,000 runs costs to list, to publish as a site, and to publish again after one new run.

The runs are small recorded ones with other names and moments, their tables made and their key figures scattered by
5 %; two of them are damaged. Bars, in processor time: ``fiprof runs`` 8 s the first time, 0.5 s again; ``publish`` of
2,000 runs 180 s, again after one more 5 s.

    python benchmarks/archive.py [--runs 10000] [--published 2000] [--all] [--url postgresql+psycopg://…]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "artifacts/recorded"
SMALL_BYTES = 400_000
"""Of a recorded run that counts as small: one or a few kernels, or a short trace."""
FIRST = datetime(2026, 1, 1).astimezone()
APART = timedelta(minutes=7)
SCATTER = 0.05
DAMAGED = 2


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


def measure(what: str, bar: str, *words: str) -> None:
    """Run fiprof, and print what it took."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "fiprof", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = process.stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.monotonic() - begin, used.ru_utime + used.ru_stime
    ended = f"exit {process.returncode}, {len(lines)} lines"
    print(f"{what:42} {cpu:8.2f} s CPU {wall:8.2f} s {used.ru_maxrss / 1e3:6.0f} MB  {ended:20} bar: {bar}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--published", type=int, default=2_000)
    parser.add_argument("--all", action="store_true", help="of every recorded run, large ones too")
    parser.add_argument("--url", help="a database of its own, e.g. postgresql+psycopg://…; else SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (templates := Path(folder) / "templates").mkdir()
        sources = recorded(templates, every=options.all)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
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


if __name__ == "__main__":
    main()
