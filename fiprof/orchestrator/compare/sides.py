"""What one side of a comparison is, as it is typed: ``git:HEAD~1``, ``env:NAME=VALUE``, ``params:page_size=1``, …"""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.analysis.comparison.measured_result import HERE
from fiprof.errors import FiprofError
from fiprof.model.manifest import VARIABLE
from fiprof.orchestrator.environment import run_git
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case

KINDS = ("git", "python", "env", "params", "case", "program")
NEXT_ITEM = re.compile(rf",(?=(?:{'|'.join(KINDS)}):)")
ARCHIVE_TIMEOUT_S = 120


@dataclass(frozen=True)
class SideSpec:
    """One side, as asked for."""

    text: str
    """As typed."""
    ref: str | None = None
    """Commit of a checkout whose files are imported."""
    folder: Path = Path()
    """Of that checkout: what is imported lies in it, in the commit too."""
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    """Parameters of the workloads, with other values than on the other side."""
    case: Case | None = None
    """Instead of the comparison's cases."""
    program: tuple[str, ...] = ()
    """Measured instead of cases."""

    def cases(self, common: Sequence[Case]) -> list[Case]:
        """This side's cases, in the order of those of both sides. Raises FiprofError (exit status 2)."""
        if self.case is not None:
            return [self.case]
        given = {name: [value] for name, value in self.params}
        found = []
        for case in common:
            values = {name: [format_value(value)] for name, value in case.params}
            found += make_cases(case.workload, {**values, **given}) if given else [case]
        return found


def parse_side(text: str) -> SideSpec:
    """The side that a text means: items with commas between them, a program last.

    Raises FiprofError (exit status 2) for one that is none.
    """
    before, program, command = f",{text}".partition(",program:")
    found: dict[str, list[str]] = {}
    for item in NEXT_ITEM.split(before.removeprefix(",")) if before or not program else ():
        if item == HERE:
            continue
        kind, colon, value = item.partition(":")
        if kind not in KINDS or not colon or not value:
            raise _wrong(text, f"{item!r} is none of {HERE}, {', '.join(f'{kind}:…' for kind in KINDS)}")
        if kind in found and kind != "env":
            raise _wrong(text, f"{kind}: stands there twice")
        found.setdefault(kind, []).append(value)
    ref, _, folder = found.get("git", [""])[0].partition(":")
    words = tuple(shlex.split(command)) if program else ()
    if program and (not words or {"params", "case"} & found.keys()):
        raise _wrong(text, "a program has a command, and no params: or case:")
    if "case" in found and "params" in found:
        raise _wrong(text, "case: has its parameters itself: case:decode[batch=8]")
    return SideSpec(
        text=text,
        ref=ref or None,
        folder=Path(folder),
        python=found.get("python", [None])[0],
        env=tuple(_pair(text, item) for item in found.get("env", ())),
        params=tuple(_pair(text, item) for item in found.get("params", [""])[0].split(",") if item),
        case=parse_case(found["case"][0]) if "case" in found else None,
        program=words,
    )


def _pair(text: str, item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not VARIABLE.fullmatch(name := name.strip().replace("-", "_")):
        raise _wrong(text, f"{item!r} is no NAME=VALUE")
    return name, value


def _wrong(text: str, what: str) -> FiprofError:
    return FiprofError(
        f"side {text!r}: {what}",
        "for example: fiprof compare --measure git:HEAD~1 here --kernel decode",
        exit_code=2,
    )


@dataclass(frozen=True)
class Checkout:
    """The files of a side's commit, in a folder of their own."""

    commit: str
    top: Path
    """The checkout that it is of."""
    files: Path
    folder: Path
    """In files, what is imported."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where its packages are looked for: in ``src`` first, where there is one."""
        return tuple(path for path in (self.folder / "src", self.folder) if path.is_dir())

    def workload(self, name: str) -> str:
        """A workload's name; of one from a file of the checkout, that file as the commit has it."""
        path, colon, bare = name.rpartition(":")
        if not path.endswith(".py") or not Path(path).resolve().is_relative_to(self.top):
            return name
        return f"{self.files / Path(path).resolve().relative_to(self.top)}{colon}{bare}"


def check_out(side: SideSpec, target: Path) -> Checkout | None:
    """The commit of a side in a folder; None for a side without one.

    ``git archive`` writes it: the checkout itself, its index and its list of worktrees stay as they are. Submodules are
    left empty.
    Raises FiprofError where the folder is in no checkout or git knows no such commit.
    """
    if side.ref is None:
        return None
    top = Path(_git(side, "rev-parse", "--show-toplevel")).resolve()
    commit = _git(side, "rev-parse", "--verify", "--end-of-options", f"{side.ref}^{{commit}}")
    archive = target.with_suffix(".tar")
    _git(side, "archive", f"--output={archive}", commit, folder=top)
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    archive.unlink()
    return Checkout(commit, top, target, target / side.folder.resolve().relative_to(top))


def _git(side: SideSpec, *words: str, folder: Path | None = None) -> str:
    try:
        done = run_git(folder or side.folder, *words, timeout_s=ARCHIVE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"side {side.text}: git: {error}", "git:REF:FOLDER names a folder of a checkout") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it failed"])[0]
        raise FiprofError(f"side {side.text}: {said}", "git:REF, or git:REF:FOLDER for a checkout elsewhere")
    return done.stdout.strip()
