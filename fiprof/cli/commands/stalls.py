"""``fiprof stalls``: what the warps of every launch wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(
    short_help="What the warps of every launch wait for.",
    epilog="Example: fiprof stalls latest --kernel decode --top 5",
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N largest reasons of each launch.")
@reading_options
def command(run: Run, kernel: str, top: int | None, format_: Format) -> None:
    """The warp-stall mix of every launch: shares by both measures, what dominates, and what that means."""
    from fiprof.analysis.stalls import stalls
    from fiprof.reports.stalls import document

    show(document(stalls(run, kernel=kernel), top=top), format_, run=run)
