"""What a study says of just-in-time compilation: first calls, where their time goes, modules."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence

from fiprof.analysis.study import Study
from fiprof.flashinfer.jit.report import calls_view, modules_view, seconds, sentences
from fiprof.flashinfer.results import JIT, JitResults
from fiprof.model.results import RESULTS, read
from fiprof.reports.pages.page import Block, Caution, Code, Section, Table, Text, bullets
from fiprof.text import count, join_words


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


def compiled(study: Study, workload: str) -> list[str]:
    """The modules that first calls of a workload compiled or loaded, with their sources."""
    found = load(study)
    if found is None:
        return []
    wanted = dict.fromkeys(
        name for call in found.calls if call.case.partition("[")[0] == workload for name in call.modules
    )
    modules = {module.name: module for module in found.modules}
    return [
        f"module {name}: {_files(name, modules[name].sources)}"
        + (f"; made by {modules[name].generator}" if modules[name].generator else "")
        for name in wanted
        if name in modules
    ]


def _files(module: str, files: Sequence[str]) -> str:
    """A module's sources; the folder of the generated ones, which has the module's name, is said once."""
    folder = f"generated/{module}/"
    made = [file.removeprefix(folder) for file in files if file.startswith(folder)]
    kept = [file for file in files if not file.startswith(folder)]
    parts = [join_words(kept), f"generated in a folder of its name: {join_words(made)}" if made else ""]
    return "; ".join(filter(None, parts)) or "sources not known"


def sections(study: Study) -> list[Section]:
    """Just-in-time compilation, where the study has it."""
    results = load(study)
    return [section(results)] if results else []


def section(results: JitResults) -> Section:
    """First calls, their phases, the modules, and what to run before a server starts."""
    blocks: list[Block] = [Caution(warning) for warning in results.warnings]
    blocks.append(bullets(sentences(results)))
    blocks.append(Table(calls_view(results), "jit-calls"))
    if results.modules:
        blocks.append(Table(modules_view(results), "jit-modules", appendix=True))
    if results.warm_up:
        took = "" if results.warm_up_s is None else f", which took {seconds(results.warm_up_s)} with an empty cache"
        blocks += [Text((f"Before a server starts{took}:",)), Code("\n".join(map(readable, results.warm_up)))]
    return Section("jit", "Just-in-time compilation", tuple(blocks))


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
                text = text.replace(", ".join(items), "\n" + "".join(f"    {item},\n" for item in items))
        lines.append(text)
    return "\n".join([f"{shlex.quote(words[0])} - <<'END'", *lines, "END"])
