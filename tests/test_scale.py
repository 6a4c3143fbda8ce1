"""A study that is interrupted, and one on several GPUs: whoever measures it, what comes of it is the same. A GPU's part is replayed by
stand-ins, all else is real."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import fiprof
from fiprof import clock
from fiprof.model.finding import words_of
from fiprof.orchestrator.batches import disturbances
from fiprof.reports.study import documents
from tests.conftest import REPOSITORY, Env, Fiprof, begun, fake_programs, python_path, ran, run_fiprof, until
from tests.recorded_runs import replayable

STUDY = """
name = "small"
[settings]
ncu_set = "quick"
batch_cases = 4
[[cases]]
workload = "decode"
batch = [1, 8, 32]
tensor_cores = [false, true]
"""

TENSOR = "kv_len=2048,q_heads=32,kv_heads=8,head_dim=128,page_size=16,tensor_cores=true"
"""Of the id of a case that is no anchor: those are in each batch."""


@pytest.fixture(scope="module")
def light() -> Path:
    """The run that stands for the GPU."""
    return replayable("decode")


@pytest.fixture
def study(tmp_path: Path, fakes: Env) -> dict[str, str]:
    """Environment in which ``fiprof study small.toml`` finds its tools."""
    (tmp_path / "small.toml").write_text(STUDY)
    return fakes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, light: Path) -> Path:
    """A complete study, to be copied."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.toml").write_text(STUDY)
    words = ("study", "small.toml", "--out", "whole", "--no-documents")
    done = run_fiprof(*words, cwd=folder, env=fake_programs(folder, light))
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
    return folder / "whole"


def cases(folder: Path) -> list[dict[str, Any]]:
    """The study's cases without the names of the runs that hold them."""
    found: list[dict[str, Any]] = json.loads((folder / "results/decode.json").read_text())["cases"]
    return [{key: value for key, value in case.items() if key != "run"} for case in found]


