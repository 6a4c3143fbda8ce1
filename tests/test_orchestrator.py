"""Processes, locks and run folders: nothing runs on, nothing is lost, nothing outside a folder is touched; command lines of nsys and
ncu, to the word, their versions and permissions, and what their words mean."""

import contextlib
import dataclasses
import json
import os
import pwd
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest

from fiprof import files
from fiprof.errors import FiprofError, Interrupted
from fiprof.model.settings import ProfileSettings, Settings
from fiprof.orchestrator import locks, ncu, nsys, parse
from fiprof.orchestrator.choosing import Filter
from fiprof.orchestrator.collect import check_trace
from fiprof.orchestrator.process import Supervisor, ToolCommand, end_orphans
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.tools import counters_permitted, find_tool, parse_version
from tests.conftest import Fiprof, python_path, until
from tests.nsys_exports import altered
from tests.recorded_runs import RUNS

NOBODY = 65534
GPU = f"GPU-test-{os.getpid()}"

HOLDER = """
import os, sys, threading
from fiprof.orchestrator.locks import gpu_lock
os.setuid(int(sys.argv[2]))
with gpu_lock(sys.argv[1], wait=False, waiting=print, stopping=threading.Event()):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holding(user: int = os.getuid(), **env: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, with another folder for temporary files, that holds the lock."""
    argv, env = [sys.executable, "-c", HOLDER, GPU, str(user)], {**os.environ, "PYTHONPATH": python_path(), **env}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def take(said: list[str], *, wait: bool = True, stopping: bool = False) -> contextlib.AbstractContextManager[object]:
    event = threading.Event()
    if stopping:
        event.set()
    return locks.gpu_lock(GPU, wait=wait, waiting=said.append, stopping=event)


def test_the_second_waits_until_it_is_interrupted_or_the_first_ends(tmp_path: Path) -> None:
    said: list[str] = []
    with holding(TMPDIR=str(tmp_path)) as holder:
        with pytest.raises(Interrupted), take([], stopping=True):
            pass
        threading.Timer(0.5, holder.kill).start()
        with take(said):
            assert len(said) == 1 and f"process {holder.pid} of " in said[0]


@pytest.mark.fault("two users with a TMPDIR each profile one GPU", "the second waits, or is told who has it")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_the_lock_is_for_every_user() -> None:
    who = rf"process \d+ of {pwd.getpwuid(NOBODY).pw_name} since 2"
    with holding(user=NOBODY, TMPDIR="/nowhere"), pytest.raises(FiprofError, match=who):
        take([], wait=False).__enter__()


@pytest.mark.fault("a study's lock names its holder in escapes or bytes", "one line of text")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"process 7 of \x1b[2J since \n", r"process 7 of \x1b[2J since \n"),
        (b"\xff" * 4096, r"\xff" * 200),
        (b"", "another fiprof"),
        (None, "process PID of "),
    ],
)
def test_a_folders_lock_is_anybodys_text(faked: Fiprof, tmp_path: Path, written: bytes | None, said: str) -> None:
    (tmp_path / "study").mkdir()
    with locks.folder_lock(tmp_path / "study"):
        if written is not None:
            (tmp_path / "study/.lock").write_bytes(written)
        done = faked("study", "flashinfer", "--quick", "--out", "study")
    who = f"fiprof: study is being worked on by {said.replace('PID', str(os.getpid()))}"
    assert done.returncode == 1 and done.stderr.startswith(who)
    assert done.stderr.endswith("\n  wait for its end, or end it\n")


