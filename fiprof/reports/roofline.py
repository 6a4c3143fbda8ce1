"""``fiprof roofline``: launches and cases under the roofs as tables, and the roofs drawn in characters."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fiprof.analysis.roofline import (
    LEAST_INTENSITY,
    Basis,
    CaseRoofline,
    LaunchRoofline,
    Level,
    Rooflines,
    Work,
    compute_roofs,
    memory_roofs,
)
from fiprof.model.finding import say, worded
from fiprof.model.quantities import QUANTITIES, ratio
from fiprof.model.selection import alike, longest_first
from fiprof.reports.columns import HOW_TIMED, NAMES, TIMES, Cell, Cells, bounded, filled, grouped
from fiprof.reports.view import Column, Document, Narrow, View, view_of
from fiprof.text import wrap

NOT_ENOUGH = "not enough evidence"
HOW_TO_READ = (
    "DRAM, L2: operations of the launch's main work (that which uses most of its roof) over the bytes that the memory "
    "moved, as ncu counted both (L1: --format json); model: by the workload's cost model, for its case as a whole. "
    "roof: the lowest of the compute roof and of bandwidth x intensity of DRAM, L2 and L1; at roof: what it allows; "
    "share: achieved of that; all by ncu's time. Loads by TMA bypass what L1 counts."
)
MOST_ROWS = 20
"""Groups of like launches, and cases, that people are shown."""
MOST_REMARKS = 8
"""About launches, that people are shown."""

L1 = Column("l1_flop_per_byte", "L1", "FLOP/B", ".4g", narrow=Narrow.DROP)
"""Shown where L1 binds a launch."""
LAUNCHES = (
    *(column for column, _ in TIMES),
    Column("dram_flop_per_byte", "DRAM", "FLOP/B", ".4g"),
    Column("l2_flop_per_byte", "L2", "FLOP/B", ".4g", narrow=Narrow.DROP),
    L1,
    Column("model_flop_per_byte", "model", "FLOP/B", ".4g", narrow=Narrow.DROP),
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("attainable_tflops", "at roof", "TFLOP/s", ".2f"),
    Column("roof_share", "share", spec=".1%"),
)
CASES = (
    Column("label", "case"),
    Column("kernels", "kernels", narrow=Narrow.DROP),
    Column("nsys_us", "nsys", "µs", ",.2f"),
    Column("duration_us", "ncu", "µs", ",.2f"),
    Column("gflop", "work", "GFLOP", ",.2f"),
    Column("moved_mb", "bytes", "MB", ",.1f"),
    Column("flop_per_byte", "model", "FLOP/B", ".4g", narrow=Narrow.DROP),
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("attainable_tflops", "at roof", "TFLOP/s", ".2f"),
    Column("share", "share", spec=".1%"),
    Column("roof", "roof"),
)


def document(rooflines: Rooflines, *, most: int | None = None) -> Document:
    """The roofs in words, a table of the launches, and one of the cases by their cost model; one row a launch for
    programs.

    most: rows that people are shown; None for all.
    """
    launches, cases = rooflines.launches, rooflines.cases
    of_case = {case.case: case for case in cases}
    rows = {item.launch: _row(item, of_case.get(item.case or "")) for item in launches}
    kept, left_out = bounded(longest_first(alike(launches, weights=rooflines.weights)), most)

    def cell(column: Column) -> Cell:
        return column, lambda item: rows[item.launch][column.key]

    def shown_roof(item: LaunchRoofline) -> str:
        return NOT_ENOUGH if item.roof is None else f"{item.roof}{' (model)' if item.basis is Basis.MODEL else ''}"

    by_l1 = any(group.shown.roof == Level.L1 for group in kept)
    cells: Cells = (
        *NAMES,
        *(cell(column) for column in LAUNCHES if by_l1 or column is not L1),
        (Column("roof", "roof"), shown_roof),
    )
    notes = (*left_out, HOW_TIMED, *_roof_sentences(launches), *_remarks(launches))
    shown = [filled(grouped(cells, kept), kept, title="Launches on the roofline, as counted", notes=notes)]
    if cases:
        of_cases = [
            case._asdict() | {
                "gflop": case.flops / 1e9, "moved_mb": case.moved_bytes / 1e6, "tflops": case.ops_per_second / 1e12,
                "attainable_tflops": ratio(case.attainable_ops_per_second, 1e12), "share": case.share,
                "roof": case.roof or NOT_ENOUGH,
            }
            for case in cases[:most]
        ]  # fmt: skip
        rest = len(cases) - len(of_cases)
        left = (say("{count:case|cases} left out: --all shows them.", count=rest),) if rest else ()
        title = "An iteration of each case by its cost model: the least work and bytes, over DRAM"
        shown.append(view_of(CASES, of_cases, title=title, notes=left))

    def programs() -> View:
        return view_of([Column(key) for key in next(iter(rows.values()))], rows.values())

    return Document(programs, tuple(shown), warnings=rooflines.warnings, notes=(HOW_TO_READ,))


def _row(item: LaunchRoofline, case: CaseRoofline | None) -> dict[str, Any]:
    """All that programs get of a launch."""
    works: dict[str, Work | None] = {work.kind: work for work in item.works}
    tensor = [work for work in item.works if work.tensor]
    works["tensor"] = max(tensor, key=lambda work: work.ops, default=None)
    row: dict[str, Any] = {
        **{key: getattr(item, key) for key in ("launch", "label", "kernel", "case", "iteration")},
        **{column.key: value(item) for column, value in TIMES},
        "basis": item.basis,
        "work": item.work and item.work.kind,
        "ops": item.work and item.work.ops,
        "compute_roof_tflops": item.work and ratio(item.work.peak_ops_per_second, 1e12),
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
        row[f"{kind}_tflops"] = work and work.ops_per_second / 1e12
        row[f"{kind}_roof_tflops"] = work and ratio(work.peak_ops_per_second, 1e12)
    return row | {
        "model_flop_per_byte": item.model_flop_per_byte,
        "tflops": item.work and item.work.ops_per_second / 1e12,
        "attainable_tflops": ratio(item.attainable_ops_per_second, 1e12),
        "roof_share": item.share,
        "case_kernels": case and case.kernels,
        "case_model_tflops": case and case.ops_per_second / 1e12,
        "case_model_attainable_tflops": case and ratio(case.attainable_ops_per_second, 1e12),
        "case_model_roof_share": case and case.share,
        "case_model_roof": case and case.roof,
    }


def _remarks(launches: Sequence[LaunchRoofline]) -> list[str]:
    """Each remark once, with the launches that it is about; of many the first."""
    about: dict[str, list[int]] = defaultdict(list)
    for item in launches:
        if item.remark is not None:
            about[worded(item.remark)].append(item.launch)
    template = "{launches:launch|launches}: {remark}"
    notes: list[str] = [say(template, launches=numbers, remark=remark) for remark, numbers in about.items()]
    if len(notes) > MOST_REMARKS:
        notes[MOST_REMARKS:] = [f"{len(notes) - MOST_REMARKS} more remarks: --format json has them"]
    return notes


def _roof_sentences(launches: Sequence[LaunchRoofline]) -> Iterator[str]:
    """The roofs at the measured clocks, and their ridge points."""

    def span(values: Sequence[float], spec: str) -> str:
        low, high = format(min(values), spec), format(max(values), spec)
        return low if low == high else f"{low} to {high}"

    memories, works = memory_roofs(launches), compute_roofs(launches)
    parts = [f"{level} {span([each / 1e12 for each in ends], '.2f')} TB/s" for level, ends in memories.items()]
    parts += [f"{kind} {span([each / 1e12 for each in ends], '.1f')} TFLOP/s" for kind, ends in works.items()]
    if parts:
        yield f"Roofs at the clocks measured: {', '.join(parts)}."
    points = []
    for kind in works:
        ridges: dict[Level, list[float]] = defaultdict(list)
        for item in launches:
            peak = next((work.peak_ops_per_second for work in item.works if work.kind == kind), None)
            for memory in item.memories if peak else ():
                ridges[memory.level].append((peak or 0.0) / memory.peak_bytes_per_second)
        shown = (f"{level} {span(ridges[level], '.1f')}" for level in memories if ridges[level])
        points.append(f"{kind} at {', '.join(shown)}")
    if points and memories:
        yield f"Ridge points, FLOP/byte: {'; '.join(points)}."
    if not all(item.floats_counted for item in launches):
        yield (
            "FP32, FP16 and FP64 operations and their roofs were not collected for every launch (--section "
            "SpeedOfLight_HierarchicalSingleRooflineChart, …HalfRooflineChart and …DoubleRooflineChart have them, or "
            "--set full): there, the compute roofs are those of the tensor cores alone."
        )


# In characters

CHART_COLUMNS, CHART_ROWS = 100, 22
AXIS = 8
"""Cells left of the plot."""
MOST_DECADES = 8
MARGIN = 0.2
"""Of a decade, around what is drawn."""
SLOPE = ".-'"
"""A rising line inside one row: low, middle, high."""


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

    memories: Mapping[str, float] = {level: high for level, (_, high) in memory_roofs(plotted).items()}
    works = {kind: high for kind, (_, high) in compute_roofs(plotted).items()}
    intensities = [at[0] for item in plotted if (at := point(item, 0.0)) and at[0]] or [LEAST_INTENSITY]
    above = [*works.values()] or [bandwidth * max(intensities) for bandwidth in memories.values()]
    intensities += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    x = _bounds(intensities, below=0.5)
    points = [(str(item.launch), *at) for item in plotted if (at := point(item, 10 ** x[0]))]
    plane = _Plane(x, _bounds([*(ops for _, _, ops in points), *above], below=1.0), min(width, CHART_COLUMNS) - AXIS)
    top = max(works.values(), default=math.inf)
    for bandwidth in memories.values():
        plane.line(lambda x, bandwidth=bandwidth: bandwidth * x if bandwidth * x <= top else None)  # type: ignore[misc]
    for roof in works.values():
        since = roof / max(memories.values())
        plane.line(lambda x, roof=roof, since=since: roof if x >= since else None)  # type: ignore[misc]
    under = plane.points(points)
    for level, bandwidth in memories.items():
        plane.label_slope(level, bandwidth, until=top)
    for kind, roof in works.items():
        text, row = f" {kind} {roof / 1e12:.1f} ", int(plane.height(roof))
        ends = range(plane.columns - len(text), plane.columns // 2, -1)
        any(plane.write(text, row, column, over=" ─") for column in ends)
    notes = ["Roofline: achieved work over its intensity at DRAM, both logarithmic; each launch is its number"]
    after = []
    if any(item.work is None for item in plotted):
        after.append(
            "At the left edge stand launches without floating-point work, as far below a memory's roof as their bytes "
            "are."
        )
    if under:
        shared = [say("{first} also {others}", first=one, others=rest) for one, rest in under.items()]
        after.append(f"one cell: {', '.join(shared)}")
    before, below = ([line for note in each for line in wrap(note, width)] for each in (notes, after))
    return "\n".join([*before, *plane.text(), *below])


def _bounds(values: Sequence[float], *, below: float) -> tuple[float, float]:
    """Exponents of ten a little beyond the values: two decades at least, the highest ones where there are too many.

    below: how much of what lacks to two decades is added at the lower end.
    """
    low, high = math.log10(min(values)) - MARGIN, math.log10(max(values)) + MARGIN
    lacks = max(0.0, 2 - (high - low))
    low, high = low - lacks * below, high + lacks * (1 - below)
    return max(low, high - MOST_DECADES), high


class _Plane:
    """Characters with logarithmic axes. x, y: exponents of ten at their ends."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], columns: int) -> None:
        self.x, self.y, self.columns = x, y, columns
        self.cells = [[" "] * columns for _ in range(CHART_ROWS)]
        self.fixed: set[tuple[int, int]] = set()

    def column(self, x: float) -> int:
        return int((math.log10(x) - self.x[0]) / (self.x[1] - self.x[0]) * self.columns + 1e-9)

    def height(self, y: float) -> float:
        """Rows above the x axis."""
        return (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0]) * CHART_ROWS + 1e-9

    def line(self, roof: Callable[[float], float | None]) -> None:
        """A roof: operations a second for an intensity; None where it is not drawn."""
        for column in range(self.columns):
            x = 10 ** (self.x[0] + (column + 0.5) / self.columns * (self.x[1] - self.x[0]))
            y = roof(x)
            if y is not None and 0 <= (row := int(height := self.height(y))) < CHART_ROWS:
                level = roof(x * 0.5) == y or roof(x * 2) == y
                self.cells[row][column] = "─" if level else SLOPE[min(int((height - row) * 3), 2)]

    def points(self, named: Sequence[tuple[str, float, float]]) -> dict[str, list[int]]:
        """Launches as their numbers; the number that is drawn -> those that lie under it."""
        drawn: dict[tuple[int, int], str] = {}
        under: dict[str, list[int]] = defaultdict(list)
        for name, x, y in named:
            row = min(max(int(self.height(y)), 0), CHART_ROWS - 1)
            start = min(max(self.column(x), 0), self.columns - len(name))
            cells = [(row, column) for column in range(start, start + len(name))]
            there = [drawn[row, column] for column in range(start - 1, start + len(name) + 1) if (row, column) in drawn]
            if there:
                under[there[0]].append(int(name))
                continue
            drawn.update(dict.fromkeys(cells, name))
            self.cells[row][start : start + len(name)] = name
        self.fixed |= set(drawn)
        return under

    def label_slope(self, text: str, bandwidth: float, *, until: float) -> None:
        """The name of a memory's roof right below its line, at the lowest place that is free."""
        decades = (self.y[1] - self.y[0]) / (self.x[1] - self.x[0])
        gap = int(self.columns / CHART_ROWS * decades / 2) + 2
        for row in range(CHART_ROWS):
            y = 10 ** (self.y[0] + (row + 0.5) / CHART_ROWS * (self.y[1] - self.y[0]))
            column = self.column(y / bandwidth) + gap
            if y <= until and column >= gap and self.write(text, row, column, over=" "):
                return

    def write(self, text: str, row: int, column: int, *, over: str) -> bool:
        """Whether the text found its place, among characters that it may cover."""
        if column < 0 or column + len(text) > self.columns or not 0 <= row < CHART_ROWS:
            return False
        cells = {(row, place) for place in range(column, column + len(text))}
        if cells & self.fixed or any(self.cells[row][place] not in over for _, place in cells):
            return False
        self.cells[row][column : column + len(text)] = text
        self.fixed |= cells
        return True

    def text(self) -> list[str]:
        """The plane with its axes, the highest row first."""

        def powers(bounds: tuple[float, float]) -> range:
            return range(math.ceil(bounds[0]), math.ceil(bounds[1]))

        def power(exponent: int) -> str:
            return f"{10.0**exponent:,.{max(-exponent, 0)}f}"

        ticks = {int(self.height(10.0**exponent)): power(exponent - 12) for exponent in powers(self.y)}
        rows = [
            f"{ticks.get(row, ''):>{AXIS - 2}} {'┤' if row in ticks else '│'}{''.join(cells)}".rstrip()
            for row, cells in enumerate(self.cells)
        ]
        axis, below = ["─"] * self.columns, [" "] * self.columns
        for exponent in powers(self.x):
            column, word = self.column(10.0**exponent), power(exponent)
            axis[column] = "┬"
            if column + len(word) <= self.columns:
                below[column : column + len(word)] = word
        return [
            f"{'TFLOP/s':>{AXIS - 1}}",
            *reversed(rows),
            " " * (AXIS - 1) + "└" + "".join(axis),
            (" " * AXIS + "".join(below)).rstrip(),
            f"{'FLOP/byte of DRAM':>{AXIS + self.columns}}",
        ]
