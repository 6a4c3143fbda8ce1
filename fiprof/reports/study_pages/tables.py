"""Tables that several documents of a study show. How their columns are read: ``[study_columns]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiprof.analysis.shapes import shapes
from fiprof.analysis.study import Study, absence, dram_bytes, kernel_shares, least_bytes, main_kernel, top_stalls
from fiprof.model import knowledge
from fiprof.model.results import CaseResult, Kernel
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import (
    absence_words,
    cite,
    label,
    run_link,
    short,
    short_key,
    verdict_title,
)
from fiprof.reports.study_pages.numbers import half_width, percent
from fiprof.reports.view import Column, Value, View
from fiprof.reports.words import phrase
from fiprof.text import join_words, short_kernel

Rows = Sequence[CaseResult]


def _case(study: Study, found: Rows) -> Cell:
    """The case's column."""
    return _case_column(study, found), lambda case: short(study, case)


def _case_column(study: Study, found: Rows) -> Column:
    """Its heading says what the sizes in a name are."""
    return Column("case", (short_key(study, found[0].workload) if found else "") or "case")


def of_kernel(key: str, title: str, unit: str, spec: str, value: Callable[[Kernel], Value]) -> Cell:
    """A column of a case's main kernel."""
    return Column(key, title, unit, spec), lambda case: value(kernel) if (kernel := main_kernel(case)) else None


INTENSITY: Cell = (Column("intensity", "intensity", "FLOP/byte", ",.1f"), lambda case: intensity(case))
TENSOR = of_kernel("tensor_pct", "tensor", "%", ".0f", lambda kernel: kernel.tensor_active_pct)
DRAM = of_kernel("dram_pct", "DRAM", "%", ".0f", lambda kernel: kernel.dram_pct)
ROOF = of_kernel("roof", "roof", "", "", lambda kernel: kernel.roof or "–")
SHARE = of_kernel("roof_pct", "of roof", "%", ".0f", lambda kernel: percent(kernel.roof_share))
BOUND = of_kernel("verdict", "bound", "", "", lambda kernel: verdict_title(kernel.verdict) or "–")
STALLS = of_kernel("stalls", "warps", "", "", lambda kernel: stall_words(kernel))
TIME: Cell = (Column("plain_us", "time", "µs", ",.2f"), lambda case: case.plain.median_us if case.plain else None)


def intensity(case: CaseResult) -> float | None:
    """Least operations over the DRAM bytes that ncu counted, FLOP/byte; None where they were not counted."""
    moved = dram_bytes(case)
    return case.flops / moved if moved and case.flops else None


def stall_words(kernel: Kernel, most: int = 3) -> str:
    """``long_scoreboard 57%, wait 9%``: its warps' largest states."""
    return ", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel, most)) or "–"


# The whole study


def key_findings(study: Study) -> View:
    """Of each workload the model shape that comes nearest to its roof, at its largest size, solved the fastest way."""
    best: dict[str, CaseResult] = {}
    for shape in shapes(study):
        case = shape.fastest
        if case.workload not in best or _share(case) > _share(best[case.workload]):
            best[case.workload] = case
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda case: case.workload),
        (Column("type", "type"), lambda case: kind(case.workload)),
        (Column("share", "best share", "of the roof"), lambda case: f"{_share(case):.0%} of {ROOF[1](case)}"),
        (Column("bottleneck", "bottleneck"), _bottleneck),
        (Column("case", "at"), lambda case: cite(study, case, short(study, case))),
    ]
    view = filled(columns, best.values())
    missing = tuple(
        (name, kind(name), "–", f"not measured: {absence_words(absence(study, name))}", "–")
        for name in study.by_workload
        if not study.of(name)
    )
    return View(view.columns, (*view.rows, *missing))


def _bottleneck(case: CaseResult) -> str:
    """The verdict, and the largest state of the warps."""
    kernel = main_kernel(case)
    return ", ".join([str(BOUND[1](case)), *([stall_words(kernel, 1)] if kernel and kernel.stalls else [])])


def kind(workload: str) -> str:
    """What kind of operation it is, e.g. ``attention``."""
    known = knowledge.of_workload(workload)
    return (known.kind if known else "") or "–"


def _share(case: CaseResult) -> float:
    kernel = main_kernel(case)
    return (kernel.roof_share if kernel else None) or 0.0


def side_by_side(study: Study, found: Rows) -> View:
    """Cases of several workloads: what they compute, what they use, what bounds them."""
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda case: case.workload),
        (Column("case", "case"), lambda case: cite(study, case, short(study, case))),
        INTENSITY,
        TENSOR,
        DRAM,
        SHARE,
        BOUND,
        (Column("operation", "operation"), _operation),
    ]
    return filled(columns, found)


def _operation(case: CaseResult) -> str:
    known = knowledge.of_workload(case.workload)
    return known.operation.format(**case.params) if known and known.operation else "–"


# A workload


def hardware(study: Study, found: Rows) -> View:
    """What the hardware did in the main kernels of some cases."""
    columns: list[Cell] = [
        _case(study, found),
        TIME,
        BOUND,
        SHARE,
        ROOF,
        INTENSITY,
        TENSOR,
        DRAM,
        of_kernel("l2_pct", "L2", "%", ".0f", lambda kernel: kernel.l2_pct),
        of_kernel("occupancy", "occupancy", "%", "", _occupancy),
        of_kernel("waves", "waves", "", ".2f", lambda kernel: kernel.waves),
        STALLS,
    ]
    return filled(columns, found, title="Hardware")