# A tool that ignores polite requests, with a helper in a session of its own, as profilers start them.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(helper.pid, flush=True)
time.sleep(300)
"""


def command(tmp_path: Path, code: str, timeout_s: float | None = None) -> ToolCommand:
    return ToolCommand("step", (sys.executable, "-c", code), tmp_path / "logs/step.log", timeout_s=timeout_s)


def test_time_limit_ends_helpers_too(tmp_path: Path) -> None:
    finished = Supervisor().start(command(tmp_path, STUBBORN, timeout_s=1.0)).wait()
    assert finished.outcome == "timeout" and finished.message == "no end after 1 s"
    assert_gone(int((tmp_path / "logs/step.log").read_text().split()[0]))


@pytest.mark.fault("nsys is ended while it makes a report of its trace", "its trace, which it has closed, goes")
def test_a_trace_that_is_closed_goes(tmp_path: Path) -> None:
    tool, trace, closed = (tmp_path / name for name in ("tool", "nsys-report-1.qdstrm", "closed"))
    tool.write_text(f"#!/bin/sh\nexec 3> {trace}\nsleep 1\nexec 3>&-\ntouch {closed}\nsleep 60\n")
    tool.chmod(0o755)
    traces = Supervisor().start(ToolCommand("nsys", (str(tool), "profile"), tmp_path / "log"))
    assert traces.wait(lambda _: closed.exists()).message and closed.exists() and not trace.exists()


HOLDER_OF_PROCESS = """
import sys
from pathlib import Path
from fiprof.orchestrator.process import Supervisor, ToolCommand
Supervisor().start(ToolCommand("step", (sys.executable, "-c", sys.argv[1]), Path(sys.argv[2]))).wait()
"""


@pytest.mark.fault("fiprof is killed, and the guard of its processes too", "tool and helpers end within seconds")
@pytest.mark.parametrize("victims", ["fiprof", "fiprof and its guard"])
def test_a_killed_fiprof_leaves_no_process(tmp_path: Path, victims: str) -> None:
    log = tmp_path / "step.log"
    fiprof = subprocess.Popen([sys.executable, "-c", HOLDER_OF_PROCESS, STUBBORN, str(log)])
    until(lambda: log.exists() and log.read_text())
    (guard,) = psutil.Process(fiprof.pid).children()
    tool, helper = guard.children()[0].pid, int(log.read_text())
    fiprof.kill()
    fiprof.wait()
    if victims != "fiprof":
        guard.kill()
        assert_gone(tool)
        assert [each for each in end_orphans() if "time.sleep(300)" in each]
    assert_gone(tool)
    assert_gone(helper)


@pytest.mark.fault("a program prints 100 MB", "the log has its first and last MB, without secrets; memory stays small")
def test_a_log_of_100_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", secret := "0123456789abcdef" * 8)
    line = f"step 1 with {secret}, which is long; "
    # No line breaks; both cuts are in a secret somewhere, as the lines are of no round length.
    code = f"import os\nblock = b'first ' + b{line!r} * 100_000\nfor _ in range(6): os.write(1, block)\nprint('last')"
    tracemalloc.start()
    Supervisor().start(command(tmp_path, code)).wait()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log = (tmp_path / "logs/step.log").read_text()
    assert peak < 64 << 20
    assert log.startswith("first step 1 with ***, which") and log.endswith("long; last\n")
    assert 100_000 < len(log) < 2 << 20 and not re.search("[0-9a-f]{16}", log)
    assert re.search(r"\[fiprof: \d{8,} bytes left out\]", log)


def assert_gone(pid: int) -> None:
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, seconds=5)


def test_collects_in_the_same_second_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIPROF_CLOCK", f"2026-11-21T10:15:30@{time.monotonic()}")
    with ThreadPoolExecutor(8) as pool:
        names = pool.map(lambda _: Archive(tmp_path).create("prefill").name, range(8))
    stem = "20261121-101530-prefill"
    assert {*names} == {stem, *(f"{stem}-{n}" for n in range(2, 9))}


def test_runs_are_found_by_path_name_prefix_and_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path / "artifacts")
    first, second = (archive.create(label).finish("complete", "") for label in ("decode", "prefill"))
    for text in (str(first), first.name, first.name[:-2], str(first)[:-2], f"{first.name[:-2]}…"):
        assert archive.find(text) == first, text
    assert archive.find("latest") in (first, second)
    monkeypatch.chdir(archive.root.parent)
    assert Archive(Path("artifacts")).find(f"artifacts/{second.name[:-3]}").name == second.name


@pytest.mark.fault("the time zone changed between two runs, or a manifest damaged", "`latest` is by the time in UTC")
def test_latest_is_by_the_time_of_the_start(tmp_path: Path) -> None:
    for name, started in (
        ("20261101-020000-tokyo", "2026-11-01T02:00:00+09:00"),
        ("20261031-200000-london", "2026-10-31T20:00:00+00:00"),
        ("20261031-150000-new-york", "2026-10-31T18:00:00-04:00"),
        ("20260101-000000-damaged", 7),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"started": started}))
    archive = Archive(tmp_path)
    assert [name[16:] for name in archive.by_time()] == ["damaged", "tokyo", "london", "new-york"]
    assert archive.find("latest").name == "20261031-150000-new-york"


HOLD = """
import sys
from pathlib import Path
from fiprof.files import atomic_write, scratch
with scratch(Path(sys.argv[1])) as folder, atomic_write(Path(sys.argv[1], "file")) as partial:
    (folder / "large").write_text("…")
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.fault("temporaries of a killed fiprof", "the next one that works in the folder removes them")
def test_temporaries_of_a_killed_process_go_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    killed, living = (subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2))
    for process in (killed, living):
        assert process.stdout is not None
        process.stdout.readline()
    assert len(os.listdir(tmp_path)) == 6
    killed.kill()
    killed.communicate()
    files.clear(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", "", ".d"]
    living.communicate()
    assert os.listdir(tmp_path) == ["file"]


def test_a_study_is_no_run_and_says_which_runs_it_has(tmp_path: Path) -> None:
    study = tmp_path / "study-mine"
    (study / "20261121-101530-decode").mkdir(parents=True)
    (study / "study.json").write_text("{}")
    (study / "20261121-101530-decode/run.json").write_text("{}")
    for text in ("study-mine", str(study)):
        with pytest.raises(FiprofError) as caught:
            Archive(tmp_path).find(text)
        assert caught.value.message == f"{study} is a study, not a run; its runs: 20261121-101530-decode"
        assert "reports/INDEX.md" in caught.value.remedy
    assert Archive(tmp_path).find(f"{study}/2026").name == "20261121-101530-decode"


WORKLOAD = ("python3", "-m", "fiprof.workloads", "run", "--case", "rmsnorm")
PROGRAM = ("python3", "train.py", "--steps", "3")
NSYS, NCU, NEW = Path("nsys"), Path("ncu"), (2025, 3, 1)
TRACED = "--trace=cuda,nvtx --sample=none --cpuctxsw=none --cuda-graph-trace=node --cuda-memory-usage=true"


def test_nsys_over_a_workload() -> None:
    def argv(version: tuple[int, ...], hz: int) -> str:
        return " ".join(nsys.profile_argv(NSYS, version, Path("r/t.nsys-rep"), WORKLOAD, Settings(gpu_metrics_hz=hz)))

    always = f"nsys profile --output=r/t.nsys-rep --force-overwrite=true {TRACED}"
    metrics = " --gpu-metrics-devices=cuda-visible --gpu-metrics-frequency=10000"
    assert argv(NEW, 10_000) == f"{always}{metrics} {' '.join(WORKLOAD)}"
    assert argv(NEW, 0) == f"{always} {' '.join(WORKLOAD)}"
    # Older versions know the singular switch.
    assert "--gpu-metrics-device=cuda-visible" in argv((2022, 4, 2), 1000).split()


def test_nsys_exports() -> None:
    report, out = Path("t.nsys-rep"), Path("t.sqlite")
    plain = ["nsys", "export", "--type=sqlite", "--force-overwrite=true", "--output=t.sqlite", "t.nsys-rep"]
    versions: tuple[tuple[int, ...], ...] = ((), (2024, 2, 3), NEW)
    payloads = ["--include-json=true" in nsys.export_argv(NSYS, report, out, version) for version in versions]
    assert (list(nsys.export_argv(NSYS, report, out)), payloads) == (plain, [False, False, True])


def traced(version: tuple[int, ...] = NEW, python_hz: int = 0, **settings: Any) -> list[str]:
    asked = ProfileSettings(python_hz=python_hz, **settings)
    words = nsys.program_argv(NSYS, version, Path("t.nsys-rep"), PROGRAM, asked)
    assert words[:2] == ("nsys", "profile") and words[-4:] == PROGRAM
    return list(words[2:-4])


def test_nsys_over_a_program() -> None:
    plain = f"--output=t.nsys-rep --force-overwrite=true {TRACED} --wait=primary"
    looks = " --python-sampling=true --python-sampling-frequency=200"
    default = ProfileSettings().python_hz
    assert " ".join(traced()) == " ".join(traced((2024, 2), default)) == plain
    assert " ".join(traced(python_hz=default)) == plain.replace("cuda,nvtx", "cuda,nvtx,python-gil") + looks


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delay_s": 12.0, "duration_s": 2.5}, "--delay=12 --duration=2.5"),
        ({"duration_s": 2.0, "keep_running": True}, "--duration=2 --kill=none"),
        ({"capture": "cudaProfilerApi"}, "--capture-range=cudaProfilerApi --capture-range-end=stop --kill=none"),
        ({"capture": "nvtx:fiprof@decode"}, "--capture-range=nvtx --nvtx-capture=decode@fiprof "
         "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0 --capture-range-end=stop --kill=none"),
        ({"gpu_metrics_hz": 1000}, "--gpu-metrics-devices=cuda-visible --gpu-metrics-frequency=1000"),
    ],
)  # fmt: skip
def test_the_window_of_nsys(settings: dict[str, Any], words: str) -> None:
    assert " ".join(traced(**settings)[8:]) == words


