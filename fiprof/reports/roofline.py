"""``fiprof roofline``: launches and cases under the roofs as tables, and the roofs drawn in characters."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fiprof.analysis import roofline
from fiprof.analysis.frames import OfRun
from fiprof.analysis.roofline import Basis, LaunchRoofline, Level, Work
from fiprof.model.finding import say, words_of
from fiprof.model.quantities import QUANTITIES, ratio
from fiprof.model.selection import alike, by_key, longest_first
from fiprof.reports.columns import HOW_TIMED, NAMES, TIMES, bounded, grouped
from fiprof.reports.view import Column, Document, Narrow, Value, View, left_out, view_of
from fiprof.text import span, wrap

Rooflines = OfRun[LaunchRoofline, Mapping[str, Any]]
NOT_ENOUGH = "not enough evidence"
HOW_TO_READ = (
    "DRAM, L2: operations of the launch's main work (that which uses most of its roof) over the bytes that the memory "
    "moved, as ncu counted both (L1: --format json); model: by the workload's cost model, for its case as a whole. "
    "roof: the lowest of the compute roof and of bandwidth x intensity of DRAM, L2 and L1; at roof: what it allows; "
    "share: achieved of that; all by ncu's time. Loads by TMA bypass what L1 counts."
)
MOST_ROWS = 20  # groups of like launches, and cases, that people are shown
MOST_REMARKS = 8  # about launches, that people are shown
L1 = Column("l1_flop_per_byte", "L1", "FLOP/B", ".4g", narrow=Narrow.DROP)  # shown where L1 limits a launch
LAUNCHES = (
    *TIMES,
    Column("dram_flop_per_byte", "DRAM", "FLOP/B", ".4g"),
    Column("l2_flop_per_byte", "L2", "FLOP/B", ".4g", narrow=Narrow.DROP),
    L1,
    Column("model_flop_per_byte", "model", "FLOP/B", ".4g", narrow=Narrow.DROP),
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("attainable_tflops", "at roof", "TFLOP/s", ".2f"),
    Column("roof_share", "share", spec=".1%"),
)


def document(rooflines: Rooflines, *, most: int | None = None) -> Document:
    """The roofs in words, a table of the launches, and one of the cases by their cost model; one row a launch for
    programs. most: rows that people are shown; None for all."""
    launches, cases = rooflines.launches, {case["case"]: case for case in rooflines.cases}
    rows = {item.launch: _row(item, cases.get(item.case or "", {})) for item in launches}
    shown_groups, rest = bounded(longest_first(alike(launches, weights=rooflines.weights)), most)

    def value(item: LaunchRoofline, key: str) -> Value:
        cell: Value = rows[item.launch][key]
        if key == "roof":
            return NOT_ENOUGH if cell is None else f"{cell}{' (model)' if item.basis is Basis.MODEL else ''}"
        return cell

    by_l1 = any(group.shown.roof == Level.L1 for group in shown_groups)
    columns = (*NAMES, *(column for column in LAUNCHES if by_l1 or column is not L1), Column("roof", "roof"))
    notes = (*rest, HOW_TIMED, *_roof_sentences(launches), *_remarks(launches))
    shown = [grouped(columns, shown_groups, value, title="Launches on the roofline, as counted", notes=notes)]
    if cases:
        of_cases = [{**case, "roof": case["roof"] or NOT_ENOUGH} for case in list(cases.values())[:most]]
        left = left_out("{count:case|cases} left out: --all shows them.", len(cases) - len(of_cases))
        title = "An iteration of each case by its cost model: the least work and bytes, over DRAM"
        shown.append(view_of(roofline.CASES, of_cases, title=title, notes=left))

    def programs() -> View:
        return view_of([Column(key) for key in next(iter(rows.values()))], rows.values())

    return Document(programs, tuple(shown), warnings=rooflines.warnings, notes=(HOW_TO_READ,))


def _row(item: LaunchRoofline, case: Mapping[str, Any]) -> dict[str, Any]:
    works: dict[str, Work | None] = {work.kind: work for work in item.works}
    tensor = [work for work in item.works if work.kind.startswith("tensor")]
    works["tensor"] = max(tensor, key=lambda work: work.ops, default=None)
    row: dict[str, Any] = {
        **{key: getattr(item, key) for key in ("launch", "label", "kernel", "case", "iteration")},
        **{column.key: getattr(item, column.key) for column in TIMES},
        "basis": item.basis,
        "work": item.work and item.work.kind,
        "ops": item.work and item.work.ops,
        "compute_roof_tflops": item.work and item.work.peak_tflops,
        "compute_roof_share": item.work and item.work.share,
        "roof": item.roof,
        "remark": item.remark,
    }
    for level in (Level.L1, Level.DRAM, Level.L2):
        memory, name = item.memory(level), level.lower()
        row[f"{name}_flop_per_byte"] = memory and memory.flop_per_byte
        row[f"{name}_ridge_flop_per_byte"] = memory and memory.ridge_flop_per_byte
        for key in (f"{name}_gb_per_s", f"{name}_roof_gb_per_s"):
            row[key] = QUANTITIES[key].of(item.row)
    row["dram_share"] = QUANTITIES["dram_share"].of(item.row)
    for kind in ("tensor", "fp32", "fp16", "fp64"):
        work = works.get(kind)
        row[f"{kind}_tflops"] = work and work.tflops
        row[f"{kind}_roof_tflops"] = work and work.peak_tflops
    return row | {
        "model_flop_per_byte": item.model_flop_per_byte,
        "tflops": item.work and item.work.tflops,
        "attainable_tflops": ratio(item.attainable_ops_per_second, 1e12),
        "roof_share": item.share,
        "case_kernels": case.get("kernels"),
        "case_model_tflops": case.get("tflops"),
        "case_model_attainable_tflops": case.get("attainable_tflops"),
        "case_model_roof_share": case.get("share"),
        "case_model_roof": case.get("roof"),
    }


def _remarks(launches: Sequence[LaunchRoofline]) -> list[str]:
    """Each remark once, with the launches that it is about; of many the first."""
    about = by_key((words_of(item.remark), item.launch) for item in launches if item.remark is not None)
    template = "{launches:launch|launches}: {remark}"
    notes: list[str] = [say(template, launches=numbers, remark=remark) for remark, numbers in about.items()]
    words = "{count:remark|remarks} more: --format json has them"
    return [*notes[:MOST_REMARKS], *left_out(words, len(notes) - MOST_REMARKS)]


def _roof_sentences(launches: Sequence[LaunchRoofline]) -> Iterator[str]:
    """The roofs at the measured clocks, and their ridge points."""
    memories, works = roofline.memory_roofs(launches), roofline.compute_roofs(launches)
    parts = [f"{level} {span([each / 1e12 for each in ends], '.2f')} TB/s" for level, ends in memories.items()]
    parts += [f"{kind} {span([each / 1e12 for each in ends], '.1f')} TFLOP/s" for kind, ends in works.items()]
    if parts:
        yield f"Roofs at the clocks measured: {', '.join(parts)}."
    points = []
    for kind in works:
        peaks = ((item, work.peak_ops_per_second) for item in launches for work in item.works if work.kind == kind)
        known = ((memory, peak) for item, peak in peaks if peak for memory in item.memories)
        ridges = by_key((memory.level, peak / memory.peak_bytes_per_second) for memory, peak in known)
        shown = (f"{level} {span(ridges[level], '.1f')}" for level in memories if level in ridges)
        points.append(f"{kind} at {', '.join(shown)}")
    if points and memories:
        yield f"Ridge points, FLOP/byte: {'; '.join(points)}."
    if not all(item.floats_counted for item in launches):
        yield (
            "FP32, FP16 and FP64 operations and their roofs were not collected for every launch (--section "
            "SpeedOfLight_HierarchicalSingleRooflineChart, …HalfRooflineChart and …DoubleRooflineChart have them, or "
            "--set full): there, the compute roofs are those of the tensor cores alone."
        )


CHART_COLUMNS, CHART_ROWS = 100, 22
AXIS = 8  # cells left of the plot
MOST_DECADES = 8
MARGIN = 0.2  # of a decade, around what is drawn
MARKS = {Level.DRAM: ".", Level.L2: "-", Level.L1: "="}  # what the roof of a memory is drawn with


def chart(rooflines: Rooflines, *, width: int = CHART_COLUMNS) -> str:
    """The roofline in both logarithms as characters, each launch as its number at its DRAM intensity.

    Launches without work stand at the left, by their bytes. Roofs are the highest of the launches. Empty where no
    launch has a point. width: columns, at most 100 are used.
    """
    plotted = [item for item in rooflines.launches if item.roof is not None and item.memories]
    if not plotted:
        return ""

    def point(item: LaunchRoofline, left: float) -> tuple[float, float] | None:
        """Over DRAM; over the busiest memory without work."""
        memory = item.busiest if item.work is None else item.memory(Level.DRAM)
        return None if memory is None else item.point(memory, left)

    memories = {level: high for level, (_, high) in roofline.memory_roofs(plotted).items()}
    works = {kind: high for kind, (_, high) in roofline.compute_roofs(plotted).items()}
    intensities = [at[0] for item in plotted if (at := point(item, 0.0)) and at[0]] or [roofline.LEAST_INTENSITY]
    above = [*works.values()] or [bandwidth * max(intensities) for bandwidth in memories.values()]
    intensities += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    x = _bounds(intensities, below=0.5)
    points = {item.launch: at for item in plotted if (at := point(item, 10 ** x[0]))}
    y = _bounds([*(ops for _, ops in points.values()), *above], below=1.0)
    columns = max(min(width, CHART_COLUMNS) - AXIS, 1)
    cells = [[" "] * columns for _ in range(CHART_ROWS)]

    def place(intensity: float, ops: float) -> tuple[int, int]:
        """Row above the axis, and column."""
        values = ((ops, y, CHART_ROWS), (intensity, x, columns))
        row, column = (int((math.log10(v) - low) / (high - low) * n + 1e-9) for v, (low, high), n in values)
        return row, column

    top, fastest = max(works.values(), default=math.inf), max(memories.values())
    for column in range(columns):
        intensity = 10 ** (x[0] + (column + 0.5) / columns * (x[1] - x[0]))
        roofs = [(at * intensity, MARKS[level]) for level, at in memories.items() if at * intensity <= top]
        for ops, mark in (*roofs, *((roof, "─") for roof in works.values() if intensity >= roof / fastest)):
            row, _ = place(intensity, ops)
            if 0 <= row < CHART_ROWS:
                cells[row][column] = mark
    for kind, roof in works.items():
        row, text = place(1.0, roof)[0], f" {kind} {roof / 1e12:.1f} "
        if (start := "".join(cells[row]).rfind("─" * len(text))) >= 0:
            cells[row][start : start + len(text)] = text
    # Launches as their numbers; the number that is drawn -> those that lie under it.
    drawn: dict[tuple[int, int], int] = {}
    under: dict[int, list[int]] = defaultdict(list)
    for launch, (intensity, ops) in points.items():
        row, column = place(intensity, ops)
        row, start = min(max(row, 0), CHART_ROWS - 1), min(max(column, 0), columns - len(str(launch)))
        around = range(start - 1, start + len(str(launch)) + 1)
        if there := [drawn[row, each] for each in around if (row, each) in drawn]:
            under[there[0]].append(launch)
            continue
        drawn |= dict.fromkeys(((row, each) for each in around[1:-1]), launch)
        cells[row][start : start + len(str(launch))] = str(launch)

    marks = ", ".join(f"{MARKS[level]} {level}" for level in memories)
    head = "Roofline: achieved work over its intensity at DRAM, both logarithmic; each launch is its number"
    after = [f"Roofs of memories: {marks}."]
    if any(item.work is None for item in plotted):
        words = "At the left edge stand launches without floating-point work, as far below a memory's roof as their "
        after.append(f"{words}bytes are.")
    if under:
        shared = [say("{first} also {others}", first=one, others=rest) for one, rest in under.items()]
        after.append(f"one cell: {', '.join(shared)}")

    def powers(bounds: tuple[float, float]) -> range:
        return range(math.ceil(bounds[0]), math.ceil(bounds[1]))

    def power(exponent: int) -> str:
        return f"{10.0**exponent:,.{max(-exponent, 0)}f}"

    ticks = {place(1.0, 10.0**each)[0]: power(each - 12) for each in powers(y)}
    axis, below = ["─"] * columns, [" "] * columns
    for exponent in powers(x):
        (_, column), word = place(10.0**exponent, 1.0), power(exponent)
        axis[column] = "┬"
        if column + len(word) <= columns:
            below[column : column + len(word)] = word
    rows = [
        f"{ticks.get(row, ''):>{AXIS - 2}} {'┤' if row in ticks else '│'}{''.join(each)}".rstrip()
        for row, each in enumerate(cells)
    ]
    ends = [" " * (AXIS - 1) + "└" + "".join(axis), (" " * AXIS + "".join(below)).rstrip()]
    ends.append(f"{'FLOP/byte of DRAM':>{AXIS + columns}}")
    told = [[line for each in texts for line in wrap(each, width)] for texts in ([head], after)]
    return "\n".join([*told[0], f"{'TFLOP/s':>{AXIS - 1}}", *reversed(rows), *ends, *told[1]])


def _bounds(values: Sequence[float], *, below: float) -> tuple[float, float]:
    """Exponents of ten a little beyond the values: two decades at least, the highest ones where there are too many.
    below: how much of what lacks to two decades is added at the lower end."""
    low, high = math.log10(min(values)) - MARGIN, math.log10(max(values)) + MARGIN
    lacks = max(0.0, 2 - (high - low))
    low, high = low - lacks * below, high + lacks * (1 - below)
    return max(low, high - MOST_DECADES), high
