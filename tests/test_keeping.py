"""An archive over years: verified, exported, pruned, read by those who may not write it, published."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fiprof.model import packing
from fiprof.model.manifest import read_manifest
from fiprof.model.run import Run
from fiprof.orchestrator.verify import verify
from tests.recorded_runs import invoke, profiled

PRIVATE = ("withheld", "nsys/trace.nsys-rep")
"""What is to be said of every recorded run: nsys's report stays where it was made."""
SQLITE = "nsys/trace.sqlite"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run with its tables, to be changed, in an archive."""
    recorded = profiled("graph").path
    made = Path(shutil.copytree(recorded, tmp_path / "artifacts" / recorded.name))
    # It was recorded without ncu's report.
    manifest = read_manifest(made)
    actions = [
        dataclasses.replace(action, files=[file for file in action.files if not file.path.endswith(".ncu-rep")])
        for action in manifest.actions
    ]
    (made / "run.json").write_bytes(dataclasses.replace(manifest, actions=actions).to_json())
    return made


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def lose(run: Path) -> None:
    """Neither tables nor what they are made of."""
    shutil.rmtree(run / "tables")
    (run / "nsys/trace.sqlite.xz").unlink()


def flip(run: Path) -> None:
    """A plain file whose content has changed."""
    packing.unpack(run)
    with (run / "ncu/raw.csv").open("r+b") as file:
        file.write(b"#")


@pytest.mark.parametrize(
    ("change", "found", "tables"),
    [
        (str, [], "whole"),
        (packing.unpack, [], "whole"),
        (packing.pack, [], "whole"),
        (lambda run: shutil.rmtree(run / "tables"), [], "rebuildable"),
        (lambda run: (run / "ncu/raw.csv.xz").unlink(), [("missing", "ncu/raw.csv")], "whole"),
        (lambda run: cut(run / "nsys/trace.sqlite.xz"), [("damaged", SQLITE)], "whole"),
        (flip, [("changed", "ncu/raw.csv")], "whole"),
        (lambda run: cut(run / "tables/kernels.parquet"), [("damaged", "tables/kernels.parquet")], "rebuildable"),
        (lose, [("missing", SQLITE)], "lost"),
        (lambda run: (run / "ncu/raw-1.csv").write_text("x"), [("planted", "ncu/raw-1.csv")], "whole"),
        (lambda run: (run / "logs/x").symlink_to("/etc/passwd"), [("planted", "logs/x")], "whole"),
        (lambda run: (run / "why.txt").write_text("x"), [("extra", "why.txt")], "whole"),
        (lambda run: cut(run / "run.json"), [("damaged", "run.json")], "none"),
    ],
)  # fmt: skip
@pytest.mark.fault("a file of a run is lost, cut, changed, planted or a link", "`verify` names it, exit status 1")
def test_verify_names_what_is_not_as_made(
    change: Callable[[Path], object], found: list[tuple[str, str]], tables: str, run: Path
) -> None:
    change(run)
    status, printed = invoke("verify", str(run), "--format", "json")
    (row,) = json.loads(printed)["rows"]
    named = [(each["id"], each["file"]) for each in row["files_found"]]
    assert [each for each in named if each != PRIVATE] == found
    assert (row["tables"], status) == (tables, int(not row["intact"]))
    assert row["intact"] == all(kind == "extra" for kind, _ in found)


def test_verify_of_an_archive(run: Path, tmp_path: Path) -> None:
    """Every run of it, in order of time."""
    shutil.copytree(run, tmp_path / "artifacts/20261122-000000-other")
    os.unlink(run / "ncu/raw.csv.xz")
    status, printed = invoke("verify", "--artifacts", str(tmp_path / "artifacts"), "--format", "csv")
    assert status == 1
    assert [line.split(",")[::2][:2] for line in printed.splitlines()[1:]] == [
        ["20261122-000000-other", "true"],
        [run.name, "false"],
    ]
    assert [each.intact for each in map(verify, sorted((tmp_path / "artifacts").iterdir()))] == [True, False]


# Exports


def kernels_of(out: Path) -> list[str]:
    """The kernels' names of an export, whatever its format."""
    if out.suffix == ".json":
        return [row["kernel"] for row in json.loads(out.read_bytes())["tables"]["kernels"]]
    if out.suffix == ".sqlite":
        with closing(sqlite3.connect(out)) as database:
            assert json.loads(database.execute("SELECT json FROM run").fetchone()[0])["name"]
            return [name for (name,) in database.execute("SELECT kernel FROM kernels ORDER BY start_ns")]
    if out.suffix == ".zip":
        with zipfile.ZipFile(out) as bundle, bundle.open(f"{out.stem}/tables/kernels.parquet") as file:
            names: list[str] = pq.read_table(io.BytesIO(file.read()))["kernel"].to_pylist()
            return names
    if (out / "kernels.csv").exists():
        with (out / "kernels.csv").open() as text:
            return [row["kernel"] for row in csv.DictReader(text)]
    found: list[str] = pq.read_table(out / "kernels.parquet")["kernel"].to_pylist()
    return found


@pytest.mark.parametrize("target", ["parquet", "csv", "json", "sqlite", "zip"])
@pytest.mark.fault("an export where something lies already", "it is left; --force replaces an earlier export alone")
def test_an_export_holds_the_tables(target: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("export", str(run), "--to", target)
    status, printed = invoke(*words)
    out = tmp_path / printed.strip()
    expected = Run(run).frame("kernels")["kernel"].tolist()
    assert (status, kernels_of(out), len(expected)) == (0, expected, 4019)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/text").write_text("mine")
    before = out.stat()
    assert invoke(*words)[0] == 2 and out.stat() == before
    assert invoke(*words, "--force")[0] == 0 and out.stat() != before
    assert invoke(*words, "--force", "--out", "mine")[0] == 1
    assert (tmp_path / "mine/text").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["artifacts", "mine", out.name])
