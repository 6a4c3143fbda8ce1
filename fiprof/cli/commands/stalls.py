"""``fiprof stalls``: what the warps of every launch wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof stalls latest --kernel decode --reasons 5")
@click.option("--reasons", type=click.IntRange(1), metavar="N", help="Only the N largest reasons of each launch.")
@reading_options
def command(run: Run, chosen: Chosen, reasons: int | None, format_: Format) -> None:
    """What the warps of each launch wait for: share of each stall reason, what it means and what helps."""
    from fiprof.analysis.stalls import stalls
    from fiprof.reports.stalls import MOST_LAUNCHES, document

    found = stalls(run, wanted=chosen.wanted)
    show(document(found, reasons=reasons, most=chosen.most(MOST_LAUNCHES)), format_, run=run)
