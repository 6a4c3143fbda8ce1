"""``analysis``: each kernel: how it ran, what the hardware did, how its time grows, and every cell."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from fiprof.analysis.reasons import reason_of
from fiprof.model.results import Cell
from fiprof.reports.pages.page import Block, Bullets, Caution, Chart, Page, Section, Table, Text
from fiprof.reports.study_pages import jit, scaling
from fiprof.reports.study_pages.claims import roof_kind
from fiprof.reports.study_pages.data import (
    AXIS_WORDS,
    Study,
    Value,
    dram_bytes,
    kernel_shares,
    main_kernel,
    parameter_words,
)
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.kernel_findings import top_stalls, wave_efficiency
from fiprof.reports.study_pages.kernels import known, title
from fiprof.reports.study_pages.ratio import number, spread, times
from fiprof.reports.study_pages.tables import absent, cells, execution, hardware
from fiprof.reports.view import Column, View
from fiprof.text import count, join_words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SHOWN = 12
"""Cells of the tables on execution and hardware."""

DRAM_ROOF = "DRAM roof"

LINE_POINTS = 30
"""Points that draw a roof in characters."""


def page(study: Study) -> Page:
    """Every kernel of the study."""
    missing = absent(study)
    sections = [_workload(study, workload) for workload in study.by_workload]
    if study.jit is not None:
        sections.append(jit.section(study.jit))
    if missing.rows:
        sections.append(Section("absent", "Cells without a time", (Table(missing),)))
    return Page(f"{study.info.title or study.info.study}: analysis", tuple(sections), facts=facts(study))


def _workload(study: Study, workload: str) -> Section:
    if not study.of(workload):
        return Section(workload, workload, (Caution(f"Not measured: {study.why_absent(workload)}."),))
    about = known(workload)
    algorithm = tuple(Text((text,)) for text in about.algorithm) if about else ()
    shown = representative(study, workload)
    parts = [
        Section(f"{workload}-execution", f"{workload}: algorithm and execution", _execution(study, workload, shown)),
        Section(f"{workload}-hardware", f"{workload}: what the hardware did", _hardware(study, workload, shown)),
        Section(f"{workload}-scaling", f"{workload}: how its time grows", _scaling(study, workload)),
        Section(
            f"{workload}-cells",
            f"{workload}: every cell",
            _cells(study, workload),
        ),
    ]
    lead: tuple[Block, ...] = (Text((f"{title(workload)}.",)),)
    if algorithm:
        lead = (*lead, Bullets(algorithm))
    return Section(workload, workload, lead, tuple(parts))


def _cells(study: Study, workload: str) -> tuple[Block, ...]:
    """Every cell, in plain text too, with the run that holds them where it is one."""
    found = study.by_workload[workload]
    table = Table(cells(study, found), f"cells-{workload}", appendix=True, uncut=True)
    runs = {cell.run for cell in found}
    return (table, Text(("Run: ", study.run_link(runs.pop()), "."))) if len(runs) == 1 else (table,)


def representative(study: Study, workload: str) -> list[Cell]:
    """The smallest and the largest measured cell of each combination of options; fewer where there are many."""
    groups = list(study.groups(workload).values())
    both = [cell for group in groups for cell in (group if len(group) < 2 else (group[0], group[-1]))]
    return both if len(both) <= MOST_SHOWN else [group[-1] for group in groups][:MOST_SHOWN]


# Execution


def _execution(study: Study, workload: str, shown: Sequence[Cell]) -> tuple[Block, ...]:
    seen = [cell for cell in study.of(workload) if cell.kernels]
    if not seen:
        return (Caution("ncu's launches of these cells were not collected: no grid, no waves, no merge steps."),)
    lines = [*_sequence(seen), *_plan_words(study, workload), *_waves(seen)]
    blocks: list[Block] = [Bullets(tuple(Text((line,)) for line in lines))]
    blocks.append(Table(execution(study, [cell for cell in shown if cell.kernels]), f"execution-{workload}"))
    if any(cell.plan for cell in shown):
        blocks.append(Table(_plans(study, shown), f"plan-{workload}"))
    return tuple(blocks)


def _sequence(seen: Sequence[Cell]) -> list[str]:
    """Which kernels an iteration runs, and what each takes."""
    sequences = Counter(tuple(kernel.kernel for kernel in cell.kernels) for cell in seen)
    lines = []
    for sequence, n in sequences.most_common():
        mine = [cell for cell in seen if tuple(kernel.kernel for kernel in cell.kernels) == sequence]
        text = f"{count(n, 'cell')}: an iteration is {join_words([f'one {name}' for name in sequence])}"
        shares = [found for cell in mine if (found := kernel_shares(cell))]
        if len(sequence) > 1 and shares:
            text += f"; the last takes {spread([found[-1] for found in shares], '.0%')} of the kernel time"
        lines.append(text + ".")
    return lines


def _waves(seen: Sequence[Cell]) -> list[str]:
    waves = [kernel.waves for cell in seen if (kernel := main_kernel(cell)) and kernel.waves is not None]
    if not waves:
        return []
    below = sum(item < 1 for item in waves)
    worst = min(map(wave_efficiency, waves))
    return [
        f"Waves of the main kernel: {spread(waves)}; {below} of {len(waves)} grids do not fill the GPU once, and of "
        f"those with more than a wave the worst uses {worst:.0%} of its waves' block slots."
    ]


def split_factor(cell: Cell) -> int | None:
    """Parts that a request's KV was split into, by the plan; 1 where it was not split; None where that is not told."""
    split, chunk = cell.plan.get("split_kv"), cell.plan.get("kv_chunk_tokens")
    tokens = cell.params.get("kv_len", cell.params.get("seq_len"))
    if split is False:
        return 1
    if split and isinstance(chunk, int) and chunk > 0 and isinstance(tokens, int):
        return math.ceil(tokens / chunk)
    return None


