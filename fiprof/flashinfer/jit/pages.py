"""What a study says of just-in-time compilation: first calls, where their time goes, modules."""

from __future__ import annotations

import ast
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence

from fiprof.analysis.study import Study
from fiprof.flashinfer.data import guide as data
from fiprof.flashinfer.jit.report import calls_view, modules_view, sentences
from fiprof.flashinfer.results import JIT, JitResults, SourceResults
from fiprof.flashinfer.source_map import JIT as JIT_TOPIC
from fiprof.flashinfer.sources.pages import at, jit_places, tree
from fiprof.model.results import RESULTS, read
from fiprof.reports.pages.page import Block, Caution, Code, Section, Table, Text, bullets
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import count, shorten

MODULE_CELLS = 44
"""Cells of a module's name in the tree of the cache."""


def load(study: Study) -> JitResults | None:
    """A study's results; None where compilation was not studied. Raises FiprofError for a damaged file."""
    path = study.folder / RESULTS / JIT
    return read(path, JitResults) if path.is_file() else None


def files(study: Study) -> list[tuple[str, str, int | None]]:
    """The file, if there is one."""
    found = load(study)
    if found is None:
        return []
    what = f"compilation: {count(len(found.calls), 'first call')}, {count(len(found.modules), 'module')}"
    return [(JIT, what, len(found.calls))]


def sections(study: Study) -> list[Section]:
    """Just-in-time compilation, where the study has it."""
    results = load(study)
    return [section(results)] if results else []


def section(results: JitResults) -> Section:
    """First calls, their phases, and the modules."""
    blocks: list[Block] = [bullets(sentences(results)), Table(calls_view(results), "jit-calls")]
    if results.modules:
        blocks.append(Table(modules_view(results), "jit-modules", appendix=True))
    return Section("jit", "Just-in-time compilation", (*blocks, *map(Caution, results.warnings)))


# The developers' guide


def guide(study: Study, found: SourceResults | None) -> list[Section]:
    """How a module comes about, where it lies, what changes that, and how to fill the cache before serving."""
    results = load(study)
    places_tree = tree(found, [JIT_TOPIC]) if found is not None and jit_places(found, "step") else ""
    blocks: list[Block] = [Table(_steps(found), "jit-steps")]
    if places_tree:
        blocks.append(Code(places_tree, "text"))
    if results and results.cache_layout:
        blocks.append(Code(cache_tree(results.cache_layout), "text"))
    if places := jit_places(found, "variable"):
        rows = tuple((name, data("jit")["variables"].get(name, "–"), at(place)) for name, place in places.items())
        columns = (Column("variable", "variable"), Column("does", "what it does", wrap=True), Column("at", "read at"))
        blocks.append(Table(View(columns, rows, title="Variables of the environment"), "jit-variables"))
    if results and results.warm_up:
        blocks += [Text((phrase("jit.before_serving"),)), warm_up(results)]
    return [Section("jit", "Just-in-time compilation", tuple(blocks))]


def warm_up(results: JitResults) -> Code:
    """The commands that fill the cache."""
    return Code("\n".join(map(readable, results.warm_up)))


def _steps(found: SourceResults | None) -> View:
    """The steps, with the functions that do them."""
    places = jit_places(found, "step")
    rows = []
    for each in data("jit")["steps"]:
        place = places.get(each["at"].rpartition(".")[2])
        rows.append((each["step"], each["what"], f"{place.name}, {at(place)}" if place else "–"))
    columns = (
        Column("step", "step"),
        Column("what", "what happens", wrap=True),
        Column("at", "function"),
    )
    return View(columns, tuple(rows), title="From the call to the kernel")


def cache_tree(layout: Sequence[str]) -> str:
    """The cache's folders as a tree; a module's folder in a line, with what lies in it."""
    folders: dict[str, list[str]] = {}
    for path in layout:
        folder, _, name = path.rstrip("/").rpartition("/")
        if not path.endswith("/"):
            folders.setdefault(folder, []).append(name)
    lines: list[str] = []
    above: list[str] = []
    for folder in sorted(folders):
        parts = folder.split("/")
        shared = next((i for i, (one, other) in enumerate(zip(parts, above, strict=False)) if one != other), len(above))
        lines += [f"{'  ' * depth}{parts[depth]}/" for depth in range(shared, len(parts) - 1)]
        lines.append(f"{'  ' * (len(parts) - 1)}{shorten(parts[-1], MODULE_CELLS)}/  {_content(folders[folder])}")
        above = parts
    return "\n".join(lines)


def _content(names: Sequence[str]) -> str:
    """``build.ninja, 3 .o``: what ninja keeps for itself is left out."""
    counted = Counter(f".{name.rpartition('.')[2]}" for name in names if not name.startswith("."))
    return ", ".join(f"{n} {kind}" for kind, n in counted.items())


LONG_STATEMENT = 90


def readable(command: str) -> str:
    """A ``python -c`` with a statement a line, and an element a line where a list is long; others as they are."""
    words = shlex.split(command)
    if len(words) != 3 or words[1] != "-c":
        return command
    try:
        statements = ast.parse(words[2]).body
    except SyntaxError:
        return command
    lines = []
    for statement in statements:
        text = ast.unparse(statement)
        if len(text) > LONG_STATEMENT:
            for found in (node for node in ast.walk(statement) if isinstance(node, ast.List)):
                items = [ast.unparse(item) for item in found.elts]
                lists = ("\n".join(textwrap.wrap(item, LONG_STATEMENT, subsequent_indent="        ")) for item in items)
                text = text.replace(", ".join(items), "\n" + "".join(f"    {item},\n" for item in lists))
        lines.append(text)
    return "\n".join([f"{shlex.quote(words[0])} - <<'END'", *lines, "END"])
