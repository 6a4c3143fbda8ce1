"""``fiprof show``: durations, occupancy, DRAM, tensor cores, and the distance to the roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import reading_options

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format

MARKDOWN_WIDTH = 400
"""Columns that a table may take where nothing has to fit a terminal."""


@click.command(
    short_help="Durations, occupancy, caches, the roofs.", epilog="Example: fiprof show latest --kernel decode --top 3"
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N launches that took most time.")
@reading_options
def command(run: Run, kernel: str, top: int | None, format_: Format) -> None:
    """Durations, TFLOP/s and GB/s against the roofs, occupancy and all that limits it, waves, caches, memory access."""
    from fiprof.analysis import show
    from fiprof.reports import show_document

    figures = show.show(run, kernel=kernel, longest=top)
    width = options.width() if format_ == "table" else MARKDOWN_WIDTH
    options.show(show_document.document(figures, width=width), format_, run=run)
