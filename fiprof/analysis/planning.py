"""plan() apart from run(): what planning costs the host, what it copies, and from how many layers on it is small.

A plan is a range whose name says so, in a program's step or a case's setup; the runner measures a case's plainly too.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from fiprof.analysis.frames import Row, columns
from fiprof.analysis.trace import calls, folded, marks
from fiprof.model.arrays import numbers
from fiprof.model.case_quantities import KERNEL_TIME, PLAIN
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, by_thread

NAME = re.compile(r"(?i)(\b|_)plan(\b|_)")
SMALL = 0.05  # share of plan() and its layers up to which planning is small
FEWEST = 3  # plans of a name, the first of which load code, and ranges of a name beside each, for these to be layers
PLANS = columns("plans")
"""planned: the case, or the range around it. host_us: until it returns, median. copies, copied_bytes, copy_us: to the
GPU, of one. layer_us: a run() of the case, or the range that repeats beside it. layers: with which plan() is SMALL."""


def plans(run: Run) -> list[Row]:
    """Rows of PLANS; none where nothing says that it plans."""
    timed = any("host_us" in plain.plan for plain in run.baseline.values())
    traced = run.has("ranges") and (timed or run.of_program or run.imported)
    by_name = {row["planned"]: row for row in _traced(run)} if traced else {}
    for case in () if run.of_program else run.cases:
        plain, row = run.baseline.get(case.id), by_name.pop(case.id, {})
        if host_us := (plain.plan.get("host_us") if plain else None) or row.get("host_us"):
            layer_us = KERNEL_TIME.of(run, case.id) or PLAIN.of(run, case.id)
            more = {"planned": run.labels(case.id), "host_us": host_us, "step_us": host_us, "layer_us": layer_us}
            by_name[case.id] = row | more
    for row in by_name.values():
        step_us, layer_us = row.pop("step_us"), row["layer_us"]
        row["layers"] = math.ceil(step_us * (1 / SMALL - 1) / layer_us) if layer_us else None
    return [dict.fromkeys(column.key for column in PLANS) | row for row in by_name.values()]


def _traced(run: Run) -> Iterator[Row]:
    """The plans of the trace by the range around them, those of one name together."""
    ranges = marks(run)
    planning = np.array([bool(NAME.search(name)) for name in ranges.folded], bool)
    if not planning.any():
        return
    planned = np.flatnonzero(ranges.own & planning[ranges.alike] & (ranges.ends != NOTHING))
    parents, names = ranges.parents[planned], dict[str, list[int]]()
    for place, parent in enumerate(parents.tolist()):
        text = "" if parent == NOTHING else ranges.texts[ranges.name[parent]] or ""
        name = text if any(text == case.id for case in run.cases) else folded(text) or "outside every range"
        names.setdefault(name, []).append(place)
    # Count, bytes and ns of the copies that were called in each.
    copied, at = np.zeros((len(planned), 3), np.int64), 0
    order, by = np.argsort(ranges.starts[planned], kind="stable"), calls(run).of("copies")
    within = by_thread(
        ranges.threads[planned][order], ranges.starts[planned][order], ranges.ends[planned][order], order
    )
    for piece in run.pieces("copies", ("start_ns", "end_ns", "bytes")):
        begun, ended, sizes = map(numbers, piece.columns)
        of = calls(run).within(by[at : (at := at + piece.num_rows)], within)
        values = np.stack([np.ones_like(sizes), np.maximum(sizes, 0), ended - begun], axis=1)
        np.add.at(copied, of[of != NOTHING], values[of != NOTHING])
    others = np.flatnonzero(np.isin(ranges.parents, parents[parents != NOTHING]) & ~planning[ranges.alike] & ranges.own)
    for name, places in names.items():
        rows, around = planned[places], np.unique(parents[places])
        lengths = (ranges.ends - ranges.starts)[rows] / 1e3
        siblings = others[np.isin(ranges.parents[others], around)]
        values, counts = np.unique(ranges.alike[siblings], return_counts=True)
        layer_us = None
        if len(counts) and len(places) >= FEWEST and counts.max() >= FEWEST * len(around):
            alike = siblings[ranges.alike[siblings] == values[np.argmax(counts)]]
            layer_us = float(np.median((ranges.ends - ranges.starts)[alike])) / 1e3
        whole = (ranges.ends - ranges.starts)[around].sum() / 1e3 if around[0] != NOTHING else None
        count, size, ns = (copied[places].sum(axis=0) / len(places)).tolist()
        yield {
            "planned": name, "count": len(places), "host_us": float(np.median(lengths)), "copies": count,
            "copied_bytes": size, "copy_us": ns / 1e3, "step_share": whole and float(lengths.sum() / whole),
            "step_us": float(np.median(lengths)) * len(places) / len(around), "layer_us": layer_us,
        }  # fmt: skip
