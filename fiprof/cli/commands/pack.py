"""``fiprof pack``: compress a run's raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, epilog="Example: fiprof pack latest")
@click.option("--undo", is_flag=True, help="Give plain files back, for ncu-ui and nsys-ui.")
@folder_argument
def command(folder: Path, undo: bool) -> None:
    """Compress a run's raw files in place; every command reads them as before.

    A new run is packed with zstd already. Each file is compared with its checksum before the other goes.
    """
    from fiprof.cli.progress import working
    from fiprof.model import packing

    with working("pack"):
        changed = packing.unpack(folder) if undo else packing.pack(folder)
    for path in changed:
        output.data(str(path))
    if not changed:
        output.message(f"{folder} is {'plain' if undo else 'packed'} already")
