"""What a program prints: passed on as it comes, and into a log that stays small and has no secrets when it is done."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from fiprof.model.redaction import mask_log

PassOn = Callable[[bytes, bool], None]
"""Takes a piece of output, empty at its end, and whether it is of stderr."""

MOST_BYTES = 1 << 20
"""Of a log's begin, and of its end: what is between is left out. The tools say at either end what went wrong."""
EDGE_BYTES = 1 << 12
"""Left out at either side besides, where half a secret would not be known for one."""
PIECE_BYTES = 1 << 16
CLOSING_S = 2.0


class Relay:
    """Reads the pipes of a process until they end."""

    def __init__(
        self, log: io.FileIO, stdout: IO[bytes] | None, stderr: IO[bytes] | None, pass_on: PassOn | None
    ) -> None:
        """log: open for appending; :meth:`close` closes it."""
        self._log = log
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._written = 0
        self._left_out = 0
        self._end = bytearray()
        self._threads = [
            threading.Thread(target=self._copy, args=(pipe, of_stderr), daemon=True)
            for pipe, of_stderr in ((stdout, False), (stderr, True))
            if pipe is not None
        ]
        for thread in self._threads:
            thread.start()

    def tail(self, count: int) -> str:
        """The last bytes so far."""
        with self._lock:
            return self._end[-count:].decode(errors="replace")

    def close(self) -> None:
        """Write the end of the log, and mask it. Every process that holds the pipes is gone."""
        for thread in self._threads:
            thread.join(CLOSING_S)
        # A full disk is told by whoever writes next.
        with self._lock, self._log as log, contextlib.suppress(OSError):
            begin = Path(log.name).read_bytes()
            end = bytes(self._end[-self._left_out :]) if self._left_out else b""
            if between := self._left_out - len(end):
                note = b"\n[fiprof: %d bytes left out]\n" % (between + 2 * EDGE_BYTES)
                text = mask_log(begin)[:-EDGE_BYTES] + note + mask_log(end)[EDGE_BYTES:]
            else:
                text = mask_log(begin + end)
            if text != begin:
                log.truncate(0)
                log.write(text)

    def _copy(self, pipe: IO[bytes], of_stderr: bool) -> None:
        with pipe:
            while piece := os.read(pipe.fileno(), PIECE_BYTES):
                if self._pass_on:
                    self._pass_on(piece, of_stderr)
                with self._lock:
                    now = piece[: MOST_BYTES - self._written]
                    # The program goes on.
                    with contextlib.suppress(OSError, ValueError):
                        self._log.write(now)
                    self._written += len(now)
                    self._left_out += len(piece) - len(now)
                    self._end += piece
                    # Cut now and then, not at every piece.
                    if len(self._end) > 2 * MOST_BYTES:
                        del self._end[:-MOST_BYTES]
            if self._pass_on:
                self._pass_on(b"", of_stderr)
