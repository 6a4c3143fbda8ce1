"""fiprof ended by a signal at random moments: nothing runs on, nothing is left, lost or falsely said.

Here once for each command, by SIGKILL or by one of the signals that ask, which have one handler: another each session;
``make soak`` does it 20 times by each signal, every kill a test of its own that workers share out.
FIPROF_SOAK_SEED repeats a failure's moments.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from fiprof.model import packing
from fiprof.model.keeping import HARMLESS
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.verify import verify, verify_catalogue
from tests.conftest import Completed, Env, begun, catches, fake_programs, run_fiprof, until
from tests.fakes.recorded import recorded_bytes
from tests.recorded_runs import PROGRAMS, RUNS, invoke, parsed, replayable, replayed
from tests.test_scale import STUDY

MOMENTS = int(os.environ.get("FIPROF_SOAK", "1"))
SEED = int(os.environ.get("FIPROF_SOAK_SEED") or random.randrange(1 << 32))
SIGNALS = (signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGKILL)
SESSION = zlib.crc32(os.environ["FIPROF_TEST_SESSION"].encode())
ORPHANS_S = 5
MARK = "FIPROF_TEST_MARK"
RECORDED = RUNS["decode"].name
FALSE_REASONS = ("its tables are not there", "is damaged", "cannot be read", "Traceback", "Exception ignored")


@dataclass(frozen=True)
class Scenario:
    """A command that is killed, and the next one."""

    words: tuple[str, ...]
    next: tuple[str, ...]
    prepare: Callable[[Path], None]
    real_nsys: bool = False
    longest_s: float = 3.0
    """By then it has ended, or is at what it does for long; a later moment is as good as another."""


def nothing(_: Path) -> None: ...


def packed(folder: Path) -> None:
    """A run without tables."""
    shutil.copytree(replayable("decode"), folder / "run", ignore=shutil.ignore_patterns("tables"))


def made(folder: Path) -> None:
    """A run with its tables."""
    shutil.copytree(parsed("decode").path, folder / "run")


def archived(folder: Path) -> None:
    """A run with its tables in an archive that has a catalogue."""
    shutil.copytree(replayed("decode").path, folder / "archive" / RECORDED)
    invoke("index", "--artifacts", str(folder / "archive"))


def many(folder: Path) -> None:
    """So many runs that several processes make their pages."""
    archived(folder)
    for number in range(15):
        shutil.copytree(parsed("server").path, folder / f"archive/server-{number}")


def plain(folder: Path) -> None:
    """A run with its tables, whose raw files are not packed."""
    made(folder)
    packing.unpack(folder / "run")


def foreign(folder: Path) -> None:
    """Files of nsys and ncu."""
    for name in ("nsys/trace.sqlite", "ncu/raw.csv"):
        (folder / Path(name).name).write_bytes(recorded_bytes(PROGRAMS["llama"] / name))


def study(folder: Path) -> None:
    (folder / "small.toml").write_text(STUDY)


COLLECT = ("collect", "--kernel", "decode", "--batch", "1,8", "--tensor-cores", "true")
TRACED = (*COLLECT, "--gpu-metrics-hz", "0")
COMPARE = ("compare", "--measure", "here", "env:FAKE_SLOWER=2", "--kernel", "decode", "--processes", "5")
FILES = ("compare", "trace.sqlite", "trace.sqlite", "--anyway")
STUDIES = ("study", "small.toml", "--out", "study", "--no-documents")
ARCHIVE = ("--artifacts", "archive")
GATE = ("gate", "--base", "here", "--now", "env:FAKE_SLOWER=1", *COMPARE[4:], "--junit", "gate.xml")
TREND = ("trend", "--metric", "nsys_duration_us", "--out", "page.html", *ARCHIVE)
SCENARIOS = {
    "collect": Scenario(COLLECT, ("runs",), nothing),
    "collect under nsys": Scenario(TRACED, ("runs",), nothing, real_nsys=True, longest_s=5),
    "compare": Scenario(COMPARE, ("runs",), nothing),
    "compare files": Scenario(FILES, FILES, foreign),
    "replay": Scenario(("collect", "--replay", "run"), ("runs",), packed, longest_s=1.5),
    "import": Scenario(("import", "trace.sqlite", "raw.csv"), ("runs",), foreign),
    "parse": Scenario(("parse", "run"), ("show", "run"), packed, longest_s=1.5),
    "report": Scenario(("report", "run", "--bundle", "b.zip", "--format", "md"), ("show", "run"), made),
    "export": Scenario(("export", "run", "--to", "csv", "--out", "out"), ("verify", "run"), made, longest_s=1.5),
    "pack": Scenario(("pack", "run"), ("show", "run"), plain, longest_s=1.5),
    "prune": Scenario(("prune", "--older-than", "0h", *ARCHIVE), ("verify", *ARCHIVE), archived, longest_s=1),
    "profile": Scenario(("profile", "--", "sleep", "0.2"), ("runs",), nothing, longest_s=5),
    "gate": Scenario(GATE, ("runs",), nothing),
    "baseline": Scenario(("baseline", "set", "main", RECORDED, *ARCHIVE), ("verify", *ARCHIVE), archived),
    "publish": Scenario(("publish", "site", *ARCHIVE), ("publish", "site", *ARCHIVE), many),
    "index": Scenario(("index", "--rebuild", *ARCHIVE), ("runs", *ARCHIVE), archived, longest_s=1.5),
    "tag": Scenario(("tag", f"archive/{RECORDED}", "x"), ("verify", *ARCHIVE), archived, longest_s=1),
    "export sqlite": Scenario(("export", "run", "--to", "sqlite", "--out", "x"), ("verify", "run"), made),
    "trend": Scenario(TREND, ("runs", *ARCHIVE), archived),
    "study": Scenario(STUDIES, STUDIES, study, longest_s=6),
    "study on GPUs": Scenario((*STUDIES, "--on", "local"), (*STUDIES, "--on", "local"), study, longest_s=8),
}
OF_SCENARIO = {name: {*SIGNALS} if MOMENTS > 1 else {SIGNALS[(SESSION + n) % 6]} for n, name in enumerate(SCENARIOS)}
KILLS = [pytest.param(name, one, id=f"{name}-{one.name}") for name, some in OF_SCENARIO.items() for one in some]


class Kill(NamedTuple):
    """What came of one."""

    moment_s: float
    status: int
    stdout: str
    stderr: str
    orphans: list[str]
    """What ran on for longer than ORPHANS_S."""


@pytest.mark.fault("any command ended at random moments by INT, TERM, HUP, KILL", "nothing runs on, is left or lost")
@pytest.mark.parametrize("turn", range(MOMENTS))
@pytest.mark.parametrize(("name", "number"), KILLS)
def test_killed(name: str, number: signal.Signals, turn: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    scenario = SCENARIOS[name]
    env = {**fake_programs(tmp_path, replayable("decode")), "XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_COLOR": "1"}
    if scenario.real_nsys:
        env["FIPROF_NSYS"] = str(request.getfixturevalue("nsys_path"))
    scenario.prepare(tmp_path)
    before = raw_files(tmp_path)
    moment_s = random.Random(f"{SEED} {name} {number} {turn}").uniform(0, scenario.longest_s)
    kill = killed(scenario, tmp_path, env, number, moment_s)
    again = run_fiprof(*scenario.next, cwd=tmp_path, env=env)
    try:
        check(kill, number, again, before, tmp_path, env)
    except AssertionError as error:
        pytest.fail(
            f"FIPROF_SOAK={MOMENTS} FIPROF_SOAK_SEED={SEED}, at {kill.moment_s:.3f} s: {error}\nstatus {kill.status}\n"
            f"{kill.stdout[-1500:]}{kill.stderr[-1500:]}\nnext: {again.stderr[-1500:]}"
        )
    shutil.rmtree(tmp_path)


def lasting(found: Callable[[], list[Any]], seconds: float = ORPHANS_S) -> list[Any]:
    """What is still there after that time."""
    deadline = time.monotonic() + seconds
    while (left := found()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def left_by_nsys(folder: Path) -> list[Path]:
    """What nsys wrote into the temporary folder, but for its locks and a program's exit status."""
    return [*folder.glob("nsys-*"), *folder.glob("nvidia/**/*log")]


