"""``fiprof jit`` from the command line to the report, with a stand-in that leaves a recorded build."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fiprof.flashinfer.jit import measure as jit
from fiprof.flashinfer.jit import records as jit_records
from fiprof.flashinfer.results import JitCall, JitResults
from fiprof.model import results
from fiprof.orchestrator.process import Finished
from tests.conftest import Fiprof, python_path

DECODE = "batch_decode_with_kv_cache_dtype_q_f16_dtype_kv_f16_dtype_o_f16_dtype_idx_i32_head_dim_qk_128_head_dim_vo_128_posenc_0_use_swa_False_use_logits_cap_False"


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
        "FIPROF_PYTHON": str(program),
        "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "own"),
        "FLASHINFER_CUBIN_DIR": str(tmp_path / "own" / "cubins"),
        "HOME": str(tmp_path / "own"),
        "TMPDIR": str(tmp_path / "scratch"),
        "PYTHONPATH": python_path(),
    }


def measured(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str], *words: str) -> JitResults:
    done = fiprof("jit", *words, "--out", "jit.json", env=environment)
    assert done.returncode == 0, done.stderr
    return results.read(tmp_path / "jit.json", JitResults)


def test_first_calls_in_three_states(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]) -> None:
    found = measured(fiprof, tmp_path, environment, "--case", "decode", "--case", "rope")
    decode, rope = found.calls
    assert decode.modules == [DECODE]
    assert rope.modules == ["rope"]
    assert rope.cold_s == pytest.approx(44.261 + 0.05, abs=1e-3)
    assert rope.disk_s == pytest.approx(0.012 + 0.05, abs=1e-3)
    assert rope.memory_s == 0.0003
    assert [module.name for module in found.modules] == ["rope", DECODE]
    assert found.warm_up_s is not None
    assert found.environment["nvcc"] == "13.0.88"
    rows = json.loads(fiprof("jit", "--read", "jit.json", "--format", "json").stdout)["rows"]
    parts = ("generate", "compile", "link", "load", "other", "launch")
    assert [sum(row[f"{name}_s"] or 0 for name in parts) for row in rows] == pytest.approx(
        [row["cold_s"] for row in rows]
    )
    for call in found.calls:
        assert sum(phase.seconds for phase in call.phases) == pytest.approx(call.cold_s, abs=1e-6)
        assert sum(phase.seconds for phase in call.disk_phases) == pytest.approx(call.disk_s, abs=1e-6)


def test_where_the_time_of_a_cold_call_goes(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]) -> None:
    (rope,) = measured(fiprof, tmp_path, environment, "--kernel", "rope").calls
    seconds = {phase.name: phase.seconds for phase in rope.phases}
    # By ninja's log: rope.cu from 0 to 44,153 ms, its binding from 1 to 21,790 ms, the linker from 44,153 to 44,249.
    assert seconds["compile"] == pytest.approx(44.153)
    assert seconds["link"] == pytest.approx(0.096)
    # By the probe's timers: 74 µs of generator and 5.4 ms of build file; 2.1 ms of load.
    assert seconds["generate"] == pytest.approx(0.00544, abs=1e-5)
    assert seconds["load"] == pytest.approx(0.0021, abs=1e-5)
    assert seconds["launch"] == pytest.approx(0.05, abs=1e-6)
    assert 0 < seconds["other"] < 0.01
    assert next(p.detail for p in rope.phases if p.name == "compile") == "2 sources, 65.9 s of compilers side by side"


def test_the_users_cache_is_left_alone(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "own").rglob("*")}
    found = measured(fiprof, tmp_path, environment, "--kernel", "rope")
    # A cache that was read would have made the cold call warm.
    assert (found.calls[0].cold_s or 0) > 40
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "own").rglob("*")} == before


def test_every_folder_that_something_is_compiled_into_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHINFER_CUBIN_DIR", "/users/cubins")
    monkeypatch.setenv("FLASHINFER_NVCC_LAUNCHER", "ccache")
    request = jit.JitRequest(jit.choose_cases(["rmsnorm", "decode"]))
    commands = jit.commands(request, tmp_path)
    assert [command.step for command in commands] == [
        "01-empty-cache", "01-disk-cache", "02-empty-cache", "02-disk-cache", "03-empty-cache", "03-disk-cache",
    ]  # fmt: skip
    for number, command in enumerate(commands):
        base = tmp_path / f"cache-{number // 2 + 1}"
        folders = {name: value for name, value in command.env.items() if value.startswith("/")}
        assert set(folders) == {
            "FLASHINFER_WORKSPACE_BASE", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH",
            "CUTE_DSL_CACHE_DIR", "FLASHINFER_CUBIN_DIR",
        }  # fmt: skip
        assert all(Path(value).is_relative_to(base) for value in folders.values())
        # FLASHINFER_JIT_VERBOSE alone would mean a debug build, and a compiler's cache a warm one.
        assert command.env["FLASHINFER_JIT_DEBUG"] == "0"
        assert command.env["FLASHINFER_NVCC_LAUNCHER"] == ""
        assert f"--cache={base}" in command.argv


def test_the_scratch_folder_goes_unless_it_is_kept(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]) -> None:
    assert fiprof("jit", "--kernel", "rope", env=environment).returncode == 0
    assert not list((tmp_path / "scratch").glob("fiprof-jit-*"))
    done = fiprof("jit", "--kernel", "rope", "--keep", "--cache-dir", str(tmp_path), env=environment)
    (kept,) = tmp_path.glob("fiprof-jit-*")
    assert f"kept: {kept}" in done.stderr
    assert (kept / "logs" / "01-empty-cache.log").exists()


def test_the_warm_up_makes_every_module_and_can_be_copied(
    fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]
) -> None:
    found = measured(fiprof, tmp_path, environment, "--kernel", "decode,rope")
    (command,) = found.warm_up
    assert "flashinfer.jit.rope.gen_rope_module()" in command
    assert (
        "gen_batch_decode_module(torch.float16, torch.float16, torch.float16, torch.int32, 128, 128, 0, False"
        in command
    )
    # build_jit_specs leaves ninja's log where a first load does not look: FlashInfer compiles again.
    assert "build_jit_specs" not in command
    for format_ in ("table", "md"):
        shown = fiprof("jit", "--read", "jit.json", "--format", format_).stdout
        assert f"\n{command}\n" in shown


def test_a_module_whose_arguments_cannot_be_written_is_warmed_up_by_a_run() -> None:
    call = JitCall("rope[tokens=1]", 1.0, None, None, ["rope", "other"], [])
    lines, code = jit_records.warm_up_commands(
        {"rope": {"module": "m", "function": "gen_rope_module", "args": ""}}, [call]
    )
    assert lines[1] == "python -m fiprof.workloads run --case 'rope[tokens=1]' --measure-iterations 1 --no-check"
    assert "[m.gen_rope_module()]" in code


def test_one_case_that_fails_does_not_end_the_others(
    fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]
) -> None:
    found = measured(
        fiprof, tmp_path, {**environment, "FAKE_JIT": "fails:tensor_cores=true"}, "--kernel", "decode,rope"
    )
    plain, failed, rope = found.calls
    assert failed.error == "RuntimeError: Ninja build failed."
    assert failed.cold_s is None
    assert plain.cold_s and rope.cold_s
    assert "decode tensor_cores: not measured: RuntimeError" in fiprof("jit", "--read", "jit.json").stdout


@pytest.mark.parametrize(
    ("behaviour", "warning"),
    [
        ("ahead", "flashinfer-jit-cache brings rope ready made: their cold calls compile nothing"),
        ("recompiles", "compiled again though the cache was full"),
        ("untraced", "made no module for it"),
    ],
)
def test_a_cold_call_that_is_none_is_told(
    fiprof: Fiprof, tmp_path: Path, environment: dict[str, str], behaviour: str, warning: str
) -> None:
    found = measured(fiprof, tmp_path, {**environment, "FAKE_JIT": behaviour}, "--case", "rope")
    assert any(warning in text for text in found.warnings)
    assert [(module.compiled_ahead, module.compile_s is None) for module in found.modules] == {
        "ahead": [(True, True)], "recompiles": [(False, False)], "untraced": [],
    }[behaviour]  # fmt: skip
    if behaviour == "untraced":
        assert [(phase.name, phase.seconds) for phase in found.calls[0].phases] == [("launch", found.calls[0].cold_s)]
        assert found.warm_up == []


@pytest.mark.parametrize(
    ("words", "behaviour", "status", "message"),
    [
        ("--kernel rope", "no-gpu", 1, "fiprof: torch sees no CUDA device\n  take a machine with one\n"),
        ("--kernel rope", "compile-error", 1, "the compiler says: /site-packages/cudaUtils.h:25:10: fatal error: cublasLt.h"),
        ("--kernel rope", "disk-full", 1, "RuntimeError: Ninja build failed.: the disk is full\n  free space, or name"),
        ("--kernel rope --timeout 1", "hang", 1, "empty cache: no end after 1 s\n  --timeout gives it longer"),
        ("--kernel nothing", "", 2, "there is no workload 'nothing'"),
        ("--case rope[tokens=x]", "", 2, "--tokens: 'x' is not valid"),
        ("--kernel rope --out no/such/jit.json", "", 2, "no/such/jit.json: there is no such folder"),
    ],
)  # fmt: skip
def test_failures_say_what_to_do(
    fiprof: Fiprof, tmp_path: Path, environment: dict[str, str], words: str, behaviour: str, status: int, message: str
) -> None:
    done = fiprof("jit", *words.split(), env={**environment, "FAKE_JIT": behaviour})
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "scratch").glob("fiprof-jit-*"))


def test_ctrl_c_ends_the_compilers_and_removes_the_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fiprof", "jit", "--kernel", "rope"],
        env={**os.environ, **environment, "FAKE_JIT": "hang"}, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (logs := list((tmp_path / "scratch").glob("fiprof-jit-*/logs/*.log"))) or not logs[0].stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "fiprof: interrupted" in said
    assert not list((tmp_path / "scratch").glob("fiprof-jit-*"))


def test_dry_run_prints_what_a_run_starts(fiprof: Fiprof, tmp_path: Path, environment: dict[str, str]) -> None:
    done = fiprof("jit", "--kernel", "rope", "--dry-run", env=environment)
    assert done.returncode == 0
    assert f"{environment['FIPROF_PYTHON']} " in done.stdout
    assert "probe.py 'rope[tokens=16384," in done.stdout
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory\n", "the linker cannot find -lcuda"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", "for want of memory"),
        ("nothing of note\n", "ended with exit status 1"),
    ],
)
def test_what_a_log_says_of_a_failure(log: str, words: str) -> None:
    finished = Finished("failed", 1, "2026-01-01T00:00:00+00:00", 1.0, "ended with exit status 1")
    assert words in jit_records.explain(None, finished, log)[0]
