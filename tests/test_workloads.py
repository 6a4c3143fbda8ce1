"""Cases, costs, plans and the runner on a machine without a GPU; the map of FlashInfer's sources; and ``fiprof jit`` from the command
line to the report, with a stand-in that leaves a recorded build."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.flashinfer.data import JitResults, SourcePlace
from fiprof.flashinfer.jit.measure import document
from fiprof.flashinfer.source_map import JIT, TOPICS, find_sources, source_map
from fiprof.model import results
from fiprof.orchestrator.run_session import gated
from fiprof.reports.writers import render
from fiprof.workloads.attention import plan_facts
from fiprof.workloads.case import parse_case
from fiprof.workloads.registry import find
from fiprof.workloads.runner import GATE_VARIABLE, await_gate
from tests.conftest import REPOSITORY, Env, Fiprof, begun, python_path, ran, until
from tests.fakes.jit import DECODE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm[rows=4", "case 'rmsnorm[rows=4': no closing ]"),
        ("rmsnorm[rows]", "case 'rmsnorm[rows]': 'rows' is not one key=value"),
        ("rmsnorm[rows=4,rows=5]", "case 'rmsnorm[rows=4,rows=5]': 'rows=5' is not one key=value"),
        ("rmsnorm[batch=4]", "rmsnorm has no parameter batch"),
        ("rmsnorm[rows=0]", "--rows: '0' is not valid (at least 1)"),
        ("rmsnorm[rows=4.5]", "--rows: '4.5' is not valid (at least 1)"),
        ("rmsnorm[dtype=fp8]", "--dtype: 'fp8' is not valid (fp16|bf16)"),
        ("decode[cuda_graph=maybe]", "--cuda-graph: 'maybe' is not valid (true|false)"),
        ("prefill[kv_heads=5]", "prefill: 32 query heads do not divide over 5 KV heads"),
    ],
)
def test_wrong_words(text: str, message: str) -> None:
    with pytest.raises(FiprofError) as caught:
        parse_case(text)
    assert (caught.value.message, caught.value.exit_code, caught.value.remedy != "") == (message, 2, True)


@given(st.text(max_size=40))
def test_any_text_is_a_case_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(FiprofError):
        case = parse_case(text)
        assert parse_case(case.id) == case


# Costs by hand: prefill 4 x 2048, causal, 32/8 heads of 128, fp16; and so on with the defaults.
@pytest.mark.parametrize(
    ("text", "flops", "bytes_read", "bytes_written"),
    [
        ("prefill", 4 * 4 * 32 * 128 * (2048 * 2049 // 2), 67_108_864 + 2 * 16_777_216, 67_108_864),
        ("prefill[causal=false]", 4 * 4 * 32 * 128 * 2048**2, 67_108_864 + 2 * 16_777_216, 67_108_864),
        ("decode", 4 * 32 * 32 * 128 * 2048, 262_144 + 268_435_456 + 4 * 32 * 128, 262_144),
        ("decode[kv_len=2049]", 4 * 32 * 32 * 128 * 2049, 262_144 + 2 * 32 * 2049 * 8 * 128 * 2 + 4 * 32 * 129, 262_144),
        ("rmsnorm", 4 * 4096**2, 2 * 4096 * 4097, 2 * 4096**2),
        ("add_then_rmsnorm", 5 * 4096**2, 2 * 4096 * 12289, 2 * 2 * 4096**2),
        ("fused_add_rmsnorm", 5 * 4096**2, 2 * 4096 * 8193, 2 * 2 * 4096**2),
        ("silu_and_mul", 5 * 4096 * 14336, 2 * 2 * 4096 * 14336, 2 * 4096 * 14336),
        ("rope", 3 * 16384 * 40 * 128, 167_772_160, 167_772_160),
        ("rope[variant=cos_sin_cache]", 3 * 16384 * 40 * 128, 167_772_160 + 16384 * 4 + 512 * 128 * 4, 167_772_160),
    ],
)  # fmt: skip
def test_costs(text: str, flops: int, bytes_read: int, bytes_written: int) -> None:
    case = parse_case(text)
    assert parse_case(case.id) == parse_case(case.argument) == case
    cost = case.build().cost()
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, bytes_read, bytes_written)


USERS_OWN = """
from dataclasses import dataclass
from fiprof.workloads.base import Cost, Workload, param

