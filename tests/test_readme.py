"""The README: what it shows is what the commands print, and what it links to is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Fiprof
from tests.recorded_runs import RUNS, copied

README = REPOSITORY / "README.md"
COLUMNS = "110"
LEFT_OUT = "…"
"""A line of its own: any lines."""


def transcripts() -> Iterator[tuple[str, str]]:
    """Each command of a listing with what stands below it."""
    for block in re.findall(r"^```\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.strip("\n")


SHOWN = [each for each in transcripts() if not each[0].startswith(("fiprof collect", "fiprof study"))]


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_listings_are_what_the_commands_print(command: str, output: str, fiprof: Fiprof, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "fiprof"
    run = tmp_path / arguments[1]
    copied(next(name for name, path in RUNS.items() if path.name == run.name), run.parent)
    done = fiprof(*arguments, env={"COLUMNS": COLUMNS})
    assert done.returncode == 0, done.stderr
    pattern = "\n".join(".*" if line == LEFT_OUT else re.escape(line) for line in output.splitlines())
    assert re.fullmatch(pattern, done.stdout.strip("\n"), re.DOTALL), done.stdout


def test_there_are_listings() -> None:
    assert {command.split()[1] for command, _ in SHOWN} >= {"verdict", "stalls"}


def test_what_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text())
    assert len(links) > 10
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
