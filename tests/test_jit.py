"""``fiprof jit`` from the command line to the report, with a stand-in that leaves a recorded build."""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from fiprof.flashinfer.data import JitResults
from fiprof.flashinfer.jit.measure import document
from fiprof.model import results
from fiprof.reports.writers import render
from tests.conftest import REPOSITORY, Env, Fiprof, begun, python_path, ran, until
from tests.fakes.jit import DECODE


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment in which the interpreter is the stand-in, and the user has a cache."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.fakes.jit "$@"\n')
    program.chmod(0o755)
    own = tmp_path / "own" / ".cache" / "flashinfer" / "0.6.13" / "90a" / "cached_ops" / "rope"
    own.mkdir(parents=True)
    (own / "rope.so").write_text("the user's")
    (tmp_path / "scratch").mkdir()
    return {
        "FIPROF_PYTHON": str(program), "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "own"),
        "FLASHINFER_CUBIN_DIR": str(tmp_path / "own" / "cubins"), "HOME": str(tmp_path / "own"),
        "TMPDIR": str(tmp_path / "scratch"), "PYTHONPATH": python_path(),
    }  # fmt: skip


def measured(fiprof: Fiprof, tmp_path: Path, environment: Env, *words: str) -> JitResults:
    fiprof("jit", *words, "--out", "jit.json", env=environment, status=0)
    return results.read(tmp_path / "jit.json", JitResults)


def test_first_calls_in_three_states(fiprof: Fiprof, tmp_path: Path, environment: Env) -> None:
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "own").rglob("*")}
    found = measured(fiprof, tmp_path, environment, "--case", "decode", "--case", "rope")
    decode, rope = found.calls
    assert (decode.modules, rope.modules) == ([DECODE], ["rope"])
    # A cache of the user's that was read would have made the cold call warm.
    assert (rope.cold_s, rope.disk_s, rope.memory_s) == (44.311, 0.062, 0.0003)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "own").rglob("*")} == before
    assert not list((tmp_path / "scratch").iterdir())
    rows = json.loads(fiprof("jit", "--read", "jit.json", "--format", "json").stdout)["rows"]
    # By ninja's log: rope.cu from 0 to 44,153 ms, its binding from 1 to 21,790 ms, the linker from 44,153 to 44,249.
    assert (rows[1]["compile_s"], rows[1]["link_s"]) == pytest.approx((44.153, 0.096))
    for row in rows:
        assert row["compile_s"] + row["link_s"] + row["other_s"] == pytest.approx(row["cold_s"])
    module = found.modules[0]
    assert (module.name, module.bytes) == ("rope", 1024) and module.compile_s == pytest.approx(44.249)
    assert ".cache/flashinfer/0.6.13/90a/cached_ops/rope/build.ninja" in found.cache_layout
    (command,) = found.warm_up
    for format_ in ("table", "md"):
        shown = fiprof("jit", "--read", "jit.json", "--format", format_).stdout
        assert f"\n{command}\n" in shown and "csrc_rope" in shown and "44.3 s with an empty cache" in shown
    hostile = dataclasses.replace(found, modules=[dataclasses.replace(module, name="<script>\x1b[31m|")])
    assert "\\x1b" in render(document(hostile), "table") and "<script>" not in render(document(hostile), "md")


@pytest.mark.fault("secrets in the output, the records and the results of `jit --keep`", "*** in every file")
def test_kept_logs_hold_no_secret(fiprof: Fiprof, tmp_path: Path, environment: Env) -> None:
    program = Path(environment["FIPROF_PYTHON"])
    says = 'export FAKE_JIT_SAYS="$HF_TOKEN api_key=SEKRET-2"'
    said = f'echo "compiles with $HF_TOKEN and api_key=SEKRET-2"\n{says}\nexec'
    program.write_text(program.read_text().replace("exec", said))
    words, env = ("jit", "--case", "rope", "--keep", "--out", "jit.json"), {**environment, "HF_TOKEN": "SEKRET-1"}
    done = fiprof(*words, env=env, status=0)
    (kept,) = (tmp_path / "scratch").glob("fiprof-jit-*")
    assert kept.stat().st_mode & 0o077 == 0
    everything = b"".join(path.read_bytes() for path in (*kept.rglob("*"), tmp_path / "jit.json") if path.is_file())
    assert b"SEKRET" not in everything + (done.stdout + done.stderr).encode()
    assert everything.count(b"compiles with *** and api_key=***") == 2 and b'"*** api_key=***"' in everything


def test_kept_folders_and_dry_runs(fiprof: Fiprof, tmp_path: Path, environment: Env) -> None:
    done = fiprof("jit", "--kernel", "rope", "--dry-run", env=environment)
    assert done.returncode == 0 and "probe.py 'rope[tokens=16384," in done.stdout
    assert not list((tmp_path / "scratch").iterdir())
    done = fiprof("jit", "--kernel", "rope", "--keep", "--cache-dir", str(tmp_path), env=environment)
    (kept,) = tmp_path.glob("fiprof-jit-*")
    assert f"kept: {kept}" in done.stderr and (kept / "logs" / "01-empty-cache.log").exists()


