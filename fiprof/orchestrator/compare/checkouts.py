"""The sides of a comparison: what is typed (``git:HEAD~1``, ``env:NAME=VALUE``, …), their files and processes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fiprof.workloads
from fiprof.analysis.comparison.measured_result import HERE
from fiprof.errors import FiprofError
from fiprof.model.layout import MEASUREMENTS
from fiprof.model.manifest import VARIABLE
from fiprof.model.settings import CompareSettings
from fiprof.orchestrator.environment import program_name, run_git
from fiprof.orchestrator.process import Command
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name
from fiprof.workloads.nvtx import RANGES_VARIABLE

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
    """Folder of that checkout: what is imported lies in it, in the commit too."""
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

    def wrong(what: str) -> FiprofError:
        example = "for example: fiprof compare --measure git:HEAD~1 here --kernel decode"
        return FiprofError(f"side {text!r}: {what}", example, exit_code=2)

    def pair(item: str) -> tuple[str, str]:
        name, equals, value = item.partition("=")
        if not equals or not VARIABLE.fullmatch(name := name.strip().replace("-", "_")):
            raise wrong(f"{item!r} is no NAME=VALUE")
        return name, value

    before, program, command = f",{text}".partition(",program:")
    found: dict[str, list[str]] = {}
    for item in NEXT_ITEM.split(before.removeprefix(",")) if before or not program else ():
        if item == HERE:
            continue
        kind, colon, value = item.partition(":")
        if kind not in KINDS or not colon or not value:
            raise wrong(f"{item!r} is none of {HERE}, {', '.join(f'{kind}:…' for kind in KINDS)}")
        if kind in found and kind != "env":
            raise wrong(f"{kind}: stands there twice")
        found.setdefault(kind, []).append(value)
    ref, _, folder = found.get("git", [""])[0].partition(":")
    words = tuple(shlex.split(command)) if program else ()
    if program and (not words or {"params", "case"} & found.keys()):
        raise wrong("a program has a command, and no params: or case:")
    if "case" in found and "params" in found:
        raise wrong("case: has its parameters itself: case:decode[batch=8]")
    return SideSpec(
        text=text,
        ref=ref or None,
        folder=Path(folder),
        python=found.get("python", [None])[0],
        env=tuple(map(pair, found.get("env", ()))),
        params=tuple(pair(item) for item in found.get("params", [""])[0].split(",") if item),
        case=parse_case(found["case"][0]) if "case" in found else None,
        program=words,
    )


def pairs_of(a: SideSpec, b: SideSpec, common: Sequence[Case]) -> tuple[tuple[Case, Case], ...]:
    """The cases of both sides, each pair once; none of two programs.

    common: the cases that the sides change parameters of.
    Raises FiprofError (exit status 2) where there are none, or the sides do not go together.
    """
    if bool(a.program) != bool(b.program) or bool(a.case) != bool(b.case):
        what = "program" if a.program or b.program else "case"
        raise FiprofError(f"{what}: on one side only", f"{what}:… on both, or --kernel and params:", exit_code=2)
    if a.program:
        return ()
    found = tuple(dict.fromkeys(zip(a.cases(common), b.cases(common), strict=True)))
    if not found:
        raise FiprofError("which kernel?", "--kernel decode, or case:… on both sides", exit_code=2)
    return found


@dataclass(frozen=True)
class CompareRequest(CompareSettings):
    """Two sides, and how they are to be measured."""

    a: SideSpec = field(kw_only=True)
    b: SideSpec = field(kw_only=True)
    pairs: tuple[tuple[Case, Case], ...] = field(kw_only=True)
    """The cases of side A and side B; none of programs."""

    def side(self, letter: str) -> SideSpec:
        """letter: A or B."""
        return self.a if letter == "A" else self.b

    def cases(self, letter: str) -> tuple[Case, ...]:
        return tuple(pair[letter == "B"] for pair in self.pairs)

    def interpreter(self, letter: str) -> str:
        """The Python of a side."""
        return self.side(letter).python or self.python

    @property
    def schedule(self) -> str:
        """``ABBAABBAAB`` for five a side: a drift over time falls on both alike, but for one place in five."""
        return ("ABBA" * self.processes)[: 2 * self.processes]

    @property
    def label(self) -> str:
        """What the run folder's name ends in."""
        names = list(dict.fromkeys(short_name(case.workload) for pair in self.pairs for case in pair))
        names = names or [program_name(self.a.program)]
        return f"compare-{'-'.join(names) if len(names) <= 3 else f'{names[0]}-and-{len(names) - 1}-more'}"


