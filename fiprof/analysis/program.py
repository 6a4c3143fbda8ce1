"""Of a program that ``fiprof profile`` or an import saw: how much of its trace each launch under ncu stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fiprof.analysis.trace import sums
from fiprof.model.run import Run
from fiprof.model.selection import Weights
from fiprof.text import kernel_identity

Shape = tuple[str, str, str]
"""``kernel_identity``, grid and block."""
CaseShape = tuple[str | None, Shape]
"""With the case: a program has some where its launches were chosen by NVTX range."""


def shape(row: Mapping[str, Any]) -> Shape:
    """What is the same in nsys's and in ncu's row of a launch."""
    return kernel_identity(row["kernel"] or "", row["kernel_full"]), row["grid"], row["block"]


@dataclass(frozen=True)
class StandsFor:
    """Executions under nsys of a launch's kernel with its grid and block; several such launches share them."""

    count: float
    total_us: float
    share: float
    """Of the time of all kernels of the trace, 0 to 1."""


class StandIns(dict[int, StandsFor]):
    """ncu's launch ID -> what it stands for; empty for a run whose iterations tell, and without a trace.

    Raises FiprofError for a table that cannot be read.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        if (run.cases and not (run.of_program or run.imported)) or not run.launches:
            return
        keys = ["case", "kernel", "kernel_full", "grid", "block"]
        traced: dict[CaseShape, list[int]] = defaultdict(lambda: [0, 0])
        for piece in run.pieces("kernels", (*keys, "duration_ns")):
            for row in sums(piece, keys).to_pylist():
                found = traced[row["case"], shape(row)]
                found[0] += row["count"]
                found[1] += row["ns"]
        whole = sum(ns for _, ns in traced.values())
        alike: dict[CaseShape, list[int]] = defaultdict(list)
        for launch in run.launches:
            alike[launch.case, shape(launch)].append(launch.launch)
        for key, launches in alike.items():
            if key in traced:
                count, ns = (each / len(launches) for each in traced[key])
                self.update(dict.fromkeys(launches, StandsFor(count, ns / 1000, ns / whole if whole else 0.0)))


def weights(run: Run) -> Weights:
    """The time that each of ncu's launches stands for; empty for a run whose iterations tell, and without a trace."""
    return {launch: stands.total_us for launch, stands in run.once(StandIns).items()}
