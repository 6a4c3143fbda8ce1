"""``fiprof hotspots``: the instructions that hold most warp samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof hotspots latest --kernel decode --instructions 3")
@click.option(
    "--instructions",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    metavar="N",
    help="The N hottest of each launch.",
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
def command(run: Run, chosen: Chosen, instructions: int, context: int, format_: Format) -> None:
    """The SASS instructions of each launch that hold most warp samples, their stall, and what they wait for."""
    from fiprof.analysis.hotspots import hotspots
    from fiprof.reports.hotspots import MOST_LAUNCHES, document

    found = hotspots(run, wanted=chosen.wanted, top=instructions, context=context)
    show(document(found, most=chosen.most(MOST_LAUNCHES)), format_, run=run)
