"""Steps of the ranks' programs: NVTX ranges that repeat."""

from __future__ import annotations

import re

from fiprof.analysis.comm.kernels import UNKNOWN, Kernels, coded, threads
from fiprof.model.ranks import NCCL_DOMAIN
from fiprof.model.run import Run

REPEATED = 3
"""A range whose name comes this often on a thread may be a step."""


class Steps:
    """The steps of the ranks' programs: of each thread the outermost ranges whose names repeat, numbers aside."""

    def __init__(self, run: Run, kernels: Kernels, added: dict[int, int]) -> None:
        import numpy as np
        import pyarrow.compute as pc

        size = len(kernels)
        self.names = np.full(size, "", object)
        self.lengths = np.full(size, UNKNOWN, np.int64)
        self.step = np.full(size, UNKNOWN, np.int64)
        self._rank = kernels.rank
        if not run.has("ranges") or not size:
            return
        table = run.table("ranges", ["domain", "name", "start_ns", "end_ns", "depth", "parent", "kind"])
        kept = pc.and_(
            pc.and_(pc.not_equal(table["domain"], NCCL_DOMAIN), pc.equal(table["kind"], "push_pop")),
            pc.is_valid(table["end_ns"]),
        )
        kept = kept.fill_null(False).to_numpy()
        thread, depth = threads(run, "ranges"), table["depth"].to_numpy()
        parent = table["parent"].fill_null(UNKNOWN).to_numpy()
        texts, name = coded(table["name"])
        plain = {text: number for number, text in enumerate(dict.fromkeys(re.sub(r"\d+", "#", text) for text in texts))}
        alike = np.array([plain[re.sub(r"\d+", "#", text)] for text in texts])[name]
        _, place, counts = np.unique(np.column_stack([thread, alike]), axis=0, return_inverse=True, return_counts=True)
        repeats = kept & (counts[place.ravel()] >= REPEATED)
        within_step = np.zeros(len(parent), bool)
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = np.flatnonzero((depth == level) & (parent != UNKNOWN))
            within_step[here] = within_step[parent[here]] | repeats[parent[here]]
        start, end = table["start_ns"].to_numpy(), table["end_ns"].fill_null(0).to_numpy()
        by = np.array([added[rank] for rank in kernels.rank.tolist()], np.int64)
        called = kernels.called - by
        for chosen in (kept & (depth == 0), repeats & ~within_step):
            for each in np.unique(kernels.thread[kernels.thread != UNKNOWN]):
                mine = np.flatnonzero(chosen & (thread == each))
                mine = mine[np.argsort(start[mine], kind="stable")]
                these = np.flatnonzero(kernels.thread == each)
                at = np.searchsorted(start[mine], called[these], side="right") - 1
                inside = (at >= 0) & (end[mine][np.maximum(at, 0)] >= called[these]) if len(mine) else at >= 0
                these, rows = these[inside], mine[at[inside]]
                self.names[these] = np.array(texts, object)[name[rows]]
                if chosen[rows].all() and (repeats & ~within_step)[rows].all():
                    self.step[these], self.lengths[these] = rows, end[rows] - start[rows]

    def of_rank(self, rank: int) -> float | None:
        """Length of the rank's steps with collectives, µs; None without."""
        import numpy as np

        mine = (self._rank == rank) & (self.step != UNKNOWN)
        _, first = np.unique(self.step[mine], return_index=True)
        return float(self.lengths[mine][first].sum()) / 1e3 if len(first) else None
