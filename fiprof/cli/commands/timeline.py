"""``fiprof timeline``: kernels and the hardware's activity on one time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options, output
from fiprof.cli.options import Chosen, Command, reading_options

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format

PHASES = ("measure", "setup", "warmup", "all")


@click.command(cls=Command, epilog="Example: fiprof timeline latest --perfetto trace.json.gz")
@click.option(
    "--phase", type=click.Choice(PHASES), help="Only kernels launched in it [default: measure; all without cases]."
)
@click.option(
    "--perfetto",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write the whole trace, every phase, for ui.perfetto.dev.",
)
@reading_options
def command(run: Run, chosen: Chosen, phase: str | None, perfetto: str | None, format_: Format) -> None:
    """Kernels in order of time, and what the SMs, the tensor cores, DRAM and device memory did at that time."""
    from pathlib import Path

    from fiprof.analysis.timeline import timeline
    from fiprof.reports.timeline_text import PLAIN_WIDTH, chart_cells, document

    if perfetto:
        from fiprof.reports.trace_json import write

        output.message(write(run, Path(perfetto)))
    phase = phase or ("measure" if run.cases else "all")
    what = timeline(run, wanted=chosen.wanted, phase=phase, cells=chart_cells(options.width(PLAIN_WIDTH)))
    options.show(document(what, most=not (chosen.every or chosen.wanted)), format_, run=run, plain_width=PLAIN_WIDTH)
