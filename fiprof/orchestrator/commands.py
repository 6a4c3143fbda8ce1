"""What a collect or a profile is asked to do, and the commands of its steps: what is started, which files it makes."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fiprof.workloads
from fiprof.model import layout
from fiprof.model.layout import Page, numbered
from fiprof.model.settings import CollectSettings, ProfileSettings
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.choosing import Filter
from fiprof.orchestrator.environment import program_name
from fiprof.orchestrator.process import INPUT, PassOn, ToolCommand
from fiprof.orchestrator.tools import Tool, gpu_env
from fiprof.workloads.case import Case, short_name
from fiprof.workloads.registry import builtin
from fiprof.workloads.runner import GATE_VARIABLE

NCU_WARMUP = 1


@dataclass(frozen=True)
class CollectRequest(CollectSettings):
    """One run: the cases, the tools and how they are to measure."""

    cases: tuple[Case, ...] = field(kw_only=True)
    anchors: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Ids of those cases that are measured beside the run's own."""
    argv: tuple[str, ...] = field(default=(), kw_only=True)
    """The command that the run is for, where it is not this process's."""

    @property
    def label(self) -> str:
        """What the run folder's name ends in: the workloads, or ``all``."""
        names = list(dict.fromkeys(short_name(case.workload) for case in self.cases))
        if set(names) == set(builtin()):
            return "all"
        return joined(names)


def joined(names: Sequence[str]) -> str:
    """Names of workloads in the name of a run folder."""
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"


