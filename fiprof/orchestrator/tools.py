"""The profilers on this machine, and whether they may read the GPU's counters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

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

    The driver reserves them for CAP_SYS_ADMIN (``RmProfilingAdminOnly: 1``), which root in a container may lack.
    """
    try:
        found = re.search(r"^RmProfilingAdminOnly: (\d+)", parameters.read_text(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    return found.group(1) == "0" or _capable(status)


def _capable(status: Path) -> bool:
    """Whether a process has CAP_SYS_ADMIN in effect. status: its ``/proc/…/status``."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    return bool(found and int(found.group(1), 16) >> CAP_SYS_ADMIN & 1)


def _newest(patterns: tuple[str, ...]) -> str | None:
    found = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")) if os.access(path, os.X_OK)]
    return str(max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])) if found else None
