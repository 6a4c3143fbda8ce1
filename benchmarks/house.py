"""How large the house is, and how far a command walks through it.

Lines, files, functions per 1,000 code lines (without blanks, imports, docstrings and comments), dataclasses by room;
then the files and functions of fiprof that ``stalls``, ``show`` and ``report`` of the recorded run pass through
(sys.setprofile; what imports run is left out). ``--bounds`` ends with 1 where the package is larger than it may be.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fiprof"
RUN = ROOT / "artifacts/recorded/20261121-120959-all"
ROOMS = ("workloads", "orchestrator", "parsers", "model", "analysis", "reports", "flashinfer", "cli", "")
BOUNDS = {"package lines": 32_000, "package files": 200, "templates and TOML": 2_000, "test lines": 15_500}


@dataclass
class Size:
    """What a part of the house has."""

    lines: int = 0
    files: int = 0
    code: int = 0
    functions: int = 0
    dataclasses: int = 0

    def add(self, text: str) -> None:
        """Count one file's text."""
        tree = ast.parse(text)
        self.lines += text.count("\n")
        self.files += 1
        self.code += len(code_lines(text, tree))
        for node in ast.walk(tree):
            self.functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            self.dataclasses += isinstance(node, ast.ClassDef) and any(
                "dataclass" in ast.unparse(each) for each in node.decorator_list
            )


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """The lines that hold code: no blank, import, docstring or comment alone."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in skipped for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        alone = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if alone or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def tracked(pattern: str) -> Iterator[Path]:
    """Files that git knows, in the working tree."""
    named = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    yield from (path for line in named.splitlines() if (path := ROOT / line).is_file() and not path.is_symlink())


def sizes() -> dict[str, Size]:
    """Room -> its size; ``""`` is what stands beside the rooms."""
    found = {room: Size() for room in ROOMS}
    for path in tracked("fiprof/*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        found[room if room in found else ""].add(path.read_text(encoding="utf-8"))
    return found


def walk(*argv: str) -> tuple[int, int]:
    """Files and functions of fiprof that a command passes through."""
    from click.testing import CliRunner

    sys.path.insert(0, str(ROOT))  # this tree's, whichever is installed
    from fiprof.cli.main import cli

    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))

    assert CliRunner().invoke(cli, argv).exit_code == 0  # once, so that modules are imported and tables made
    sys.setprofile(note)
    try:
        CliRunner().invoke(cli, argv)
    finally:
        sys.setprofile(None)
    return len({file for file, _ in seen}), len(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bounds", action="store_true", help="end with 1 where the house is larger than it may be")
    parser.add_argument("--walks", action="store_true", help="also walk through stalls, show and report")
    options = parser.parse_args()
    found = sizes()
    print(f"{'':14}{'lines':>8}{'files':>7}{'functions/1,000':>17}{'dataclasses':>13}")
    whole = Size()
    for room, size in found.items():
        for name in ("lines", "files", "code", "functions", "dataclasses"):
            setattr(whole, name, getattr(whole, name) + getattr(size, name))
        print(f"{room or '(beside)':14}{_row(size)}")
    print(f"{'package':14}{_row(whole)}")
    beside = [path for suffix in ("toml", "j2", "css", "js") for path in tracked(f"fiprof/**/*.{suffix}")]
    templates = sum(path.read_text(encoding="utf-8").count("\n") for path in beside)
    tests = sum(path.read_text(encoding="utf-8").count("\n") for path in tracked("tests/*.py"))
    print(f"templates and TOML {templates:,} lines, tests {tests:,}")
    if options.walks:
        with tempfile.TemporaryDirectory() as out:
            for command, *more in (("stalls",), ("show",), ("report", "--out", out)):
                files, functions = walk(command, str(RUN), *more)
                print(f"{command}: through {files} files, {functions} functions")
    values = (whole.lines, whole.files, templates, tests)
    over = [
        f"{name}: {value:,} of {BOUNDS[name]:,}"
        for name, value in zip(BOUNDS, values, strict=True)
        if value > BOUNDS[name]
    ]
    print("over the bound: " + "; ".join(over) if over else "within the bounds")
    sys.exit(bool(over) and options.bounds)


def _row(size: Size) -> str:
    rate = 1000 * size.functions / max(1, size.code)
    return f"{size.lines:8,}{size.files:7}{rate:17.0f}{size.dataclasses:13}"


if __name__ == "__main__":
    main()
