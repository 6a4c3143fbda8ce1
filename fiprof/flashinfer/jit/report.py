"""``fiprof jit``: what just-in-time compilation costs, where its time goes, and what a server should warm up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from fiprof.flashinfer.results import JitCall, JitModule, JitPhase, JitResults
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.reports.columns import Cells, filled
from fiprof.reports.study_pages.numbers import duration
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.reports.words import phrase

LEAST_PART = 0.001
"""Phases that took less of the whole are named together."""
SLOWEST_DOMINATES = 0.8
"""Of a module's compile time: when its slowest source takes this much, more cores hardly help."""
CACHE_DEPTH = 5
"""Levels of folders of the cache that are shown: those below are the modules'."""
LOG_LINES = 10


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
    mebibytes: float | None
    """Of the shared library."""
    generator: str


CALL_COLUMNS: Cells = (
    (Column("cold_s", "empty cache", "s", ".2f", "first call with an empty cache"), lambda call: call.cold_s),
    (
        Column("disk_s", "on disk", "s", ".3f", "first call of a new process, the cache on disk"),
        lambda call: call.disk_s,
    ),
    (
        Column("memory_ms", "in memory", "ms", ".3f", "the same call again in that process, median: plan and launch"),
        lambda call: None if call.memory_s is None else call.memory_s * 1e3,
    ),
    *(
        (Column(f"{name}_s", name, "s", spec, f"of the cold call: {meaning}"), partial(JitCall.phase_s, name=name))
        for name, spec, meaning in (
            ("generate", ".2f", "FlashInfer writes sources and build file"),
            ("compile", ".2f", "first compiler's start to the last one's end"),
            ("link", ".2f", "the linker"),
            ("load", ".3f", "the shared library is loaded"),
            ("other", ".3f", "ninja's start, its look at dependencies, locks"),
            ("launch", ".3f", "plan and first launch"),
        )
    ),
    (Column("modules", meaning="modules that the call compiled or loaded"), lambda call: tuple(call.modules)),
    (Column("error", meaning="why it could not be measured"), lambda call: call.error),
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


def labels(results: JitResults) -> Labels:
    """What tells the cases apart."""
    return Labels([_entry(call.case) for call in results.calls])


def module_rows(results: JitResults) -> tuple[ModuleRow, ...]:
    """Every module, the slowest to compile first."""
    name = labels(results)
    return tuple(
        _module_row(module, tuple(name(call.case) for call in results.calls if module.name in call.modules))
        for module in results.modules
    )


def document(results: JitResults) -> Document:
    """The calls, the modules, what follows from them and what the cache holds."""
    made_with = (_made_with(results),)
    views = [calls_view(results, summary=tuple(sentences(results))), modules_view(results), _cache_view(results)]
    shown = tuple(view for view in views if view.rows or view.summary)
    return Document(calls_view(results), shown, tuple(results.warnings), made_with)


def calls_view(results: JitResults, summary: tuple[str, ...] = ()) -> View:
    """The first calls as a table."""
    name = labels(results)
    columns: Cells = (
        (Column("case", meaning="case id"), lambda call: call.case),
        (Column("label", "case", meaning="what tells the cases apart"), lambda call: name(call.case)),
        *CALL_COLUMNS,
    )
    failed = [phrase("jit.failed", case=name(call.case), error=call.error) for call in results.calls if call.error]
    notes = (phrase("jit.calls_note"), *failed)
    return filled(columns, results.calls, title="First calls", summary=summary, notes=notes)


def first_calls_view(results: JitResults) -> View:
    """The three states of each first call alone, the costliest first."""
    name = labels(results)
    columns: Cells = ((Column("case", "case"), lambda call: name(call.case)), *CALL_COLUMNS[:3])
    return filled(columns, measured(results))


def modules_view(results: JitResults) -> View:
    """The modules as a table."""
    rows = module_rows(results)
    return view_of(MODULE_COLUMNS, rows, title="Modules", notes=(phrase("jit.modules_note"),) if rows else ())


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


def measured(results: JitResults) -> list[JitCall]:
    """The first calls that were measured, the costliest first."""
    return sorted((call for call in results.calls if call.cold_s is not None), key=lambda call: -(call.cold_s or 0.0))


def times(call: JitCall) -> str:
    """A first call in the three states, as far as they were measured."""
    states = (("cold", call.cold_s), ("disk", call.disk_s), ("memory", call.memory_s))
    return ", ".join(phrase(f"jit.{state}", time=seconds(value)) for state, value in states if value is not None)


def _first_calls(results: JitResults) -> str:
    calls = measured(results)
    if not calls:
        return ""
    name, total = labels(results)(calls[0].case), seconds(cold_seconds(results))
    return phrase("jit.first_calls", case=name, times=times(calls[0]), count=len(calls), total=total)


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
    small = [name for name in totals if name not in large]
    return phrase(
        "jit.where_it_goes",
        total=seconds(whole),
        count=sum(bool(call.phases) for call in results.calls),
        parts=[f"{name} {seconds(total)} ({total / whole:.1%})" for name, total in large.items()],
        rest=phrase("jit.small_parts", names=small, least=LEAST_PART) if small else "",
    )


def _parallelism(results: JitResults) -> str:
    found = parallelism(results)
    if found is None:
        return ""
    cores = results.environment.get("cores")
    return phrase(
        f"jit.parallelism.{'bound' if found.bound * 2 >= found.modules else 'free'}",
        at_a_time=found.at_a_time,
        cores=f" on {cores} cores" if cores else "",
        bound=found.bound,
        modules=found.modules,
        part=SLOWEST_DOMINATES,
    )


def _warm_up(results: JitResults) -> str:
    if results.warm_up_s is None or not cold_seconds(results):
        return ""
    took, alone = seconds(results.warm_up_s), seconds(cold_seconds(results))
    return phrase("jit.warm_up", modules=len(results.modules), took=took, alone=alone)


def _cache_view(results: JitResults) -> View:
    files = sum(not path.endswith("/") for path in results.cache_layout)
    folders = [path for path in results.cache_layout if path.endswith("/") and path.count("/") <= CACHE_DEPTH]
    leaves = [path for path in folders if not any(other != path and other.startswith(path) for other in folders)]
    lines = [phrase("jit.cache", mebibytes=results.cache_bytes / 2**20, files=files)]
    lines += [phrase("jit.cache_folders", folders=", ".join(leaves))] if leaves else []
    lines += [phrase("jit.log", line=line) for line in results.log[:LOG_LINES]]
    if len(results.log) > LOG_LINES:
        lines.append(phrase("jit.log_more", count=len(results.log) - LOG_LINES))
    return View(columns=(), rows=(), title="The cache", summary=tuple(lines))


def _made_with(results: JitResults) -> str:
    environment = results.environment
    packages = environment.get("packages") or {}
    facts = {
        "{}": (environment.get("gpu") or {}).get("name"),
        "flashinfer {}": packages.get("flashinfer-python"),
        "torch {}": packages.get("torch"),
        "nvcc {}": environment.get("nvcc"),
        "{} cores": environment.get("cores"),
        "MAX_JOBS={}": environment.get("max_jobs"),
    }
    known = ", ".join(text.format(fact) for text, fact in facts.items() if fact)
    return phrase("jit.made_with", what=known or phrase("jit.unknown"))


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
