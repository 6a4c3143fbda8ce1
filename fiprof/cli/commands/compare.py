"""``fiprof compare``: what changed from one run to another, and what explains it."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof import files, interrupts
from fiprof.cli import options, output
from fiprof.cli.commands.collect import CollectCommand, choose_cases, conclude, print_commands, workload_option
from fiprof.cli.options import archive_option, format_option, open_run, run_names, supervision_options
from fiprof.cli.progress import measuring
from fiprof.errors import FiprofError
from fiprof.model.manifest import read_manifest

if TYPE_CHECKING:
    from fiprof.analysis.comparison.runs import ArchivedSide
    from fiprof.orchestrator.compare import CompareRequest
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.view import Document, Format
    from fiprof.workloads.case import Case


@options.command(
    "fiprof compare latest:tensor_cores=false latest:tensor_cores=true", CollectCommand, settings="CompareSettings"
)
@click.argument("a", metavar="[RUN_A", required=False, shell_complete=run_names)
@click.argument("b", metavar="RUN_B]", required=False, shell_complete=run_names)
@click.option("--measure", "sides", nargs=2, metavar="A B", help="Measure two sides now, in processes that take turns.")
@click.option("--kernel", "kernels", metavar="LIST", help="Workloads to measure, or all; fiprof kernels lists them.")
@workload_option
@click.option("--explain", is_flag=True, help="Then profile each side once, and show what explains the difference.")
@click.option("--dry-run", is_flag=True, help="Print the processes to measure and start nothing.")
@click.option("--range", "ranges", multiple=True, metavar="NAME", help="Of files: as fiprof import takes it.")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every case and kernel.")
@click.option("--whole", is_flag=True, help="Of programs: the whole traces, with start-up, not their steady parts.")
@click.option("--anyway", is_flag=True, help="Compare what was measured under other conditions too.")
@options.file("--out", "FILE.html", "Also write a page with charts: both sides beside each other, a delta a quantity.")
@format_option
@supervision_options
@archive_option
def command(
    archive: Archive,
    a: str | None,
    b: str | None,
    sides: tuple[str, str] | None,
    explain: bool,
    dry_run: bool,
    ranges: tuple[str, ...],
    every: bool,
    whole: bool,
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
        from fiprof.orchestrator import compare as comparing

        side_a, side_b = map(comparing.parse_side, sides)
        own, cases = settings_and_cases(words)
        pairs = comparing.pairs_of(side_a, side_b, cases)
        request = comparing.CompareRequest(a=side_a, b=side_b, pairs=pairs, **own)
        if dry_run:
            print_processes(request, archive)
            return
        if explain:
            comparing.require_tools(request)
        with measuring(archive, quiet=quiet, wait=wait) as bench:
            result = comparing.compare(request, bench)
        if explain and result.problem is None:
            with measuring(archive, quiet=quiet, wait=wait) as bench:
                profiled = comparing.explain(request, result.path, bench)
            if profiled.problem is not None:
                conclude(profiled, (), to_stderr=True)
        interrupts.settle()
        if result.problem is None:
            _show_measured(result.path, format_, out)
        conclude(result, ("fiprof compare",), to_stderr=True)
    elif not a:
        raise FiprofError("compare what?", "fiprof compare RUN_A RUN_B, or --measure A B", exit_code=2)
    elif not b:
        _show_measured(archive.find(a, lambda manifest: manifest.kind == "comparison"), format_, out)
    else:
        from fiprof.analysis.comparison.runs import compare
        from fiprof.orchestrator.environment import full_commit
        from fiprof.reports.compare_report import MOST_DETAILED_ON_PAGE, document

        with contextlib.ExitStack() as until_shown:
            both = (_side(archive, text, ranges, until_shown) for text in (a, b))
            comparison = compare(
                *both,
                anyway=anyway,
                entire=whole,
                has_commit=lambda commit: full_commit(Path(), commit) is not None,
            )
            if out is not None:
                _write_page(document(comparison, most=MOST_DETAILED_ON_PAGE), out)
            options.show(document(comparison, every=every), format_)


def _side(archive: Archive, text: str, ranges: tuple[str, ...], until_shown: contextlib.ExitStack) -> ArchivedSide:
    """A run with the parameters that are chosen, or one of a file, which is gone afterwards."""
    from fiprof.analysis.comparison.runs import ArchivedSide
    from fiprof.model.run import Run

    if Path(text).is_file():
        import tempfile

        from fiprof.orchestrator.importing import import_files
        from fiprof.orchestrator.run_folder import Archive

        folder = until_shown.enter_context(files.scratch(Path(tempfile.gettempdir())))
        with measuring(Archive(folder), quiet=True) as bench:
            result = import_files((Path(text),), bench, ranges=ranges, link=True)
        if result.problem is not None:
            raise result.problem
        return ArchivedSide(Run(result.path))
    name, _, chosen = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    params = dict(word.partition("=")[::2] for word in options.split(chosen))
    run, problems = open_run(archive.find(name))
    if problems:
        raise FiprofError(f"{run.manifest.name} cannot be read whole", f"fiprof parse {run.path} tries again")
    run = dataclasses.replace(run, leaving=True)
    return ArchivedSide(run, {name.strip(): value.strip() for name, value in params.items()})


def _show_measured(folder: Path, format_: Format, out: Path | None) -> None:
    """Print an archived comparison, with what the runs beside it say that profiled each side, and write its page.
    Raises FiprofError where the run is none."""
    from fiprof.analysis.comparison.measured_result import read_comparison
    from fiprof.analysis.comparison.runs import ArchivedSide, compare
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.compare_report import explained
    from fiprof.reports.measured_table import document

    manifest = read_manifest(folder)
    if manifest.kind != "comparison":
        remedy = "fiprof compare RUN_A RUN_B, or --measure A B"
        raise FiprofError(f"{folder} is one run, and no comparison", remedy, exit_code=2)
    comparison, by, archive = read_comparison(folder), None, Archive(folder.parent)
    if missing := [name for name in comparison.explained or () if name not in archive.names()]:
        output.message(f"note: what explains it is not shown: {archive.root} has no run {', '.join(missing)}")
    elif comparison.explained:
        opened = (open_run(archive.root / name)[0] for name in comparison.explained)
        a, b = (ArchivedSide(dataclasses.replace(run, leaving=True)) for run in opened)
        by = compare(a, b, anyway=True, pairs=[(case.a, case.b) for case in comparison.cases])
    shown = explained(document(comparison), comparison, by)
    if out is not None:
        _write_page(shown, out)
    options.show(shown, format_)


def _write_page(report: Document, out: Path) -> None:
    from fiprof.reports.compare_report import TITLE
    from fiprof.reports.markdown_html import report_html

    options.write_page(out, lambda: report_html(report, TITLE))


# What fiprof gate measures too


def settings_and_cases(words: dict[str, Any]) -> tuple[dict[str, Any], list[Case]]:
    """The settings of a comparison by name, and the cases that are named. words: both, from the command line."""
    from fiprof.model.settings import CompareSettings, settings_of

    own = {each.name: words.pop(each.name) for each in settings_of(CompareSettings)}
    if own["order_seed"] is None:
        own["order_seed"] = random.randrange(1_000_000)
    return own, choose_cases(**words) if any(words.values()) else []


def print_processes(request: CompareRequest, archive: Archive) -> None:
    """Print the processes in the order of time; nothing is started. Raises FiprofError for an unknown commit."""
    from fiprof.orchestrator.compare import SideCommands, check_out

    path = archive.root / f"DATE-{request.label}"
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder).resolve()
        checkouts = {letter: check_out(request.side(letter), files / letter) for letter in "AB"}
        commands = SideCommands(path, {}, request.timeout_s, request, files, checkouts).all()
        print_commands(commands, lambda text: text.replace(str(files), "SCRATCH"))
