"""``fiprof import``: foreign files into a run that the reading commands read, and what none of them is."""

import csv
import hashlib
import io
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.checks import failed
from fiprof.errors import FiprofError
from fiprof.model import packing, tables
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.settings import Settings
from fiprof.orchestrator import nsys
from fiprof.orchestrator.process import Supervisor, ToolCommand
from fiprof.parsers.nsys_scrub import scrub
from fiprof.parsers.recognize import recognize
from tests.conftest import Fiprof, ran, run_fiprof
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import FIVE_KERNELS, KERNEL, OTHER_PROGRAM, RUNTIME, SCHEMA_3_0, altered, executed, recorded
from tests.recorded_runs import answer, invoke, refusal

NCU = Path(__file__).parent / "data/ncu"


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither nsys nor ncu is installed, but where a test names one."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for tool in ("NSYS", "NCU"):
        monkeypatch.setenv(f"FIPROF_{tool}", str(tmp_path / "none"))


def importing(folder: Path, *files: Path, ranges: tuple[str, ...] = (), link: bool = False) -> tuple[Path, Manifest]:
    """The run that an import made."""
    before = {*folder.glob("artifacts/*")}
    named = [word for name in ranges for word in ("--range", name)]
    invoke("import", *map(str, files), "--artifacts", str(folder / "artifacts"), *named, *["--link"] * link)
    (run,) = {*folder.glob("artifacts/[!c]*")} - before
    return run, read_manifest(run)


def refused(folder: Path, *files: Path, link: bool = False) -> FiprofError:
    """The error of an import that made no run."""
    error = refusal("import", *files, "--artifacts", folder / "artifacts", *["--link"] * link)
    assert "\n" not in error.message and not (folder / "artifacts").exists()
    return error


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.read(run / "tables", table).to_pylist()
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unpacked(folder: Path, name: str) -> Path:
    """A recorded file of ncu without its ``.xz``."""
    (folder / name).write_bytes(recorded_bytes(NCU / name))
    return folder / name


def test_a_trace_becomes_a_run_that_says_where_it_is_from_and_claims_nothing_else(tmp_path: Path) -> None:
    run, manifest = importing(tmp_path, FIVE_KERNELS)
    assert (manifest.status, manifest.cases, manifest.settings) == ("complete", [], {})
    (file,) = manifest.imported
    assert (file.path, file.kind, file.source) == ("nsys/trace.sqlite", "nsys-sqlite", str(FIVE_KERNELS))
    assert (file.bytes, file.sha256) == (FIVE_KERNELS.stat().st_size, sha256(FIVE_KERNELS))
    assert (file.linked, file.tool, manifest.environment["tools"]) == (False, "2025.3.2.0", {"nsys": "2025.3.2.0"})
    assert manifest.environment["gpu"] == {
        "name": "NVIDIA H200", "uuid": "661d3e91-2159-b4db-99fb-7836e312516d", "multiprocessors": 132,
        "memory_bytes": 150109880320, "l2_bytes": 62914560, "compute_capability": "9.0",
    }  # fmt: skip
    for name, found in recorded(FIVE_KERNELS)[1].items():
        assert rows(run, name) == [{**row, "file": None} for row in found]
    (action,) = manifest.actions
    assert [entry.sha256 for entry in action.files] == [packing.checksum(run, "nsys/trace.sqlite")]


MARKED = """
import nvtx
for step in range(3):
    with nvtx.annotate(f"step {step}", domain="app"), nvtx.annotate("forward", domain="app"):
        pass
with nvtx.annotate("outside"):
    pass
"""


