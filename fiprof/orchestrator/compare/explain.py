"""What explains a measured comparison: each side is profiled once, into a run of its own."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiprof.analysis.comparison.measured_result import read_comparison
from fiprof.files import scratch, write_whole
from fiprof.model import json_file
from fiprof.model.layout import COMPARISON
from fiprof.orchestrator import collect, profile
from fiprof.orchestrator.archive import Archive
from fiprof.orchestrator.compare.commands import Commands
from fiprof.orchestrator.compare.request import CompareRequest
from fiprof.orchestrator.compare.sides import check_out
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Command, Supervisor
from fiprof.orchestrator.program import program_facts
from fiprof.orchestrator.request import CollectRequest, ProfileRequest
from fiprof.orchestrator.run_session import Executor, Progress, Result, Session, Started
from fiprof.orchestrator.tools import visible_gpu
from fiprof.workloads.case import parse_case


class InEnvironment:
    """Starts commands with variables set."""

    def __init__(self, executor: Executor, env: Mapping[str, str]) -> None:
        self._executor = executor
        self._env = env

    @property
    def stopping(self) -> threading.Event:
        return self._executor.stopping

    def start(self, command: Command) -> Started:
        return self._executor.start(dataclasses.replace(command, env={**self._env, **command.env}))


def require_tools(request: CompareRequest) -> None:
    """Raises FiprofError where the sides cannot be profiled: before they are measured."""
    if request.a.program:
        for letter in "AB":
            profile.find_tools(_program(request, letter))
    else:
        collect.require_tools(_cases(request))


def explain(
    request: CompareRequest,
    folder: Path,
    archive: Archive,
    progress: Progress,
    supervisor: Supervisor,
    *,
    wait: bool = True,
) -> Result:
    """Profile both sides of a measured comparison, and note their runs in its result. folder: of the comparison.

    Returns how the first one ended that did not complete, else the second. Raises as ``collect`` and ``profile``.
    """
    found = read_comparison(folder)
    names = []
    gpu = visible_gpu(request.gpu)
    with gpu_lock(gpu, wait=wait, waiting=progress.say, stopping=supervisor.stopping), scratch(archive.root) as files:
        for letter, measured in (("A", [case.a for case in found.cases]), ("B", [case.b for case in found.cases])):
            checkout = check_out(request.side(letter), files / letter)
            commands = Commands(request, folder, files, {"A": None, "B": None, letter: checkout})
            executor = InEnvironment(supervisor, commands.environment(letter))
            under_way = (
                _profiling(_program(request, letter), gpu, archive, progress, executor)
                if request.a.program
                else _collection(_cases(request, letter, commands, measured), gpu, archive, progress, executor)
            )
            if checkout:
                under_way.session.journal.note_environment({"git": checkout.commit})
            result = _measured(under_way)
            if result.problem is not None:
                return result
            names.append(result.path.name)
    explained = dataclasses.replace(found, explained=(names[0], names[1]))
    write_whole(folder / COMPARISON, json_file.encode(explained))
    return result


def _measured(under_way: collect.Collection | profile.Profiling) -> Result:
    under_way.measure()
    if isinstance(under_way, collect.Collection):
        return under_way.conclude()
    assert under_way.result is not None
    return under_way.result


def _collection(
    wanted: CollectRequest, gpu: str, archive: Archive, progress: Progress, executor: Executor
) -> collect.Collection:
    return collect.start(wanted, collect.require_tools(wanted), gpu, archive, progress, executor)


def _profiling(
    wanted: ProfileRequest, gpu: str, archive: Archive, progress: Progress, executor: Executor
) -> profile.Profiling:
    """Of a program whose output nobody is shown."""
    tools = profile.find_tools(wanted)
    journal = profile.new_run(wanted, tools, archive, gpu, program_facts(wanted.program))
    session = Session(journal.folder.path, executor, journal, progress)
    return profile.Profiling(wanted, session, tools, lambda _piece, _of_stderr: None)


def _program(request: CompareRequest, letter: str) -> ProfileRequest:
    return ProfileRequest(program=request.side(letter).program, timeout_s=request.timeout_s)


def _cases(
    request: CompareRequest, letter: str = "A", commands: Commands | None = None, measured: Sequence[str] = ()
) -> CollectRequest:
    """measured: ids of the cases that both sides could run."""
    cases = zip(commands.cases(letter) if commands else (), request.cases(letter), strict=False)
    return CollectRequest(
        cases=tuple(parse_case(text) for text, case in cases if case.id in measured),
        iterations=request.iterations,
        warmup=request.warmup,
        seed=request.seed,
        check=False,
        timeout_s=request.timeout_s,
        gpu=request.gpu,
        gpu_metrics_hz=0,
        keep_going=True,
        python=request.side(letter).python or request.python,
    )
