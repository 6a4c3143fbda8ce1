"""The catalogue: rows of the recorded runs, questions, and that it agrees with the run folders whatever happened; trends: where
the level of a quantity changed, over runs made from a recorded one."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiprof
from fiprof.analysis.trend import levels
from fiprof.errors import FiprofError
from fiprof.model import json_file
from fiprof.model.catalogue import store
from fiprof.model.catalogue.summary import VALUES, summarize
from fiprof.orchestrator import index
from fiprof.orchestrator.run_folder import Archive
from tests.recorded_runs import PROGRAMS, RUNS, invoke, parsed
from tests.recorded_runs import rows as answers

NAMES = ("all", "decode", "prefill-decode-rope")
ALL, DECODE, PREFILL = (RUNS[name].name for name in NAMES)
VECTORS = PROGRAMS["vectors"].name


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of recorded runs, to be changed."""
    leave = shutil.ignore_patterns("ncu", "nsys", "logs", "*metrics.parquet", "hotspots.parquet")
    for run in (*map(parsed, NAMES), parsed("vectors")):
        shutil.copytree(run.path, tmp_path / "artifacts" / run.path.name, ignore=leave)
    return tmp_path / "artifacts"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either database; FIPROF_CATALOG names the one of several."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/own"
    found: str = request.getfixturevalue("postgresql_url")
    monkeypatch.setenv("FIPROF_CATALOG", found)
    return found


def rows(archive: Path, *words: str) -> list[dict[str, Any]]:
    return answers("runs", "--artifacts", archive, *words)


def names(archive: Path, *words: str) -> list[str]:
    return [row["name"] for row in rows(archive, *words)]


@pytest.mark.usefixtures("url")
def test_questions(archive: Path) -> None:
    """The figures are those of show and report of the same runs."""
    assert names(archive) == [ALL, DECODE, PREFILL, VECTORS]
    found = rows(archive, "--kernel", "decode", "--where", "batch=128", "--gpu", "h200", "--metric", "dram_share",
                 "--metric", "duration", "--sort", "-dram_share")  # fmt: skip
    assert [(row["name"], row["kernel"], row["dram_share"], row["case_plain_us"]) for row in found] == [
        (DECODE, "BatchPrefillWithPagedKVCacheKernel", pytest.approx(0.885996), pytest.approx(252.432)),
        (DECODE, "BatchDecodeWithPagedKVCacheKernel", pytest.approx(0.667026), pytest.approx(332.096)),
    ]
    asked = {
        ("--kernel", "rope"): [ALL, PREFILL],
        ("--kernel", "VariableLengthMerge"): [ALL, DECODE, PREFILL],
        ("--kernel", "batch=1"): [DECODE],
        ("--kernel", "^Batch.*Decode"): [ALL, DECODE, PREFILL],
        ("--where", "batch>=64", "--where", "tensor_cores=true"): [DECODE],
        ("--where", "backend!=fa2"): [ALL, PREFILL],
        ("--where", "dram_share>0.88"): [DECODE],
        ("--where", "dram_share>0.88", "--where", "case_plain_us<100"): [],
        ("--where", "torch=2.11.0", "--where", "driver=580.159.04", "--limit", "2"): [DECODE, PREFILL],
        ("--gpu", "GPU-0200582c", "--sort", "-name"): [PREFILL, DECODE, ALL],
        ("--gpu", "A100"): [],
        ("--since", "2026-11-22"): [VECTORS],
        ("--status", "failed"): [],
        ("--metric", "program_us", "--limit", "1"): [VECTORS],
    }
    assert {words: names(archive, *words) for words in asked} == asked
    frame = fiprof.runs("decode", where="batch=8", metric=["duration"], artifacts=str(archive))
    assert frame["case_plain_us"].tolist() == pytest.approx([30.704, 29.792], abs=1e-3)


@pytest.mark.fault("one of several run.json damaged", "`runs` lists the others and names the damaged one in a line")
@pytest.mark.usefixtures("url")
def test_folders_are_the_truth(archive: Path) -> None:
    """New, removed, changed and damaged runs are seen; tags and notes outlive the database."""
    assert invoke("tag", str(archive / ALL), "release", "fa3")[0] == 0
    assert invoke("tag", str(archive / ALL), "fa3", "--remove")[0] == 0
    assert invoke("note", str(archive / ALL), "before the split")[0] == 0
    assert names(archive, "--tag", "release") == [ALL]
    shutil.copytree(archive / ALL, archive / "20261123-000000-again")
    shutil.rmtree(archive / PREFILL)
    (archive / VECTORS / "run.json").write_bytes(b"[" * 100_000)
    found = {row["name"]: row for row in rows(archive)}
    assert found[VECTORS]["reason"].startswith(f"{archive / VECTORS}/run.json is damaged or not fiprof's: ")
    assert [(name, row["status"]) for name, row in found.items()] == [
        (ALL, "complete"), ("20261123-000000-again", "complete"), (DECODE, "complete"), (VECTORS, "damaged"),
    ]  # fmt: skip
    for path in archive.glob("catalogue.sqlite*"):
        path.unlink()
    again = {row["name"]: row for row in rows(archive)}
    assert again == found and [note["text"] for note in again[ALL]["notes"]] == ["before the split"]
    assert invoke("index", "--rebuild", "--artifacts", str(archive))[1].endswith("4 read, 0 removed, 4 runs in all\n")
    assert rows(archive) == list(again.values())