@pytest.mark.nsys
def test_a_report_is_exported_by_nsys_here(tmp_path: Path, nsys_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvtx")
    monkeypatch.setenv("PATH", os.defpath)
    report = tmp_path / "any.nsys-rep"
    program = (sys.executable, "-c", MARKED)
    argv = nsys.profile_argv(nsys_path, (2022, 4, 2), report, program, Settings(gpu_metrics_hz=0))
    for _ in range(3):  # now and then nsys ends by itself where another one has just ended
        Supervisor().start(ToolCommand("nsys", argv, tmp_path / "nsys.log", {}, timeout_s=60, makes=(report,))).wait()
        if report.exists():
            break
    monkeypatch.setenv("FIPROF_NSYS", str(nsys_path))
    run, manifest = importing(tmp_path, report)
    assert manifest.status == "complete"
    (file,) = manifest.imported
    assert (file.path, file.kind, file.tool) == ("nsys/trace.nsys-rep", "nsys-rep", None)
    assert [action.step for action in manifest.actions] == ["import", "nsys-export"] and rows(run, "kernels") == []
    ranges = rows(run, "ranges")
    assert [(row["domain"], row["name"], row["depth"], row["parent"]) for row in ranges] == [
        *(each for step in range(3) for each in (("app", f"step {step}", 0, None), ("app", "forward", 1, 2 * step))),
        ("", "outside", 0, None),
    ]
    assert len({(row["pid"], row["tid"], row["kind"]) for row in ranges}) == 1


@pytest.mark.fault("a report of nsys where nsys is not", "one line with the version that wrote it")
def test_without_nsys_a_report_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    report = tmp_path / "any.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@2@266-255236693005v0.\n" + bytes(100))
    error = refused(tmp_path, report)
    assert "version 2025.5.2, which nsys alone reads" in error.message
    assert "nsys 2025.5.2 or later reads it" in error.remedy and "nsys export --type sqlite REPORT" in error.remedy


@pytest.mark.parametrize("link", [False, True])
def test_the_pages_of_a_report_go_together(tmp_path: Path, link: bool) -> None:
    pages = [unpacked(tmp_path, f"full.{page}.csv") for page in ("source", "details")]
    run, manifest = importing(tmp_path, *pages, NCU / "full.raw.csv", link=link)
    assert [file.path for file in manifest.imported] == ["ncu/source.csv", "ncu/details.csv", "ncu/raw.csv"]
    assert manifest.environment["gpu"] == {
        "name": "NVIDIA H200", "multiprocessors": 132, "l2_bytes": 62914560, "compute_capability": "9.0"
    }  # fmt: skip
    assert [row["launch"] for row in rows(run, "launches")] == [0, 1, 2, 3, 4, 5]
    assert all(rows(run, table) for table in ("rules", "hotspots", "stalls"))
    assert (run / "ncu").exists() != link


def test_a_details_page_is_the_raw_page_rounded(tmp_path: Path) -> None:
    """ncu's default form: every metric that it shows under a label is the raw page's, to the digits that it prints."""
    run, manifest = importing(tmp_path, unpacked(tmp_path, "full.details.csv"))
    whole, _ = importing(tmp_path, NCU / "full.raw.csv")
    found, exact = rows(run, "launches"), rows(whole, "launches")
    assert [row["kernel_full"] for row in found] == [row["kernel_full"] for row in exact]
    known = {name for row in found for name, value in row.items() if isinstance(value, float)}
    assert len(known) == 41
    for one, other in zip(found, exact, strict=True):
        for name in known:
            assert one[name] == pytest.approx(other[name], rel=6e-3, abs=5.1e-3), name
    assert found[0]["duration_ns"] == pytest.approx(312_830, abs=5)
    assert "launches: metrics are those of a details page: rounded, and only what its sections show" in manifest.missing
    assert rows(run, "rules") and rows(run, "stalls") == []


