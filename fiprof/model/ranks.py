"""The ranks of a run: processes on GPUs that work together, and which rows of its tables are whose."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fiprof.model import tables
from fiprof.model.arrays import Ints, numbers
from fiprof.model.run import Run, once

COLLECTIVE = re.compile(
    r"nccl|nvshmem|mscclpp|cross_device_reduce|all_?(reduce|gather|to_?all)|reduce_?scatter|multimem", re.IGNORECASE
)
"""In the name of a kernel of NCCL, NVSHMEM, MSCCL++, or of a library's own all-reduce: it waits for another GPU's."""
NOBODY = -1  # in place of a rank: of a process that ran no kernels, or of a call of one that is several ranks
NCCL_DOMAIN = "NCCL"
COMMUNICATOR, RANKS, RANK = "NCCL communicator ID", "No. of ranks", "Rank"
"""Keys of the NVTX payload of ncclCommInitRank… (NCCL's nvtx_payload_tables.h)."""
_WHO = ("file", "pid", "process", "host", "device", "gpu", "uuid", "rank")


@dataclass(frozen=True)
class Rank:
    rank: int  # in its job; where neither NCCL nor the environment tells, counted from 0 in the order of files and GPUs
    file: int | None
    pid: int  # as the tables have it, see ``tables.PID_BITS``
    process: str | None  # name of its program
    host: str | None
    device: int | None  # GPU as the trace counts them
    gpu: str | None  # its name
    uuid: str | None


class Ranks:
    """The ranks of a run, in their order."""

    def __init__(self, run: Run, all_: Sequence[Rank]) -> None:
        self._run = run
        self.all = tuple(all_)
        self.several = len(self.all) > 1
        self.files = {rank.rank: rank.file or 0 for rank in all_}
        """Rank -> number of the trace that it is from."""

    def on(self, device: int | None) -> int | None:
        """The rank of a GPU; None where it has several, and in a run of one."""
        here = [rank.rank for rank in self.all if rank.device == device]
        return here[0] if self.several and len(here) == 1 else None

    def of(self, table: str) -> Ints:
        """The rank of each row of one of nsys's tables, or NOBODY."""
        declared = tables.schema(table).names
        return self.of_rows(self._run.table(table, [name for name in ("pid", "device") if name in declared]))

    def of_rows(self, rows: pa.Table) -> Ints:
        """The same of rows with a column pid, and device where they have it."""
        pid = numbers(rows["pid"])
        device = numbers(rows["device"]) if "device" in rows.column_names else None
        of_row = np.full(rows.num_rows, NOBODY, np.int64)
        processes = [rank.pid for rank in self.all]
        for rank in self.all:
            if device is not None:
                of_row[(pid == rank.pid) & (device == (NOBODY if rank.device is None else rank.device))] = rank.rank
            elif processes.count(rank.pid) == 1:
                of_row[pid == rank.pid] = rank.rank
        return of_row


@once
def ranks_of(run: Run) -> Ranks:
    """The ranks of a run; none where it has no trace."""
    rows = run.rows("processes", _WHO)
    rows.sort(key=lambda row: (row["file"] or 0, row["device"] or 0, row["pid"]))
    ranks = [Rank(**row) for row in rows]
    # Each process's rank in the largest communicator that it is in.
    by_nccl: dict[int, tuple[int, int]] = {}
    for pid, setup in nccl_setups(run) if len(ranks) > 1 else ():
        if {RANKS, RANK} <= setup.keys():
            by_nccl[pid] = max(by_nccl.get(pid, (0, 0)), (setup[RANKS], -setup[RANK]))
    said_by_nccl = [-by_nccl[rank.pid][1] if rank.pid in by_nccl else None for rank in ranks]
    for claims in (said_by_nccl, [row["rank"] for row in rows], list(range(len(ranks)))):
        if None not in claims and len(set(claims)) == len(claims):
            break
    numbered = [replace(rank, rank=number) for rank, number in zip(ranks, claims, strict=True) if number is not None]
    return Ranks(run, sorted(numbered, key=lambda rank: rank.rank))


def nccl_setups(run: Run) -> list[tuple[int, dict[str, int]]]:
    """Process and payload of NCCL's ranges that set up a communicator."""
    if not run.has("ranges"):
        return []
    import pyarrow.compute as pc

    ranges = run.table("ranges", ["domain", "name", "payload", "pid"])
    ours = ranges.filter(pc.and_(pc.equal(ranges["domain"], NCCL_DOMAIN), pc.is_valid(ranges["payload"])))
    rows = ours.filter(pc.starts_with(ours["name"].cast("string"), "ncclCommInit")).to_pylist()
    return [(row["pid"], payload(row["payload"])) for row in rows]


def payload(text: object) -> dict[str, int]:
    """The whole numbers of an NVTX payload."""
    try:
        values = json.loads(str(text))
    except ValueError:
        return {}
    return {key: value for key, value in values.items() if type(value) is int} if isinstance(values, dict) else {}
