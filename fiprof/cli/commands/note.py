"""``fiprof note``: a sentence about a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof import clock
from fiprof.cli import output
from fiprof.cli.options import Command, folder_argument

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=Command, epilog='Example: fiprof note latest "after the split-kv change"')
@folder_argument
@click.argument("text")
def command(folder: Path, text: str) -> None:
    """Note a sentence about a run, with the time and your name; fiprof runs shows it."""
    import os

    from fiprof.model import keeping
    from fiprof.orchestrator.index import share
    from fiprof.orchestrator.locks import user_name

    when = clock.now_text("seconds")
    keeping.change(folder, note=keeping.Note(when, user_name(os.getuid()), text))
    share(folder)
    output.data(f"{folder.name}: {text}")
