"""``fiprof roofline``: every launch on the measured roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Chosen, Command, reading_options, show, width

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof roofline latest")
@reading_options
def command(run: Run, chosen: Chosen, format_: Format) -> None:
    """Every launch on the measured roofs: intensity, achieved and attainable FLOP/s, and the roof that limits it."""
    from fiprof.analysis import roofline
    from fiprof.reports.roofline import MOST_ROWS, chart, document

    rooflines = roofline.roofline(run, wanted=chosen.wanted)
    show(document(rooflines, most=chosen.most(MOST_ROWS)), format_, run=run)
    if format_ == "table" and (drawn := chart(rooflines, width=width())):
        output.data(f"\n{drawn}")