def test_the_users_own_words_take_the_place_of_fiprofs() -> None:
    words = traced(nsys_args=("--trace=cuda,nvtx,osrt", "--wait=all", "--backtrace=none"))
    assert words[-3:] == ["--trace=cuda,nvtx,osrt", "--wait=all", "--backtrace=none"]
    assert not {"--trace=cuda,nvtx", "--wait=primary"} & set(words)
    counting = counted(ncu_args=("--launch-count", "5", "--import-source", "yes"))
    assert counting[-4:] == ["--launch-count", "5", "--import-source", "yes"] and counting.count("--launch-count") == 1


IMPORTER = "nsys could not turn its data into a report: Importer error status: Importation failed."
UNFIT = "nsys 2024.2.3 saw no ranges of nvtx 0.2.17: the two do not fit each other"


@pytest.mark.fault("nsys's importer cannot start: a .qdstrm is left", "the step fails; missing libraries are named")
@pytest.mark.fault("nsys leaves an empty report", "the step fails with nsys's last line")
def test_a_report_that_nsys_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "trace.qdstrm").write_bytes(b"x")
    with pytest.raises(FiprofError) as caught:
        nsys.check_report(tmp_path / "trace.nsys-rep", "Importer error status: Importation failed.\n")
    assert caught.value.message == IMPORTER and "libdw1" in caught.value.remedy
    (tmp_path / "trace.qdstrm").unlink()
    (tmp_path / "empty.nsys-rep").touch()
    with pytest.raises(FiprofError, match="nsys made no report: the disk is full"):
        nsys.check_report(tmp_path / "empty.nsys-rep", "…\nthe disk is full\n")