def shifted(folder: Path, by_ns: int) -> Path:
    """The recorded trace of a session that began later."""
    folder.mkdir()
    return altered(folder, f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {by_ns}")


@pytest.mark.fault("traces hours apart, of two machines, or without a session start imported together", "a warning")
@pytest.mark.parametrize(
    ("by_ns", "statements", "told"),
    [
        (5_000, (), {}),
        (3_600_000_000_000, (), {"trace_gap": (3599.5, 0, "s")}),
        (5_000, ("UPDATE FIPROF_PROCESSES SET value = 'other'",), {"trace_hosts": (2, 1, "hosts")}),
        (0, ("DROP TABLE TARGET_INFO_SESSION_START_TIME",), {"trace_starts": (1, 0, "traces")}),
        (0, ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 1",), {}),  # of the same nanosecond, yet another
    ],
)
def test_traces_not_on_one_clock(by_ns: int, statements: tuple[str, ...], told: dict[str, Any], tmp_path: Path) -> None:
    export = shifted(tmp_path / "second", by_ns)
    scrub(export)
    executed(export, *statements)
    run = Run(importing(tmp_path, FIVE_KERNELS, export)[0])
    assert {str(check.check): (round(check.value or 0, 1), check.high, check.unit) for check in failed(run)} == told
    for command in ("timeline", "verdict", "comm"):
        assert told.keys() <= {warning["id"] for warning in answer(command, run.path)["warnings"]}


@pytest.mark.fault("traces of two containers with one pid, of two machines' GPU 0", "two ranks, nothing mixed")
@pytest.mark.parametrize("other_gpu", [True, False])
def test_processes_of_one_number_in_two_traces_stay_apart(other_gpu: bool, tmp_path: Path) -> None:
    """A container beside the first on its GPU, or on another machine."""
    export = shifted(tmp_path / "second", 5_000)
    if other_gpu:
        executed(export, "UPDATE TARGET_INFO_GPU SET uuid = 'another'")
    both, alone = (Run(importing(tmp_path, *files)[0]) for files in ((FIVE_KERNELS, export), (FIVE_KERNELS,)))
    (one,) = ranks_of(alone).all
    ranks = ranks_of(both)
    found = [(rank.rank, rank.file, rank.device, tables.own_pid(rank.pid)) for rank in ranks.all]
    assert found == [(0, 0, 0, one.pid), (1, 1, int(other_gpu), one.pid)]
    for table in ("copies", "api"):
        assert Counter(ranks.of(table).tolist()) == dict.fromkeys((0, 1), alone.table(table).num_rows)
    for rank in (0, 1):
        own = {"rank": rank, "device": rank * other_gpu}
        for words in (("--table", "kernels"), ("--table", "ranges"), ("--by", "range")):
            expected = [{**row, **own} for row in answer("top", alone.path, *words)["rows"]]
            assert len(expected) > 5 and answer("top", both.path, "--rank", rank, *words)["rows"] == expected

    def idle(run: Run, device: int) -> list[str]:
        found = [row for row in answer("top", run.path, "--table", "idle")["rows"] if row["device"] == device]
        return sorted(str([row[key] for key in ("cause", "call", "range", "total_ms")]) for row in found)

    assert not other_gpu or idle(alone, 0) == idle(both, 0) == idle(both, 1)


def test_launches_of_further_reports_are_numbered_on(tmp_path: Path) -> None:
    run, manifest = importing(tmp_path, NCU / "full.raw.csv", unpacked(tmp_path, "quick.raw.csv"))
    launches = rows(run, "launches")
    assert [file.path for file in manifest.imported] == ["ncu/raw.csv", "ncu/raw-1.csv"]
    assert [row["launch"] for row in launches] == list(range(len(launches)))
    assert {row["file"] for row in launches[:6]} == {0} and {row["file"] for row in launches[6:]} == {1}
    assert {row["launch"] for row in rows(run, "stalls")} == {row["launch"] for row in launches}


@pytest.mark.fault("a linked file is changed, moved away or replaced by a FIFO", "one line; its tables stay")
def test_a_linked_file_is_read_only_while_it_is_the_same(tmp_path: Path) -> None:
    export = altered(tmp_path)
    run, manifest = importing(tmp_path, export, link=True)
    assert manifest.status == "complete" and not (run / "nsys").exists()
    assert manifest.imported[0].linked and manifest.imported[0].sha256 == sha256(export)
    assert invoke("parse", str(run))[0] == 0
    data = bytearray(export.read_bytes())
    data[-1] ^= 1
    for spoil in (lambda: export.write_bytes(data), lambda: export.write_bytes(b"x"), export.unlink):
        spoil()
        assert invoke("parse", str(run))[0] == 1 and len(rows(run, "kernels")) == 184


def test_declared_ranges_are_cases_and_each_time_is_an_iteration(tmp_path: Path) -> None:
    run, manifest = importing(tmp_path, FIVE_KERNELS, ranges=("fiprof@iter *", "CCCL@cub::DeviceRadixSort", "none"))
    assert [case.id for case in manifest.cases] == ["fiprof@iter *", "CCCL@cub::DeviceRadixSort"]
    assert "no kernel was launched in an NVTX range none" in manifest.warnings
    inside = [row for row in rows(run, "kernels") if row["case"] == "fiprof@iter *"]
    # The trace has 100 ranges of that name, one after the other.
    assert {row["phase"] for row in inside} == {"measure"}
    assert sorted({row["iteration"] for row in inside}) == list(range(100))


COMMANDS = ("verdict", "show", "stalls", "hotspots", "roofline", "timeline", "expected", "report")


@pytest.mark.parametrize(
    ("files", "answered"),
    [
        pytest.param(("nsys",), {"verdict", "show", "timeline", "report"}, id="a trace"),
        pytest.param(("raw",), {"verdict", "show", "stalls", "roofline", "timeline", "report"}, id="raw"),
        pytest.param(("details",), {"verdict", "show", "roofline", "timeline", "report"}, id="details"),
        pytest.param(("nsys", "raw", "details", "source"), set(COMMANDS) - {"expected"}, id="all"),
    ],
)
def test_every_command_reads_what_there_is_and_says_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: tuple[str, ...], answered: set[str]
) -> None:
    known = {"nsys": FIVE_KERNELS, "raw": NCU / "full.raw.csv"}
    paths = [known[name] if name in known else unpacked(tmp_path, f"full.{name}.csv") for name in files]
    run, _ = importing(tmp_path, *paths)
    statuses = {command: invoke(command, str(run)) for command in COMMANDS}
    assert {command for command, (status, _) in statuses.items() if status == 0} == answered
    said = "".join(output for _, output in statuses.values()) + capsys.readouterr().err
    report = (run / "report.md").read_text()
    for text in (said, report):
        assert "fiprof collect" not in text and "was not started" not in text and "plain run left" not in text


def test_a_trace_without_kernels_says_what_reads_it(tmp_path: Path) -> None:
    done = run_fiprof("import", str(SCHEMA_3_0), cwd=tmp_path, status=0)
    run = tmp_path / done.stdout.strip()
    assert f"next: fiprof show {done.stdout.strip()}" in done.stderr
    assert "fiprof show shows what" in refusal("verdict", run).remedy
    command = f"fiprof export {run} --to perfetto"
    assert command in invoke("show", str(run), "--format", "md")[1].replace("\\", "")
    assert invoke(*command.split()[1:], "--out", str(tmp_path / "trace.json.gz"))[0] == 0
    assert invoke("report", str(run), "--format", "md")[0] == 0
    assert "takes the time" not in (run / "report.md").read_text()


def test_a_file_is_told_by_its_content(tmp_path: Path) -> None:
    kinds = {
        "nsys-sqlite": SCHEMA_3_0, "ncu-raw": NCU / "full.raw.csv", "ncu-rep": unpacked(tmp_path, "full.ncu-rep"),
        "ncu-details": unpacked(tmp_path, "full.details.csv"), "ncu-source": unpacked(tmp_path, "full.source.csv"),
    }  # fmt: skip
    for kind, path in kinds.items():
        assert recognize(Path(shutil.copy(path, tmp_path / "data.bin"))) == kind
    utf16 = tmp_path / "powershell.csv"
    utf16.write_bytes((NCU / "full.raw.csv").read_text().encode("utf-16"))
    assert recognize(utf16) == "ncu-raw"
    run, _ = importing(tmp_path, utf16)
    assert len(rows(run, "launches")) == 6
    pytest.importorskip("ncu_report")
    run, manifest = importing(tmp_path, kinds["ncu-rep"])
    assert (manifest.imported[0].tool, rows(run, "launches")[0]["duration_ns"]) == ("2025.3.1", 312832.0)


SUMMARY = '"Process ID","Kernel Name","Invocations","Section Name","Metric Name","Metric Unit","Minimum"\n'


@pytest.mark.fault("import of an empty, packed or foreign file, an LFS pointer, a summary", "one line; no run is made")
@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "is no file of nsys or ncu that fiprof knows"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a pointer of Git LFS"),
        (b"\x1f\x8b\x08\x00abc", "is compressed"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "is a Chrome trace"),
        (b"Time (%),Total Time (ns),Instances\n50,1,1\n", "is a table of nsys stats"),
        (SUMMARY.encode(), "is ncu's summary by kernel, without its launches"),
        (b'"ID";"Kernel Name";"gpu__time_duration.sum"\n', "other separators than commas"),
        (b"==42== NVPROF is profiling process 42\n", "is of nvprof"),
        (recorded_bytes(NCU / "full.details.txt")[:9000], "is ncu's page as text"),
        (b"==WARNING== No kernels were profiled.\n", "is of ncu and holds no kernel"),
        (OTHER_PROGRAM, "of another program than nsys: it has no table StringIds, but stage_costs"),
        (recorded_bytes(NCU / "full.source.csv"), "which does not say what its launches measured"),
    ],
)
def test_a_file_of_another_tool_gets_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "trace.nsys-rep").write_bytes(content)
    assert line in refused(tmp_path, tmp_path / "trace.nsys-rep").message


