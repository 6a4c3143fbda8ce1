"""Tables that several documents of a study show."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.study import Study, kernel_shares, main_kernel, top_stalls
from fiprof.model import knowledge
from fiprof.model.results import CaseResult, Kernel
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import label, run_link, short, short_key, verdict_title
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import join_words, short_kernel


def case_table(study: Study, found: Sequence[CaseResult], *, title: str = "") -> View:
    """Every case with its times and rates; those without a time last, with the reason. The run stands in the table
    where there are several."""

    columns: list[Cell] = [
        (Column("case", "case"), lambda case: short(study, case)),
        (Column("plain_us", "plain", "µs", ",.2f"), lambda case: case.plain.median_us if case.plain else None),
        (Column("half_pct", "±", "%", ".1f"), lambda case: 100 * half_width(case) if case.plain else None),
        (Column("nsys_us", "nsys", "µs", ",.2f"), lambda case: case.nsys.median_us if case.nsys else None),
        (Column("ncu_us", "ncu", "µs", ",.2f"), lambda case: case.ncu_us),
        (Column("wall_us", "host", "µs", ",.1f"), lambda case: case.wall_us),
        (Column("tokens_per_second", "tokens/s", "", ",.0f"), lambda case: case.tokens_per_second),
        (Column("tflops", "TFLOP/s", "", ",.1f"), lambda case: case.tflops),
        (Column("gb_per_s", "GB/s", "", ",.0f"), lambda case: case.gb_per_s),
        (
            Column("roof_pct", "of roof", "%", ".0f"),
            lambda case: _percent(k.roof_share if (k := main_kernel(case)) else None),
        ),
        (
            Column("verdict", "verdict"),
            lambda case: verdict_title(k.verdict if (k := main_kernel(case)) else None) or case.skipped,
        ),
    ]
    if len({case.run for case in found}) > 1:
        columns.append((Column("run", "run"), lambda case: run_link(study, case.run) if case.run else ""))
    notes = (key(study, found) + phrase("study_table.cases"),)
    ordered = sorted(found, key=lambda case: _order(study, case))
    return filled(columns, ordered, title=title, notes=notes if found else ())


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _order(study: Study, case: CaseResult) -> tuple[bool, list[str], list[float]]:
    """Cases of the same options after each other, by growing sizes; those without a time last."""
    sizes = [float(case.params[name]) for name in study.axes(case.workload) if name in case.params]
    return case.plain is None, [str(case.params.get(name)) for name in study.options(case.workload)], sizes


def key(study: Study, found: Sequence[CaseResult]) -> str:
    """What the names in the first column are made of."""
    workload = found[0].workload if found else ""
    words = short_key(study, workload) if workload else ""
    switches = [
        f"; {known.short_on}: {known.on}"
        for known in map(knowledge.of_parameter, study.options(workload))
        if known.short_on and known.short_on != known.on
    ]
    return f"case: {words} (1k = 1,024){''.join(switches)}. " if words else ""


def half_width(case: CaseResult) -> float:
    """Half of the interval of the plain median, as a part of it; 0 where it has no time."""
    plain = case.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


def execution(study: Study, found: Sequence[CaseResult]) -> View:
    """How the kernels of some cases were launched, in the order of an iteration."""
    launched = [
        (short(study, case) if not i else "", kernel, shares[i] if (shares := kernel_shares(case)) else None)
        for case in found
        for i, kernel in enumerate(case.kernels)
    ]
    columns: list[Cell] = [
        (Column("case", "case"), lambda item: item[0]),
        (Column("kernel", "kernel"), lambda item: short_kernel(item[1].kernel)),
        (Column("share_pct", "of time", "%", ".0f"), lambda item: _percent(item[2])),
        (Column("grid", "grid"), lambda item: item[1].grid),
        (Column("block", "block"), lambda item: item[1].block),
        (Column("waves", "waves", "", ".2f"), lambda item: item[1].waves),
        (Column("registers", "registers"), lambda item: item[1].registers_per_thread),
        (Column("shared_kb", "shared", "kB", ".1f"), lambda item: _kilo(item[1].shared_bytes_per_block)),
    ]
    notes = (key(study, found) + phrase("study_table.launches"),)
    return filled(columns, launched, title="Launches", notes=notes if launched else ())


def _kilo(count: int | None) -> float | None:
    return None if count is None else count / 1e3


def hardware(study: Study, found: Sequence[CaseResult]) -> View:
    """What the hardware did in the main kernels of some cases."""
    kernels = [(case, kernel) for case in found if (kernel := main_kernel(case)) is not None]
    columns: list[Cell] = [
        (Column("case", "case"), lambda item: short(study, item[0])),
        (Column("occupancy", "occupancy", "%"), lambda item: _occupancy(item[1])),
        (Column("tensor_pct", "tensor", "%", ".0f"), lambda item: item[1].tensor_active_pct),
        (Column("dram_pct", "DRAM", "%", ".0f"), lambda item: item[1].dram_pct),
        (Column("l2_pct", "L2", "%", ".0f"), lambda item: item[1].l2_pct),
        (Column("l2_hit_pct", "L2 hits", "%", ".0f"), lambda item: item[1].l2_hit_pct),
        (Column("roof", "roof"), lambda item: item[1].roof or "–"),
        (Column("roof_pct", "of it", "%", ".0f"), lambda item: _percent(item[1].roof_share)),
        (Column("verdict", "verdict"), lambda item: verdict_title(item[1].verdict) or "–"),
        (Column("stalls", "warps"), lambda item: _stalls(item[1])),
    ]
    notes = (key(study, found) + phrase("study_table.hardware"),)
    return filled(columns, kernels, title="Hardware", notes=notes if kernels else ())


def _occupancy(kernel: Kernel) -> str:
    achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
    return f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else "–"


def _stalls(kernel: Kernel) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel)) or "–"


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
        (Column("why", "why"), lambda item: item[0][1]),
    ]
    return filled(columns, groups.items())


def _first_two(study: Study, cases: Sequence[CaseResult]) -> str:
    return join_words([label(study, case, workload=False) for case in cases[:2]]) + (" …" if len(cases) > 2 else "")