@pytest.mark.fault("an nsys that drops the ranges of a newer nvtx", "the step fails; versions that fit are named")
@pytest.mark.fault("a workload that launches no kernel, under nsys", "the step fails in one line")
@pytest.mark.fault("a workload dies in the middle and nsys says all is well", "the step fails; the range is named")
@pytest.mark.parametrize(
    ("sql", "incompatible", "message", "remedy"),
    [
        ("DELETE FROM NVTX_EVENTS", True, UNFIT, nsys.NVTX_REMEDY),
        ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", False, "nsys saw no kernel", ""),
        ('UPDATE NVTX_EVENTS SET "end" = NULL WHERE "end" > 3802145000', False, "> iter 19: the trace has nothing after", ""),
    ],
)  # fmt: skip
def test_a_trace_that_lacks_something(tmp_path: Path, sql: str, incompatible: bool, message: str, remedy: str) -> None:
    (tmp_path / "nsys").mkdir()
    altered(tmp_path / "nsys", sql)
    summary = parse.parse_nsys(tmp_path, tmp_path / "tables")
    summary = dataclasses.replace(summary, nvtx_incompatible=incompatible)
    with pytest.raises(FiprofError) as caught:
        check_trace(tmp_path / "tables", summary, "2024.2.3", "0.2.17")
    assert message in caught.value.message and remedy in caught.value.remedy


def test_nsys_own_lines_are_not_the_programs() -> None:
    """In whatever pieces they come."""
    said = (
        b"tokens [1, 2]\nCollecting\nCollecting data...\nGenerating '/tmp/nsys-report-7eb3.qdstrm'\n"
        b"\r[1/1] [0%          ] t.nsys-repProcessing events...\n[1/1] [0%  ] t.nsys-rep\r[1/1] [===100%] t.nsys-rep\n"
        b"Capture range started in the application.\nCapture\n\r 10%|# |\r 20%|##|\n"
        b"Generated:\n\t/tmp/t.nsys-rep\n    /tmp/t.nsys-rep\n"
        b"Connection to Agent lost. This is most likely a bug. Internal reason: 'Connection reset by peer'.\n"
        b"Please refer to the troubleshooting section of the docs:\n"
        b"https://docs.nvidia.com/nsight-systems/UserGuide/index.html#troubleshooting\nGen"
    )
    for size in (1, 7, 1000):
        passed: list[bytes] = []
        output = nsys.ProgramOutput(lambda piece, _, to=passed: to.append(piece))  # type: ignore[misc]
        for at in range(0, len(said), size):
            output(said[at : at + size], False)
        output(b"", False)
        assert b"".join(passed) == b"tokens [1, 2]\nCollecting\nCapture\n\r 10%|# |\r 20%|##|\nGen"


