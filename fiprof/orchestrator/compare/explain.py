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
from fiprof.orchestrator.compare.checkouts import Commands, CompareRequest, check_out
from fiprof.orchestrator.environment import program_facts
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Command, Supervisor
from fiprof.orchestrator.request import CollectRequest, ProfileRequest
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.run_session import Executor, Progress, Result, Started
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
        for letter in "AB":
            checkout = check_out(request.side(letter), files / letter)
            commands = Commands(request, folder, files, {"A": None, "B": None, letter: checkout})
            executor = InEnvironment(supervisor, commands.environment(letter))
            git = {"git": checkout.commit} if checkout else {}
            if request.a.program:
                program = _program(request, letter)
                tools = profile.find_tools(program)
                run = profile.new_run(program, tools, archive, gpu, program_facts(program.program))
                run.note_environment(git)
                # Nobody is shown the program's output.
                quiet = lambda _piece, _of_stderr: None  # noqa: E731
                profiling = profile.Profiling(program, run, executor, progress, tools, quiet)
                profiling.measure()
                assert profiling.result is not None
                result = profiling.result
            else:
                both = {getattr(case, letter.lower()) for case in found.cases}
                cases = zip(commands.cases(letter), request.cases(letter), strict=True)
                wanted = _cases(request, letter, [text for text, case in cases if case.id in both])
                collection = collect.start(wanted, collect.require_tools(wanted), gpu, archive, progress, executor)
                collection.folder.note_environment(git)
                collection.measure()
                result = collection.conclude()
            if result.problem is not None:
                return result
            names.append(result.path.name)
    explained = dataclasses.replace(found, explained=(names[0], names[1]))
    write_whole(folder / COMPARISON, json_file.encode(explained))
    return result


def _program(request: CompareRequest, letter: str) -> ProfileRequest:
    return ProfileRequest(program=request.side(letter).program, timeout_s=request.timeout_s)


def _cases(request: CompareRequest, letter: str = "A", cases: Sequence[str] = ()) -> CollectRequest:
    """cases: those that both sides could run, as the runner takes them."""
    return CollectRequest(
        cases=tuple(map(parse_case, cases)),
        iterations=request.iterations,
        warmup=request.warmup,
        seed=request.seed,
        check=False,
        timeout_s=request.timeout_s,
        gpu=request.gpu,
        gpu_metrics_hz=0,
        keep_going=True,
        python=request.interpreter(letter),
    )
