"""Fixtures that several test files share."""

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from fiprof import clock
from fiprof.model.catalogue.store import Catalogue
from fiprof.model.run import Run
from tests import postgres
from tests.fakes.recorded import UNPACKED
from tests.forks import Forks
from tests.recorded_runs import replayable, session_folder
from tests.reports_fixture import record_run

# Machines are noisy: no test fails for being slow.
settings.register_profile("fiprof", deadline=None)
settings.load_profile("fiprof")

# The workers of a session inherit it, and share the recorded runs' tables.
os.environ.setdefault("FIPROF_TEST_SESSION", str(os.getpid()))

# No test reads the day: fiprof's clock begins at this date, in every process of the session.
BEGINS = os.environ.get("FIPROF_TEST_DATE", "2026-11-23T12:00:00+01:00")
os.environ.setdefault(clock.VARIABLE, f"{BEGINS}@{time.monotonic()}")

os.environ.setdefault(UNPACKED, str(session_folder() / ".unpacked"))

# Threads that NumPy starts for nothing take a tenth of each process's time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

REPOSITORY = Path(__file__).parents[1]

Completed = subprocess.CompletedProcess[str]
Env = dict[str, str]
Fiprof = Callable[..., Completed]


def python_path() -> str:
    """PYTHONPATH with this checkout in front."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The recorded runs' tables go with the session."""
    if forks.cache_info().currsize:
        forks().close()
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(session_folder(), ignore_errors=True)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty disk of 64 MB, or of the parameter's size."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = getattr(request, "param", "64m")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "fiprof", disk], check=False).returncode:
        pytest.skip("it takes root, who mounts a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def nsys_path() -> Iterator[Path]:
    """The real nsys: FIPROF_TEST_NSYS, .nsys/ in the checkout, or PATH.

    One test at a time: nsys's processes share memory, and where several run some fail by it ("Agent launcher failed").
    """
    named = os.environ.get("FIPROF_TEST_NSYS")
    local = REPOSITORY / ".nsys/bin/nsys"
    found = named or (str(local) if local.exists() else shutil.which("nsys"))
    if not found:
        pytest.skip("no nsys: install Nsight Systems, or name one with FIPROF_TEST_NSYS")
    with (Path(tempfile.gettempdir()) / "fiprof-tests-nsys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(found)
        # It and its guard may end after the test, and take names with them that the next nsys is about to open.
        home = str(Path(found).resolve().parents[1])
        there = [each for each in psutil.process_iter(["cmdline"]) if home in " ".join(each.info["cmdline"] or ())]
        psutil.wait_procs(there, timeout=15)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """A PostgreSQL server of this session: its URL without a database."""
    if not postgres.program("initdb") or not importlib.util.find_spec("psycopg"):
        pytest.skip("no PostgreSQL: install postgresql and psycopg")
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgresql_url(postgresql_server: str) -> str:
    """A new database of it."""
    name = f"catalogue_{uuid.uuid4().hex}"
    Catalogue(f"{postgresql_server}/postgres").execute(f"CREATE DATABASE {name}")
    return f"{postgresql_server}/{name}"


@pytest.fixture(scope="session")
def five_kernels(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The pages of tests/data as a run, for reading only: ncu's six launches and nsys's trace of the five kernels."""
    return record_run(tmp_path_factory.mktemp("five-kernels") / "recorded")


@pytest.fixture(scope="session")
def light() -> Path:
    """The recorded H200 run of all five kernels to be replayed, without what takes long to read and pack."""
    return replayable("all")


@pytest.fixture
def fakes(tmp_path: Path, light: Path) -> dict[str, str]:
    """Environment in which fiprof finds the fakes for nsys, ncu and the workload's interpreter."""
    return fake_programs(tmp_path, light)


def fake_programs(folder: Path, recorded: Path) -> dict[str, str]:
    """The fakes in a folder, and the environment in which fiprof finds them."""
    programs = folder / "programs"
    programs.mkdir()
    # Without what the interpreter does of its packages' .pth files at each start, which takes half of it.
    packages = f'export PYTHONPATH="$PYTHONPATH:{sysconfig.get_path("purelib")}"\n'
    # A signal while a tool's stand-in imports is lost, and no traceback.
    first = "trap '' INT\n[ \"$1\" = --version ] && exec echo '{}'\n"
    nsys = first.format("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")
    ncu = first.format("Version 2025.3.1.0 (build 36398880) (public-release)")
    for name, first in {"nsys": nsys, "ncu": ncu, "workload": packages}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\n{first}exec "{sys.executable}" -SP "{REPOSITORY}/tests/fakes/{name}.py" "$@"\n')
        program.chmod(0o755)
    return {
        "FIPROF_NSYS": str(programs / "nsys"),
        "FIPROF_NCU": str(programs / "ncu"),
        "FIPROF_PYTHON": str(programs / "workload"),
        "FAKE_RUN": str(recorded),
        "PYTHONPATH": python_path(),
        "TMPDIR": str(folder),
        # A GPU of its own, so that no test waits for another's lock, and none of this machine's is asked.
        "CUDA_VISIBLE_DEVICES": f"GPU-{folder}",
    }


@pytest.fixture
def fiprof(tmp_path: Path) -> Fiprof:
    """Run the command line in an empty folder: ``fiprof("runs", env={…})``."""
    return functools.partial(run_fiprof, cwd=tmp_path)


@pytest.fixture
def faked(fiprof: Fiprof, fakes: Env) -> Fiprof:
    """The same with the fakes for GPU and tools: ``faked("collect", …, FAKE_NCU="no-report")``."""
    return lambda *words, status=None, **env: fiprof(*words, env={**fakes, **env}, status=status)


def ran(*argv: str, **more: Any) -> Completed:
    """A command's exit status and what it printed, as text."""
    return subprocess.run(argv, capture_output=True, text=True, check=False, **more)


def begun(*words: str, cwd: Path, env: Env, **streams: Any) -> subprocess.Popen[str]:
    """``fiprof WORD…`` in a process of its own; what it prints is read as text, unless the streams say else."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    env = {**os.environ, "PYTHONPATH": python_path(), **env}
    return subprocess.Popen([sys.executable, "-m", "fiprof", *words], cwd=cwd, env=env, text=True, **streams)


def until(there: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120) -> None:
    """Wait until something is there. A process that has ended will not bring it about."""
    deadline = time.monotonic() + seconds

    def is_there() -> object:
        # A folder may go while it is looked through.
        with contextlib.suppress(FileNotFoundError):
            return there()
        return False

    while not is_there():
        if time.monotonic() > deadline or (process and process.poll() is not None):
            said = process.communicate()[1] if process and process.poll() is not None else ""
            pytest.fail(f"it did not come to that: {said}")
        time.sleep(0.01)


@functools.cache
def forks() -> Forks:
    """This process's; its end ends it."""
    return Forks()


def run_fiprof(*arguments: str, cwd: Path, env: Env | None = None, status: int | None = None) -> Completed:
    """``fiprof ARGUMENT…``. status: that it has to end with."""
    env = {**os.environ, "PYTHONPATH": python_path(), "NO_COLOR": "1", "COLUMNS": "120", **(env or {})}
    ended = forks().run(arguments, cwd, env)
    assert status in (None, ended.status), ended.stderr
    return Completed(("fiprof", *arguments), ended.status, ended.stdout, ended.stderr)


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)
    return False
