"""Many traces: each becomes a run of its own, and they are asked together. The commands are those of docs/scale.md."""

import json
import re
import shutil
from pathlib import Path

import pytest

import fiprof
from fiprof.analysis.across import Traces
from fiprof.model import layout
from fiprof.orchestrator import many
from tests.conftest import REPOSITORY, run_fiprof
from tests.nsys_exports import FIVE_KERNELS, KERNEL, executed

SECTION = (REPOSITORY / "docs/scale.md").read_text().partition("## Many traces")[2]
COMMANDS = re.findall(r"^    (fiprof .*)$", SECTION, re.MULTILINE)
HOSTS, TRACES = 4, 6
PREFILL = "PrefillWithKVCacheKernel"
HANGS = '#!/bin/sh\ncase "$1" in --version) echo "NVIDIA Nsight Systems version 2026.1.1";; *) sleep 600;; esac\n'


def words(command: str, **places: str) -> list[str]:
    """A command of the page, with SQLite files in place of reports, which need nsys."""
    for old, new in {".nsys-rep": ".sqlite", "'": "", **places}.items():
        command = command.replace(old, new)
    return command.split()[1:]


def first(traces: Traces) -> tuple[object, ...]:
    """The kernel with most time, in how many traces and how often."""
    return tuple(traces.kernels()[["name", "traces", "count"]].iloc[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of four hosts, of which the last takes a fifth longer for its kernels."""
    folder = tmp_path_factory.mktemp("across")
    for number in range(TRACES):
        file = folder / f"traces/host{number % HOSTS}/trace{number}.sqlite"
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIVE_KERNELS, file)
        named = f"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'host{number % HOSTS}')"
        executed(file, "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)", named)
        if number % HOSTS == HOSTS - 1:
            executed(file, f'UPDATE {KERNEL} SET "end" = start + CAST(("end" - start) * 1.2 AS INT)')
    return folder


@pytest.fixture(scope="module")
def archive(place: Path) -> Path:
    done = run_fiprof(*words(COMMANDS[0]), cwd=place)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, TRACES), done.stderr
    return place / "artifacts"


def test_kernels_are_asked_by_host_and_one_unlike_the_others_is_found(place: Path, archive: Path) -> None:
    shown = run_fiprof(*words(COMMANDS[1]), "--kernel", "prefill", cwd=place).stdout
    assert [line.split() for line in shown.splitlines()[4:]] == [
        ["host0", PREFILL, "2", "40", "12.1", "46.8%", "302.14", "303.10"],
        ["host1", PREFILL, "2", "40", "12.1", "46.8%", "302.14", "303.10"],
        ["host3", PREFILL, "1", "20", "7.3", "55.7%", "362.57", "363.72"],
        ["host2", PREFILL, "1", "20", "6.1", "46.8%", "302.14", "303.10"],
    ]
    traces = fiprof.scan(str(archive))
    assert traces.missing == ()
    assert traces.ranks("host")["total_ms"].round(2).tolist()[:4] == [25.74, 25.74, 13.04, 12.87]
    assert [list(row) for row in traces.idle()[["name", "traces"]].to_numpy()] == [["gpu", 5]]
    assert first(fiprof.scan(f"{archive}/*trace[03]*")) == (PREFILL, 2, 40)
    few = ("top", "--over", f"{archive}/*trace[03]*", "--table")
    printed = [run_fiprof(*few, table, cwd=place).stdout for table in ("outliers", "idle")]
    assert "no host is unlike the others" in printed[0] and "on the GPU" in printed[1]
    # One is unlike the others.
    rows = json.loads(run_fiprof(*words(COMMANDS[2]), "--format", "json", cwd=place).stdout)["rows"]
    assert {row["host"] for row in rows} == {"host3"}
    assert (rows[0]["name"], rows[0]["ratio"]) == (PREFILL, pytest.approx(1.2, abs=1e-4))
    assert traces.outliers()["lost_ms"].round(2).tolist()[:2] == [1.21, 0.77]


@pytest.mark.fault("a digest is no Parquet file, or has other columns", "its trace is left out, and named")
def test_a_damaged_digest_is_named(archive: Path, tmp_path: Path) -> None:
    runs = sorted(archive.glob("*-trace*"))[:3]
    for run in runs:
        shutil.copytree(run, tmp_path / run.name)
    (tmp_path / runs[0].name / layout.DIGEST).write_bytes(b"PAR1")
    shutil.copy(runs[1] / "tables/kernels.parquet", tmp_path / runs[1].name / layout.DIGEST)
    (tmp_path / runs[2].name / layout.DIGEST).unlink()
    traces = fiprof.scan(str(tmp_path))
    assert [text.partition(":")[0] for text in traces.missing] == [str(tmp_path / run.name) for run in runs[:2]]
    assert first(traces) == (PREFILL, 1, 20)


def test_what_was_imported_is_not_imported_again(place: Path, archive: Path) -> None:
    done = run_fiprof(*words(COMMANDS[0]), cwd=place)
    assert (done.returncode, done.stdout) == (0, "") and done.stderr == "6 of 6 are imported already\n"
    assert len(list(archive.glob(f"*/{layout.FILE_NAME}"))) == TRACES


@pytest.mark.fault("A trace among many is cut short, another's export hangs", "they are named, the others are whole")
def test_what_cannot_be_imported_is_named(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "traces/host1", tmp_path / "traces")
    (tmp_path / "traces/cut.sqlite").write_bytes(FIVE_KERNELS.read_bytes()[:300_000])
    (tmp_path / "traces/hangs.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report")
    (nsys := tmp_path / "nsys").write_text(HANGS)
    nsys.chmod(0o755)
    done = run_fiprof("import", "traces/**/*.sqlite", cwd=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 2)
    cut, hangs = (f"{tmp_path}/traces/{name}" for name in ("cut.sqlite", "hangs.nsys-rep"))
    assert f"fiprof: {cut}: is damaged: database disk image is malformed" in done.stderr
    assert f"1 of 3 were not imported: {cut}\n" in done.stderr
    asked = ("import", "traces/**/*.nsys-rep", "--timeout", "1")
    done = run_fiprof(*asked, cwd=tmp_path, env={"FIPROF_NSYS": str(nsys)}, status=1)
    assert f"fiprof: {hangs}: it was not imported within 1 s: --timeout allows more" in done.stderr
    assert first(fiprof.scan(f"{tmp_path}/artifacts")) == (PREFILL, 2, 40)
    assert run_fiprof("verify", cwd=tmp_path).stdout == "2 runs are as made.\n"


@pytest.mark.fault("A trace among many takes more memory than its part", "its import is ended, and named")
def test_a_huge_one_is_ended(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "LEAST_BYTES", 1)
    monkeypatch.setattr(many, "LOOK_S", 0.01)
    trace = str(place / "traces/host0/trace0.sqlite")
    found = many.import_one(many.Trace(trace, str(tmp_path / "artifacts"), memory_bytes=1))
    assert (found.source, found.run) == (trace, "")
    assert re.fullmatch(r"its import took 0\.\d GB of memory: fewer at a time \(--on local:1\) .*", found.problem)


def test_by_dask_it_is_the_same(place: Path, archive: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        asked = words(COMMANDS[3], **{"tcp://HOST:8786": cluster.scheduler_address})
        done = run_fiprof(*asked, "--artifacts", str(tmp_path), cwd=place)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, TRACES), done.stderr
    assert fiprof.scan(str(tmp_path)).kernels("host").equals(fiprof.scan(str(archive)).kernels("host"))


@pytest.mark.usefixtures("archive")
def test_files_and_archive_may_lie_elsewhere(place: Path) -> None:
    bucket = {"s3://BUCKET": f"file://{place}"}
    done = run_fiprof(*words(COMMANDS[4], **bucket), cwd=place)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, TRACES), done.stderr
    shown = run_fiprof(*words(COMMANDS[5], **bucket), cwd=place)
    assert shown.stdout == run_fiprof(*words(COMMANDS[5], **{"s3://BUCKET/archive": "artifacts"}), cwd=place).stdout
    manifest = json.loads(next((place / "archive").glob("*/run.json")).read_text())
    assert manifest["imported"][0]["source"].startswith("file://")


def test_a_run_is_one_when_its_manifest_is_there(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    run, put = next(archive.glob("*trace0-*")), memory.put_file

    def broken(self: object, source: str, target: str) -> None:
        if target.endswith(layout.FILE_NAME):
            raise OSError("the connection broke off")
        put(self, source, target)

    monkeypatch.setattr(memory, "put_file", broken)
    with pytest.raises(OSError, match="broke off"):
        many._upload(run, f"memory://archive/{run.name}")
    with pytest.raises(fiprof.errors.FiprofError, match="memory://archive holds no run"):
        fiprof.scan("memory://archive")
    monkeypatch.undo()
    many._upload(run, f"memory://archive/{run.name}")
    assert first(fiprof.scan("memory://archive")) == (PREFILL, 1, 20)
