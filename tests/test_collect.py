"""``fiprof collect`` as a user runs it: a GPU's part is replayed by stand-ins, all else is real."""

import hashlib
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from fiprof.model.tables import TABLES
from tests.conftest import Completed, Env, Fiprof, begun, catches, fake_programs, python_path, ran, run_fiprof, until
from tests.recorded_runs import RUNS, replayed
from tests.test_workloads import USERS_OWN

COLLECTED = TABLES.keys() - {"torch_memory"}
"""``profile --torch-memory`` makes the other."""
STEPS = ["plain", "nsys", "nsys-export", "ncu", "ncu-raw", "ncu-details", "ncu-source"]


def only_run(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The one run of the folder's archive, and its manifest; nothing partial is left beside it."""
    (path,) = folder.glob("artifacts/*")
    assert not list(folder.glob("artifacts/.partial*"))
    return path, json.loads((path / "run.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completed]:
    """A folder in which all kernels were collected, and how that ended; for reading alone."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run_fiprof("collect", "--kernel", "all", cwd=folder, env=fake_programs(folder, RUNS["all"]))


@pytest.fixture
def collected(whole: tuple[Path, Completed], tmp_path: Path) -> Path:
    """A copy of its run, in the archive of the test's folder."""
    path, _ = only_run(whole[0])
    return Path(shutil.copytree(path, tmp_path / "artifacts" / path.name))


def test_a_whole_run(whole: tuple[Path, Completed]) -> None:
    folder, done = whole
    assert done.returncode == 0, done.stderr
    path, manifest = only_run(folder)
    assert done.stdout == f"artifacts/{path.name}\n" and path.name.endswith("-all")
    assert (manifest["status"], manifest["reason"]) == ("complete", "")
    assert sorted(action["step"] for action in manifest["actions"]) == sorted(STEPS)
    assert {action["outcome"] for action in manifest["actions"]} == {"ok"}
    run_fiprof("verify", cwd=folder, status=0)
    assert {raw.suffix for raw in path.glob("n*/*")} == {".zst", ".nsys-rep"}
    rows = {table: pq.read_metadata(path / f"tables/{table}.parquet").num_rows for table in COLLECTED}
    # A collect samples no host code.
    assert [table for table, count in rows.items() if count == 0] == ["host_samples"]
    assert not list(path.rglob(".*"))


def test_the_tools_share_one_process_each_on_the_gpu_that_nvidia_smi_counts(faked: Fiprof, tmp_path: Path) -> None:
    faked("collect", "--kernel", "decode", "--batch", "1,32", "--kv-heads", "8,32", "--gpu", "3")
    _, manifest = only_run(tmp_path)
    assert len(manifest["cases"]) == 4
    argv, env = ({action["step"]: action[key] for action in manifest["actions"]} for key in ("argv", "env"))
    assert [argv[step].count("--case") for step in ("plain", "nsys", "ncu")] == [4, 4, 4]
    assert "--measure-iterations=20" in argv["nsys"] and "--measure-iterations=1" in argv["ncu"]
    named = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3"}
    assert [env[step] for step in ("plain", "nsys", "ncu", "ncu-raw")] == [named, named, named, {}]


def test_a_workload_of_the_users(faked: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN)
    # However its path is typed, it is the same workload.
    typed = ("collect", "--workload", "./mine.py:mine", "--workload", f"{tmp_path}/mine.py:mine", "--width", "7,9")
    faked(*typed, status=0)
    path, manifest = only_run(tmp_path)
    assert path.name.endswith("-mine")
    program = manifest["environment"]["program"]
    assert (program["command"], program["cwd"]) == (["fiprof", *typed], str(tmp_path))
    assert program["files"] == {"mine.py": hashlib.sha256(USERS_OWN.encode()).hexdigest()}
    found = [(case["id"], case["workload"], case["flops"]) for case in manifest["cases"]]
    assert found == [(f"mine[width={width}]", "mine.py:mine", width) for width in (7, 9)]
    plain = next(action for action in manifest["actions"] if action["step"] == "plain")
    assert "mine.py:mine[width=7]" in plain["argv"]


def test_a_cost_that_fails(faked: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN.replace("return Cost(", "return 1 / 0 * Cost("))
    done = faked("collect", "--workload", "mine.py:mine")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fiprof: the cost of mine[width=64] cannot be computed: ZeroDivisionError")
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("exit3", "the plain run ended with exit status 3: something the user wrote"),
        ("abort", "the plain run ended by SIGABRT: it said nothing"),
        ("garbage", "the plain run ended with exit status 0 and no result of rmsnorm[rows=4096,hidden=4096,dtype=fp16]"),
        ("hang", "plain: no end after 2 s"),
    ],
)  # fmt: skip
def test_a_workload_that_fails(fiprof: Fiprof, fakes: Env, tmp_path: Path, behaviour: str, reason: str) -> None:
    env = {**fakes, "FAKE_WORKLOAD": behaviour}
    done = fiprof("collect", "--kernel", "rmsnorm", "--timeout", "2", env=env, status=1)
    path, manifest = only_run(tmp_path)
    assert (manifest["status"], manifest["reason"]) == ("failed", reason) and done.stdout == f"artifacts/{path.name}\n"
    assert f"fiprof: the run failed: {reason}\n" in done.stderr
    assert [action["step"] for action in manifest["actions"]] == ["plain"]


@pytest.mark.nsys
def test_real_nsys(fiprof: Fiprof, fakes: Env, tmp_path: Path, nsys_path: Path) -> None:
    """Its argv is accepted, its report exported, its NVTX ranges read; no kernel without a GPU is said."""
    pytest.importorskip("nvtx", reason="nvtx is not installed: nsys would see no ranges")
    env = {**fakes, "FIPROF_NSYS": str(nsys_path)}
    cases = ["--kernel", "rmsnorm", "--rows", "1,512"]
    for _ in range(3):  # now and then nsys fails by a semaphore of its own, as where another one has just ended
        shutil.rmtree(tmp_path / "artifacts", ignore_errors=True)
        done = fiprof("collect", *cases, "--iterations", "3", "--gpu-metrics-hz", "0", env=env)
        if "sem_open" not in done.stderr:
            break
    path, manifest = only_run(tmp_path)
    outcomes = {action["step"]: action["outcome"] for action in manifest["actions"]}
    assert (outcomes["nsys"], outcomes["nsys-export"]) == ("ok", "ok"), done.stderr
    assert (manifest["status"], manifest["reason"][:18]) == ("failed", "nsys saw no kernel")
    ranges = pq.read_table(path / "tables/ranges.parquet").to_pylist()
    named = [row["name"] for row in ranges if row["domain"] == "fiprof"]
    for case in manifest["cases"]:
        assert named.count(case["id"]) == 3, "once in setup, warmup and measure each"
    assert [named.count(f"iter {i}") for i in range(4)] == [2, 2, 2, 0]
    # ncu's half of the run is whole.
    assert pq.read_metadata(path / "tables/launches.parquet").num_rows == 6


@pytest.mark.fault("SIGKILL while a workload runs", "the next command keeps the run as interrupted; the GPU is free")
def test_a_second_collect_on_a_gpu_and_what_a_killed_one_collected(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    with begun("collect", "--kernel", "rope", cwd=tmp_path, env={**fakes, "FAKE_WORKLOAD": "hang"}) as process:
        until(lambda: hangs(tmp_path), process)
        refused = fiprof("collect", "--kernel", "rope", "--no-wait", env=fakes)
        assert (refused.returncode, len(list(tmp_path.glob("artifacts/[!.]*")))) == (1, 0)
        assert f"is being profiled by process {process.pid} of " in refused.stderr
        assert "is still being collected" in fiprof("runs").stderr
        process.kill()
    # The GPU's lock went with it, and so will its workload.
    again = fiprof("collect", "--kernel", "rope", "--no-wait", env=fakes, status=0)
    assert "fiprof was killed while it collected artifacts/" in again.stderr
    first, second = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("artifacts/*/run.json")))
    assert (first["status"], first["reason"]) == ("interrupted", "fiprof was killed") and second["status"] == "complete"
    assert not list(tmp_path.glob("artifacts/**/.*"))
    assert "no times by nsys: nsys did not come to its end: fiprof was killed" in fiprof("show", first["name"]).stdout


