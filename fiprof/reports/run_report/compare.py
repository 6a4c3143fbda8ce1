"""Several runs beside each other: the cases that they share, and whether they were measured alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.model.case_quantities import KERNEL_TIME, NSYS_SPREAD, PLAIN
from fiprof.model.labels import Labels
from fiprof.model.provenance import TracedNumber
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
    blocks: list[Block] = [Bullets(tuple(links)), Text((phrase("comparison.how"),)), *_differences(runs)]
    if not shared:
        blocks.append(Caution(phrase("comparison.nothing")))
    else:
        title, notes = phrase("comparison.title"), (phrase("comparison.note"),)
        blocks.append(table(_COLUMNS, list(_rows(runs, shared)), anchor="comparison-cases", title=title, notes=notes))
        if len(shared) < len(ids):
            blocks.append(Text((phrase("comparison.alone", alone=len(ids) - len(shared), all=len(ids)),)))
    return Section("comparison", "Comparison", tuple(blocks))


_COLUMNS = (
    Column("case", "case"),
    Column("run", "run"),
    Column("kernel_us", "kernels", "µs", ",.2f"),
    Column("spread", "spread", spec=".1%"),
    Column("ratio", "ratio", spec=".3f"),
    Column("plain_us", "plain", "µs", ",.2f"),
    Column("means", "means"),
)


def _rows(runs: Sequence[Analyses], shared: Sequence[str]) -> Iterable[list[Cell]]:
    labels = Labels(list({case.id: case for measured in runs for case in measured.run.manifest.cases}.values()))
    for case in shared:
        base: TracedNumber | None = None
        base_spread = 0.0
        for number, measured in enumerate(runs, 1):
            time, spread = (each.traced(measured.run, case) for each in (KERNEL_TIME, NSYS_SPREAD))
            if time is None:
                continue
            ratio, means, width = None, "", spread.value if spread else 0.0
            if base is None:
                base, base_spread = time, width
            else:
                ratio = time / base
                within = abs(ratio.value - 1) <= max(base_spread, width)
                means = "within the spread" if within else "slower" if ratio.value > 1 else "faster"
            yield [labels(case), number, time, spread, ratio, PLAIN.traced(measured.run, case), means]


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
