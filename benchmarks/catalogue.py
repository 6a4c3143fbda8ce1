"""How long a catalogue of 100,000 runs takes to answer, to take in one more, and to be made again from run folders.

The runs are the recorded ones with other parameters, times, GPUs, commits and people; their rows go in as those of run
folders do. Bars: the filters of ``fiprof runs`` 150 ms each, one run the same at 100 and at 100,000, 500 runs a second.

    python benchmarks/catalogue.py [--runs 100000] [--url postgresql+psycopg://…]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from fiprof.model.catalogue import queries, store
from fiprof.model.catalogue.store import BATCH, Catalogue, Entry, Row
from fiprof.orchestrator.index import opened
from fiprof.orchestrator.parse import parse_all
from fiprof.orchestrator.run_folder import Archive

RECORDED = Path(__file__).parents[1] / "artifacts/recorded"
TEMPLATES = ("20261121-*-all", "20261121-*-decode", "20261121-*-rope", "20261122-*-llama")
SINGLE = 0.7
"""Part of the runs that are of one case."""
DAYS = 730
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = tuple(range(512, 32768, 512))
GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA A100-SXM4-80GB")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"limit": 50},
    {"kernel": "decode", "where": ["batch=128"], "gpu": "H200", "since_": "30d", "metrics": ["dram_share"],
     "sort": "-dram_share", "limit": 50},
    {"kernel": "decode", "where": ["batch=128"], "metrics": ["dram_share"], "sort": "-dram_share", "limit": 50},
    {"kernel": "decode", "metrics": ["dram_share"], "sort": "-dram_share", "limit": 50},
    {"where": ["batch>=64", "kv_len<4096"], "metrics": ["duration", "tensor_active_pct"], "limit": 50},
    {"where": ["dram_share>0.8", "torch=2.11.0"], "since_": "90d", "limit": 50},
    {"kernel": "prefill", "gpu": "B200", "tags": ["release"], "status": "complete", "limit": 50},
    {"where": ["user=user7", "git=00000007"], "metrics": ["duration"], "limit": 50},
    {"kernel": "decode", "where": ["batch=128", "kv_len=2048"], "metrics": ["duration"]},
)  # fmt: skip


def entries(templates: list[Entry], count: int, seed: int = 0) -> Iterator[Entry]:
    """Runs that are like recorded ones, each of its own moment."""
    chance = random.Random(seed)
    now = datetime.now(UTC)
    for number in range(count):
        template = chance.choice(templates)
        kept = dict(template.parameters)
        if chance.random() < SINGLE and kept:
            kept = dict([chance.choice(list(kept.items()))])
        renamed = {case: _varied(case, params, chance) for case, params in kept.items()}
        factor = chance.lognormvariate(0, 0.05)
        results = tuple(
            dataclasses.replace(
                each,
                case=renamed[each.case][0] if each.case else None,
                values={key: value * factor for key, value in each.values.items()},
            )
            for each in template.results
            if each.case is None or each.case in renamed
        )
        began = now - timedelta(days=DAYS * chance.random())
        gpu = chance.randrange(40)
        installed = {**json.loads(template.environment["packages"]), "build": f"{chance.randrange(5)}"}
        run = {
            "name": f"{began:%Y%m%d-%H%M%S}-{number}",
            "stamp": f"{number:x}",
            "started": began.isoformat(),
            "started_us": (began - store.EPOCH) // timedelta(microseconds=1),
            "git": f"{chance.randrange(500):08x}",
            "user": f"user{chance.randrange(20)}",
            "tags": json.dumps(["release"] if chance.random() < 0.02 else []),
        }
        board = {"gpu": GPUS[gpu % len(GPUS)], "uuid": f"GPU-{gpu:032x}", "driver": f"580.{gpu % 3}", "cuda": "13.0"}
        yield Entry(
            run={**template.run, **run},
            description={**template.description, "cases": [case for case, _ in renamed.values()]},
            environment={**board, "packages": json.dumps(dict(sorted(installed.items())))},
            parameters=dict(renamed.values()),
            results=results,
        )


def _varied(case: str, params: Row, chance: random.Random) -> tuple[str, Row]:
    other = {"batch": chance.choice(BATCHES), "kv_len": chance.choice(LENGTHS), "rows": chance.choice(LENGTHS)}
    params = {name: other.get(name, value) for name, value in params.items()}
    words = ",".join(f"{name}={value}" for name, value in params.items())
    return f"{case.partition('[')[0]}[{words}]", params


def _times_ms(what: Callable[[], object], times: int = 7) -> list[float]:
    """The quickest first."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        what()
        taken.append((time.perf_counter() - begin) * 1e3)
    return sorted(taken)


