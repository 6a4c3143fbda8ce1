"""``fiprof profile`` and ``fiprof capture``: what is started, what is chosen, what becomes of the program."""

import contextlib
import hashlib
import json
import math
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiprof.analysis.top import top
from fiprof.analysis.trace import standing
from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.run import Run, shape
from fiprof.orchestrator.choosing import Filter, Group, LaunchChoice, choose, traced_groups
from fiprof.orchestrator.commands import ProfileRequest
from fiprof.orchestrator.environment import program_name
from fiprof.orchestrator.parse import parse_all
from fiprof.orchestrator.profile import START_S, launch_cost, ncu_limits_s
from fiprof.parsers import torch_memory
from tests.conftest import REPOSITORY, Env, Fiprof, begun, python_path
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import altered, query
from tests.recorded_runs import answer, on_h100, parsed, replayable
from tests.reports_fixture import write_manifest
from tests.test_collect import only_run


def group(name: str, total_ns: int, count: int = 10, grid: str = "1x1x1") -> Group:
    return Group(name, name, name, grid, "128x1x1", count, total_ns)


GEMM, CAT, ADD, COPY = group("gemm", 500), [group("cat", 10, grid=f"{n}x1x1") for n in range(20)], group("add", 200), group("copy", 60)  # fmt: skip


def chosen(groups: list[Group], total_ns: int, **changes: Any) -> LaunchChoice:
    """At a second a launch."""
    request = ProfileRequest(program=("x",), **{"ncu_set": "quick", "ncu_budget_s": 120.0, **changes})
    budget_s = request.ncu_budget_s or 120.0
    return choose(groups, request, total_ns, budget_s=budget_s, cost_s=lambda _: 1.0, orders=lambda: None)


@pytest.mark.parametrize(
    ("changes", "names", "launches", "cover"),
    [
        # 960 ns in all: those with most time a launch, so that the twenty grids of cat are not needed.
        ({}, ["gemm", "add", "copy"], 3, 760 / 960),
        ({"cover_pct": 50.0}, ["gemm"], 1, 500 / 960),
        ({"cover_pct": 100.0}, ["gemm", "add", "copy", "cat"], 23, 1.0),
        ({"cover_pct": 100.0, "launches": 5}, ["gemm", "add", "copy"], 3, 760 / 960),
        ({"cover_pct": 100.0, "ncu_budget_s": 2.0}, ["gemm", "add"], 2, 700 / 960),
        ({"kernel": "^(add|cat)$"}, ["add", "cat"], 21, 400 / 960),
        ({"count": 3, "cover_pct": 50.0}, ["gemm"], 3, 500 / 960),
        ({"skip": 10}, [], 0, 0.0),
    ],
)
def test_choosing(changes: dict[str, Any], names: list[str], launches: int, cover: float) -> None:
    choice = chosen([GEMM, *CAT, ADD, COPY], 960, **{"cover_pct": 79.0, **changes})
    assert (list(choice.filter.names), choice.launches) == (names, launches)
    assert choice.cover == pytest.approx(cover)
    assert choice.estimated_s == pytest.approx(launches)
    assert choice.too_long == bool({"launches", "ncu_budget_s"} & changes.keys())


def test_a_profile_takes_four_times_the_program() -> None:
    def budget_and_whole_s(program_s: float, parts: int = 1, **changes: Any) -> tuple[float, float]:
        budget_s, limit_s = ncu_limits_s(ProfileRequest(program=("x",), **changes), program_s, parts)
        return budget_s, program_s + parts * limit_s

    assert budget_and_whole_s(15.0) == (0.8 * 28, 60.0)
    assert budget_and_whole_s(30.0, 2) == (0.8 * 13, 120.0)
    assert budget_and_whole_s(2.0) == (0.8 * 20, 26.0)  # a short program gets 20 seconds all the same
    assert budget_and_whole_s(15.0, ncu_budget_s=100.0) == (100.0, 15 + 2 * 117.0)
    assert budget_and_whole_s(15.0, timeout_s=30.0) == (0.8 * 28, 45.0)


