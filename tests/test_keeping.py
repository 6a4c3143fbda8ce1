"""An archive over years: verified, exported, pruned, read by those who may not write it, published."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.model import packing
from fiprof.model.baselines import NamedBaseline, write_baseline
from fiprof.model.manifest import PrunedFile, read_manifest
from fiprof.model.run import Run
from fiprof.orchestrator import parse
from fiprof.orchestrator.parse import parse_all
from fiprof.orchestrator.verify import verify
from tests.conftest import Completed, Fiprof, begun, python_path, ran, run_fiprof
from tests.golden import READERS
from tests.nsys_exports import executed
from tests.recorded_runs import PROGRAMS, RECORDED, copied, invoke, parsed, refusal

PRIVATE = ("withheld", "nsys/trace.nsys-rep")
"""What is to be said of every recorded run: nsys's report stays where it was made."""
SQLITE = "nsys/trace.sqlite"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run with its tables, to be changed, in an archive."""
    made = copied(parsed("graph"), tmp_path / "artifacts")
    actions = read_manifest(made).actions
    for action in actions:  # it was recorded without ncu's report
        action.files[:] = [file for file in action.files if not file.path.endswith(".ncu-rep")]
    write(made, actions=actions, started="2020-02-02T12:00:00+01:00")
    return made


def write(run: Path, **changes: object) -> None:
    """Change a run's manifest."""
    manifest = dataclasses.replace(read_manifest(run), **changes)  # type: ignore[arg-type]
    (run / "run.json").write_bytes(manifest.to_json())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    """A bit of a file, unpacked where it is packed."""
    if not path.exists():
        packing.unpack(path.parents[1])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


TABLE = "tables/kernels.parquet"


@pytest.mark.parametrize(
    ("change", "found", "tables", "kept"),
    [
        (str, [], "whole", None),
        (packing.unpack, [], "whole", None),
        (packing.pack, [], "whole", None),
        (lambda run: shutil.rmtree(run / "tables"), [], "rebuildable", "no_tables"),
        (lambda run: (run / "ncu/raw.csv.xz").unlink(), [("missing", "ncu/raw.csv")], "whole", "damaged"),
        (lambda run: cut(run / "nsys/trace.sqlite.xz"), [("damaged", SQLITE)], "whole", "damaged"),
        (lambda run: flip(run / "ncu/raw.csv"), [("changed", "ncu/raw.csv")], "whole", "damaged"),
        (lambda run: cut(run / TABLE), [("changed", TABLE)], "rebuildable", "no_tables"),
        (lambda run: flip(run / TABLE), [("changed", TABLE)], "rebuildable", "no_tables"),
        (lambda run: (run / TABLE).write_bytes(b""), [("changed", TABLE)], "rebuildable", "no_tables"),
        (lambda run: (run / TABLE).unlink(), [], "rebuildable", "no_tables"),
        (lambda run: write(run, tables=[]), [], "whole", "no_tables"),
        (lambda run: [*map(shutil.rmtree, (run / "tables", run / "nsys"))], [("missing", SQLITE)], "lost", "damaged"),
        (lambda run: (run / "ncu/raw-1.csv").write_text("x"), [("planted", "ncu/raw-1.csv")], "whole", "damaged"),
        (lambda run: (run / "logs/x").symlink_to("/etc/passwd"), [("planted", "logs/x")], "whole", "damaged"),
        (lambda run: (run / "why.txt").write_text("x"), [("extra", "why.txt")], "whole", None),
        (lambda run: cut(run / "run.json"), [("damaged", "run.json")], "none", "damaged"),
    ],
)  # fmt: skip
@pytest.mark.fault("a file of a run is lost, cut, changed, planted or a link", "`verify` names it, exit status 1")
@pytest.mark.fault("a table or a raw file is cut, emptied, gone or has a byte flipped", "`prune` removes nothing")
def test_verify_names_what_is_not_as_made_and_prune_leaves_it(
    change: Callable[[Path], object], found: list[tuple[str, str]], tables: str, kept: str | None, run: Path
) -> None:
    change(run)
    status, printed = invoke("verify", str(run), "--format", "json")
    (row,) = json.loads(printed)["rows"]
    named = [(each["id"], each["file"]) for each in row["files_found"]]
    assert [each for each in named if each != PRIVATE] == found
    assert (row["tables"], status) == (tables, int(not row["intact"]))
    assert row["intact"] == all(kind == "extra" for kind, _ in found)
    before = [*run.glob("ncu/*"), *run.glob("nsys/*")]
    assert pruning(run.parent, "--older-than", "90d") == {run.name: kept}
    assert all(path.exists() for path in before) == bool(kept)
    if kept == "no_tables":
        assert invoke("parse", str(run))[0] == 0 and pruning(run.parent, "--older-than", "90d") == {run.name: None}


