"""Command lines of nsys and ncu, to the word; their versions and permissions; what their words mean."""

import dataclasses
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fiprof.errors import FiprofError
from fiprof.model.settings import ProfileSettings, Settings
from fiprof.orchestrator import ncu, nsys, parse
from fiprof.orchestrator.choosing import Filter
from fiprof.orchestrator.collect import check_trace
from fiprof.orchestrator.tools import counters_permitted, find_tool, parse_version
from tests.nsys_exports import altered
from tests.recorded_runs import RUNS

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
        b"Generated:\n\t/tmp/t.nsys-rep\nGen"
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