def cells(folder: Path) -> Counter[str]:
    """Case id -> how many complete runs have it for their own."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("2*/run.json")]
    assert {manifest["status"] for manifest in manifests} == {"complete"}
    return Counter(case["id"] for manifest in manifests for case in manifest["cases"] if not case["anchor"])


def test_ctrl_c_ends_in_order_and_says_how_to_go_on(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    """And what is measured then is what an undisturbed study has; kills: tests/test_kills.py."""
    words = ("study", "small.toml", "--out", "folder", "--no-documents")
    with begun(*words, cwd=tmp_path, env={**study, "FAKE_HANGS": "batch=1,"}) as process:
        until(lambda: list(tmp_path.glob("folder/2*/run.json")), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("fiprof: interrupted\n  the same command goes on where it was: folder\n")
    sessions = json.loads((tmp_path / "folder/study.json").read_text())["sessions"]
    assert [(session["status"], len(session["batches"])) for session in sessions] == [("interrupted", 1)]
    info = json.loads((tmp_path / "folder/results/environment_info.json").read_text())
    assert (info["cases"], info["status"], info["missing"]) == (2, "incomplete", {"decode": 4})
    done = fiprof("study", "small.toml", "--out", "folder", "--no-documents", env=study, status=0)
    assert done.stderr.startswith("4 of 6 cases to measure, in 1 batch for 1 GPU\n")
    assert (cells(tmp_path / "folder"), cases(tmp_path / "folder")) == (cells(whole), cases(whole))
    assert (set(cells(whole).values()), len(cases(whole))) == ({1}, 6)


def test_a_complete_study_is_not_measured_again(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "artifacts/study-small"))
    runs, before = sorted(folder.glob("2*")), cases(folder)
    (folder / "results/decode.json").unlink()
    fiprof("study", "small.toml", "--no-documents", env={**study, "FAKE_WORKLOAD": "exit3"}, status=0)
    assert (sorted(folder.glob("2*")), cases(folder)) == (runs, before)
    (folder / "results/decode.json").unlink()
    assert fiprof("study", "small.toml", "--results-only", env=study).returncode == 0
    assert cases(folder) == before
    assert (folder / "reports/INDEX.html").stat().st_size > 0


def test_cases_that_fail_or_end_their_process_lose_no_batch(fiprof: Fiprof, study: Env, tmp_path: Path) -> None:
    """All cases of one batch fail, and of the other one ends its process: it stays failed."""
    env = {**study, "FAKE_FAILS": "batch=32,", "FAKE_DIES": f"batch=8,{TENSOR}"}
    done = fiprof("study", "small.toml", "--no-documents", env=env, status=0)
    assert "does not fit in the GPU's memory" in done.stderr
    folder = tmp_path / "artifacts/study-small"
    skipped = {case["id"]: case["skipped"] for case in cases(folder) if case["plain"] is None}
    memory, died = "failed: does not fit in the GPU's memory", "failed: plain: failed, ended by SIGABRT"
    assert sorted(skipped.values()) == [memory, memory, died]
    assert all((f"batch=8,{TENSOR}" in name) == ("SIGABRT" in why) for name, why in skipped.items())
    info = json.loads((folder / "results/environment_info.json").read_text())
    assert (info["cases"], info["skipped"], info["status"]) == (3, 3, "complete")
    before = cells(folder)
    assert fiprof("study", "small.toml", "--no-documents", env=study).returncode == 0
    assert cells(folder) == before


def test_what_is_no_cases_fault_ends_the_study_and_keeps_the_rest(fiprof: Fiprof, study: Env, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts/study-small"
    failures = {"permission": "ncu may not read the GPU's counters", "no-kernels": "ncu profiled no kernel"}
    for failure, message in failures.items():
        done = fiprof("study", "small.toml", "--no-documents", env={**study, "FAKE_NCU": failure})
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
        manifest = json.loads((folder / "study.json").read_text())
        assert (manifest["failed"], {session["status"] for session in manifest["sessions"]}) == ({}, {"failed"})
    assert fiprof("study", "small.toml", "--no-documents", env=study).returncode == 0
    assert (set(cells(folder).values()), len(cases(folder))) == ({1}, 6)
    assert len(list((folder / "set-aside").glob("2*/run.json"))) == 2


def test_other_settings_are_refused(fiprof: Fiprof, study: Env, tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "artifacts/study-small")
    (tmp_path / "small.toml").write_text(STUDY.replace('"quick"', '"full"'))
    done = fiprof("study", "small.toml", "--no-documents", env=study)
    assert done.returncode == 2
    assert "was measured with another ncu_set: ncu_set quick, now full" in done.stderr


CASES = 6
KILLS = int(os.environ.get("FIPROF_SOAK", "1"))
WORKER = "from fiprof.orchestrator.batches import main; main()"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study, in which all of its copies are measured: its path stands in the results."""
    folder = tmp_path_factory.mktemp("scale")
    (folder / "small.toml").write_text(STUDY)
    (folder / "one.toml").write_text(STUDY.replace("[1, 8, 32]", "8"))  # a batch of two cases
    return folder


@pytest.fixture(scope="module")
def env(place: Path) -> Env:
    """Stand-ins for two GPUs, which replay a recorded run, and a clock that stands."""
    cards = ",".join(f"GPU-{place}-{number}" for number in range(2))
    stands = {clock.VARIABLE: "2026-11-23T12:00:00+01:00", "XDG_CACHE_HOME": str(place / "cache")}
    return {**fake_programs(place, replayable("decode")), **stands, "CUDA_VISIBLE_DEVICES": cards}


