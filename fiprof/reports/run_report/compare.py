"""Several runs beside each other: the cases that they share, and whether they were measured alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DIFFER, PROCESSES_DRIFT
from fiprof.model.case_quantities import KERNEL_TIME, NSYS_SPREAD, PLAIN
from fiprof.model.labels import Labels
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.settings import CollectSettings, settings_of
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Section, Text
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.view import Column
from fiprof.reports.words import phrase
from fiprof.text import escape_control


def comparison(runs: Sequence[Analyses]) -> Section:
    """The section: what differs between the runs, and the cases that the first shares with the others."""
    names = [escape_control(measured.run.manifest.name) for measured in runs]
    links = [
        Text((Link(phrase("comparison.run", number=number, name=name), f"#run{number}-run"),))
        for number, name in enumerate(names, 1)
    ]
    ids = list(dict.fromkeys(case.id for measured in runs for case in measured.run.manifest.cases))
    shared = [case for case in ids if sum(KERNEL_TIME.of(each.run, case) is not None for each in runs) > 1]
    blocks: list[Block] = [Bullets(tuple(links)), Text((_how(),)), *_differences(runs)]
    if not shared:
        blocks.append(Caution(phrase("comparison.nothing")))
    else:
        title, notes = phrase("comparison.title"), (phrase("comparison.note"),)
        blocks.append(table(_COLUMNS, list(_rows(runs, shared)), anchor="comparison-cases", title=title, notes=notes))
        if len(shared) < len(ids):
            blocks.append(Text((phrase("comparison.alone", alone=len(ids) - len(shared), all=len(ids)),)))
    return Section("comparison", "Comparison", tuple(blocks))


def _how() -> str:
    return phrase(
        "comparison.how",
        processes=PROCESSES_DIFFER.value,
        boards=BOARDS_DIFFER.value,
        drift=PROCESSES_DRIFT.value,
    )


_COLUMNS = (
    Column("case", "case"),
    Column("run", "run"),
    Column("kernel_us", "kernels", "µs", ",.2f"),
    Column("spread", "spread", spec=".1%"),
    Column("difference_us", "difference", "µs", "+,.2f"),
    Column("difference_pct", "difference", "%", "+.2f"),
    Column("plain_us", "plain", "µs", ",.2f"),
)


def _rows(runs: Sequence[Analyses], shared: Sequence[str]) -> Iterable[list[Cell]]:
    labels = Labels(list({case.id: case for measured in runs for case in measured.run.manifest.cases}.values()))
    for case in shared:
        base: TracedNumber | None = None
        for number, measured in enumerate(runs, 1):
            time, spread, plain = (each.traced(measured.run, case) for each in (KERNEL_TIME, NSYS_SPREAD, PLAIN))
            if time is None:
                continue
            difference = None if base is None else _differs(time, base)
            yield [labels(case), number, time, spread, *(difference or (None, None)), plain]
            base = base or time


def _differs(time: TracedNumber, base: TracedNumber) -> tuple[TracedNumber, TracedNumber]:
    """In µs and percent."""
    parts = (time.source, base.source)
    less, percent = time.value - base.value, 100 * (time.value / base.value - 1)
    return (
        TracedNumber(less, Provenance("facts", "a - b", parts=parts), "+,.2f"),
        TracedNumber(percent, Provenance("facts", "100 * (a / b - 1)", parts=parts), "+.2f"),
    )


_ENVIRONMENT = {
    "the GPU": ("gpu", "name"),
    "the driver": ("gpu_state", "before", "driver"),
    "flashinfer": ("packages", "flashinfer-python"),
    "torch": ("packages", "torch"),
    "ncu's version": ("tools", "ncu"),
}


def _differences(runs: Sequence[Analyses]) -> Iterable[Caution]:
    """What makes the runs hard to compare."""
    found: dict[str, set[str]] = {}
    for each in settings_of(CollectSettings):
        if each.declared.title and each.declared.measuring:
            values = [measured.run.manifest.settings.get(each.name) for measured in runs]
            found[each.declared.title] = {"not recorded" if value is None else str(value) for value in values}
    for what, path in _ENVIRONMENT.items():
        found[what] = {str(measured.run.environment(*path) or "unknown") for measured in runs}
    for what, words in found.items():
        if len(words) > 1:
            yield Caution(phrase("comparison.differ", what=what, values=escape_control(", ".join(sorted(words)))))