@pytest.mark.parametrize("name", ["llama", "ranks", "vectors", "graph", "llama on an H100"])
def test_the_estimate_of_ncus_time_is_what_it_took(name: str) -> None:
    """The recorded profiles: what fiprof would foretell today of the same launches, against what ncu took."""
    run = on_h100("llama") if name.endswith("H100") else parsed(name)
    took_s = {action.step: action.duration_s or 0.0 for action in run.manifest.actions}
    of_shape = {each.shape: each for each in traced_groups(run, ())[0]}
    cost_s = launch_cost(run, run.manifest.settings["ncu_set"])
    launches_s = sum(cost_s(of_shape[shape(launch)]) for launch in run.launches if shape(launch) in of_shape)
    estimated_s = took_s["nsys"] + START_S + launches_s
    assert 0.8 < estimated_s / sum(seconds for step, seconds in took_s.items() if step.startswith("ncu")) < 1.35


def test_collectives_are_left_out_and_kernels_launched_once_not_skipped() -> None:
    choice = chosen([group("ncclDevKernel_AllReduce", 4000), GEMM, ADD], 4700, cover_pct=80.0)
    assert (choice.filter.names, choice.cover) == (("gemm", "add"), 700 / 4700)
    assert (choice.collectives, choice.collectives_share) == (("ncclDevKernel_AllReduce",), 4000 / 4700)
    once, often = group("once", 500, count=1), group("often", 100)
    assert chosen([once, often], 600, cover_pct=80.0).filter == Filter(("once",), 0)
    assert chosen([GEMM, once], 1000, cover_pct=50.0).filter == Filter(("gemm",), 1)


