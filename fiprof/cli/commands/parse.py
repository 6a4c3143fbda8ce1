"""``fiprof parse``: make a run's tables again from its raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, epilog="Example: fiprof parse latest")
@folder_argument
def command(folder: Path) -> None:
    """Make a run's tables again from its raw files.

    The tables' paths go to standard output. Raw files are never changed; a table is replaced whole or not at all.
    """
    from fiprof.cli.progress import working
    from fiprof.orchestrator.parse import base, parse_all

    with working("parse"):
        parsed = parse_all(folder, at := base(folder))
    for name in parsed.tables:
        output.data(str(at / "tables" / f"{name}.parquet"))
    for sentence in parsed.missing:
        output.message(f"note: {sentence}")
    for problem in parsed.problems[1:]:
        output.message(f"fiprof: {problem}")
    if parsed.problems:
        raise FiprofError(parsed.problems[0].message, parsed.problems[0].remedy)
