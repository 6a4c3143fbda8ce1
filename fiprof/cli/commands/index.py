"""``fiprof index``: the catalogue, brought up to date or made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, catalogue_option

if TYPE_CHECKING:
    from fiprof.orchestrator.run_folder import Archive


@click.command(cls=Command, epilog="Example: fiprof index")
@click.option("--rebuild", is_flag=True, help="Read every run again.")
@catalogue_option
def command(archive: Archive, catalog: str | None, rebuild: bool) -> None:
    """Bring the catalogue of the archive up to date; fiprof runs and trend do so by themselves.

    It is derived from the run folders, tags and notes too, and may be deleted at any time.
    """
    from fiprof.cli.progress import working
    from fiprof.orchestrator import index

    with working("index"):
        found = index.opened(archive, catalog)
        changes = found.refresh(rebuild=rebuild)
    output.data(f"{found.catalogue.name}: {changes.read} read, {changes.removed} removed, {changes.runs} runs in all")
