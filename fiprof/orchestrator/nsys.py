"""Nsight Systems: the command lines, and what to make of what it says."""

import re
from collections.abc import Sequence
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.settings import ProfileSettings, Settings, tool_words
from fiprof.orchestrator.process import PassOn

# 2024.5 renamed --gpu-metrics-device; older versions know the singular alone.
PLURAL_GPU_METRICS = (2024, 5)
# Seen with this version; 2022.4 knows no such option.
JSON_PAYLOADS = (2025, 3)

LONGEST_OWN_LINE = 1 << 16
NO_SAMPLING = ("--sample=none", "--cpuctxsw=none")
MODULES = "--pytorch=functions-trace"  # ranges around the forward of PyTorch's modules; 2022.4 knows no such option
FOLLOW_FORKS = "--trace-fork-before-exec=true"
"""Follow what is forked and starts no other program: Python's multiprocessing by "fork", gunicorn's workers. Not by
default, for nsys warns that such a process may crash or hang."""
CUDA_DETAIL = ("--cuda-graph-trace=node", "--cuda-memory-usage=true")

METRICS_REFUSED = re.compile(r"gpu-metrics|GPU Metrics.*(?:permission|denied|not supported|in use)", re.IGNORECASE)
"""In the log of an nsys that gave up because of the GPU metrics."""

# The Python package nvtx from 0.2.13 on sends payloads that nsys understands from 2024.4 on.
NVTX_REMEDY = "pip install nvtx==0.2.11 in the workload's interpreter, or use nsys 2025.1 or later"


def profile_argv(
    nsys: Path, version: tuple[int, ...], report: Path, workload: Sequence[str], settings: Settings
) -> tuple[str, ...]:
    """``nsys profile`` over a workload: CUDA calls, kernels (graph nodes too), NVTX, device memory.

    The GPU's metrics need counter permission.
    """
    fixed = (str(nsys), "profile", f"--output={report}", "--force-overwrite=true")
    traced = ("--trace=cuda,nvtx", *NO_SAMPLING, *CUDA_DETAIL, *_gpu_metrics(version, settings.gpu_metrics_hz))
    return (*fixed, *traced, *tool_words(settings, "nsys"), *workload)


def program_argv(
    nsys: Path, version: tuple[int, ...], report: Path, program: Sequence[str], settings: ProfileSettings
) -> tuple[str, ...]:
    """``nsys profile`` over a program of the user's, or a window of it.

    nsys waits for the program alone, not for daemons that it leaves. An option of the user's replaces ours.
    """
    traced, *detail = program_trace(version, settings)
    ours = [traced, *NO_SAMPLING, *detail]
    ours += _gpu_metrics(version, settings.gpu_metrics_hz)
    # What of the program is traced, and whether it goes on afterwards.
    if settings.delay_s:
        ours.append(f"--delay={settings.delay_s:g}")
    if settings.duration_s:
        ours.append(f"--duration={settings.duration_s:g}")
    if settings.capture is not None:
        kind, _, name = settings.capture.partition(":")
        ours.append(f"--capture-range={kind}")
        if name:
            domain, _, bare = name.rpartition("@")
            # Names that the program did not register beforehand count too.
            ours += [f"--nvtx-capture={bare}@{domain or '*'}", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]
        ours.append("--capture-range-end=stop")
    if settings.keep_running or (settings.capture is not None and not settings.duration_s):
        ours.append("--kill=none")
    theirs = {word.partition("=")[0] for word in settings.nsys_args}
    defaults = (word for word in ours if word.partition("=")[0] not in theirs)
    fixed = (str(nsys), "profile", f"--output={report}", "--force-overwrite=true")
    return (*fixed, *defaults, *settings.nsys_args, *program)


def program_trace(version: tuple[int, ...], settings: ProfileSettings) -> tuple[str, ...]:
    """What of a program's own doing is traced: CUDA, NVTX, where asked PyTorch's modules, and where the version can
    what its Python threads do. Programs without Python are not touched by them.
    """
    modules = (MODULES,) if settings.torch_modules else ()
    if not settings.python_hz or version < JSON_PAYLOADS:
        return ("--trace=cuda,nvtx", *CUDA_DETAIL, "--wait=primary", *modules)
    looks = ("--python-sampling=true", f"--python-sampling-frequency={settings.python_hz}")
    return ("--trace=cuda,nvtx,python-gil", *CUDA_DETAIL, "--wait=primary", *looks, *modules)


