"""``fiprof verify``: whether runs are what they were when they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Command, catalogue_option, format_option, run_names, show
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof verify latest --format json")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=run_names)
@format_option
@catalogue_option
def command(archive: Archive, catalog: str | None, run: str | None, format_: Format) -> None:
    """Compare every file of a run, or of all runs of the archive, with the checksums in its run.json.

    Missing, changed, damaged and planted files, and tables that can neither be read nor made again, are wrong: exit
    status 1. What was pruned or left out on purpose is said. Without RUN the catalogue is compared with the runs too.
    """
    from fiprof.cli.progress import working
    from fiprof.orchestrator.verify import verify, verify_catalogue
    from fiprof.reports.runs import verified

    folders = [archive.find(run)] if run else [archive.root / name for name in archive.by_time()]
    found = []
    with working("verify") as told:
        for number, folder in enumerate(folders, 1):
            told(f"{number:,} of {len(folders):,}: {folder.name}")
            found.append(verify(folder))
        differing = () if run else verify_catalogue(archive, found, catalog)
    show(verified(found, differing), format_)
    if wrong := [each for each in found if not each.intact]:
        names = ", ".join(each.name for each in wrong[:3]) + (f" and {len(wrong) - 3} more" if wrong[3:] else "")
        raise FiprofError(f"not as made: {names}", "restore what is wrong from a copy, if there is one")
    if differing:
        raise FiprofError("the catalogue differs from the runs", "fiprof index --rebuild makes it again")
