"""``fiprof hotspots``: the instructions that hold most warp samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(
    short_help="The SASS instructions with most warp samples.",
    epilog="Example: fiprof hotspots latest --kernel decode --top 3",
)
@click.option(
    "--top", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="The N hottest of each launch."
)
@click.option(
    "--context",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    metavar="N",
    help="N instructions before and after each.",
)
@reading_options
def command(run: Run, kernel: str, top: int, context: int, format_: Format) -> None:
    """The instructions of every launch that hold most warp samples, why, and what they probably wait for."""
    from fiprof.analysis.hotspots import hotspots
    from fiprof.reports.hotspots import document

    show(document(hotspots(run, kernel=kernel, top=top, context=context)), format_, run=run)
