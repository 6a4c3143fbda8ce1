"""``fiprof top``: where a whole program's GPU time goes, and why the GPU was idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import Command, format_option, run_argument

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format

TABLES = ("kernels", "ranges", "idle", "program")


@click.command(cls=Command, epilog="Example: fiprof top latest --table idle --format csv")
@click.option("--range", "range_", default="", metavar="TEXT", help="Only kernels launched in NVTX ranges with this.")
@click.option("--kernel", default="", metavar="TEXT", help="Only kernels with this in their full name.")
@click.option("--rank", type=click.IntRange(0), help="Only kernels of this rank.")
@click.option("--by", type=click.Choice(["range"]), help="Split each kernel by the NVTX range that launched it.")
@click.option("--whole", is_flag=True, help="The whole trace, with start-up, not its steady part.")
@click.option("--top", "most", type=click.IntRange(1), default=15, show_default=True, help="Rows of each table.")
@click.option("--all", "every", is_flag=True, help="All rows.")
@click.option("--table", type=click.Choice(TABLES), default="kernels", show_default=True, help="Which as JSON and CSV.")
@format_option
@run_argument
def command(
    run: Run,
    range_: str,
    kernel: str,
    rank: int | None,
    by: str | None,
    whole: bool,
    most: int,
    every: bool,
    table: str,
    format_: Format,
) -> None:
    """What takes a program's time and what to do about it; its kernels, ranges, and why the GPU was idle."""
    from fiprof.analysis.top import top
    from fiprof.reports.top import document

    found = top(run, range_=range_, kernel=kernel, rank=rank, by_range=by is not None, within_steady=not whole)
    options.show(document(found, table=table, most=None if every else most), format_, run=run)
