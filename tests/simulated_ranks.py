"""Jobs of several ranks whose clocks are apart and drift: simulated, so that the truth is known.

Each rank is a trace with a clock of its own. A step is a product of matrices, an all-reduce, a reduce-scatter, and with
point to point a send to the next rank, which ends before its receive begins. What differs between ranks is as recorded
on two H200s: they start some 15 µs apart, ends scatter by 3 µs, and who starts late ends late by up to 10 µs. One rank
runs a kernel of 1 ms more in every tenth step, or is late by 150 µs in all; one loads a module in the first.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fiprof.analysis.comm import Comm, comm
from fiprof.model.run import Run
from tests.reports_fixture import add, write_manifest

STEPS, JITTER_US, SCATTER_US, HEAD_START_US = 60, 15.0, 3.0, 10.0
TRANSFER_US = {"ncclAllReduce": 300.0, "ncclReduceScatter": 160.0}
TOLERANCE_US, TOLERANCE = 20.0, 0.05
"""What a rank's lateness may be off by: the larger one."""
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
NAMES = {"comm": "NCCL communicator ID", "bytes": "Message size [bytes]", "peer": "Peer rank"}
Rows = list[dict[str, Any]]
Also = Sequence[tuple[str, dict[str, int]]]


@dataclass
class Ranks:
    """A run of several ranks, a process and a GPU each; times in µs."""

    ranks: int = 2
    files: bool = field(default=False, kw_only=True)
    """Whether each rank is a trace of its own."""
    told: bool = field(default=True, kw_only=True)
    """Whether NCCL's payloads are in the trace."""
    tables: dict[str, Rows] = field(default_factory=lambda: {"kernels": [], "api": [], "ranges": []}, kw_only=True)

    def clock(self, rank: int, us: float) -> float:  # noqa: ARG002
        """A time by the rank's own clock."""
        return us

    def row(self, table: str, rank: int, begin_us: float, end_us: float, **cells: Any) -> None:
        begin, end = (round(1e3 * self.clock(rank, us)) for us in (begin_us, end_us))
        file = {"file": rank} if self.files else {}
        self.tables[table].append({"start_ns": begin, "end_ns": end, "pid": 100 + rank, **file, **cells})

    def kernel(self, rank: int, begin: float, end: float, name: str = ALL_REDUCE) -> None:
        """Launched 4 µs before it starts."""
        number, device = len(self.tables["kernels"]) + 1, 0 if self.files else rank
        self.row("kernels", rank, begin, end, duration_ns=round(1e3 * (end - begin)), device=device, stream=7, kernel=name,
                 grid="16x1x1", correlation=number)  # fmt: skip
        self.row("api", rank, begin - 4, begin - 3, name="cudaLaunchKernel", tid=100 + rank, correlation=number)

    def nccl(
        self, rank: int, begin: float, end: float, call: str = "ncclAllReduce", also: Also = (), **said: int
    ) -> None:
        """A kernel that NCCL launched: in a call, or for several in a group. said: comm, bytes and peer."""
        self.kernel(rank, begin, end, f"ncclDevKernel_{'SendRecv' if 'peer' in said else call.removeprefix('nccl')}")
        for number, (name, values) in enumerate([(call, said), *also] if self.told else ()):
            at = begin - 5 + number / 10
            more = {"name": name, "domain": "NCCL", "kind": "push_pop", "tid": 100 + rank}
            payload = json.dumps({NAMES[key]: value for key, value in values.items()})
            self.row("ranges", rank, at, at + (0.05 if also else 3), payload=payload, **more)

    def comm(self, folder: Path) -> Comm:
        """What is found in the job."""
        (folder / "tables").mkdir(parents=True)
        write_manifest(folder)
        who = [{"pid": 100 + rank, **({"device": 0, "rank": rank, "file": rank} if self.files else {"device": rank})}
               for rank in range(self.ranks)]  # fmt: skip
        for name, rows in {**self.tables, "processes": who}.items():
            add(Run(folder), name, rows)
        return comm(Run(folder))


