"""``fiprof show`` as a document: its tables for people, one flat table for programs."""

from __future__ import annotations

import dataclasses

from fiprof.analysis.accesses import Accesses, GlobalAccess, SharedAccess
from fiprof.analysis.occupancy import RESOURCES, SHARED, Occupancy
from fiprof.analysis.show import CaseFigures, Figures, LaunchFigures
from fiprof.reports import show_tables
from fiprof.reports.view import Column, Document, Value, View

_NOTES = (
    "plain: an iteration between CUDA events, without a profiler, events and gaps included. nsys, ncu: kernels only; "
    "medians; spread is (p90 - p10) / median.",
    "least work, least bytes: what the algorithm needs, over ncu's time (nsys's where there is none); DRAM moves less "
    "where L2 keeps what was written. counted: the operations of the roof's kind that ncu counted, over its time. A "
    "roof is the peak at the clock that ncu measured.",
)

_NOTES_OF_COUNTERS = (
    "SM, L1, L2, DRAM: the busiest part of each, of its peak (L1 while it is active); busiest: what is nearest to its "
    "peak. regs: registers a thread; shared: static and dynamic shared memory a block.",
    "limits: shared: with the shared memory that the driver set up, max: with all that it can; lifted: the "
    "occupancy if what binds did not. A wave is as many blocks as fit at once; costs: what the last, partial one "
    "wastes of the time if all blocks take the same, 1 - waves / ceil(waves).",
)

_NOTE_OF_ACCESSES = (
    "sect/req: sectors of 32 bytes a request; ideal: for the widths of the kernel's instructions, 4 where each thread "
    "of a warp loads 4 bytes, 16 where it loads 16 (32 threads x width / 32 bytes): more is scattered, fewer is shared "
    "by threads. conflicts: of all passes through shared memory, those that bank conflicts added; n-way: passes for "
    "each one needed, 1 is ideal."
)

_NOTE_OF_ALIKE = (
    "alike: so many launches of the same kernel, grid and block in this case; shown is the one of median duration, and "
    "--format json has them all."
)
_NO_ACCESSES = (
    "Sectors a request, bank conflicts and local memory were not collected: fiprof collect --set full collects them."
)
_NO_LOCAL = "No launch uses local memory: no register was spilled."


def document(figures: Figures, *, width: int = 120) -> Document:
    """The figures as tables: several for people; one for programs, a row a launch with its case's figures beside it.

    width: columns that a table may take; where names and figures do not fit, names are left out.
    """
    shown = tuple(show_tables.shown(figures, width))
    counted = any(item.launch is not None for item in figures.launches)
    accessed = any(item.accesses.global_loads or item.accesses.shared_loads for item in figures.launches)
    local = [item.accesses.local_requests for item in figures.launches if item.launch is not None]
    notes = [*_NOTES, *(_NOTES_OF_COUNTERS if counted else ())]
    if counted:
        notes.append(_NOTE_OF_ACCESSES if accessed else _NO_ACCESSES)
    if local and all(requests == 0 for requests in local):
        notes.append(_NO_LOCAL)
    if any(column.key == "alike" for view in shown for column in view.columns):
        notes.append(_NOTE_OF_ALIKE)
    return Document(data=_data(figures), shown=shown, warnings=figures.warnings, notes=tuple(notes))


def _data(figures: Figures) -> View:
    """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
    nested = ("occupancy", "accesses")
    of_launch = [item.name for item in dataclasses.fields(LaunchFigures) if item.name not in nested]
    of_case = [item.name for item in dataclasses.fields(CaseFigures) if item.name not in ("case", "label")]
    cases = {case.case: case for case in figures.cases}
    bare = [
        LaunchFigures(case=case.case, label=case.label)
        for case in figures.cases
        if case.case not in {item.case for item in figures.launches}
    ]
    rows = [
        {
            **{name: getattr(item, name) for name in of_launch},
            **_flat_occupancy(item.occupancy),
            **_flat_accesses(item.accesses),
            **{f"case_{name}": getattr(cases.get(item.case or ""), name, None) for name in of_case},
        }
        for item in (*figures.launches, *bare)
    ]
    columns = tuple(map(Column, rows[0] if rows else of_launch))
    return View(columns, tuple(tuple(row.values()) for row in rows))


def _flat_occupancy(found: Occupancy) -> dict[str, Value]:
    """Blocks on a multiprocessor by each resource; what the next limit would give; waves."""
    cells: dict[str, Value] = {}
    for resource in RESOURCES:
        limit = found.limit(resource)
        name = resource.replace(" ", "_")
        cells[f"limit_{name}_blocks"] = limit.blocks if limit else None
        cells[f"limit_{name}_occupancy_pct"] = limit.occupancy_pct if limit else None
    shared, lift, waves = found.limit(SHARED), found.lift, found.waves
    return {
        **cells,
        "limit_shared_memory_most_blocks": shared.most_blocks if shared else None,
        "lifted_resources": lift.resources if lift else None,
        "lifted_blocks": lift.blocks if lift else None,
        "lifted_occupancy_pct": lift.occupancy_pct if lift else None,
        "lifted_then": lift.then if lift else None,
        "steps": tuple(step.change for step in found.steps),
        "wave_blocks": waves.wave_blocks if waves else None,
        "full_waves": waves.full if waves else None,
        "last_wave_blocks": waves.last_blocks if waves else None,
        "last_wave_idle_share": waves.idle_share if waves else None,
        "last_wave_share": waves.last_wave_share if waves else None,
        "tail_loss_share": waves.loss_share if waves else None,
        "idle_multiprocessors": waves.idle_multiprocessors if waves else None,
    }


def _flat_accesses(found: Accesses) -> dict[str, Value]:
    cells: dict[str, Value] = {}
    for name in ("global_loads", "global_stores"):
        moved: GlobalAccess | None = getattr(found, name)
        ideal = moved.ideal if moved else None
        cells[f"{name}_sectors_per_request"] = moved.sectors_per_request if moved else None
        cells[f"{name}_ideal_low"], cells[f"{name}_ideal_high"] = ideal or (None, None)
    for name in ("shared_loads", "shared_stores"):
        access: SharedAccess | None = getattr(found, name)
        cells[f"{name}_conflict_share"] = access.conflict_share if access else None
        cells[f"{name}_passes_per_needed"] = access.ways if access else None
    return {**cells, "local_requests": found.local_requests, "spill_requests": found.spill_requests}
