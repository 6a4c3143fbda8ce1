"""``fiprof runs``: the runs of the archive, and what was measured in them."""

from typing import Any

import click

from fiprof.cli import output
from fiprof.cli.options import Command, catalogue_option, format_option, question_options, show
from fiprof.cli.progress import working
from fiprof.model.baselines import names_by_run
from fiprof.orchestrator.run_folder import Archive
from fiprof.reports.view import Format


@click.command(
    cls=Command,
    epilog="Example: fiprof runs --kernel decode --where batch=128 --metric dram_share --sort -dram_share",
)
@question_options
@click.option(
    "--metric",
    "metrics",
    metavar="KEY",
    multiple=True,
    help="Show this quantity of each kernel or case, a row each; may be repeated. duration is an iteration without a "
    "profiler; docs/archive.md has the others.",
)
@click.option(
    "--sort",
    metavar="KEY",
    default="",
    help="started (default), name, duration_s, bytes or a metric; -KEY: largest first.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N rows, the newest or the first.")
@click.option("--all", "every", is_flag=True, help="Every row, not the newest 50 only; JSON and CSV have every row.")
@click.option("--everywhere", is_flag=True, help="Also runs of other archives that share the catalogue.")
@format_option
@catalogue_option
def command(archive: Archive, catalog: str | None, every: bool, format_: Format, **words: Any) -> None:
    """List the runs of the archive, the newest last; with filters those that fit, with --metric what was measured.

    Run folders are the truth: new, changed and removed ones are noticed first.
    """
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.reports import runs

    if words["limit"] is None and format_ in ("table", "md") and not every:
        words["limit"] = runs.MOST_ROWS
    asked = question(**words)
    with working("index"):
        answer = index.answer(archive, asked, catalog)
    named = {str(archive.root.resolve() / run): names for run, names in names_by_run(archive.root).items()}
    show(runs.document(answer, asked.metrics, named), format_)
    for path in archive.unfinished():
        output.message(f"note: {path} is still being collected")
