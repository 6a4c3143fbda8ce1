"""What program a run is of: its command as typed, its files with their hashes, the commit that it was at."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fiprof.model.redaction import mask_words, secrets
from fiprof.orchestrator.environment import git_commit
from fiprof.workloads.case import Case
from fiprof.workloads.registry import find

MOST_FILES = 8
LARGEST_FILE = 64 << 20
"""Bytes; larger ones, such as weights, are no programs."""
LAUNCHERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z)?sh|env|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|uv|poetry|time|nice|numactl"
)
"""Commands that run another file, which is the program."""
LONGEST_NAME = 40


def program_facts(command: Sequence[str]) -> dict[str, Any]:
    """For a manifest's environment, see ``model.environment.Program``."""
    return _facts(command, {str(path): path for path in _files(command)})


def collect_facts(cases: Sequence[Case]) -> dict[str, Any]:
    """The same of a collect: its own command line, and the files that its workloads are in."""
    files = {}
    for case in cases:
        kind = find(case.workload)
        path = Path(inspect.getfile(kind))
        own = ".py:" in case.workload
        files[case.workload.rpartition(":")[0] if own else f"{kind.__module__.replace('.', '/')}.py"] = path
    return _facts(["fiprof", *sys.argv[1:]], files)


def _facts(command: Sequence[str], files: Mapping[str, Path]) -> dict[str, Any]:
    """files: as they were named -> where they are, the program's first."""
    users = [path for name, path in files.items() if not name.startswith("fiprof/")]
    return {
        "command": mask_words(command, secrets(os.environ)),
        "cwd": os.getcwd(),
        "git": git_commit(users[0].parent if users else Path.cwd()),
        "files": {name: _hash(path) for name, path in files.items()},
    }


def program_name(command: Sequence[str]) -> str:
    """The program in a word: the script's name without its suffix, the module of ``-m``, or the binary's name."""
    script = next(_files(command), None)
    words = list(command)
    if script is not None:
        name = script.stem
    elif "-m" in words[:-1]:
        name = words[words.index("-m") + 1].rpartition(".")[2]
    else:
        name = Path(words[0]).name
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:LONGEST_NAME] or "program"


def _files(command: Sequence[str]) -> Iterator[Path]:
    """The program's file, then other files that the command line names."""
    found = [Path(word) for word in command if _readable(word)][:MOST_FILES]
    return iter([path for path in found if not LAUNCHERS.fullmatch(path.name)])


def _readable(word: str) -> bool:
    try:
        path = Path(word)
        return path.is_file() and path.stat().st_size <= LARGEST_FILE and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
