"""The commands that say what there is: what works on this machine, and the workloads."""

import click

from fiprof.cli import options
from fiprof.reports.view import Format


@options.command("fiprof env", options.SettingsCommand, settings=("python",))
@options.format_option
def env_command(python: str, format_: Format) -> None:
    """GPU, driver, nsys, ncu, counter permission, torch, flashinfer, nvtx, JIT cache: what works, how to fix the rest.

    Exit status 1 when something that collect needs is missing.
    """
    from fiprof.orchestrator.diagnose import COLUMNS, MISSING, diagnose
    from fiprof.reports.view import view_of

    diagnosis = diagnose(python)
    remedies = tuple(f"{need['what']}: {need['remedy']}" for need in diagnosis if need["remedy"])
    options.show(view_of(COLUMNS, diagnosis, notes=remedies), format_)
    if any(need["state"] == MISSING for need in diagnosis):
        click.get_current_context().exit(1)


@options.command("fiprof kernels --workload my_kernels.py:mine")
@click.option("--workload", "files", multiple=True, metavar="FILE[:NAME]", help="Also this one, from a file of yours.")
@options.format_option
def kernels_command(files: tuple[str, ...], format_: Format) -> None:
    """List the workloads with their parameters, defaults and valid ranges."""
    from fiprof.reports.view import Column, Document, view_of
    from fiprof.workloads.base import format_value, parameters
    from fiprof.workloads.registry import available, find

    columns = (
        Column("option", "option", least=len("--tensor-cores")),
        Column("default", "default", least=len("default")),
        Column("valid", "valid", least=len("inplace|cos_sin_cache|llama31")),
        Column("help", "meaning", wrap=True),
    )
    rows: list[dict[str, str | None]] = []
    shown = []
    for name, workload in {**available(), **{file: find(file) for file in files}}.items():
        own: list[dict[str, str | None]] = [
            {"option": each.option, "default": format_value(each.default), "valid": each.valid, "help": each.help}
            for each in parameters(workload)
        ]
        shown.append(view_of(columns, own, title=f"{name}: {workload.summary}"))
        nothing: dict[str, str | None] = {column.key: None for column in columns}
        rows += [{"workload": name, "summary": workload.summary, **row} for row in (own or [nothing])]
    options.show(Document(view_of((Column("workload"), Column("summary"), *columns), rows), tuple(shown)), format_)
