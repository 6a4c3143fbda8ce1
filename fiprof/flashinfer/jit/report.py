"""``fiprof jit`` as tables: first calls, where their time goes, the modules, and what the cache holds."""

from __future__ import annotations

import re
from typing import Any

from fiprof.flashinfer.results import JitModule, JitPhase, JitResults
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.wording import say
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import duration

SLOWEST_DOMINATES = 0.8
"""Part of a module's compile time: when its slowest source takes this much, more cores hardly help."""
CACHE_DEPTH = 5
"""Levels of folders of the cache that are shown: those below are the modules'."""
LOG_LINES = 10

CALL_COLUMNS = (
    Column("case", meaning="case id"),
    Column("label", "case", meaning="what tells the cases apart"),
    Column("cold_s", "empty cache", "s", ".2f", "first call with an empty cache"),
    Column("disk_s", "on disk", "s", ".3f", "first call of a new process, the cache on disk: the module is loaded"),
    Column("memory_ms", "in memory", "ms", ".3f", "the same call again in that process, median: plan and launch"),
    Column("compile_s", "compile", "s", ".2f", "of the cold call: first compiler's start to the last one's end"),
    Column("link_s", "link", "s", ".2f", "of the cold call: the linker"),
    Column("other_s", "other", "s", ".3f", "of the cold call: sources written, ninja's start, load, plan and launch"),
    Column("modules", meaning="modules that the call compiled"),
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
)
CALLS_NOTE = (
    "One cold and one disk call a case, each in a process of its own, alone on the machine; imports, the CUDA context "
    "and the inputs are made before the clock starts. The columns from compile to other sum to the empty cache's time."
)
MODULES_NOTE = "From ninja's log of the cold calls: at a time = compilers ÷ (compile + link, less the link)."


def document(results: JitResults) -> Document:
    """The calls, the modules, what follows from them and what the cache holds."""
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
    note = f"Measured with {known or 'an unknown environment'}."
    rows, modules = call_rows(results), module_rows(results)
    failed = [f"{row['label']}: not measured: {row['error']}" for row in rows if row["error"]]
    title, notes = "First calls", (CALLS_NOTE, *failed)
    calls = view_of(CALL_COLUMNS, rows, title=title, summary=tuple(sentences(results)), notes=notes)
    shown = [calls] if calls.rows else []
    shown += [view_of(MODULE_COLUMNS, modules, title="Modules", notes=(MODULES_NOTE,))] if modules else []
    programs = view_of(CALL_COLUMNS, rows, title=title, notes=notes)
    return Document(programs, (*shown, _cache_view(results)), tuple(results.warnings), (note,))


def call_rows(results: JitResults) -> list[dict[str, Any]]:
    """CALL_COLUMNS of each first call."""
    name = labels(results)
    rows = []
    for call in results.calls:
        compile_s, link_s = call.phase_s("compile"), call.phase_s("link")
        other_s = None if compile_s is None or call.cold_s is None else call.cold_s - compile_s - (link_s or 0.0)
        rows.append(
            {
                "case": call.case, "label": name(call.case), "cold_s": call.cold_s, "disk_s": call.disk_s,
                "memory_ms": None if call.memory_s is None else call.memory_s * 1e3, "compile_s": compile_s,
                "link_s": link_s, "other_s": other_s, "modules": tuple(call.modules), "error": call.error,
            }
        )  # fmt: skip
    return rows


def module_rows(results: JitResults) -> list[dict[str, Any]]:
    """MODULE_COLUMNS of each module."""
    name = labels(results)
    return [
        _module_row(module, tuple(name(call.case) for call in results.calls if module.name in call.modules))
        for module in results.modules
    ]


def _module_row(module: JitModule, used_by: tuple[str, ...]) -> dict[str, Any]:
    compiles = [phase for phase in module.phases if phase.name == "compile"]
    slowest = max(compiles, key=lambda phase: phase.seconds, default=JitPhase("compile", 0.0))
    compilers = sum(phase.seconds for phase in compiles)
    starts = [phase.start_s for phase in compiles if phase.start_s is not None]
    wall = 0.0
    if compiles and len(starts) == len(compiles):
        wall = max(start + phase.seconds for start, phase in zip(starts, compiles, strict=True)) - min(starts)
    return {
        "module": module.name, "used_by": used_by, "sources": len(compiles), "compile_s": module.compile_s,
        "compilers_s": compilers if compiles else None, "parallelism": compilers / wall if wall else None,
        "slowest": slowest.detail.rpartition("/")[2], "slowest_s": slowest.seconds if compiles else None,
        "mebibytes": module.bytes / 2**20 if module.bytes else None,
    }  # fmt: skip


