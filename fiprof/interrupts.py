"""The signals that ask fiprof to end: Ctrl-C, SIGTERM, and SIGHUP when the terminal is lost. All mean the same.

Until a command begins, fiprof just ends (:func:`end_at_once`). Then the signal is a KeyboardInterrupt in the main
thread (:func:`interrupt`); for commands with processes of their own the first one asks (:func:`ask_first`). Once a
run's end is decided no signal changes it (:func:`settle`). The exit status is 128 and the signal's number, as in a
shell. Only Python's own start comes before all this: for its first 15 ms Python answers Ctrl-C, with a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

received = 0  # the number of the first signal that came; 0 for none
raised = False  # whether a signal has been made a KeyboardInterrupt
_terminals: tuple[int, ...] = ()


def end_at_once() -> None:
    """End on a signal without a word: nothing was begun, or nothing is left to do."""
    _handle(lambda: os._exit(128 + received))


def interrupt() -> None:
    """Raise KeyboardInterrupt on a signal."""

    def stop() -> None:
        global raised
        raised = True
        raise KeyboardInterrupt

    _handle(stop)


def ask_first(ask: Callable[[], None]) -> None:
    """Call a function on the first signal, and raise KeyboardInterrupt on the next."""

    def first() -> None:
        interrupt()
        ask()

    _handle(first)


def settle() -> None:
    """From now on no signal changes how this ends."""
    _handle(lambda: None)


def finish() -> None:
    """Ignore signals for good: CPython takes handlers of its own away before it has ended."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _handle(action: Callable[[], None]) -> None:
    global _terminals
    _terminals = _terminals or tuple(descriptor for descriptor in (1, 2) if os.isatty(descriptor))

    def handler(number: int, _frame: FrameType | None) -> None:
        global received
        received = received or number
        if number == signal.SIGHUP:
            # Writing to a terminal that is gone is an error, and would come in the way of an end in order.
            for descriptor in _terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        action()

    for number in SIGNALS:
        # Whoever started this with nohup wants it to outlive the terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
