"""``fiprof trend``: a quantity over the runs of the archive."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from fiprof.cli import output
from fiprof.cli.options import Command, catalogue_option, format_option, question_options, show
from fiprof.cli.progress import working
from fiprof.files import write_whole
from fiprof.orchestrator.run_folder import Archive
from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof trend --kernel decode --where batch=32 --metric duration")
@question_options
@click.option(
    "--metric", metavar="KEY", default="duration", show_default=True, help="The quantity, as in fiprof runs --metric."
)
@click.option(
    "--out", metavar="FILE.html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page with charts."
)
@click.option("--all", "every", is_flag=True, help="Every line, not those alone that changed most.")
@click.option("--everywhere", is_flag=True, help="Also runs of other archives that share the catalogue.")
@format_option
@catalogue_option
def command(
    archive: Archive, catalog: str | None, metric: str, out: Path | None, every: bool, format_: Format, **words: Any
) -> None:
    """Show a quantity of each case or kernel over time, and where its level changed, with commit and packages.

    GPUs, drivers and ways of measuring are never compared with each other: each has a line of its own.
    """
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.reports import trend

    asked = question(**words, metrics=(metric,))
    with working("index"):
        found = index.trend(archive, asked, catalog)
    if out is not None:
        page = trend.page(found, asked.metrics[0], shlex.join(["fiprof", *sys.argv[1:]]))
        write_whole(out, page.encode(), "--out names another")
        output.message(str(out))
    show(trend.document(found, asked.metrics[0], most=None if every else trend.MOST_ROWS), format_)
