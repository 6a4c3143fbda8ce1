"""``fiprof env``: what works on this machine, and how to mend what does not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fiprof.orchestrator.options import format_option, show
from fiprof.orchestrator.settings import PYTHON_VARIABLE

if TYPE_CHECKING:
    from fiprof.reports.view import Format


@click.command(epilog="Example: fiprof env")
@click.option(
    "--python",
    default=sys.executable,
    envvar=PYTHON_VARIABLE,
    metavar="PATH",
    help="Interpreter that has torch and flashinfer [default: fiprof's own].",
)
@format_option
def command(python: str, format_: Format) -> None:
    """GPU, driver, nsys, ncu, counter permission, torch, flashinfer, nvtx, JIT cache: what works, how to mend the rest.

    Exit status 1 when something that collect needs is missing.
    """
    from fiprof.orchestrator.diagnose import diagnose
    from fiprof.reports import env

    findings = diagnose(python)
    show(env.env(findings), format_)
    if any(finding.state == "missing" for finding in findings):
        click.get_current_context().exit(1)