def _occupancy(kernel: Kernel) -> str:
    achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
    return f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else "–"


def memory(study: Study, found: Rows) -> View:
    """What an iteration has to move, what it moved, and how fast."""
    columns: list[Cell] = [
        _case(study, found),
        (Column("least_mb", "least", "MB", ",.2f"), lambda case: least_bytes(case) / 1e6),
        (Column("dram_mb", "DRAM", "MB", ",.2f"), lambda case: _scaled(dram_bytes(case), 1e-6)),
        (Column("over", "DRAM/least", "", ".2f"), lambda case: _scaled(dram_bytes(case), 1 / (least_bytes(case) or 1))),
        of_kernel("l2_hit_pct", "L2 hits", "%", ".0f", lambda kernel: kernel.l2_hit_pct),
        (Column("gb_per_s", "least/time", "GB/s", ",.0f"), lambda case: case.gb_per_s),
        (Column("dram_roof_pct", "of DRAM", "%", ".0f"), lambda case: percent(case.gb_per_s_roof_share)),
        of_kernel("shared_kb", "shared", "kB/block", ".1f", lambda k: _scaled(k.shared_bytes_per_block, 1e-3)),
    ]
    return filled(columns, found, title="Memory")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def launches(study: Study, found: Rows) -> View:
    """How the kernels of some cases were launched, in the order of an iteration."""
    items = [
        (short(study, case), kernel, shares[i] if (shares := kernel_shares(case)) else None)
        for case in found
        for i, kernel in enumerate(case.kernels)
    ]
    columns: list[Cell] = [
        (_case_column(study, found), lambda item: item[0]),
        (Column("kernel", "kernel"), lambda item: short_kernel(item[1].kernel)),
        (Column("share_pct", "time", "%", ".0f"), lambda item: percent(item[2])),
        (Column("grid", "grid"), lambda item: item[1].grid),
        (Column("block", "block"), lambda item: item[1].block),
        (Column("registers", "regs", "/thread"), lambda item: item[1].registers_per_thread),
    ]
    return filled(columns, items, title="Launches")


def case_table(study: Study, found: Rows) -> View:
    """Every case with its times and rates; those without a time last, with the reason."""
    ordered = in_order(study, found)
    columns: list[Cell] = [
        _case(study, found),
        (Column("plain_us", "plain", "µs", ",.2f"), lambda case: case.plain.median_us if case.plain else None),
        (Column("half_pct", "±", "%", ".1f"), lambda case: 100 * half_width(case) if case.plain else None),
        (Column("nsys_us", "nsys", "µs", ",.2f"), lambda case: case.nsys.median_us if case.nsys else None),
        (Column("ncu_us", "ncu", "µs", ",.2f"), lambda case: case.ncu_us),
        (Column("wall_us", "host", "µs", ",.1f"), lambda case: case.wall_us),
        (Column("tflops", "TFLOP/s", "", ",.1f"), lambda case: case.tflops),
        (Column("gb_per_s", "GB/s", "", ",.0f"), lambda case: case.gb_per_s),
        SHARE,
        (Column("verdict", "bound"), lambda case: case.skipped or BOUND[1](case)),
    ]
    if len({case.run for case in found}) > 1:
        columns.append((Column("run", "run"), lambda case: run_link(study, case.run) if case.run else ""))
    return filled(columns, ordered, title=phrase("study_table.cases", workload=found[0].workload))


def in_order(study: Study, found: Rows) -> list[CaseResult]:
    """Cases of the same options after each other, by growing sizes; those without a time last."""

    def order(case: CaseResult) -> tuple[bool, list[str], list[float]]:
        sizes = [float(case.params[name]) for name in study.axes(case.workload) if name in case.params]
        return case.plain is None, [str(case.params.get(name)) for name in study.options(case.workload)], sizes

    return sorted(found, key=order)


def representative(study: Study, workload: str, most: int = 12) -> list[CaseResult]:
    """The smallest and the largest measured case of each combination of options; fewer where there are many."""
    groups = list(study.groups(workload).values())
    both = [case for group in groups for case in (group if len(group) < 2 else (group[0], group[-1]))]
    return both if len(both) <= most else [group[-1] for group in groups][:most]


def absent(study: Study) -> View:
    """Cases that have no time, by reason."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for workload, found in study.by_workload.items():
        for case in found:
            if case.plain is None:
                groups.setdefault((workload, case.skipped or "it has no plain time"), []).append(case)
    columns: list[Cell] = [
        (Column("workload", "workload"), lambda item: item[0][0]),
        (Column("cases", "cases"), lambda item: len(item[1])),
        (Column("which", "which"), lambda item: _first_two(study, item[1])),
        (Column("why", "why", wrap=True), lambda item: item[0][1]),
    ]
    return filled(columns, groups.items())


def _first_two(study: Study, cases: Rows) -> str:
    return join_words([label(study, case, workload=False) for case in cases[:2]]) + (" …" if len(cases) > 2 else "")
