"""``fiprof jit`` as tables: first calls, where their time goes, the modules, and what the cache holds."""

from __future__ import annotations

import re
from typing import Any

from fiprof.flashinfer.data import JitPhase, JitResults
from fiprof.model.finding import say
from fiprof.model.manifest import CaseEntry
from fiprof.model.selection import Labels
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import duration

SLOWEST_DOMINATES = 0.8
"""Part of a module's compile time: when its slowest source takes this much, more cores hardly help."""

CALL_COLUMNS = (
    Column("case", meaning="case id"),
    Column("label", "case", meaning="what tells the cases apart"),
    Column("cold_s", "empty cache", "s", ".2f", "first call with an empty cache"),
    Column("disk_s", "on disk", "s", ".3f", "first call of a new process, the cache on disk: the module is loaded"),
    Column("memory_ms", "in memory", "ms", ".3f", "the same call again in the first process, median: plan and launch"),
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
    Column("slowest", "slowest source", meaning="the source that took longest"),
    Column("slowest_s", "it took", "s", ".1f", "the slowest source's time"),
    Column("mebibytes", "library", "MiB", ".1f", "size of the shared library"),
)
CALLS_NOTE = (
    "One cold and one disk call a case, each in a process of its own, alone on the machine; imports, the CUDA context "
    "and the inputs are made before the clock starts. The columns from compile to other sum to the empty cache's time."
)


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
    rows, modules = call_rows(results), module_rows(results)
    failed = [f"{row['label']}: not measured: {row['error']}" for row in rows if row["error"]]
    title, notes = "First calls", (CALLS_NOTE, *failed)
    programs = view_of(CALL_COLUMNS, rows, title=title, notes=notes)
    shown = [view_of(CALL_COLUMNS, rows, title=title, summary=tuple(sentences(results)), notes=notes)] if rows else []
    if modules:
        shown.append(view_of(MODULE_COLUMNS, modules, title="Modules", notes=("From ninja's log of the cold calls.",)))
    files = sum(not path.endswith("/") for path in results.cache_layout)
    held = f"With all modules it holds {results.cache_bytes / 2**20:.1f} MiB in {files} files."
    shown.append(View(columns=(), rows=(), title="The cache", summary=(held,)))
    note = f"Measured with {known or 'an unknown environment'}."
    return Document(programs, tuple(shown), tuple(results.warnings), (note,))


def call_rows(results: JitResults) -> list[dict[str, Any]]:
    """CALL_COLUMNS of each first call; compile and link are those of the modules that it made, by ninja's log."""
    name, modules = labels(results), {module.name: module for module in results.modules}
    rows = []
    for call in results.calls:
        compile_s = link_s = other_s = None
        if call.cold_s is not None:
            compile_s = link_s = 0.0
            for phases in (modules[each].phases for each in call.modules if each in modules):
                compiles = [each for each in phases if each.name == "compile"]
                ends = [(each.start_s or 0.0) + each.seconds for each in compiles]
                compile_s += max(ends, default=0.0) - min((each.start_s or 0.0 for each in compiles), default=0.0)
                link_s += sum(each.seconds for each in phases if each.name == "link")
            other_s = call.cold_s - compile_s - link_s
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
    rows = []
    for module in results.modules:
        compiles = [phase for phase in module.phases if phase.name == "compile"]
        slowest = max(compiles, key=lambda phase: phase.seconds, default=JitPhase("compile", 0.0))
        rows.append(
            {
                "module": module.name,
                "used_by": tuple(name(call.case) for call in results.calls if module.name in call.modules),
                "sources": len(compiles),
                "compile_s": module.compile_s,
                "slowest": slowest.detail.rpartition("/")[2],
                "slowest_s": slowest.seconds if compiles else None,
                "mebibytes": module.bytes / 2**20 if module.bytes else None,
            }
        )
    return rows


def sentences(results: JitResults) -> list[str]:
    """What the measurement says: the longest first call, where the time went, and whether more cores would help; none
    without a measured case."""
    calls = sorted((row for row in call_rows(results) if row["cold_s"]), key=lambda row: -row["cold_s"])
    if not calls:
        return []
    longest, whole = calls[0], sum(row["cold_s"] for row in calls)
    times = {
        "with an empty cache": longest["cold_s"],
        "in a new process with the cache on disk": longest["disk_s"],
        "again in the same process": longest["memory_ms"] and longest["memory_ms"] / 1e3,
    }
    totals = {name: sum(row[f"{name}_s"] for row in calls) for name in ("compile", "link", "other")}
    found: list[str] = [
        say(
            "The costliest first call, {case}, takes {times}.",
            case=longest["label"],
            times=", ".join(f"{duration(each * 1e6)} {state}" for state, each in times.items() if each is not None),
        ),
        say(
            "Where the {total} of {count:cold first call|cold first calls} went: {parts}.",
            total=duration(whole * 1e6),
            count=len(calls),
            parts=[f"{name} {duration(total * 1e6)} ({total / whole:.1%})" for name, total in totals.items()],
        ),
    ]
    built = [row for row in module_rows(results) if row["slowest_s"] and row["compile_s"]]
    bound = sum(row["slowest_s"] >= SLOWEST_DOMINATES * row["compile_s"] for row in built)
    if built:
        follows = "More cores, or a higher MAX_JOBS, help."
        if bound * 2 >= len(built):
            follows = "More cores do not make one module faster; compiling the modules side by side does."
        words = "In {bound} of {modules:module|modules} the slowest source takes {part:.0%} of the time or more."
        found.append(say(f"{words} {follows}", bound=bound, modules=len(built), part=SLOWEST_DOMINATES))
    return found


def labels(results: JitResults) -> Labels:
    """What tells the cases apart."""
    found = ((call.case, *call.case.partition("[")[::2]) for call in results.calls)
    return Labels(
        [CaseEntry(case, name, dict(re.findall(r"(\w+)=([^,\]]*)", inside)), 0, 0, 0) for case, name, inside in found]
    )
