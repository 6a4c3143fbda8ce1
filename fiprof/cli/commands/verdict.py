"""``fiprof verdict``: what takes a program's time, and what limits each launch."""

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
    """What takes a program's time; what limits each launch, how sure that is, and what to try next."""
    from fiprof.analysis.top import program_of
    from fiprof.analysis.verdict.verdict import verdicts
    from fiprof.model.selection import EVERYTHING
    from fiprof.reports.verdict_tables import MOST_ROWS, MOST_STEPS, document

    program = program_of(run) if chosen.wanted == EVERYTHING else None
    found = verdicts(
        run, wanted=chosen.wanted, medians=format_ in ("table", "md") and not chosen.every, program=bool(program)
    )
    show(
        document(found, most=chosen.most(MOST_ROWS), detailed=chosen.detailed(MOST_STEPS), program=program),
        format_,
        run=run,
    )
