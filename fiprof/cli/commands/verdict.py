"""``fiprof verdict``: what limits each launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof verdict latest")
@reading_options
def command(run: Run, chosen: Chosen, format_: Format) -> None:
    """What limits each launch, how far it is from that limit, how sure that is, and what to try next."""
    from fiprof.analysis.verdict.verdict import verdicts
    from fiprof.reports.verdict_tables import MOST_ROWS, MOST_STEPS, document

    found = verdicts(run, wanted=chosen.wanted, medians=format_ in ("table", "md") and not chosen.every)
    show(document(found, most=chosen.most(MOST_ROWS), detailed=chosen.detailed(MOST_STEPS)), format_, run=run)
