"""Who measures a study's batches: every GPU of this machine, Slurm by submitit, Dask, or any executor from Python.

Each takes ``submit(function, job)`` and gives something with ``done()`` and ``result()``, as ``concurrent.futures`` has
them. submitit and Dask are imported where they are named.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file
from fiprof.orchestrator.batches import JOBS, Job, Outcome
from fiprof.orchestrator.process import Command, Supervisor
from fiprof.orchestrator.tools import visible_gpus

ASKING_S = 5.0
"""Between two questions to Slurm."""
KINDS = "local, local:2, slurm:partition=NAME,gpus=1,exclusive, submitit-local or dask:tcp://HOST:PORT"


class Pending(Protocol):
    """A batch that was handed out."""

    def done(self) -> bool: ...

    def result(self) -> Outcome: ...


class Executor(Protocol):
    """What ``concurrent.futures`` calls so, as far as it is needed."""

    def submit(self, function: Any, /, job: Job) -> Pending: ...


@dataclass(frozen=True)
class Workers:
    """An executor, and what is known of it."""

    executor: Any
    boards: int | None = None
    """GPUs that measure at the same time; None where nobody knows."""
    most: int | None = None
    """Batches that are handed out at a time; None for all."""
    here: bool = False
    """They run on this machine, which has the GPUs."""
    attach: Any = None
    """Job id -> a batch that was handed out by an earlier session; None where an executor keeps none."""


@contextlib.contextmanager
def opened(on: Any, folder: Path, stopping: threading.Event, retries: int = 0) -> Iterator[Workers]:
    """The workers that ``--on`` names, or an executor from Python, for the length of a block.

    folder: the study's. stopping: set by somebody who wants this machine's to end. retries: of what Dask's lost.
    Raises FiprofError (exit status 2) for a name that means none, or what is not installed.
    """
    if not isinstance(on, str):
        yield Workers(on, getattr(on, "_max_workers", None))
        return
    kind, _, words = on.partition(":")
    if kind == "local" and (not words or words.isdigit()):
        gpus = visible_gpus()
        if (count := int(words or len(gpus))) > len(gpus) or not count:
            raise FiprofError(f"--on {on}: {len(gpus)} GPUs are visible here", "--on local takes them all", exit_code=2)
        with LocalPool(gpus[:count], Supervisor(stopping=stopping)) as pool:
            yield Workers(pool, count, pool.size, here=True)
    elif kind in ("slurm", "submitit-local"):
        yield _submitit(kind, words, folder)
    elif kind == "dask":
        distributed = _imported("distributed", "dask")
        with distributed.Client(words or None) as client, client.get_executor(pure=False, retries=retries) as executor:
            yield Workers(executor, len(client.scheduler_info(n_workers=-1)["workers"]) or None)
    else:
        raise FiprofError(f"--on {on} names nothing that measures", f"it takes {KINDS}", exit_code=2)


class LocalPool:
    """A process a batch. Of twice as many as there are GPUs each takes a free one: the others make tables, or wait."""

    def __init__(self, gpus: list[str], supervisor: Supervisor) -> None:
        self.gpus, self.supervisor, self.size = gpus, supervisor, 2 * len(gpus)
        self._threads = ThreadPoolExecutor(self.size)

    def submit(self, _: Any, /, job: Job) -> Pending:
        # The next one looks for a free GPU from the next one on.
        self.gpus = [*self.gpus[1:], self.gpus[0]]
        return self._threads.submit(self._run, job, ",".join(self.gpus))

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _run(self, job: Job, gpus: str) -> Outcome:
        """Raises FiprofError where the process ended without a word, Interrupted."""
        asked, said = job.path(".json"), job.path(".said.json")
        asked.parent.mkdir(parents=True, exist_ok=True)
        said.unlink(missing_ok=True)
        asked.write_bytes(json_file.encode(job))
        argv = (sys.executable, "-c", "from fiprof.orchestrator.batches import main; main()", str(asked), str(said))
        command = Command("batch", argv, job.path(".log"), {"CUDA_VISIBLE_DEVICES": gpus})
        finished = self.supervisor.start(command).wait()
        if finished.outcome == "interrupted":
            raise Interrupted
        if not said.exists():
            raise FiprofError(f"it {finished.message or 'said nothing'}", f"see {job.path('.log')}")
        return json_file.read(said, Outcome, "fiprof study writes it")


def _submitit(kind: str, words: str, folder: Path) -> Workers:
    """words: options of sbatch, as submitit calls them; ``gpus`` are those of a batch, ``jobs`` as many at a time."""
    submitit = _imported("submitit", "slurm")
    given = dict(word.partition("=")[::2] for word in words.split(",") if word)
    options: dict[str, Any] = {name: int(text) if text.isdigit() else text or True for name, text in given.items()}
    jobs, gpus = options.pop("jobs", None), options.pop("gpus", None)
    options |= {"gpus_per_node": gpus} if gpus else {}
    try:
        made = submitit.SlurmExecutor(folder / JOBS) if kind == "slurm" else submitit.LocalExecutor(folder / JOBS)
        made.update_parameters(**options)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise FiprofError(
            f"--on {kind}: {reason}", "options are those of submitit, e.g. partition=NAME", exit_code=2
        ) from error
    if kind != "slurm":
        return Workers(made, jobs, jobs)

    class Slurm:
        def submit(self, function: Any, /, job: Job) -> Pending:
            return SlurmBatch(made.submit(function, job))

    return Workers(Slurm(), jobs, jobs, attach=lambda known: SlurmBatch(submitit.SlurmJob(folder / JOBS, known)))


class SlurmBatch:
    """A job of submitit's, which asks sacct alone whether it goes on: not every Slurm has that."""

    def __init__(self, job: Any) -> None:
        self.job, self.job_id = job, str(job.job_id)
        self._asked, self._gone = time.monotonic(), False

    def done(self) -> bool:
        if not self._gone and not self.job.paths.result_pickle.exists() and time.monotonic() > self._asked + ASKING_S:
            self._asked = time.monotonic()
            queue = subprocess.run(
                ["squeue", "-h", "-j", self.job_id, "-o", "%T"], capture_output=True, text=True, check=False
            )
            self._gone = not queue.stdout.strip() and ("nvalid job id" in queue.stderr or not queue.returncode)
        return self._gone or self.job.paths.result_pickle.exists()

    def result(self) -> Outcome:
        if not self.job.paths.result_pickle.exists():
            raise FiprofError(f"Slurm's job {self.job_id} ended without a word", f"see {self.job.paths.stderr}")
        found: Outcome = self.job.result()
        return found


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FiprofError(f"{module} is not installed here", f"pip install 'fiprof[{extra}]'", exit_code=2) from error
