"""``fiprof verdict``: what binds each launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(short_help="What binds every launch, and what to try.", epilog="Example: fiprof verdict latest")
@reading_options
def command(run: Run, kernel: str, format_: Format) -> None:
    """What binds each launch, with evidence, runner-up, how sure it is, and the next steps by what they can save."""
    from fiprof.analysis.verdict.verdict import verdicts
    from fiprof.reports.verdict_tables import document

    show(document(verdicts(run, kernel=kernel)), format_, run=run)
