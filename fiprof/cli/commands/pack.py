"""``fiprof pack``: compress a run's raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, short_help="Compress a run's raw files in place.", epilog="Example: fiprof pack latest")
@folder_argument
def command(folder: Path) -> None:
    """Compress a run's raw files in place, to a tenth or less; every command reads them as before.

    Each is compared with its checksum first. xz -d FILE.xz gives one back for ncu-ui or nsys-ui.
    """
    from fiprof.model.packing import pack

    packed = pack(folder)
    for path in packed:
        output.data(str(path))
    if not packed:
        output.message(f"{folder} is packed already")