def sentences(results: JitResults) -> list[str]:
    """What the measurement says, the costliest first: longest first call, where the time went, how well the compilers
    ran side by side; none without a measured case."""
    calls = sorted((call for call in results.calls if call.cold_s), key=lambda call: -(call.cold_s or 0.0))
    if not calls:
        return []
    states = (
        (calls[0].cold_s, "with an empty cache"),
        (calls[0].disk_s, "in a new process with the cache on disk"),
        (calls[0].memory_s, "again in the same process"),
    )
    times = ", ".join(f"{seconds(value)} {state}" for value, state in states if value is not None)
    first = say(
        "The costliest first call, {case}, takes {times}; {count:case|cases} cold, one after another: {total}.",
        case=labels(results)(calls[0].case),
        times=times,
        count=len(calls),
        total=seconds(sum(call.cold_s or 0.0 for call in calls)),
    )
    return [each for each in (first, where_it_goes(results), parallelism(results)) if each]


def where_it_goes(results: JitResults) -> str:
    """Where the cold calls' time went, all of them together; empty where it is not known."""
    rows = [row for row in call_rows(results) if row["other_s"] is not None]
    whole = sum(row["cold_s"] for row in rows)
    if not whole:
        return ""
    totals = {name: sum(row[f"{name}_s"] or 0.0 for row in rows) for name in ("compile", "link", "other")}
    return say(
        "Where the {total} of {count:cold first call|cold first calls} went: {parts}.",
        total=seconds(whole),
        count=len(rows),
        parts=[f"{name} {seconds(total)} ({total / whole:.1%})" for name, total in totals.items()],
    )


def parallelism(results: JitResults) -> str:
    """How well the modules' compilers ran side by side; empty where no module was compiled by several commands."""
    rows = [row for row in module_rows(results) if row["parallelism"] and row["compile_s"]]
    if not rows:
        return ""
    wall = sum(row["compilers_s"] / row["parallelism"] for row in rows)
    bound = sum(row["slowest_s"] >= SLOWEST_DOMINATES * row["compile_s"] for row in rows)
    cores = results.environment.get("cores")
    follows = "More cores, or a higher MAX_JOBS, help."
    if bound * 2 >= len(rows):
        follows = "More cores do not make one module faster; compiling the modules side by side does."
    return say(
        "A module compiles {at_a_time:.1f} sources at a time on average{cores}; in {bound} of {modules:module|modules} "
        "the slowest source alone takes {part:.0%} of the time or more. {follows}",
        at_a_time=sum(row["compilers_s"] for row in rows) / wall, cores=f" on {cores} cores" if cores else "",
        bound=bound, modules=len(rows), part=SLOWEST_DOMINATES, follows=follows,
    )  # fmt: skip


def labels(results: JitResults) -> Labels:
    """What tells the cases apart."""
    entries = []
    for call in results.calls:
        name, _, inside = call.case.partition("[")
        params: dict[str, bool | int | float | str] = dict(re.findall(r"(\w+)=([^,\]]*)", inside))
        entries.append(CaseEntry(call.case, name, params, 0, 0, 0))
    return Labels(entries)


def seconds(value: float | None) -> str:
    """``44.2 s``, ``12.3 ms``; a dash where it was not measured."""
    return "–" if value is None else duration(value * 1e6)


def _cache_view(results: JitResults) -> View:
    files = sum(not path.endswith("/") for path in results.cache_layout)
    folders = [path for path in results.cache_layout if path.endswith("/") and path.count("/") <= CACHE_DEPTH]
    leaves = [path for path in folders if not any(other != path and other.startswith(path) for other in folders)]
    size = f"{results.cache_bytes / 2**20:.1f} MiB"
    lines: list[str] = [say("With all modules it holds {size}, {files:file|files}.", size=size, files=files)]
    if leaves:
        where = "Below FLASHINFER_WORKSPACE_BASE (your home folder unless it is set)"
        lines.append(say("{where}: {folders}.", where=where, folders=", ".join(leaves)))
    lines += [f"FlashInfer's log: {line}" for line in results.log[:LOG_LINES]]
    if len(results.log) > LOG_LINES:
        lines.append(say("… and {count:line|lines} more.", count=len(results.log) - LOG_LINES))
    return View(columns=(), rows=(), title="The cache", summary=tuple(lines))
