"""``fiprof show``: durations, occupancy, DRAM, tensor cores, and the distance to the roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.orchestrator import options
from fiprof.orchestrator.options import format_option, run_argument

if TYPE_CHECKING:
    from fiprof.parsers.run import Run
    from fiprof.reports.view import Format


@click.command(epilog="Example: fiprof show latest")
@format_option
@run_argument
def command(run: Run, format_: Format) -> None:
    """Durations, occupancy and its limiter, DRAM throughput, tensor cores, TFLOP/s and GB/s against the roofs."""
    from fiprof.reports import show

    options.show(show.document(show.show(run)), format_)