def test_ncu_over_a_workload() -> None:
    argv = ncu.profile_argv(NCU, Path("r/profile.ncu-rep"), WORKLOAD, Settings())
    assert " ".join(argv) == (
        "ncu --set full --section SpeedOfLight_HierarchicalTensorRooflineChart --nvtx --nvtx-include fiprof@measure/ "
        f"--clock-control none --cache-control all --force-overwrite --export r/profile.ncu-rep {' '.join(WORKLOAD)}"
    )


def test_the_quick_set_names_its_sections() -> None:
    settings = Settings(ncu_set="quick", clock_control="base", cache_control="none")
    argv = " ".join(ncu.profile_argv(NCU, Path("p.ncu-rep"), (), settings))
    assert "--set" not in argv and " --clock-control base --cache-control none " in argv
    assert " ".join(re.findall(r"--section (\w+)", argv)) == (
        "SpeedOfLight LaunchStats Occupancy WarpStateStats SchedulerStats ComputeWorkloadAnalysis "
        "MemoryWorkloadAnalysis SpeedOfLight_HierarchicalTensorRooflineChart"
    )
    (metrics,) = re.findall(r"--metrics (\S+)", argv)
    pairs = product(("global_op_ld", "global_op_st", "local_op_ld", "local_op_st"), ("requests", "sectors"))
    accesses = [f"l1tex__t_{count}_pipe_lsu_mem_{access}.sum" for access, count in pairs]
    assert metrics.split(",") == ["dram__bytes_read.sum", "dram__bytes_write.sum", *accesses]


def test_ncu_exports() -> None:
    exported = [ncu.export_argv(NCU, Path("p.ncu-rep"), page) for page in ("raw", "details", "source")]
    for argv, page in zip(exported, ("raw", "details", "source --print-source sass"), strict=True):
        assert " ".join(argv) == f"ncu --import p.ncu-rep --csv --page {page} --print-units base"


def counted(*numbers: int, **settings: Any) -> list[str]:
    chosen = Filter(("_Z3addPf", "gemm"), 1, numbers)
    words = ncu.program_argv(NCU, Path("p.ncu-rep"), PROGRAM, ProfileSettings(**settings), chosen)
    assert words[-7:] == ("--force-overwrite", "--export", "p.ncu-rep", *PROGRAM)
    return list(words[1:-7])


def test_ncu_over_a_program() -> None:
    assert " ".join(counted(sections=("SpeedOfLight", "Occupancy"))) == (
        "--section SpeedOfLight --section Occupancy --nvtx --target-processes all --filter-mode per-launch-config "
        "--launch-skip 1 --launch-count 1 --kernel-name-base mangled --kernel-name regex:^(_Z3addPf|gemm)$ "
        "--replay-mode kernel --clock-control none --cache-control all"
    )
    # The launches of these numbers, of each of the names; seen with ncu 2025.3: it counts a name's launches from 1.
    assert " ".join(counted(2, 40, sections=("Occupancy",))) == (
        "--section Occupancy --nvtx --target-processes all --kernel-name-base mangled "
        "--kernel-id ::regex:^(_Z3addPf|gemm)$:^(2|40)$ --replay-mode kernel --clock-control none --cache-control all"
    )
    # With torch.compile's worker under ncu too, launches of a program that launches alone wait half a minute (2025.3).
    words = ncu.program_argv(NCU, Path("p.ncu-rep"), PROGRAM, ProfileSettings(), Filter(("gemm",), 1, alone=True))
    assert words[words.index("--target-processes") + 1] == "application-only"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ranges": ("decode",)}, "--nvtx --nvtx-include decode/ --nvtx-include fiprof@decode/"),
        ({"ranges": ("torch@a/b[1]",)}, r"--nvtx --nvtx-include torch@a\/b\[1\]/"),
        ({"capture": "nvtx:step"}, "--nvtx --nvtx-include step/ --nvtx-include fiprof@step/"),
        ({"capture": "cudaProfilerApi"}, "--nvtx --profile-from-start off"),
    ],
)
def test_the_filters_of_ncu(settings: dict[str, Any], words: str) -> None:
    assert f" {words} " in " ".join(counted(**settings))


