"""What is in the environment of a collect stays there: it is in no file of the run but the tool's own, which is private."""

import contextlib
import csv
import gzip
import io
import json
import lzma
import re
import shutil
import sqlite3
import subprocess
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fiprof.model.redaction import given, mask, mask_words
from fiprof.parsers.nsys_scrub import DROPPED, EXPORTED_BY, scrub
from fiprof.reports.export import SUFFIXES as EXPORTS
from tests import nsys_exports
from tests.conftest import REPOSITORY, Env, Fiprof, begun, run_fiprof, until
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import FIVE_KERNELS, PYTHON_THREADS, altered, query
from tests.recorded_runs import RUNS, copied, on_h100, record_files, without_samples
from tests.test_workloads import USERS_OWN

HUSH = {
    "HF_TOKEN": "hf-SEKRET-1", "MYSQL_PWD": "SEKRET 2 with blanks", "OPENAI_KEY": "SEKRET-3", "GH_PAT": "SEKRET-4",
    "DATABASE_URL": "postgres://me:SEKRET-5@db/x", "https_proxy": "http://me:SEKRET-6@proxy:3128", "JWT": "SEKRET-7",
    "PGPASSWORD": "SEKRETeight", "SOMETHING": "SEKRET0123456789abcdef",
}  # fmt: skip


