"""``fiprof profile``: any program, from its trace to the launches that matter."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from fiprof.cli import options
from fiprof.cli.commands.collect import conclude, print_commands, tools_for_show
from fiprof.cli.progress import measuring
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.orchestrator.commands import ProfileRequest
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.orchestrator.run_session import Bench, FinishedRun


SESSION_BEGINS_S = 2.0  # after the program's start, where no --delay was given: nsys has its session by then


@options.command(
    "fiprof profile --dry-run --cover 90% -- python3 train.py --steps 3",
    options.SettingsCommand,
    settings="ProfileSettings",
    headings={"nsys": "Trace (nsys)", "ncu": "Launches (ncu)"},
    # What follows the program's name is the program's.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", nargs=-1, metavar="-- COMMAND…", type=click.UNPROCESSED)
@click.option("--session", metavar="NAME", help="Run it, and trace it only when fiprof capture NAME asks.")
@click.option("--dry-run", is_flag=True, help="Print the exact commands and start nothing.")
@options.supervision_options
@options.archive_option
def command(
    archive: Archive,
    program: tuple[str, ...],
    session: str | None,
    dry_run: bool,
    wait: bool,
    quiet: bool,
    **settings: Any,
) -> int:
    """Profile any program: nsys over it, then ncu over the launches that stand for most of its GPU time.

    The program is run twice; its output and exit status are those of the run under nsys. What stands in a file or
    comes through a pipe is read by both; from a terminal neither reads. The run folder's path goes to standard error.
    """
    from fiprof.orchestrator.capture import serve, session_command, window_commands
    from fiprof.orchestrator.choosing import Filter
    from fiprof.orchestrator.commands import ProfileRequest, ProgramCommands
    from fiprof.orchestrator.profile import profile

    if not program:
        raise FiprofError("which program?", "fiprof profile -- python train.py", exit_code=2)
    request = ProfileRequest(program=program, **settings)
    _check(request, session)
    if dry_run:
        folder = archive.root / f"DATE-{request.label}"
        commands = ProgramCommands(folder, tools_for_show(("nsys", "ncu")), request.timeout_s, request, pass_on)
        if session or request.keep_running:
            name = session or "NAME"
            window = (*window_commands(commands, name), commands.trace_export()) if request.keep_running else ()
            print_commands((session_command(request, name, commands.tools["nsys"], pass_on), *window))
            return 0
        print_commands((commands.trace(), commands.trace_export()))
        for number, part in enumerate(request.parts) if "ncu" in request.tools else ():
            pages = (commands.page("raw", number), commands.page("details", number))
            print_commands((commands.profile(part, Filter(("CHOSEN",), part.skip or 1), number), *pages))
        return 0
    with measuring(archive, quiet=quiet, wait=wait, live=False) as bench:
        if session is not None:
            status = serve(request, session, bench.executor, pass_on)
        elif request.keep_running:
            status = _keep_running(request, bench)
        else:
            result, status = profile(request, bench, pass_on)
            conclude(result, ("fiprof top",), to_stderr=True, program_status=status)
    return 128 - status if status < 0 else status


def _check(request: ProfileRequest, session: str | None) -> None:
    """Raise FiprofError for values that do not go together or mean nothing."""
    kind, _, name = (request.capture or "cudaProfilerApi").partition(":")
    if (kind, bool(name)) not in (("cudaProfilerApi", False), ("nvtx", True)):
        raise FiprofError(f"--capture {request.capture}", "cudaProfilerApi, or nvtx:NAME", exit_code=2)
    if request.by_range and not request.ranges:
        raise FiprofError("--by-range: which ranges?", "--range NAME --range OTHER --by-range", exit_code=2)
    if request.keep_running and not request.duration_s:
        raise FiprofError("--keep-running traces a window", "say how long: --duration 5", exit_code=2)
    if request.torch_memory and (session or request.keep_running):
        remedy = "without --session and --keep-running"
        raise FiprofError("--torch-memory is written when the program ends under nsys", remedy, exit_code=2)
    try:
        re.compile(request.kernel or "")
    except re.error as error:
        raise FiprofError(f"--kernel {request.kernel} is no regular expression: {error}", exit_code=2) from error


def _keep_running(request: ProfileRequest, bench: Bench) -> int:
    """Trace one window of a program, and let it go on to its end."""
    from fiprof.orchestrator.capture import capture, serve

    name, begin = f"fiprof-{os.getpid()}", time.monotonic()
    results: list[FinishedRun] = []

    def meanwhile() -> None:
        if not results and time.monotonic() - begin >= (request.delay_s or SESSION_BEGINS_S):
            results.append(capture(name, request.duration_s or 0, bench, request))
            with contextlib.suppress(FiprofError):
                conclude(results[0], ("fiprof top",), to_stderr=True)

    status = serve(request, name, bench.executor, pass_on, meanwhile)
    if not results:
        raise FiprofError("the program ended before its window began", "see --delay")
    if results[0].problem is not None:
        raise results[0].problem
    return status


def pass_on(piece: bytes, of_stderr: bool) -> None:
    """A piece of the program's output, as it is; nowhere, where nobody reads it any longer."""
    with contextlib.suppress(OSError, ValueError):
        stream = sys.stderr if of_stderr else sys.stdout
        stream.buffer.write(piece)
        stream.buffer.flush()
