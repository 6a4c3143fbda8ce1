"""``fiprof jit``: what just-in-time compilation costs, where its time goes, and what a server should warm up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fiprof.flashinfer.results import JitCall, JitModule, JitPhase, JitResults
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.reports.study_pages.numbers import duration
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import count, join_words

PHASES = ("generate", "compile", "link", "load", "other", "launch")
LEAST_PART = 0.001
"""Phases that took less of the whole are named together."""
SLOWEST_DOMINATES = 0.8
"""Of a module's compile time: when its slowest source takes this much, more cores hardly help."""
CACHE_DEPTH = 5
"""Levels of folders of the cache that are shown: those below are the modules'."""
LOG_LINES = 10


@dataclass(frozen=True)
class CallRow:
    """A case's first call in three states, seconds."""

    case: str
    label: str
    cold_s: float | None
    disk_s: float | None
    memory_s: float | None
    generate_s: float | None
    """These six sum to cold_s."""
    compile_s: float | None
    link_s: float | None
    load_s: float | None
    other_s: float | None
    launch_s: float | None
    modules: tuple[str, ...]
    error: str

    @property
    def memory_ms(self) -> float | None:
        return None if self.memory_s is None else self.memory_s * 1e3


@dataclass(frozen=True)
class ModuleRow:
    """A module that was compiled."""

    module: str
    used_by: tuple[str, ...]
    """Labels of the cases."""
    sources: int
    compile_s: float | None
    """From the first compiler's start to the linker's end."""
    compilers_s: float | None
    """All compilers' time added up."""
    parallelism: float | None
    """Compilers at work at a time, on average, while any was."""
    slowest: str
    """The source that took longest."""
    slowest_s: float | None
    link_s: float | None
    mebibytes: float | None
    """Of the shared library."""
    generator: str


CALL_COLUMNS = (
    Column("case", meaning="case id"),
    Column("label", "case", meaning="what tells the cases apart"),
    Column("cold_s", "empty cache", "s", ".2f", "first call with an empty cache: compile, load, plan, launch"),
    Column("disk_s", "on disk", "s", ".3f", "first call of a new process with the module in the disk cache"),
    Column("memory_ms", "in memory", "ms", ".3f", "the same call again in that process, median: plan and launch"),
    Column("generate_s", "generate", "s", ".2f", "of the cold call: FlashInfer writes sources and build file"),
    Column("compile_s", "compile", "s", ".2f", "of the cold call: first compiler's start to the last one's end"),
    Column("link_s", "link", "s", ".2f", "of the cold call: the linker"),
    Column("load_s", "load", "s", ".3f", "of the cold call: the shared library is loaded"),
    Column("other_s", "other", "s", ".3f", "of the cold call: ninja's start, its look at dependencies, locks"),
    Column("launch_s", "launch", "s", ".3f", "of the cold call: plan and first launch"),
    Column("modules", meaning="modules that the call compiled or loaded"),
    Column("error", meaning="why it could not be measured"),
)
MODULE_COLUMNS = (
    Column("module", "module", meaning="its folder in the cache"),
    Column("used_by", "used by", meaning="cases that need it"),
    Column("sources", "sources", "", "d", "files that a compiler was started for"),
    Column("compile_s", "compile + link", "s", ".1f", "first compiler's start to the linker's end"),
    Column("compilers_s", "compilers", "s", ".1f", "time of all compilers added up"),
    Column("parallelism", "at a time", "", ".1f", "compilers at work at a time, on average"),
    Column("slowest", "slowest source", meaning="the source that took longest"),
    Column("slowest_s", "it took", "s", ".1f", "the slowest source's time"),
    Column("mebibytes", "library", "MiB", ".1f", "size of the shared library"),
    Column("generator", meaning="Python that makes its specification"),
)


def call_rows(results: JitResults) -> tuple[CallRow, ...]:
    """Every case, in the order of the measurement."""
    labels = Labels([_entry(call.case) for call in results.calls])
    return tuple(_call_row(call, labels(call.case)) for call in results.calls)


def module_rows(results: JitResults) -> tuple[ModuleRow, ...]:
    """Every module, the slowest to compile first."""
    labels = Labels([_entry(call.case) for call in results.calls])
    return tuple(
        _module_row(module, tuple(labels(call.case) for call in results.calls if module.name in call.modules))
        for module in results.modules
    )


