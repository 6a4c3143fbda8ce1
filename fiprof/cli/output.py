"""The one place that prints: whatever stands in a run, a log or a name, a terminal gets text and never obeys it."""

import os
import re
import sys

import click

from fiprof.text import INDENT, escape_lines, wrap

_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")  # an escape that colours what follows


def data(text: str, *, styled: bool = False) -> None:
    """Print a result on stdout. styled: its colours are fiprof's own and stay; other text in it is escaped already."""
    pieces = _STYLE.split(text) if styled else [text]
    pieces[::2] = map(escape_lines, pieces[::2])
    click.echo("".join(pieces), color=styled)


def message(text: str) -> None:
    """Print what a person should know on stderr, wrapped where that is a terminal."""
    if sys.stderr.isatty():
        import shutil

        width = max(shutil.get_terminal_size().columns, 20)
        text = "\n".join(
            INDENT * line.startswith(INDENT) + wrapped
            for line in escape_lines(text).split("\n")
            for wrapped in wrap(line.strip(), width - len(INDENT)) or [""]
        )
    click.echo(escape_lines(text), err=True)


def open_streams() -> None:
    """Have stdout and stderr take every character and write every byte, also where the shell closed them.

    What the encoding lacks is replaced. Without a buffer (PYTHONUNBUFFERED) Python drops what a full disk did not
    take, and ends well.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    for name, descriptor, errors in (("stdout", 1, "replace"), ("stderr", 2, "backslashreplace")):
        stream = getattr(sys, name)
        encoding = stream.encoding if stream else None
        setattr(sys, name, open(descriptor, "w", encoding=encoding, errors=errors, closefd=False))  # noqa: SIM115
