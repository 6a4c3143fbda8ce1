"""The profilers and GPUs of this machine: where nsys and ncu are, what they may read, and how a GPU is (NVML)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fiprof.errors import FiprofError
from fiprof.orchestrator import nsys

OWN_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 21
"""Its bit in a capability set (capabilities(7), linux/capability.h)."""
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
VERSION_TIMEOUT_S = 20

REMEDIES = {
    "nsys": "install Nsight Systems (it comes with the CUDA toolkit) and put nsys on PATH, or set FIPROF_NSYS",
    "ncu": "install Nsight Compute (it comes with the CUDA toolkit) and put ncu on PATH, or set FIPROF_NCU",
}
_FOLDERS = {
    "nsys": ("/opt/nvidia/nsight-systems/*/bin/nsys", "/usr/local/cuda*/bin/nsys"),
    "ncu": ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu"),
}


@dataclass(frozen=True)
class Tool:
    """A profiler that was found."""

    path: Path
    version: tuple[int, ...]
    """E.g. (2025, 3, 1); empty where its output could not be read."""

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version)) or "unknown"


def find_tool(name: str) -> Tool:
    """nsys or ncu: from FIPROF_NSYS or FIPROF_NCU, PATH, or where NVIDIA's packages put it.

    Raises FiprofError when it is not there or does not start.
    """
    named = os.environ.get(f"FIPROF_{name.upper()}")
    path = named or shutil.which(name) or _newest(_FOLDERS[name])
    if path is None:
        raise FiprofError(f"{name} was not found", REMEDIES[name])
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{path} --version does not run: {error}", REMEDIES[name]) from error
    if done.returncode:
        raise FiprofError(f"{path} --version failed: {nsys.last_line(done.stdout + done.stderr)}", REMEDIES[name])
    return Tool(Path(path), parse_version(done.stdout))


def parse_version(text: str) -> tuple[int, ...]:
    """(2025, 3, 1) of what nsys or ncu says of itself, e.g. «Version 2025.3.1.0»; empty where there is none."""
    found = re.search(r"\b(20\d\d)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else ()


def counters_permitted(parameters: Path = DRIVER_PARAMETERS, status: Path = OWN_STATUS) -> bool | None:
    """Whether this process may read the GPU's performance counters; None where the driver does not say.

    status: the process's ``/proc/…/status``, which has its capabilities in effect.

    The driver reserves them for CAP_SYS_ADMIN (``RmProfilingAdminOnly: 1``), which root in a container may lack.
    """
    try:
        found = re.search(r"^RmProfilingAdminOnly: (\d+)", parameters.read_text(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    capable = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    return found.group(1) == "0" or bool(capable and int(capable.group(1), 16) >> CAP_SYS_ADMIN & 1)


def _newest(patterns: tuple[str, ...]) -> str | None:
    found = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")) if os.access(path, os.X_OK)]
    return str(max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])) if found else None


def visible_gpu(index: int | None) -> str:
    """What names the GPU of a run: its UUID where the driver tells, else its index.

    index: as nvidia-smi lists them; None for the first that CUDA_VISIBLE_DEVICES leaves.
    """
    wanted = str(index) if index is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    facts = gpu_state(wanted or "0")
    return str(facts.get("uuid") or wanted or "0")


def visible_gpus() -> list[str]:
    """What names each GPU that CUDA_VISIBLE_DEVICES leaves, the first at least; see :func:`visible_gpu`."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    wanted = named.split(",") if named else [str(index) for index in range(count_gpus())]
    words = [word.strip() for word in wanted if word.strip()] or ["0"]
    return sorted({str(gpu_state(word).get("uuid") or word) for word in words})


def gpu_state(gpu: str) -> dict[str, Any]:
    """The GPU's name, driver, clocks (MHz), temperature, memory and the processes on it; empty without NVML.

    gpu: index or UUID.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(gpu)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "name": pynvml.nvmlDeviceGetName(handle),
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "other_processes": [
                f"{process.pid} ({_process_name(process.pid)})"
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ],
        }
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def count_gpus() -> int:
    """NVIDIA GPUs that the driver lists; 0 without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "in another container"
