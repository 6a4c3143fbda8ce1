"""``fiprof prune``: remove the raw files of old runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Command, archive_option, format_option, show

if TYPE_CHECKING:
    from datetime import timedelta

    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.view import Format

HOURS = {"h": 1, "d": 24, "w": 168}


def age(_: click.Context, __: click.Parameter, text: str) -> timedelta:
    """``90d``, ``12h`` or ``8w``."""
    from datetime import timedelta

    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter(f"{text} is no age: 90d, 12h or 8w")
    return timedelta(hours=int(found[1]) * HOURS[found[2]])


@click.command(cls=Command, epilog="Example: fiprof prune --older-than 90d --keep-baselines --dry-run")
@click.option(
    "--older-than", metavar="AGE", required=True, callback=age, help="Of runs that began before: 90d, 12h, 8w."
)
@click.option(
    "--keep-baselines/--no-keep-baselines", default=True, show_default=True, help="Leave the runs of baselines whole."
)
@click.option(
    "--keep-tag", "keep_tags", metavar="NAME", multiple=True, help="Leave runs with this tag whole; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@format_option
@archive_option
def command(
    archive: Archive,
    older_than: timedelta,
    keep_baselines: bool,
    keep_tags: tuple[str, ...],
    dry_run: bool,
    format_: Format,
) -> None:
    """Remove the raw files of old runs, nine tenths of an archive.

    Tables, report, logs and run.json stay, so that every command reads such a run as before; run.json says what went
    and when. Its tables cannot be made again. Runs whose tables are not made, runs under way and those in
    artifacts/recorded keep their raw files.
    """
    from fiprof.cli.progress import working
    from fiprof.orchestrator.verify import prune
    from fiprof.reports.runs import pruned

    found = []
    with working("prune") as tell:
        for run in prune(archive, older_than, keep_baselines=keep_baselines, keep_tags=keep_tags, dry_run=dry_run):
            tell(run.name)
            found.append(run)
    show(pruned(found, dry_run=dry_run), format_)
