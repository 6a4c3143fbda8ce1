"""``fiprof roofline``: every launch on the measured roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(short_help="Every launch on the measured roofs.", epilog="Example: fiprof roofline latest")
@reading_options
def command(run: Run, kernel: str, format_: Format) -> None:
    """Every launch on the measured roofs: intensity, achieved and attainable FLOP/s, and the roof that binds."""
    from fiprof.analysis import roofline
    from fiprof.reports import roofline_chart, roofline_tables

    rooflines = roofline.roofline(run, kernel=kernel)
    show(roofline_tables.document(rooflines), format_, run=run)
    if format_ == "table" and (drawn := roofline_chart.chart(rooflines)):
        output.data(f"\n{drawn}")
