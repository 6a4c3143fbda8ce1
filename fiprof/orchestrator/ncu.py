"""Nsight Compute: the command lines, and what to make of what it says (it lies with exit status 0)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fiprof.errors import FiprofError
from fiprof.model.layout import Page
from fiprof.model.settings import ProfileSettings, Settings, tool_words
from fiprof.orchestrator.choosing import Filter
from fiprof.orchestrator.nsys import last_line
from fiprof.orchestrator.tools import PERMISSION_REMEDY
from fiprof.workloads.nvtx import DOMAIN

# Counted tensor operations stand in this section alone; not every version's full set has it.
TENSOR_ROOFLINE = "SpeedOfLight_HierarchicalTensorRooflineChart"

# What `fiprof stalls` and `fiprof show` need: 26 passes on an H200 instead of 38.
QUICK_SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats", "SchedulerStats", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", TENSOR_ROOFLINE,
)  # fmt: skip

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

TAIL_BYTES = 1 << 16
# Push/pop ranges need the slash: without it ncu looks for start/end ranges and matches none.
MEASURE_RANGE = "fiprof@measure/"

REMEDIES = {
    "already exists": "another process wrote to the run folder; start again",
    "does not exist or is not an executable": "name the interpreter that has torch and flashinfer with --python PATH",
    "not an Nsight Compute profiler report": (
        "the report is cut short or of a later ncu; collect again, or read it with that ncu"
    ),
    "another.*injection|injection.*another": (
        "profilers do not nest: run fiprof outside nsys and without CUDA_INJECTION64_PATH"
    ),
}
"""What ncu says of an error, as a regular expression -> what to do about it."""


def profile_argv(ncu: Path, report: Path, workload: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """``ncu`` over a workload: only the kernels launched inside its measure ranges. report ends in .ncu-rep."""
    inside, into = ("--nvtx", "--nvtx-include", MEASURE_RANGE), ("--force-overwrite", "--export", str(report))
    return (str(ncu), *_metrics(settings.ncu_set), *inside, *tool_words(settings, "ncu"), *into, *workload)


def program_argv(
    ncu: Path, report: Path, program: Sequence[str], settings: ProfileSettings, chosen: Filter
) -> tuple[str, ...]:
    """``ncu`` over a program of the user's: the chosen launches. An option of the user's replaces ours."""
    kind, _, name = (settings.capture or "").partition(":")
    # NVTX ranges outside which nothing is profiled; none where everything may be.
    marked = settings.ranges or ((name,) if kind == "nvtx" else ())
    collected = [word for name in settings.sections for word in ("--section", name)] or _metrics(settings.ncu_set)
    passed = tool_words(settings, "ncu")
    names = f"regex:^({'|'.join(map(re.escape, chosen.names))})$"
    picked: list[tuple[str, ...]] = [
        ("--filter-mode", "per-launch-config"),
        ("--launch-skip", str(chosen.skip)),
        ("--launch-count", str(settings.count)),
        ("--kernel-name-base", "mangled"),
        ("--kernel-name", names),
    ]
    if chosen.invocations:
        numbers = "|".join(map(str, chosen.invocations))
        picked = [("--kernel-name-base", "mangled"), ("--kernel-id", f"::{names}:^({numbers})$")]
    included = []
    for each in marked:
        domain, at, bare = each.rpartition("@")
        escaped = re.sub(r"([@,\[\]/*+;\\])", r"\\\1", bare)
        # Without a domain it is the default one's or fiprof's.
        included += [f"{of}{escaped}/" for of in ([f"{domain}@"] if at else ["", f"{DOMAIN}@"])]
    ours: list[tuple[str, ...]] = [
        *zip(collected[::2], collected[1::2], strict=True),
        ("--nvtx",),
        *(("--nvtx-include", each) for each in included),
        *([("--profile-from-start", "off")] if settings.capture == "cudaProfilerApi" else []),
        ("--target-processes", "application-only" if chosen.alone else "all"),
        *picked,
        *zip(passed[::2], passed[1::2], strict=True),
    ]
    defaults = (word for option in ours if option[0] not in settings.ncu_args for word in option)
    return (str(ncu), *defaults, *settings.ncu_args, "--force-overwrite", "--export", str(report), *program)


def _metrics(ncu_set: Literal["full", "quick"]) -> tuple[str, ...]:
    if ncu_set == "full":
        return ("--set", "full", "--section", TENSOR_ROOFLINE)
    sections = (word for section in QUICK_SECTIONS for word in ("--section", section))
    return (*sections, "--metrics", ",".join(QUICK_METRICS))


def pages(ncu_set: Literal["full", "quick"]) -> tuple[Page, ...]:
    """The pages to export: the quick set has no source counters."""
    return ("raw", "details", "source") if ncu_set == "full" else ("raw", "details")


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
        own = "\n".join(line for line in log.splitlines() if not line.startswith("=="))
        what = f"the workload failed under ncu with status {application.group(1)}: {last_line(own)}"
        raise FiprofError(what, "what was profiled before is kept")
    if errors := re.findall(r"==ERROR== (.*)", log):
        remedies = (remedy for pattern, remedy in REMEDIES.items() if re.search(pattern, errors[-1], re.IGNORECASE))
        raise FiprofError(f"ncu: {errors[-1].strip()}", next(remedies, "ncu's whole output stands in the log"))
    if "No metrics to collect found in sections" in log:
        what = "ncu found no metrics in the sections that it was asked for"
        raise FiprofError(what, "ncu --list-sections shows those it has; this fiprof was tested with 2025.3")
    if "No kernels were profiled" in log:
        what = f"ncu profiled no kernel: none was launched inside the NVTX range {MEASURE_RANGE}"
        remedy = "see that the workload's interpreter has the package nvtx and that the workload launches kernels"
        raise FiprofError(what, remedy)
    if exit_status:
        raise FiprofError(f"ncu ended with exit status {exit_status}: {last_line(log)}")
    if not report.exists() or not report.stat().st_size:
        raise FiprofError(f"ncu made no report: {last_line(log)}", "its whole output stands in the log")


class Counter:
    """Counts launches in ncu's output, whatever the program prints between its lines; a ``PassOn``."""

    def __init__(self) -> None:
        self.kernel = ""  # name of the last one begun, as ncu prints it
        self.begun = 0
        self.done = 0
        self._rest = b""

    def __call__(self, piece: bytes, _of_stderr: bool) -> None:
        *lines, rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self.done += bool(re.search(rb"- \d+ pass(es)?$", line))
            if begun := re.search(rb'==PROF== Profiling "(.*?)"', line):
                self.begun += 1
                self.kernel = begun[1].decode(errors="replace")
        self._rest = rest[-TAIL_BYTES:]


def progress(tail: str) -> tuple[str, int, int] | None:
    """How far ncu is by the end of its log: the launch's kernel, its number from 1, and how many percent of its passes
    are through; None before the first."""
    lines = re.findall(r'==PROF== Profiling "(.*?)" - (\d+)(?: \(\d+/\d+\))?: ?([^\n]*)', tail)
    if not lines:
        return None
    kernel, number, passes = lines[-1]
    percents = re.findall(r"(\d+)%", passes)
    return kernel, int(number) + 1, int(percents[-1]) if percents else 0
