"""``fiprof compare``: what changed from one run to another, and what explains it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof.cli import measuring, options
from fiprof.cli.commands.collect import WORKLOAD_FLAG
from fiprof.cli.options import archive_option, format_option, open_run, run_names, supervision_options
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.analysis.comparison.runs import ArchivedSide
    from fiprof.model.run import Run
    from fiprof.orchestrator.archive import Archive
    from fiprof.reports.view import Format


@click.command(
    cls=measuring.CompareCommand,
    short_help="What changed between two runs, or between two sides measured now.",
    epilog="Example: fiprof compare latest:tensor_cores=false latest:tensor_cores=true",
)
@click.argument("a", metavar="[RUN_A", required=False, shell_complete=run_names)
@click.argument("b", metavar="RUN_B]", required=False, shell_complete=run_names)
@click.option("--measure", "sides", nargs=2, metavar="A B", help="Measure two sides now, in processes that take turns.")
@click.option("--kernel", "kernels", metavar="LIST", help="Workloads to measure, or all; fiprof kernels lists them.")
@click.option(WORKLOAD_FLAG, "workloads", multiple=True, metavar="FILE:NAME", help="A workload from a file of yours.")
@click.option("--explain", is_flag=True, help="Then profile each side once, and show what explains the difference.")
@click.option("--dry-run", is_flag=True, help="Print the processes to measure and start nothing.")
@click.option("--range", "ranges", multiple=True, metavar="NAME", help="Of files: as fiprof import takes it.")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every case and kernel.")
@click.option("--anyway", is_flag=True, help="Compare what was measured under other conditions too.")
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a page with charts: both sides beside each other, a delta a quantity.",
)
@format_option
@supervision_options
@archive_option
def command(
    archive: Archive,
    a: str | None,
    b: str | None,
    sides: tuple[str, str] | None,
    kernels: str | None,
    workloads: tuple[str, ...],
    explain: bool,
    dry_run: bool,
    ranges: tuple[str, ...],
    every: bool,
    anyway: bool,
    out: Path | None,
    wait: bool,
    quiet: bool,
    format_: Format,
    **words: Any,
) -> None:
    """What changed from run A to run B, in which kernels, and what of their counters explains it.

    RUN:PARAM=VALUE takes only the cases with these parameters: two ways to solve a problem may stand in one run.
    In place of a run a file of nsys or ncu will do, as fiprof import takes it; it is read, and nothing is kept.

    --measure measures two sides in processes that take turns, and says of each case whether B is slower, faster or the
    same, or cannot be told yet. The run is archived; fiprof compare RUN shows it again. A side is one of these, or
    several with commas between them:

    \b
      here                nothing changed
      git:REF[:FOLDER]    a commit; its folder FOLDER is imported [default: this]
      python:PATH         another interpreter
      env:NAME=VALUE      an environment variable
      params:NAME=VALUE   parameters: params:backend=fa3,page_size=1
      case:CASE           one case instead of --kernel: case:decode[batch=8]
      program:COMMAND     a program, as a whole and in its ranges (fiprof.range)

    \b
      fiprof compare --measure git:HEAD~1 here --kernel decode --batch 1,32
      fiprof compare --measure here params:page_size=1 --kernel decode
      fiprof compare --measure 'program:./old 5' 'env:THREADS=8,program:./new 5'
    """
    if sides:
        if a or b:
            raise FiprofError("--measure A B takes no runs", "leave RUN_A and RUN_B out", exit_code=2)
        request = measuring.request_of(*sides, kernels, workloads, words)
        if dry_run:
            measuring.dry_run(request, archive)
            return
        if explain:
            from fiprof.orchestrator.compare.explain import require_tools

            require_tools(request)
        result = measuring.measure(request, archive, wait=wait, quiet=quiet)
        if explain and result.problem is None:
            measuring.explain(request, result, archive, wait=wait, quiet=quiet)
        measuring.show(result, format_, out)
        return
    if not a:
        raise FiprofError("compare what?", "fiprof compare RUN_A RUN_B, or --measure A B", exit_code=2)
    if not b:
        measuring.show_run(archive.find(a), format_, out)
        return
    from fiprof.analysis.comparison.runs import compare
    from fiprof.reports.compare_report import document, page

    with contextlib.ExitStack() as until_shown:
        found = compare(*(_side(archive, text, ranges, until_shown) for text in (a, b)), anyway=anyway)
        if out is not None:
            measuring.write_page(page(found), out)
        options.show(document(found, every=every), format_)


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