@dataclass(frozen=True)
class Params:
    width: int = param(64, "columns", low=1, high=128)

class Mine(Workload[Params]):
    name, summary, Params = "mine", "a kernel of my own", Params

    def setup(self):
        raise NotImplementedError

    def cost(self):
        return Cost(self.params.width, 1, 2)
"""


def test_an_unfinished_workload_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN.partition("    def setup")[0])
    with pytest.raises(FiprofError, match=r"the workload 'mine' in .*mine.py has no setup") as raised:
        find(f"{tmp_path / 'mine.py'}:mine")
    assert "rmsnorm.py" in raised.value.remedy


def test_a_parameter_that_collect_has_an_option_for(tmp_path: Path, fiprof: Fiprof) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN.replace("width", "seed"))
    done = fiprof("collect", "--workload", f"{tmp_path / 'mine.py'}:mine", "--dry-run", status=1)
    assert done.stderr.startswith("fiprof: a workload's parameter has the name of the command's own option --seed")


@pytest.mark.parametrize("name", ["workloads", "parsers", "orchestrator"])
def test_a_link_at_the_top_is_seen_and_not_imported(name: str) -> None:
    assert (REPOSITORY / name).is_symlink() and (REPOSITORY / name / "__init__.py").is_file()
    done = ran(sys.executable, "-c", f"import {name}", cwd=REPOSITORY)
    assert done.returncode == 1 and f"import fiprof.{name}" in done.stderr


@pytest.mark.parametrize(
    ("info", "buffer", "multiprocessors", "facts"),
    [
        # DecodePlanInfo: padded_batch_size, v, s, request, kv_tile, o_indptr, mask, kv_chunk_size_ptr, graph, split_kv.
        ([33, 0, 0, 0, 0, 0, 0, 4, 0, 1], (0, 256), 132,
         {"planner": "decode", "work_items": 33, "split_kv": True, "kv_chunk_tokens": 256}),
        ([33, 0, 0, 0, 0, 0, 0, 4, 0, 0], (0, 256), 132, {"planner": "decode", "work_items": 33, "split_kv": False}),
        # PrefillPlanInfo: padded_batch_size, rows, rows_offset, cta_tile_q, …, [9] kv_chunk_size_ptr, …, [14] split_kv.
        ([512, 8192, 0, 128, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1], (0, 0, 2048), 132,
         {"planner": "prefill", "work_items": 512, "cta_tile_q": 128, "split_kv": True, "kv_chunk_tokens": 2048}),
        # PrefillPlanSM90Info: [6] work_indptr, [8] same_schedule_for_all_heads; three blocks with 5, 4 and 4 parts.
        ([0, 0, 0, 0, 0, 0, 4, 0, 0], (99, 0, 5, 9, 13), 3,
         {"planner": "prefill sm90", "split_kv": False, "work_items": 13, "blocks": 3,
          "most_work_items_of_a_block": 5, "same_schedule_for_all_heads": False}),
        # A version that plans otherwise.
        *((info, (1,), 132, {}) for info in (None, [], [1, 2, 3], "plan", [1] * 9)),
    ],
)  # fmt: skip
def test_what_was_planned(info: object, buffer: tuple[int, ...], multiprocessors: int, facts: object) -> None:
    """FlashInfer's wrapper, as far as it is read: its plan, and its integer workspace as bytes."""
    workspace = np.array(buffer, np.int32).view(np.uint8)
    wrapper = SimpleNamespace(_plan_info=info, _pin_memory_int_workspace_buffer=workspace)
    assert plan_facts(wrapper, multiprocessors=multiprocessors) == facts
    assert plan_facts(SimpleNamespace(), multiprocessors=multiprocessors) == {}


