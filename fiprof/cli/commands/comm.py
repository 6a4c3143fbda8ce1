"""``fiprof comm``: who waits for whom in the collectives of several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import Command, format_option, run_argument

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.comm import By
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof comm latest --top 20")
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N collectives with the longest waits.")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every collective, every cause.")
@click.option(
    "--by",
    type=click.Choice(("collective", "rank", "cause")),
    default="collective",
    show_default=True,
    help="Of what JSON and CSV have a row.",
)
@format_option
@run_argument
def command(run: Run, top: int | None, every: bool, by: By, format_: Format) -> None:
    """Collectives of several ranks: who waits for whom and how long, what the late rank was doing, bandwidth."""
    from fiprof.analysis.comm import comm
    from fiprof.reports.comm import MOST_COLLECTIVES, chart_cells, document

    found = comm(run, cells=chart_cells(options.width()))
    most = None if every else top or MOST_COLLECTIVES
    options.show(document(found, by=by, most=most), format_, run=run)