def imbalance(cell: Cell) -> float | None:
    """Work items of the block that has most over the mean of all blocks; None where the plan does not tell."""
    most, items, blocks = (cell.plan.get(name) for name in ("most_work_items_of_a_block", "work_items", "blocks"))
    if isinstance(most, int) and isinstance(items, int) and isinstance(blocks, int) and items > 0 and blocks > 0:
        return most / (items / blocks)
    return None


def _plan_words(study: Study, workload: str) -> list[str]:
    planned = [cell for cell in study.of(workload) if cell.plan]
    if not planned:
        return []
    lines = []
    factors = [(cell, factor) for cell in planned if (factor := split_factor(cell)) is not None]
    split = [(cell, factor) for cell, factor in factors if factor > 1]
    if split:
        most = max(split, key=lambda item: item[1])
        lines.append(
            f"FlashInfer's plan split KV in {len(split)} of {count(len(factors), 'cell')}, into "
            f"{spread([factor for _, factor in split], '.0f')} parts; most at {study.label(most[0], workload=False)}."
        )
        batches = [float(cell.params["batch"]) for cell, _ in split if "batch" in cell.params]
        whole = [float(cell.params["batch"]) for cell, factor in factors if factor == 1 and "batch" in cell.params]
        if batches and whole and max(batches) < min(whole):
            lines.append(f"It split at every batch up to {max(batches):,.0f} and at none from {min(whole):,.0f} on.")
    elif factors:
        lines.append(f"FlashInfer's plan split KV in none of {count(len(factors), 'cell')}.")
    tiles = sorted(
        {cell.plan["cta_tile_q"] for cell in planned if isinstance(cell.plan.get("cta_tile_q"), int)}, key=int
    )
    if tiles:
        lines.append(
            f"Query tiles of a block: {join_words([str(tile) for tile in tiles])} rows (query heads packed in)."
        )
    uneven = [found for cell in planned if (found := imbalance(cell)) is not None]
    if uneven:
        lines.append(
            f"The busiest block of the persistent kernel has {spread(uneven)} times the mean number of work items "
            f"({count(len(uneven), 'cell')}); items of a causal mask differ in length, and the plan balances length."
        )
    return lines


def _plans(study: Study, shown: Sequence[Cell]) -> View:
    """The plan's facts of some cells, with the split factor that follows."""
    keys = list(dict.fromkeys(key for cell in shown for key in cell.plan))
    columns = [Column("cell", "cell"), *(Column(key, key.replace("_", " ")) for key in keys)]
    rows = [(study.short(cell), *(cell.plan.get(key) for key in keys)) for cell in shown if cell.plan]
    if "kv_chunk_tokens" in keys:
        columns.append(Column("split_factor", "split factor"))
        rows = [(*row, split_factor(cell)) for row, cell in zip(rows, [c for c in shown if c.plan], strict=True)]
    return View(tuple(columns), tuple(rows), title="Plan", notes=("As FlashInfer's planner told it.",))