def test_env_by_path() -> None:
    """-I: nothing of this checkout is on the path, as for an interpreter of its own."""
    done = ran(sys.executable, "-I", str(REPOSITORY / "fiprof/workloads/__main__.py"), "env", cwd="/")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packages"]["python_executable"] == sys.executable


def test_one_clear_line_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['x', 'run', '--case', 'rmsnorm']; import runpy; runpy.run_module('fiprof.workloads', run_name='__main__', alter_sys=True)"
    done = ran(sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (1, "")
    first, remedy = done.stderr.splitlines()
    assert first.startswith(f"fiprof: error: torch cannot be imported by {sys.executable}: ")
    assert "-m pip install torch flashinfer-python nvtx" in remedy


def test_a_gate_whose_owner_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gate").touch()
    monkeypatch.setenv(GATE_VARIABLE, str(tmp_path / "gate"))
    with pytest.raises(FiprofError, match="is gone"):
        await_gate()


def test_a_gate_holds_until_it_is_opened(tmp_path: Path) -> None:
    code = "from fiprof.workloads import runner; print('waiting', flush=True); runner.await_gate(); print('through')"
    env = {**os.environ, GATE_VARIABLE: str(tmp_path / "gate")}
    with gated(tmp_path / "gate") as let_through:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        let_through()
        assert process.communicate(timeout=10)[0] == "through\n"
    assert not (tmp_path / "gate").exists()


named = os.environ.get("FIPROF_TEST_FLASHINFER", "")
FOLDERS = [Path(text) for text in named.split(os.pathsep) if text] or sorted(REPOSITORY.glob(".flashinfer/*"))
INSTALLED = [folder / "flashinfer" for folder in FOLDERS if (folder / "flashinfer").is_dir()]


def test_the_interpreter_is_asked(tmp_path: Path) -> None:
    """By path, without fiprof on its path, and without importing FlashInfer; what a trace has and it lacks is missing."""
    root, program = tmp_path / "site/flashinfer", tmp_path / "python"
    (root / "norm/kernels").mkdir(parents=True)
    (root / "__init__.py").write_text("raise SystemExit('imported')\n")
    (root / "norm/__init__.py").write_text("\n\ndef rmsnorm(): ...\n")
    (root / "norm/kernels/rmsnorm.py").write_text("class RMSNormKernel: ...\n")
    # CuTe DSL's kernel has its class in its name; no CUDA kernel ran.
    dsl = "kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensor"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root.parent}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    found = find_sources(str(program), [dsl, "void at::native::elementwise_kernel<128, 2>(int)"])
    assert [(place.part, place.path, place.line) for place in found.places] == [
        ("entry", "flashinfer/norm/__init__.py", 3), ("kernel in CuTe DSL", "flashinfer/norm/kernels/rmsnorm.py", 1)
    ]  # fmt: skip
    assert SourcePlace("", "kernel", "elementwise_kernel") in found.missing
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    with pytest.raises(FiprofError, match="flashinfer is not installed for"):
        find_sources(str(program))
    with pytest.raises(FiprofError, match="cannot tell where"):
        find_sources(str(tmp_path / "none"))


@pytest.mark.parametrize("installed", INSTALLED, ids=lambda root: root.parent.name)
def test_every_place_of_an_installed_version_is_there(installed: Path) -> None:
    found = source_map(installed)
    assert found.missing == []
    assert {place.topic for place in found.places} == {*TOPICS, JIT}
    for place in found.places:
        lines = (installed.parent / place.path).read_text().splitlines()
        assert place.name in lines[place.line - 1] and lines[place.line - 1].strip().startswith(place.snippet)
        if place.part == "kernel":
            assert "__global__" in " ".join(lines[place.line - 2 : place.line])


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
