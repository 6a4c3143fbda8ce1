"""The GPUs as the driver sees them (NVML): which one a run is on, its state, and who else is using it."""

from __future__ import annotations

import os
from typing import Any

import psutil


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