def _median_ms(what: Callable[[], object], times: int = 7) -> float:
    return statistics.median(_times_ms(what, times))


def recorded(folder: Path) -> list[Entry]:
    """The recorded runs' entries, of copies with tables."""
    found = []
    for pattern in TEMPLATES:
        (source,) = RECORDED.glob(pattern)
        copy = Path(shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("tables")))
        parse_all(copy)
        found.append(store.read_entry(copy, "0"))
    return found


def fill(catalogue: Catalogue, templates: list[Entry], count: int) -> float:
    """Put in so many runs. Returns seconds."""
    begin, taken = time.perf_counter(), 0.0
    some: list[Entry] = []
    for each in entries(templates, count):
        some.append(each)
        if len(some) == BATCH:
            begin = time.perf_counter()
            catalogue.add(some)
            taken += time.perf_counter() - begin
            some = []
    catalogue.add(some)
    return taken


def ask(catalogue: Catalogue, words: dict[str, Any]) -> int:
    with catalogue.transaction():
        answer = queries.ask(catalogue, queries.question(**words))
        return len(answer.rows)


def add_ms(catalogue: Catalogue, templates: list[Entry]) -> float:
    """One more run."""
    some = iter(entries(templates, 100, seed=1))

    def add() -> None:
        one = next(some)
        catalogue.add([one._replace(run={**one.run, "stamp": "new"})])

    return _median_ms(add, 21)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--folders", type=int, default=2_000, help="real run folders, for the rebuild")
    parser.add_argument("--url", help="a database of its own, e.g. postgresql+psycopg://…; else SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (archive := Path(folder) / "archive").mkdir()
        templates = recorded(Path(folder) / "recorded")
        catalogue = opened(Archive(archive), options.url)
        catalogue.remove()
        fill(catalogue, templates, 100)
        small = add_ms(catalogue, templates)
        seconds = fill(catalogue, templates, options.runs)
        print(f"{options.runs:,} runs: rows in at {options.runs / seconds:,.0f} runs/s")
        large = add_ms(catalogue, templates)
        print(f"one more run: {small:.1f} ms at 100, {large:.1f} ms at {options.runs:,}: {large / small:.2f}x")
        for words in QUESTIONS:
            taken = _times_ms(partial(ask, catalogue, words))
            print(f"{statistics.median(taken):7.1f} ms (best {taken[0]:.1f})  {ask(catalogue, words):5} rows  {words}")
        rebuild(Path(folder), options)


def rebuild(folder: Path, options: argparse.Namespace) -> None:
    """Make a catalogue of real run folders, and list them."""
    archive = Archive(folder / "real")
    archive.root.mkdir()
    sources = list((folder / "recorded").iterdir())
    for number in range(options.folders):
        source = sources[number % len(sources)]
        run = archive.root / f"{source.name}-{number}"
        for path in (source / "run.json", source / "baseline.jsonl", source / "tables/summary.json"):
            if path.exists():
                (run / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                os.link(path, run / path.relative_to(source))
    catalogue = opened(archive, options.url)
    for _ in range(2):
        begin, before = time.perf_counter(), time.process_time()
        catalogue.refresh(rebuild=True)
        seconds, own = time.perf_counter() - begin, time.process_time() - before
    rates = f"{options.folders / seconds:,.0f} runs/s, {options.folders / own:,.0f} a second of processor time"
    print(f"rebuild of {options.folders:,} folders: {rates}")
    unchanged = _median_ms(catalogue.refresh)
    print(f"nothing new in {options.folders:,} folders: {unchanged:.1f} ms")
    argv = [sys.executable, "-m", "fiprof", "runs", "--artifacts", str(archive.root), "--kernel", "decode"]
    argv += ["--catalog", options.url] if options.url else []
    whole = _median_ms(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    print(f"fiprof runs --kernel decode, the whole command: {whole:.0f} ms")


if __name__ == "__main__":
    main()
