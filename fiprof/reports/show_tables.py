"""The tables of ``fiprof show``: narrow ones below each other, so that 80 columns hold them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fiprof.analysis.accesses import GlobalAccess, SharedAccess
from fiprof.analysis.occupancy import BARRIERS, BLOCKS, CLUSTERS, REGISTERS, SHARED, WARPS, sentences
from fiprof.analysis.show import CaseFigures, Figures, LaunchFigures
from fiprof.reports.headings import label_cells, numbered
from fiprof.reports.view import Column, Value, View, render
from fiprof.text import cell_width

MOST_ALIKE = 8
"""Launches of the same kernel and size in a case that are all shown."""

Cells = Sequence[tuple[Column, Callable[[Any], Value]]]
"""Columns with what stands in them."""


def of(key: str, title: str, unit: str = "", spec: str = "", least: int = 0) -> tuple[Column, Callable[[Any], Value]]:
    """A column that shows the attribute of its name."""
    return Column(key, title, unit, spec, least=least), lambda item: getattr(item, key)


def shown(figures: Figures, width: int) -> Iterable[View]:
    """The tables that the figures fill. width: columns that they may take, where names can be left out."""
    label = label_cells(_labels(figures))
    if figures.cases:
        yield from _of_cases(figures.cases, label, width)
    yield from _of_launches(figures.launches, label, width)


def _labels(figures: Figures) -> list[str]:
    return [case.label for case in figures.cases] + [item.label for item in figures.launches]


# Cases

_TIMES: Cells = (
    of("kernels", "kernels"),
    of("plain_us", "plain", "µs", ".2f"),
    of("plain_spread", "spread", "", ".1%"),
    of("nsys_us", "nsys", "µs", ".2f"),
    of("nsys_spread", "spread", "", ".1%"),
    of("ncu_us", "ncu", "µs", ".2f"),
)
_LEAST: Cells = (
    of("model_tflops", "least work", "TFLOP/s", ".2f"),
    of("model_tflops_roof_share", "of roof", "", ".1%"),
    of("model_gb_per_s", "least bytes", "GB/s", ",.0f"),
    of("model_gb_per_s_roof_share", "of DRAM", "", ".1%"),
)


def _of_cases(cases: Sequence[CaseFigures], label: int, width: int) -> Iterable[View]:
    """One table where it fits, else the times and the rates apart."""
    name = of("label", "case", least=label)
    whole = _view((name, *_TIMES, *_LEAST), cases, "An iteration of each case")
    if _fits(whole, width):
        yield whole
    else:
        yield _view((name, *_TIMES), cases, "An iteration of each case")
        yield _view((name, *_LEAST), cases, "The least work and bytes of each case, over its time")


# Launches

_TIME: Cells = (
    of("grid", "grid", least=len("1024x1x1")),
    of("ncu_us", "ncu", "µs", ".2f"),
    of("nsys_us", "nsys", "µs", ".2f"),
)
_WORK: Cells = (
    of("tflops", "counted", "TFLOP/s", ".2f"),
    of("roof_share", "of roof", "", ".1%"),
    of("roof", "roof", least=len("tensor fp16")),
    of("tensor_active_pct", "tensor", "% active", ".2f"),
)
_MEMORY: Cells = (
    of("sm_pct", "SM", "%", ".1f"),
    of("l1_pct", "L1", "%", ".1f"),
    of("l2_pct", "L2", "%", ".1f"),
    of("dram_pct", "DRAM", "%", ".1f"),
    of("busiest", "busiest"),
    of("dram_gb_per_s", "DRAM", "GB/s", ",.0f"),
    of("l1_hit_pct", "L1", "hit %", ".1f"),
    of("l2_hit_pct", "L2", "hit %", ".1f"),
)
_OCCUPANCY: Cells = (
    of("achieved_occupancy_pct", "achieved", "%", ".2f"),
    of("theoretical_occupancy_pct", "theoret.", "%", ".2f"),
    of("limited_by", "limited by", least=len("registers, shared")),
    of("registers_per_thread", "regs", "", "d"),
    of("shared_kb_per_block", "shared", "kB", ".2f"),
)


def _limit(resource: str, title: str) -> tuple[Column, Callable[[Any], Value]]:
    def cell(item: LaunchFigures) -> Value:
        limit = item.occupancy.limit(resource)
        return None if limit is None else limit.blocks

    return Column(resource, title, spec=".3g"), cell


def _most_by_shared(item: LaunchFigures) -> Value:
    limit = item.occupancy.limit(SHARED)
    return None if limit is None else limit.most_blocks


def _of_lift(item: LaunchFigures) -> Value:
    lift = item.occupancy.lift
    return None if lift is None else lift.occupancy_pct


_LIMITS: Cells = (
    _limit(REGISTERS, "regs"),
    _limit(SHARED, "shared"),
    (Column("most_shared", "max", spec=".3g"), _most_by_shared),
    _limit(WARPS, "warps"),
    _limit(BLOCKS, "blocks"),
    _limit(BARRIERS, "barriers"),
    _limit(CLUSTERS, "clusters"),
    (Column("lifted", "lifted", "%", ".4g"), _of_lift),
)


def _wave(key: str, title: str, unit: str = "", spec: str = "") -> tuple[Column, Callable[[Any], Value]]:
    return Column(key, title, unit, spec), lambda item: getattr(item.occupancy.waves, key, None)


_WAVES: Cells = (
    _wave("wave_blocks", "a wave", "blocks", ",d"),
    _wave("waves", "waves", "", ".2f"),
    _wave("full", "full", "", "d"),
    _wave("last_blocks", "last", "blocks", ",d"),
    _wave("idle_share", "idle in it", "", ".1%"),
    _wave("loss_share", "costs ≤", "", ".1%"),
)


def _global(name: str, title: str) -> Cells:
    def access(item: LaunchFigures) -> GlobalAccess | None:
        found: GlobalAccess | None = getattr(item.accesses, name)
        return found

    def ideal(item: LaunchFigures) -> Value:
        found = access(item)
        if found is None or found.ideal is None:
            return None
        low, high = found.ideal
        return f"{low:g}" if low == high else f"{low:g}–{high:g}"

    def sectors(item: LaunchFigures) -> Value:
        found = access(item)
        return None if found is None else found.sectors_per_request

    return (
        (Column(name, title, "sect/req", ".2f"), sectors),
        (Column(f"{name}_ideal", "ideal", least=5), ideal),
    )


def _shared(name: str, title: str) -> Cells:
    def access(item: LaunchFigures) -> SharedAccess | None:
        found: SharedAccess | None = getattr(item.accesses, name)
        return found

    def share(item: LaunchFigures) -> Value:
        found = access(item)
        return None if found is None else found.conflict_share

    def ways(item: LaunchFigures) -> Value:
        found = access(item)
        return None if found is None else found.ways

    return (
        (Column(name, title, "conflicts", ".1%"), share),
        (Column(f"{name}_ways", "n-way", "", ".2f"), ways),
    )


_GLOBAL: Cells = (*_global("global_loads", "loads"), *_global("global_stores", "stores"))
_SHARED: Cells = (
    *_shared("shared_loads", "sh. loads"),
    *_shared("shared_stores", "sh. stores"),
)

_LOCAL: Cells = (
    (Column("local", "local", "requests", ",.0f"), lambda item: item.accesses.local_requests),
    (Column("spills", "spilled", "requests", ",.0f"), lambda item: item.accesses.spill_requests),
)


def _of_launches(launched: Sequence[LaunchFigures], label: int, width: int) -> Iterable[View]:
    items, alike = _without_alike(launched)
    profiled = [item for item in items if item.launch is not None]
    repeated = [of("iteration", "iter")] if len({item.iteration for item in profiled}) > 1 else []
    counted: list[Any] = [(Column("alike", "alike"), lambda item: alike.get(item.launch))] if alike else []
    number, case, kernel = of("launch", "#"), of("label", "case", least=label), of("kernel", "kernel")
    one_each = len({(item.kernel, item.case) for item in profiled}) == len({item.kernel for item in profiled})
    narrow = kernel if one_each else _short_case(profiled)

    def table(cells: Cells, title: str, **texts: Any) -> View:
        """Case and kernel where they fit, else what tells the launches apart; the first table names them all."""
        view = _view((number, case, kernel, *repeated, *cells), profiled, title)
        if not _fits(view, width):
            view = _view((number, narrow, *repeated, *cells), profiled, title)
        return dataclasses.replace(view, **texts)

    if items:
        block = of("block", "block", least=len("128x1x1"))
        long_kernel = of("kernel", "kernel", least=_LEAST_KERNEL)
        whole = _view((number, case, long_kernel, *repeated, *counted, _TIME[0], block, *_TIME[1:]), items, "Launches")
        fits = _fits(whole, width) and profiled
        yield whole if fits else _view((number, case, kernel, *repeated, *counted, *_TIME), items, "Launches")
    if not profiled:
        return
    yield table(_WORK, "Work of each launch")
    yield table(_MEMORY, "Use of the hardware, of its peak, and caches")
    yield table(_OCCUPANCY, "Occupancy")
    if any(item.occupancy.limits for item in profiled):
        limits = _without_empty(_LIMITS, profiled, {CLUSTERS})
        held = _folded((item.launch or 0, sentences(item.occupancy)[:1]) for item in profiled)
        yield table(limits, "What limits occupancy: blocks on a multiprocessor that each resource allows", notes=held)
    if any(item.occupancy.waves for item in profiled):
        small = [item.launch or 0 for item in profiled if item.occupancy.waves and not item.occupancy.waves.full]
        notes = (f"{numbered(small)}: {_TOO_SMALL}",) if small else ()
        yield table(_WAVES, "Waves: how the grid fills the GPU", notes=notes)
    yield from _of_accesses(profiled, table)


def _without_alike(items: Sequence[LaunchFigures]) -> tuple[list[LaunchFigures], dict[int | None, int]]:
    """The launches, of many alike the one of median duration; and how many it stands for."""
    groups: dict[tuple[str | None, str, str | None, str | None], list[LaunchFigures]] = defaultdict(list)
    for item in items:
        groups[item.case, item.kernel, item.grid, item.block].append(item)
    kept: set[int] = set()
    counts: dict[int | None, int] = {}
    for group in groups.values():
        if len(group) <= MOST_ALIKE:
            kept |= set(map(id, group))
            continue
        middle = sorted(group, key=lambda item: item.ncu_us or 0.0)[(len(group) - 1) // 2]
        kept.add(id(middle))
        counts[middle.launch] = len(group)
    return [item for item in items if id(item) in kept], counts


def _of_accesses(profiled: Sequence[LaunchFigures], table: Callable[..., View]) -> Iterable[View]:
    if any(item.accesses.global_loads or item.accesses.global_stores for item in profiled):
        yield table(_GLOBAL, "Global memory: sectors a request")
    if any(item.accesses.shared_loads or item.accesses.shared_stores for item in profiled):
        yield table(_SHARED, "Shared memory: bank conflicts")
    if any(item.accesses.local_requests or item.accesses.spill_requests for item in profiled):
        yield table(_LOCAL, "Local memory: spilled registers and arrays of a thread")


def _short_case(rows: Sequence[LaunchFigures]) -> tuple[Column, Callable[[Any], Value]]:
    """The label without the workload's name where it is the same for all."""
    parts = [item.label.partition(" ") for item in rows]
    cut = len({name for name, _, _ in parts}) == 1 and all(rest for _, _, rest in parts)
    widest = max((len(rest if cut else item.label) for (_, _, rest), item in zip(parts, rows, strict=True)), default=0)

    def cell(item: LaunchFigures) -> Value:
        return item.label.partition(" ")[2] if cut else item.label

    return Column("label", "case", least=min(widest, _NARROW_LABEL)), cell


