"""The progress line: on a terminal one that lives, elsewhere a line a step."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fiprof import interrupts
from fiprof.cli import output
from fiprof.text import escape_control, escape_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fiprof.orchestrator.run_folder import Archive
    from fiprof.orchestrator.run_session import Bench

REFRESHES_PER_S = 8


class TerminalProgress:
    """What is going on, on stderr. Safe to call from several threads."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._steps: dict[str, str] = {}
        self._begin = time.monotonic()
        self._console: Console | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the line on the terminal for the length of a block."""
        if self._quiet or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        with Live(console=self._console, get_renderable=self._line, refresh_per_second=REFRESHES_PER_S, transient=True):
            yield
        self._console = None

    def without_lines(self) -> TerminalProgress:
        """The same live line, for work that says nothing to stay: whoever started it sums it up."""
        silent = copy.copy(self)
        silent._quiet = True
        return silent

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step for the length of a block; several may be under way at once."""
        begin = time.monotonic()
        self.detail(name, "")
        try:
            yield
        finally:
            with self._lock:
                self._steps.pop(name, None)
            self.say(f"{name}: {time.monotonic() - begin:.1f} s")

    def detail(self, name: str, text: str) -> None:
        """What the step is at just now."""
        with self._lock:
            self._steps[name] = text

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        if self._console is not None:
            self._console.print(escape_lines(text), markup=False, highlight=False)
        else:
            output.message(text)

    def _line(self) -> RenderableType:
        from rich.spinner import Spinner
        from rich.text import Text

        with self._lock:
            under_way = " · ".join(f"{name} {text}".strip() for name, text in self._steps.items())
        line = f" {time.monotonic() - self._begin:4.0f} s  {escape_control(under_way)}"
        return Spinner("dots", text=Text(line, no_wrap=True, overflow="ellipsis"))


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A line with the time that it takes, on a terminal, for the length of a block; gives what tells how far it is."""
    progress = TerminalProgress()
    progress.detail(what, "")
    with progress.shown():
        yield lambda text: progress.detail(what, text)


@contextmanager
def measuring(archive: Archive, *, quiet: bool, wait: bool = True, live: bool = True) -> Iterator[Bench]:
    """What runs of an archive are measured with for the length of a block: a progress line, and who ends its processes
    at Ctrl-C. live: False where the terminal is another program's too."""
    from fiprof.orchestrator.process import Supervisor
    from fiprof.orchestrator.run_session import Bench

    progress, supervisor = TerminalProgress(quiet=quiet), Supervisor()
    interrupts.ask_first(supervisor.stopping.set)
    try:
        with progress.shown() if live else contextlib.nullcontext():
            yield Bench(archive, progress, supervisor, wait)
    finally:
        interrupts.interrupt()
