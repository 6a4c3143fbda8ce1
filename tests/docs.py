"""The pages of docs/ that are made from the code and the tests: what stands before the first row or section of a page is
written by hand, and stays. ``python -m tests.docs`` writes the rest anew; ``… notebook`` the notebook's outputs.

A test that injects a fault says so with ``@pytest.mark.fault("what is done", "what happens")``, once a fault; in a
parametrized test ``pytest.param(…, marks=pytest.mark.fault(…))`` does the same.
"""

import ast
import importlib
import os
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import fiprof
from fiprof.analysis.frames import Column
from fiprof.cli.main import cli
from fiprof.model.case_quantities import KEYS
from fiprof.model.quantities import METRICS, Key, Quantity
from fiprof.model.tables import OPEN_ENDED, TABLES

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
NOTEBOOK = DOCS / "notebook.ipynb"
NOTEBOOKS_RUN = "artifacts/recorded/20261121-120959-all"
ROWS = "| --- |\n"
"""What ends a page's table head."""

MODULES = "workloads. __main__ model. flashinfer analysis.study reports.study reports.run_report"
ELSEWHERE = tuple(f"fiprof.{name}" for name in MODULES.split())
"""Modules without columns, and those whose tables are documents that no command prints as JSON."""


def columns(value: object) -> Iterator[Column]:
    """The columns in a value of a module: itself, or those in its items."""
    if isinstance(value, Column):
        yield value
    elif isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from columns(each)


def documented() -> dict[str, Key]:
    """Every key that is documented: KEYS, and the columns that a module declares with a meaning."""
    found = dict(KEYS)
    for module in pkgutil.walk_packages(fiprof.__path__, "fiprof."):
        if not module.name.startswith(ELSEWHERE):
            for value in vars(importlib.import_module(module.name)).values():
                for each in columns(value):
                    if each.key and each.meaning:
                        found.setdefault(each.key, Key(each.key, each.unit, each.meaning))
    return found


def keys() -> str:
    """Every key of the JSON output, from the quantities."""
    names = {metric.name: metric.ncu[0] for metric in METRICS}
    # No two alike, and such that the usual way of a formula that has several is written.
    every, rows = {name: 1e6 - place for place, name in enumerate(names)}, []
    every |= {"sm_active_cycles_max": 1.0, "l2_to_sm_pct": 2e6}
    for key in documented().values():
        found = key.formula.evaluate(every, names.__getitem__) if isinstance(key, Quantity) else None
        formula = found[1] if found else ""
        rows.append(f"| `{key.key}` | {key.unit} | {key.meaning} | {f'`{formula}`' if formula else ''} |")
    return "\n".join(rows) + "\n"


def context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """In which a command's help is written, with the names of the program's help option."""
    names = cli.context_settings["help_option_names"]
    return click.Context(command, parent, name, terminal_width=100, max_content_width=100, help_option_names=names)


def commands() -> str:
    """What ``--help`` says of every command."""
    top = context(cli, "fiprof", None)
    return "\n".join([f"{cli.get_help(top)}\n```\n", *_sections(cli, top, "##")])


def _sections(group: click.Group, parent: click.Context, level: str) -> Iterator[str]:
    """What the help of each command of a group says, and that of its subcommands below it."""
    for name in group.commands or group.list_commands(parent):
        if command := group.get_command(parent, name):
            ctx = context(command, name, parent)
            yield f"{level} {ctx.command_path}\n\n```text\n{command.get_help(ctx)}\n```\n"
            if isinstance(command, click.Group):
                yield from _sections(command, ctx, f"{level}#")


def run_folder() -> str:
    """What lies in a run folder, and every table."""
    parts = list[str]()
    for name, table in TABLES.items():
        rows = [f"| `{column.name}` | {column.kind} | {column.doc.replace('|', ' ')} |\n" for column in table.columns]
        head = "| column | type | what |\n| --- | --- | --- |\n"
        parts.append(f"## {name}\n\nA row: {table.row}.\n\n{head}{''.join(rows)}")
        if name == OPEN_ENDED:
            metrics = [f"| `{metric.name}` | `{metric.ncu[0]}` |\n" for metric in METRICS]
            head = "| column | ncu's metric |\n| --- | --- |\n"
            parts.append(f"Further columns, one a metric of ncu:\n\n{head}{''.join(metrics)}")
    return "\n".join(parts).removeprefix("## ")


def marked() -> Iterator[tuple[str, str, str]]:
    """What is done, what happens and the test's name, for each mark in the order of the files.

    Raises ValueError for a mark that has anything but two texts without a line break or a bar.
    """
    for path in sorted(TESTS.glob("test_*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for test in (each for each in body if isinstance(each, ast.FunctionDef)):
            for call in (each for decorator in test.decorator_list for each in ast.walk(decorator)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault":
                    texts = [ast.literal_eval(argument) for argument in call.args]
                    if len(texts) != 2 or call.keywords or any(set("|\n") & set(text) for text in texts):
                        raise ValueError(f"{path.name}:{call.lineno}: a fault is two texts on one line without a bar")
                    yield texts[0], texts[1], f"{path.name}::{test.name}"


def faults() -> str:
    """What was done to fiprof and what happened, from the tests."""
    return "".join(f"| {done} | {happens} | `{test}` |\n" for done, happens, test in marked())


PAGES = {"keys": (ROWS, keys), "commands": ("```text\n", commands), "run-folder": ("\n## ", run_folder), "faults": (ROWS, faults)}  # fmt: skip
"""Page -> what its head ends with, and what follows."""


def made(page: str) -> tuple[Path, str]:
    """A page of docs/, with its head as it is and the rest anew."""
    path, (end, rest) = DOCS / f"{page}.md", PAGES[page]
    return path, "".join((*path.read_text(encoding="utf-8").partition(end)[:2], rest()))


def executed(folder: Path) -> Any:
    """The notebook with the outputs of now. folder: an empty one, for a copy of the run: opening it makes its tables."""
    import nbformat
    from nbclient import NotebookClient

    (folder / "docs").mkdir()
    shutil.copytree(DOCS.parent / NOTEBOOKS_RUN, folder / NOTEBOOKS_RUN, ignore=shutil.ignore_patterns("tables"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent), "NO_COLOR": "1"}
    resources = {"metadata": {"path": str(folder / "docs")}}
    NotebookClient(notebook, timeout=300, resources=resources, record_timing=False).execute(env=environment)
    return notebook


def outputs(notebook: Any) -> list[str]:
    """What each cell shows as text, without what a version of a library may write differently."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return ["".join(each.get("text") or each.get("data", {}).get("text/plain", "")) for each in found]


if __name__ == "__main__":
    os.environ.pop("FIPROF_ARTIFACTS", None)
    if sys.argv[1:] == ["notebook"]:
        import nbformat

        with tempfile.TemporaryDirectory() as temporary:
            anew = executed(Path(temporary))
        anew.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(anew, NOTEBOOK)
    else:
        for each in PAGES:
            page, text = made(each)
            page.write_text(text, encoding="utf-8")
