"""fiprof.orchestrator.ncu: the argv, and what ncu hides behind exit status 0."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.model.layout import Page
from fiprof.model.settings import Settings
from fiprof.orchestrator import ncu

WORKLOAD = ("python3", "-m", "fiprof.workloads", "run", "--case", "rmsnorm")


def test_full_set() -> None:
    argv = ncu.profile_argv(Path("ncu"), Path("r/profile.ncu-rep"), WORKLOAD, Settings())
    assert argv == (
        "ncu",
        "--set",
        "full",
        "--section",
        "SpeedOfLight_HierarchicalTensorRooflineChart",
        "--nvtx",
        "--nvtx-include",
        "fiprof@measure/",
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--force-overwrite",
        "--export",
        "r/profile.ncu-rep",
        *WORKLOAD,
    )


def test_quick_set_names_its_sections() -> None:
    settings = Settings(ncu_set="quick", clock_control="base", cache_control="none")
    argv = ncu.profile_argv(Path("ncu"), Path("p.ncu-rep"), (), settings)
    assert "--set" not in argv
    assert [after for before, after in itertools.pairwise(argv) if before == "--section"] == [
        "SpeedOfLight",
        "LaunchStats",
        "Occupancy",
        "WarpStateStats",
        "SchedulerStats",
        "ComputeWorkloadAnalysis",
        "MemoryWorkloadAnalysis",
        "SpeedOfLight_HierarchicalTensorRooflineChart",
    ]
    accesses = [
        f"l1tex__t_{count}_pipe_lsu_mem_{access}.sum"
        for access in ("global_op_ld", "global_op_st", "local_op_ld", "local_op_st")
        for count in ("requests", "sectors")
    ]
    assert argv[argv.index("--metrics") + 1].split(",") == ["dram__bytes_read.sum", "dram__bytes_write.sum", *accesses]
    assert argv[argv.index("--clock-control") + 1] == "base"
    assert argv[argv.index("--cache-control") + 1] == "none"


@pytest.mark.parametrize(
    ("page", "tail"),
    [
        ("raw", ("--csv", "--page", "raw", "--print-units", "base")),
        ("details", ("--csv", "--page", "details", "--print-units", "base")),
        ("source", ("--csv", "--page", "source", "--print-source", "sass", "--print-units", "base")),
    ],
)
def test_export_argv(page: Page, tail: tuple[str, ...]) -> None:
    assert ncu.export_argv(Path("ncu"), Path("p.ncu-rep"), page) == ("ncu", "--import", "p.ncu-rep", *tail)


# Each log as ncu 2025.3.1 wrote it on an H200.
NO_KERNELS = """==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 3691 (/usr/bin/python3.12)
==PROF== Disconnected from process 3691
==WARNING== No kernels were profiled.
==WARNING== Note that specified NVTX include expressions match only push/pop ranges.
"""
NO_METRICS = """==WARNING== No metrics to collect found in sections.
==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 3752 (/usr/bin/python3.12)
==PROF== Profiling "RMSNormKernel" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 3752
==PROF== Report: ns.ncu-rep
"""
EXIT_3 = """hi
==ERROR== The application returned an error code (3).
"""


@pytest.mark.fault(
    "ncu profiles nothing, finds no metric or may not read counters, with exit status 0", "the step fails in one line"
)
@pytest.mark.parametrize(
    ("log", "status", "message"),
    [
        (NO_KERNELS, 0, "ncu profiled no kernel: none was launched inside the NVTX range fiprof@measure/"),
        (NO_METRICS, 0, "ncu found no metrics in the sections that it was asked for"),
        (EXIT_3, 3, "the workload failed under ncu with status 3: hi"),
        ("==ERROR== '/x/python' does not exist or is not an executable.\n", 1, "ncu: '/x/python' does not exist or is not an executable."),
        ("==ERROR== The file is not an Nsight Compute profiler report.\n", 1, "ncu: The file is not an Nsight Compute profiler report."),
        ("==ERROR== File e1.ncu-rep already exists. Use '-f' for overwriting the file.\n", 1, "ncu: File e1.ncu-rep already exists. Use '-f' for overwriting the file."),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1, "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM)"),
        ("", 9, "ncu ended with exit status 9: it said nothing"),
    ],
)  # fmt: skip
def test_failures_become_errors(tmp_path: Path, log: str, status: int, message: str) -> None:
    report = tmp_path / "p.ncu-rep"
    report.write_bytes(b"NVR")
    with pytest.raises(FiprofError) as caught:
        ncu.check_log(log, report, exit_status=status)
    assert caught.value.message == message


@pytest.mark.fault("ncu ends with 0 and writes no report", "the step fails in one line")
def test_exit_status_0_and_no_report(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match="ncu made no report"):
        ncu.check_log("==PROF== Disconnected from process 1\n", tmp_path / "p.ncu-rep", exit_status=0)


def test_a_good_run_passes(recorded: Path) -> None:
    ncu.check_log((recorded / "logs/ncu.log").read_text(), recorded / "run.json", exit_status=0)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("==PROF== Connected to process 1\n", None),
        ('==PROF== Profiling "RMSNormKernel" - 3: 0%....50%', ("RMSNormKernel", 4, 50)),
        ('==PROF== Profiling "A" - 0: 0%....50%....100% - 38 passes\n==PROF== Profiling "B" - 1: ', ("B", 2, 0)),
        ('==PROF== Profiling "A" - 0 (1/6): 0%....50%....100% - 38 passes\n', ("A", 1, 100)),
    ],
)  # fmt: skip
def test_progress(tail: str, expected: tuple[str, int, int] | None) -> None:
    assert ncu.progress(tail) == expected