@pytest.mark.fault("the terminal is lost", "the run ends in order, as interrupted")
def test_a_lost_terminal(fakes: Env, tmp_path: Path) -> None:
    """As when ssh drops: whatever it still says goes nowhere."""
    env = {**os.environ, **fakes, "FAKE_WORKLOAD": "hang", "PYTHONPATH": python_path()}
    pid, terminal = pty.fork()
    if not pid:
        # As a shell starts it, even where these tests run under nohup.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "fiprof", "collect", "--kernel", "rope"], env)
    until(lambda: hangs(tmp_path))
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    _, manifest = only_run(tmp_path)
    assert (manifest["status"], manifest["reason"]) == ("interrupted", "interrupted")


@pytest.mark.fault("the terminal of a command under nohup is gone", "the exit status is the command's own")
def test_a_terminal_that_is_gone(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    os.close(ours)
    streams = {"stdout": terminal, "stderr": terminal}
    with begun("show", "missing", cwd=tmp_path, env={"PYTHONUNBUFFERED": ""}, **streams) as process:
        os.close(terminal)
    assert process.returncode == 2


@pytest.mark.fault("a workload leaves processes of other groups, environments, parents", "they are ended, and named")
def test_a_workload_that_leaves_processes(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    program = Path(f"{fakes['FIPROF_PYTHON']}-leaving")
    ways = ("setsid", "env -i setsid", "setsid --fork")
    left = "\n".join(f"{way} sleep {80 + number} &" for number, way in enumerate(ways))
    program.write_text(f'#!/bin/sh\n{left}\nexec {fakes["FIPROF_PYTHON"]} "$@"\n')
    program.chmod(0o755)
    env = {**fakes, "FIPROF_PYTHON": str(program)}
    assert fiprof("collect", "--kernel", "rope", "--tool", "ncu", "--set", "quick", env=env).returncode == 0
    _, manifest = only_run(tmp_path)
    assert sorted(action["step"] for action in manifest["actions"]) == ["ncu", "ncu-details", "ncu-raw", "plain"]
    for step in ("plain", "ncu"):
        ended = f"{step} left a process running, which was ended"
        named = [each for each in manifest["warnings"] if each.startswith(ended)]
        pids = [int(each.split()[-1].rstrip(")")) for each in named]
        assert len(pids) == 3 and not any(map(psutil.pid_exists, pids)), manifest["warnings"]


@pytest.mark.fault("some of a run's tables are missing", "they are made again from the raw files")
def test_half_a_set_of_tables_is_made_again(fiprof: Fiprof, collected: Path) -> None:
    for name in ("launches", "stalls", "checks"):
        (collected / f"tables/{name}.parquet").unlink()
    shown = fiprof("show", collected.name, status=0)
    assert shown.stderr.startswith("making the tables of ") and "not there" not in shown.stdout
    assert {path.stem for path in (collected / "tables").glob("*.parquet")} == COLLECTED


@pytest.mark.fault("the disk gets full in the middle of the output", "one line that says so, exit status 1")
@pytest.mark.parametrize(("target", "message"), [("/dev/full", "the disk is full"), ("cut", "no file may be as large")])
def test_output_cut_short_is_a_failure(collected: Path, target: str, message: str) -> None:
    with open(collected.parent / target if target == "cut" else target, "w") as out:
        limited = {"stdout": out, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))}
        with begun("show", str(collected), cwd=collected.parent, env={"PYTHONUNBUFFERED": "1"}, **limited) as process:
            errors = process.communicate()[1]
    assert process.returncode == 1 and f"fiprof: standard output: {message}" in errors


