"""A study that is interrupted, as a user sees it: a GPU's part is replayed by stand-ins, all else is real."""

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Env, Fiprof, begun, fake_programs, run_fiprof, until
from tests.recorded_runs import replayable

STUDY = """
name = "small"
[settings]
ncu_set = "quick"
batch_cases = 4
[[cases]]
workload = "decode"
batch = [1, 8, 32]
tensor_cores = [false, true]
"""

TENSOR = "kv_len=2048,q_heads=32,kv_heads=8,head_dim=128,page_size=16,tensor_cores=true"
"""Of the id of a case that is no anchor: those are in each batch."""


@pytest.fixture(scope="module")
def light() -> Path:
    """The run that stands for the GPU."""
    return replayable("decode")


@pytest.fixture
def study(tmp_path: Path, fakes: Env) -> dict[str, str]:
    """Environment in which ``fiprof study small.toml`` finds its tools."""
    (tmp_path / "small.toml").write_text(STUDY)
    return fakes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, light: Path) -> Path:
    """A complete study, to be copied."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.toml").write_text(STUDY)
    words = ("study", "small.toml", "--out", "whole", "--no-documents")
    done = run_fiprof(*words, cwd=folder, env=fake_programs(folder, light))
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
    return folder / "whole"


def cases(folder: Path) -> list[dict[str, Any]]:
    """The study's cases without the names of the runs that hold them."""
    found: list[dict[str, Any]] = json.loads((folder / "results/decode.json").read_text())["cases"]
    return [{key: value for key, value in case.items() if key != "run"} for case in found]


def measured(folder: Path) -> Counter[str]:
    """Case id -> the complete runs that hold it."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("2*/run.json")]
    assert {manifest["status"] for manifest in manifests} <= {"complete"}
    return Counter(case["id"] for manifest in manifests for case in manifest["cases"])


def test_ctrl_c_ends_in_order_and_says_how_to_go_on(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    """And what is measured then is what an undisturbed study has; kills: tests/test_kills.py."""
    words = ("study", "small.toml", "--out", "folder", "--no-documents")
    with begun(*words, cwd=tmp_path, env={**study, "FAKE_HANGS": "batch=1,"}) as process:
        until(lambda: list(tmp_path.glob("folder/2*/run.json")), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("fiprof: interrupted\n  the same command goes on where it was: folder\n")
    sessions = json.loads((tmp_path / "folder/study.json").read_text())["sessions"]
    assert [(session["status"], len(session["batches"])) for session in sessions] == [("interrupted", 1)]
    info = json.loads((tmp_path / "folder/results/environment_info.json").read_text())
    assert (info["cases"], info["status"], info["missing"]) == (2, "incomplete", {"decode": 4})
    done = fiprof("study", "small.toml", "--out", "folder", "--no-documents", env=study, status=0)
    assert done.stderr.startswith("4 of 6 cases to measure, in 1 batch for 1 GPU\n")
    assert (measured(tmp_path / "folder"), cases(tmp_path / "folder")) == (measured(whole), cases(whole))
    assert (set(measured(whole).values()), len(cases(whole))) == ({1}, 6)


def test_a_complete_study_is_not_measured_again(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "artifacts/study-small"))
    runs, before = sorted(folder.glob("2*")), cases(folder)
    (folder / "results/decode.json").unlink()
    fiprof("study", "small.toml", "--no-documents", env={**study, "FAKE_WORKLOAD": "exit3"}, status=0)
    assert (sorted(folder.glob("2*")), cases(folder)) == (runs, before)
    (folder / "results/decode.json").unlink()
    assert fiprof("study", "small.toml", "--results-only", env=study).returncode == 0
    assert cases(folder) == before
    assert (folder / "reports/INDEX.html").stat().st_size > 0


def test_cases_that_fail_or_end_their_process_lose_no_batch(fiprof: Fiprof, study: Env, tmp_path: Path) -> None:
    """All cases of one batch fail, and of the other one ends its process: it stays failed."""
    env = {**study, "FAKE_FAILS": "batch=32,", "FAKE_DIES": f"batch=8,{TENSOR}"}
    done = fiprof("study", "small.toml", "--no-documents", env=env, status=0)
    assert "does not fit in the GPU's memory" in done.stderr
    folder = tmp_path / "artifacts/study-small"
    skipped = {case["id"]: case["skipped"] for case in cases(folder) if case["plain"] is None}
    memory, died = "failed: does not fit in the GPU's memory", "failed: plain: failed, ended by SIGABRT"
    assert sorted(skipped.values()) == [memory, memory, died]
    assert all((f"batch=8,{TENSOR}" in name) == ("SIGABRT" in why) for name, why in skipped.items())
    info = json.loads((folder / "results/environment_info.json").read_text())
    assert (info["cases"], info["skipped"], info["status"]) == (3, 3, "complete")
    before = measured(folder)
    assert fiprof("study", "small.toml", "--no-documents", env=study).returncode == 0
    assert measured(folder) == before


def test_what_is_no_cases_fault_ends_the_study_and_keeps_the_rest(fiprof: Fiprof, study: Env, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts/study-small"
    failures = {"permission": "ncu may not read the GPU's counters", "no-kernels": "ncu profiled no kernel"}
    for failure, message in failures.items():
        done = fiprof("study", "small.toml", "--no-documents", env={**study, "FAKE_NCU": failure})
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
        manifest = json.loads((folder / "study.json").read_text())
        assert (manifest["failed"], {session["status"] for session in manifest["sessions"]}) == ({}, {"failed"})
    assert fiprof("study", "small.toml", "--no-documents", env=study).returncode == 0
    assert (set(measured(folder).values()), len(cases(folder))) == ({1}, 6)
    assert len(list((folder / "set-aside").glob("2*/run.json"))) == 2


def test_other_settings_are_refused(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "artifacts/study-small")
    (tmp_path / "small.toml").write_text(STUDY.replace('"quick"', '"full"'))
    done = fiprof("study", "small.toml", "--no-documents", env=study)
    assert done.returncode == 2
    assert "was measured with another ncu_set: ncu_set quick, now full" in done.stderr
