"""What is in the environment of a collect stays there: it is in no file of the run but the tool's own, which is private."""

import contextlib
import json
import lzma
import shutil
import sqlite3
import subprocess
import zipfile
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.model.redaction import mask, mask_words, secrets
from fiprof.parsers.nsys_scrub import DROPPED, EXPORTED_BY, scrub
from tests.conftest import REPOSITORY, Env, Fiprof
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, PYTHON_THREADS, SCHEMA_3_0, altered, parsed, query
from tests.recorded_runs import RUNS

HUSH = {
    "HF_TOKEN": "hf-SEKRET-1", "MYSQL_PWD": "SEKRET 2 with blanks", "OPENAI_KEY": "SEKRET-3", "GH_PAT": "SEKRET-4",
    "DATABASE_URL": "postgres://me:SEKRET-5@db/x", "https_proxy": "http://me:SEKRET-6@proxy:3128", "JWT": "SEKRET-7",
    "PGPASSWORD": "SEKRETeight", "SOMETHING": "SEKRET0123456789abcdef",
}  # fmt: skip


def holding(folder: Path, text: str = "SEKRET") -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    plain = {path.relative_to(folder).as_posix().removesuffix(".zst") for path in files}
    return sorted(name for name in plain if text.encode() in recorded_bytes(folder / name))


@pytest.mark.fault("secrets in the environment of a collect", "in no file of the run but nsys's own, which is private")
def test_a_run_holds_no_secret(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    """The profiled programs have their whole environment; nsys writes it down, and a failing one says some of it."""
    said = tmp_path / "programs/SEKRET-3"
    said.write_text(Path(fakes["FIPROF_PYTHON"]).read_text().replace("exec", 'echo "token=$HF_TOKEN" >&2\nexec'))
    said.chmod(0o755)
    done = fiprof("collect", "--kernel", "all", "--python", str(said), env={**fakes, **HUSH})
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "artifacts").iterdir()
    assert holding(run) == ["nsys/trace.nsys-rep"]
    assert "token=***" in (run / "logs/plain.log").read_text()
    assert holding(run, "HOME=/") == ["nsys/trace.nsys-rep"]
    assert (run / "nsys/trace.nsys-rep").stat().st_mode & 0o777 == 0o600
    manifest = json.loads((run / "run.json").read_text())
    private = {file["path"]: file["private"] for action in manifest["actions"] for file in action["files"]}
    assert [path for path, marked in private.items() if marked] == ["nsys/trace.nsys-rep"]
    assert all(
        str(said).replace("SEKRET-3", "***") in action["argv"]
        for action in manifest["actions"]
        if action["step"] in ("plain", "nsys", "ncu")
    )

    for options, there in (((), False), (("--with-private",), True)):
        assert fiprof("report", "latest", "--bundle", "send.zip", *options).returncode == 0
        with zipfile.ZipFile(tmp_path / "send.zip") as bundle:
            assert (f"{run.name}/nsys/trace.nsys-rep" in bundle.namelist()) == there
            assert f"{run.name}/ncu/profile.ncu-rep" in bundle.namelist()
            read = {name: bundle.read(name) for name in bundle.namelist()}
        assert any(b"SEKRET" in data for data in read.values()) == there
        assert (b"--with-private" in read["guide.md"]) != there
    # Packed, a file is as private as before.
    assert fiprof("pack", "latest", "--undo").returncode == 0
    (run / "ncu/raw.csv").chmod(0o600)
    assert fiprof("pack", "latest").returncode == 0
    assert (run / "ncu/raw.csv.zst").stat().st_mode & 0o777 == 0o600


