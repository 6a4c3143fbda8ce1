"""One process of a comparison: kept warm, given its turn, heard."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.orchestrator import steps
from fiprof.orchestrator.process import Command, Finished
from fiprof.orchestrator.run_session import Session
from fiprof.workloads.runner import Record

POLL_S = 0.002
"""Of a file that a process writes while it measures: on one of the host's cores, which takes no part in that."""


class WarmProcess:
    """A process of ``fiprof.workloads rounds``: :meth:`ask` it one thing after the other, then :meth:`end` it."""

    def __init__(self, session: Session, command: Command, orders: Path, threads: Executor) -> None:
        """orders: the FIFO that the command reads. Raises FiprofError where it cannot be started."""
        self.name = command.step
        self._results = command.makes[0]
        self._over = threading.Event()
        self._read, self._tail = 0, b""
        os.mkfifo(orders, 0o600)
        # For reading too: it can be opened before the process does, which sees its end when fiprof ends.
        self._orders = os.open(orders, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        started = session.executor.start(command)
        self.ended: Future[None] = threads.submit(session.finish, started, self._check, lambda _: self._over.is_set())

    def ask(self, do: str, **order: object) -> list[Record]:
        """What the process answers to an order. Raises FiprofError where it ends instead, Interrupted."""
        line = json.dumps({"do": do, **order}).encode() + b"\n"
        while line and not self.ended.done():
            try:
                line = line[os.write(self._orders, line) :]
            except BlockingIOError:
                # A longer line than a pipe holds, of thousands of cases.
                time.sleep(POLL_S)
        return self.answer()

    def answer(self) -> list[Record]:
        """The records up to the next ``done``."""
        found: list[Record] = []
        while True:
            ended = self.ended.done()
            for record in self._records():
                if record["kind"] == "done":
                    return found
                found.append(record)
            if ended:
                self.ended.result()
                raise FiprofError(f"{self.name} ended before it was told to", f"see logs/{self.name}.log")
            time.sleep(POLL_S)

    def end(self) -> None:
        """Have no more orders, and wait for its end. Raises FiprofError where it fails in that."""
        self.close()
        self.ended.result()

    def close(self, *, now: bool = False) -> None:
        """Have no more orders. now: end it in the middle of one."""
        if now:
            self._over.set()
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def _records(self) -> Iterable[Record]:
        if not self._results.exists():
            return
        with open(self._results, "rb") as results:
            results.seek(self._read)
            new = results.read()
        self._read += len(new)
        *lines, self._tail = (self._tail + new).split(b"\n")
        yield from map(json.loads, lines)

    def _check(self, finished: Finished, log: str) -> None:
        if finished.outcome != "ok":
            raise steps.workload_failure(f"process {self.name}", finished, log)