def test_a_repository_does_not_say_which_tables_were_made_since(run: Path) -> None:
    write(run, tables=[dataclasses.replace(each, sha256="0") for each in read_manifest(run).tables])
    kept = Path(shutil.copytree(run, run.parent / "recorded" / run.name))
    assert (verify(kept).intact, verify(run).intact) == (True, False)


def test_the_recorded_runs_are_as_made() -> None:
    """What was cut out of them before they were committed, ncu's reports mostly, their manifests call pruned."""
    verified = [verify(path.parent) for path in RECORDED.glob("2*/run.json")]
    assert [each.name for each in verified if not each.intact] == []


def test_verify_says_whether_the_catalogue_agrees(run: Path) -> None:
    words = ("--artifacts", str(run.parent), "--format", "json")
    assert invoke("verify", *words)[0] == 0 and not list(run.parent.glob("catalogue*"))
    invoke("runs", *words)
    invoke("tag", str(run), "release")
    assert invoke("verify", *words)[0] == 0
    executed(run.parent / "catalogue.sqlite", "UPDATE runs SET bytes = 1")
    status, printed = invoke("verify", *words)
    assert (status, json.loads(printed)["warnings"]) == (1, [{"id": "stale", "run": run.name}])
    invoke("index", "--rebuild", "--artifacts", str(run.parent))
    assert invoke("verify", *words)[0] == 0


def kernels_of(out: Path) -> list[str]:
    """The kernels' names of an export, whatever its format."""
    if out.suffix == ".json":
        return [row["kernel"] for row in json.loads(out.read_bytes())["tables"]["kernels"]]
    if out.suffix == ".sqlite":
        with closing(sqlite3.connect(out)) as database:
            assert json.loads(database.execute("SELECT json FROM run").fetchone()[0])["name"]
            return [name for (name,) in database.execute("SELECT kernel FROM kernels ORDER BY start_ns")]
    (file,) = out.glob("kernels.*")
    return list((pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file))["kernel"])


@pytest.mark.parametrize("target", ["parquet", "csv", "json", "sqlite"])
@pytest.mark.fault("an export where something lies already", "it is left; --force replaces an earlier export alone")
def test_an_export_holds_the_tables(target: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("export", str(run / "run.json"), "--to", target)
    status, printed = invoke(*words)
    out = tmp_path / printed.strip()
    expected = Run(run).frame("kernels")["kernel"].tolist()
    assert (status, kernels_of(out), len(expected)) == (0, expected, 4019)
    before = out.stat()
    assert invoke(*words)[0] == 2 and out.stat() == before
    assert invoke(*words, "--force")[0] == 0 and out.stat() != before
    assert {path.name for path in tmp_path.iterdir()} == {"artifacts", out.name}
    # A folder of tables has the manifest too, and is no run, wherever it lies.
    moved = out.rename(run.parent / out.name)
    assert invoke("runs")[1].count("2020-02-02") == 1 and invoke("verify")[1].endswith("1 run is as made.\n")
    assert "is not a run folder" in refusal("show", str(moved)).message or moved.is_file()


@pytest.mark.fault("`export --force` onto somebody's file", "it is left as it is, in every format")
@pytest.mark.parametrize("target", ["parquet", "csv", "json", "sqlite", "perfetto", "zip"])
def test_force_replaces_only_what_export_made(target: str, run: Path, tmp_path: Path) -> None:
    executed(tmp_path / "mine.sqlite", "CREATE TABLE mine (x)")
    (tmp_path / "mine.json").write_text("{}")
    shutil.copytree(run / "tables", tmp_path / "tables")
    (tmp_path / "tables/summary.json").unlink()
    invoke("index", "--artifacts", str(run.parent))
    others = [tmp_path / "mine.sqlite", tmp_path / "mine.json", tmp_path / "tables", run / "run.json", run / "logs"]

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("[!c]*") if path.is_file()}

    before = files()
    for other in (*others, run / "new", run.parent / "new"):
        assert invoke("export", str(run), "--to", target, "--force", "--out", str(other))[0] in (1, 2), other
    assert files() == before
    for _ in range(2):
        assert invoke("export", str(run), "--to", target, "--force", "--out", str(tmp_path / "mine"))[0] == 0


