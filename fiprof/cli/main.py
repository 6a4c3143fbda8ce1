"""The command line: finds the command, prints an error once, sets the exit status.

0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

import fiprof
import fiprof.cli.commands
from fiprof.errors import INTERRUPTED_EXIT, FiprofError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


GROUP = "fiprof.commands"
"""Entry points of commands that packs bring: name -> click command."""


class Commands(click.Group):
    """The modules of ``fiprof.cli.commands``, and what packs bring; one is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted({*_own(), *(point.name for point in _brought())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _own():
            command = importlib.import_module(f"fiprof.cli.commands.{cmd_name}").command
            assert isinstance(command, click.Command)
            return command
        return next((point.load() for point in _brought() if point.name == cmd_name), None)


def _own() -> list[str]:
    """fiprof's own commands."""
    files = os.listdir(fiprof.cli.commands.__path__[0])
    return [name.removesuffix(".py") for name in files if name.endswith(".py") and name[0] != "_"]


def _brought() -> EntryPoints:
    """Commands that packs bring; only the list of commands and unknown names need to look for them."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: fiprof collect --kernel prefill && fiprof stalls latest",
)
@click.version_option(fiprof.__version__, prog_name="fiprof")
def cli() -> None:
    """Run GPU kernels under Nsight Systems and Nsight Compute, archive what they saw, and read it."""


def main() -> None:
    """The entry point of ``fiprof``."""
    try:
        status = cli.main(standalone_mode=False)
    except FiprofError as error:
        click.echo(f"fiprof: {error}", err=True)
        status = error.exit_code
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("fiprof: interrupted", err=True)
        status = INTERRUPTED_EXIT
    except BrokenPipeError:
        # The reader went away (… | head): no error.
        _discard_output()
        status = 0
    except OSError as error:
        click.echo(f"fiprof: {error.filename or 'the output cannot be written'}: {error.strerror}", err=True)
        _discard_output()
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _discard_output() -> None:
    """What is still to be written to stdout goes nowhere, and no second attempt fails at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
