"""Options that several commands share."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fiprof.errors import FiprofError
from fiprof.orchestrator.settings import ARCHIVE_FOLDER, ARCHIVE_VARIABLE, PYTHON_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

    from fiprof.model.run import Run
    from fiprof.orchestrator.archive import Archive
    from fiprof.reports.view import Document, Format, View

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "json", "csv", "md")
JSON_VERSION = 1
"""Of the rows: raised when a key goes away or changes its meaning."""
PLAIN_WIDTH = 120
"""Columns where the output is no terminal."""


def archive_option(function: F) -> F:
    """``--artifacts DIR``, given to the command as ``archive``."""

    @click.option(
        "--artifacts",
        metavar="DIR",
        default=ARCHIVE_FOLDER,
        envvar=ARCHIVE_VARIABLE,
        show_envvar=True,
        show_default=True,
        help="The archive of run folders.",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, artifacts: str, **kwargs: Any) -> Any:
        from pathlib import Path

        from fiprof.orchestrator.archive import Archive

        return function(*args, archive=Archive(Path(artifacts)), **kwargs)

    return wrapped  # type: ignore[return-value]


def folder_argument(function: F) -> F:
    """RUN, given to the command as the path ``folder``; brings ``--artifacts`` along."""

    @click.argument("run", metavar="RUN")
    @archive_option
    @functools.wraps(function)
    def wrapped(*args: Any, archive: Archive, run: str, **kwargs: Any) -> Any:
        return function(*args, folder=archive.find(run), **kwargs)

    return wrapped  # type: ignore[return-value]


def run_argument(function: F) -> F:
    """RUN, given to the command as a :class:`fiprof.model.run.Run` whose tables are made if it has none yet."""

    @folder_argument
    @functools.wraps(function)
    def wrapped(*args: Any, folder: Path, **kwargs: Any) -> Any:
        from fiprof.model.run import Run

        run = Run(folder)
        problems = 0 if run.parsed else _make_tables(folder)
        if kwargs.get("format_") == "table":
            click.echo(_what_it_is(run), err=True)
        shown = function(*args, run=run, **kwargs)
        if problems:
            raise FiprofError("what is shown lacks what could not be read", f"fiprof parse {folder} tries again")
        return shown

    return wrapped  # type: ignore[return-value]


def _what_it_is(run: Run) -> str:
    """One line: the run, its GPU and how ncu measured."""
    manifest = run.manifest
    facts = [str((manifest.environment.get("gpu") or {}).get("name", ""))]
    facts += [
        f"{name.replace('_', ' ')} {manifest.settings[name]}"
        for name in ("ncu_set", "clock_control", "cache_control")
        if name in manifest.settings
    ]
    if manifest.replayed_from:
        facts.append(f"replayed from {manifest.replayed_from}")
    return f"{run.path}: {', '.join(filter(None, facts))}"


def _make_tables(folder: Path) -> int:
    """Make the tables of a run that has none. Returns the number of problems, which are printed."""
    from fiprof.orchestrator.parse import has_raw_files, parse_all

    if not has_raw_files(folder):
        return 0
    click.echo(f"making the tables of {folder}", err=True)
    problems = parse_all(folder).problems
    for problem in problems:
        click.echo(f"fiprof: {problem}", err=True)
    return len(problems)


def python_option(function: F) -> F:
    """``--python``, the workload's interpreter, given to the command as ``python``."""
    return click.option(
        "--python",
        default=sys.executable,
        envvar=PYTHON_VARIABLE,
        metavar="PATH",
        help="Interpreter that has torch and flashinfer [default: fiprof's own].",
    )(function)


def format_option(function: F) -> F:
    """``--format``, on every command that prints a table."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print it.",
    )(function)


def width(plain: int = PLAIN_WIDTH) -> int:
    """Columns of the terminal (or COLUMNS); plain where there is none."""
    return shutil.get_terminal_size((plain, 24)).columns


def show(what: View | Document, format_: Format, *, run: Run | None = None, plain_width: int = PLAIN_WIDTH) -> None:
    """Print a report on stdout as ``--format`` says; colour and bars on a terminal only, unless NO_COLOR is set.

    CSV has no place for warnings: they go to stderr. run: that it is about. plain_width: columns where the output is
    no terminal.
    """
    from fiprof.reports import view

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    about = None
    if format_ == "json":
        about = view.About(
            schema=f"{click.get_current_context().info_name}/{JSON_VERSION}",
            run=run.manifest.name if run else None,
            gpu=run.environment("gpu", "name") if run else None,
        )
    text = view.render(what, format_, width=width(plain_width), colour=colour, bars=colour, about=about)
    click.echo(text, color=colour)
    if format_ == "csv":
        for text in view.warnings(what):
            click.echo(f"warning: {text}", err=True)
