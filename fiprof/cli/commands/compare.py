"""``fiprof compare``: what changed from one run to another, and what explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import Command, archive_option, format_option, open_run
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.analysis.comparison.runs import Side
    from fiprof.orchestrator.archive import Archive
    from fiprof.reports.view import Format


@click.command(
    cls=Command,
    short_help="What changed between two runs, and what explains it.",
    epilog="Example: fiprof compare latest:tensor_cores=false latest:tensor_cores=true",
)
@click.argument("a", metavar="RUN_A")
@click.argument("b", metavar="RUN_B")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every case and kernel.")
@click.option("--anyway", is_flag=True, help="Compare what was measured under other conditions too.")
@format_option
@archive_option
def command(archive: Archive, a: str, b: str, every: bool, anyway: bool, format_: Format) -> None:
    """What changed from run A to run B, in which kernels, and what of their counters explains it.

    RUN:PARAM=VALUE[,…] takes only the cases with these parameters: two ways to solve a problem may stand in one run.
    """
    from fiprof.analysis.comparison.runs import compare
    from fiprof.reports.comparison import document

    found = compare(_side(archive, a), _side(archive, b), anyway=anyway)
    options.show(document(found, every=every), format_)


def _side(archive: Archive, text: str) -> Side:
    from fiprof.analysis.comparison.runs import Side

    name, _, chosen = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    params = dict(word.partition("=")[::2] for word in options.split(chosen))
    run, problems = open_run(archive.find(name))
    if problems:
        raise FiprofError(f"{run.manifest.name} cannot be read whole", f"fiprof parse {run.path} tries again")
    return Side(run, {name.strip(): value.strip() for name, value in params.items()})