@pytest.mark.fault("Ctrl-C while fiprof starts", "it ends with 130 and no traceback")
def test_ctrl_c_while_starting_says_nothing(tmp_path: Path) -> None:
    for moment in range(0, 12, 2):
        process = begun("show", "latest", cwd=tmp_path, env={})
        while process.poll() is None and not catches(process.pid, signal.SIGHUP):
            time.sleep(0.001)
        time.sleep(moment / 100)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode in (130, 2) and "Traceback" not in errors and "KeyboardInterrupt" not in errors


TINY = pytest.mark.parametrize("small_disk", ["1m"], indirect=True)


@TINY
def test_a_full_disk(faked: Fiprof, small_disk: Path) -> None:
    done = faked("collect", "--kernel", "rmsnorm", "--artifacts", str(small_disk))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (run,) = small_disk.glob("2*")
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["status"] == "failed"
    said = manifest["reason"] + "".join(action["remedy"] for action in manifest["actions"])
    assert "disk is full" in said or "is the disk full?" in said  # which of them writes last is chance
    assert ".partial-" not in manifest["reason"] + done.stderr
    assert (run / "baseline.jsonl").stat().st_size > 0


@TINY
def test_an_archive_that_may_not_be_written(faked: Fiprof, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = faked("collect", "--kernel", "rmsnorm", "--artifacts", str(small_disk))
    assert (done.returncode, done.stdout) == (1, "")
    message, remedy = done.stderr.splitlines()
    assert message.endswith(": no permission to write")
    assert remedy == "  choose another archive with --artifacts DIR or FIPROF_ARTIFACTS"


@pytest.mark.fault("the run, the cache and /dev/shm take no tables", "one line: the disk is full, and what to do")
@TINY
def test_a_full_memory_is_one_line(tmp_path: Path, small_disk: Path) -> None:
    for name in ("run.json", "ncu/raw.csv.xz"):
        target = small_disk / "run" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(RUNS["all"] / name, target)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    small = 'mount -t tmpfs -o size=100k tmpfs /dev/shm && exec "$@"'
    command = (sys.executable, "-m", "fiprof", "stalls", str(small_disk / "run"))
    env = {**os.environ, "XDG_CACHE_HOME": str(small_disk), "PYTHONPATH": python_path()}
    done = ran("unshare", "--mount", "sh", "-c", small, "sh", *command, env=env, cwd=tmp_path)
    said, why, remedy = done.stderr.splitlines()
    assert (done.returncode, done.stdout, said.split(" of ")[0]) == (1, "", "making the tables")
    assert "disk is full" in why and remedy.startswith("  ")


def test_a_replay_gives_the_same_tables_and_refuses_changed_files(fiprof: Fiprof, light: Path, tmp_path: Path) -> None:
    fiprof("collect", "--replay", str(light), status=0)
    path, manifest = only_run(tmp_path)
    assert (manifest["replayed_from"], manifest["status"]) == (light.name, "complete")
    for table in COLLECTED:
        name = f"tables/{table}.parquet"
        assert pq.read_table(path / name).equals(pq.read_table(replayed("all").path / name)), table
    changed = Path(shutil.copytree(light, tmp_path / "changed"))
    (changed / "baseline.jsonl").write_text("")
    done = fiprof("collect", "--replay", str(changed), status=1)
    assert "baseline.jsonl is not the file that its run made" in done.stderr


def test_a_damaged_run(fiprof: Fiprof, light: Path, tmp_path: Path) -> None:
    """What is damaged is named; the other tool's tables are made, also without run.json."""
    run = Path(shutil.copytree(light, tmp_path / "artifacts/run", ignore=shutil.ignore_patterns("tables")))
    os.truncate(run / "ncu/raw.csv.xz", 3000)
    done = fiprof("stalls", "run", status=1)
    assert done.stdout == "" and "fiprof: artifacts/run/ncu/raw.csv.xz is damaged: " in done.stderr
    os.truncate(run / "run.json", 800)
    shutil.rmtree(run / "tables")
    done = fiprof("parse", "run", status=1)
    assert "artifacts/run/tables/kernels.parquet\n" in done.stdout
    assert "run.json is damaged or not fiprof's" in done.stderr and "Traceback" not in done.stderr


def hangs(folder: Path) -> bool:
    """Whether the workload of a collect, which does not end, has begun."""
    return any("hanging" in log.read_text() for log in folder.rglob("logs/plain.log"))
