"""A program that goes on running, and is traced for a while whenever somebody asks: sessions of nsys."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from fiprof.errors import FiprofError, Interrupted
from fiprof.files import cache_folder, file_errors, write_whole
from fiprof.model import layout
from fiprof.model.json_file import MisfitError, decode
from fiprof.model.redaction import mask_words
from fiprof.orchestrator import nsys
from fiprof.orchestrator.commands import ExportCommands, ProfileRequest
from fiprof.orchestrator.environment import program_facts
from fiprof.orchestrator.locks import folder_lock
from fiprof.orchestrator.process import INPUT, PassOn, Supervisor, ToolCommand
from fiprof.orchestrator.profile import find_tools, new_run, no_kernels
from fiprof.orchestrator.run_session import Bench, FinishedRun, RunSession
from fiprof.orchestrator.tools import Tool, visible_gpus

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # the name of a session: what nsys takes, and a file's name
CAPTURE = ".capture"  # of the folder that is there while a session is traced
LOOK_S = 0.5  # between two looks whether the session is there still
STOP_S = 600.0  # nsys writes the report while it stops


class Served(TypedDict):
    """A session's program, for whoever captures it."""

    pid: int  # of the fiprof that started it
    program: tuple[str, ...]
    facts: dict[str, Any]  # of ``program_facts``


def serve(
    request: ProfileRequest,
    name: str,
    executor: Supervisor,
    pass_on: PassOn,
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Run a program that ``capture`` can trace, to its end. Returns its exit status, negative for a signal.

    meanwhile: called a few times a second. Raises FiprofError where nsys or the program is missing, the name is no
    session's or taken; Interrupted when told to stop.
    """
    nsys_tool = find_tools(dataclasses.replace(request, tools=("nsys",)))["nsys"]
    record = _record(name)
    if record.exists() and _alive(name) is not None:
        raise FiprofError(f"there is a session {name} already", "choose another name", exit_code=2)
    facts = program_facts(request.program)
    facts["command"] = mask_words(facts["command"])
    served: Served = {"pid": os.getpid(), "program": tuple(mask_words(request.program)), "facts": facts}
    with file_errors(record):
        record.parent.mkdir(parents=True, exist_ok=True)
    write_whole(record, json.dumps(served).encode())
    command = session_command(request, name, nsys_tool, pass_on)
    stop = ToolCommand("nsys-stop", (str(nsys_tool.path), "stop", f"--session={name}"), record.with_suffix(".stop"))

    ending = threading.Event()

    def look(_: object) -> None:
        meanwhile()
        if record.with_suffix(CAPTURE).exists():
            # Of a capture that was killed, for the others hold it.
            with contextlib.suppress(FiprofError), _held(name):
                executor.start(stop).wait()
        if executor.stopping.is_set():
            if record.with_suffix(CAPTURE).exists():  # nsys 2025 loses what it traces of a program that a signal ends
                Supervisor().start(stop).wait()
            ending.set()

    try:
        finished = Supervisor(executor.env, ending).start(command).wait(look)
    finally:
        for path in (record, stop.log):
            path.unlink(missing_ok=True)
    if finished.outcome == "interrupted":
        raise Interrupted
    if finished.exit_status is None:
        raise FiprofError(finished.message, "fiprof env shows what is installed")
    return finished.exit_status


def session_command(request: ProfileRequest, name: str, tool: Tool, pass_on: PassOn) -> ToolCommand:
    """The program under an nsys that waits to be asked. name: of the session."""
    options = (*nsys.program_trace(tool.version, request), *request.nsys_args)
    argv = (str(tool.path), "launch", f"--session-new={name}", *options, *request.program)
    log = _record(name).with_suffix(".log")
    return ToolCommand("session", argv, log, pass_on=nsys.ProgramOutput(pass_on), reads=INPUT)


def window_commands(commands: ExportCommands, name: str) -> tuple[ToolCommand, ToolCommand]:
    """How the trace of a session begins and ends."""
    tool, report = str(commands.tools["nsys"].path), commands.path / layout.NSYS_REPORT
    begin = ("start", f"--session={name}", f"--output={report}", "--force-overwrite=true", *nsys.NO_SAMPLING)
    stop = commands.command("nsys", (tool, "stop", f"--session={name}"), makes=(report,))
    return commands.command("nsys-start", (tool, *begin)), stop


def capture(name: str, duration_s: float, bench: Bench, request: ProfileRequest | None = None) -> FinishedRun:
    """Trace a session's program for some seconds, into a new run folder.

    request: as what it is recorded, where it is known.
    Raises FiprofError where there is no such session (exit status 2), or somebody captures it.
    """
    served = _alive(name)
    if served is None:
        others = sorted(path.stem for path in _record(name).parent.glob("*.json") if _alive(path.stem))
        remedy = f"running: {', '.join(others)}" if others else "fiprof profile --session NAME -- COMMAND … begins one"
        raise FiprofError(f"there is no session {name}", remedy, exit_code=2)
    options = request or ProfileRequest(program=served["program"])
    options = dataclasses.replace(options, tools=("nsys",), duration_s=duration_s)
    tool = find_tools(options)["nsys"]
    with _held(name):
        folder = new_run(options, {"nsys": tool}, bench.archive, visible_gpus()[0], served["facts"])
        session, report = RunSession(folder, bench), folder.path / layout.NSYS_REPORT
        commands = ExportCommands(folder.path, {"nsys": tool}, STOP_S)
        with session.ending_in_order():
            with session.collecting():
                start, stop = window_commands(commands, name)
                report.parent.mkdir()  # nsys writes the report when the program ends, should that be first
                with session.run(start) as (finished, log):
                    if finished.exit_status:
                        raise FiprofError(f"nsys did not begin: {nsys.last_line(log)}")
                until = time.monotonic() + duration_s
                with bench.progress.step(f"{duration_s:g} s of {name}"):
                    while (left_s := until - time.monotonic()) > 0 and _alive(name):
                        if bench.executor.stopping.wait(min(left_s, LOOK_S)):
                            # The session's own fiprof may go on, so that no trace may be left going.
                            Supervisor().start(stop).wait()
                            raise Interrupted
                if left_s > 0:
                    session.warn(f"the program ended {duration_s - left_s:.1f} s after the trace began")
                with session.run(stop) as (_, log):
                    nsys.check_report(report, log)
                if not session.trace_tables(commands.trace_export()).rows["kernels"]:
                    raise no_kernels(folder.path, 0)
            session.note_gpu()
            session.check()
        return session.finish()


def _record(name: str) -> Path:
    if not NAME.fullmatch(name):
        raise FiprofError(f"{name!r} is no name of a session", "a letter, then letters, digits, _ and -", exit_code=2)
    return cache_folder() / "sessions" / f"{name}.json"


@contextlib.contextmanager
def _held(name: str) -> Iterator[None]:
    """Hold a session around a block. Raises FiprofError naming who else traces it."""
    folder = _record(name).with_suffix(CAPTURE)
    with file_errors(folder):
        folder.mkdir(exist_ok=True)
    with folder_lock(folder):
        try:
            yield
        finally:
            shutil.rmtree(folder)


def _alive(name: str) -> Served | None:
    """A session whose fiprof is there still; None otherwise."""
    try:
        served = decode(_record(name).read_bytes(), Served)
        os.kill(served["pid"], 0)
    except (OSError, MisfitError):
        return None
    return served
