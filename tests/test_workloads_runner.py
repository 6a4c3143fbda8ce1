"""The runner on a machine without a GPU, and started by an interpreter that does not have fiprof."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fiprof.workloads

RUNNER = Path(fiprof.workloads.__path__[0]) / "__main__.py"


def start(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # -I: nothing of this checkout is on the path, as for an interpreter of its own.
    return subprocess.run(
        [sys.executable, "-I", str(RUNNER), *arguments],
        capture_output=True,
        text=True,
        env={**clean, **(env or {})},
        cwd="/",
        check=False,
    )


def test_env_by_path() -> None:
    done = start("env")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packages"]["python_executable"] == sys.executable


def test_one_clear_line_without_a_gpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("flashinfer", reason="flashinfer is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = start("run", "--case", "rmsnorm")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == (
        "fiprof: error: no CUDA device: kernels can only be run on a machine with an NVIDIA GPU"
    )


def test_one_clear_line_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['x', 'run', '--case', 'rmsnorm']; import runpy; runpy.run_module('fiprof.workloads', run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    first, remedy = done.stderr.splitlines()
    assert first.startswith(f"fiprof: error: torch cannot be imported by {sys.executable}: ")
    assert "-m pip install torch flashinfer-python nvtx" in remedy


def test_wrong_use() -> None:
    done = start("run", "--case", "prefil")
    assert done.returncode == 2
    assert done.stderr.startswith("fiprof: error: there is no workload 'prefil'\n")


def test_a_gate_whose_owner_died(tmp_path: Path) -> None:
    from fiprof.errors import FiprofError
    from fiprof.workloads.runner import GATE_VARIABLE, await_gate

    (tmp_path / "gate").touch()
    os.environ[GATE_VARIABLE] = str(tmp_path / "gate")
    try:
        with pytest.raises(FiprofError, match="is gone"):
            await_gate()
    finally:
        del os.environ[GATE_VARIABLE]


def test_a_gate_holds_until_it_is_opened(tmp_path: Path) -> None:
    from fiprof.orchestrator.run_session import Gate

    code = (
        "from fiprof.workloads.runner import await_gate; print('waiting', flush=True); await_gate(); print('through')"
    )
    with Gate(tmp_path / "gate") as held:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, **held.env}
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        held.open()
        assert process.communicate(timeout=10)[0] == "through\n"
    assert not (tmp_path / "gate").exists()