@pytest.mark.fault("fiprof is ended while nsys traces", "nsys's trace so far, with the environment, and its logs go from the temporary folder, its semaphores from memory")  # fmt: skip
@pytest.mark.parametrize("number", [SIGNALS[SESSION % 6], signal.SIGKILL], ids=["one of all", "SIGKILL"])
def test_an_ended_nsys_leaves_nothing(number: signal.Signals, nsys_path: Path, tmp_path: Path) -> None:
    (tmp_path / "program.sh").write_text("echo $$ > pid\nexec sleep 60\n")
    env = {**fake_programs(tmp_path, replayable("decode")), "FIPROF_NSYS": str(nsys_path)}
    ended: int | None = 0
    left = list[Path]()
    # Now and then nsys ends by itself ("End of file") where another one has just been killed, perhaps right before the
    # signal: then nobody has its files open any more.
    for _ in range(3):
        (tmp_path / "pid").unlink(missing_ok=True)
        with begun("profile", "--tool", "nsys", "--", "sh", "program.sh", cwd=tmp_path, env=env) as run:
            try:
                until(lambda: run.poll() or ([*tmp_path.glob("nsys-report-*.qdstrm")] and (tmp_path / "pid").exists()))
            finally:
                ended = run.poll()
                run.send_signal(number)
        if ended is None:
            left = lasting(lambda: left_by_nsys(tmp_path), 2 * ORPHANS_S)
            traced = (tmp_path / "pid").read_text().strip()
            left += Path("/dev/shm").glob(f"*nsys_sem_{traced}")
            if not left:
                break
        for each in left_by_nsys(tmp_path):
            each.unlink()
    assert ended is None and left == []


