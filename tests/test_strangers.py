"""A run or study folder made by a stranger: nothing outside it is written, moved, read or run, and nothing waits."""

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fiprof import files
from fiprof.orchestrator.environment import program_facts
from tests.conftest import Fiprof, begun, fake_programs
from tests.recorded_runs import RUNS, STUDY, copied, on_h100

SECRET = "a private key, and no more"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with tables in an archive, and a folder outside it that is not to be touched."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "id_rsa").write_text(SECRET)
    (tmp_path / "artifacts").mkdir()
    return copied(on_h100("single-purpose"), tmp_path / "artifacts")


def untouched(folder: Path) -> bool:
    """Whether what lies outside is as it was, and nothing of it came in."""
    there = sorted(path.relative_to(folder / "outside").as_posix() for path in (folder / "outside").rglob("*"))
    inside = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    copies = [path for path in inside if path.stat().st_size < 10_000 and SECRET.encode() in path.read_bytes()]
    return there == ["folder", "id_rsa"] and copies == [folder / "outside/id_rsa"]


def link(run: Path, name: str, target: str = "id_rsa") -> None:
    """A link to something outside in place of a run's file or folder."""
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(run.parents[1] / "outside" / target)


def name_file(run: Path, name: str, data: bytes = SECRET.encode()) -> None:
    """Have run.json say that the run made a file."""
    manifest = json.loads((run / "run.json").read_text())
    manifest["actions"][0]["files"] = [{"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
    (run / "run.json").write_text(json.dumps(manifest))


def fifo(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)


ATTACKS: list[tuple[str, Callable[[Path], None], list[str], str]] = [
    # What the folder has, what is asked of it, what is said.
    ("partial", lambda run: link(run, "nsys/.trace.sqlite.partial"), ["pack", "latest"], ""),
    ("report", lambda run: link(run, "report.md"), ["report", "latest", "--format", "md"], "report.md is a link"),
    ("tables", lambda run: link(run, "tables", "folder"), ["parse", "latest"], "tables is a link"),
    ("tables read", lambda run: link(run, "tables", "folder"), ["show", "latest"], "tables is a link"),
    ("a table", lambda run: link(run, "tables/launches.parquet"), ["stalls", "latest"], "launches.parquet is a link"),
    ("a climbing name", lambda run: name_file(run, "../../outside/id_rsa"), ["pack", "latest"], "names no file inside"),
    ("an absolute name", lambda run: name_file(run, f"{run.parents[1]}/outside/id_rsa"), ["pack", "latest"], "names no"),
    ("replayed names", lambda run: name_file(run, "../../outside/id_rsa"), ["collect", "--replay", "latest"], "names no"),
    ("a raw file", lambda run: link(run, "ncu/raw.csv"), ["parse", "latest"], "raw.csv is a link"),
    ("a folder", lambda run: link(run, "ncu", "folder"), ["parse", "latest"], "ncu is a link"),
    ("a replayed file", lambda run: link(run, "ncu/profile.ncu-rep"), ["collect", "--replay", "latest"], "is a link"),
    ("a replayed log", lambda run: link(run, "logs/plain.log"), ["collect", "--replay", "latest"], "is a link"),
    ("bundled timings", lambda run: link(run, "baseline.jsonl"), ["report", "latest", "--format", "md", "--bundle", "x.zip"], "is a link"),
    ("bundled table", lambda run: link(run, "tables/x.parquet"), ["report", "latest", "--format", "md", "--bundle", "x.zip"], "is a link"),
    ("bundled report", lambda run: link(run, "nsys/trace.nsys-rep"), ["report", "latest", "--format", "md", "--bundle", "x.zip"], "is a link"),
    ("a manifest", lambda run: link(run, "run.json"), ["show", "latest"], "is a link"),
    ("a FIFO for a manifest", lambda run: fifo(run, "run.json"), ["show", "latest"], "run.json is a FIFO"),
    ("a FIFO for timings", lambda run: fifo(run, "baseline.jsonl"), ["report", "latest", "--format", "md"], "baseline.jsonl is a FIFO"),
    ("a FIFO for raw data", lambda run: fifo(run, "ncu/raw.csv"), ["parse", "latest"], "raw.csv is a FIFO"),
    ("a catalogue", lambda run: link(run, "../catalogue.sqlite"), ["runs"], "catalogue.sqlite is a link"),
    ("a catalogue's log", lambda run: link(run, "../catalogue.sqlite-wal"), ["runs"], "catalogue.sqlite-wal is a link"),
    ("a summary", lambda run: link(run, "tables/summary.json"), ["runs"], ""),
    ("tags", lambda run: link(run, "annotations.json"), ["tag", "latest", "x"], "annotations.json is a link"),
    ("a FIFO for a table", lambda run: fifo(run, "tables/launches.parquet"), ["stalls", "latest"], "is a FIFO"),
]  # fmt: skip


@pytest.mark.fault("a link in a run folder: a raw file, log, table, run.json, tables/, ncu/", "one line; not followed")
@pytest.mark.fault("a link where a report, a packed file or a temporary is written", "what it leads to is untouched")
@pytest.mark.fault("run.json names files with ../ or an absolute path", "run.json is refused, with the field")
@pytest.mark.fault("a FIFO in place of run.json, a raw file, timings or a table", "one line; nothing waits for it")
@pytest.mark.fault("a bundle or a replay of a run with links", "one line; nothing from outside is in it")
@pytest.mark.parametrize(("attack", "command", "said"), [pytest.param(*each[1:], id=each[0]) for each in ATTACKS])
def test_a_hostile_run(
    attack: Callable[[Path], None], command: list[str], said: str, fiprof: Fiprof, run: Path, tmp_path: Path
) -> None:
    attack(run)
    done = fiprof(*command)
    assert "Traceback" not in done.stderr
    assert said in " ".join(done.stderr.split()) and bool(said) == (done.returncode != 0), done.stderr
    assert untouched(tmp_path)
    if (tmp_path / "x.zip").exists():
        with zipfile.ZipFile(tmp_path / "x.zip") as made:
            assert not [name for name in made.namelist() if SECRET.encode() in made.read(name)]


@pytest.mark.fault("a link in a study folder: .lock, reports/, results/, a run", "one line; nothing outside is written")
@pytest.mark.fault("a study's .lock is a second name of another file", "one line; that file is as it was")
@pytest.mark.parametrize("name", [".lock", "reports", "results", "set-aside", "a-run", ".partial-a-run"])
def test_a_hostile_study(name: str, fiprof: Fiprof, tmp_path: Path) -> None:
    outside = tmp_path / "outside/folder"
    shutil.copytree(STUDY, tmp_path / "study", ignore=shutil.ignore_patterns(name, "reports", "2026*"))
    outside.mkdir(parents=True)
    if name.endswith("a-run"):
        shutil.copytree(RUNS["decode"], outside, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.xz"))
    before = sorted(tmp_path.glob("outside/**/*"))
    (tmp_path / "study" / name).symlink_to(outside if name != ".lock" else tmp_path / "outside/made")
    done = fiprof("study", "flashinfer", "--quick", "--results-only", "--out", "study")
    assert "Traceback" not in done.stderr and sorted(tmp_path.glob("outside/**/*")) == before
    if name not in ("set-aside", ".partial-a-run"):
        assert "is a link" in done.stderr
    if name == ".lock":
        (tmp_path / "study/.lock").unlink()
        (tmp_path / "outside/secret").write_text(SECRET)
        os.link(tmp_path / "outside/secret", tmp_path / "study/.lock")
        done = fiprof("study", "flashinfer", "--quick", "--results-only", "--out", "study")
        assert "has other names besides" in done.stderr and (tmp_path / "outside/secret").read_text() == SECRET


@pytest.mark.fault("a folder that seems to be of a killed run, with links in it", "nothing outside is removed or moved")
@pytest.mark.parametrize("name", ["nsys", "logs", "unfinished", "tables"])
def test_a_run_that_seems_killed(name: str, fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    """The next command finishes such a run: removes what is half made, and moves reports aside."""
    partial = run.rename(run.with_name(f".partial-{run.name}"))
    (partial / "nsys/trace.nsys-rep").write_text("half")
    (partial / "run.json").write_text(json.dumps({**json.loads((partial / "run.json").read_text()), "actions": []}))
    (tmp_path / "outside/.gate").write_text("not a gate")
    (tmp_path / "outside/folder").rmdir()
    link(partial, name, ".")
    fiprof("runs")
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == [".gate", "id_rsa"]


@pytest.mark.fault("64 MiB of zeros in a packed file of 10 kB", "one line; what was unpacked of it is removed")
@pytest.mark.parametrize(
    ("suffix", "compress"), [(".xz", lzma.compress), (".zst", lambda data: pa.compress(data, "zstd"))]
)
def test_unpacking_is_bounded(suffix: str, compress: Callable[[bytes], bytes], fiprof: Fiprof, run: Path) -> None:
    """64 MiB of zeros in 10 kB: against what run.json records, and against what 10 kB can hold of a profiler's file."""
    (run / "ncu/raw.csv.xz").unlink()
    (run / f"ncu/raw.csv{suffix}").write_bytes(compress(bytes(1 << 26)))
    done = fiprof("parse", "latest")
    assert done.returncode == 1 and f"raw.csv{suffix} holds more than its run made of ncu/raw.csv" in done.stderr
    name_file(run, "ncu/raw.csv", bytes(1 << 26))
    done = fiprof("parse", "latest")
    assert f"raw.csv{suffix} holds more than" in done.stderr and not list(run.glob(".fiprof-*"))


@pytest.mark.fault("--bundle /dev/null, a link or a FIFO, as root", "refused: only files are replaced")
def test_only_a_file_is_replaced_by_a_bundle(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/null")
    for target in ("fifo", "link"):
        done = fiprof("report", str(run), "--format", "md", "--bundle", target)
        assert done.returncode == 2 and f"fiprof: {target} is not an earlier export" in done.stderr
    assert (tmp_path / "fifo").is_fifo() and (tmp_path / "link").is_symlink()
    # Not by the command: as root, /dev/null became a zip file.
    with pytest.raises(Exception, match="/dev/null is a device, not a file"):
        files.require_replaceable(Path("/dev/null"))


@pytest.mark.fault("files of 1970 and 2110 go into a bundle", "the nearest time that a zip file can say")
def test_times_that_a_zip_cannot_say(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    os.utime(run / "run.json", (0, 0))
    os.utime(run / "baseline.jsonl", (4_417_977_600, 4_417_977_600))
    fiprof("report", "latest", "--format", "md", "--bundle", "x.zip", status=0)
    with zipfile.ZipFile(tmp_path / "x.zip") as made:
        years = {Path(info.filename).name: info.date_time[0] for info in made.infolist()}
    assert (years["run.json"], years["baseline.jsonl"]) == (1980, 2107)


@pytest.mark.fault("a colon in the archive's path", "a path like any other")
def test_a_colon_in_a_path(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    (tmp_path / "artifacts").rename(tmp_path / "run:1")
    shutil.rmtree(tmp_path / "run:1" / run.name / "tables")
    assert fiprof("show", "latest", "--artifacts", "run:1").returncode == 0
    assert fiprof("pack", f"run:1/{run.name}").returncode == 0
    assert fiprof("report", f"run:1/{run.name}", "--bundle", "a:b.zip", "--out", "c:d").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a:b.zip", "c:d", "outside", "run:1"]


@pytest.mark.fault("two packs of a run at once", "both end well; every file is whole")
def test_two_packs_at_once(run: Path, fiprof: Fiprof) -> None:
    for name in ("ncu/raw.csv", "ncu/details.csv"):
        subprocess.run(["xz", "-d", str(run / f"{name}.xz")], check=True)
    both = [begun("pack", str(run), cwd=run, env={}) for _ in range(2)]
    assert [each.communicate()[1] for each in both if each.wait(120)] == []
    there = sorted(path.name for name in ("nsys", "ncu") for path in (run / name).iterdir())
    assert there == ["details.csv.zst", "raw.csv.zst", "source.csv.xz", "trace.sqlite.xz"]
    # It was recorded without the tools' reports.
    found = json.loads(fiprof("verify", str(run), "--format", "json").stdout)["rows"][0]["files_found"]
    assert {Path(each["file"]).suffix for each in found} == {".nsys-rep", ".ncu-rep"}


@pytest.mark.fault("an environment key `A;touch x;B` in run.json", "run.json is refused, with the field")
def test_what_the_report_prints_for_a_shell(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    action = manifest["actions"][0]
    action |= {"step": "ncu", "argv": ["printf", "%s", "a;b", "$(touch argument)"]}
    for key, said in (("A;touch key;B", "is no name of an environment variable"), ("A", "")):
        action["env"] = {key: "'; touch value; $(touch value)" + "x" * 200}
        (run / "run.json").write_text(json.dumps(manifest))
        done = fiprof("report", "latest", "--format", "md")
        assert said in done.stderr and (done.returncode == 0) == (not said)
    command = next(line for line in (run / "report.md").read_text().splitlines() if line.startswith("printf"))
    pasted = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert pasted.stdout == "a;b$(touch argument)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifacts", "outside"]


def git(folder: Path, *words: str) -> str:
    user = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always", "-c", "core.fsmonitor=")
    return subprocess.run(["git", *user, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.fault("a checkout whose included configuration names a monitor and filters to git", "none of them runs")
@pytest.mark.fault("a checkout with a submodule that names a monitor, or a conditional include", "none of them runs")
@pytest.mark.fault("a partial clone that lacks an object, whose remote names a program", "git fetches nothing")
@pytest.mark.parametrize("plant", ["config", "include.path", "includeIf.onbranch:*.path", "submodule", "promisor"])
def test_git_runs_nothing_of_a_checkout(plant: str, tmp_path: Path) -> None:
    evil, ran = tmp_path / "evil", tmp_path / "ran"
    evil.write_text(f"#!/bin/sh\necho ran >> {ran}\n")
    evil.chmod(0o755)
    for folder in (tmp_path / "inner", checkout := tmp_path / "outer"):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "file").write_text("one")
        (folder / "other").write_text("one")
        (folder / ".gitattributes").write_text("file filter=a\nother filter=a=b\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "x")
    filters = (f'[filter "{name}"]\n {how} = "{evil}"\n' for name, how in (("a", "process"), ("a=b", "clean")))
    planted = f'[core]\n fsmonitor = "{evil}"\n{"".join(filters)}'
    config = checkout / ".git/config"
    if plant == "submodule":
        git(checkout, "submodule", "-q", "add", str(tmp_path / "inner"), "sub")
        git(checkout, "commit", "-qam", "sub")
        config = checkout / ".git/modules/sub/config"
        (checkout / "sub/file").write_text("two")
    elif plant == "promisor":
        planted = "[core]\n repositoryformatversion = 1\n[extensions]\n partialClone = evil\n"
        planted += f'[remote "evil"]\n url = .\n promisor = true\n uploadpack = "{evil}"\n[protocol]\n allow = always\n'
        tree = git(checkout, "rev-parse", "HEAD^{tree}")
        (checkout / ".git/objects" / tree[:2] / tree[2:]).unlink()
    elif plant != "config":
        git(checkout, "config", plant, str(tmp_path / "included"))
        config = tmp_path / "included"
    with open(config, "a") as file:
        file.write(planted)
    for name in ("file", "other"):
        (checkout / name).write_text("two")
    if plant != "submodule":
        subprocess.run(["git", "status"], cwd=checkout, capture_output=True, check=False)
        assert ran.exists(), "git itself runs it"
        ran.unlink()
    assert len((program_facts([str(checkout / "file")])["git"] or "").removesuffix("-dirty")) == 12 and not ran.exists()


@pytest.mark.fault("json.py and torch.py where fiprof is started", "none of them runs")
@pytest.mark.parametrize("command", [["env"], ["collect", "--kernel", "rmsnorm"]])
def test_code_in_the_folder_does_not_run(command: list[str], fiprof: Fiprof, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("json", "torch", "click", "nvtx", "msgspec", "argparse", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise ImportError\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / "x-1.dist-info").mkdir()
    (tmp_path / "x-1.dist-info/entry_points.txt").write_text("[fiprof.commands]\nevil = evil:command\n")
    done = fiprof(*command, env={**fake_programs(tmp_path, RUNS["all"]), "FIPROF_PYTHON": sys.executable})
    assert done.stdout and not ran.exists(), ran.read_text()
    if command[0] == "collect":
        (made,) = (tmp_path / "artifacts").iterdir()
        commit = json.loads((made / "run.json").read_text())["environment"]["git"]
        assert len(commit.removesuffix("-dirty")) == len("0123456789ab")
