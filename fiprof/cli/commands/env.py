"""``fiprof env``: what works on this machine, and how to mend what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import SettingsCommand, format_option, show

if TYPE_CHECKING:
    from fiprof.reports.view import Format


@click.command(
    cls=SettingsCommand,
    settings=("python",),
    short_help="What works here, and how to mend the rest.",
    epilog="Example: fiprof env",
)
@format_option
def command(python: str, format_: Format) -> None:
    """GPU, driver, nsys, ncu, counter permission, torch, flashinfer, nvtx, JIT cache: what works, how to mend the rest.

    Exit status 1 when something that collect needs is missing.
    """
    from fiprof.model.requirement import State
    from fiprof.orchestrator.diagnose import diagnose
    from fiprof.reports import env

    found = diagnose(python)
    show(env.env(found), format_)
    if any(each.state is State.MISSING for each in found):
        click.get_current_context().exit(1)
