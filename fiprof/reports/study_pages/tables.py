"""Tables that several documents of a study show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.model.results import Cell
from fiprof.reports.pages.page import PageLink
from fiprof.reports.study_pages.claims import Result
from fiprof.reports.study_pages.data import Study, kernel_shares, main_kernel
from fiprof.reports.study_pages.kernel_findings import top_stalls
from fiprof.reports.view import Column, View, view_of
from fiprof.text import join_words, short_kernel


@dataclass(frozen=True)
class CellRow:
    """A cell as the table of all cells shows it."""

    cell: str
    plain_us: float | None
    half_pct: float | None
    nsys_us: float | None
    ncu_us: float | None
    wall_us: float | None
    tokens_per_second: float | None
    tflops: float | None
    gb_per_s: float | None
    roof_pct: float | None
    verdict: str
    run: str


_CELLS = (
    Column("cell", "cell"),
    Column("plain_us", "plain", unit="µs", spec=",.2f", meaning="median between CUDA events, no profiler"),
    Column("half_pct", "±", unit="%", spec=".1f", meaning="half of the confidence interval, of the median"),
    Column("nsys_us", "nsys", unit="µs", spec=",.2f", meaning="kernels of an iteration"),
    Column("ncu_us", "ncu", unit="µs", spec=",.2f", meaning="the same under ncu, caches flushed"),
    Column("wall_us", "host", unit="µs", spec=",.1f", meaning="host time an iteration, back to back"),
    Column("tokens_per_second", "tokens/s", spec=",.0f"),
    Column("tflops", "TFLOP/s", spec=",.1f", meaning="least operations over the plain time"),
    Column("gb_per_s", "GB/s", spec=",.0f", meaning="least bytes over the plain time"),
    Column("roof_pct", "of roof", unit="%", spec=".0f", meaning="of the roof that binds the main kernel, by ncu"),
    Column("verdict", "verdict"),
    Column("run", "run"),
)


def cells(study: Study, found: Sequence[Cell], *, title: str = "") -> View:
    """Every cell with its times and rates; those without a time last, with the reason. The run stands in the table
    where there are several."""
    rows = [_row(study, cell) for cell in sorted(found, key=lambda cell: _order(study, cell))]
    notes = (
        key(study, found)
        + "plain: median of an iteration between CUDA events, without a profiler, ± half of its interval; nsys: its "
        "kernels; ncu: the same with caches flushed; host: of the calls, back to back. Rates: least work over plain "
        "time, so above DRAM's peak where data stays in L2. of roof, verdict: of the main kernel, counted by ncu.",
    )
    one_run = len({cell.run for cell in found}) == 1
    columns = tuple(column for column in _CELLS if not (one_run and column.key == "run"))
    return view_of(columns, rows, title=title, notes=notes if rows else ())


def _order(study: Study, cell: Cell) -> tuple[bool, list[str], list[float]]:
    """Cells of the same options after each other, by growing sizes; those without a time last."""
    sizes = [float(cell.params[name]) for name in study.axes(cell.workload) if name in cell.params]
    return cell.plain is None, [str(cell.params.get(name)) for name in study.options(cell.workload)], sizes


def key(study: Study, found: Sequence[Cell]) -> str:
    """What the names in the first column are made of."""
    workload = found[0].workload if found else ""
    words = study.short_key(workload) if workload else ""
    more = "; TC: on tensor cores" if "tensor_cores" in study.options(workload) else ""
    more += "; graph: replayed from a CUDA graph" if "cuda_graph" in study.options(workload) else ""
    return f"cell: {words} (1k = 1,024){more}. " if words else ""


def _row(study: Study, cell: Cell) -> CellRow:
    kernel = main_kernel(cell)
    plain = cell.plain
    return CellRow(
        cell=study.short(cell),
        plain_us=plain.median_us if plain else None,
        half_pct=100 * half_width(cell) if plain else None,
        nsys_us=cell.nsys.median_us if cell.nsys else None,
        ncu_us=cell.ncu_us,
        wall_us=cell.wall_us,
        tokens_per_second=cell.tokens_per_second,
        tflops=cell.tflops,
        gb_per_s=cell.gb_per_s,
        roof_pct=100 * kernel.roof_share if kernel and kernel.roof_share is not None else None,
        verdict=(kernel.verdict if kernel else "") or cell.skipped,
        run=study.run_link(cell.run) if cell.run else "",
    )


def half_width(cell: Cell) -> float:
    """Half of the interval of the plain median, as a part of it; 0 where it has no time."""
    plain = cell.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


@dataclass(frozen=True)
class ExecutionRow:
    """A kernel of a cell: how it was launched."""

    cell: str
    kernel: str
    share_pct: float | None
    grid: str
    block: str
    waves: float | None
    registers: int | None
    shared_kb: float | None


_EXECUTION = (
    Column("cell", "cell"),
    Column("kernel", "kernel"),
    Column("share_pct", "of time", unit="%", spec=".0f"),
    Column("grid", "grid"),
    Column("block", "block"),
    Column("waves", "waves", spec=".2f"),
    Column("registers", "registers"),
    Column("shared_kb", "shared", unit="kB", spec=".1f"),
)


def execution(study: Study, found: Sequence[Cell]) -> View:
    """How the kernels of some cells were launched, in the order of an iteration."""
    rows = []
    for cell in found:
        shares = kernel_shares(cell)
        for i, kernel in enumerate(cell.kernels):
            rows.append(
                ExecutionRow(
                    cell=study.short(cell) if not i else "",
                    kernel=short_kernel(kernel.kernel),
                    share_pct=100 * shares[i] if shares else None,
                    grid=kernel.grid,
                    block=kernel.block,
                    waves=kernel.waves,
                    registers=kernel.registers_per_thread,
                    shared_kb=None if kernel.shared_bytes_per_block is None else kernel.shared_bytes_per_block / 1e3,
                )
            )
    notes = (
        key(study, found)
        + "of time: of the iteration's kernel time under ncu. shared: memory a block, static and dynamic.",
    )
    return view_of(_EXECUTION, rows, title="Launches", notes=notes if rows else ())


@dataclass(frozen=True)
class HardwareRow:
    """The main kernel of a cell: what the hardware did."""

    cell: str
    occupancy: str
    tensor_pct: float | None
    dram_pct: float | None
    l2_pct: float | None
    l2_hit_pct: float | None
    roof: str
    roof_pct: float | None
    verdict: str
    stalls: str


_HARDWARE = (
    Column("cell", "cell"),
    Column("occupancy", "occupancy", unit="%"),
    Column("tensor_pct", "tensor", unit="%", spec=".0f"),
    Column("dram_pct", "DRAM", unit="%", spec=".0f"),
    Column("l2_pct", "L2", unit="%", spec=".0f"),
    Column("l2_hit_pct", "L2 hits", unit="%", spec=".0f"),
    Column("roof", "roof"),
    Column("roof_pct", "of it", unit="%", spec=".0f"),
    Column("verdict", "verdict"),
    Column("stalls", "warps"),
)


def hardware(study: Study, found: Sequence[Cell]) -> View:
    """What the hardware did in the main kernels of some cells."""
    rows = []
    for cell in found:
        kernel = main_kernel(cell)
        if kernel is None:
            continue
        achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
        rows.append(
            HardwareRow(
                cell=study.short(cell),
                stalls=", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel)) or "–",
                occupancy=f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else "–",
                tensor_pct=kernel.tensor_active_pct,
                dram_pct=kernel.dram_pct,
                l2_pct=kernel.l2_pct,
                l2_hit_pct=kernel.l2_hit_pct,
                roof=kernel.roof or "–",
                roof_pct=None if kernel.roof_share is None else 100 * kernel.roof_share,
                verdict=kernel.verdict or "–",
            )
        )
    notes = (
        key(study, found)
        + "warps: their largest states, of all their time. occupancy: achieved of theoretical. roof: the lower one at "
        "the kernel's intensity, and how much of what it allows was achieved.",
    )
    return view_of(_HARDWARE, rows, title="Hardware", notes=notes if rows else ())


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what became of it."""

    claim: str
    verdict: str
    tested: int
    holds: int
    partly: int
    fails: int
    unclear: int