@pytest.mark.fault("the same trace imported twice, as SQLite and as its copy", "one line")
def test_a_file_twice_a_file_that_is_not_there_and_a_replay_are_refused(tmp_path: Path) -> None:
    assert "is named twice" in refused(tmp_path, FIVE_KERNELS, FIVE_KERNELS).message
    assert "there is no file" in refused(tmp_path, tmp_path / "none").message
    run, _ = importing(tmp_path, NCU / "full.raw.csv")
    assert "was imported" in refusal("collect", "--replay", run).message
    _, manifest = importing(tmp_path, FIVE_KERNELS, shifted(tmp_path / "copy", 0))
    assert manifest.reason.endswith("nsys/trace.sqlite and nsys/trace-1.sqlite are the same trace")


@pytest.mark.fault("import of a damaged SQLite", "one line; the run is kept as failed, the original as it is")
def test_a_damaged_export_is_a_failed_run(tmp_path: Path) -> None:
    export = altered(tmp_path)
    export.write_bytes(export.read_bytes()[:100_000])
    run, manifest = importing(tmp_path, export)
    assert (
        manifest.status == "failed" and "trace.sqlite is damaged: database disk image is malformed" in manifest.reason
    )
    assert "\n" not in manifest.reason and not [*run.rglob("*.sqlite*")]


