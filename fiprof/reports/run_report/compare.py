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
from fiprof.text import escape_control


def comparison(runs: Sequence[Analyses]) -> Section:
    """The section: what differs between the runs, and the cases that the first shares with the others."""
    names = [escape_control(measured.run.manifest.name) for measured in runs]
    blocks: list[Block] = [
        Bullets(
            tuple(Text((Link(f"Run {number}: {name}", f"#run{number}-run"),)) for number, name in enumerate(names, 1))
        ),
        Text(("Each case is held against the first run that has it; a ratio above 1 is slower.",)),
        *(Caution(text) for text in _differences(runs)),
    ]
    ids = list(dict.fromkeys(case.id for measured in runs for case in measured.run.manifest.cases))
    shared = [case for case in ids if sum(_time(measured, case) is not None for measured in runs) > 1]
    if shared:
        blocks.append(_table(runs, shared))
    else:
        blocks.append(Caution("no case was timed in more than one of these runs: there is nothing to compare"))
    alone = [case for case in ids if case not in shared]
    if alone and shared:
        blocks.append(Text((f"{len(alone)} of {len(ids)} cases are in one run alone.",)))
    return Section("comparison", "Comparison", tuple(blocks))


def _time(measured: Analyses, case: str) -> TracedNumber | None:
    return KERNEL_TIME.traced(measured.run, case)


_COLUMNS = (
    Column("case", "case"),
    Column("run", "run"),
    Column("kernel_us", "kernels", "µs", ",.2f"),
    Column("spread", "spread", spec=".1%"),
    Column("ratio", "ratio", spec=".3f"),
    Column("plain_us", "plain", "µs", ",.2f"),
    Column("means", "means"),
)


def _table(runs: Sequence[Analyses], shared: Sequence[str]) -> Block:
    labels = Labels(list({case.id: case for measured in runs for case in measured.run.manifest.cases}.values()))
    rows: list[list[Cell]] = []
    for case in shared:
        base: TracedNumber | None = None
        base_spread = 0.0
        for number, measured in enumerate(runs, 1):
            time = _time(measured, case)
            if time is None:
                continue
            spread = NSYS_SPREAD.traced(measured.run, case)
            ratio, means = None, ""
            if base is None:
                base, base_spread = time, spread.value if spread else 0.0
            else:
                ratio = time / base
                margin = max(base_spread, spread.value if spread else 0.0)
                means = _means(ratio.value, margin)
            rows.append([labels(case), number, time, spread, ratio, PLAIN.traced(measured.run, case), means])
    notes = (
        "kernels: kernel time of an iteration, the median by nsys (by ncu where there is no trace). A difference "
        "within the larger spread of the two is none. One run on each side cannot tell drift from change.",
    )
    return table(_COLUMNS, rows, anchor="comparison-cases", title="Cases in more than one run", notes=notes)


def _means(ratio: float, margin: float) -> str:
    if abs(ratio - 1) <= margin:
        return "within the spread"
    return "slower" if ratio > 1 else "faster"


def _differences(runs: Sequence[Analyses]) -> Iterable[str]:
    """What makes the runs hard to compare."""
    for each in settings_of(CollectSettings):
        found = [measured.run.manifest.settings.get(each.name) for measured in runs]
        values = {"not recorded" if value is None else str(value) for value in found}
        if len(values) > 1 and each.declared.title and each.declared.measuring:
            yield f"the runs differ in {each.declared.title}: {', '.join(sorted(values))}"
    for path, what in (
        (("gpu", "name"), "the GPU"),
        (("gpu_state", "before", "driver"), "the driver"),
        (("packages", "flashinfer-python"), "flashinfer"),
        (("packages", "torch"), "torch"),
        (("tools", "ncu"), "ncu's version"),
    ):
        values = {str(measured.run.environment(*path) or "unknown") for measured in runs}
        if len(values) > 1:
            yield f"the runs differ in {what}: {escape_control(', '.join(sorted(values)))}"
