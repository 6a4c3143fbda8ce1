"""The profilers on this machine, and whether they may read the GPU's counters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.orchestrator import ncu, nsys

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
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{path} --version does not run: {error}", REMEDIES[name]) from error
    if done.returncode:
        raise FiprofError(f"{path} --version failed: {nsys.last_line(done.stdout + done.stderr)}", REMEDIES[name])
    parse = {"nsys": nsys.parse_version, "ncu": ncu.parse_version}[name]
    return Tool(Path(path), parse(done.stdout))


def counters_permitted(parameters: Path = DRIVER_PARAMETERS) -> bool | None:
    """Whether this user may read the GPU's performance counters; None where the driver does not say."""
    if os.geteuid() == 0:
        return True
    try:
        text = parameters.read_text()
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly: (\d+)", text, re.MULTILINE)
    return found.group(1) == "0" if found else None


def _newest(patterns: tuple[str, ...]) -> str | None:
    found = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")) if os.access(path, os.X_OK)]
    return str(max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])) if found else None
