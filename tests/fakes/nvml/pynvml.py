"""Stands in for NVIDIA's management library: GPUs that are told apart by the UUID that they are asked for.

FAKE_TROUBLE: a file, and what befalls one process each, those that make the file with it as its ending, from their
fifth look at a GPU on: ``process,slowdown``, ``power`` or ``ecc``. FAKE_OTHER_DRIVER: the end of the UUIDs of GPUs with another driver.
"""

import os
from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = range(5)
looks = 0
asked = ""
trouble = ""


class NVMLError(Exception):
    """What it raises."""


def nvmlInit() -> None:  # noqa: N802
    """It is there."""


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:  # noqa: N802
    global looks, asked, trouble
    looks, asked = looks + 1, uuid
    file, _, kinds = os.environ.get("FAKE_TROUBLE", "").partition(":")
    for kind in kinds.split(",") if file and looks == 5 else ():
        try:
            os.close(os.open(f"{file}.{kind}", os.O_CREAT | os.O_EXCL))
            trouble = kind
            break
        except FileExistsError:
            pass
    return uuid


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    other = os.environ.get("FAKE_OTHER_DRIVER")
    return "570.1" if other and asked.endswith(other) else "580.1"


def __getattr__(name: str) -> Any:
    answers = {
        "MemoryInfo": SimpleNamespace(used=1 << 30, total=80 << 30),
        "ComputeRunningProcesses": [SimpleNamespace(pid=1)] if trouble == "process" else [],
        "Name": "NVIDIA H100 80GB HBM3", "UUID": asked, "ClockInfo": 1980, "MaxClockInfo": 1980, "Temperature": 40,
        "CudaComputeCapability": (9, 0), "EnforcedPowerLimit": 300_000 if trouble == "power" else 700_000,
        "CurrentClocksThrottleReasons": 0x44 if trouble == "slowdown" else 0x4, "MigMode": [0, 0], "EccMode": [1, 1],
        "TotalEccErrors": 1 if trouble == "ecc" else 0, "Count": 2,
    }  # fmt: skip
    if not name.startswith("nvmlDeviceGet"):
        raise AttributeError(name)
    return lambda *_: answers[name.removeprefix("nvmlDeviceGet")]
