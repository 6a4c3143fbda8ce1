"""``fiprof compare``: what changed from one run to another, and what explains it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import Command, archive_option, format_option, open_run, run_names
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.analysis.comparison.runs import ArchivedSide
    from fiprof.model.run import Run
    from fiprof.orchestrator.archive import Archive
    from fiprof.reports.view import Format


@click.command(
    cls=Command,
    short_help="What changed between two runs, and what explains it.",
    epilog="Example: fiprof compare latest:tensor_cores=false latest:tensor_cores=true",
)
@click.argument("a", metavar="RUN_A", shell_complete=run_names)
@click.argument("b", metavar="RUN_B", shell_complete=run_names)
@click.option("--range", "ranges", multiple=True, metavar="NAME", help="Of files: as fiprof import takes it.")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every case and kernel.")
@click.option("--anyway", is_flag=True, help="Compare what was measured under other conditions too.")
@format_option
@archive_option
def command(
    archive: Archive, a: str, b: str, ranges: tuple[str, ...], every: bool, anyway: bool, format_: Format
) -> None:
    """What changed from run A to run B, in which kernels, and what of their counters explains it.

    RUN:PARAM=VALUE[,…] takes only the cases with these parameters: two ways to solve a problem may stand in one run.
    In place of a run a file of nsys or ncu will do, as fiprof import takes it; it is read, and nothing is kept.
    """
    from fiprof.analysis.comparison.runs import compare
    from fiprof.reports.comparison.document import document

    with contextlib.ExitStack() as until_shown:
        sides = [_side(archive, text, ranges, until_shown) for text in (a, b)]
        options.show(document(compare(*sides, anyway=anyway), every=every), format_)


def _side(archive: Archive, text: str, ranges: tuple[str, ...], until_shown: contextlib.ExitStack) -> ArchivedSide:
    from fiprof.analysis.comparison.runs import ArchivedSide

    if Path(text).is_file():
        return ArchivedSide(_imported(Path(text), ranges, until_shown))
    name, _, chosen = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    params = dict(word.partition("=")[::2] for word in options.split(chosen))
    run, problems = open_run(archive.find(name))
    if problems:
        raise FiprofError(f"{run.manifest.name} cannot be read whole", f"fiprof parse {run.path} tries again")
    return ArchivedSide(run, {name.strip(): value.strip() for name, value in params.items()})


def _imported(file: Path, ranges: tuple[str, ...], until_shown: contextlib.ExitStack) -> Run:
    """A run of a file that is gone afterwards."""
    import tempfile

    from fiprof.cli.progress import supervised
    from fiprof.model.run import Run
    from fiprof.orchestrator.archive import Archive
    from fiprof.orchestrator.importing import ImportRequest, import_files

    folder = until_shown.enter_context(tempfile.TemporaryDirectory(prefix="fiprof-compare-"))
    with supervised(quiet=True) as (progress, supervisor):
        result = import_files(ImportRequest((file,), ranges, link=True), Archive(Path(folder)), progress, supervisor)
    if result.problem is not None:
        raise result.problem
    return Run(result.path)