@pytest.fixture
def here(place: Path, env: Env, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for workers that this process starts, or is."""
    monkeypatch.chdir(place)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return place


@pytest.fixture(scope="module")
def local(place: Path, env: Env) -> Path:
    """The study by the pool of both GPUs."""
    done = run_fiprof("study", "small.toml", *on_page("local"), "--out", "local", "--no-documents", cwd=place, env=env)
    assert (done.returncode, done.stdout) == (0, "local\n"), done.stderr
    assert done.stderr.startswith("6 of 6 cases to measure, in 2 batches for 2 GPUs\n")
    planned = run_fiprof("study", "small.toml", *on_page("local"), "--dry-run", "--out", "new", cwd=place, env=env)
    assert "6 cases to measure, 0 done, 0 too large; 2 batches, 6 processes on 2 GPUs" in planned.stdout
    return place / "local"


def on_page(kind: str) -> list[str]:
    """The option with which docs/scale.md measures FlashInfer's study in a way."""
    page = (REPOSITORY / "docs/scale.md").read_text()
    (option,) = re.findall(rf"^    fiprof study flashinfer --quick --on ({kind}\S*)$", page, re.MULTILINE)
    return ["--on", option]


def told(folder: Path) -> dict[str, bytes]:
    """The results, of which documents are made."""
    found = {path.name: path.read_bytes() for path in (folder / "results").iterdir()}
    assert len(found) == 2
    return found


def test_every_batch_repeats_the_anchors_and_keeps_what_is_compared_together(local: Path) -> None:
    batches = [json.loads(path.read_text())["cases"] for path in sorted(local.glob("2*/run.json"))]
    assert [len({case["params"]["batch"] for case in batch if not case["anchor"]}) for batch in batches] == [2, 1]
    anchor = "decode[batch=32,kv_len=2048,q_heads=32,kv_heads=8,head_dim=128,page_size=16,tensor_cores=false,cuda_graph=false,dtype=fp16]"
    assert [[case["id"] for case in batch].count(anchor) for batch in batches] == [1, 1]
    assert sum(case["anchor"] for batch in batches for case in batch) == 1
    assert (len(cells(local)), set(cells(local).values())) == (CASES, {1})


def test_threads_tell_the_same(here: Path, local: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        study = fiprof.study("small.toml").run(on=executor, out="threads")
    assert len(study.measured) == CASES and told(here / "threads") == told(local)


def test_submitit_tells_the_same(place: Path, env: Env, local: Path) -> None:
    pytest.importorskip("submitit")
    words = ("--on", "submitit-local:timeout_min=9,jobs=2", "--out", "submitit", "--no-documents")
    run_fiprof("study", "small.toml", *words, cwd=place, env=env, status=0)
    assert told(place / "submitit") == told(local)


@pytest.mark.fault("a worker of Dask's is killed", "its batch is measured again, by another; results are those without")
def test_dask_with_a_killed_worker_tells_the_same(here: Path, local: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        study = fiprof.study("small.toml")
        on = on_page("dask")[1].replace("tcp://HOST:8786", cluster.scheduler_address)
        measuring = pool.submit(study.run, on=on, out="dask")
        until(lambda: list((here / "dask").glob(".partial-*/logs/nsys.log")))
        # The process that measures, not a tool of its, whose end a case could be blamed for; its nanny starts another.
        psutil.Process(next(iter(cluster.workers.values())).pid).kill()
        assert len(measuring.result(120).measured) == CASES
    assert told(here / "dask") == told(local)


@pytest.mark.fault("a GPU's worker is killed at random moments", "the batch is measured again: no cell twice")
@pytest.mark.parametrize("turn", range(KILLS))
def test_a_killed_worker_loses_nothing(place: Path, env: Env, local: Path, turn: int) -> None:
    words = ("study", "small.toml", "--on", "local", "--out", f"killed-{turn}", "--no-documents")
    with begun(*words, cwd=place, env=env) as session:
        until(lambda: workers(session.pid), session)
        time.sleep(random.uniform(0, 4))
        for worker in workers(session.pid)[:1]:
            with contextlib.suppress(psutil.Error):
                worker.send_signal(signal.SIGKILL)
        _, errors = session.communicate(timeout=120)
    assert session.returncode == 0, errors
    assert cells(place / f"killed-{turn}") == cells(local) and told(place / f"killed-{turn}") == told(local)


def workers(session: int) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(session).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-c", WORKER]:
                    found.append(process)
    return found


@pytest.mark.fault("a batch's worker dies each time", "it is tried four times; the others are measured; it is said")
@pytest.mark.fault("a GPU is used, slowed or limited while a batch measures", "it is set aside, and measured again")
def test_a_batch_that_never_ends_well_is_given_up_and_tried_by_the_next_command(place: Path, env: Env) -> None:
    """There a case takes its process with it, and is left out; then something else is on the GPU."""
    words = ("study", "one.toml", "--on", "local", "--out", "refused", "--no-documents")
    done = run_fiprof(*words, cwd=place, env={**env, "FAKE_WORKLOAD": "exit3"})
    assert done.returncode == 1 and done.stderr.count("is measured again: the plain run ended with exit status 3") == 3
    assert "failed 4 times, the last time so: the plain run ended with exit status 3" in done.stderr
    # The power's limit changes while the case dies.
    trouble = {"FAKE_TROUBLE": f"{place}/made:power,process", "FAKE_DIES": "tensor_cores=true"}
    done = run_fiprof(*words, cwd=place, env=nvml(env, **trouble), status=0)
    assert done.stderr.count("left out: decode[batch=8,") == 1
    why = "the GPU was not left alone: something else was on it: 1 ("
    assert done.stderr.count(f"is measured again: {why}") == 1
    aside = [json.loads(path.read_text()) for path in (place / "refused").glob("set-aside/2*/run.json")]
    assert [manifest["status"] for manifest in aside if why in manifest["reason"]] == ["failed"]
    assert list(cells(place / "refused").values()) == [1]


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("nowhere", "--on nowhere names nothing that measures\n  it takes local, local:2, slurm:partition=NAME,"),
        ("local:3", "--on local:3: 2 GPUs visible here\n"),
        ("slurm:gpus=1", "--on slurm: Could not detect"),
    ],
)
def test_what_names_no_worker_is_refused(place: Path, env: Env, on: str, message: str) -> None:
    without = {**env, "PATH": os.path.dirname(sys.executable)}
    done = run_fiprof("study", "small.toml", "--on", on, "--out", "none", cwd=place, env=without)
    assert done.returncode == 2 and f"fiprof: {message}" in done.stderr, done.stderr
    assert not (place / "none").exists()


def nvml(env: Env, **more: str) -> Env:
    return {**env, "PYTHONPATH": f"{python_path()}{os.pathsep}{REPOSITORY}/tests/fakes/nvml", **more}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"power_limit_w": 300.0}, "power limit w changed: 700.0 and 300.0"),
        ({"ecc_errors": 1}, "ecc errors changed: 0 and 1"),
        ({"mig": True}, "mig changed: False and True"),
        ({"slowdowns": ["hardware for heat", "power brake"]}, "it was slowed down: hardware for heat and power brake"),
        ({}, ""),
        ({"sm_clock_mhz": 1200}, "its SM clock came to 1,200 of 1,980 MHz"),
    ],
)
def test_what_disturbs_a_gpu(changes: dict[str, Any], why: str) -> None:
    known = {"power_limit_w": 700.0, "mig": False, "ecc_errors": 0, "slowdowns": [], "max_sm_clock_mhz": 1980}
    before = {**known, "sm_clock_mhz": changes.get("sm_clock_mhz", 1980)}
    assert "; ".join(map(words_of, disturbances([before, {}, *[{**before, **changes}] * 4]))) == why