def document(results: JitResults) -> Document:
    """The calls, the modules, what follows from them and what the cache holds."""
    made_with = (_made_with(results),)
    views = [calls_view(results, summary=tuple(sentences(results))), modules_view(results), _cache_view(results)]
    shown = tuple(view for view in views if view.rows or view.summary)
    return Document(view_of(CALL_COLUMNS, call_rows(results)), shown, tuple(results.warnings), made_with)


def calls_view(results: JitResults, summary: tuple[str, ...] = ()) -> View:
    """The first calls as a table."""
    rows = call_rows(results)
    notes = (
        "One cold and one disk call a case, each in a process of its own, alone on the machine; imports, the CUDA "
        "context and the inputs are made before the clock starts. The columns from generate to launch sum to the empty "
        "cache's time.",
        *(f"{row.label}: not measured: {row.error}" for row in rows if row.error),
    )
    return view_of(CALL_COLUMNS, rows, title="First calls", summary=summary, notes=notes)


def modules_view(results: JitResults) -> View:
    """The modules as a table."""
    rows = module_rows(results)
    notes = ("From ninja's log of the cold calls: at a time = compilers ÷ (compile + link, less the link).",)
    return view_of(MODULE_COLUMNS, rows, title="Modules", notes=notes if rows else ())


# What follows


def phase_totals(results: JitResults) -> dict[str, float]:
    """Phase -> its seconds in all cold calls, the longest first; empty where nothing was traced."""
    totals: dict[str, float] = {}
    for call in results.calls:
        for phase in call.phases:
            totals[phase.name] = totals.get(phase.name, 0.0) + phase.seconds
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Parallelism:
    """How well the modules' compilers kept each other company."""

    at_a_time: float
    """Compilers at work at a time, on average over all modules."""
    modules: int
    bound: int
    """Modules in which the slowest source takes SLOWEST_DOMINATES of the time or more."""


def parallelism(results: JitResults) -> Parallelism | None:
    """None where no module was compiled by more than one command."""
    rows = [row for row in module_rows(results) if row.parallelism and row.compile_s]
    if not rows:
        return None
    wall = sum((row.compilers_s or 0.0) / (row.parallelism or 1.0) for row in rows)
    bound = [row for row in rows if (row.slowest_s or 0.0) >= SLOWEST_DOMINATES * (row.compile_s or 0.0)]
    return Parallelism(sum(row.compilers_s or 0.0 for row in rows) / wall, len(rows), len(bound))


def sentences(results: JitResults) -> list[str]:
    """What the measurement says, the costliest first; none without a measured case."""
    return list(filter(None, (_first_calls(results), where_it_goes(results), _parallelism(results), _warm_up(results))))


def _first_calls(results: JitResults) -> str:
    rows = [row for row in call_rows(results) if row.cold_s is not None]
    worst = max(rows, key=lambda row: row.cold_s or 0.0, default=None)
    if worst is None:
        return ""
    words = f"The costliest first call, {worst.label}, takes {seconds(worst.cold_s)} with an empty cache"
    words += f", {seconds(worst.disk_s)} with the cache on disk" if worst.disk_s is not None else ""
    words += f", {seconds(worst.memory_s)} with the module in memory" if worst.memory_s is not None else ""
    return f"{words}; {count(len(rows), 'case')} cold, one after another: {seconds(cold_seconds(results))}."


def cold_seconds(results: JitResults) -> float:
    """All first calls with an empty cache, one after another."""
    return sum(call.cold_s for call in results.calls if call.cold_s is not None)


def where_it_goes(results: JitResults) -> str:
    """Where the cold calls' time went, all of them together; empty where nothing was traced."""
    totals = phase_totals(results)
    whole = sum(totals.values())
    if not whole:
        return ""
    large = {name: total for name, total in totals.items() if total / whole >= LEAST_PART}
    parts = [f"{name} {seconds(total)} ({total / whole:.1%})" for name, total in large.items()]
    small = [name for name in totals if name not in large]
    rest = f"; {join_words(small)} less than {LEAST_PART:.1%} each" if small else ""
    traced = sum(bool(call.phases) for call in results.calls)
    return f"Where the {seconds(whole)} of {count(traced, 'cold first call')} went: {', '.join(parts)}{rest}."


def _parallelism(results: JitResults) -> str:
    found = parallelism(results)
    if found is None:
        return ""
    cores = results.environment.get("cores")
    follows = (
        "More cores do not make one module faster; compiling the modules side by side does."
        if found.bound * 2 >= found.modules
        else "More cores, or a higher MAX_JOBS, help."
    )
    return (
        f"A module compiles {found.at_a_time:.1f} sources at a time on average{f' on {cores} cores' if cores else ''}; "
        f"in {found.bound} of {count(found.modules, 'module')} the slowest source alone takes {SLOWEST_DOMINATES:.0%} "
        f"of the time or more. {follows}"
    )