def _gpu_metrics(version: tuple[int, ...], hz: int) -> tuple[str, ...]:
    if not hz:
        return ()
    switch = "--gpu-metrics-devices" if version >= PLURAL_GPU_METRICS else "--gpu-metrics-device"
    return (f"{switch}=cuda-visible", f"--gpu-metrics-frequency={hz}")


def export_argv(nsys: Path, report: Path, sqlite: Path, version: tuple[int, ...] = ()) -> tuple[str, ...]:
    """``nsys export`` of a report to SQLite; where the version can, with NVTX payloads: NCCL's bytes, communicators."""
    payloads = ("--include-json=true",) if version >= JSON_PAYLOADS else ()
    fixed = (str(nsys), "export", "--type=sqlite", "--force-overwrite=true")
    return (*fixed, *payloads, f"--output={sqlite}", str(report))


def check_report(report: Path, log: str) -> None:
    """Raise FiprofError when nsys ended without a report, whatever its exit status was."""
    if report.exists() and report.stat().st_size:
        return
    importer = re.search(r"Importer error status.*", log)
    if importer or list(report.parent.glob("*.qdstrm")):
        why = importer.group(0).strip() if importer else "only a .qdstrm is left"
        remedy = "its importer lacks a library: install libdw1 and libelf1, or use the full Nsight Systems package"
        raise FiprofError(f"nsys could not turn its data into a report: {why}", remedy)
    raise FiprofError(f"nsys made no report: {last_line(log)}", "its whole output stands in the log")


def lost_events(log: str) -> str:
    """Why nsys's importer left out events of its own; empty where it took all. Seen with XLA's ranges (2025.3)."""
    match = re.search(r"QuadDCommon::tag_message\*\] = (.+?)(?:\\n|\n)", log)
    return match[1] if match else ""


OWN_LINES = re.compile(
    rb"(?:^|(?<=\n))"
    rb"(?:Collecting data\.\.\.|Capture range (?:started|ended) in the application\.|Generating '[^\n]*\.qdstrm'"
    rb"|Processing events\.\.\.|\r?\[\d+/\d+\] \[[^\n]*|Generated:|(?:\t| {4})[^\n]*\.nsys-rep"
    # Where a session is ended by Ctrl-C (2025.3).
    rb"|Connection to Agent lost\.[^\n]*|Please refer to the troubleshooting section of the docs:"
    rb"|https://docs\.nvidia\.com/nsight-systems/UserGuide/index\.html#troubleshooting)\r?\n"
)
"""What nsys says itself, on the program's output."""
OWN_BEGINS = (
    b"Collecting data...", b"Capture range ", b"Generating '", b"Processing events...", b"[1/1] [", b"\r[1/1] [",
    b"Generated:", b"\t/", b"    /", b"Connection to Agent lost.", b"Please refer to the troubleshooting section",
    b"https://docs.nvidia.com/nsight-systems/UserGuide/",
)  # fmt: skip


class ProgramOutput:
    """Passes a program's output on without nsys's own lines; a ``PassOn``."""

    def __init__(self, pass_on: PassOn) -> None:
        self._pass_on = pass_on
        self._held = {False: b"", True: b""}  # the begin of a line, by stream, as long as it may be one of nsys's

    def __call__(self, piece: bytes, of_stderr: bool) -> None:
        text = OWN_LINES.sub(b"", self._held[of_stderr] + piece)
        last = text[text.rfind(b"\n") + 1 :]
        own = any(begin.startswith(last) or last.startswith(begin) for begin in OWN_BEGINS)
        unfinished = last if piece and own and len(last) < LONGEST_OWN_LINE else b""
        self._held[of_stderr] = unfinished
        self._pass_on(text[: len(text) - len(unfinished)], of_stderr)


def last_line(log: str) -> str:
    """The last line of a log that says something."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
