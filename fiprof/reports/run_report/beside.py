"""The first screen of a report of several runs: what limits each kernel, a column a run, differences marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.model.settings import CollectSettings, settings_of
from fiprof.reports import verdict_words as words
from fiprof.reports.pages.page import Block, Caution, Link, Section, Text
from fiprof.reports.run_report import sides
from fiprof.reports.run_report.answer import doubts, short
from fiprof.reports.run_report.entries import Entry, KernelEntries
from fiprof.reports.run_report.sides import Cell, Row
from fiprof.reports.words import phrase
from fiprof.text import escape_control

MOST_KERNELS = 20
"""Of a case: those with most time in any run."""

ENVIRONMENT = {
    "gpu": ("gpu", "name"),
    "driver": ("gpu_state", "before", "driver"),
    "flashinfer": ("packages", "flashinfer-python"),
    "torch": ("packages", "torch"),
    "ncu": ("tools", "ncu"),
}


def section(kernels: Sequence[KernelEntries], found: Sequence[Entry], runs: Sequence[Analyses]) -> Section:
    """What limits each kernel in each run, and in what the runs differ. Raises FiprofError as analyses do."""
    anchors = {each.kernel: each.anchor for each in kernels if any(entry.group for entry in each.entries)}
    keys = list(dict.fromkeys((entry.kernel, entry.case) for entry in found))
    of_runs: dict[tuple[str, str, int], Entry] = {}
    for entry in found:
        of_runs.setdefault((entry.kernel, entry.case, entry.run), entry)
    shared = [key for key in keys if sum((*key, place) in of_runs for place in range(len(runs))) > 1]
    rows = [
        row
        for kernel, case in (shared or keys)[:MOST_KERNELS]
        for row in _rows([of_runs.get((kernel, case, place)) for place in range(len(runs))], anchors.get(kernel))
    ]
    blocks: list[Block] = [*map(Caution, doubts(runs)), *map(Caution, _differences(runs))]
    heads = [(phrase("sides.run", number=i + 1), escape_control(r.run.manifest.name)) for i, r in enumerate(runs)]
    if rows:
        blocks.append(sides.table(heads, rows, [0] * len(runs), anchor="answer-runs"))
    if len(shared) > MOST_KERNELS:
        blocks.append(Text((phrase("answer.left_out", shown=MOST_KERNELS, all=len(shared)),)))
    return Section("answer", phrase("answer.title"), tuple(blocks))


def _rows(entries: Sequence[Entry | None], anchor: str | None) -> Iterable[Row]:
    """The quantities of a kernel in each run. anchor: of its part of the page."""
    first = next(entry for entry in entries if entry)
    name = f"{first.name} ({first.case_name})" if first.case_name else first.name

    def row(what: str, value: Callable[[Entry], Cell]) -> Row:
        told = name if what == "time" else phrase(f"beside.{what}")
        return Row(told, tuple(value(entry) if entry else None for entry in entries))

    name = Link(name, f"#{anchor}") if anchor else name
    yield row("time", lambda entry: entry.time)
    yield row("limit", lambda entry: words.short_title(entry.verdict) if entry.verdict else None)
    yield row("how_far", lambda entry: words.distance(entry.verdict) if entry.verdict else None)
    yield row("step", lambda entry: short(entry.verdict.steps[0]) if entry.verdict and entry.verdict.steps else None)


def _differences(runs: Sequence[Analyses]) -> Iterable[str]:
    """What makes the runs hard to compare."""
    found: dict[str, set[str]] = {}
    for each in settings_of(CollectSettings):
        if each.title and each.measuring:
            given = [measured.run.manifest.settings.get(each.name) for measured in runs]
            found[each.title] = {phrase("beside.none") if one is None else str(one) for one in given}
    for what, path in ENVIRONMENT.items():
        found[phrase(f"beside.{what}")] = {
            str(measured.run.environment(*path) or phrase("beside.none")) for measured in runs
        }
    for name, values in found.items():
        if len(values) > 1:
            yield phrase("beside.differ", what=name, values=escape_control(", ".join(sorted(values))))
