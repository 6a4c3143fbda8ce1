"""The runs recorded in artifacts/recorded, by name; their tables are made once a test session, whoever needs them."""

import contextlib
import fcntl
import json
import lzma
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fiprof.cli.main import cli
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.orchestrator.parse import parse_all
from fiprof.parsers import nsys

RECORDED = Path(__file__).parents[1] / "artifacts/recorded"

RUNS = {
    "all": RECORDED / "20261121-120959-all",
    "decode": RECORDED / "20261121-121126-decode",
    "prefill-decode-rope": RECORDED / "20261121-121221-prefill-decode-rope",
    "single-purpose": RECORDED / "20261121-140226-single-purpose",
    "troubles": RECORDED / "20261122-074108-troubles",
}
"""What a run is called here -> its folder in the repository, without tables."""

PROGRAMS = {
    "llama": RECORDED / "20261122-111810-llama", "ranks": RECORDED / "20261122-114933-ranks",
    "tworanks": RECORDED / "20261122-115032-tworanks", "vectors": RECORDED / "20261122-115037-vectors",
    "graph": RECORDED / "20261122-115055-graph", "server": RECORDED / "20261122-115145-server",
    "server again": RECORDED / "20261122-115151-server", "window": RECORDED / "20261122-141525-window",
}  # fmt: skip
"""Runs of ``fiprof profile``, ``capture`` and (tworanks) ``import`` on H200s, of programs of examples/."""

ON_H100 = {
    "all": RECORDED / "20261123-210027-all",
    "single-purpose": RECORDED / "20261123-213030-single-purpose",
    "troubles": RECORDED / "20261123-205826-troubles",
    "llama": RECORDED / "20261123-210120-llama",
}
"""The same kernels and program as above on an H100; their tables of verdicts hold on both."""

EXAMS = {
    "exam": {"H100": RECORDED / "20261123-212123-exam", "H200": RECORDED / "20261123-214021-exam"},
    "unseen": {"H100": RECORDED / "20261124-153946-unseen", "H200": RECORDED / "20261124-161606-unseen"},
    "fresh": {"H100": RECORDED / "20261126-124612-fresh", "H200": RECORDED / "20261126-130725-fresh"},
    "last": {"H100": RECORDED / "20261126-132435-last", "H200": RECORDED / "20261126-204836-last"},
    "serving": {"H200": RECORDED / "20261124-061446-serving"},
}
"""exam_kernels.py, unseen_kernels.py, … by the model of GPU; without samples of the GPU's metrics."""

STUDY = RECORDED / "study-flashinfer-quick"
STUDY_RUNS = {f"study {path.parent.name[16:]}": path.parent for path in sorted(STUDY.glob("*/run.json"))}
"""The runs of the recorded study."""

OTHERS = ".others"
"""Where the session keeps what the tests of the archive do not know."""


def session_folder() -> Path:
    """A folder that the workers of this test session share; conftest.py removes it."""
    return Path(tempfile.gettempdir()) / f"fiprof-tests-{os.environ['FIPROF_TEST_SESSION']}"


def once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker who asks for it makes, and all share: for reading only."""
    folder = session_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = folder.with_name(f"making-{folder.name}")
            make(making)
            making.rename(folder)
    return folder


def parsed(name: str) -> Run:
    """One of RUNS, PROGRAMS or STUDY_RUNS with all its tables."""
    return _parsed({**RUNS, **PROGRAMS, **STUDY_RUNS}[name])


def on_h100(name: str) -> Run:
    """One of ON_H100 likewise."""
    return _parsed(ON_H100[name], OTHERS)


def exam(name: str, model: str) -> Run:
    """One of EXAMS likewise."""
    return _parsed(EXAMS[name][model], OTHERS)


def served(name: str) -> Run:
    """A program of ``tests/data/story``, its trace or those of its ranks imported."""
    return imported(*sorted((Path(__file__).parent / "data/story").glob(f"{name}*.sqlite.xz")), name=name)


def imported(*packed: Path, name: str) -> Run:
    """What an import makes of packed traces."""

    def make(archive: Path) -> None:
        archive.mkdir()
        traces = [archive / each.stem for each in packed]
        for each, trace in zip(packed, traces, strict=True):
            trace.write_bytes(lzma.decompress(each.read_bytes()))
        assert invoke("import", *map(str, traces), "--name", name, "--artifacts", str(archive))[0] == 0

    archive = once(f"{OTHERS}/imported-{packed[0].parent.name}-{name}", make)
    (manifest,) = archive.glob("*/run.json")
    return Run(manifest.parent)


def a_study(into: Path) -> Path:
    """A copy of the recorded study with its runs' tables, to be changed."""
    shutil.copytree(STUDY, into, ignore=shutil.ignore_patterns("2*"))
    for run in map(parsed, STUDY_RUNS):
        shutil.copytree(run.path, into / run.path.name)
    return into