def test_a_copied_damaged_or_forged_catalogue_is_made_again(archive: Path, tmp_path: Path) -> None:
    assert len(names(archive)) == 4
    with sqlite3.connect(archive / index.FILE_NAME) as forged:
        forged.execute("UPDATE runs SET git = 'forged'")
    copy = shutil.copytree(archive, tmp_path / "copy", copy_function=shutil.copy2)
    assert {row["git"] for row in rows(copy)} == {None, parsed("vectors").environment("git")}
    for path in archive.glob("catalogue.sqlite*"):
        path.write_bytes(b"no database at all " * 999)
    assert len(names(archive)) == 4


@pytest.mark.fault("names, parameters, tags and user in run.json are SQL, NULs, control characters", "shown as text")
@pytest.mark.usefixtures("url")
def test_hostile_strings_are_data(archive: Path) -> None:
    evil = "'; DROP TABLE runs; --\0%_\x1b[31m" + "x" * 5000
    manifest = json.loads((archive / ALL / "run.json").read_text())
    manifest["environment"] |= {"host": {"user": evil, "name": evil}, "git": evil, "packages": {evil: evil}}
    manifest["cases"].append({**manifest["cases"][0], "id": evil, "workload": evil, "params": {evil: evil, "n": 1e999}})
    manifest |= {"started": evil, "fiprof": evil, "status": "failed", "reason": evil}
    (archive / ALL / "run.json").write_text(json.dumps(manifest).replace("Infinity", "1e308"))
    (archive / ALL / "annotations.json").write_text(json.dumps({"tags": [evil, "fine"], "notes": []}))
    found = {row["name"]: row for row in rows(archive)}
    assert len(found) == 4 and "DROP TABLE" in found[ALL]["user"] and "\0" not in found[ALL]["user"]
    assert names(archive, "--tag", "fine", "--kernel", "DROP TABLE runs") == [ALL]
    assert names(archive, "--kernel", "%") == [ALL]


def test_older_tables_are_made_again_and_new_quantities_get_columns(url: str) -> None:
    catalogue = store.Catalogue(url)
    with catalogue.transaction(writes=True):
        old = "alembic_version (version_num TEXT)", "runs (id INTEGER)", "cases (id INTEGER)", "mine (x FLOAT)"
        for table in old:
            catalogue.execute(f"CREATE TABLE {table}")
        catalogue.execute("INSERT INTO alembic_version VALUES ('0003')")
        catalogue.execute("INSERT INTO mine VALUES (1)")
    catalogue.migrate()
    assert catalogue.rows("SELECT * FROM mine") == [{"x": 1}]
    with pytest.raises(FiprofError), catalogue.transaction():
        catalogue.execute("SELECT * FROM cases")
    catalogue.execute(f"ALTER TABLE measured DROP COLUMN {VALUES[5]}")
    catalogue.migrate()
    wanted = ", ".join(VALUES)
    assert catalogue.rows(f"SELECT {wanted} FROM measured") == catalogue.rows('SELECT id, "user" FROM runs') == []
    # A later fiprof's, and another program's.
    for number in ("9999", "0002ab91c3de"):
        catalogue.execute(f"UPDATE alembic_version SET version_num = '{number}'")
        with pytest.raises(FiprofError, match=f"{number}, which this fiprof does not know") as refused:
            catalogue.migrate()
        assert ("--rebuild" in str(refused.value.remedy)) == url.startswith("sqlite")
    assert catalogue.rows("SELECT * FROM measured") == []


