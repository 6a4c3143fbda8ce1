"""fiprof.orchestrator.run_folder: run folders come about whole, and are found again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.files import clear
from fiprof.model.manifest import read_manifest
from fiprof.orchestrator.run_folder import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "artifacts")


def finished(archive: Archive, label: str) -> Path:
    return archive.create(label).finish("complete", "")


def test_two_collects_in_the_same_second_get_two_folders(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIPROF_CLOCK", f"2026-11-21T10:15:30@{time.monotonic()}")
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(archive.create("prefill").name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stem = "20261121-101530-prefill"
    assert sorted(names) == sorted([stem, *(f"{stem}-{n}" for n in range(2, 9))])


def test_runs_are_found_by_path_name_prefix_and_latest(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = finished(archive, "decode"), finished(archive, "prefill")
    for text in (str(first), first.name, first.name[:-2], str(first)[:-2], f"{first.name[:-2]}…"):
        assert archive.find(text) == first, text
    assert archive.find("latest") in (first, second)
    monkeypatch.chdir(archive.root.parent)
    assert Archive(Path("artifacts")).find(f"artifacts/{second.name[:-3]}").name == second.name


@pytest.mark.fault("the time zone changed between two runs, or a manifest damaged", "`latest` is by the time in UTC")
def test_latest_is_by_the_time_of_the_start(tmp_path: Path) -> None:
    for name, started in (
        ("20261101-020000-tokyo", "2026-11-01T02:00:00+09:00"),
        ("20261031-200000-london", "2026-10-31T20:00:00+00:00"),
        ("20261031-150000-new-york", "2026-10-31T18:00:00-04:00"),
        ("20260101-000000-damaged", 7),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"started": started}))
    archive = Archive(tmp_path)
    assert [name[16:] for name in archive.by_time()] == ["damaged", "tokyo", "london", "new-york"]
    assert archive.find("latest").name == "20261031-150000-new-york"


def test_a_prefix_of_several(archive: Archive) -> None:
    first, second = finished(archive, "decode"), finished(archive, "prefill")
    with pytest.raises(FiprofError) as caught:
        archive.find(first.name[:4])
    assert caught.value.message == f"{first.name[:4]} fits 2 runs: {first.name}, {second.name}"
    assert caught.value.exit_code == 2


def test_a_full_disk_leaves_the_old_manifest(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    run = archive.create("rope")
    run.save()

    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FiprofError, match="the disk is full"):
        run.finish("complete", "")
    folder = archive.root / run.name
    assert read_manifest(folder).status == "interrupted"
    assert sorted(os.listdir(folder)) == ["logs", "run.json", "tables"]


HOLD = """
import sys
from pathlib import Path
from fiprof.files import atomic_write, scratch
with scratch(Path(sys.argv[1])) as folder, atomic_write(Path(sys.argv[1], "file")) as partial:
    (folder / "large").write_text("…")
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.fault("temporaries of a killed fiprof", "the next one that works in the folder removes them")
def test_temporaries_of_a_killed_process_go_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    killed, living = (subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2))
    for process in (killed, living):
        assert process.stdout is not None
        process.stdout.readline()
    assert len(os.listdir(tmp_path)) == 6
    killed.kill()
    killed.communicate()
    clear(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", "", ".d"]
    living.communicate()
    assert os.listdir(tmp_path) == ["file"]


def test_a_study_is_no_run_and_says_which_runs_it_has(tmp_path: Path) -> None:
    study = tmp_path / "study-mine"
    (study / "20261121-101530-decode").mkdir(parents=True)
    (study / "study.json").write_text("{}")
    (study / "20261121-101530-decode/run.json").write_text("{}")
    for text in ("study-mine", str(study)):
        with pytest.raises(FiprofError) as caught:
            Archive(tmp_path).find(text)
        assert caught.value.message == f"{study} is a study, not a run; its runs: 20261121-101530-decode"
        assert "reports/INDEX.md" in caught.value.remedy
    assert Archive(tmp_path).find(f"{study}/2026").name == "20261121-101530-decode"
