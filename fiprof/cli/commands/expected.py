"""``fiprof expected``: what is expected of each kernel family, compared with what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof expected latest --kernel prefill")
@click.option(
    "--expectations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own expectations (TOML), in place of fiprof's for the same workloads.",
)
@reading_options
def command(run: Run, chosen: Chosen, expectations: Path | None, format_: Format) -> None:
    """Stall mix, share of the roof and bandwidth of each case compared with what is expected of its kernel family."""
    from fiprof.analysis.expected import check_workloads, combined, expected, read_expectations
    from fiprof.reports.expected import MOST_CASES, document
    from fiprof.workloads import registry

    own = read_expectations(expectations) if expectations else None
    if own is not None:
        check_workloads(own, {*registry.available(), *(case.workload for case in run.manifest.cases)})
    report = expected(run, families=combined(own), wanted=chosen.wanted)
    show(document(report, most=chosen.most(MOST_CASES)), format_, run=run)
