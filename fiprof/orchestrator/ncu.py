"""Nsight Compute: the command lines, and what to make of what it says (it lies with exit status 0)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.layout import Page
from fiprof.model.settings import Settings, tool_words
from fiprof.orchestrator.nsys import last_line

# Counted tensor operations stand in this section alone; not every version's full set has it.
TENSOR_ROOFLINE = "SpeedOfLight_HierarchicalTensorRooflineChart"

# What `fiprof stalls` and `fiprof show` need: 26 passes on an H200 instead of 38.
QUICK_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "WarpStateStats",
    "SchedulerStats",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    TENSOR_ROOFLINE,
)

# What the quick sections lack and checks and verdicts want; they cost no pass of their own (26 on an H200 either way).
QUICK_METRICS = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    *(
        f"l1tex__t_{count}_pipe_lsu_mem_{space}_op_{access}.sum"
        for space in ("global", "local")
        for access in ("ld", "st")
        for count in ("requests", "sectors")
    ),
)

# Push/pop ranges need the slash: without it ncu looks for start/end ranges and matches none.
MEASURE_RANGE = "fiprof@measure/"

PERMISSION_REMEDY = (
    "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0, "
    "or give the container --cap-add=SYS_ADMIN"
)


def profile_argv(ncu: Path, report: Path, workload: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """``ncu`` over a workload: only the kernels launched inside its measure ranges. report ends in .ncu-rep."""
    sections: tuple[str, ...] = ("--set", "full", "--section", TENSOR_ROOFLINE)
    if settings.ncu_set == "quick":
        sections = (
            *(word for section in QUICK_SECTIONS for word in ("--section", section)),
            "--metrics",
            ",".join(QUICK_METRICS),
        )
    return (
        str(ncu),
        *sections,
        "--nvtx",
        "--nvtx-include",
        MEASURE_RANGE,
        *tool_words(settings, "ncu"),
        "--force-overwrite",
        "--export",
        str(report),
        *workload,
    )


def export_argv(ncu: Path, report: Path, page: Page) -> tuple[str, ...]:
    """``ncu --import`` of one page as CSV, in base units; it prints the page on stdout."""
    view = ("--print-source", "sass") if page == "source" else ()
    return (str(ncu), "--import", str(report), "--csv", "--page", page, *view, "--print-units", "base")


def check_log(log: str, report: Path, *, exit_status: int | None) -> None:
    """Raise FiprofError for everything that ncu reports as a failure, or hides behind exit status 0.

    log: what ncu and the workload printed. The workload's own failure is told from ncu's.
    """
    if "ERR_NVGPUCTRPERM" in log:
        raise FiprofError("ncu may not read the GPU's counters (ERR_NVGPUCTRPERM)", PERMISSION_REMEDY)
    application = re.search(r"==ERROR== The application returned an error code \((\d+)\)", log)
    if application:
        raise FiprofError(
            f"the workload failed under ncu with status {application.group(1)}: {_last_own_line(log)}",
            "what was profiled before is kept",
        )
    errors = re.findall(r"==ERROR== (.*)", log)
    if errors:
        raise FiprofError(f"ncu: {errors[-1].strip()}", _remedy(errors[-1]))
    if "No metrics to collect found in sections" in log:
        raise FiprofError(
            "ncu found no metrics in the sections that it was asked for",
            "ncu --list-sections shows those it has; this fiprof was tested with 2025.3",
        )
    if "No kernels were profiled" in log:
        raise FiprofError(
            f"ncu profiled no kernel: none was launched inside the NVTX range {MEASURE_RANGE}",
            "see that the workload's interpreter has the package nvtx and that the workload launches kernels",
        )
    if exit_status:
        raise FiprofError(f"ncu ended with exit status {exit_status}: {last_line(log)}")
    if not report.exists() or not report.stat().st_size:
        raise FiprofError(f"ncu made no report: {last_line(log)}", "its whole output stands in the log")


@dataclass(frozen=True)
class Progress:
    """How far ncu is, from its own words."""

    kernel: str
    number: int
    """Launches begun, from 1."""
    percent: int
    """Of this launch's passes."""


def progress(tail: str) -> Progress | None:
    """What the end of the log says about the launch under way; None before the first."""
    found = list(re.finditer(r'==PROF== Profiling "(.*?)" - (\d+)(?: \(\d+/\d+\))?: ?([^\n]*)', tail))
    if not found:
        return None
    percents = re.findall(r"(\d+)%", found[-1].group(3))
    return Progress(found[-1].group(1), int(found[-1].group(2)) + 1, int(percents[-1]) if percents else 0)


def _remedy(error: str) -> str:
    if "already exists" in error:
        return "another process wrote to the run folder; start again"
    if "does not exist or is not an executable" in error:
        return "name the interpreter that has torch and flashinfer with --python PATH"
    if "not an Nsight Compute profiler report" in error:
        return "the report is cut short or of a later ncu; collect again, or read it with that ncu"
    if "another" in error.lower() and "injection" in error.lower():
        return "profilers do not nest: run fiprof outside nsys and without CUDA_INJECTION64_PATH"
    return "ncu's whole output stands in the log"


def _last_own_line(log: str) -> str:
    """The workload's last words: ncu's own lines begin with ==."""
    return last_line("\n".join(line for line in log.splitlines() if not line.startswith("==")))
