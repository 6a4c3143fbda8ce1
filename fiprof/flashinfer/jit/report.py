"""``fiprof jit``: what just-in-time compilation costs, where its time goes, and what a server should warm up."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fiprof.flashinfer.results import JitCall, JitModule, JitPhase, JitResults
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.reports.words import worded

if TYPE_CHECKING:
    from fiprof.reports.pages.page import Observation, Section

PHASES = ("generate", "compile", "link", "load", "other", "launch")
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
    calls, modules = call_rows(results), module_rows(results)
    views = [
        view_of(
            CALL_COLUMNS,
            calls,
            title="First calls",
            summary=tuple(finding.observation for finding in findings(results)),
            notes=(
                "One cold and one disk call a case, each in a process of its own, alone on the machine; imports, the "
                "CUDA context and the inputs are made before the clock starts. The columns from generate to launch sum "
                "to the empty cache's time.",
                *(f"{row.label}: not measured: {row.error}" for row in calls if row.error),
            ),
        )
    ]
    if modules:
        views.append(
            view_of(
                MODULE_COLUMNS,
                modules,
                title="Modules",
                notes=("From ninja's log of the cold calls: at a time = compilers ÷ (compile + link, less the link).",),
            )
        )
    views.append(_cache_view(results))
    return Document(
        data=view_of(CALL_COLUMNS, calls),
        shown=tuple(views),
        warnings=tuple(results.warnings),
        notes=(_made_with(results),),
    )


def section(results: JitResults) -> Section:
    """The same as a section of a page: findings, tables, and the warm-up to copy."""
    from fiprof.reports.pages.page import Caution, Code, Section, Table, Text

    whole = document(results)
    views = [replace(view, summary=()) if view.rows else view for view in whole.shown]
    return Section(
        anchor="jit",
        title="Just-in-time compilation",
        blocks=(
            *(Caution(worded(text)) for text in whole.warnings),
            *findings(results),
            *(Table(view) for view in views if view.rows),
            *(Text((" ".join(map(worded, view.summary)),)) for view in views if not view.rows),
            *(Code(command) for command in results.warm_up),
            *(Text((worded(text),)) for text in whole.notes),
        ),
    )


def findings(results: JitResults) -> tuple[Observation, ...]:
    """What the measurement says, the costliest first; empty without a measured case."""
    found = [
        _first_calls(results),
        _where_it_goes(results),
        _parallelism(results),
        _warm_up(results),
    ]
    return tuple(finding for finding in found if finding is not None)


def _first_calls(results: JitResults) -> Observation | None:
    from fiprof.reports.pages.page import Observation

    rows = [row for row in call_rows(results) if row.cold_s is not None]
    if not rows:
        return None
    worst = max(rows, key=lambda row: row.cold_s or 0.0)
    assert worst.cold_s is not None
    parts = [f"the costliest first call, {worst.label}, takes {worst.cold_s:.1f} s with an empty cache"]
    if worst.disk_s is not None:
        parts.append(f"{worst.disk_s:.3f} s with the cache on disk")
    if worst.memory_s is not None:
        parts.append(f"{worst.memory_s * 1e3:.2f} ms with the module in memory")
    total = sum(row.cold_s or 0.0 for row in rows)
    return Observation(
        anchor="jit-first-calls",
        observation=_sentence(", ".join(parts)),
        evidence=tuple(
            f"{row.label}: empty {row.cold_s:.2f} s, disk {_seconds(row.disk_s)}, memory {_seconds(row.memory_s)}"
            for row in rows
        ),
        implication=f"A server that meets these {len(rows)} cases cold, one after another, waits {total:.0f} s in all.",
        sure="one cold and one disk call a case; the memory call is a median of five",
    )


def _where_it_goes(results: JitResults) -> Observation | None:
    from fiprof.reports.pages.page import Observation

    totals = dict.fromkeys(PHASES, 0.0)
    for call in results.calls:
        for phase in call.phases:
            if phase.name in totals:
                totals[phase.name] += phase.seconds
    whole = sum(totals.values())
    if not whole:
        return None
    first, *rest = sorted(totals.items(), key=lambda item: -item[1])
    others = ", ".join(f"{name} {seconds / whole:.1%}" for name, seconds in rest if seconds / whole >= 0.001)
    return Observation(
        anchor="jit-phases",
        observation=_sentence(
            f"of the {whole:.0f} s of all cold calls, {first[0]} takes {first[1] / whole:.0%}"
            + (f" ({others})" if others else "")
        ),
        evidence=tuple(f"{name}: {seconds:.2f} s" for name, seconds in totals.items()),
        implication=(
            "Only fewer or faster compilers help: a warm cache, or FlashInfer's ready-made modules."
            if first[0] == "compile"
            else f"The compiler is not what takes longest here: look at {first[0]}."
        ),
        sure="compile and link by ninja's log (ms), the rest by timers around FlashInfer's own methods",
    )


def _parallelism(results: JitResults) -> Observation | None:
    from fiprof.reports.pages.page import Observation

    rows = [row for row in module_rows(results) if row.parallelism is not None and row.compile_s]
    cores = results.environment.get("cores")
    if not rows:
        return None
    slowest = rows[0]
    bound = [row for row in rows if (row.slowest_s or 0.0) >= SLOWEST_DOMINATES * (row.compile_s or 0.0)]
    at_a_time = sum(row.compilers_s or 0.0 for row in rows) / sum(_compile_wall(row) for row in rows)
    on = f" on {cores} cores" if cores else ""
    return Observation(
        anchor="jit-parallelism",
        observation=_sentence(
            f"a module compiles {at_a_time:.1f} sources at a time on average{on}; in {len(bound)} of {len(rows)} "
            f"modules the slowest source alone takes {SLOWEST_DOMINATES:.0%} of the time or more"
        ),
        evidence=tuple(
            f"{row.module}: {row.sources} sources, {row.compilers_s:.1f} s of compilers in {row.compile_s:.1f} s; "
            f"slowest {row.slowest} {_seconds(row.slowest_s)}"
            for row in rows
        ),
        implication=(
            "More cores do not make one module faster; compiling the modules side by side does."
            if len(bound) * 2 >= len(rows)
            else f"{slowest.module} has work for more compilers at a time: more cores, or a higher MAX_JOBS, help."
        ),
        sure="ninja's log has the start and end of each compiler in ms",
    )


def _warm_up(results: JitResults) -> Observation | None:
    from fiprof.reports.pages.page import Observation

    cold = [call.cold_s for call in results.calls if call.cold_s is not None]
    if results.warm_up_s is None or not cold:
        return None
    modules = "the module is" if len(results.modules) == 1 else f"all {len(results.modules)} modules are"
    return Observation(
        anchor="jit-warm-up",
        observation=_sentence(
            f"compiled side by side, {modules} ready in {results.warm_up_s:.0f} s, the "
            f"interpreter's start and imports among them, against {sum(cold):.0f} s when each waits for its first call"
        ),
        evidence=tuple(results.warm_up),
        implication="Run it when the image or the cache's volume is made, with the server's GPU, FlashInfer and CUDA.",
        sure="measured once, in an empty cache",
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


def _compile_wall(row: ModuleRow) -> float:
    return (row.compilers_s or 0.0) / (row.parallelism or 1.0)


def _entry(case: str) -> CaseEntry:
    """A case's id as the labels take it."""
    name, _, inside = case.partition("[")
    params: dict[str, bool | int | float | str] = dict(re.findall(r"(\w+)=([^,\]]*)", inside))
    return CaseEntry(case, name, params, 0, 0, 0)


def _seconds(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.2f} ms"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
