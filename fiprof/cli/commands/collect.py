"""The commands that make a run of kernels, of a program that goes on running, of files, or of an archived run."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof import interrupts
from fiprof.cli import options, output
from fiprof.cli.progress import measuring
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.orchestrator import process
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.orchestrator.run_session import FinishedRun
    from fiprof.orchestrator.tools import Tool
    from fiprof.workloads.base import Parameter
    from fiprof.workloads.case import Case

HEADING = "Parameters of the workloads"
WORKLOAD_FLAG = "--workload"
workload_option = click.option(
    WORKLOAD_FLAG, "workloads", multiple=True, metavar="FILE[:NAME]", help="A workload from a file of yours."
)


class CollectCommand(options.SettingsCommand):
    """The parameters of the workloads are options too, those of ``--workload FILE`` as well."""

    otherwise = "Measurement"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORKLOAD_FLAG] = [
            arg.removeprefix(f"{WORKLOAD_FLAG}=") if arg != WORKLOAD_FLAG else following
            for arg, following in zip(args, [*args[1:], ""], strict=False)
            if arg == WORKLOAD_FLAG or arg.startswith(f"{WORKLOAD_FLAG}=")
        ]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from fiprof.workloads.base import format_value, parameters
        from fiprof.workloads.registry import available, find

        own = super().get_params(ctx)
        own_options = {option for parameter in own for option in parameter.opts}
        owners: dict[str, list[tuple[str, Parameter]]] = {}  # parameter -> the workloads that have it
        files = {file: find(file) for file in ctx.meta.get(WORKLOAD_FLAG, ()) if file}
        for name, workload in {**available(), **files}.items():
            for parameter in parameters(workload):
                owners.setdefault(parameter.name, []).append((name, parameter))
        for name, uses in owners.items():
            first = uses[0][1]
            if first.option in own_options:
                what = f"a workload's parameter has the name of the command's own option {first.option}"
                raise FiprofError(what, "give the field of its Params another name")
            about = f"{first.help} ({first.valid}; {format_value(first.default)})"
            words = f"{about}. For {', '.join(owner for owner, _ in uses)}."
            own.append(options.Option([first.option, name], heading=HEADING, metavar="LIST", help=words))
        return own


@options.command(
    "fiprof collect --kernel decode --batch 1,32,128 --dry-run", CollectCommand, settings="CollectSettings"
)
@click.option("--kernel", "kernels", metavar="LIST", help="Workloads to run, or all; fiprof kernels lists them.")
@workload_option
@click.option("--replay", metavar="RUN", help="Re-read this run's raw files instead of starting the tools.")
@click.option("--dry-run", is_flag=True, help="Print the exact commands and start nothing.")
@options.supervision_options
@options.archive_option
def collect_command(archive: Archive, replay: str | None, wait: bool, dry_run: bool, quiet: bool, **words: Any) -> None:
    """Profile kernels: plain run, nsys, ncu, exports, tables, into a dated run folder.

    The folder's path goes to standard output, progress to standard error. The parameters of the workloads take comma
    lists; every combination becomes a case, and all cases share one process per tool.
    """
    from fiprof.model.settings import settings_of
    from fiprof.orchestrator import collect
    from fiprof.orchestrator.commands import CollectCommands, CollectRequest

    own = {each.name: words.pop(each.name) for each in settings_of(CollectRequest) if each.option}
    if replay is not None:
        if words["kernels"] or words["workloads"]:
            raise FiprofError("--replay takes its cases from the run", "leave --kernel and --workload out", exit_code=2)
        source = archive.find(replay, lambda each: each.kind == "run" and not each.imported)
        with measuring(archive, quiet=quiet) as bench:
            result = collect.replay(source, bench)
        return conclude(result, ("fiprof verdict", "fiprof report"))
    request = CollectRequest(cases=tuple(choose_cases(**words)), **own)
    if dry_run:
        folder = archive.root / f"DATE-{request.label}"
        commands = CollectCommands(folder, tools_for_show(request.tools), request.timeout_s, request)
        return print_commands(commands.all())
    with measuring(archive, quiet=quiet, wait=wait) as bench:
        result = collect.collect(request, bench)
    return conclude(result, ("fiprof verdict", "fiprof report"))


def choose_cases(kernels: str | None, workloads: Sequence[str], **params: str | None) -> list[Case]:
    """The cases that a command line names: of workloads, each with those of the parameters' comma lists that it has.
    Raises FiprofError (exit status 2) for no workload, or a parameter that none of them has."""
    from fiprof.workloads.base import parameters
    from fiprof.workloads.case import make_cases
    from fiprof.workloads.registry import builtin, canonical, find

    named = [*options.split(kernels or ""), *workloads]
    if not named:
        raise FiprofError("which kernel?", "--kernel prefill, or --kernel all; fiprof kernels lists them", exit_code=2)
    names = [each for name in named for each in (builtin() if name == "all" else [canonical(name)])]
    parameters_of = {name: {parameter.name for parameter in parameters(find(name))} for name in dict.fromkeys(names)}
    lists = {param: options.split(text) for param, text in params.items() if text is not None}
    if unknown := [param for param in lists if not any(param in has for has in parameters_of.values())]:
        what = f"{', '.join(parameters_of)} has no parameter --{unknown[0].replace('_', '-')}"
        raise FiprofError(what, "fiprof kernels lists the parameters of each workload", exit_code=2)
    of_workloads = {
        name: {param: lists[param] for param in lists if param in has} for name, has in parameters_of.items()
    }
    return [case for name, own in of_workloads.items() for case in make_cases(name, own)]


def tools_for_show(names: Iterable[str]) -> dict[str, Tool]:
    """The tools for ``--dry-run``; a missing one is told of, and stands by its name."""
    from fiprof.orchestrator.tools import Tool, find_tool

    tools = {}
    for name in names:
        try:
            tools[name] = find_tool(name)
        except FiprofError as error:
            tools[name] = Tool(Path(name), ())
            output.message(f"fiprof: {error}")
    return tools


def print_commands(commands: Iterable[process.ToolCommand], shown: Callable[[str], str] = str) -> None:
    """Commands as one would type them, for ``--dry-run``. shown: of a line what is printed."""
    for each in commands:
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in each.env.items())
        target = f" > {shlex.quote(str(each.stdout))}" if each.stdout else ""
        line = f"# {each.step}\n{assignments}{' ' if assignments else ''}{shlex.join(each.argv)}{target}"
        output.data(shown(line))


def conclude(result: FinishedRun, next_: Sequence[str], *, to_stderr: bool = False, program_status: int = 0) -> None:
    """Print the folder, and end with the run's own status. next_: the commands that read it. to_stderr: standard output
    is a program's. program_status: of the program, which goes before that of a run that failed."""
    interrupts.settle()
    (output.message if to_stderr else output.data)(str(result.path))
    if result.problem is not None:
        ended = {"failed": "failed", "interrupted": "was interrupted"}[result.status]
        why = "" if result.problem.message == result.status else f": {result.problem.message}"
        status = max(program_status, 0) or result.problem.exit_code
        raise FiprofError(f"the run {ended}{why}", result.problem.remedy, exit_code=status)
    output.message("complete; next: " + "; ".join(f"{command} {result.path}" for command in next_))