@pytest.mark.fault("secrets in the environment of a collect", "in no file of the run but nsys's own, which is private")
def test_a_run_holds_no_secret(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    """The profiled programs have their whole environment; nsys writes it down, and a failing one says some of it."""
    said = tmp_path / "programs/SEKRET-3"
    said.write_text(Path(fakes["FIPROF_PYTHON"]).read_text().replace("exec", 'echo "token=$HF_TOKEN" >&2\nexec'))
    said.chmod(0o755)
    fiprof("collect", "--kernel", "all", "--python", str(said), env={**fakes, **HUSH}, status=0)
    (run,) = (tmp_path / "artifacts").iterdir()
    assert not re.search(b"SEKRET|HOME=/", every_byte(run)) and "token=***" in (run / "logs/plain.log").read_text()
    assert re.search(b"SEKRET.*HOME=/|HOME=/.*SEKRET", recorded_bytes(run / "nsys/trace.nsys-rep"), re.DOTALL)
    assert (run / "nsys/trace.nsys-rep").stat().st_mode & 0o777 == 0o600
    manifest = json.loads((run / "run.json").read_text())
    private = {file["path"]: file["private"] for action in manifest["actions"] for file in action["files"]}
    assert [path for path, marked in private.items() if marked] == ["nsys/trace.nsys-rep"]
    argvs = [action["argv"] for action in manifest["actions"] if action["step"] in ("plain", "nsys", "ncu")]
    assert all(str(said).replace("SEKRET-3", "***") in argv for argv in argvs)
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
    Path(fakes["FIPROF_PYTHON"]).write_text("#!/bin/sh\necho cannot log in with $HF_TOKEN at $DATABASE_URL\nexit 3\n")
    done = fiprof("collect", "--kernel", "rmsnorm", env={**fakes, **HUSH}, status=1)
    assert done.stderr.count("cannot log in with *** at ***") == 1 and "SEKRET" not in done.stdout + done.stderr
    assert b"SEKRET" not in every_byte(tmp_path / "artifacts")


@pytest.mark.fault("fiprof is killed when a program has printed a token", "the next command masks the log")
def test_the_log_of_a_killed_run_is_masked(fiprof: Fiprof, tmp_path: Path) -> None:
    run = tmp_path / "artifacts" / RUNS["decode"].name
    partial = Path(shutil.copytree(RUNS["decode"], run.with_name(f".partial-{run.name}")))
    (partial / "logs").mkdir(exist_ok=True)
    (partial / "logs/plain.log").write_text("login with api_key=0123456789 as SEKRET-1")
    assert fiprof("runs", env={"HF_TOKEN": "SEKRET-1"}).returncode == 0
    assert (run / "logs/plain.log").read_text() == "login with api_key=*** as ***"


@pytest.mark.parametrize("export", [FIVE_KERNELS, PYTHON_THREADS])
def test_an_export_is_scrubbed_and_read_as_ever(export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments of this process and of others, in tables, strings, a message and a range's name."""
    monkeypatch.setenv("HF_TOKEN", "SEKRET-1")
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
    scrub(sqlite)
    left = sqlite.read_bytes()
    assert b"SEKRET" not in left and b"/home/somebody" not in left
    assert query(sqlite, "PRAGMA integrity_check") == [("ok",)] and sqlite.stat().st_size <= before + (1 << 14)
    assert nsys_exports.parsed(sqlite, tmp_path / "scrubbed")[1] == nsys_exports.recorded(export)[1]


@pytest.mark.fault("an export with a newer table of strings", "it is cleared like the other, and read as before")
def test_a_string_in_use_stays_without_its_secret(tmp_path: Path) -> None:
    """A range's name that looks like an environment, and two with a secret in them."""
    named = "UPDATE NVTX_EVENTS SET text = NULL, textId = {} WHERE rowid % 3 = {} AND eventType = 59"
    sqlite = altered(
        tmp_path,
        "INSERT INTO StringIds VALUES (900003, 'login api_key=SEKRET-1 end'), (900004, 'LR=0.1'), (900005, 'SEKRET=a')",
        *(named.format(number, place) for place, number in enumerate((900003, 900004))),
        "UPDATE NVTX_EVENTS SET text = 'as token=SEKRET-1', textId = NULL WHERE rowid % 3 = 2 AND eventType = 59",
        "ALTER TABLE StringIds RENAME TO StringIds_V2",
    )
    scrub(sqlite)
    assert b"SEKRET" not in sqlite.read_bytes()
    ranges = {row["name"] for row in nsys_exports.parsed(sqlite, tmp_path / "tables")[1]["ranges"]}
    assert {"login api_key=*** end", "LR=0.1", "as token=***"} <= ranges


VALUE = "SEKRETv4lue9"
FORMS = [
    ["env", f"HF_TOKEN={VALUE}", "prog"], ["bash", "-c", f"export DB_PASSWORD={VALUE}; python prog.py --lr 3"],
    [f"api_key={VALUE}"], [f"dbPassword={VALUE}"], ["--password", f"two words {VALUE}"], ["--key", VALUE],
    [f"--TOKEN={VALUE}"], ["--auth", VALUE], ["--credentials", VALUE], ["prog", f"-p{VALUE}"],
    ["mysql", "-u", "me", "-pSEKRET", "db"], ["curl", "-u", f"me:{VALUE}"], ["-H", f"Authorization: Basic {VALUE}=="],
    ["-H", f'Authorization: Digest username="me", response="{VALUE}"'], ["-H", f"authorization: Sesame {VALUE}"],
    ["-H", f"X-Api-Key: {VALUE}"], ["-H", f"Cookie: a=b; session={VALUE}"], [f"https://{VALUE}@host/x"],
    [f"postgres://me:{VALUE}@host/x"], [f"Server=db;Password={VALUE};Timeout=3"],
    [f'{{"api_key": "{VALUE}", "lr": 0.1}}'], ["hf_SEKRETabcdefghijkl"], ["ghp_SEKRETabcdefghijkl"],
    ["sk-proj-SEKRETabcdefgh12"], ["AKIASEKRETABCDEF1234"], ["xoxb-SEKRETabcdefghijkl"],
    ["eyJSEKRETGciOi.eyJzdWIi.c2ln"], ["wJalrXUtnSEKRETK7MDENGbPxRfiCY3X"],
]  # fmt: skip
"""Words of a command line, for each way in which a secret is given."""
SAID = [text for text in map(" ".join, FORMS) if "two words" not in text]
READABLE = [
    "XlaPass:#name=dce,module=jit_step,program_id=3#",
    "--key-dim", "64", "--num-key-value-heads=8", "--auth-free", "tokens=128", "max_tokens=4096", "--tokenizer", "NAME",
    "-p", "8000", "-p8000", "-pthread", "--key", "3", "--max-tokens", "inf", "--eos-token", "</s>", "key: batch",
    "--token", "$HF_TOKEN", "monkey=banana", "decode[batch=32,kv_len=2048]", "rope[tokens=16384]", "use --token to",
    "5014fc2abc12-dirty", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "/data/AbC9dEf8gHi7JkL6mNo5PqR4/model.py", "GPU-4f7e8a1b-1234-5678-9abc-def012345678",
    "_ZN10flashinfer33BatchDecodeWithPagedKVCacheKernelILNS_15PosEncodingModeE0ELj2E", "nvjet_tst_128x8_64x12_2x1_v_bz_TNT",
    "fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKvDenseP32MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
    "void foo<cutlass::Kernel<3, (Key)1> >(int)", "ssh://git@github.com/x.git", "https://github.com/x@v1",
]  # fmt: skip


@pytest.mark.parametrize("words", FORMS)
def test_a_secret_in_words_is_masked_and_named(words: list[str]) -> None:
    found: list[tuple[str, str]] = []
    masked = mask_words(words, (), found)
    assert "SEKRET" not in "".join(masked) and "***" in "".join(masked) and found and mask_words(masked, ()) == masked
    if "two words" not in words[-1]:
        assert "SEKRET" not in mask(f"started {' '.join(words)} at 12:00", ())


def test_what_is_no_secret_stays_readable() -> None:
    assert mask_words(READABLE, ()) == READABLE
    assert [mask(word, ()) for word in READABLE] == READABLE
    public = {
        "PATH": "/usr/bin:/bin", "PWD": "/home/me", "TOKENIZERS_PARALLELISM": "false", "LANG": "en_US.UTF-8",
        "CONDA_DEFAULT_ENV": "flashinfer", "CUDA_VISIBLE_DEVICES": "GPU-4f7e8a1b-1234-5678-9abc-def012345678",
        "MAX_TOKENS": "16384", "KEY": "short", "CUDA_HOME": "/usr/local/cuda-12.8-with-digits", "HOME": "/home/me",
    }  # fmt: skip
    assert given(tuple(public.items()), ()) == ()
    assert {*HUSH.values()} <= {*given(tuple(HUSH.items()), ())}
    assert given((), ("profile", "--", "env", f"HF_TOKEN={VALUE}", "--key", "batch")) == (VALUE,)


def every_byte(folder: Path) -> bytes:
    """All that is in a folder's files, packed ones and Parquet's texts included."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".nsys-rep", ".ncu-rep"):
            found.append(str(path).encode() + recorded_bytes(path.with_name(path.name.removesuffix(".zst"))))
            if path.suffix == ".parquet":
                columns = pq.read_table(path).itercolumns()
                texts = [column for column in columns if not pa.types.is_primitive(column.type)]
                found.append(str([column.unique().to_pylist() for column in texts]).encode())
            if path.read_bytes()[:2] == b"\x1f\x8b":
                found.append(gzip.decompress(path.read_bytes()))
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as bundle:
                    bundle.extractall(unpacked := path.with_name(f"{path.name}.unpacked"))
                    found.append(every_byte(unpacked))
                    shutil.rmtree(unpacked)
    return b"".join(found)


@pytest.mark.fault("secrets in the command line of a program, in what it prints, in notes and tags", "*** in every file; run.json and the report name what to give anew")  # fmt: skip
def test_no_file_holds_a_secret_of_a_command_line(faked: Fiprof, tmp_path: Path) -> None:
    """Every form at once, as words of the program and as its output; then what is made of the run."""
    words = [word for form in FORMS for word in form]
    program = tmp_path / "program.sh"
    program.write_text('printf "%s\\n" "said $*"\n')
    faked("profile", "--tool", "nsys", "--", "sh", str(program), *words, status=0)
    (run,) = (tmp_path / "artifacts").iterdir()
    for note in ("; ".join(SAID), *SAID[:2]):
        assert faked("note", "latest", "--", note).returncode == 0
    assert faked("tag", "latest", f"token={VALUE}").returncode == 0
    assert faked("report", "latest", "--bundle", "send.zip").returncode == 0
    assert faked("export", "latest", "--to", "sqlite", "--out", "out.sqlite").returncode == 0
    assert faked("publish", "site").returncode == 0
    assert faked("pack", "latest").returncode == 0
    everything = every_byte(tmp_path)
    assert b"SEKRET" not in everything and b"said" in everything
    assert "argv: HF_TOKEN" in json.loads((run / "run.json").read_text())["masked"]
    assert "Masked, to be given anew: " in (run / "report.md").read_text()


@pytest.mark.fault("a program prints tokens and secrets of its environment", "its log has ***; the program keeps them")
@pytest.mark.fault("fiprof is killed while a program runs that printed a token", "the log has *** already; until a run has its name, its folder is its owner's alone")  # fmt: skip
def test_a_log_is_masked_as_it_is_written(fakes: Env, tmp_path: Path) -> None:
    """The next command does not know the environment of the killed one."""
    program = tmp_path / "program.sh"
    program.write_text("umask 0\necho as $HF_TOKEN of ${#HF_TOKEN}\nexec sleep 60\n")
    archive, profile = tmp_path / "artifacts", ("profile", "--tool", "nsys", "--", "sh", str(program))

    def said() -> list[Path]:
        return [log for log in archive.glob(".partial-*/logs/*.log") if "as " in log.read_text()]

    with begun(*profile, cwd=tmp_path, env={**fakes, "HF_TOKEN": "SEKRET-1"}) as run:
        until(said, run)
        run.kill()
    (partial,) = archive.glob(".partial-*")
    assert partial.stat().st_mode & 0o077 == 0
    assert [log.read_text() for log in said()] == ["as *** of 8\n"] and b"SEKRET" not in every_byte(archive)
    for words in (("runs",), ("verify",), ("report", "latest")):
        done = run_fiprof(*words, cwd=tmp_path)
        assert "SEKRET" not in done.stdout + done.stderr
    (kept,) = (path.parent for path in archive.glob("[!.]*/run.json"))
    assert kept.stat().st_mode & 0o777 == archive.stat().st_mode & 0o777
    assert b"SEKRET" not in every_byte(archive)


@pytest.mark.fault("a run of before secrets were masked is listed, reported, compared, exported and published", "what is written has ***, the catalogue too")  # fmt: skip
def test_what_leaves_an_older_run_is_masked(fiprof: Fiprof, tmp_path: Path) -> None:
    run = copied(on_h100("single-purpose"), tmp_path / "artifacts")
    shutil.copytree(run, tmp_path / "artifacts/other")
    columns = {"ranges": ["name"], "launches": ["kernel_full"], "kernels": ["kernel_full", "case"]}
    for path in run.glob("tables/*.parquet"):
        table = pq.read_table(path)
        if "launch" in table.column_names:  # two of them are enough
            table = table.filter(pc.less(table["launch"], 2))
        for column in columns.get(path.stem, []):
            texts = table[column].to_pylist()
            texts[::3] = [f"{text} {SAID[place % len(SAID)]}" for place, text in enumerate(texts[::3])]
            made = pa.array(texts, pa.string()).dictionary_encode()
            table = table.set_column(table.column_names.index(column), column, made)
        pq.write_table(table, path)
    assert b"SEKRET" in every_byte(run)
    note = {"when": "2026-11-22T10:00:00+00:00", "who": "me", "text": f"api_key={VALUE}"}
    noted = {"schema_version": 1, "tags": [f"token={VALUE}"], "notes": [note]}
    (run / "annotations.json").write_text(json.dumps(noted))
    summary = json.loads((run / "tables/summary.json").read_text())
    summary["results"][-1]["kernel"] += f" api_key={VALUE}"
    (run / "tables/summary.json").write_text(json.dumps(summary))
    sent = tmp_path / "sent"
    for words in (
        ("runs", "--all", "--format", "json"),
        ("trend", "--metric", "nsys_duration_us"),
        ("report", run.name, "--out", "sent/report", "--bundle", "sent/report.zip"),
        ("publish", "sent/site"),
        ("timeline", run.name, "--perfetto", "sent/timeline.gz"),
        ("compare", run.name, "other", "--out", "sent/compare.html", "--anyway"),
        *(("export", run.name, "--to", to, "--out", f"sent/{to}") for to in EXPORTS),
        ("tag", run.name, f"key={VALUE}"),
        ("note", run.name, f"with --key {VALUE}"),
    ):
        sent.mkdir(exist_ok=True)
        # Each time: a command that makes tables writes the manifest anew.
        planted = json.loads((run / "run.json").read_text())
        planted.pop("masked", None)
        planted["argv"] = ["fiprof", *(word for form in FORMS for word in form)]
        planted["reason"], planted["warnings"] = f"https://{VALUE}@host/x", [f"--key {VALUE}"]
        planted["environment"]["program"] = {"command": ["prog", "--token", VALUE], "git": f"api_key={VALUE}"}
        (run / "run.json").write_text(json.dumps(planted))
        assert "SEKRET" not in fiprof(*words, status=0).stdout or words[0] == "timeline"
    # A zip is one by its name.
    (sent / "zip").rename(sent / "run.zip")
    with zipfile.ZipFile(sent / "run.zip") as bundle:
        assert not [name for name in bundle.namelist() if name.endswith("-rep")]
    everything = every_byte(sent)
    assert b"SEKRET" not in everything and b"HF_TOKEN=***" in everything
    listed = b"".join(path.read_bytes() for path in run.parent.glob("catalogue.sqlite*"))
    assert b"SEKRET" not in listed and b"api_key=***" in listed


def with_ranges(page: bytes) -> bytes:
    """A page of ncu as it is when each launch lies in further ranges, one for each form."""
    more = "  ".join(f'"<default domain>:{text}:none:none:RGB:0xff:REGISTERED:{text}"' for text in SAID)
    rows = list(csv.reader(io.StringIO(page.decode())))
    (place,) = (number for number, name in enumerate(rows[0]) if "Push/Pop" in name)
    for row in rows:
        row[place] += f" {more} " if row[place].endswith(" ") else ""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


@pytest.mark.fault("an SQLite of nsys and pages of ncu with secrets in names of ranges are imported", "*** in copies and tables, with --link in the tables; the cases stay")  # fmt: skip
@pytest.mark.parametrize("link", [(), ("--link",)], ids=["copied", "linked"])
def test_an_import_holds_no_secret(fiprof: Fiprof, tmp_path: Path, link: tuple[str, ...]) -> None:
    said = " ".join(SAID).replace("'", "''")
    ninth = "eventType = 59 AND rowid % 9 = 0"
    sqlite = altered(tmp_path, f"UPDATE NVTX_EVENTS SET text = '{said}', textId = NULL WHERE {ninth}")
    before = sqlite.read_bytes()
    for page in ("raw", "details"):
        data = with_ranges(recorded_bytes(RUNS["prefill-decode-rope"] / f"ncu/{page}.csv"))
        assert data.count(VALUE.encode()) > 100
        (tmp_path / f"{page}.csv").write_bytes(data)
    ranges = ("--range", f"env HF_TOKEN={VALUE} prog", "--range", "no")
    fiprof("import", "trace.sqlite", "raw.csv", "details.csv", *ranges, *link, status=0)
    everything = every_byte(tmp_path / "artifacts")
    assert b"SEKRET" not in everything and b"HF_TOKEN=***" in everything and sqlite.read_bytes() == before
    shown = json.loads(fiprof("show", "latest", "--format", "json").stdout)["rows"]
    assert "env HF_TOKEN=*** prog" in {row["case"] for row in shown}


@pytest.mark.fault("a workload's parameter is a secret", "one line names the parameter, not its value; nothing is made")
def test_a_parameter_that_is_a_secret(faked: Fiprof, tmp_path: Path) -> None:
    own = USERS_OWN.replace("mine", "asking").replace("width: int = param(64,", "token: str = param('none',")
    (tmp_path / "asking.py").write_text(own.replace(", low=1, high=128", ""))
    done = faked("collect", "--workload", "asking.py", "--token", VALUE, status=2)
    assert done.stderr.startswith("fiprof: a parameter of asking[token=***] is a secret, or looks like one\n")
    assert VALUE not in done.stdout + done.stderr and not (tmp_path / "artifacts").exists()


@pytest.mark.fault("a run of before, with a secret in the name of a case, is replayed", "*** in every file; its times under both tools and without are of one case; ncu's report is private")  # fmt: skip
def test_a_replayed_run_holds_no_secret(fiprof: Fiprof, tmp_path: Path) -> None:
    """A run of before, played again: its tools' output has the name of the case in every range."""
    before = without_samples(RUNS["decode"], tmp_path / "before")
    change = (b"decode[batch=1,", f"decode[token={VALUE},batch=1,".encode())
    for packed in before.rglob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()).replace(*change))
        packed.unlink()
    with contextlib.closing(sqlite3.connect(before / "nsys/trace.sqlite")) as trace, trace:
        for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
            trace.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", [text.decode() for text in change])
    for path in (*before.rglob("*.json*"), *before.rglob("*.log")):
        path.write_bytes(path.read_bytes().replace(*change))
    record_files(before)
    assert every_byte(before).count(b"SEKRET") > 100
    fiprof("collect", "--replay", "before", status=0)
    (run,) = (tmp_path / "artifacts").glob("*-decode")
    assert b"SEKRET" not in every_byte(tmp_path / "artifacts")
    rows = json.loads(fiprof("show", "latest", "--format", "json").stdout)["rows"]
    (secret, *_) = (row for row in rows if "***" in row["case"])
    assert None not in (secret["duration_us"], secret["nsys_duration_us"], secret["case_plain_us"])
    (report,) = run.glob("ncu/profile.ncu-rep*")
    assert report.stat().st_mode & 0o777 == 0o600
    assert fiprof("report", "latest", "--bundle", "send.zip").returncode == 0
    with zipfile.ZipFile(tmp_path / "send.zip") as bundle:
        assert not [name for name in bundle.namelist() if name.endswith("-rep")]


