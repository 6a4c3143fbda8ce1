"""Who measures a study's batches: this process, every GPU of this machine, Slurm by submitit, Dask, or any executor.

submitit and Dask are imported where they are named.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file
from fiprof.orchestrator.batches import JOBS, BatchOutcome, Job, measure
from fiprof.orchestrator.process import Supervisor, ToolCommand
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.run_session import Bench
from fiprof.orchestrator.tools import count_gpus, visible_gpus
from fiprof.text import count

ASKING_S = 5.0  # between two questions to Slurm
KINDS = "local, local:2, slurm:partition=NAME,gpus=1,exclusive, submitit-local or dask:tcp://HOST:PORT"


class Workers(NamedTuple):
    """Who measures, and what is known of them."""

    submit: Callable[[Job], Any]  # hands a batch out; gives ``done()`` and ``result()``, as ``concurrent.futures`` do
    boards: int | None = None  # GPUs that measure at the same time; None where nobody knows
    room: Callable[[int], bool] = lambda running: True  # noqa: ARG005
    """Whether another batch may be handed out beside so many."""
    attach: Callable[[str], Any] | None = None
    """What an earlier session handed out, by its ``job_id``; None where nothing outlives its session."""
    here: bool = False  # they are of this machine, which has the GPUs
    alone: bool = False  # this process measures, on one of them


@contextlib.contextmanager
def opened(on: Any, bench: Bench) -> Iterator[Workers]:
    """The workers that ``--on`` names, an executor from Python, or for None this process, for the length of a block.

    bench: the study's. Raises FiprofError (exit status 2) for a name that means none, or what is not installed.
    """
    kind, _, words = on.partition(":") if isinstance(on, str) else ("", "", "")
    if on is None:
        free = threading.Event()

        def measure_here(job: Job) -> Any:
            free.clear()
            return threads.submit(measure, job, bench, free)

        # One has the GPU, the other makes tables.
        with ThreadPoolExecutor(2) as threads:
            yield Workers(measure_here, 1, lambda running: not running or free.is_set(), here=True, alone=True)
    elif not isinstance(on, str):
        yield Workers(functools.partial(on.submit, measure), getattr(on, "_max_workers", None))
    elif kind == "local" and (not words or words.isdigit()):
        every = visible_gpus()
        gpus = every[: int(words or len(every))]
        if not gpus or len(gpus) < int(words or 0):
            visible = len(every) if os.environ.get("CUDA_VISIBLE_DEVICES") else count_gpus()
            raise FiprofError(f"--on {on}: {count(visible, 'GPU')} visible here", "local takes all", exit_code=2)
        supervisor, number = Supervisor(stopping=bench.executor.stopping), itertools.count()

        def hand_out(job: Job) -> Any:
            # Each looks for a free GPU from the next one on. Twice as many as there are: some make tables, or wait.
            first = next(number) % len(gpus)
            return threads.submit(_process, job, ",".join(gpus[first:] + gpus[:first]), supervisor)

        with ThreadPoolExecutor(2 * len(gpus)) as threads:
            yield Workers(hand_out, len(gpus), here=True)
    elif kind in ("slurm", "submitit-local"):
        yield _submitit(kind, words, bench.archive.root.resolve() / JOBS)
    elif kind == "dask":
        with dask(on) as client, client.get_executor(pure=False) as executor:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            yield Workers(functools.partial(executor.submit, measure), len(workers) or None)
    else:
        raise FiprofError(f"--on {on} names nothing that measures", f"it takes {KINDS}", exit_code=2)


def workers_of(on: Any) -> Workers:
    """The workers that ``--on`` names, closed again: how many there are, and where. Raises as :func:`opened`."""
    with tempfile.TemporaryDirectory() as scratch, opened(on, Bench(Archive(Path(scratch)))) as workers:
        return workers


def dask(on: str) -> Any:
    """The client that ``dask`` or ``dask:ADDRESS`` names, to be closed. Raises FiprofError (exit status 2)."""
    try:
        return imported("distributed").Client(on.partition(":")[2] or None)
    except (OSError, ValueError) as error:
        remedy = "name a scheduler that runs: dask:tcp://HOST:PORT"
        raise FiprofError(f"--on {on} cannot be reached: {error}", remedy, exit_code=2) from error


def _process(job: Job, gpus: str, supervisor: Supervisor) -> BatchOutcome:
    """A batch by a process of its own. Raises FiprofError where it ended without a word, Interrupted."""
    job_file, outcome_file = job.path(".json"), job.path(".said.json")
    job_file.parent.mkdir(parents=True, exist_ok=True)
    outcome_file.unlink(missing_ok=True)
    job_file.write_bytes(json_file.encode(job))
    argv = (
        sys.executable,
        "-c",
        "from fiprof.orchestrator.batches import main; main()",
        str(job_file),
        str(outcome_file),
    )
    finished = supervisor.start(ToolCommand("batch", argv, job.path(".log"), {"CUDA_VISIBLE_DEVICES": gpus})).wait()
    if finished.outcome == "interrupted":
        raise Interrupted
    if not outcome_file.exists():
        raise FiprofError(f"it {finished.message or 'said nothing'}", f"see {job.path('.log')}")
    return json_file.read(outcome_file, BatchOutcome, "fiprof study writes it")


def _submitit(kind: str, words: str, folder: Path) -> Workers:
    """words: as submitit calls sbatch's; ``gpus`` are a batch's, ``jobs`` as many at a time. folder: for its files."""
    submitit = imported("submitit")
    given = dict(word.partition("=")[::2] for word in words.split(",") if word)
    options: dict[str, Any] = {name: int(text) if text.isdigit() else text or True for name, text in given.items()}
    jobs = options.pop("jobs", None)
    if "gpus" in options:
        options["gpus_per_node"] = options.pop("gpus")
    try:
        executor = (submitit.SlurmExecutor if kind == "slurm" else submitit.LocalExecutor)(folder)
        executor.update_parameters(**options)
    except (RuntimeError, ValueError, TypeError) as error:
        why, remedy = str(error).partition("\n")[0], "options are those of submitit, e.g. partition=NAME"
        raise FiprofError(f"--on {kind}: {why}", remedy, exit_code=2) from error
    workers = Workers(functools.partial(executor.submit, measure), jobs, lambda running: not jobs or running < jobs)
    if kind != "slurm":
        return workers
    return workers._replace(
        submit=lambda job: SlurmBatch(executor.submit(measure, job)),
        attach=lambda number: SlurmBatch(submitit.SlurmJob(folder, number)),
    )


class SlurmBatch:
    """A job of submitit's, which itself asks nothing but sacct whether it goes on: not every Slurm has that."""

    def __init__(self, job: Any) -> None:
        self.job, self.job_id = job, str(job.job_id)
        self._asked, self._gone = time.monotonic(), False

    def done(self) -> bool:
        if not (has_result := self.job.paths.result_pickle.exists()) and time.monotonic() > self._asked + ASKING_S:
            self._asked, words = time.monotonic(), ("squeue", "-h", "-j", self.job_id, "-o", "%T")
            queue = subprocess.run(words, capture_output=True, text=True, check=False)
            self._gone = not queue.stdout.strip() and ("nvalid job id" in queue.stderr or not queue.returncode)
        return self._gone or bool(has_result)

    def result(self) -> BatchOutcome:
        if not self.job.paths.result_pickle.exists():
            raise FiprofError(f"Slurm's job {self.job_id} ended without a word", f"see {self.job.paths.stderr}")
        outcome: BatchOutcome = self.job.result()
        return outcome


def imported(module: str) -> Any:
    """A module of an extra. Raises FiprofError (exit status 2) where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FiprofError(f"{module} is not installed here", f"pip install {module}", exit_code=2) from error
