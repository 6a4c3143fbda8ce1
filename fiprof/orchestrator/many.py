"""Many traces: imported by processes that do nothing else, on this machine or wherever Dask has workers.

A trace that is corrupt, hangs or takes too much memory is named, and the others are imported. What was imported is not
imported again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from fiprof import files
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import layout
from fiprof.model.json_file import MisfitError, decode
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.orchestrator import executors
from fiprof.orchestrator.process import describe_exit
from fiprof.orchestrator.run_folder import Archive

RETRIES = 2  # of a trace whose worker died, by Dask
LOOK_S = 0.5  # between two looks at a process
MEMORY_SHARE, LEAST_BYTES = 0.9, 1 << 29
"""Of this machine's memory all processes may take so much together, and each so much in any case."""


@dataclass(frozen=True)
class Trace:
    """A trace to import."""

    source: str  # path or URL
    root: str  # the archive: a folder or a URL
    ranges: Sequence[str] = ()
    link: bool = False
    timeout_s: float = 3600.0
    memory_bytes: int | None = None  # for its process; None for its Dask worker's, divided by the tasks that run there


class Imported(NamedTuple):
    """What became of it."""

    source: str
    run: str = ""  # where it lies; empty where there is none
    problem: str = ""  # what was wrong with the trace; empty where nothing was


def sources(patterns: Sequence[str]) -> list[str]:
    """The files that globs and URLs mean, each once, in order. Raises FiprofError (exit status 2) for a pattern without
    any."""
    urls: list[str] = []
    for pattern in patterns:
        if "://" in pattern:
            system, path = files.remote(pattern)
            names = sorted(map(system.unstrip_protocol, system.glob(path)))
        else:
            names = sorted(os.path.abspath(name) for name in glob.glob(pattern, recursive=True) if os.path.isfile(name))
        if not names:
            raise FiprofError(f"no file fits {pattern}", "** goes through folders: 'traces/**/*.nsys-rep'", exit_code=2)
        urls += names
    return list(dict.fromkeys(urls))


def imported(root: str) -> set[str]:
    """The sources of the complete runs of an archive."""
    sources_there: set[str] = set()
    if "://" in root:
        system, path = files.remote(root)
        manifests = system.cat(names).values() if (names := system.glob(f"{path}/*/{layout.FILE_NAME}")) else ()
    else:
        manifests = (files.read_bytes(Path(root) / name, layout.FILE_NAME) for name in Archive(Path(root)).names())
    for manifest in manifests:
        with contextlib.suppress(MisfitError):
            if (read := decode(manifest, Manifest)).status == "complete":
                sources_there.update(each.source for each in read.imported)
    return sources_there


def import_each(jobs: Sequence[Trace], on: str, stopping: threading.Event) -> Iterator[Imported]:
    """Import traces, each outcome as it comes.

    on: ``local``, ``local:N`` (N at a time; as many as this machine has processors), or ``dask:…``.
    Raises FiprofError (exit status 2) for another name, Interrupted.
    """
    kind, _, words = on.partition(":")
    submit: Any
    with contextlib.ExitStack() as held:
        if kind == "local" and (not words or words.isdigit()):
            count = min(int(words or len(os.sched_getaffinity(0))) or 1, len(jobs))
            share = int(psutil.virtual_memory().total * MEMORY_SHARE / count)
            submit = ThreadPoolExecutor(count).submit
            jobs = [dataclasses.replace(job, memory_bytes=share) for job in jobs]
        elif kind != "dask":
            takes = "it takes local, local:2, dask or dask:tcp://HOST:PORT"
            raise FiprofError(f"--on {on} names nothing that imports", takes, exit_code=2)
        else:
            client = held.enter_context(executors.dask(on))
            submit = held.enter_context(client.get_executor(pure=False, retries=RETRIES)).submit
        futures = {submit(import_one, job, *([stopping] if kind == "local" else [])): job for job in jobs}
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except (Interrupted, CancelledError):
                    raise
                except Exception as error:
                    # The worker's end: it was killed for its memory, or its machine went away.
                    yield Imported(futures[future].source, problem=f"its worker ended: {error}".partition("\n")[0])
        finally:
            stopping.set()
            for future in futures:
                future.cancel()
            for child in _CHILDREN.values():
                child.communicate()


_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}  # thread -> the process that imports for it, trace after trace


