"""``fiprof tag``: names for runs, to find them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, epilog="Example: fiprof tag latest release")
@folder_argument
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take them away.")
def command(folder: Path, names: tuple[str, ...], remove: bool) -> None:
    """Give a run tags, to find it by with fiprof runs --tag; they stand in annotations.json in its folder."""
    from fiprof.model import keeping
    from fiprof.orchestrator.index import share

    for name in names:
        if not name.strip() or not name.isprintable() or "," in name or len(name) > keeping.LONGEST_TAG:
            raise FiprofError(
                f"{name!r} is no tag", f"a tag has up to {keeping.LONGEST_TAG} characters and no comma", exit_code=2
            )
    tags = keeping.change(folder, add=() if remove else names, remove=names if remove else ()).tags
    share(folder)
    output.data(f"{folder.name}: {', '.join(tags) or 'no tags'}")