@pytest.mark.fault("eight processes index the same runs at once", "each run once, in SQLite and in PostgreSQL")
@pytest.mark.usefixtures("url")
def test_eight_at_once(archive: Path) -> None:
    for number in range(40):
        shutil.copytree(archive / VECTORS, archive / f"20261201-0000{number:02}-more")
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(8)

    def refresh() -> None:
        ready.wait()
        os._exit(index.opened(Archive(archive)).refresh().values["runs"])

    processes = [fork.Process(target=refresh) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [44] * 8
    assert len(names(archive)) == len({*names(archive)}) == 44
    found = index.opened(Archive(archive))
    assert found.refresh().values["read"] == 0
    tables = ("runs", "measured", "archives", "environments")
    counts = [found.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables]
    assert counts == [44, 11 + 21 + 13 + 41 * 3, 1, 2]


@pytest.mark.usefixtures("url")
@pytest.mark.fault("an index is killed at random moments", "the next command sees every run as it is, once")
def test_killed(archive: Path) -> None:
    for number in range(60):
        shutil.copytree(archive / VECTORS, archive / f"20261201-0000{number:02}-more")
    expected = rows(archive)
    chance = random.Random(0)
    for _ in range(6):
        child = os.fork()
        if not child:
            while True:
                index.opened(Archive(archive)).refresh(rebuild=True)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert rows(archive) == expected


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run a day of the recorded decode: from the 13th 5 % slower with tensor cores, with another FlashInfer; one run in
    which everything took 20 % longer; three of them on another board."""
    days = tmp_path_factory.mktemp("trend")
    recorded = json.loads((RUNS["decode"] / "run.json").read_text())
    summary = json.loads(json_file.encode(summarize(parsed("decode"))))
    chance = random.Random(0)
    for day in range(24):
        began = datetime(2026, 10, 1, tzinfo=UTC) + timedelta(days=day)
        folder = days / f"{began:%Y%m%d-%H%M%S}-decode"
        (folder / "tables").mkdir(parents=True)
        environment = json.loads(json.dumps(recorded["environment"]))
        environment["git"] = f"{day // 4:012x}"
        environment["gpu"]["uuid"] = "11111111-1" if day in (3, 4, 17) else environment["gpu"]["uuid"]
        environment["packages"]["flashinfer-python"] = "0.6.14" if day >= 13 else "0.6.13"
        manifest = {**recorded, "name": folder.name, "started": began.isoformat(), "environment": environment}
        (folder / "run.json").write_text(json.dumps(manifest))
        results = []
        for each in summary["results"]:
            slower = 1.05 if day >= 13 and "tensor_cores=true" in each["case"] else 1.2 if day == 8 else 1.0
            factor = slower * chance.lognormvariate(0, 0.003)
            results.append({**each, "values": {key: value * factor for key, value in each["values"].items()}})
        (folder / "tables/summary.json").write_text(json.dumps({**summary, "results": results}))
    return days


def test_a_change_is_marked_with_what_else_changed(days: Path, tmp_path: Path) -> None:
    words = ("trend", "--artifacts", str(days), "--where", "batch=128")
    changed = [row for row in answers(*words) if row["change_p"] is not None]
    assert [(row["name"], row["level"], row["change_ratio"], row["change_p"]) for row in changed] == [
        ("20261014-000000-decode", pytest.approx(265.05, abs=1), pytest.approx(0.05, abs=0.004), 0.008)
    ]
    assert "tensor_cores=true" in changed[0]["case"]
    status, text = invoke(*words, "--out", str(tmp_path / "trend.html"))
    assert status == 0
    assert "flashinfer-python 0.6.13 → 0.6.14" in text and "commit" not in text.split("Changes")[1].split("→")[0]
    calm = invoke(*words, "--where", "tensor_cores=false")[1]
    assert "by chance: part" in text and "by chance" not in calm and "No change found" in calm
    page = (tmp_path / "trend.html").read_text()
    assert "flashinfer-python 0.6.13 → 0.6.14" in page and '"x": "2026-10-14T00:00:00' in page.replace('":"', '": "')


def test_boards_and_ways_of_measuring_have_lines_of_their_own(days: Path) -> None:
    path = days / "20261002-000000-decode/run.json"
    for metric, lines in (("duration", 2), ("dram_share", 3)):
        words = ("--where", "batch=128", "--where", "tensor_cores=false", "--metric", metric)
        found = answers("trend", "--artifacts", days, *words)
        of = [row for row in found if row["kernel"] in (None, "BatchDecodeWithPagedKVCacheKernel")]
        assert (len(of), len({(row["uuid"], row["conditions"]) for row in of})) == (24, lines)
        path.write_text(path.read_text().replace('"clock_control": "none"', '"clock_control": "base"'))


def found(values: Iterable[float]) -> list[int]:
    return [place for place, *_ in levels(list(values))]


@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from((6, 12, 40)))
def test_noise_is_seldom_a_change(seed: int, count: int) -> None:
    """Of four lines at most one."""
    chance = np.random.default_rng(seed)
    assert sum(bool(found(np.exp(chance.normal(0, 0.02, count)))) for _ in range(4)) <= 1


@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(((12, 6), (20, 16), (60, 57))), st.sampled_from((0.9, 1.1)))
def test_a_tenth_is_found_where_it_is(seed: int, place: tuple[int, int], factor: float) -> None:
    count, change = place
    values = np.exp(np.random.default_rng(seed).normal(0, 0.002, count))
    values[change:] *= factor
    assert found(values) == [change] and found(values[: change + 1]) == []


def test_lines_that_agree_to_the_digit_or_are_short() -> None:
    assert found([5.0] * 10 + [6.0] * 10) == [10]
    assert found([5.0] * 20) == found([1.0, 2.0]) == found([]) == []
