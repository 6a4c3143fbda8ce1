"""The listings of README.md and docs/examples are what the commands print. ``python -m tests.transcripts`` writes them anew.

A listing begins with ``$ fiprof …``. A line ``…`` stands for any lines: as many stay before and after it as there were.
"""

import re
import shlex
import sys
import tempfile
from pathlib import Path

from tests.conftest import REPOSITORY, run_fiprof
from tests.recorded_runs import RUNS, copied

PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs/examples").glob("0*.md")))
COLUMNS = "100"
RECORDED = Path("artifacts/recorded")
LEFT_OUT = "…"
NOT_RUN = ("fiprof collect", "fiprof study", "pip ")
"""Commands that need a GPU or a network; with --dry-run they are run."""


def commands(page: str) -> list[str]:
    """What a page's listings run."""
    return re.findall(r"^\$ (.*)$", page, re.MULTILINE)


def filled(page: str, folder: Path) -> str:
    """The page with what its commands print, run one after the other in the folder."""

    def listing(match: re.Match[str]) -> str:
        parts = re.split(r"^\$ ", match[2], flags=re.MULTILINE)
        blank = "\n" if "\n\n$ " in match[2] else ""
        shown = [f"$ {_transcript(part, folder)}" for part in parts[1:]]
        return match[1] + f"{blank}".join([parts[0], *shown]).removeprefix(blank) + "```"

    return re.sub(r"(^```(?:console)?\n)(\$ .*?)^```", listing, page, flags=re.MULTILINE | re.DOTALL)


def _transcript(part: str, folder: Path) -> str:
    command, _, was = part.partition("\n")
    if command.startswith(NOT_RUN) and "--dry-run" not in command:
        return f"{command}\n{was.strip()}\n" if was.strip() else f"{command}\n"
    program, *arguments = shlex.split(command)
    assert program == "fiprof", command
    for name, path in RUNS.items():
        if any(path.name in argument for argument in arguments) and not (folder / RECORDED / path.name).exists():
            copied(name, (folder / RECORDED / path.name).parent)
    done = run_fiprof(*arguments, cwd=folder, env={"COLUMNS": COLUMNS})
    assert done.returncode == 0, (command, done.stderr)
    lines, kept = done.stdout.replace(sys.executable, "python").strip("\n").splitlines(), was.strip("\n").splitlines()
    if LEFT_OUT in kept:
        first = kept.index(LEFT_OUT)
        last = len(kept) - first - 1
        if first + last < len(lines):
            lines = [*lines[:first], LEFT_OUT, *(lines[-last:] if last else ())]
    return "\n".join([command, *lines]) + "\n"


def main() -> None:
    for path in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(filled(path.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