def test_boards_are_told_apart_and_others_never_pooled(place: Path, env: Env) -> None:
    words = ("study", "small.toml", "--on", "local", "--out", "boards", "--no-documents")
    done = run_fiprof(*words, cwd=place, env=nvml(env, FAKE_OTHER_DRIVER="-0"), status=0)
    info = json.loads((place / "boards/results/environment_info.json").read_text())
    assert (info["cases"], info["missing"], info["boards"]) == (4, {"decode": 2}, {})
    assert list(info["run_warnings"].values()) == [["left out, for it had another driver"]]
    cards = env["CUDA_VISIBLE_DEVICES"].split(",")
    done = run_fiprof(*words, cwd=place, env=nvml({**env, "CUDA_VISIBLE_DEVICES": cards[0]}))
    assert done.stderr.startswith("2 of 6 cases to measure, in 1 batch for 1 GPU\n")
    info = json.loads((place / "boards/results/environment_info.json").read_text())
    assert (info["cases"], info["missing"], sorted(info["boards"].values())) == (CASES, {}, cards)
    assert ([len(times) for times in info["anchors"].values()], info["mixed"]) == ([2], {})
    documents(place / "boards")
    page = (place / "boards/reports/environment.md").read_text()
    assert "2 boards measured. Between them the times of 1 case that several had lie up to 0.0% apart." in page


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Env]:
    """Slurm on this machine: one node with two GPUs that are null devices."""
    if os.getuid() or not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch"))):
        pytest.skip("no Slurm: as root, install slurmctld, slurmd, slurm-client and slurm-wlm-basic-plugins")
    pytest.importorskip("submitit")
    folder, host = tmp_path_factory.mktemp("slurm"), socket.gethostname().partition(".")[0]
    ports = []
    with contextlib.ExitStack() as held:
        for _ in range(2):
            free = held.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    for name in ("state", "spool"):
        (folder / name).mkdir()
    try:
        for number in range(2):
            os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError:
        pytest.skip("no Slurm: devices cannot be made here")
    (folder / "slurm.conf").write_text(SLURM.format(folder=folder, host=host, ports=ports))
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File={folder}/gpu[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    env = {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons = [
        subprocess.Popen([*words, "-f", env["SLURM_CONF"]], env={**os.environ, **env}, stdout=log, stderr=log)
        for words in (("slurmctld", "-D", "-c"), ("slurmd", "-D"))
        for log in [(folder / words[0]).open("w")]
    ]
    try:
        deadline = time.monotonic() + 30
        while "idle" not in ran("sinfo", "-h", "-o", "%T", env={**os.environ, **env}).stdout:
            if time.monotonic() > deadline:
                pytest.skip(f"Slurm does not start here: {(folder / 'slurmd').read_text()[-500:]}")
            time.sleep(0.2)
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


SLURM = """ClusterName=fiprof
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:2 State=UNKNOWN
PartitionName=h200 Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.mark.fault("a study's job is cancelled while fiprof is away", "the same command submits its batch again")
def test_slurm_tells_the_same(place: Path, env: Env, slurm: Env, local: Path) -> None:
    """Left to Slurm, one job cancelled, and taken up by the same command."""
    words = ("study", "small.toml", *on_page("slurm"), "--out", "slurm", "--no-documents")
    both = {**env, **slurm}
    done = run_fiprof(*words, "--no-wait", cwd=place, env=both, status=0)
    assert "2 batches are left to the cluster" in done.stderr
    first, second = json.loads((place / "slurm/study.json").read_text())["submitted"]
    assert ran("scancel", first, env={**os.environ, **both}).returncode == 0
    done = run_fiprof(*words, cwd=place, env=both, status=0)
    assert re.search(r"[12] batch(es)? handed out before\n", done.stderr)
    assert f"is measured again: its worker is gone: Slurm's job {first} ended without a word" in done.stderr
    assert f"job {second}" not in done.stderr
    assert (told(place / "slurm"), cells(place / "slurm")) == (told(local), cells(local))