# Hardware


def _hardware(study: Study, workload: str, shown: Sequence[Cell]) -> tuple[Block, ...]:
    seen = [(cell, kernel) for cell in study.of(workload) if (kernel := main_kernel(cell)) is not None]
    if not seen:
        return (Caution("ncu did not see these cells: no counters."),)
    lines = []
    dominant = Counter(top_stalls(kernel, 1)[0][0] for _, kernel in seen if kernel.stalls)
    for name, n in dominant.most_common(3):
        mine = [kernel.stalls[name] for _, kernel in seen if kernel.stalls and top_stalls(kernel, 1)[0][0] == name]
        lines.append(
            f"{name} is the largest state of the warps in {n} of {sum(dominant.values())} main kernels, with "
            f"{spread(mine, '.0%')} of their time: they {reason_of(name).meaning}."
        )
    verdicts = Counter(kernel.verdict for _, kernel in seen if kernel.verdict)
    if verdicts:
        lines.append(f"Verdicts: {join_words([f'{name} {n}' for name, n in verdicts.most_common()])}.")
    for roof in dict.fromkeys(kernel.roof for _, kernel in seen if kernel.roof):
        shares = [k.roof_share for _, k in seen if k.roof == roof and k.roof_share is not None]
        if shares:
            lines.append(f"Under the {roof} roof: {count(len(shares), 'cell')}, at {spread(shares, '.0%')} of it.")
    unplaced = sum(kernel.roof is None for _, kernel in seen)
    if unplaced:
        lines.append(
            f"{count(unplaced, 'main kernel')} could not be placed under a roof: their operations were not counted "
            "(ncu's full set counts them)."
        )
    return (
        Bullets(tuple(Text((line,)) for line in lines)),
        Table(hardware(study, [cell for cell in shown if cell.kernels]), f"hardware-{workload}"),
        *_roofline(study, workload),
    )


# Roofline


def intensity(cell: Cell) -> float | None:
    """Least operations over the DRAM bytes that ncu counted, FLOP/byte; None where they were not counted."""
    moved = dram_bytes(cell)
    return cell.flops / moved if moved and cell.flops else None


def _roofline(study: Study, workload: str) -> tuple[Block, ...]:
    """Every cell under the roofs that follow from its shares of them: nothing where no cell has both."""
    from fiprof.reports.pages.charts import Point, Series, scaling_chart

    groups = {
        key: [(cell, x) for cell in cells_ if (x := intensity(cell)) is not None and cell.tflops]
        for key, cells_ in study.groups(workload).items()
    }
    placed = [item for items in groups.values() for item in items]
    if not placed:
        return ()
    series = [
        Series(
            parameter_words(dict(key), items[0][0].params) or workload,
            tuple(
                Point(x, cell.tflops or 0.0, name=study.label(cell), details=(("plain time", _plain(cell)),))
                for cell, x in sorted(items, key=lambda item: item[1])
            ),
        )
        for key, items in groups.items()
        if items
    ]
    low, high = (choose(x for _, x in placed) for choose in (min, max))
    bandwidths = [
        cell.gb_per_s / cell.gb_per_s_roof_share for cell, _ in placed if cell.gb_per_s and cell.gb_per_s_roof_share
    ]
    peaks = [cell.tflops / cell.tflops_roof_share for cell, _ in placed if cell.tflops and cell.tflops_roof_share]
    kinds: dict[str, list[float]] = {}
    for cell, _ in placed:
        kernel = main_kernel(cell)
        if kernel and kernel.roof and roof_kind(kernel.roof) == "compute" and cell.tflops and cell.tflops_roof_share:
            kinds.setdefault(kernel.roof, []).append(cell.tflops / cell.tflops_roof_share)
    words = []
    if bandwidths:
        bandwidth = median(bandwidths)
        ends = (low / 1.5, min(high * 1.5, max(peaks) * 1e3 / bandwidth) if peaks else high * 1.5)
        if ends[0] < ends[1]:
            steps = [ends[0] * (ends[1] / ends[0]) ** (i / LINE_POINTS) for i in range(LINE_POINTS + 1)]
            series.append(Series(DRAM_ROOF, tuple(Point(x, x * bandwidth / 1e3) for x in steps)))
        words.append(f"DRAM {bandwidth / 1e3:.2f} TB/s")
    words += [f"{kind} {spread(values)} TFLOP/s" for kind, values in kinds.items()]
    words += [f"compute {spread(peaks)} TFLOP/s"] if peaks and not kinds else []
    chart = scaling_chart(
        f"{workload}: roofline",
        series,
        x=("intensity", "FLOP/byte"),
        y=("achieved", "TFLOP/s"),
        anchor=f"chart-{workload}-roofline",
        roofs=[(f"{kind} roof", median(values)) for kind, values in kinds.items()],
        caption="Least operations over plain time, against least operations over the DRAM bytes that ncu counted "
        f"with flushed caches. Roofs at the measured clocks: {join_words(words) or 'not known'}. Cells whose data "
        "stays in L2 can lie above DRAM's.",
    )
    return (dataclasses.replace(chart, figure=lambda: _dots(chart.figure())),)