def profile(fiprof: Fiprof, fakes: Env, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return fiprof("profile", *options, "--", "sh", "-c", program, env=fakes)


def test_a_whole_profile(faked: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo out; echo err >&2")
    done = faked("profile", "--", "sh", "run.sh")
    path, manifest = only_run(tmp_path)
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert "err\n" in done.stderr and f"artifacts/{path.name}\ncomplete; next: fiprof top" in done.stderr
    assert path.name.endswith("-run") and (manifest["status"], manifest["cases"]) == ("complete", [])
    assert sorted(action["step"] for action in manifest["actions"]) == [
        "ncu", "ncu-details", "ncu-raw", "nsys", "nsys-export",
    ]  # fmt: skip
    program = manifest["environment"]["program"]
    assert (program["command"], program["cwd"], program["exit_status"]) == (["sh", "run.sh"], str(tmp_path), 0)
    assert program["files"] == {"run.sh": hashlib.sha256(b"echo out; echo err >&2").hexdigest()}
    assert manifest["warnings"] == [] and "all launches would take" in done.stderr


def test_torchs_history_comes_from_every_process(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    """A stand-in for torch, whose allocator has done three things; the program's own sitecustomize runs as well."""
    torch = tmp_path / "site/torch/cuda"
    torch.mkdir(parents=True)
    (torch.parent / "__init__.py").write_text("")
    (tmp_path / "site/sitecustomize.py").write_text("import sys\nif sys.orig_argv[1] == '-c': print('own')\n")
    frames = [{"name": "f", "filename": f"{torch}/f.py", "line": 3}, {"name": "go", "filename": "/x/me.py", "line": 9}]
    trace = [
        {"action": action, "size": size, "addr": 4096, "time_us": 7, "frames": frames}
        for action, size in (("segment_alloc", 2 << 20), ("alloc", 300), ("free_requested", 300))
    ]
    blocks = [{"state": "active_allocated", "size": 700, "requested_size": 700}]
    segment = {"device": 0, "total_size": 2 << 20, "segment_pool_id": (0, 1), "blocks": blocks}
    (torch / "__init__.py").write_text(
        "from . import memory\ncalls = []\n_lazy_call = calls.append\n"
        "def init(): calls[0]()\ndef memory_stats(device): return {}\n"
    )
    (torch / "memory.py").write_text(
        f"def _record_memory_history(**how): print(how['context'])\n"
        f"def _snapshot(): return {{'device_traces': [{trace!r}, []], 'segments': [{segment!r}]}}\n"
    )
    program = f"{sys.executable} -c 'import torch.cuda as gpu; gpu.init()'"
    env = {**fakes, "PYTHONPATH": f"{REPOSITORY}:{tmp_path / 'site'}"}
    done = profile(fiprof, env, f"{program} & {program}; wait", "--tool", "nsys", "--torch-memory")
    # The two print at once.
    assert (done.returncode, done.stdout.count("alloc"), done.stdout.count("own")) == (0, 2, 2), done.stderr
    path, manifest = only_run(tmp_path)
    (action,) = (each for each in manifest["actions"] if each["step"] == "nsys")
    assert [each["path"] for each in action["files"]] == ["nsys/trace.nsys-rep", "nsys/torch_memory.jsonl"]
    rows = Run(path).table("torch_memory").to_pylist()
    assert len({row["pid"] for row in rows}) == 2
    assert [(row["action"], row["bytes"]) for row in rows[:6]] == [
        ("allocate", 700), ("reserve", 0), ("reserve", 2 << 20), ("allocate", 300), ("free", 300), ("graph_pools", 2 << 20),
    ]  # fmt: skip
    assert rows[3]["stack"] == "go (me.py:9)"


def test_launches_of_each_range(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    """ncu over each range by itself; the ranges are cases, and a launch stands for executions in its own."""
    ranges = ("fiprof@warmup", "fiprof@measure")
    options = [word for name in ranges for word in ("--range", name)]
    done = profile(fiprof, fakes, "true", *options, "--by-range", "--ncu-budget", "60s", "--cover", "90%")
    path, manifest = only_run(tmp_path)
    assert (done.returncode, manifest["status"]) == (0, "complete")
    argvs = {action["step"]: action["argv"] for action in manifest["actions"]}
    assert [argvs[step][argvs[step].index("--nvtx-include") + 1] for step in ("ncu", "ncu-1")] == [
        "fiprof@warmup/", "fiprof@measure/",
    ]  # fmt: skip
    assert {"ncu-raw", "ncu-raw-1", "ncu-details-1"} <= argvs.keys()
    assert manifest["ranges"] == [case["id"] for case in manifest["cases"]] == list(ranges)
    run = Run(path)
    # The stand-in for ncu replays launches of measure both times: they share the 20 executions there, not the 3 before.
    assert {launch.case for launch in run.launches} == {"fiprof@measure"}
    prefill = [launch.launch for launch in run.launches if launch.kernel == "PrefillWithKVCacheKernel"]
    assert [standing(run)[launch].count for launch in prefill] == [10, 10]
    (kernel,) = (row for row in top(run).kernels if row["kernel"] == "PrefillWithKVCacheKernel")
    assert (kernel["count"], round(kernel["profiled"], 2)) == (23, 0.87)


def test_a_shape_that_grows_is_profiled_at_a_few_grids(fiprof: Fiprof, fakes: Env, light: Path, tmp_path: Path) -> None:
    """RMSNorm on 23 grids, four times as long on the last; ncu's launches stand for the grids near theirs."""
    mixed = tmp_path / "mixed"
    for folder in ("ncu", "logs"):
        shutil.copytree(light / folder, mixed / folder)
    (mixed / "nsys").mkdir()
    kernel = "CUPTI_ACTIVITY_KIND_KERNEL"
    of = "shortName = (SELECT id FROM StringIds WHERE value = 'RMSNormKernel')"
    place = f"(SELECT count(*) FROM {kernel} b WHERE b.{of} AND b.start < {kernel}.start)"
    grow = f'UPDATE {kernel} SET gridX = 4096 + {place}, "end" = start + 1000000 * (7 + {place}) WHERE {of}'
    trace = altered(mixed / "nsys", grow)
    done = profile(fiprof, {**fakes, "FAKE_RUN": str(mixed)}, "true", "--kernel", "RMSNorm", "--cover", "95%")
    path, manifest = only_run(tmp_path)
    assert (done.returncode, manifest["status"]) == (0, "complete")
    argv = next(action["argv"] for action in manifest["actions"] if action["step"] == "ncu")
    (chosen,) = re.fullmatch(
        r"::regex:\^\(\w*RMSNorm\w*\)\$:\^\(([\d|]+)\)\$", argv[argv.index("--kernel-id") + 1]
    ).groups()  # type: ignore[union-attr]
    numbers = [int(number) for number in chosen.split("|")]
    order = query(trace, f'SELECT "end" - start FROM {kernel} WHERE {of} ORDER BY correlationId')
    times = [order[number - 1][0] for number in numbers]
    assert len(times) < 6 and all(min(abs(math.log(time / one)) for one in times) < math.log(2) for (time,) in order)
    assert f"which represent {len(order)} grids" in done.stderr
    stands = standing(Run(path))
    # Of ncu's launches one is of a grid of the trace, the first: for it and those up to twice as long.
    (launch,) = (each.launch for each in Run(path).launches if each.kernel == "RMSNormKernel" and each.launch in stands)
    assert (stands[launch].grids, stands[launch].count) == (8, 8)


@pytest.mark.fault("the program launches other kernels the second time", "those that ncu did not meet again are named")
def test_kernels_that_are_not_met_again(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    for folder, name in (("nsys", "all"), ("ncu", "decode"), ("logs", "decode")):
        shutil.copytree(replayable(name) / folder, mixed / folder)
    done = profile(fiprof, {**fakes, "FAKE_RUN": str(mixed)}, "true")
    _, manifest = only_run(tmp_path)
    assert (done.returncode, manifest["status"]) == (0, "complete")
    lost = [warning for warning in manifest["warnings"] if warning.startswith("ncu did not meet ")]
    assert lost == [
        "ncu did not meet PrefillWithKVCacheKernel (grid 132x1x1, block 384x1x1), "
        "BatchQKApplyRotaryKernel (grid 1280x1x1, block 16x8x1) again",
    ]


@pytest.mark.fault("the program under `profile` fails", "its exit status is passed on, and what was traced is kept")
@pytest.mark.fault("the program under `profile` prints without end", "all of it is passed on, the log keeps both ends")
def test_the_exit_status_and_all_that_is_printed_are_the_programs(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    program = "echo begin; head -c 24000000 /dev/zero | tr '\\0' x; echo; echo end; exit 7"
    done = profile(fiprof, fakes, program, "--tool", "nsys")
    path, manifest = only_run(tmp_path)
    assert (done.returncode, len(done.stdout), manifest["status"]) == (7, 24000011, "complete")
    assert manifest["warnings"] == ["the program ended with exit status 7 under nsys"]
    log = (path / "logs/nsys.log").read_bytes()
    assert log.startswith(b"begin\nxxx") and b"bytes left out" in log and b"x\nend\n" in log[-200:]


EXTERIOR = "Cannot find string for an exterior index"


@pytest.mark.fault("the program under `profile` ends without using the GPU", "one line, exit status 1")
@pytest.mark.fault("nsys's importer fails on its own events (XLA's ranges)", "one line that says so")
@pytest.mark.fault("the program under `profile` needs a terminal", "one line that says so")
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("true", "the program started nothing on the GPU while it was traced"),
        (
            f"echo '[QuadDCommon::tag_message*] = {EXTERIOR}'",
            f"nsys could not read its own events, and kept no kernel: {EXTERIOR}",
        ),
        ("echo 'stty: Inappropriate ioctl for device' >&2; exit 1", "it may need a terminal or input"),
    ],
)
def test_without_kernels(fiprof: Fiprof, fakes: Env, tmp_path: Path, program: str, words: str) -> None:
    done = profile(fiprof, {**fakes, "FAKE_NSYS": "no-kernels"}, program)
    path, manifest = only_run(tmp_path)
    assert (done.returncode, manifest["status"]) == (1, "failed")
    assert words in done.stderr and "Traceback" not in done.stderr
    why = "nsys failed" if "exit 1" in program else f"the run failed: {manifest['reason']}"
    assert f"no trace of kernels: {why}\n" in fiprof("top", str(path), env=fakes).stderr


@pytest.mark.fault("the profiled program reads a file, partly read", "all starts read it")
@pytest.mark.fault("the profiled program reads a pipe", "each start reads the same")
@pytest.mark.fault("the pipe that a profiled program reads never ends", "it ends")
@pytest.mark.fault("standard input closed, or a terminal", "the program reads none")
@pytest.mark.parametrize("given", ["file", "pipe", "endless", "closed", "terminal"])
def test_what_the_program_reads(given: str, fakes: Env, tmp_path: Path) -> None:
    """Under nsys and again under ncu."""
    (tmp_path / "input").write_text("skipped\n5\n" + "x" * 300_000)
    program = "read number; echo ${number:=none} >> numbers; [ $number != 5 ] || wc -c >> numbers"
    with contextlib.ExitStack() as held:
        sources = [["sh", "-c", "tail -n+2 input"], ["sh", "-c", "echo 0; exec sleep 60"]]
        pipe, endless = (subprocess.Popen(each, stdout=subprocess.PIPE, cwd=tmp_path) for each in sources)
        held.callback(endless.wait)
        held.callback(endless.kill)
        file = held.enter_context(open(tmp_path / "input", "rb", buffering=0))
        file.seek(len("skipped\n"))
        main, terminal = pty.openpty()
        held.callback(os.close, main)
        stdin = {"file": file, "pipe": pipe.stdout, "endless": endless.stdout, "terminal": terminal}.get(given)
        streams = {"stdin": stdin, "preexec_fn": (lambda: os.close(0)) if given == "closed" else None}
        with begun("profile", "--quiet", "--", "sh", "-c", program, cwd=tmp_path, env=fakes, **streams) as process:
            errors = process.communicate(timeout=50)[1]
        os.close(terminal)
        pipe.communicate()
    assert process.returncode == 0, errors
    each = {"file": "5\n300000\n", "pipe": "5\n300000\n", "endless": "0\n"}.get(given, "none\n")
    assert (tmp_path / "numbers").read_text() == each * 2


@pytest.mark.fault("`capture` is killed while a session is traced", "the trace is ended, and others can be made")
@pytest.mark.fault("a session's program ends while it is captured", "what was traced until then is kept")
@pytest.mark.nsys
def test_a_session_is_captured_twice(fiprof: Fiprof, nsys_path: Path, tmp_path: Path) -> None:
    env = {"FIPROF_NSYS": str(nsys_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": python_path()}
    name = f"test{os.getpid()}"
    program = "echo up; for _ in $(seq 1200); do [ -e ended ] && break; sleep 0.1; done; exit 4"
    words = ("profile", "--session", name, "--", "sh", "-c", program)
    for _ in range(3):  # now and then nsys ends by itself where another one has just ended
        shutil.rmtree(tmp_path / "artifacts", ignore_errors=True)
        serving = begun(*words, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
        assert serving.stdout is not None
        if said := serving.stdout.readline():
            break
        serving.communicate(timeout=30)
    assert said == "up\n"
    time.sleep(1)
    with begun("capture", name, cwd=tmp_path, env=env) as killed:
        assert killed.stderr is not None and killed.stderr.readline().startswith("nsys-start")
        refused = fiprof("capture", name, env=env)
        assert refused.returncode == 1 and f"is being worked on by process {killed.pid}" in refused.stderr
        killed.kill()
    while (tmp_path / f"cache/fiprof/sessions/{name}.capture").exists():
        assert serving.poll() is None
    for _ in range(2):
        for _ in range(10):  # the session's own fiprof may be ending the killed one's trace
            done = fiprof("capture", name, "--duration", "0.5", env=env)
            if "is being worked on" not in done.stderr:
                break
        assert "the program started nothing on the GPU while it was traced" in done.stderr
    mistyped = fiprof("capture", f"{name}x", env=env)
    assert mistyped.returncode == 2 and f"running: {name}\n" in mistyped.stderr
    with begun("capture", name, "--duration", "40", cwd=tmp_path, env=env) as outlasting:
        assert outlasting.stderr is not None and outlasting.stderr.readline().startswith("nsys-start")
        (tmp_path / "ended").touch()
        assert serving.wait(30) == 4
        assert "s after the trace began\n" in outlasting.communicate(timeout=30)[1]
    assert not [*tmp_path.glob("nsys-report*"), *tmp_path.rglob(".partial*")]
    ended, *runs = sorted(tmp_path.glob("artifacts/*/run.json"))
    assert json.loads(ended.read_text())["status"] == "interrupted" and len(runs) == 3
    for run in runs:
        manifest = json.loads(run.read_text())
        assert [action["step"] for action in manifest["actions"]] == ["nsys-start", "nsys", "nsys-export"]
        assert manifest["environment"]["program"]["command"][:2] == ["sh", "-c"]
    missing = fiprof("capture", name, env=env)
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (2, f"fiprof: there is no session {name}")


def test_what_a_program_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.py").touch()
    (tmp_path / "bench").touch()
    commands = {
        "python3 serve.py --port 1": "serve", "torchrun --nproc-per-node 2 serve.py": "serve",
        "python3 -m torch.distributed.run x.py": "run", "./bench 3": "bench", "vllm serve m": "vllm",
    }  # fmt: skip
    assert {command: program_name(command.split()) for command in commands} == commands


DATA = Path(__file__).parent / "data/torch"


def unpacked(name: str, into: Path) -> Path:
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_bytes(recorded_bytes(DATA / name))
    return into


def told(folder: Path, name: str, *, history: bool = False) -> dict[str, Any]:
    """The story of a recording."""
    unpacked(f"{name}.sqlite", folder / name / "nsys/trace.sqlite")
    if history:
        unpacked(f"{name}.jsonl", folder / name / "nsys/torch_memory.jsonl")
    write_manifest(folder / name, environment={"program": {"command": ["python3", name]}})
    assert not parse_all(folder / name).problems
    return answer("story", folder / name)


@pytest.mark.parametrize(("name", "events"), [("request", 2624), ("graphs", 555), ("leak", 3117)])
def test_the_peaks_are_torchs_own(name: str, events: int, tmp_path: Path) -> None:
    """Recomputed of the table: what was asked for, and what was reserved, to the byte; torch counts what it gave for
    that in blocks of 512 bytes."""
    file = unpacked(f"{name}.jsonl", tmp_path / "history.jsonl")
    own = json.loads(file.read_text())["torch"]
    torch_memory.parse(file, tmp_path, session_start_ns=0)
    rows = tables.read(tmp_path, "torch_memory").to_pylist()
    sizes = {
        plus: max(np.cumsum([row["bytes"] * {plus: 1, minus: -1}.get(row["action"], 0) for row in rows]))
        for plus, minus in (("allocate", "free"), ("reserve", "release"))
    }
    assert len(rows) == events + 3
    assert sizes == {"allocate": own["requested"], "reserve": own["reserved"]}
    assert sizes["allocate"] == pytest.approx(own["allocated"], rel=1e-5)


def test_a_leak_has_its_function_and_begins_where_it_began(tmp_path: Path) -> None:
    """CUDA gave memory for it a step later: torch had some left."""
    found = told(tmp_path, "leak", history=True)
    (leak,) = (each for each in found["surprises"] if each["id"] == "leak")
    assert (leak["what"], leak["count"], leak["more_mb"]) == ("step 29", 11, 738.197504)
    (owner,) = leak["owners"]
    assert owner["function"] == "leak (surprises.py:63) < main (surprises.py:113)"
    _, peak = found["peak"]
    assert (peak["allocated_gb"], peak["most_gb"]) == (0.910688256, 0.962592768)
    assert [each["function"].partition(" <")[0] for each in peak["owners"]] == [
        "leak (surprises.py:63)", "main (surprises.py:88)", "layer (surprises.py:96)",
    ]  # fmt: skip


@pytest.mark.fault("a history of torch's allocator that is cut short, or none", "the trace's tables are made")
def test_a_damaged_history(tmp_path: Path) -> None:
    history = unpacked("leak.jsonl", tmp_path / "run/nsys/torch_memory.jsonl")
    unpacked("leak.sqlite", tmp_path / "run/nsys/trace.sqlite")
    write_manifest(tmp_path / "run")
    whole = history.read_bytes()
    for damage in (slice(0, 20), slice(5, None), slice(0, -100)):
        history.write_bytes(whole[damage])
        with pytest.raises(FiprofError, match=r"torch_memory\.jsonl is damaged"):
            torch_memory.parse(history, tmp_path, session_start_ns=0)
    (problem,) = parse_all(tmp_path / "run").problems
    assert isinstance(problem, FiprofError) and "torch_memory.jsonl is damaged" in problem.message
    assert Run(tmp_path / "run").row_count("kernels") == 1156


@pytest.mark.parametrize(
    ("name", "more", "layers"),
    [
        ("modules", "", [(6, 5)]),
        ("train", "nn.functional.cross_entropy autograd.backward optim.SGD.step", [(6, 5), (6, 11)]),
    ],
)
def test_modules_that_nsys_marked_are_steps_and_layers(name: str, more: str, layers: list[Any], tmp_path: Path) -> None:
    """Every module's range is called ``torch.nn.modules.Module.__call__``: layers follow from the kernels. The backward
    pass is launched by a thread of autograd's, and is one of the steps' parts all the same."""
    found = told(tmp_path, name)
    repeating = [(row["what"], row["count"]) for row in found["rows"] if row["count"] > 1 and row["kernels"]]
    assert repeating == [(f"torch.{each}", 8) for each in ("nn.modules.Module.__call__", *more.split())]
    assert [(each["count"], each["period"]) for each in found["layers"]] == layers
