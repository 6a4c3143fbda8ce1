"""What a study says of just-in-time compilation: first calls, where their time goes, modules."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.study import Study
from fiprof.flashinfer.results import JIT, JitCall, JitModule, JitPhase, JitResults
from fiprof.model.results import RESULTS, read
from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Section, Table, Text
from fiprof.reports.study_pages.numbers import bytes_, duration, spread
from fiprof.reports.view import Column, view_of
from fiprof.text import count, join_words


@dataclass(frozen=True)
class CallRow:
    """A first call."""

    case: str
    cold_s: float | None
    disk_s: float | None
    memory_us: float | None
    modules: int


_CALLS = (
    Column("case", "first call of"),
    Column("cold_s", "empty cache", unit="s", spec=",.2f"),
    Column("disk_s", "cache on disk", unit="s", spec=",.3f"),
    Column("memory_us", "in memory", unit="µs", spec=",.1f"),
    Column("modules", "modules"),
)


@dataclass(frozen=True)
class ModuleRow:
    """A module of the cache."""

    name: str
    compile_s: float | None
    mb: float
    sources: int
    note: str


_MODULES = (
    Column("name", "module"),
    Column("compile_s", "compiled in", unit="s", spec=",.1f"),
    Column("mb", "size", unit="MB", spec=",.2f"),
    Column("sources", "sources"),
    Column("note", "note"),
)


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


def section(jit: JitResults) -> Section:
    """First calls, their phases, the modules, and what to run before a server starts."""
    lines = [text for text in (phases_sentence(jit.calls), _modules_sentence(jit.modules, jit.cache_bytes)) if text]
    blocks: list[Block] = [Caution(warning) for warning in jit.warnings]
    blocks += [Caution(f"{call_name(jit.calls, call)}: not measured: {call.error}") for call in jit.calls if call.error]
    blocks.append(Bullets(tuple(Text((line,)) for line in lines)))
    calls = [
        CallRow(
            call_name(jit.calls, call),
            call.cold_s,
            call.disk_s,
            None if call.memory_s is None else call.memory_s * 1e6,
            len(call.modules),
        )
        for call in jit.calls
        if not call.error
    ]
    notes = (
        "empty cache: generate, compile, link, load and launch; cache on disk: the same call in a new process; "
        "in memory: again in the same process. One measurement each; importing torch and the library is in none.",
    )
    blocks.append(Table(view_of(_CALLS, calls, title="First calls", notes=notes), "jit-calls"))
    blocks.append(Table(view_of(_MODULES, map(_module, jit.modules), title="Modules"), "jit-modules", appendix=True))
    if jit.warm_up:
        took = "" if jit.warm_up_s is None else f", which took {duration(jit.warm_up_s * 1e6)} here with an empty cache"
        blocks += [Text((f"Before a server starts{took}:",)), Code("\n".join(map(readable, jit.warm_up)))]
    return Section("jit", "Just-in-time compilation", tuple(blocks))


def call_name(calls: Sequence[JitCall], call: JitCall) -> str:
    """The case by what tells it from the workload's other cases: ``prefill backend=fa3``, ``rope``."""
    name, values = _case(call.case)
    others = [params for other in calls for found, params in [_case(other.case)] if found == name and other is not call]
    told = [f"{key}={value}" for key, value in values.items() if any(o.get(key) != value for o in others)]
    return " ".join([name, *told])


def _case(case: str) -> tuple[str, dict[str, str]]:
    """Workload and parameters of a case's id."""
    name, _, rest = case.partition("[")
    return name, dict(part.partition("=")[::2] for part in rest.removesuffix("]").split(",") if part)


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


def _module(module: JitModule) -> ModuleRow:
    note = "compiled ahead, by an installed package" if module.compiled_ahead else ""
    return ModuleRow(module.name, module.compile_s, module.bytes / 1e6, len(module.sources), note)


LEAST_PART = 0.001
"""Phases that took less of the whole are named together."""


def phases_sentence(calls: Sequence[JitCall]) -> str:
    """Where the cold calls' time went, all of them together; empty where nothing was traced."""
    totals: dict[str, float] = {}
    for call in calls:
        for phase in call.phases:
            totals[phase.name] = totals.get(phase.name, 0.0) + phase.seconds
    whole = sum(totals.values())
    if not whole:
        return ""
    parts = [
        f"{name} {duration(seconds * 1e6)} ({seconds / whole:.1%})"
        for name, seconds in sorted(totals.items(), key=lambda item: -item[1])
        if seconds / whole >= LEAST_PART
    ]
    small = sorted((name for name, seconds in totals.items() if seconds / whole < LEAST_PART), key=lambda n: -totals[n])
    rest = f"; {join_words(small)} less than {LEAST_PART:.1%} each" if small else ""
    traced = sum(bool(call.phases) for call in calls)
    return f"Where the {duration(whole * 1e6)} of {count(traced, 'cold first call')} went: {', '.join(parts)}{rest}."


def longest(phases: Sequence[JitPhase]) -> JitPhase | None:
    """The phase that took most time."""
    return max(phases, key=lambda phase: phase.seconds, default=None)


def _modules_sentence(modules: Sequence[JitModule], cache_bytes: int) -> str:
    compiled = [module.compile_s for module in modules if module.compile_s is not None]
    if not modules:
        return ""
    words = f"{count(len(modules), 'module')}, {bytes_(cache_bytes)} of cache in all"
    return words + (f"; compiled in {spread(compiled)} s each." if compiled else ".")
