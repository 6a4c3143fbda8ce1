"""``fiprof pack``: compress a run's raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, short_help="Compress a run's raw files in place.", epilog="Example: fiprof pack latest")
@click.option("--small", is_flag=True, help="With xz: less than half of zstd's size, in some 30 times its time.")
@click.option("--undo", is_flag=True, help="Give plain files back, for ncu-ui and nsys-ui.")
@folder_argument
def command(folder: Path, small: bool, undo: bool) -> None:
    """Compress a run's raw files in place; every command reads them as before.

    A new run is packed with zstd already. Each file is compared with its checksum before the other goes.
    """
    from fiprof.cli.progress import working
    from fiprof.model import packing

    if small and undo:
        raise FiprofError("--small packs and --undo unpacks", "give one of them", exit_code=2)
    with working("pack"):
        codec = packing.Codec.XZ if small else packing.Codec.ZSTD
        changed = packing.unpack(folder) if undo else packing.pack(folder, codec)
    for path in changed:
        output.data(str(path))
    if not changed:
        output.message(f"{folder} is {'plain' if undo else 'packed'} already")
