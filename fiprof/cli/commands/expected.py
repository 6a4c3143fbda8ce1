"""``fiprof expected``: what is expected of each kernel family beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Chosen, Command, reading_options, show

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(
    cls=Command,
    short_help="Measured against what a kernel is expected to do.",
    epilog="Example: fiprof expected latest --kernel prefill",
)
@click.option(
    "--expectations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own expectations (TOML), in place of fiprof's for the same workloads.",
)
@reading_options
def command(run: Run, chosen: Chosen, expectations: Path | None, format_: Format) -> None:
    """Stall mix, share of the roof and bandwidth of each case beside what is expected of its kernel family."""
    from fiprof.analysis.expectations import check_workloads, combined, read_expectations
    from fiprof.analysis.expected import expected
    from fiprof.reports.expected import MOST_CASES, document
    from fiprof.workloads import registry

    if expectations is not None:
        known = {*registry.available(), *(case.workload for case in run.manifest.cases)}
        check_workloads(read_expectations(expectations), known)
    found = expected(run, families=combined(expectations), wanted=chosen.wanted)
    show(document(found, most=chosen.most(MOST_CASES)), format_, run=run)
