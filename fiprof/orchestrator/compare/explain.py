"""What explains a measured comparison: each side is profiled once, into a run of its own."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path

from fiprof.analysis.comparison.measured import read_comparison
from fiprof.errors import FiprofError
from fiprof.files import scratch, write_whole
from fiprof.model import versioned
from fiprof.model.layout import COMPARISON
from fiprof.orchestrator import collect
from fiprof.orchestrator.archive import Archive
from fiprof.orchestrator.compare.commands import Commands
from fiprof.orchestrator.compare.request import CompareRequest
from fiprof.orchestrator.compare.sides import check_out
from fiprof.orchestrator.execute import Executor, Started
from fiprof.orchestrator.gpu import visible_gpu
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Command, Supervisor
from fiprof.orchestrator.progress import Progress
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.under_way import Result
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
        raise FiprofError(
            "--explain profiles cases, and no programs",
            "fiprof profile -- COMMAND for each side, then fiprof compare RUN_A RUN_B",
            exit_code=2,
        )
    collect.require_tools(_request(request))


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

    Returns how the first one ended that did not complete, else the second. Raises as ``collect``.
    """
    found = read_comparison(folder)
    measured = {"A": [case.a for case in found.cases], "B": [case.b for case in found.cases]}
    names = []
    gpu = visible_gpu(request.gpu)
    with gpu_lock(gpu, wait=wait, waiting=progress.say, stopping=supervisor.stopping), scratch(archive.root) as files:
        for letter in "AB":
            checkout = check_out(request.side(letter), files / letter)
            commands = Commands(request, folder, files, {"A": None, "B": None, letter: checkout})
            cases = tuple(
                parse_case(text)
                for text, case in zip(commands.cases(letter), request.cases(letter), strict=True)
                if case.id in measured[letter]
            )
            wanted = dataclasses.replace(
                _request(request), cases=cases, python=request.side(letter).python or request.python
            )
            executor = InEnvironment(supervisor, commands.environment(letter))
            collection = collect.start(wanted, collect.require_tools(wanted), gpu, archive, progress, executor)
            if checkout:
                collection.session.journal.note_environment({"git": checkout.commit})
            collection.measure()
            result = collection.conclude()
            if result.problem is not None:
                return result
            names.append(result.path.name)
    explained = dataclasses.replace(found, explained=(names[0], names[1]))
    write_whole(folder / COMPARISON, versioned.encode(explained))
    return result


def _request(request: CompareRequest) -> CollectRequest:
    return CollectRequest(
        cases=(),
        iterations=request.iterations,
        warmup=request.warmup,
        seed=request.seed,
        check=False,
        timeout_s=request.timeout_s,
        gpu=request.gpu,
        gpu_metrics_hz=0,
        keep_going=True,
    )
