"""What a run was made with, for its manifest; and what ``fiprof env`` finds out."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fiprof.model.records import read_jsonl
from fiprof.orchestrator.tools import Tool

GIT_TIMEOUT_S = 5


def run_environment(tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Tools, host, and the git commit of the folder that collect was started in."""
    return {
        "tools": {name: tool.version_text for name, tool in tools.items()},
        "host": {
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "git": git_commit(Path.cwd()),
    }


def workload_environment(baseline: Path) -> dict[str, Any]:
    """packages and gpu as the workload's process saw them; empty where it did not come that far."""
    for record in read_jsonl(baseline):
        if record.get("kind") == "environment":
            return {"packages": record.get("packages", {}), "gpu": record.get("gpu", {})}
    return {}


def git_commit(folder: Path) -> str | None:
    """The commit of the checkout around a folder, with ``-dirty`` after changes; None outside one."""
    if shutil.which("git") is None:
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
        return done.stdout.strip() or None
    return None