@dataclass(frozen=True)
class ProfileRequest(ProfileSettings):
    """A program of the user's."""

    program: tuple[str, ...] = field(kw_only=True)  # its command line, as typed

    @property
    def label(self) -> str:
        return program_name(self.program)

    @property
    def parts(self) -> tuple[ProfileRequest, ...]:
        """What ncu is run for: once, or for each range with its part of the limits."""
        if not self.by_range:
            return (self,)
        budget_s = self.ncu_budget_s and self.ncu_budget_s / len(self.ranges)
        launches = self.launches and max(self.launches // len(self.ranges), 1)
        return tuple(
            dataclasses.replace(self, ranges=(name,), ncu_budget_s=budget_s, launches=launches) for name in self.ranges
        )


def runner_argv(python: str) -> tuple[str, ...]:
    """How an interpreter starts the runner: as a module where it is fiprof's own, else by path.

    Either way nothing is imported from the current folder; an older interpreter than 3.11 has no ``-P``.
    """
    if python == sys.executable:
        return (python, "-P", "-m", "fiprof.workloads")
    return (python, str(Path(fiprof.workloads.__path__[0]) / "__main__.py"))


@dataclass(frozen=True)
class ExportCommands:
    """The exports of a run folder's reports; a run of several reports counts them."""

    path: Path
    tools: Mapping[str, Tool]
    timeout_s: float  # that a command may take

    def trace_export(self, number: int = 0, report: Path | None = None, *, payloads: bool = True) -> ToolCommand:
        """The SQLite of nsys's report. report: where it lies, if not in the run. payloads: those of NVTX ranges too."""
        tool, sqlite = self.tools["nsys"], self.path / numbered(layout.NSYS_SQLITE, number)
        report = report or self.path / numbered(layout.NSYS_REPORT, number)
        argv = nsys.export_argv(tool.path, report, sqlite, tool.version if payloads else ())
        return self.command(numbered("nsys-export", number), argv, makes=(sqlite,))

    def page(self, page: Page, number: int = 0, report: Path | None = None) -> ToolCommand:
        """A page of ncu's report as CSV. report: where it lies, if not in the run."""
        report = report or self.path / numbered(layout.NCU_REPORT, number)
        argv = ncu.export_argv(self.tools["ncu"].path, report, page)
        out = self.path / numbered(layout.NCU_PAGES[page], number)
        return self.command(numbered(f"ncu-{page}", number), argv, stdout=out)

    def command(self, step: str, argv: tuple[str, ...], **options: Any) -> ToolCommand:
        """A command with its log. options: further fields of the command."""
        return ToolCommand(step, argv, self.path / "logs" / f"{step}.log", **{"timeout_s": self.timeout_s, **options})


@dataclass(frozen=True)
class CollectCommands(ExportCommands):
    request: CollectRequest

    def plain(self) -> ToolCommand:
        out = self.path / layout.BASELINE
        argv = self._workload(out, self.request.iterations, self.request.warmup, *self._turns())
        return self.command("plain", argv, makes=(out,), env=gpu_env(self.request.gpu))

    def trace(self, gpu_metrics_hz: int) -> ToolCommand:
        """gpu_metrics_hz: 0 leaves the GPU metrics out."""
        tool, report, request = self.tools["nsys"], self.path / layout.NSYS_REPORT, self.request
        out = self.path / layout.NSYS_CASES
        workload = self._workload(out, request.iterations, request.warmup, *self._turns(), "--no-check", "--no-timing")
        settings = dataclasses.replace(request, gpu_metrics_hz=gpu_metrics_hz)
        argv = nsys.profile_argv(tool.path, tool.version, report, workload, settings)
        return self.command("nsys", argv, makes=(report,), env=gpu_env(self.request.gpu))

    def profile(self, gate: Path | None = None) -> ToolCommand:
        """gate: file that holds the workload back until its turn."""
        report, request, out = self.path / layout.NCU_REPORT, self.request, self.path / layout.NCU_CASES
        # ncu saves and restores the memory that a kernel may write: what is not needed is not kept.
        words = ("--give-memory-back", "--no-check", "--no-timing")
        workload = self._workload(out, request.measure_iterations, NCU_WARMUP, *words)
        argv = ncu.profile_argv(self.tools["ncu"].path, report, workload, request)
        gate_env = {} if gate is None else {GATE_VARIABLE: str(gate)}
        return self.command("ncu", argv, makes=(report,), env={**gpu_env(self.request.gpu), **gate_env})

    def exports(self) -> list[ToolCommand]:
        return [self.page(page) for page in ncu.pages(self.request.ncu_set)]

    def all(self) -> list[ToolCommand]:
        """Every command of the request, in order, for --dry-run."""
        commands = [self.plain()]
        if "nsys" in self.request.tools:
            commands += [self.trace(self.request.gpu_metrics_hz), self.trace_export(payloads=False)]
        if "ncu" in self.request.tools:
            commands += [self.profile(), *self.exports()]
        return commands

    def _turns(self) -> list[str]:
        rounds, budget_ms = self.request.rounds, self.request.budget_ms
        turns = [f"--rounds={rounds}"] if rounds > 1 else []
        return [*turns, f"--budget-ms={budget_ms:g}"] if budget_ms is not None else turns

    def _workload(self, out: Path, iterations: int, warmup: int, *words: str) -> tuple[str, ...]:
        request = self.request
        return (
            *runner_argv(request.python),
            "run",
            *(word for case in request.cases for word in ("--case", case.argument)),
            f"--measure-iterations={iterations}",
            f"--warmup={warmup}",
            f"--seed={request.seed}",
            *words,
            *(["--keep-going"] if request.keep_going else []),
            *([] if request.check or "--no-check" in words else ["--no-check"]),
            f"--out={out}",
        )


@dataclass(frozen=True)
class ProgramCommands(ExportCommands):
    """The command of each step of a profile."""

    request: ProfileRequest
    pass_on: PassOn  # told what the program prints under nsys

    def trace(self) -> ToolCommand:
        tool, report = self.tools["nsys"], self.path / layout.NSYS_REPORT
        argv = nsys.program_argv(tool.path, tool.version, report, self.request.program, self.request)
        options: dict[str, Any] = {"makes": (report,)}
        if self.request.torch_memory:
            folder, history = Path(fiprof.workloads.__path__[0]) / "torch_memory", self.path / layout.TORCH_MEMORY
            paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
            env = {"PYTHONPATH": paths, "FIPROF_TORCH_MEMORY": str(history.absolute())}
            options = {"makes": (report, history), "env": env}
        return self.command("nsys", argv, pass_on=nsys.ProgramOutput(self.pass_on), reads=INPUT, **options)

    def profile(
        self, request: ProfileRequest, chosen: Filter, number: int, pass_on: PassOn | None = None, limit_s: float = 0
    ) -> ToolCommand:
        """ncu over the chosen launches. request: of the run's parts the one. number: of the report. limit_s: after
        which it is ended; what it has then is kept.
        """
        report = self.path / numbered(layout.NCU_REPORT, number)
        argv = ncu.program_argv(self.tools["ncu"].path, report, request.program, request, chosen)
        options = {"makes": (report,), "pass_on": pass_on, "timeout_s": limit_s, "keeps_at_limit": True}
        return self.command(numbered("ncu", number), argv, reads=INPUT, **options)