def _dots(figure: Figure) -> Figure:
    """Cells are points of their own, and a roof is a line."""
    for trace in figure.data:
        if "markers" in (trace.mode or ""):
            trace.mode = "lines" if trace.name == DRAM_ROOF else "markers"
    return figure


def _plain(cell: Cell) -> str:
    return times(cell.plain) if cell.plain else ""


# Scaling


def _scaling(study: Study, workload: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for axis in study.axes(workload):
        found = scaling.fits(study, workload, axis)
        if not found:
            blocks.append(Caution(f"No fit along {AXIS_WORDS.get(axis, axis)}: fewer than three sizes were measured."))
            continue
        shown, fixed = _middle(study, workload, axis, found)
        blocks.append(_chart(study, workload, axis, shown, fixed))
        blocks.append(Bullets(tuple(Text((scaling.sentence(item),)) for item in shown)))
        blocks.append(
            Table(
                scaling.view(study, found, title=f"Fits along {AXIS_WORDS.get(axis, axis)}"),
                f"fits-{workload}-{axis}",
                appendix=len(found) > len(shown),
                uncut=True,
            )
        )
    return tuple(blocks) or (Text(("No parameter has three sizes or more: nothing to fit.",)),)


def _middle(
    study: Study, workload: str, axis: str, found: Sequence[scaling.Fit]
) -> tuple[list[scaling.Fit], dict[str, Value]]:
    """The fits at the middle of the other axes, and those axes' values there."""
    others = [name for name in study.axes(workload) if name != axis]
    fixed: dict[str, Value] = {}
    left = list(found)
    for name in others:
        values = sorted({float(item.cells[0].params[name]) for item in left if name in item.cells[0].params})
        if values:
            chosen = values[len(values) // 2]
            left = [item for item in left if item.cells[0].params.get(name) == chosen]
            fixed[name] = left[0].cells[0].params[name]
    return left, fixed


def _chart(study: Study, workload: str, axis: str, shown: Sequence[scaling.Fit], fixed: dict[str, Value]) -> Chart:
    from fiprof.reports.pages.charts import Point, Series, scaling_chart

    series = [
        Series(
            _series_name(study, workload, item),
            tuple(
                Point(
                    x=float(cell.params[axis]),
                    y=cell.plain.median_us,
                    low=cell.plain.low_us,
                    high=cell.plain.high_us,
                    name=study.label(cell),
                    details=(("line", f"{number(item.line_us(float(cell.params[axis])))} µs"), ("run", cell.run)),
                )
                for cell in item.cells
                if cell.plain is not None
            ),
        )
        for item in shown
    ]
    where = parameter_words(fixed, fixed)
    name = AXIS_WORDS.get(axis, axis)
    return scaling_chart(
        f"{workload}: time against {name}{f', {where}' if where else ''}",
        series,
        x=(name, "tokens" if axis in ("seq_len", "kv_len") else ""),
        y=("plain time", "µs"),
        anchor=f"chart-{workload}-{axis}",
        caption="Median of an iteration without a profiler; both axes logarithmic, so a power law is a straight line"
        + (f". Others at {where} only; every fit is in the table below." if where else "."),
    )


def _series_name(study: Study, workload: str, item: scaling.Fit) -> str:
    options = study.options(workload)
    words = parameter_words({k: v for k, v in item.fixed if k in options}, item.cells[0].params)
    return words or workload