@pytest.mark.fault("a program prints a token as it fails", "the message, run.json and its log have ***")
def test_last_words_are_masked(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    said = Path(fakes["FIPROF_PYTHON"])
    said.write_text("#!/bin/sh\necho cannot log in with $HF_TOKEN at $DATABASE_URL\nexit 3\n")
    done = fiprof("collect", "--kernel", "rmsnorm", env={**fakes, **HUSH})
    assert done.returncode == 1
    assert done.stderr.count("cannot log in with *** at ***") == 1 and "SEKRET" not in done.stdout + done.stderr
    assert holding(tmp_path / "artifacts") == []


@pytest.mark.fault("fiprof is killed when a program has printed a token", "the next command masks the log")
def test_the_log_of_a_killed_run_is_masked(fiprof: Fiprof, tmp_path: Path) -> None:
    run = tmp_path / "artifacts" / RUNS["decode"].name
    partial = Path(shutil.copytree(RUNS["decode"], run.with_name(f".partial-{run.name}")))
    (partial / "logs").mkdir(exist_ok=True)
    (partial / "logs/plain.log").write_text("login with api_key=0123456789 as SEKRET-1")
    assert fiprof("runs", env={"HF_TOKEN": "SEKRET-1"}).returncode == 0
    assert (run / "logs/plain.log").read_text() == "login with api_key=*** as ***"


@pytest.mark.parametrize("export", [FIVE_KERNELS, CUDA_GRAPHS, PYTHON_THREADS, SCHEMA_3_0])
def test_an_export_is_scrubbed_and_read_as_before(export: Path, tmp_path: Path) -> None:
    """Environments of this process and of others, in tables, strings, a message and a range's name."""
    block = "\\0".join(["HOME=/home/somebody", "THEIR_KEY=SEKRET-9"])
    sqlite = altered(
        tmp_path,
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV_V2 (name TEXT, value TEXT)",
        "INSERT INTO TARGET_INFO_SYSTEM_ENV_V2 VALUES ('DeviceEnvironment', 'HOME=/home/somebody;KEY=SEKRET-9')",
        "CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER)",
        "INSERT INTO ThreadNames VALUES (900001, 1)",
        f"INSERT INTO StringIds VALUES (900001, 'somebody-elses-SEKRET'), (900002, '{block}')",
        # Long rows make SQLite split pages; copies stay between the rows.
        *(f"INSERT INTO StringIds VALUES ({910000 + i}, 'HOME=/home/somebody{'SEKRET-9' * 40}')" for i in range(99)),
        "INSERT INTO StringIds VALUES (900003, 'step lr=0.1 SEKRET-1')",
        "CREATE TRIGGER hostile BEFORE DELETE ON StringIds BEGIN SELECT RAISE(ABORT, 'no'); END",
        source=export,
    )
    before = sqlite.stat().st_size
    scrub(sqlite, ("SEKRET-1",))
    left = sqlite.read_bytes()
    assert b"SEKRET" not in left and b"/home/somebody" not in left
    assert query(sqlite, "PRAGMA integrity_check") == [("ok",)]
    assert sqlite.stat().st_size <= before + (1 << 14)
    assert parsed(sqlite, tmp_path / "scrubbed")[1] == parsed(export, tmp_path / "plain")[1]
    # Once more changes nothing.
    scrub(sqlite, ("SEKRET-1",))
    assert parsed(sqlite, tmp_path / "again")[1] == parsed(export, tmp_path / "plain")[1]


def test_a_string_in_use_stays_without_its_secret(tmp_path: Path) -> None:
    """A range's name that looks like an environment, and one with a secret in it."""
    sqlite = altered(
        tmp_path,
        "INSERT INTO StringIds VALUES (900003, 'LR=0.1'), (900004, 'login SEKRET-1')",
        "UPDATE NVTX_EVENTS SET text = NULL, textId = 900003 WHERE rowid % 2 AND eventType = 59",
        "UPDATE NVTX_EVENTS SET text = 'as SEKRET-1', textId = NULL WHERE rowid % 3 = 0 AND eventType = 59",
    )
    scrub(sqlite, ("SEKRET-1",))
    assert b"SEKRET" not in sqlite.read_bytes()
    ranges = {row["name"] for row in parsed(sqlite, tmp_path / "tables")[1]["ranges"]}
    assert {"LR=0.1", "as ***"} <= ranges


@pytest.mark.fault("an export that cannot be cleared of the environment", "the step fails in one line; it is not kept")
def test_an_export_that_cannot_be_scrubbed(tmp_path: Path) -> None:
    (tmp_path / "trace.sqlite").write_bytes(b"SQLite format 3\\0 and no more" * 99)
    with pytest.raises(FiprofError, match="cannot be cleared of the environment"):
        scrub(tmp_path / "trace.sqlite", ())


def test_what_is_a_secret() -> None:
    public = {
        "PATH": "/usr/bin:/bin", "PWD": "/home/me", "TOKENIZERS_PARALLELISM": "false", "LANG": "en_US.UTF-8",
        "CONDA_DEFAULT_ENV": "flashinfer", "CUDA_VISIBLE_DEVICES": "0", "MAX_TOKENS": "16384", "KEY": "short",
        "CUDA_HOME": "/usr/local/cuda-12.8-with-digits", "HOME": "/home/me",
    }  # fmt: skip
    assert secrets(public) == ()
    assert set(secrets(HUSH)) == set(HUSH.values())
    assert mask_words(
        ["run", "--api-key", "abcdef", "--token=abcdef", "--tokens=16384", "https://me:pass@host/x", "a-SEKRET-3-b"],
        ("SEKRET-3",),
    ) == ["run", "--api-key", "***", "--token=***", "--tokens=16384", "https://***@host/x", "a-***-b"]
    assert (
        mask("Authorization: Bearer eyJhbGciOi.eyJzdWIi.c2ln; hf_abcdefghijklmnop", ())
        == "Authorization: Bearer ***; ***"
    )


def test_recorded_files_hold_nothing_of_a_machine() -> None:
    """Folders of a home or checkout, variables, the names of hosts and users; packed files are unpacked."""
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "artifacts/recorded", "tests/data"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    homes = [f"/{name}/".encode() for name in ("home", "Users", "work")]
    personal = (
        *homes, b"/root", b"HOME=", b"PATH=/", b"PWD=", b"USER=", b"LOGNAME=", b"HOSTNAME=",
        b"SHELL=", b"FIPROF_SUPERVISED", b"FLASHINFER_WORKSPACE_BASE=/", b"SSH_", b"TOKEN=",
    )  # fmt: skip
    found: list[tuple[str, object]] = []
    for name in names:
        data = (REPOSITORY / name).read_bytes()
        data = lzma.decompress(data) if name.endswith(".xz") else data
        found += [(name, text) for text in personal if text in data]
        if data.startswith(b"SQLite format 3\0"):
            with contextlib.closing(sqlite3.connect(":memory:")) as export:
                export.deserialize(data)
                tables = {row[0] for row in export.execute("SELECT name FROM sqlite_master")}
                found += [(name, table) for table in DROPPED if table in tables]
                if EXPORTED_BY[0] in tables:
                    host = f"SELECT value FROM {EXPORTED_BY[0]} WHERE name IN ('EXPORT_HOST', 'EXPORT_USER')"
                    found += [(name, value) for (value,) in export.execute(host) if value]
    assert len(names) > 100 and found == []
