"""The profilers and GPUs of this machine: where nsys and ncu are, what they may read, and how a GPU is (NVML)."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from fiprof.errors import FiprofError
from fiprof.orchestrator import nsys

OWN_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 21  # its bit in a capability set (capabilities(7), linux/capability.h)
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
VERSION_TIMEOUT_S = 20
SLOWDOWNS = {"hardware": 0x8, "software for heat": 0x20, "hardware for heat": 0x40, "power brake": 0x80}
"""Reasons for a lower clock that a GPU in order never has, by their bit (nvml.h, nvmlClocksEventReasons). Its power
limit is none: a large matrix product reaches it."""

PERMISSION_REMEDY = (
    "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0, "
    "or give the container --cap-add=SYS_ADMIN"
)
REMEDIES = {
    "nsys": "install Nsight Systems (it comes with the CUDA toolkit) and put nsys on PATH, or set FIPROF_NSYS",
    "ncu": "install Nsight Compute (it comes with the CUDA toolkit) and put ncu on PATH, or set FIPROF_NCU",
}
_FOLDERS = {
    "nsys": ("opt/nvidia/nsight-systems/*/bin/nsys", "usr/local/cuda*/bin/nsys"),
    "ncu": ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu"),
}


class Tool(NamedTuple):
    """A profiler that was found."""

    path: Path
    version: tuple[int, ...]  # e.g. (2025, 3, 1); empty where its output could not be read

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version)) or "unknown"


def find_tool(name: str) -> Tool:
    """nsys or ncu: from FIPROF_NSYS or FIPROF_NCU, PATH, or where NVIDIA's packages put it.

    Raises FiprofError when it is not there or does not start.
    """
    path = os.environ.get(f"FIPROF_{name.upper()}") or shutil.which(name)
    if path is None:
        installed = (path for pattern in _FOLDERS[name] for path in map(str, Path("/").glob(pattern)))
        runnable = [path for path in installed if os.access(path, os.X_OK)]
        path = max(runnable, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], default=None)
    if path is None:
        raise FiprofError(f"{name} was not found", REMEDIES[name])
    try:
        argv = (path, "--version")
        done = subprocess.run(argv, capture_output=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{path} --version does not run: {error}", REMEDIES[name]) from error
    if done.returncode:
        raise FiprofError(f"{path} --version failed: {nsys.last_line(done.stdout + done.stderr)}", REMEDIES[name])
    return Tool(Path(path), parse_version(done.stdout))


def help_of(tool: Tool) -> str:
    """What nsys says that ``profile`` takes; empty where it says nothing."""
    argv = (str(tool.path), "profile", "--help")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False)
        return done.stdout + done.stderr
    return ""


def find_profilers(names: Collection[str], otherwise: str) -> dict[str, Tool]:
    """Profilers by name, asked for their versions side by side.

    otherwise: how to go on without the counters. Raises FiprofError when one is missing, or may not read the counters.
    """
    with ThreadPoolExecutor() as pool:
        tools = dict(zip(names, pool.map(find_tool, names), strict=True))
    if "ncu" in tools and counters_permitted() is False:
        what = "ncu may not read the GPU's counters here (RmProfilingAdminOnly is 1)"
        raise FiprofError(what, f"{PERMISSION_REMEDY}; {otherwise}")
    return tools


def parse_version(text: str) -> tuple[int, ...]:
    """(2025, 3, 1) of what nsys or ncu says of itself, e.g. ``Version 2025.3.1.0``; empty where there is none."""
    match = re.search(r"\b(20\d\d)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else ()


def counters_permitted(parameters: Path = DRIVER_PARAMETERS, status: Path = OWN_STATUS) -> bool | None:
    """Whether this process may read the GPU's performance counters; None where the driver does not say.

    status: the process's ``/proc/…/status``, which has its capabilities in effect.

    The driver reserves them for CAP_SYS_ADMIN (``RmProfilingAdminOnly: 1``), which root in a container may lack.
    """
    try:
        match = re.search(r"^RmProfilingAdminOnly: (\d+)", parameters.read_text(), re.MULTILINE)
    except OSError:
        return None
    if match is None:
        return None
    capable = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    return match.group(1) == "0" or bool(capable and int(capable.group(1), 16) >> CAP_SYS_ADMIN & 1)


def gpu_env(gpu: int | str | None) -> dict[str, str]:
    """What makes a process see this GPU alone: nvidia-smi counts in PCI order, CUDA by default does not."""
    return {} if gpu is None else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)}


def visible_gpu(index: int | None) -> str:
    """What names the GPU of a run: its UUID where the driver tells, else its index.

    index: as nvidia-smi lists them; None for the first that CUDA_VISIBLE_DEVICES leaves.
    """
    wanted = str(index) if index is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    return str(gpu_state(wanted or "0").get("uuid") or wanted or "0")


def visible_gpus() -> list[str]:
    """What names each GPU that CUDA_VISIBLE_DEVICES leaves, in its order, one at least; see :func:`visible_gpu`."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = named.split(",") if named else [str(index) for index in range(count_gpus())]
    words = [word.strip() for word in wanted if word.strip()] or ["0"]
    return list(dict.fromkeys(str(gpu_state(word).get("uuid") or word) for word in words))


def gpu_state(gpu: str) -> dict[str, Any]:
    """The GPU's name, driver, clocks (MHz), temperature, memory, the processes on it, what slows it down, and what its
    times depend on otherwise; empty without NVML.

    gpu: index or UUID.
    """
    import pynvml as nvml

    with contextlib.suppress(nvml.NVMLError):
        _open_nvml()
        handle = nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else nvml.nvmlDeviceGetHandleByUUID(gpu)

        def asked(what: str, *arguments: int) -> Any:
            # An MIG instance has no limits of its own, and not every board corrects errors.
            with contextlib.suppress(nvml.NVMLError):
                return getattr(nvml, f"nvmlDeviceGet{what}")(handle, *arguments)
            return None

        wanted = "CudaComputeCapability", "EnforcedPowerLimit", "CurrentClocksThrottleReasons"
        capability, power, reasons = map(asked, wanted)
        mig, ecc = (words and bool(words[0]) for words in map(asked, ("MigMode", "EccMode")))
        uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        others = []
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            try:
                name = psutil.Process(process.pid).name()
            except psutil.Error:
                name = "in another container"
            others.append(f"{process.pid} ({name})")
        return {
            "name": nvml.nvmlDeviceGetName(handle),
            "uuid": nvml.nvmlDeviceGetUUID(handle),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "other_processes": others,
            "compute_capability": capability and ".".join(map(str, capability)),
            "power_limit_w": power and power / 1000,
            "mig": mig,
            "ecc": ecc,
            "ecc_errors": asked("TotalEccErrors", *uncorrected),
            "slowdowns": [name for name, bit in SLOWDOWNS.items() if (reasons or 0) & bit],
        }
    return {}


def count_gpus() -> int:
    """NVIDIA GPUs that the driver lists; 0 without a driver."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        _open_nvml()
        return int(pynvml.nvmlDeviceGetCount())
    return 0


@functools.cache
def _open_nvml() -> None:
    """Open the NVIDIA management library until fiprof ends. Raises NVMLError where there is no driver.

    Opening it wakes a GPU that nobody uses, which takes up to a second each time.
    """
    import pynvml

    pynvml.nvmlInit()
