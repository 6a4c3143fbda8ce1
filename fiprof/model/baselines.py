"""Baselines: runs of an archive that later trees are compared with, ``baselines/NAME.json`` each."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fiprof import files
from fiprof.errors import FiprofError
from fiprof.model import json_file, layout

FOLDER = "baselines"
SUFFIX = ".json"
SHORT_COMMIT = 12  # digits that people are shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# Names of files that make a folder a run or a study.
_TAKEN = {Path(name).stem for name in (layout.FILE_NAME, layout.STUDY_FILE)}


@dataclass(frozen=True)
class NamedBaseline:
    """The whole of its file. It names nothing that is executed but a commit of the user's own checkout."""

    name: str
    run: str  # name of a run of the same archive: its cases and settings are those that are measured
    commit: str | None  # what is measured beside the present tree; None where the run's tree is in no commit
    set_at: str  # ISO 8601 with offset
    set_by: str  # user@host
    schema_version: int = 1

    def __post_init__(self) -> None:
        if not _valid(self.name):
            raise ValueError(f"{self.name!r} is no name of a baseline")
        if len(files.parts(self.run)) > 1:
            raise ValueError(f"{self.run!r} is no name of a run")
        if self.commit is not None and not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"{self.commit!r} is no commit")


def require_name(name: str) -> None:
    """Raises FiprofError (exit status 2) for what is no name of a baseline."""
    if not _valid(name):
        taken = " or ".join(sorted(_TAKEN))
        remedy = f"letters, digits, _, . and -, at most 64, a letter or digit first; not {taken}"
        raise FiprofError(f"{name!r} is no name of a baseline", remedy, exit_code=2)


def _valid(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name not in _TAKEN


def names(root: Path) -> list[str]:
    """The baselines of an archive by name. Raises OSError where their folder cannot be read."""
    return sorted(path.stem for path in (root / FOLDER).glob(f"*{SUFFIX}") if _valid(path.stem))


def names_by_run(root: Path) -> dict[str, tuple[str, ...]]:
    """Run -> the baselines that it is. One that cannot be read is left out."""
    by_run: dict[str, tuple[str, ...]] = {}
    for name in names(root):
        with contextlib.suppress(FiprofError):
            run = read_baseline(root, name).run
            by_run[run] = (*by_run.get(run, ()), name)
    return by_run


def read_baseline(root: Path, name: str) -> NamedBaseline:
    """Raises FiprofError where there is none of that name (exit status 2)."""
    if not _valid(name) or not files.exists(root, f"{FOLDER}/{name}{SUFFIX}"):
        raise _missing(root, name)
    path = root / FOLDER / f"{name}{SUFFIX}"
    remedy = f"fiprof baseline remove {name}, then set it again"
    baseline = json_file.read(path, NamedBaseline, remedy, makes="fiprof baseline set makes one")
    if baseline.name != name:
        raise FiprofError(f"{path} is of the baseline {baseline.name}", "rename it, or remove it")
    return baseline


def write_baseline(root: Path, baseline: NamedBaseline) -> Path:
    """Write a baseline, whole or not at all, in the place of another of its name."""
    name = f"{FOLDER}/{baseline.name}{SUFFIX}"
    with files.file_errors(root / FOLDER), files.replacing(root, name) as file:
        file.write(json_file.encode(baseline))
    return root / name


def remove_baseline(root: Path, name: str) -> None:
    """Remove a baseline's file, also a damaged one; its run stays."""
    if not _valid(name) or not os.path.lexists(root / FOLDER / f"{name}{SUFFIX}"):
        raise _missing(root, name)
    with files.file_errors(root / FOLDER):
        files.remove(root, f"{FOLDER}/{name}{SUFFIX}")


def _missing(root: Path, name: str) -> FiprofError:
    present = ", ".join(names(root)) or "none yet"
    what = f"there is no baseline {name!r} in {root}; there are: {present}"
    return FiprofError(what, "fiprof baseline set NAME RUN", exit_code=2)
