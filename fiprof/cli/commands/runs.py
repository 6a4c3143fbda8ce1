"""``fiprof runs``: the runs of the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, archive_option, format_option, show

if TYPE_CHECKING:
    from fiprof.orchestrator.archive import Archive
    from fiprof.reports.view import Format


@click.command(
    cls=Command, short_help="The runs of the archive, the newest last.", epilog="Example: fiprof runs --format csv"
)
@click.option("--all", "every", is_flag=True, help="Also older runs than the newest 50.")
@format_option
@archive_option
def command(archive: Archive, every: bool, format_: Format) -> None:
    """List the runs of the archive, the newest last."""
    from fiprof.errors import FiprofError
    from fiprof.model.manifest import Manifest, read_manifest
    from fiprof.reports import runs

    def manifest(name: str) -> Manifest | str:
        try:
            return read_manifest(archive.root / name)
        except FiprofError as error:
            return error.message

    found = [(archive.root / name, manifest(name)) for name in archive.by_time()]
    show(runs.runs(found, most=None if every else runs.MOST_ROWS), format_)
    for path in archive.unfinished():
        output.message(f"note: {path} is still being collected")
