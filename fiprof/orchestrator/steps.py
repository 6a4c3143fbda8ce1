"""The commands of a run, and when each counts as done."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.layout import (
    BASELINE,
    NCU_CASES,
    NCU_PAGES,
    NCU_REPORT,
    NSYS_CASES,
    NSYS_REPORT,
    NSYS_SQLITE,
    Page,
)
from fiprof.model.records import case_errors, read_jsonl
from fiprof.model.redaction import secrets
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.process import Command, Finished
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.tools import Tool

NCU_WARMUP = 1


@dataclasses.dataclass(frozen=True)
class Commands:
    """The command of each step, for one request and one run folder."""

    request: CollectRequest
    path: Path
    """The run folder."""
    nsys_tool: Tool | None
    ncu_tool: Tool | None

    def plain(self) -> Command:
        out = self.path / BASELINE
        argv = self._workload(self.request.iterations, self.request.warmup, out, *self._turns(), profiled=False)
        return self._command("plain", argv, makes=(out,), env=self._gpu_env())

    def trace(self, gpu_metrics_hz: int) -> Command:
        """gpu_metrics_hz: 0 leaves the GPU metrics out."""
        tool, report = self._tool(self.nsys_tool, "nsys"), self.path / NSYS_REPORT
        out = self.path / NSYS_CASES
        workload = self._workload(self.request.iterations, self.request.warmup, out, *self._turns(), profiled=True)
        settings = dataclasses.replace(self.request, gpu_metrics_hz=gpu_metrics_hz)
        argv = nsys.profile_argv(tool.path, tool.version, report, workload, settings)
        return self._command("nsys", argv, makes=(report,), env=self._gpu_env())

    def trace_export(self) -> Command:
        tool, sqlite = self._tool(self.nsys_tool, "nsys"), self.path / NSYS_SQLITE
        argv = nsys.export_argv(tool.path, self.path / NSYS_REPORT, sqlite)
        return self._command("nsys-export", argv, makes=(sqlite,))

    def profile(self, gate_env: Mapping[str, str]) -> Command:
        """gate_env: what holds the workload back until its turn."""
        tool, report, request = self._tool(self.ncu_tool, "ncu"), self.path / NCU_REPORT, self.request
        # ncu saves and restores the memory that a kernel may write: what is not needed is not kept.
        turns, out = ("--give-memory-back",), self.path / NCU_CASES
        workload = self._workload(request.measure_iterations, NCU_WARMUP, out, *turns, profiled=True)
        argv = ncu.profile_argv(tool.path, report, workload, request)
        return self._command("ncu", argv, makes=(report,), env={**self._gpu_env(), **gate_env})

    def page(self, page: Page) -> Command:
        tool = self._tool(self.ncu_tool, "ncu")
        argv = ncu.export_argv(tool.path, self.path / NCU_REPORT, page)
        return self._command(f"ncu-{page}", argv, stdout=self.path / NCU_PAGES[page])

    def all(self) -> list[Command]:
        """Every command of the request, in order, for --dry-run."""
        commands = [self.plain()]
        if "nsys" in self.request.tools:
            commands += [self.trace(self.request.gpu_metrics_hz), self.trace_export()]
        if "ncu" in self.request.tools:
            commands += [self.profile({}), *(self.page(page) for page in pages(self.request))]
        return commands

    def without(self, case_ids: Iterable[str]) -> Commands:
        """The commands for the other cases."""
        left_out = set(case_ids)
        cases = tuple(case for case in self.request.cases if case.id not in left_out)
        return dataclasses.replace(self, request=dataclasses.replace(self.request, cases=cases))

    def _turns(self) -> tuple[str, ...]:
        request = self.request
        return (
            *((f"--rounds={request.rounds}",) if request.rounds > 1 else ()),
            *((f"--budget-ms={request.budget_ms:g}",) if request.budget_ms is not None else ()),
        )

    def _workload(self, iterations: int, warmup: int, out: Path, *turns: str, profiled: bool) -> tuple[str, ...]:
        request = self.request
        return (
            *runner_argv(request.python),
            "run",
            *(word for case in request.cases for word in ("--case", case.argument)),
            f"--measure-iterations={iterations}",
            f"--warmup={warmup}",
            f"--seed={request.seed}",
            *turns,
            *(("--keep-going",) if request.keep_going else ()),
            *(("--no-check",) if profiled or not request.check else ()),
            *(("--no-timing",) if profiled else ()),
            f"--out={out}",
        )

    def _gpu_env(self) -> dict[str, str]:
        if self.request.gpu is None:
            return {}
        # nvidia-smi counts in PCI order; CUDA by default does not.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(self.request.gpu)}

    def _command(
        self,
        step: str,
        argv: Sequence[str],
        *,
        makes: tuple[Path, ...] = (),
        stdout: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Command:
        log = self.path / "logs" / f"{step}.log"
        return Command(step, tuple(argv), log, env or {}, self.request.timeout_s, stdout, makes)

    @staticmethod
    def _tool(tool: Tool | None, name: str) -> Tool:
        # A replay starts nothing: the archived command stands in for this one.
        return tool or Tool(Path(name), ())


def pages(request: CollectRequest) -> tuple[Page, ...]:
    """The pages to export: the quick set has no source counters."""
    return ("raw", "details", "source") if request.ncu_set == "full" else ("raw", "details")


def runner_argv(python: str) -> tuple[str, ...]:
    """How an interpreter starts the runner: as a module where it is fiprof's own, else by path.

    Either way nothing is imported from the current folder; an older interpreter than 3.11 has no ``-P``.
    """
    import sys

    if python == sys.executable:
        return (python, "-P", "-m", "fiprof.workloads")
    import fiprof.workloads

    return (python, str(Path(fiprof.workloads.__path__[0]) / "__main__.py"))


def check_plain(path: Path, case_ids: Sequence[str]) -> Callable[[Finished, str], None]:
    """The check of the plain run: it ended well, and every case has its results or the reason why not."""

    def check(finished: Finished, log: str) -> None:
        if finished.outcome != "ok":
            raise workload_failure("the plain run", finished, log)
        done = {record.get("case") for record in read_jsonl(path / BASELINE) if record.get("kind") == "case"}
        done |= case_errors(path / BASELINE).keys()
        missing = [case for case in case_ids if case not in done]
        if missing:
            raise FiprofError(
                f"the plain run ended with exit status 0 and no result of {', '.join(missing)}",
                "the workload ended the process itself; its output stands in logs/plain.log",
            )

    return check


def check_trace(path: Path, *, replayed: bool = False) -> Callable[[Finished, str], None]:
    """The check of nsys's run. replayed: from an archived run, whose private report may have been left out."""

    def check(finished: Finished, log: str) -> None:
        if not replayed:
            nsys.check_report(path / NSYS_REPORT, log)
        if finished.outcome != "ok":
            raise workload_failure("the workload under nsys", finished, log)

    return check