_NARROW_LABEL = 22
"""Cells of a label that a table of 80 columns leaves for it."""

_LEAST_KERNEL = 24
"""Cells of a kernel's name that come before the block's size."""

_TOO_SMALL = "the grid has fewer blocks than fit at once, so more room on a multiprocessor does nothing for it."


def _without_empty(cells: Cells, rows: Sequence[LaunchFigures], keys: set[str]) -> Cells:
    """The columns, those of these keys only where a row has something."""
    return [
        (column, cell) for column, cell in cells if column.key not in keys or any(cell(row) is not None for row in rows)
    ]


def _view(cells: Cells, rows: Sequence[object], title: str) -> View:
    columns = tuple(column for column, _ in cells)
    return View(columns, tuple(tuple(cell(row) for _, cell in cells) for row in rows), title)


def _fits(view: View, width: int) -> bool:
    """Whether the table, its names shortened as far as they may be, is no wider."""
    lines = render(dataclasses.replace(view, title=""), "table", width=width).splitlines()
    return max(map(cell_width, lines), default=0) <= width


def _folded(said: Iterable[tuple[int, Sequence[str]]]) -> tuple[str, ...]:
    """Each sentence once, with the launches that it is about."""
    about: dict[str, list[int]] = {}
    for launch, texts in said:
        for text in texts:
            about.setdefault(text, []).append(launch)
    return tuple(f"{numbered(numbers)}: {text}." for text, numbers in about.items())