@pytest.mark.parametrize(
    ("left_out", "asked"),
    [
        ("issue_stalled|pcsamp", {"stalls": "WarpStateStats", "verdict": "WarpStateStats"}),
        ("__", {"hotspots": "SourceCounters", "show": "SpeedOfLight --section Occupancy --section WarpStateStats",
                "roofline": "SpeedOfLight --section MemoryWorkloadAnalysis"}),
    ],
)  # fmt: skip
@pytest.mark.fault("a profile of ncu without a section", "it is named, with the option that collects it")
def test_a_section_not_collected_is_named(fiprof: Fiprof, tmp_path: Path, left_out: str, asked: dict[str, str]) -> None:
    names, *rows_ = csv.reader(io.StringIO((NCU / "full.raw.csv").read_text()))
    kept = [n for n, name in enumerate(names) if name == "gpu__time_duration.sum" or not re.search(left_out, name)]
    with (tmp_path / "part.csv").open("w") as part:
        csv.writer(part, quoting=csv.QUOTE_ALL).writerows([[row[n] for n in kept] for row in (names, *rows_)])
    run, _ = importing(tmp_path, tmp_path / "part.csv")
    for command, sections in asked.items():
        printed = fiprof(command, str(run))
        assert f"section {sections}" in " ".join((printed.stdout + printed.stderr).split())
        assert "nsys profile" not in printed.stderr


COLUMNS = "start, end, deviceId, streamId, correlationId, globalPid, demangledName"


@pytest.mark.fault("a generated column, a table with thousands of digits in its version, WITHOUT ROWID", "read")
@pytest.mark.fault("a node of a CUDA graph without a time or a thread", "read")
@pytest.mark.parametrize(
    "statements",
    [
        (f"ALTER TABLE {KERNEL} ADD COLUMN took INTEGER AS (end - start)",),
        ("ALTER TABLE StringIds ADD COLUMN upper TEXT AS (upper(value))",),
        ("CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, globalTid INTEGER, graphNodeId INTEGER)",
         "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1, NULL, 1), (NULL, 1, 1)"),
        (f"CREATE TABLE {KERNEL}_V{'9' * 5000} (start INTEGER)",),
        (f"ALTER TABLE {KERNEL} RENAME TO moved",
         f"CREATE TABLE {KERNEL} ({COLUMNS}, PRIMARY KEY (correlationId)) WITHOUT ROWID",
         f"INSERT INTO {KERNEL} SELECT {COLUMNS} FROM moved"),
    ],
)  # fmt: skip
def test_an_odd_export_is_read(statements: tuple[str, ...], tmp_path: Path) -> None:
    run, manifest = importing(tmp_path, altered(tmp_path, *statements))
    assert manifest.status == "complete" and len(rows(run, "kernels")) == 184


@pytest.mark.fault("a view, or a table in lower case, in place of nsys's kernels", "one line; never an empty trace")
@pytest.mark.parametrize(
    "there", [f"CREATE VIEW {KERNEL} AS SELECT * FROM moved", f"ALTER TABLE moved RENAME TO {KERNEL.lower()}"]
)
def test_what_is_not_the_table_of_nsys_is_refused(there: str, tmp_path: Path) -> None:
    _, manifest = importing(tmp_path, altered(tmp_path, f"ALTER TABLE {KERNEL} RENAME TO moved", there))
    assert f"in place of nsys's table {KERNEL}" in manifest.reason


