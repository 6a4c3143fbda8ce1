"""The output of a program of the user's: passed on as it comes, and into a log that stays small."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

PassOn = Callable[[bytes, bool], None]
"""Takes a piece of output, empty at its end, and whether it is of stderr."""

MOST_BYTES = 4 << 20
"""Of a log's begin, and of its end: what is between is left out. The tools say at either end what went wrong."""
PIECE_BYTES = 1 << 16
CLOSING_S = 2.0


class Relay:
    """Reads both pipes of a process until they end."""

    def __init__(self, log: Path, stdout: IO[bytes], stderr: IO[bytes], pass_on: PassOn) -> None:
        self._log = open(log, "ab", buffering=0)  # noqa: SIM115
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._written = 0
        self._left_out = 0
        self._end = bytearray()
        self._threads = [
            threading.Thread(target=self._copy, args=(pipe, of_stderr), daemon=True)
            for pipe, of_stderr in ((stdout, False), (stderr, True))
        ]
        for thread in self._threads:
            thread.start()

    def tail(self, count: int) -> str:
        """The last bytes so far."""
        with self._lock:
            return self._end[-count:].decode(errors="replace")

    def close(self) -> None:
        """Write the end of the log. Every process that holds the pipes is gone."""
        for thread in self._threads:
            thread.join(CLOSING_S)
        with self._lock, self._log as log:
            kept = min(len(self._end), self._left_out)
            if self._left_out > kept:
                log.write(b"\n[fiprof: %d bytes left out]\n" % (self._left_out - kept))
            log.write(self._end[len(self._end) - kept :])

    def _copy(self, pipe: IO[bytes], of_stderr: bool) -> None:
        with pipe:
            while piece := os.read(pipe.fileno(), PIECE_BYTES):
                self._pass_on(piece, of_stderr)
                with self._lock:
                    now = piece[: MOST_BYTES - self._written]
                    # A full disk is told by whoever writes next; the program goes on.
                    with contextlib.suppress(OSError, ValueError):
                        self._log.write(now)
                    self._written += len(now)
                    self._left_out += len(piece) - len(now)
                    self._end += piece
                    # Cut now and then, not at every piece.
                    if len(self._end) > 2 * MOST_BYTES:
                        del self._end[:-MOST_BYTES]
            self._pass_on(b"", of_stderr)