def _warm_up(results: JitResults) -> str:
    if results.warm_up_s is None or not cold_seconds(results):
        return ""
    return (
        f"Compiled side by side, {count(len(results.modules), 'module is', 'modules are')} ready in "
        f"{seconds(results.warm_up_s)}, the interpreter's start and imports among them, against "
        f"{seconds(cold_seconds(results))} when each waits for its first call."
    )


def _cache_view(results: JitResults) -> View:
    files = sum(not path.endswith("/") for path in results.cache_layout)
    folders = [path for path in results.cache_layout if path.endswith("/") and path.count("/") <= CACHE_DEPTH]
    leaves = [path for path in folders if not any(other != path and other.startswith(path) for other in folders)]
    lines = (
        f"With all modules it holds {results.cache_bytes / 2**20:.1f} MiB, {files} file{'' if files == 1 else 's'}.",
        *(
            [f"Below FLASHINFER_WORKSPACE_BASE (your home folder unless it is set): {', '.join(leaves)}."]
            if leaves
            else []
        ),
        *(f"FlashInfer's log: {line}" for line in results.log[:LOG_LINES]),
        *([f"… and {len(results.log) - LOG_LINES} lines more."] if len(results.log) > LOG_LINES else []),
    )
    return View(columns=(), rows=(), title="The cache", summary=lines)


def _made_with(results: JitResults) -> str:
    environment = results.environment
    packages = environment.get("packages") or {}
    gpu = environment.get("gpu") or {}
    facts: list[Any] = [
        gpu.get("name"),
        f"flashinfer {packages['flashinfer-python']}" if packages.get("flashinfer-python") else None,
        f"torch {packages['torch']}" if packages.get("torch") else None,
        f"nvcc {environment['nvcc']}" if environment.get("nvcc") else None,
        f"{environment['cores']} cores" if environment.get("cores") else None,
        f"MAX_JOBS={environment['max_jobs']}" if environment.get("max_jobs") else None,
    ]
    return f"Measured with {', '.join(str(fact) for fact in facts if fact) or 'an unknown environment'}."


def _call_row(call: JitCall, label: str) -> CallRow:
    seconds = {phase.name: phase.seconds for phase in call.phases}
    parts = {f"{name}_s": seconds.get(name, 0.0) if call.phases else None for name in PHASES}
    return CallRow(
        case=call.case,
        label=label,
        cold_s=call.cold_s,
        disk_s=call.disk_s,
        memory_s=call.memory_s,
        modules=tuple(call.modules),
        error=call.error,
        **parts,
    )


def _module_row(module: JitModule, used_by: tuple[str, ...]) -> ModuleRow:
    compiles = [phase for phase in module.phases if phase.name == "compile"]
    slowest = max(compiles, key=lambda phase: phase.seconds, default=None)
    compilers = sum(phase.seconds for phase in compiles) if compiles else None
    wall = _span(compiles)
    return ModuleRow(
        module=module.name,
        used_by=used_by,
        sources=len(compiles) or len(module.sources),
        compile_s=module.compile_s,
        compilers_s=compilers,
        parallelism=compilers / wall if compilers and wall else None,
        slowest=slowest.detail.rpartition("/")[2] if slowest else "",
        slowest_s=slowest.seconds if slowest else None,
        link_s=sum(phase.seconds for phase in module.phases if phase.name == "link") if module.phases else None,
        mebibytes=module.bytes / 2**20 if module.bytes else None,
        generator=module.generator,
    )


def _span(phases: list[JitPhase]) -> float | None:
    """From the first begin to the last end; None where one is not known."""
    begins = [phase.start_s for phase in phases if phase.start_s is not None]
    if not phases or len(begins) < len(phases):
        return None
    return max((phase.start_s or 0.0) + phase.seconds for phase in phases) - min(begins)


def _entry(case: str) -> CaseEntry:
    """A case's id as the labels take it."""
    name, _, inside = case.partition("[")
    params: dict[str, bool | int | float | str] = dict(re.findall(r"(\w+)=([^,\]]*)", inside))
    return CaseEntry(case, name, params, 0, 0, 0)


def seconds(value: float | None) -> str:
    """``44.2 s``, ``12.3 ms``; a dash where it was not measured."""
    return "–" if value is None else duration(value * 1e6)