def killed(scenario: Scenario, folder: Path, env: dict[str, str], number: signal.Signals, moment_s: float) -> Kill:
    mark = uuid.uuid4().hex
    process = begun(*scenario.words, cwd=folder, env={**env, MARK: mark})
    began = time.monotonic()
    # Before, the signal is Python's own, not yet fiprof's.
    while number != signal.SIGKILL and process.poll() is None and not catches(process.pid, signal.SIGHUP):
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment_s)
    moment_s = time.monotonic() - began
    process.send_signal(number)
    process.wait(60)
    orphans = lasting(lambda: marked(mark))
    stdout, stderr = process.communicate(timeout=10)
    return Kill(moment_s, process.returncode, stdout, stderr, orphans)


def check(kill: Kill, number: signal.Signals, again: Completed, before: Env, folder: Path, env: Env) -> None:
    hard = number == signal.SIGKILL
    ended_by_itself = (0, 1) if env["FIPROF_NSYS"].endswith("bin/nsys") else (0,)
    assert kill.status in (*ended_by_itself, -number if hard else 128 + number) and not kill.orphans
    assert not [text for text in FALSE_REASONS if text in kill.stderr + again.stderr + again.stdout]
    assert again.returncode == 0, again.stderr
    left = [path for path in folder.rglob(".*") if path.name not in (".lock", ".export")]
    assert not left + [path for path in folder.glob("fiprof-*") if path.suffix != ".lock"] + left_by_nsys(folder)
    after = raw_files(folder)
    assert {name: after.get(name) for name in before} == before
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("artifacts/[!.]*/run.json"))]
    for manifest in runs:
        assert manifest["status"] in ("complete", "interrupted", "failed")
        complete = manifest["status"] == "complete"
        told = complete and manifest["name"] in kill.stdout + kill.stderr  # so it was before the kill
        assert (kill.status == 0 or told) == complete or hard
        if kill.status > 1 and not told:
            assert (manifest["status"], manifest["reason"]) == ("interrupted", "interrupted")
        shown = run_fiprof("show", manifest["name"], cwd=folder, env=env)
        assert not [text for text in FALSE_REASONS if text in shown.stdout + shown.stderr], shown.stdout[:1500]
    archive = Archive(folder / "artifacts")
    verified = [verify(path.parent) for path in (*folder.glob("run/run.json"), *archive.root.glob("[!.]*/run.json"))]
    assert [each for run in verified for each in run.found if each.kind not in HARMLESS] == []
    assert verify_catalogue(archive, verified) == ()
    assert runs or kill.status or not (folder / "artifacts").exists()


def raw_files(folder: Path) -> dict[str, str]:
    """Raw files of the folder's run -> checksum of what they hold, packed or not."""
    found = {}
    for path in (path for name in ("nsys", "ncu") for path in folder.glob(f"run/{name}/*")):
        plain = path.with_suffix("") if path.suffix in (".xz", ".zst") else path
        found[str(plain.relative_to(folder))] = sha256(recorded_bytes(plain)).hexdigest()
    return found


def marked(mark: str) -> list[str]:
    """Command lines of living processes that descend from one that was started with a mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found
