"""``fiprof kernels``: the workloads and their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli.options import Command, format_option, show

if TYPE_CHECKING:
    from fiprof.reports.view import Format


@click.command(
    cls=Command,
    short_help="The workloads and their parameters.",
    epilog="Example: fiprof kernels --workload my_kernels.py:mine",
)
@click.option("--workload", "files", multiple=True, metavar="FILE:NAME", help="Also this one, from a file of yours.")
@format_option
def command(files: tuple[str, ...], format_: Format) -> None:
    """List the workloads with their parameters, defaults and valid ranges."""
    from fiprof.reports import kernels
    from fiprof.workloads.base import format_value, parameters
    from fiprof.workloads.registry import available, find

    found = {**available(), **{file: find(file) for file in files}}
    show(
        kernels.kernels(
            [
                kernels.Kernel(
                    name,
                    workload.summary,
                    tuple(
                        kernels.Parameter(each.option, format_value(each.default), each.valid, each.help)
                        for each in parameters(workload)
                    ),
                )
                for name, workload in found.items()
            ]
        ),
        format_,
    )