@options.command("fiprof capture server --duration 5")
@click.argument("name", metavar="NAME")
@options.seconds("--duration", 5.0, "Seconds that are traced.")
@options.quiet_option
@options.archive_option
def capture_command(archive: Archive, name: str, duration_s: float, quiet: bool) -> None:
    """Trace some seconds of a program that ``fiprof profile --session NAME`` runs, into a run folder.

    The program goes on, and can be captured again. The folder's path goes to standard output.
    """
    from fiprof.orchestrator.capture import capture

    with measuring(archive, quiet=quiet) as bench:
        result = capture(name, duration_s, bench)
    conclude(result, ("fiprof top",))


@options.command("fiprof import trace.sqlite raw.csv --range decode")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path())
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="NAME",
    help="An NVTX range that is a case, each time an iteration; DOMAIN@NAME, * for any text.",
)
@click.option("--name", default="", metavar="TEXT", help="What the folder's name ends in [default: the first file's].")
@click.option("--link", is_flag=True, help="Read the files where they lie instead of copying them.")
@click.option(
    "--on", default="", metavar="WHERE", help="A run of each file: local, local:N at a time, dask:tcp://HOST:PORT."
)
@click.option("--to", default="", metavar="URL", help="A run of each file, moved there, e.g. s3://BUCKET/archive.")
@options.seconds("--timeout", 3600.0, "Longest that one of many files may take.")
@options.quiet_option
@options.archive_option
def import_command(
    archive: Archive, files: tuple[str, ...], name: str, on: str, to: str, timeout_s: float, quiet: bool, **read: Any
) -> None:
    """Make a run of files of nsys and ncu, for all commands that read runs; the files are left as they are.

    A FILE is a .nsys-rep (read by nsys), the SQLite that nsys makes of it, a .ncu-rep, or a CSV page of ncu: raw,
    details, source, or the viewer's export. What it is is told by its content. Several go into one run: a trace beside
    a profile, a trace a rank, the pages of a report.

    The copy of an SQLite is cleared of environments, and secrets in it are masked. With --link nothing is.

    Of a GLOB in quotes, of URLs, and with --on or --to, each file becomes a run of its own, several side by side, but
    not those that are in the archive already. What cannot be read, hangs or takes too much memory is named.
    """
    if on or to or any("://" in each or (glob.has_magic(each) and not Path(each).exists()) for each in files):
        import_many(archive, files, to or str(archive.root.absolute()), on or "local", timeout_s=timeout_s, **read)
        return
    from fiprof.model.run import Run
    from fiprof.orchestrator.importing import import_files

    with measuring(archive, quiet=quiet) as bench:
        result = import_files(list(map(Path, files)), bench, name=name, **read)
    run = Run(result.path)
    tools = {file.tool_name for file in run.manifest.imported}
    # What reads what each tool left.
    readers = {"ncu": "fiprof verdict", "nsys": "fiprof top" if run.row_count("kernels") else "fiprof show"}
    conclude(result, [command for tool, command in readers.items() if tool in tools])


def import_many(archive: Archive, patterns: Sequence[str], root: str, on: str, **wishes: Any) -> None:
    """Make a run of each file. wishes: further fields of each job."""
    from fiprof.orchestrator import many

    imported, traces, failed = many.imported(root), many.sources(patterns), []
    jobs = [many.Trace(source, root, **wishes) for source in traces if source not in imported]
    if len(jobs) < len(traces):
        output.message(f"{len(traces) - len(jobs):,} of {len(traces):,} are imported already")
    with measuring(archive, quiet=False) as bench:
        progress, stopping = bench.progress, bench.executor.stopping
        for number, outcome in enumerate(many.import_each(jobs, on, stopping) if jobs else (), 1):
            progress.detail("import", f"{number:,} of {len(jobs):,}")
            if outcome.problem:
                failed.append(outcome.source)
                progress.say(f"fiprof: {outcome.source}: {outcome.problem}")
            else:
                output.data(outcome.run)
    if failed:
        named = ", ".join([*failed[:3], *(["…"] if failed[3:] else [])])
        what = f"{len(failed):,} of {len(jobs):,} were not imported: {named}"
        raise FiprofError(what, "the others are whole; the same command tries these again")