def check_profile(path: Path) -> Callable[[Finished, str], None]:
    """The check of ncu's run."""

    def check(finished: Finished, log: str) -> None:
        ncu.check_log(log, path / NCU_REPORT, exit_status=finished.exit_status)

    return check


def check_made(file: Path) -> Callable[[Finished, str], None]:
    """The check of an export: it ended well and the file is there and not empty."""

    def check(finished: Finished, log: str) -> None:
        printed = ""
        if file.suffix == ".csv" and file.exists():
            with open(file, errors="replace") as export:
                printed = export.read(2000)
        errors = re.findall(r"==ERROR== (.*)", log + printed)
        if finished.outcome != "ok" or errors:
            raise FiprofError(f"{file.name} was not exported: {errors[-1] if errors else nsys.last_line(log)}")
        if not file.exists() or not file.stat().st_size:
            raise FiprofError(f"{file.name} was not exported: {nsys.last_line(log)}", "is the disk full?")

    return check


def check_trace_export(sqlite: Path) -> Callable[[Finished, str], None]:
    """The check of nsys's export, which is then cleared of what nsys wrote down beside the trace."""
    check_whole = check_made(sqlite)

    def check(finished: Finished, log: str) -> None:
        from fiprof.parsers.nsys_scrub import scrub

        check_whole(finished, log)
        try:
            scrub(sqlite, secrets(os.environ))
        except FiprofError:
            sqlite.unlink()
            raise

    return check


def workload_failure(what: str, finished: Finished, log: str) -> FiprofError:
    """What a failed workload said last: the runner's own error where there is one."""
    said = re.findall(r"^fiprof: error: (.*)\n(?:  (.*))?", log + "\n", re.MULTILINE)
    if said:
        return FiprofError(f"{what}: {said[-1][0]}", said[-1][1])
    step = re.findall(r"^fiprof: (\w+ \d+/\d+ \S+)", log, re.MULTILINE)
    where = f" during {step[-1]}" if step else ""
    return FiprofError(f"{what} {finished.message}{where}: {nsys.last_line(log)}", "its whole output stands in the log")


def watch_workload(tail: str) -> str:
    """What the runner is at, from the end of its log."""
    steps = re.findall(r"^fiprof: (\w+ \d+/\d+ [^\s\[]+)", tail, re.MULTILINE)
    return str(steps[-1]) if steps else "starting"
