"""``fiprof export``: a run in other programs' formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, run_argument
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.model.run import Run

TARGETS = ("parquet", "csv", "json", "sqlite", "perfetto", "zip")


@click.command(cls=Command, epilog="Example: fiprof export latest --to sqlite")
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    required=True,
    help="parquet and csv: a folder with a file a table; json: manifest and tables; sqlite: a database; perfetto: the "
    "trace for ui.perfetto.dev; zip: report, tables and raw reports, to hand over.",
)
@click.option(
    "--out",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to write it [default: the run's name here, e.g. 20261121-120959-all.sqlite].",
)
@click.option("--force", is_flag=True, help="Replace what an earlier export wrote there.")
@click.option(
    "--with-private",
    is_flag=True,
    help="Into a zip, put raw reports that hold an environment too: nsys writes your shell's, with its tokens.",
)
@run_argument
def command(run: Run, target: str, out: Path | None, force: bool, with_private: bool) -> None:
    """Write a run for other programs; it appears whole or not at all. The path goes to standard output."""
    from fiprof.cli.progress import working
    from fiprof.reports.export import SUFFIXES, export

    if with_private and target != "zip":
        raise FiprofError("only a zip has raw reports", "--with-private goes with --to zip", exit_code=2)
    path = out or Path(run.path.resolve().name + SUFFIXES[target])
    with working("export") as tell:
        made = export(run, target, path, force=force, with_private=with_private, tell=tell)
    output.data(str(made))
