"""What the developers' guide says of FlashInfer: ``guide.toml``, with the lines of its sources."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.study import Study, main_kernel
from fiprof.flashinfer.data import guide as data
from fiprof.flashinfer.data import kernels
from fiprof.flashinfer.jit import pages as jit
from fiprof.flashinfer.plans import split_factor
from fiprof.flashinfer.sources import pages as sources
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Block, Code, Diagram, Section, Table, Text
from fiprof.reports.study_pages.choices import aside_share
from fiprof.reports.study_pages.names import cite, label, short
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

MERGE_WORTH = 0.10
"""Part of an iteration from which the merge of a split KV is a problem. fiprof's own choice."""


def guide(study: Study, workload: str) -> list[Section]:
    """The sections of one kernel; none for a workload that is not FlashInfer's."""
    if workload not in kernels():
        return []
    found = sources.load(study)
    parts: dict[str, tuple[str, Sequence[Block]]] = {
        "call": ("how it is called", _call(workload)),
        "drawings": ("how it works", drawings(study, workload)),
        "choices": ("which kernel and template run when", sources.choices(found, workload)),
        "code": ("where its code lives", sources.code(study, workload, found)),
    }
    return [
        Section(f"{workload}-{key}", f"{workload}: {what}", tuple(blocks))
        for key, (what, blocks) in parts.items()
        if blocks
    ]


def _call(workload: str) -> list[Block]:
    code = data("calls").get(workload)
    return [Code(code.strip(), "python")] if code else []


# Drawings


def drawings(study: Study, workload: str) -> list[Block]:
    """The drawings of a workload, with the values of the plan that splits most."""
    made: list[Block] = []
    for each in data("diagrams").get(workload, ()):
        values = _planned(study, workload) if each.get("plan") else {}
        if values is not None:
            text, caption = (each[key].strip("\n").format(**values) for key in ("text", "caption"))
            made.append(Diagram(f"drawing-{each['name']}", each["title"], text, caption))
    return made


def _planned(study: Study, workload: str) -> dict[str, int | str] | None:
    """The case whose KV was split into most parts; None where none was."""
    split = [(case, parts) for case in study.of(workload) if (parts := split_factor(case) or 0) > 1]
    if not split:
        return None
    case, parts = max(split, key=lambda item: item[1])
    tokens = int(case.params.get("kv_len", case.params.get("seq_len", 0)))
    named = label(study, case, workload=False)
    return {
        "tokens": tokens,
        "chunk": int(case.plan["kv_chunk_tokens"]),
        "parts": parts,
        "last": parts - 1,
        "case": named,
    }


# All kernels


def guide_sections(study: Study) -> list[Section]:
    """Just-in-time compilation, and common problems."""
    return [*jit.guide(study, sources.load(study)), _problems(study)] if set(study.by_workload) & set(kernels()) else []


def _problems(study: Study) -> Section:
    """Each problem, how it shows, what fixes it, and the cases of the study that have it."""
    rows = []
    for each in data("problems"):
        cases = [case for case in study.measured if _has(case, each)]
        worst = max(cases, key=lambda case: case.plain.median_us if case.plain else 0.0) if cases else None
        here = cite(study, worst, f"{worst.workload} {short(study, worst)}") if worst else "–"
        counted = len(cases) if {"verdict", "kernel"} & each.keys() else None
        rows.append((each["problem"], each["shows"], each["fix"], counted, here))
    columns = (
        Column("problem", "problem"),
        Column("shows", "how it shows", wrap=True),
        Column("fix", "fix", wrap=True),
        Column("cases", "cases here", "", "d"),
        Column("longest", "the longest"),
    )
    note = Text((phrase("problem.note", part=MERGE_WORTH),))
    return Section("problems", "Common problems", (Table(View(columns, tuple(rows)), "problems-table"), note))


def _has(case: CaseResult, problem: dict[str, str]) -> bool:
    if "kernel" in problem:
        return aside_share(case, problem["kernel"]) >= MERGE_WORTH
    kernel = main_kernel(case)
    found = kernel.verdict if kernel else None
    part = problem.get("part", "")
    return found is not None and found.kind == problem.get("verdict") and (not part or found.part == part)
