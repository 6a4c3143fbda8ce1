"""docs/commands.md: what ``--help`` says of every command. ``python -m tests.docs_commands`` writes it anew."""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from fiprof.cli.main import cli

PAGE = Path(__file__).parents[1] / "docs/commands.md"
WIDTH = 100

HEAD = """# Commands

What `--help` prints. RUN is a path, a name, the beginning of one, or `latest`.
"""


def context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """In which a command's help is written, with the names of the program's help option."""
    names = cli.context_settings["help_option_names"]
    return click.Context(command, parent, name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=names)


def page() -> str:
    """The page as the commands have it."""
    top = context(cli, "fiprof", None)
    parts = [HEAD, f"```text\n{cli.get_help(top)}\n```\n"]
    for name in sorted(cli.list_commands(top)):
        command = cli.get_command(top, name)
        assert command is not None
        parts += _sections(command, context(command, name, top), "##")
    return "\n".join(parts)


def _sections(command: click.Command, ctx: click.Context, level: str) -> Iterator[str]:
    """What a command's help says, and that of its subcommands below it."""
    yield f"{level} {ctx.command_path}\n\n```text\n{command.get_help(ctx)}\n```\n"
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _sections(each, context(each, name, ctx), f"{level}#")


if __name__ == "__main__":
    os.environ.pop("FIPROF_ARTIFACTS", None)
    PAGE.write_text(page(), encoding="utf-8")
