"""The command line: finds the command, prints an error once, sets the exit status.

0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys

import click

import fiprof
import fiprof.cli.commands
from fiprof.cli import output
from fiprof.errors import INTERRUPTED_EXIT, FiprofError

GROUP = "fiprof.commands"
"""Entry points of commands that packs bring: name -> click command."""


class Commands(click.Group):
    """The modules of ``fiprof.cli.commands``, and what packs bring; one is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted({*_own(), *_brought()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        value = f"fiprof.cli.commands.{cmd_name}:command" if cmd_name in _own() else _brought().get(cmd_name)
        if value is None:
            return None
        module, _, attribute = value.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise FiprofError(
                f"the command {cmd_name} ({value}) cannot be imported: {error}",
                "mend or uninstall the package that brings it",
            ) from error
        assert isinstance(command, click.Command)
        return command


def _own() -> list[str]:
    """fiprof's own commands."""
    files = os.listdir(fiprof.cli.commands.__path__[0])
    return [name.removesuffix(".py") for name in files if name.endswith(".py") and name[0] != "_"]


def _brought() -> dict[str, str]:
    """Name -> ``module:attribute`` of commands that packs bring, first on the path first.

    As importlib.metadata finds them; importing that alone would make ``--help`` a quarter slower.
    """
    found: dict[str, str] = {}
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
                            found.setdefault(command.strip(), value.strip())
    return found


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: fiprof collect --kernel prefill && fiprof stalls latest",
)
@click.version_option(fiprof.__version__, prog_name="fiprof")
def cli() -> None:
    """Run GPU kernels under Nsight Systems and Nsight Compute, archive what they saw, and read it."""


def said(error: FiprofError) -> str:
    """An error as people read it, with why in words."""
    if error.why is None:
        return str(error)
    from fiprof.reports.words import worded

    return str(FiprofError(f"{error.message}: {worded(error.why)}", error.remedy))  # type: ignore[arg-type]


def main() -> None:
    """The entry point of ``fiprof``."""
    output.open_streams()
    try:
        status = cli.main(standalone_mode=False)
    except FiprofError as error:
        output.message(f"fiprof: {said(error)}")
        status = error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        output.message(shown.getvalue().rstrip("\n"))
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.message("fiprof: interrupted")
        status = INTERRUPTED_EXIT
    except BrokenPipeError:
        # The reader went away (… | head): no error.
        _discard_output()
        status = 0
    except OSError as error:
        output.message(f"fiprof: {error.filename or 'the output cannot be written'}: {error.strerror}")
        _discard_output()
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _discard_output() -> None:
    """What is still to be written to stdout goes nowhere, and no second attempt fails at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