_CLAIMS = (
    Column("claim", "claim"),
    Column("verdict", "verdict"),
    Column("tested", "tested", meaning="cells, or pairs of cells"),
    Column("holds", "hold"),
    Column("partly", "in part"),
    Column("fails", "fail"),
    Column("unclear", "unclear", meaning="the interval crosses a limit"),
)


def claims(results: Sequence[Result], *, to: str = "") -> View:
    """The claims and their verdicts. to: document whose sections the claims link to; empty for the same page."""
    rows = [
        ClaimRow(
            claim=PageLink(f"«{item.claim.words}»", f"{to}#claim-{item.claim.name}") if to else f"«{item.claim.words}»",
            verdict=item.verdict,
            tested=len(item.tested),
            holds=item.counted("holds"),
            partly=item.counted("partly"),
            fails=item.counted("fails"),
            unclear=item.counted("unclear"),
        )
        for item in results
    ]
    return view_of(_CLAIMS, rows)


@dataclass(frozen=True)
class AbsentRow:
    """Cells without a time, of one reason."""

    workload: str
    cells: int
    examples: str
    why: str


def absent(study: Study) -> View:
    """Cells that have no time, by reason."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for workload, found in study.by_workload.items():
        for cell in found:
            if cell.plain is None:
                groups.setdefault((workload, cell.skipped or "it has no plain time"), []).append(cell)
    rows = [
        AbsentRow(
            workload,
            len(found),
            join_words([study.label(cell, workload=False) for cell in found[:2]]) + (" …" if len(found) > 2 else ""),
            why,
        )
        for (workload, why), found in groups.items()
    ]
    columns = (
        Column("workload", "kernel"),
        Column("cells", "cells"),
        Column("examples", "which"),
        Column("why", "why"),
    )
    return view_of(columns, rows)