PERSONAL = (
    *(f"/{kind}/" for kind in ("home", "Users", "work")), "/root", "HOME=", "PATH=/", "PWD=", "USER=", "LOGNAME=", "HOSTNAME=", "SHELL=",
    "FIPROF_SUPERVISED", "FLASHINFER_WORKSPACE_BASE=/", "SSH_", "TOKEN=",
)  # fmt: skip


def test_recorded_files_hold_nothing_of_a_machine() -> None:
    """Folders of a home or checkout, variables, the names of hosts and users; packed files are unpacked."""
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "artifacts/recorded", "tests/data"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    found: list[tuple[str, object]] = []
    for name in names:
        data = (REPOSITORY / name).read_bytes()
        data = lzma.decompress(data) if name.endswith(".xz") else data
        data = data.replace(b"/home/user/", b"." * 11)  # nobody's; as long, or an SQLite is damaged
        if pc.match_substring_regex(pa.scalar(data, pa.large_binary()), "|".join(PERSONAL)).as_py():
            found += [(name, text) for text in PERSONAL if text.encode() in data]
        if data.startswith(b"SQLite format 3\0"):
            with contextlib.closing(sqlite3.connect(":memory:")) as export:
                export.deserialize(data)
                tables = {row[0] for row in export.execute("SELECT name FROM sqlite_master")}
                found += [(name, table) for table in DROPPED if table in tables]
                if EXPORTED_BY[0] in tables:
                    host = f"SELECT value FROM {EXPORTED_BY[0]} WHERE name IN ('EXPORT_HOST', 'EXPORT_USER')"
                    found += [(name, value) for (value,) in export.execute(host) if value]
    assert len(names) > 100 and found == []