def pruning(archive: Path, *words: str) -> dict[str, str | None]:
    """Run -> why it keeps its raw files; None where they go."""
    status, printed = invoke("prune", "--artifacts", str(archive), "--format", "json", *words)
    assert status == 0
    return {row["name"]: row["kept"] for row in json.loads(printed)["rows"]}


RAW = ["ncu/details.csv", "ncu/raw.csv", SQLITE]


@pytest.mark.fault("`parse`, `report`, `verify` and a replay of a pruned run", "they say that it was pruned, and when")
def test_a_pruned_run_reads_as_before(run: Path, tmp_path: Path) -> None:
    before = {command: invoke(command, str(run)) for command in ("show", "verdict", "timeline")}
    assert pruning(run.parent, "--older-than", "90d", "--dry-run") == {run.name: None}
    assert verify(run).found[0].kind == "withheld" and len(verify(run).found) == 1
    assert pruning(run.parent, "--older-than", "90d") == {run.name: None}
    assert [path.name for name in ("ncu", "nsys") for path in (run / name).iterdir()] == []
    assert {command: invoke(command, str(run)) for command in before} == before
    found = verify(run)
    assert found.intact and found.tables == "whole"
    assert sorted(str(each.values["file"]) for each in found.found if each.kind == "pruned") == RAW
    with pytest.raises(FiprofError, match="were pruned on 2"):
        parse_all(run)
    invoke("report", str(run), "--format", "md", "--out", str(tmp_path))
    text = " ".join((tmp_path / "report.md").read_text().replace("\n> ", "\n").split())
    gone = " ".join(re.findall(r"pruned on [\d-]+: (.*?); what was made", text))
    assert all(name in gone for name in RAW) and "collect --replay" not in text and "ncu-ui" not in text
    assert pruning(run.parent, "--older-than", "90d") == {run.name: "nothing"}
    shutil.rmtree(run / "tables")
    assert verify(run).tables == "lost"


def test_what_a_prune_leaves_alone(run: Path) -> None:
    archive, age = run.parent, ("--older-than", "90d")
    now = clock.now_text()
    for name in ("young", "untabled", "baseline", "damaged", "tagged"):
        shutil.copytree(run, archive / name)
    write(archive / "young", started=now)
    shutil.rmtree(archive / "untabled/tables")
    cut(archive / "damaged/run.json")
    write_baseline(archive, NamedBaseline("main", "baseline", None, now, "me@here"))
    kept = {"young": "young", "untabled": "no_tables", "baseline": "baseline", "damaged": "damaged"}
    invoke("tag", str(archive / "tagged"), "release")
    assert pruning(archive, *age, "--keep-tag", "release", "--dry-run") == {run.name: None, "tagged": "tagged", **kept}
    assert pruning(archive, *age, "--dry-run", "--no-keep-baselines")["baseline"] is None
    archive = archive.rename(archive.with_name("recorded"))
    assert pruning(archive, *age)[run.name] == "recorded"
    (archive / "baselines/main.json").write_text("{")
    assert invoke("prune", "--artifacts", str(archive), *age)[0] == 1


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "full").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.fault("`prune` on a full disk", "it makes room")
def test_prune_on_a_full_disk(run: Path, small_disk: Path) -> None:
    archive = Path(shutil.copytree(run.parent, small_disk / "archive"))
    fill(small_disk)
    assert pruning(archive, "--older-than", "90d") == {run.name: None}
    assert verify(archive / run.name).intact and not (archive / run.name / SQLITE).with_suffix(".sqlite.xz").exists()


@pytest.mark.fault("the disk is full for `export` and `publish`", "one line says so and blames no run; nothing is left")
@pytest.mark.parametrize("words", [("export", "{}", "--to", "sqlite", "--out", "x"), ("publish", "site")])
def test_writers_on_a_full_disk(words: tuple[str, ...], run: Path, small_disk: Path, fiprof: Fiprof) -> None:
    fill(small_disk)
    # So much is enough to begin with, for a journal too.
    os.truncate(small_disk / "full", (small_disk / "full").stat().st_size - (64 << 10))
    done = fiprof(*(word.format(run) for word in words), "--artifacts", str(run.parent), cwd=small_disk)
    assert done.returncode == 1 and "full" in done.stderr and "left out" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in small_disk.rglob("*") if path.name.startswith((".fiprof", "x"))]