# Of each log what ncu 2025.3.1 wrote on an H200, but for its notes.
NO_KERNELS = """==PROF== Disconnected from process 3691
==WARNING== No kernels were profiled.
==WARNING== Note that specified NVTX include expressions match only push/pop ranges.
"""
NO_METRICS = """==WARNING== No metrics to collect found in sections.
==PROF== Profiling "RMSNormKernel" - 0: 0%....50%....100% - 1 pass
==PROF== Report: ns.ncu-rep
"""
EXIT_3 = "hi\n==ERROR== The application returned an error code (3).\n"
SAID = ("'/x/python' does not exist or is not an executable.", "The file is not an Nsight Compute profiler report.",
        "File e1.ncu-rep already exists. Use '-f' for overwriting the file.")  # fmt: skip


@pytest.mark.fault("ncu profiles nothing, finds no metric, may read no counters", "the step fails in one line")
@pytest.mark.fault("ncu ends with 0 and writes no report", "the step fails in one line")
@pytest.mark.parametrize(
    ("log", "status", "message"),
    [
        (NO_KERNELS, 0, "ncu profiled no kernel: none was launched inside the NVTX range fiprof@measure/"),
        (NO_METRICS, 0, "ncu found no metrics in the sections that it was asked for"),
        (EXIT_3, 3, "the workload failed under ncu with status 3: hi"),
        *((f"==ERROR== {said}\n", 1, f"ncu: {said}") for said in SAID),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1, "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM)"),
        ("", 9, "ncu ended with exit status 9: it said nothing"),
        ("==PROF== Disconnected from process 1\n", 0, "ncu made no report"),
    ],
)  # fmt: skip
def test_failures_become_errors(tmp_path: Path, log: str, status: int, message: str) -> None:
    report = tmp_path / "p.ncu-rep"
    if message != "ncu made no report":
        report.write_bytes(b"NVR")
    with pytest.raises(FiprofError) as caught:
        ncu.check_log(log, report, exit_status=status)
    assert caught.value.message.startswith(message)
    ncu.check_log((RUNS["all"] / "logs/ncu.log").read_text(), RUNS["all"] / "run.json", exit_status=0)


ADMIN_ONLY, EVERYBODY = "RmProfilingAdminOnly: 1\n", "EnableMSI: 1\nRmProfilingAdminOnly: 0\n"
ROOT, ROOT_IN_A_CONTAINER, USER = "000001ffffffffff", "00000000a80425fb", "0000000000000000"


@pytest.mark.parametrize(
    ("parameters", "capabilities", "permitted"),
    [
        (ADMIN_ONLY, ROOT, True), (ADMIN_ONLY, ROOT_IN_A_CONTAINER, False), (ADMIN_ONLY, USER, False),
        (EVERYBODY, USER, True), ("EnableMSI: 1\n", ROOT, None), (None, ROOT, None),
    ],
)  # fmt: skip
def test_counters_permitted(tmp_path: Path, parameters: str | None, capabilities: str, permitted: bool | None) -> None:
    (tmp_path / "status").write_text(f"Name:\tpython3\nCapEff:\t{capabilities}\n")
    if parameters is not None:
        (tmp_path / "params").write_text(parameters)
    assert counters_permitted(tmp_path / "params", tmp_path / "status") is permitted


@pytest.mark.fault("an nsys or ncu whose --version prints bytes", "its version is unknown; the rest works")
def test_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {text: parse_version(text) for text in VERSIONS} == VERSIONS
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\nprintf '\\377\\376Version'\n")
    program.chmod(0o755)
    monkeypatch.setenv("FIPROF_NCU", str(program))
    assert find_tool("ncu").version_text == "unknown"


VERSIONS = {
    "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0": (2025, 3, 1),
    "NVIDIA Nsight Systems version 2022.4.2.1-df9881f": (2022, 4, 2),
    "Copyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36398880)": (2025, 3, 1),
    "command not found": (),
}
