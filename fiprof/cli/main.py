"""The command line: finds the command, prints an error once, sets the exit status.

0 done, 1 failed, 2 wrong use, 3 a slowdown was found, 130 interrupted (Ctrl-C), 129 by SIGHUP, 143 by SIGTERM.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import re
import resource
import signal
import sys

import click

import fiprof
from fiprof import interrupts
from fiprof.cli import output
from fiprof.errors import INTERRUPTED_EXIT, FiprofError

GROUP = "fiprof.commands"  # entry points of commands that packs bring: name -> click command

LEAST_BYTES = 1 << 30
SECTIONS = {
    "Measure": {
        "collect": "Profile kernels into a dated run folder.",
        "profile": "Profile any program into a dated run folder.",
        "capture": "Trace a running program of fiprof profile --session.",
        "import": "Make a run of files of nsys and ncu.",
        "study": "Measure a whole matrix of cases, resumable.",
        "compare": "What changed between two runs, or between two sides measured now.",
        "gate": "Fail where this tree is slower than a baseline.",
    },
    "Read": {
        "verdict": "What limits every launch, and what to try.",
        "show": "Times, use of the hardware, limits.",
        "stalls": "What the warps of every launch wait for.",
        "hotspots": "The SASS instructions with most warp samples.",
        "roofline": "Every launch on the measured roofs.",
        "top": "Where the GPU's time goes, and why it is idle.",
        "story": "What happened, step by step, and what surprised.",
        "timeline": "Kernels in time, with the hardware's activity.",
        "comm": "Which rank makes the others wait, and why.",
        "expected": "Measured against what a kernel is expected to do.",
        "report": "The whole story, as Markdown and HTML.",
    },
    "Keep": {
        "runs": "The runs of the archive, and what was measured in them.",
        "trend": "A quantity over the runs of the archive, and where it changed.",
        "tag": "Give a run tags, to find it by.",
        "note": "Note a sentence about a run.",
        "baseline": "Name runs that later trees are compared with.",
        "export": "A run in other programs' formats.",
        "publish": "The archive as a static site.",
        "verify": "Compare runs with their checksums.",
        "pack": "Compress a run's raw files in place.",
        "prune": "Remove the raw files of old runs.",
        "parse": "Make a run's tables again from its raw files.",
        "index": "Bring the catalogue of the archive up to date.",
    },
    "More": {"env": "What works here, and how to fix the rest.", "kernels": "The workloads and their parameters."},
}
"""The commands as ``fiprof --help`` lists them, without importing any; those that packs bring come last."""
OWN = {name: words for commands in SECTIONS.values() for name, words in commands.items()}
JOINT = {
    "collect": ("collect", "capture", "import"),
    "read_runs": (*SECTIONS["Read"], "export"),
    "keep_runs": ("runs", "trend", "tag", "note", "verify", "pack", "prune", "parse", "index"),
    "gate": ("gate", "baseline"),
    "know": tuple(SECTIONS["More"]),
}
"""Modules of several commands, each as ``NAME_command``; any other command is in a module of its name."""


class Commands(click.Group):
    """The modules of ``fiprof.cli.commands``, and what packs bring; one is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted({*OWN, *_brought()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        joint = (f"{module}:{cmd_name}_command" for module, names in JOINT.items() if cmd_name in names)
        own = next(joint, f"{cmd_name}:command")
        value = f"fiprof.cli.commands.{own}" if cmd_name in OWN else _brought().get(cmd_name)
        if value is None:
            return None
        module, _, attribute = value.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            what = f"the command {cmd_name} ({value}) cannot be imported: {error}"
            raise FiprofError(what, "fix or uninstall the package that brings it") from error
        assert isinstance(command, click.Command)
        # For completions.
        command.short_help = OWN.get(cmd_name, command.short_help)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        more = [name for name in self.list_commands(ctx) if name not in OWN]
        width = max(map(len, (*OWN, *more)))
        for title, commands in SECTIONS.items():
            rows = list(commands.items())
            if title == "More":
                found = [(name, self.get_command(ctx, name)) for name in more]
                rows += [(name, each.get_short_help_str(formatter.width)) for name, each in found if each]
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", words) for name, words in rows])


def _brought() -> dict[str, str]:
    """Name -> ``module:attribute`` of commands that packs bring, first on the path first. As importlib.metadata finds
    them; importing that alone would make ``--help`` a quarter slower."""
    brought: dict[str, str] = {}
    for folder in sys.path:
        for name in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            if name.endswith((".dist-info", ".egg-info")):
                with (
                    contextlib.suppress(OSError),
                    open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file,
                ):
                    _, _, section = file.read().partition(f"[{GROUP}]\n")
                    for line in section.partition("[")[0].splitlines():
                        command, equals, value = line.partition("=")
                        if equals:
                            brought.setdefault(command.strip(), value.strip())
    return brought


EPILOG = """
\b
RUN is a path, a name, the beginning of one, or latest.

\b
Environment:
  FIPROF_ARTIFACTS         the archive of run folders
  FIPROF_CATALOG           the database of runs, where it is not beside them
  FIPROF_NSYS, FIPROF_NCU  the tools, where they are not on PATH
  FIPROF_PYTHON            the interpreter that runs workloads
  NO_COLOR, COLUMNS        no colour; columns of the output

\b
Completion, in ~/.bashrc (or zsh_source, fish_source):
  eval "$(_FIPROF_COMPLETE=bash_source fiprof)"

\b
Exit status: 0 done, 1 failed, 2 wrong use, 3 a slowdown was found, 130 interrupted.

\b
Example: fiprof collect --kernel prefill && fiprof verdict latest
"""


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, epilog=EPILOG
)
@click.version_option(fiprof.__version__, prog_name="fiprof")
def cli() -> None:
    """Run GPU kernels under Nsight Systems and Nsight Compute, archive what they saw, and read it."""


def error_text(error: FiprofError) -> str:
    """An error as people read it, with why in words."""
    if error.why is None:
        return str(error)
    from fiprof.model.finding import words_of

    return str(FiprofError(f"{error.message}: {words_of(error.why)}", error.remedy))  # type: ignore[arg-type]


def main() -> None:
    """The entry point of ``fiprof``, see ``fiprof.__main__``."""
    sys.unraisablehook = _ask_again
    try:
        interrupts.interrupt()
        output.open_streams()
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            # Libraries reserve little then; below the least they cannot even be loaded.
            os.environ |= {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
            if limit < LEAST_BYTES:
                raise MemoryError
        status = cli.main(standalone_mode=False)
        # From here on nothing changes it.
        interrupts.settle()
    except BaseException as error:
        interrupts.settle()
        status = _failed(error)
    # Where a KeyboardInterrupt came out of code given as text, as dataclasses makes it, CPython ends itself by SIGINT
    # whatever the exit status, unless other such code ran since.
    eval("0")
    interrupts.finish()
    sys.exit(status if isinstance(status, int) else 0)


def _failed(error: BaseException) -> int:
    """Print what ended the command. Returns the exit status; raises what no user can fix."""
    status = 1
    # As libraries say it: for arrays, threads, their own code.
    if isinstance(error, MemoryError) or re.search("start new thread|map segment|Cannot allocate", str(error)):
        text = "fiprof: memory does not suffice: allow more (ulimit -v, the limit of the job); the least is 1 GiB"
    elif isinstance(error, OSError) and not (error.errno == errno.EIO and interrupts.received):
        # What is still to be written to stdout goes nowhere, and no second attempt fails at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            # The reader went away (… | head): no error.
            return 0
        from fiprof.files import FULL, refusal

        if error.errno is not None and (not error.filename or error.errno in (*FULL, errno.EFBIG)):
            text = f"fiprof: {refusal(error, error.filename or 'standard output', 'write to another disk')}"
        else:
            text = f"fiprof: {error.filename}: {error.strerror}" if error.filename else f"fiprof: {error}"
    elif isinstance(error, click.ClickException):
        from fiprof.text import escape_control

        shown = io.StringIO()
        error.message = escape_control(error.message)  # type: ignore[misc]  # words may hold line ends
        error.show(shown)
        text, status = shown.getvalue().rstrip("\n").expandtabs(2), error.exit_code
    # What an interrupt cuts short may fail in a way of its own: an import, or writing to a terminal that is gone.
    elif isinstance(error, KeyboardInterrupt | click.Abort | OSError) or interrupts.raised:
        text, status = "fiprof: interrupted", 128 + (interrupts.received or signal.SIGINT)
    elif isinstance(error, FiprofError):
        ended = error.exit_code == INTERRUPTED_EXIT
        text, status = f"fiprof: {error_text(error)}", 128 + interrupts.received if ended else error.exit_code
    else:
        raise error
    try:
        output.message(text)
    except OSError:
        # There is none, or its terminal is gone: Python's own attempt at exit would make the status 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return status


def _ask_again(unraisable: sys.UnraisableHookArgs) -> None:
    """A KeyboardInterrupt that came in the middle of a finalizer was lost; anything else is printed as ever."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import threading

    threading.Timer(0.05, os.kill, (os.getpid(), interrupts.received)).start()
