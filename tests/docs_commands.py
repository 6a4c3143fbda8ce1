"""docs/commands.md: what ``--help`` says of every command. ``python -m tests.docs_commands`` writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fiprof.cli.main import cli

PAGE = Path(__file__).parents[1] / "docs/commands.md"
WIDTH = 100

HEAD = """# Commands

What `--help` prints. RUN is a path, a name, the beginning of one, or `latest`.
"""


def page() -> str:
    """The page as the commands have it."""
    top = click.Context(cli, info_name="fiprof", terminal_width=WIDTH, max_content_width=WIDTH)
    parts = [HEAD, f"```text\n{cli.get_help(top)}\n```\n"]
    for name in sorted(cli.list_commands(top)):
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, parent=top, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
        parts.append(f"## fiprof {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    os.environ.pop("FIPROF_ARTIFACTS", None)
    PAGE.write_text(page(), encoding="utf-8")
