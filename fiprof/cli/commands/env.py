"""``fiprof env``: what works on this machine, and how to fix what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import SettingsCommand, format_option, show

if TYPE_CHECKING:
    from fiprof.reports.view import Format


@click.command(cls=SettingsCommand, settings=("python",), epilog="Example: fiprof env")
@format_option
def command(python: str, format_: Format) -> None:
    """GPU, driver, nsys, ncu, counter permission, torch, flashinfer, nvtx, JIT cache: what works, how to fix the rest.

    Exit status 1 when something that collect needs is missing.
    """
    from fiprof.orchestrator.diagnose import MISSING, diagnose
    from fiprof.reports.view import view_of

    found = diagnose(python)
    remedies = tuple(f"{need['what']}: {need['remedy']}" for need in found.rows if need["remedy"])
    show(view_of(found.columns, found.rows, notes=remedies), format_)
    if MISSING in found.column("state"):
        click.get_current_context().exit(1)