@pytest.mark.fault("files may have 20 kB (ulimit -f) when `publish` makes tables", "one line says so and blames no run")
def test_publish_blames_no_run_for_what_cannot_be_written(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "tables")
    words = (sys.executable, "-m", "fiprof", "publish", "site", "--artifacts", str(run.parent))
    env = {**os.environ, "PYTHONPATH": python_path(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = ran("sh", "-c", 'ulimit -f 40; exec "$@"', "sh", *words, cwd=tmp_path, env=env)
    assert done.returncode == 1 and "no file may be as large" in done.stderr and "left out" not in done.stderr


@pytest.mark.fault("an archive without tables, cache and TMPDIR where nothing can be written", "every command reads it")
@pytest.mark.fault("the same on a full disk", "every command reads it")
@pytest.mark.parametrize("full", [False, True], ids=["read-only", "full"])
def test_readers_who_cannot_write(
    full: bool, run: Path, small_disk: Path, fiprof: Fiprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Path(shutil.copytree(run.parent, small_disk / "archive"))
    monkeypatch.setenv("COLUMNS", "120")
    expected = {command: invoke(command, str(run)) for command in READERS[:: 4 if full else 3]}
    place = str(archive / run.name)
    shutil.rmtree(archive / run.name / "tables")
    if full:
        (small_disk / "cache").write_text("")
        fill(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    env = {"XDG_CACHE_HOME": str(small_disk / "cache"), "TMPDIR": str(small_disk), "HOME": str(small_disk)}
    for command, (status, other) in expected.items():
        done = fiprof(command, run.name, "--artifacts", str(archive), env=env, cwd=small_disk)
        said = done.stdout.replace(place, str(run)).split()
        assert (done.returncode, said) == (status, other.split()), (command, done.stderr)
    elsewhere = str(tmp_path / "report")
    asked: tuple[tuple[str, ...], ...] = (
        ("runs",), ("trend", "--metric", "nsys_duration_us"), ("verify",), ("baseline", "list"),
        ("report", run.name, "--out", elsewhere, "--bundle", f"{elsewhere}.zip"),
        ("export", run.name, "--to", "sqlite", "--out", f"{elsewhere}.sqlite"), ("publish", f"{elsewhere}.site"),
        ("top", "--over", str(archive)),
    )  # fmt: skip
    for words in asked[::3] if full else asked:
        done = fiprof(*words, "--artifacts", str(archive), env=env, cwd=small_disk)
        assert (done.returncode, "0 traces" in done.stdout) == (0, False), (words, done.stderr)
    done = fiprof("report", run.name, "--artifacts", str(archive), env=env, cwd=small_disk)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "cannot be read" not in done.stderr, done.stderr


@pytest.mark.fault("a reader without a home folder, as in a container", "every command reads the archive")
def test_a_reader_without_a_home(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(run / "tables")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    for words in (("top", run.name), ("runs",), ("verify",)):
        assert invoke(*words, "--artifacts", str(run.parent))[0] == 0
    assert not (run / "tables").exists() and not (run.parent / "catalogue.sqlite").exists()


def test_a_second_publish_makes_new_pages_alone(tmp_path: Path, fiprof: Fiprof) -> None:
    """Several processes make many pages, this one makes one; both make the same. A damaged run is named, its page none."""
    archive, pages = tmp_path / "artifacts", tmp_path / "site/runs"
    for number in range(17):
        shutil.copytree(parsed("server").path, archive / f"run-{number}")
    (archive / "run-3/run.json").write_text("{")

    def publish(*words: str) -> tuple[str, dict[str, tuple[int, bytes]]]:
        done = fiprof("publish", "site", *words, cwd=tmp_path)
        assert done.returncode == 1 and done.stderr.count("is left out") == done.stderr.count("run-3 is left out") == 1
        return done.stderr, {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in pages.iterdir()}

    said, first = publish()
    assert "16 reports made\n" in said and len(first) == 16
    shutil.copytree(archive / "run-0", archive / "new")
    shutil.rmtree(archive / "run-1")
    os.utime(archive / "run-4/nsys/trace.sqlite.xz")
    assert fiprof("tag", "run-2", "release", cwd=tmp_path).returncode == 0
    said, second = publish("--only-new")
    assert "2 reports made, 14 unchanged\n" in said
    del first["run-1.html"]
    anew = {name: second[name] for name in ("new.html", "run-4.html")}
    assert second == {**first, **anew}
    assert anew["run-4.html"][0] > first["run-4.html"][0] and anew["run-4.html"][1] == first["run-4.html"][1]
    # A folder of others is left alone.
    assert fiprof("publish", ".", cwd=tmp_path).returncode == 2
    assert "release" in (tmp_path / "site/index.html").read_text()
    for number in range(4, 17):
        shutil.rmtree(archive / f"run-{number}")
    _, every = publish("--all")
    assert [*sorted(every)] == ["new.html", "run-0.html", "run-2.html"] and not {*every.values()} & {*second.values()}
    # An archive whose disk is not mounted takes no page away.
    archive.rename(tmp_path / "elsewhere")
    assert "holds no run" in fiprof("publish", "site", cwd=tmp_path, status=2).stderr
    assert {path.name for path in pages.iterdir()} == {*every}


@pytest.mark.fault("a site's index names a run `../x`, `/x`, `x/y` or nothing", "one line; nothing outside is touched")
@pytest.mark.parametrize("name", ["../../victim", "{}/victim", "x/../../../victim", "x/y", "..", "", "x\0", "x\n"])
def test_a_sites_index_names_runs_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "artifacts/run").mkdir(parents=True)
    (tmp_path / "artifacts/run/run.json").write_text("{")
    (tmp_path / "victim.html").write_text("left")
    words = ("publish", str(tmp_path / "site"), "--artifacts", str(tmp_path / "artifacts"))
    assert refusal(*words).message == "1 of 1 runs could not be read"
    index = json.loads((tmp_path / "site/site.json").read_text())
    entry = {"name": name.format(tmp_path), "state": "", "title": "", "status": "complete", "duration_s": 1.0}
    index |= {"runs": [entry | {"gpu": None, "commit": None}]}
    (tmp_path / "site/site.json").write_text(json.dumps(index))
    error = refusal(*words)
    assert (error.exit_code, error.remedy) == (1, "remove the folder and publish it anew")
    assert error.message.startswith(f"{tmp_path}/site/site.json is damaged or not fiprof's: runs[0]")
    assert error.message.isprintable() and (tmp_path / "victim.html").read_text() == "left"


@pytest.mark.fault("an empty note, or one of 130 kB", "refused, exit status 2")
@pytest.mark.parametrize("text", ["", " \n", "x" * 130_000])
def test_notes_have_a_length(text: str, run: Path, fiprof: Fiprof) -> None:
    done = fiprof("note", str(run), "--", text)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2) and len(done.stderr) < 200


@pytest.mark.fault("the catalogue is a later fiprof's, or has a trigger that fails", "`index --rebuild` makes it again")
@pytest.mark.parametrize(
    "sql",
    ["UPDATE alembic_version SET version_num = '9999'",
     "CREATE TRIGGER no BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no'); END"],
)  # fmt: skip
def test_a_catalogue_that_is_rebuilt(sql: str, run: Path, fiprof: Fiprof) -> None:
    words = ("--artifacts", str(run.parent))
    assert fiprof("index", *words).returncode == 0
    executed(run.parent / "catalogue.sqlite", sql)
    invoke("tag", str(run), "new")
    done = fiprof("runs", *words)
    assert done.returncode == 1 and "fiprof index --rebuild" in done.stderr
    assert fiprof("index", "--rebuild", *words).returncode == fiprof("runs", *words).returncode == 0


@pytest.mark.fault("FIPROF_CATALOG is locked at a collect's or tag's end, or for a list", "who has it is said")
@pytest.mark.parametrize("words", [("collect", "--replay", "{light}"), ("tag", "run", "x"), ("runs",)])
def test_a_locked_database_of_several(words: tuple[str, ...], tmp_path: Path, light: Path) -> None:
    shutil.copytree(PROGRAMS["vectors"], tmp_path / "artifacts/run")
    url = f"sqlite:///{tmp_path}/shared.sqlite"
    assert run_fiprof("index", cwd=tmp_path, env={"FIPROF_CATALOG": url}).returncode == 0
    (tmp_path / "artifacts/run/annotations.json").write_text("{}")
    with closing(sqlite3.connect(tmp_path / "shared.sqlite", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        words = tuple(word.format(light=light) for word in words)
        with begun(*words, cwd=tmp_path, env={"FIPROF_CATALOG": url}, stdout=subprocess.DEVNULL) as waiting:
            assert waiting.stderr
            line = next(line for line in waiting.stderr if "waiting" in line)
            database.execute("ROLLBACK")
            rest = waiting.stderr.read()
    assert waiting.returncode == 0 and f"process {os.getpid()}" in line and "up to 60 s" in line, line + rest


@pytest.mark.fault("a prune is ended in the middle", "`verify` agrees; the next prune removes the rest")
def test_an_interrupted_prune(run: Path) -> None:
    write(run, started=clock.now_text(), pruned=[PrunedFile(name, 1, "2026-11-22") for name in RAW])
    (run / "ncu/raw.csv.xz").unlink()
    found = verify(run)
    assert found.intact and {each.kind for each in found.found} == {"withheld", "pruned", "leftover"}
    assert pruning(run.parent, "--older-than", "90d") == {run.name: None}
    assert {each.kind for each in verify(run).found} == {"withheld", "pruned"}


POWERLESS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
"""Root who may do what any user may with others' files."""
OTHER_UID = 4242


@pytest.fixture
def theirs(run: Path) -> Path:
    """A run of another user's, without tables, that may be read and not written."""
    if os.getuid() or subprocess.run([*POWERLESS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("it takes root, who gives files to another user, and setpriv")
    shutil.rmtree(run / "tables")
    (run / "nsys/trace.nsys-rep").write_bytes(b"HOME=/")
    (run / "nsys/trace.nsys-rep").chmod(0o600)
    for path in (run.parent, run, *run.rglob("*")):
        os.chown(path, OTHER_UID, OTHER_UID)
    return run


def as_user(folder: Path, *words: str) -> Completed:
    """fiprof as somebody who does not own the archive; the cache is in the folder."""
    env = {**os.environ, "PYTHONPATH": python_path(), "XDG_CACHE_HOME": str(folder / "cache")}
    return ran(*POWERLESS, sys.executable, "-m", "fiprof", *words, cwd=folder, env=env)


@pytest.mark.fault("a run of another user's that may not be written, two readers", "tables in the reader's cache")
@pytest.mark.fault("a cache that others may write", "it is not used")
def test_a_run_that_only_others_may_write(theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    def listing() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in (theirs, *theirs.rglob("*")))

    before = listing()
    with ThreadPoolExecutor() as pool:
        one, other = pool.map(lambda _: as_user(tmp_path, "show", str(theirs)), range(2))
    assert f"making the tables of {theirs}" in one.stderr
    assert one.stdout == other.stdout == invoke("show", str(parsed("graph").path))[1]
    for words in (("verify", str(theirs)), ("export", str(theirs), "--to", "zip")):
        done = as_user(tmp_path, *words)
        assert (done.returncode, "making" in done.stderr) == (0, False), done.stderr
    (made,) = (tmp_path / "cache/fiprof/tables").iterdir()
    assert made.stat().st_mode & 0o077 == 0o055 and made.parent.stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(tmp_path / f"{theirs.name}.zip") as bundle:
        names = bundle.namelist()
        assert f"{theirs.name}/tables/kernels.csv" in names and not any(name.endswith(".nsys-rep") for name in names)
    assert listing() == before
    # In another state it is another run.
    os.utime(theirs / "ncu/raw.csv.xz")
    assert "making the tables" in as_user(tmp_path, "show", str(theirs)).stderr
    assert len(list(made.parent.iterdir())) == 2
    made.parent.chmod(0o777)
    done = as_user(tmp_path, "show", str(theirs))
    assert done.returncode == 1 and "is not this user's alone" in done.stderr
    theirs.chmod(0o700)
    denied = f"{theirs}/run.json cannot be read: Permission denied"
    assert f"fiprof: {denied}\n" == as_user(tmp_path, "show", str(theirs)).stderr
    done = as_user(tmp_path, "verify", "--artifacts", str(theirs.parent))
    assert done.returncode == 1 and denied in " ".join(done.stdout.split()), done.stderr


def test_a_bounded_cache_has_the_catalogue(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(parse, "CACHE_BYTES", 1)
    assert run.name in invoke("runs", "--artifacts", str(run.parent))[1]
    assert len(list(tmp_path.rglob("*.sqlite"))) == len(list(tmp_path.glob("cache/fiprof/catalogues/*.sqlite"))) == 1
    shutil.rmtree(run / "tables")
    first, other = parse.base(run), run.with_name("other")
    (first / "bytes").write_bytes(bytes(9))
    run.rename(other)
    second = parse.base(other)
    assert first != second and first.exists()  # somebody reads it
    os.utime(first, (0, 0))
    assert parse.base(other) == second and not first.exists()
