"""``fiprof occupancy`` as a table: a row a launch and resource."""

from __future__ import annotations

from fiprof.analysis.occupancy import occupancy
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.reports.view import Column, Document, View

COLUMNS = (
    Column("launch", "launch", meaning="ncu's ID of the launch."),
    Column("kernel", "kernel", meaning="Function name without namespaces, parameters and template arguments."),
    Column("resource", "resource", meaning="What the blocks of a multiprocessor share."),
    Column("blocks", "blocks", spec=".0f", meaning="Blocks per multiprocessor that it allows."),
)


def document(run: Run, wanted: Selection) -> Document:
    """The limits of every launch that is wanted."""
    rows = tuple(
        (row.launch, row.kernel, limit.resource.value, limit.blocks)
        for row in run.selected(wanted)
        for limit in occupancy(row).limits
    )
    return Document(programs=View(COLUMNS, rows), shown=(View(COLUMNS, rows),))