@dataclass
class Job(Ranks):
    """A job whose times are given by the true clock, which rank 0 has."""

    files: bool = field(default=True, kw_only=True)
    offset_us: float = 0.0
    """Clocks are apart by up to this."""
    drift_ppm: float = 0.0
    """And drift by up to this, against the first."""
    seed: int = 0
    point_to_point: bool = False
    always: bool = False
    """Whether the late rank is late in every step."""
    lost: int = 0
    """Kernels at the end that the second rank's trace lacks."""
    step_us: float = 5000.0
    starts: dict[tuple[str, int], np.ndarray] = field(default_factory=dict, repr=False)
    """Operation and number -> when each rank began it."""

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self.late = int(self._random.integers(self.ranks))
        """The rank that is late; the one after it loads a module in the first step."""
        others = self.ranks - 1
        signs = self._random.choice((-1, 1), others) * self._random.uniform(0.5, 1, others)
        self._offsets = np.append(0, signs) * self.offset_us
        self._drifts = np.append(0, self._random.permutation(signs)) * self.drift_ppm * 1e-6
        for step in range(STEPS):
            self._step(step)
        kept = len([row for row in self.tables["kernels"] if row["pid"] == 101]) - self.lost
        numbers = itertools.count(1)
        self.tables["kernels"] = [row for row in self.tables["kernels"] if row["pid"] != 101 or next(numbers) <= kept]

    def clock(self, rank: int, us: float) -> float:
        return float(us * (1 + self._drifts[rank]) + self._offsets[rank])

    def _step(self, step: int) -> None:
        now = 1e6 + step * self.step_us + 200_000 * (step > 0)
        ready = now + 500 + self._random.exponential(JITTER_US, self.ranks)
        for rank in range(self.ranks):
            self.kernel(rank, now, float(ready[rank]), "gemm")
        if self.always:
            ready[self.late] += 150
        elif step % 10 == 5:
            self.kernel(self.late, float(ready[self.late]), float(ready[self.late]) + 1000, "spin")
            ready[self.late] += 1000
        if not step:
            loads = (self.late + 1) % self.ranks
            begin, ready[loads] = float(ready[loads]), ready[loads] + 100_000
            self.row("api", loads, begin, begin + 99_000, name="cuLibraryLoadData", tid=100 + loads)
        for call, transfer in TRANSFER_US.items():
            self.starts[call, step] = ready
            ends = ready.max() + transfer + np.minimum(ready - ready.min(), HEAD_START_US)
            ends += self._random.normal(0, SCATTER_US, self.ranks)
            for rank in range(self.ranks):
                self.nccl(rank, float(ready[rank]), float(ends[rank]), call, comm=1, bytes=1 << 20)
            ready = ends + 2 + self._random.exponential(JITTER_US, self.ranks)
        for sender in range(0, self.ranks - 1, 2) if self.point_to_point else ():
            begin = float(ready[sender])
            self.nccl(sender, begin, begin + 60, "ncclSend", comm=1, bytes=1 << 20, peer=sender + 1)
            self.nccl(sender + 1, begin + 70, begin + 130, "ncclRecv", comm=1, bytes=1 << 20, peer=sender)


@dataclass
class Judged:
    """What was found against the truth."""

    off_us: list[float]
    """Of each rank's lateness in each collective."""
    beyond: int = 0
    """Latenesses that are off by more than may be."""
    wrong: int = 0
    """Collectives with a rank later than the one that is named, by more than twice the stated error."""
    error_us: float = 0.0
    """The largest that is stated."""


def judge(job: Job, found: Comm) -> Judged:
    """Every rank's lateness in every symmetric collective."""
    judged = Judged([])
    judged.error_us = max(each.values["error_us"] for each in found.warnings if each.kind in ("clock", "clock_off"))
    seen: dict[str, int] = {}
    for row in found.collectives:
        call = "nccl" + row["op"].title().replace("_", "")
        if call not in TRANSFER_US:
            continue
        number = seen.setdefault(call, 0)
        seen[call] += 1
        arrivals = sorted(row["arrivals"], key=lambda each: int(each["rank"]))
        true = job.starts[call, number]
        late, truly = np.array([each["start_us"] for each in arrivals]), true[[each["rank"] for each in arrivals]]
        off = np.abs((late - late.min()) - (truly - truly.min()))
        judged.off_us += off.tolist()
        judged.beyond += int((off > np.maximum(TOLERANCE_US, TOLERANCE * (truly - truly.min()))).sum())
        judged.wrong += bool(truly.max() - true[row["late_rank"]] > 2 * judged.error_us)
    assert sum(seen.values()) >= len(TRANSFER_US) * STEPS - job.lost, f"not every collective was found: {seen}"
    return judged