def import_one(job: Trace, stopping: threading.Event | None = None) -> Imported:
    """Import a trace in a process of its own, which is ended where it hangs or takes too much memory.

    stopping: set by somebody who asks for the end, on this machine. Raises Interrupted.
    """
    stopping = stopping or threading.Event()
    limit, child = job.memory_bytes, _CHILDREN.get(threading.get_ident())
    if limit is None:
        # What a task may take of a Dask worker's memory; anything outside of one, and without a limit.
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            worker = importlib.import_module("distributed").get_worker()
            limit = int((worker.memory_manager.memory_limit or 0) / worker.state.nthreads) or None
    if child is not None and _taken(child.pid) > LEAST_BYTES:
        # It holds more after each trace, 0.6 MB of one of 20 MB: what it took of others is none of this one's.
        child.communicate()
    if child is None or child.poll() is not None:
        # It ends with its input.
        child = _CHILDREN[threading.get_ident()] = subprocess.Popen(
            [sys.executable, "-c", "from fiprof.orchestrator.many import main; main()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    assert child.stdin and child.stdout
    begin, problem = time.monotonic(), ""
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(vars(job)).encode() + b"\n")
        child.stdin.flush()
    while not problem and not select.select([child.stdout], [], [], LOOK_S)[0]:
        if stopping.is_set():
            problem = "interrupted"
        elif time.monotonic() - begin > job.timeout_s:
            problem = f"it was not imported within {job.timeout_s:,.0f} s: --timeout allows more"
        elif limit and (taken := _taken(child.pid)) > max(limit, LEAST_BYTES):
            problem = f"its import took {taken / 1e9:,.1f} GB of memory: fewer at a time (--on local:1) have more"
    with contextlib.suppress(MisfitError):
        if not problem:
            return decode(child.stdout.readline(), Imported)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    status = child.wait()
    if stopping.is_set():
        raise Interrupted
    return Imported(job.source, problem=problem or f"its process {describe_exit(status)}")


def _taken(pid: int) -> int:
    """Bytes that a process and those that it started have in memory."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
    return 0


def main() -> None:
    """The process of its own: a job a line from its input, what became of it a line to its output."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = decode(line.encode(), Trace)
        sys.argv[1:] = ["import", job.source]
        try:
            outcome = Imported(job.source, _imported_run(job))
        except Exception as error:
            # Whatever is wrong with one, the next are imported. Where its folder was does not matter: it is gone.
            words = f"{type(error).__name__}: {error}".partition("\n")[0]
            words = f"{error.message}; {error.remedy}".rstrip("; ") if isinstance(error, FiprofError) else words
            words = re.sub(r"\S*/\.fiprof-\w+\.d/\S*", job.source, words).removeprefix(f"{job.source} ")
            outcome = Imported(job.source, problem=words)
        stdout.write(json.dumps(outcome) + "\n")
        stdout.flush()


def _imported_run(job: Trace) -> str:
    """Import a trace and make its digest. Returns where the run lies.

    It is made in a folder that nobody looks at, and moved or uploaded when it is whole. Raises FiprofError, OSError.
    """
    from fiprof.analysis.across import digest
    from fiprof.model.run import Run
    from fiprof.orchestrator import index
    from fiprof.orchestrator.importing import import_files
    from fiprof.orchestrator.run_session import Bench

    catalogue, away = os.environ.pop(index.VARIABLE, None), "://" in job.root
    if not away:
        Path(job.root).mkdir(parents=True, exist_ok=True)
    with files.scratch(Path(tempfile.gettempdir() if away else job.root)) as folder:
        source = Path(job.source)
        if "://" in job.source:
            system, path = files.remote(job.source)
            source = folder / Path(path).name
            system.get_file(path, str(source))
        # Many are called alike, and end in the same second.
        name = f"{source.stem[:50]}-{hashlib.sha256(os.fsencode(job.source)).hexdigest()[:8]}"
        result = import_files([source], Bench(Archive(folder / "runs")), ranges=job.ranges, name=name, link=job.link)
        if result.problem is not None:
            raise result.problem
        manifest = read_manifest(result.path)
        named = [dataclasses.replace(each, source=job.source) for each in manifest.imported]
        files.write_whole(result.path / layout.FILE_NAME, dataclasses.replace(manifest, imported=named).to_json())
        files.write_whole(result.path / layout.DIGEST, digest(Run(result.path)))
        run = f"{job.root.rstrip('/')}/{result.path.name}"
        if away:
            _upload(result.path, run)
        else:
            result.path.rename(run)
    if catalogue and not away:
        os.environ[index.VARIABLE] = catalogue
        index.share(Path(run), lambda _: None)
    return run


def _upload(run: Path, url: str) -> None:
    """Put a run folder on a file system of fsspec's, its manifest last: what has none is no run yet."""
    system, path = files.remote(url)
    names = [str(each.relative_to(run)) for each in sorted(run.rglob("*")) if each.is_file()]
    for name in sorted(names, key=lambda name: name == layout.FILE_NAME):
        system.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
        system.put_file(str(run / name), f"{path}/{name}")
