"""What a run was made with, for its manifest: tools, host, and the program with its files and its commit."""

import contextlib
import hashlib
import inspect
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from fiprof.orchestrator.tools import Tool, gpu_state
from fiprof.workloads.case import Case
from fiprof.workloads.registry import find

GIT_TIMEOUT_S = 5
OF_A_CHECKOUT = re.compile(r"GIT_(?!CONFIG_|EXEC_PATH)")
"""Variables as git sets them for a hook: which checkout is meant."""
DIRTY = "-dirty"  # behind a commit that its tree differs from
MOST_FILES = 8
LARGEST_FILE = 64 << 20  # bytes; larger ones, such as weights, are no programs
LAUNCHERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z)?sh|env|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|uv|poetry|time|nice|numactl"
)
"""Commands that run another file, which is the program."""
LONGEST_NAME = 40


def run_environment(tools: Mapping[str, Tool], program: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    """Tools, host, program and the GPU as it is now. program: ``program_facts`` or ``collect_facts``."""
    return {
        "tools": {name: tool.version_text for name, tool in tools.items()},
        "host": {
            "name": platform.node(),
            "user": psutil.Process().username(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "program": dict(program),
        "git": program["git"],
        "gpu_state": {"before": gpu_state(gpu)},
    }


def program_facts(command: Sequence[str]) -> dict[str, Any]:
    """The command as typed, its files with their hashes, the commit that it was at: ``model.manifest.ProgramInfo``."""
    return _facts(command, {str(path): path for path in _files(command)})


def collect_facts(cases: Sequence[Case], argv: Sequence[str] = (), *, commit: bool = True) -> dict[str, Any]:
    """The same of a collect: its own command line, and the files that its workloads are in.

    argv: the command line, where it is not this process's.
    commit: whether to ask git, which reads a fresh checkout whole.
    """
    files = {}
    for case in cases:
        kind = find(case.workload)
        path, colon, _ = case.workload.rpartition(".py:")
        files[f"{path}.py" if colon else f"{kind.__module__.replace('.', '/')}.py"] = Path(inspect.getfile(kind))
    return _facts(argv or ["fiprof", *sys.argv[1:]], files, commit=commit)


def _facts(command: Sequence[str], files: Mapping[str, Path], *, commit: bool = True) -> dict[str, Any]:
    """files: as they were named -> where they are, the program's first."""
    users, git = [path for name, path in files.items() if not name.startswith("fiprof/")], None
    if commit:
        folder = users[0].parent if users else Path.cwd()
        # Its configuration may be a stranger's: no program that it names is run.
        described = (ask_git(folder, "describe", "--always", "--abbrev=12", "--exclude=*") or "").strip()
        # A submodule is asked under a configuration of its own.
        changes = ask_git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
        git = None if not described or changes is None else f"{described}{DIRTY}" if changes else described
    return {
        "command": list(command),
        "cwd": os.getcwd(),
        "git": git,
        "files": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()},
    }


def program_name(command: Sequence[str]) -> str:
    """The program in a word: the script's name without its suffix, the module of ``-m``, or the binary's name."""
    if scripts := _files(command):
        name = scripts[0].stem
    elif "-m" in command[:-1]:
        name = command[command.index("-m") + 1].rpartition(".")[2]
    else:
        name = Path(command[0]).name
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:LONGEST_NAME] or "program"


def _files(command: Sequence[str]) -> list[Path]:
    """The program's file, then other files that the command line names."""
    paths: list[Path] = []
    for path in map(Path, command):
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= LARGEST_FILE and os.access(path, os.R_OK):
                paths.append(path)
    return [path for path in paths[:MOST_FILES] if not LAUNCHERS.fullmatch(path.name)]


def full_commit(folder: Path, ref: str) -> str | None:
    """The whole name of a commit of the checkout around a folder; None where git does not know it."""
    commit = ask_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return (commit or "").strip() or None


def run_git(
    folder: Path, *words: str, timeout_s: float = GIT_TIMEOUT_S, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """git in a folder's checkout, without hooks, filters and monitors of it. Raises OSError, TimeoutExpired."""
    inherited = {name: value for name, value in os.environ.items() if not OF_A_CHECKOUT.match(name)}
    safe = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")

    def git(words: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *safe, *words],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_s,
            check=False,
            env={**inherited, "GIT_OPTIONAL_LOCKS": "0", **env},
        )

    filters = r"^filter\..*\.(clean|smudge|process|required)$"
    configured = git(("config", "--null", "--name-only", "--get-regexp", filters), {})
    keys = configured.stdout.split("\0")[:-1] if configured.returncode == 0 else []
    empty = {"GIT_CONFIG_COUNT": str(len(keys))}
    for number, key in enumerate(keys):
        empty |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": ""}
    return git(words, {**empty, **(env or {})})


def ask_git(folder: Path, *words: str) -> str | None:
    """What git prints, empty where it fails; None where it is not there or takes too long."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        # No protocol: what is missing of a partial clone is not fetched, which would run what its remote names.
        done = run_git(folder, *words, env={"GIT_ALLOW_PROTOCOL": ""})
        return done.stdout if done.returncode == 0 else ""
    return None