def test_one_case_that_fails_does_not_end_the_others(fiprof: Fiprof, tmp_path: Path, environment: Env) -> None:
    fails = {**environment, "FAKE_JIT": "fails:tensor_cores=true"}
    plain, failed, rope = measured(fiprof, tmp_path, fails, "--kernel", "decode,rope").calls
    assert (failed.error, failed.cold_s) == ("RuntimeError: Ninja build failed.", None)
    assert plain.cold_s and rope.cold_s
    assert "decode tensor_cores: not measured: RuntimeError" in fiprof("jit", "--read", "jit.json").stdout


@pytest.mark.parametrize(
    ("behaviour", "warning"),
    [
        ("ahead", "made no module: flashinfer-jit-cache brings it ready made"),
        ("recompiles", "compiled again though the cache was full"),
    ],
)
def test_calls_that_were_warm(fiprof: Fiprof, tmp_path: Path, environment: Env, behaviour: str, warning: str) -> None:
    found = measured(fiprof, tmp_path, {**environment, "FAKE_JIT": behaviour}, "--case", "rope")
    assert any(warning in text for text in found.warnings)


@pytest.mark.parametrize(
    ("words", "behaviour", "status", "message"),
    [
        ("--kernel rope", "no-gpu", 1, "fiprof: torch sees no CUDA device\n  take a machine with one\n"),
        ("--kernel rope", "compile-error", 1, "the compiler says: /site-packages/cudaUtils.h:25:10: fatal error: cublasLt.h"),
        ("--kernel rope", "disk-full", 1, "RuntimeError: Ninja build failed.: the disk is full\n  free space, or name"),
        ("--kernel rope --timeout 1", "hang", 1, "empty cache: no end after 1 s\n  --timeout gives it longer"),
        ("--kernel nothing", "", 2, "there is no workload 'nothing'"),
        ("--kernel rope --out no/such/jit.json", "", 2, "no/such/jit.json: there is no such folder"),
    ],
)  # fmt: skip
def test_failures_say_what_to_do(
    fiprof: Fiprof, tmp_path: Path, environment: Env, words: str, behaviour: str, status: int, message: str
) -> None:
    done = fiprof("jit", *words.split(), env={**environment, "FAKE_JIT": behaviour})
    assert (done.returncode, done.stdout) == (status, "") and message in done.stderr and "Traceback" not in done.stderr
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.fault("`jit` is ended while something compiles", "the compilers end; the caches go, of a killed one with the next `jit`")  # fmt: skip
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_jit_removes_its_caches(number: signal.Signals, fiprof: Fiprof, tmp_path: Path, environment: Env) -> None:
    process = begun("jit", "--kernel", "rope", cwd=tmp_path, env={**environment, "FAKE_JIT": "hang"})
    until(lambda: any(log.stat().st_size for log in (tmp_path / "scratch").glob("*/logs/*.log")), process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert number == signal.SIGKILL or (process.returncode == 130 and "fiprof: interrupted" in said)
    if number == signal.SIGKILL:
        measured(fiprof, tmp_path, environment, "--case", "rope")
    assert not list((tmp_path / "scratch").iterdir())


TORCH = """
from types import SimpleNamespace as Some
device = Some(name="H200", major=9, minor=0, multi_processor_count=132, total_memory=1)
cuda = Some(is_available=lambda: True, synchronize=lambda: None, current_device=lambda: 0,
            get_device_properties=lambda _: device)
version = Some(cuda="13.0")
"""
WORKLOAD = """
from fiprof.workloads.rmsnorm import RMSNorm
class Mine(RMSNorm):
    name, inputs = "mine", ()
    def setup(self): return lambda: ()
"""


def test_the_probe_times_calls_and_refuses_a_cache_elsewhere(tmp_path: Path) -> None:
    """The probe is started by path, by an interpreter without fiprof; a cache elsewhere before anything is compiled."""
    files = {
        "flashinfer/__init__.py": "", "flashinfer/jit/__init__.py": "",
        "flashinfer/jit/env.py": "import os\nFLASHINFER_WORKSPACE_DIR = os.environ['CACHE']\n",
        "flashinfer_jit_cache.py": "", "torch.py": TORCH, "mine.py": WORKLOAD,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    probe, out, case = REPOSITORY / "fiprof/flashinfer/jit/probe.py", tmp_path / "out.jsonl", "site/mine.py:mine"
    for cache, status in ((tmp_path / "cache", 0), (Path("/users/own"), 1)):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site"), "CACHE": str(cache)}
        env["FLASHINFER_WORKSPACE_BASE"] = str(tmp_path)
        done = ran(sys.executable, str(probe), case, str(out), cwd=tmp_path, env=env)
        assert done.returncode == status
        *facts, last = map(json.loads, out.read_text().splitlines())
        if status:
            words = f"caches in /users/own though FLASHINFER_WORKSPACE_BASE is {tmp_path}"
            assert not facts and words in last["message"]
        else:
            assert (facts[0]["gpu"]["name"], facts[0]["compiled_ahead"]) == ("H200", ["flashinfer_jit_cache"])
            assert (last["kind"], len(last["again_s"]), last["first_s"] >= 0) == ("call", 5, True)