def _parsed(recorded: Path, archive: str = "") -> Run:
    def make(folder: Path) -> None:
        shutil.copytree(recorded, folder, ignore=shutil.ignore_patterns("tables"))
        assert not parse_all(folder).problems

    return Run(once(f"{archive}/{recorded.name}".strip("/"), make))


def two_ranks() -> Run:
    """A run of the recorded job of two ranks (examples/ranks.py): its trace alone."""
    from tests.nsys_exports import TWO_RANKS
    from tests.reports_fixture import write_manifest

    def make(folder: Path) -> None:
        nsys.parse(TWO_RANKS, folder / "tables")
        write_manifest(folder, name="two-ranks")

    return Run(once("two-ranks", make))


def copied(run: str | Run, into: Path) -> Path:
    """A copy of a run with its tables in the folder ``into``, to be changed."""
    path = (parsed(run) if isinstance(run, str) else run).path
    return Path(shutil.copytree(path, into / path.name))


def without_samples(recorded: Path, into: Path) -> Path:
    """A copy for stand-ins to replay: without samples of the GPU's metrics; of ncu's report the first bytes, of its
    listings the instructions with samples."""
    shutil.copytree(recorded, into)
    names = ("nsys/trace.sqlite", "ncu/profile.ncu-rep", "ncu/source.csv")
    trace, report, listings = (into / f"{name}.xz" for name in names)
    trace.with_suffix("").write_bytes(lzma.decompress(trace.read_bytes()))
    with contextlib.closing(sqlite3.connect(trace.with_suffix(""), isolation_level=None)) as connection:
        connection.execute("DELETE FROM GPU_METRICS")
        connection.execute("VACUUM")
    report.with_suffix("").write_bytes(lzma.decompress(report.read_bytes())[:4096])
    lines = lzma.decompress(listings.read_bytes()).split(b"\n")
    sampled = [line for line in lines if not line.startswith(b'"0x') or line.split(b'","')[4] != b"0"]
    listings.with_suffix("").write_bytes(b"\n".join(sampled))
    for path in (trace, report, listings):
        path.unlink()
    record_files(into)
    return into


def record_files(run: Path) -> None:
    """Have run.json say that the run made its files as they are now."""
    manifest = json.loads((run / "run.json").read_text())
    for entry in (entry for action in manifest["actions"] for entry in action["files"]):
        if (path := run / entry["path"]).exists():
            entry |= {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
    (run / "run.json").write_text(json.dumps(manifest))


def replayable(name: str) -> Path:
    """One of RUNS like that, for reading only."""
    return once(f"{OTHERS}/replayable/{RUNS[name].name}", lambda folder: without_samples(RUNS[name], folder))


def replayed(name: str) -> Run:
    """It with all its tables."""
    return _parsed(replayable(name), f"{OTHERS}/replayed")


def answer(*words: object) -> dict[str, Any]:
    """What a command answers a program."""
    status, printed = invoke(*map(str, words), "--format", "json")
    assert status == 0
    found: dict[str, Any] = json.loads(printed)
    return found


def rows(*words: object) -> list[dict[str, Any]]:
    """Its rows."""
    found: list[dict[str, Any]] = answer(*words)["rows"]
    return found


def refusal(*words: object) -> FiprofError:
    """The error that a command ends with."""
    error = CliRunner().invoke(cli, [*map(str, words)]).exception
    assert isinstance(error, FiprofError), error
    return error


def invoke(*arguments: str) -> tuple[int, str]:
    """Exit status and standard output of a command, run in this process."""
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, FiprofError):
        return result.exception.exit_code, result.stdout
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout
