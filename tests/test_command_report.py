"""fiprof report: what it writes and where, and what it says when it cannot."""

import csv
import hashlib
import io
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Fiprof, ran
from tests.recorded_runs import invoke, parsed, refusal, replayed
from tests.reports_fixture import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the recorded run in the archive of the test's folder."""
    recorded = replayed("all").path
    return Path(shutil.copytree(recorded, tmp_path / "artifacts" / recorded.name))


def test_it_writes_both_into_the_run_folder(fiprof: Fiprof, run: Path) -> None:
    shutil.rmtree(run / "tables")
    done = fiprof("report", "latest", status=0)
    name = f"artifacts/{run.name}"
    assert done.stdout.splitlines() == [f"{name}/report.md", f"{name}/report.html"]
    assert done.stderr == f"making the tables of {name}\n"
    title = "# FlashInfer prefill, decode, norms and RoPE on NVIDIA H200\n"
    assert (run / "report.md").read_text(encoding="utf-8").startswith(title)
    assert (run / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert not list(run.glob(".report*"))


def test_several_runs_go_into_a_folder_of_their_own(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    other = run.with_name("20261121-999999-other")
    shutil.copytree(run, other)
    done = fiprof("report", run.name, other.name, "--format", "md", status=0)
    assert done.stdout == "report/report.md\n"
    text = (tmp_path / "report/report.md").read_text(encoding="utf-8")
    assert text.startswith("# 2 runs of FlashInfer prefill, decode, norms and RoPE") and "differ in" not in text


def test_the_bundle(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    done = fiprof("report", "latest", "--bundle", "send.zip", status=0)
    assert done.stdout.splitlines()[-1] == "send.zip"
    with zipfile.ZipFile(tmp_path / "send.zip") as bundle:
        assert bundle.testzip() is None
        names = set(bundle.namelist())
        top = {"report.md", "report.html", "guide.md", "numbers.csv"}
        inside = {f"{run.name}/{name}" for name in (
            "run.json", "baseline.jsonl", "ncu/profile.ncu-rep", "tables/launches.csv",
            "tables/launches.parquet", "tables/gpu_metrics.parquet", "tables/checks.csv",
        )}  # fmt: skip
        assert top | inside <= names
        # Unpacked: what ncu-ui opens, with the checksum that run.json has.
        made = {
            file["path"]: file["sha256"]
            for action in json.loads(bundle.read(f"{run.name}/run.json"))["actions"]
            for file in action["files"]
        }
        name = "ncu/profile.ncu-rep"
        assert hashlib.sha256(bundle.read(f"{run.name}/{name}")).hexdigest() == made[name]
        rows = list(csv.DictReader(io.StringIO(bundle.read(f"{run.name}/tables/launches.csv").decode())))
        assert [row["launch"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
        assert rows[3]["kernel"] == "PrefillWithKVCacheKernel" and float(rows[3]["duration_ns"]) == 307872
        numbers = list(csv.DictReader(io.StringIO(bundle.read("numbers.csv").decode())))
        number = {"section": "launch-3", "text": "307.87 µs", "value": "307.872"}
        assert {**number, "source": "ncu, launch 3: gpu__time_duration.sum / 1000"} in numbers
        guide = bundle.read("guide.md").decode()
        assert guide.count(f"fiprof collect --replay {run.name}") == 1 and "-m fiprof.workloads run --case" in guide
        bundle.extractall(tmp_path / "unpacked")
    # What the guide says of the bundle holds.
    assert f"```sh\nfiprof show ./{run.name}\nfiprof report ./{run.name} --out new\n```" in guide
    shown = fiprof("show", f"./unpacked/{run.name}")
    assert shown.returncode == 0 and "PrefillWithKVCacheKernel" in shown.stdout
    code = guide.split("```python\n")[1].split("```")[0]
    done = ran(sys.executable, "-c", code, cwd=tmp_path / "unpacked")
    assert "PrefillWithKVCacheKernel" in done.stdout or "[6 rows x" in done.stdout


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    error = refusal("report", make_run(tmp_path / "run").path, "--out", "/proc/fiprof")
    assert error.message == "/proc/fiprof cannot be written: No such file or directory"
    assert error.remedy == "write it elsewhere with --out DIR"


def test_a_run_without_raw_files_still_has_a_report(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("ncu", "nsys", "tables")
    run = Path(shutil.copytree(parsed("decode").path, tmp_path / "run", ignore=left_out))
    assert invoke("report", str(run), "--format", "md")[0] == 0
    text = " ".join((run / "report.md").read_text(encoding="utf-8").split()).replace("> ", "")
    assert "no counters, occupancy and roofs: ncu ran, but its tables are not there" in text