TIMES = {
    KERNEL: ("kernels", "end"), RUNTIME: ("api", "end"), "CUPTI_ACTIVITY_KIND_MEMCPY": ("copies", "start"),
    "NVTX_EVENTS": ("ranges", "end"), "GPU_METRICS": ("gpu_metrics", "timestamp"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("memory", "start"),
}  # fmt: skip


@pytest.mark.fault("a time that the session does not have, in any table", "the rows are left out, counted and said")
@pytest.mark.parametrize("time", [(1 << 63) - 1, -(1 << 63), 3_600_000_000_000])
def test_impossible_times_are_left_out(time: int, tmp_path: Path) -> None:
    which = {table: "WHERE eventType = 59" if table == "NVTX_EVENTS" else "" for table in TIMES}
    set_ = [
        f'UPDATE {table} SET "{column}" = {time} WHERE rowid = (SELECT max(rowid) FROM {table} {which[table]})'
        for table, (_, column) in TIMES.items()
    ]
    run = Run(importing(tmp_path, altered(tmp_path, *set_))[0])
    said = {f"{table}: 1 rows whose times are not of the session are left out" for table in TIMES}
    (check,) = failed(run)
    assert sorted(said) == sorted(check.values["rows"]) == sorted({*run.manifest.warnings} & said)  # type: ignore[arg-type]
    for ours, _ in TIMES.values():
        assert len(rows(run.path, ours)) == len(recorded(FIVE_KERNELS)[1][ours]) - 1
    for command in ("top", "timeline", "verdict"):
        assert "trace_times" in {warning["id"] for warning in answer(command, run.path)["warnings"]}


@pytest.mark.fault("an SQLite with its WAL or with a journal, copied or linked", "one line before a run is made")
@pytest.mark.fault("an SQLite of 200 GB, of which its database is a part; copies that the disk cannot hold", "likewise")
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    ("left", "line"),
    [("-wal", "is not whole without"), ("-journal", "is not whole without"), ("", "has 200,000,000,000 bytes")],
)
def test_a_database_that_is_more_than_its_file(left: str, line: str, link: bool, tmp_path: Path) -> None:
    export = altered(tmp_path)
    if left:
        (tmp_path / f"trace.sqlite{left}").write_bytes(b"7" * 100)
    else:
        os.truncate(export, 200_000_000_000)
    assert line in refused(tmp_path, export, link=link).message


@pytest.mark.fault("a disk that holds the copy of an SQLite, and not what clearing it takes", "refused in one line")
@pytest.mark.parametrize("times", [0, 1.5])
def test_a_full_disk_is_seen_before_a_copy(times: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = int(times * FIVE_KERNELS.stat().st_size)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))
    assert "copies and clearing them take" in refused(tmp_path, FIVE_KERNELS).message


@pytest.mark.fault("a trace without kernels, in which nsys says that CUDA was not traced", "said, with what to do")
def test_a_trace_without_cuda_says_so(tmp_path: Path) -> None:
    text = "UPDATE DIAGNOSTIC_EVENT SET severity = 2, text = 'No CUDA events collected. Does the process use CUDA?'"
    run, _ = importing(tmp_path, altered(tmp_path, f"DELETE FROM {KERNEL}", text))
    said = " ".join(invoke("timeline", str(run))[1].split())
    assert "CUDA was not traced: nsys said No CUDA events collected" in said and "--trace=cuda" in said


@pytest.mark.fault("memory limited (ulimit -v)", "one line, or it is done")
@pytest.mark.fault("a name outside ASCII under an ASCII locale", "read")
def test_little_memory_and_an_ascii_locale(tmp_path: Path) -> None:
    path = shutil.copy(FIVE_KERNELS, (tmp_path / "é.sqlite"))
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ("-m", "fiprof", "import", str(path), "--artifacts", str(tmp_path / "é"))
    done = ran(sys.executable, *words, env=ascii_only)
    assert done.returncode == 0 and "complete" in done.stderr
    done = ran("/bin/sh", "-c", 'ulimit -v 400000; exec "$@"', "sh", sys.executable, *words)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("fiprof: memory does not suffice")