# Commits


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

    def git(folder: Path, *words: str) -> str:
        try:
            done = run_git(folder, *words, timeout_s=ARCHIVE_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FiprofError(
                f"side {side.text}: git: {error}", "git:REF:FOLDER names a folder of a checkout"
            ) from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it failed"])[0]
            raise FiprofError(f"side {side.text}: {reason}", "git:REF, or git:REF:FOLDER for a checkout elsewhere")
        return done.stdout.strip()

    if side.ref is None:
        return None
    top = Path(git(side.folder, "rev-parse", "--show-toplevel")).resolve()
    commit = git(side.folder, "rev-parse", "--verify", "--end-of-options", f"{side.ref}^{{commit}}")
    archive = target.with_suffix(".tar")
    git(top, "archive", f"--output={archive}", commit)
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    archive.unlink()
    return Checkout(commit, top, target, target / side.folder.resolve().relative_to(top))


# Processes


@dataclass(frozen=True)
class Commands:
    """The command of each process, for one request and one run folder."""

    request: CompareRequest
    path: Path
    """The run folder."""
    scratch: Path
    """Folder for what does not outlive the run."""
    checkouts: Mapping[str, Checkout | None]
    """A and B; None for a side that is no commit."""

    def all(self) -> list[Command]:
        """A1, B1, B2, A2, …"""
        schedule = self.request.schedule
        numbers = [schedule[: place + 1].count(letter) for place, letter in enumerate(schedule)]
        return [self._command(letter, f"{letter}{number}") for letter, number in zip(schedule, numbers, strict=True)]

    def first(self) -> list[Command]:
        """A0 and B0 of two programs, which do not count: what they compile and read from disk is there after them."""
        return [self._command(letter, f"{letter}0") for letter in "AB" if self.request.side(letter).program]

    def orders(self, name: str) -> Path:
        """The FIFO that a process takes its orders from."""
        return self.scratch / f"{name}.orders"

    def environment(self, letter: str) -> dict[str, str]:
        """What a side's processes have set."""
        env = dict(self.request.side(letter).env)
        if self.request.gpu is not None:
            # nvidia-smi counts in PCI order; CUDA by default does not.
            env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(self.request.gpu)}
        if checkout := self.checkouts[letter]:
            before = env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (*map(str, checkout.paths), before)))
        return env

    def cases(self, letter: str) -> list[str]:
        """A side's cases, as the runner takes them; those of a file in a checkout, of the commit's file."""
        checkout = self.checkouts[letter]
        return [
            f"{checkout.workload(case.workload) if checkout else case.workload}[{case.argument.partition('[')[2]}"
            for case in self.request.cases(letter)
        ]

    def _command(self, letter: str, name: str) -> Command:
        request, out = self.request, self.path / MEASUREMENTS / f"{name}.jsonl"
        env, argv = self.environment(letter), request.side(letter).program
        if argv:
            env[RANGES_VARIABLE] = str(out)
        else:
            checkout = self.checkouts[letter]
            argv = (
                request.interpreter(letter),
                # By path: what a side imports may have a fiprof of its own.
                str(Path(fiprof.workloads.__path__[0]) / "__main__.py"),
                "rounds",
                *(word for case in self.cases(letter) for word in ("--case", case)),
                f"--measure-iterations={request.iterations}",
                f"--budget-ms={request.budget_ms:g}",
                f"--warmup={request.warmup}",
                f"--seed={request.seed}",
                *((f"--imports-from={checkout.files}",) if checkout else ()),
                f"--orders={self.orders(name)}",
                f"--out={out}",
            )
        return Command(name, argv, self.path / "logs" / f"{name}.log", env, request.timeout_s, makes=(out,))
