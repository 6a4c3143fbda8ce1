"""``fiprof occupancy``: what limits the warps that each launch may have at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof occupancy latest --kernel decode")
@reading_options
def command(run: Run, chosen: Chosen, format_: Format) -> None:
    """Blocks per multiprocessor that each resource allows, and the launch's occupancy."""
    from fiprof.reports.occupancy import document

    show(document(run, chosen.wanted), format_, run=run)
