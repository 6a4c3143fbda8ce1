"""The ranks of a run: processes on GPUs that work together, and which rows of its tables are whose."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fiprof.model import tables
from fiprof.model.arrays import numbers
from fiprof.model.formula import Row
from fiprof.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.model.unions import Ints

NOBODY = -1
"""In place of a rank: of a process that ran no kernels, or of a call of one that is several ranks."""
NCCL_DOMAIN = "NCCL"
COMMUNICATOR, RANKS, RANK = "NCCL communicator ID", "No. of ranks", "Rank"
"""Keys of the NVTX payload of ncclCommInitRank… (NCCL's nvtx_payload_schemas.h)."""
_WHO = ("file", "pid", "process", "host", "device", "gpu", "uuid", "rank")


@dataclass(frozen=True)
class Rank:
    """A process on a GPU."""

    rank: int
    """In its job; where neither NCCL nor the environment tells, counted from 0 in the order of files and GPUs."""
    file: int | None
    pid: int
    """As the tables have it, see ``tables.PID_BITS``."""
    process: str | None
    """Name of its program."""
    host: str | None
    device: int | None
    """GPU as the trace counts them."""
    gpu: str | None
    """Its name."""
    uuid: str | None

    @property
    def own_pid(self) -> int:
        """As its machine counts it."""
        return tables.own_pid(self.pid)


class Ranks:
    """The ranks of a run, in their order."""

    def __init__(self, run: Run, all_: Sequence[Rank]) -> None:
        self._run = run
        self.all = tuple(all_)
        self.files = {rank.rank: rank.file or 0 for rank in all_}
        """Rank -> number of the trace that it is from."""

    def on(self, device: int | None) -> int | None:
        """The rank of a GPU; None where it has several, and in a run of one."""
        here = [rank.rank for rank in self.all if rank.device == device]
        return here[0] if self.several and len(here) == 1 else None

    @property
    def several(self) -> bool:
        return len(self.all) > 1

    def of(self, table: str) -> Ints:
        """The rank of each row of one of nsys's tables, or NOBODY."""
        found = self._run.table(table, [name for name in ("pid", "device") if name in _declared(table)])
        return self.of_rows(found)

    def of_rows(self, rows: pa.Table) -> Ints:
        """The same of rows with a column pid, and device where they have it."""
        import numpy as np

        there = {name: numbers(rows[name]) for name in rows.column_names}
        found = np.full(rows.num_rows, NOBODY, np.int64)
        of_process: dict[int, list[Rank]] = defaultdict(list)
        for rank in self.all:
            of_process[rank.pid].append(rank)
        for pid, ranks in of_process.items():
            mine = there["pid"] == pid
            if "device" not in there and len(ranks) == 1:
                found[mine] = ranks[0].rank
            for rank in ranks if "device" in there else ():
                found[mine & (there["device"] == (NOBODY if rank.device is None else rank.device))] = rank.rank
        return found


def rows_by_rank(run: Run, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """A table's rows as :meth:`Run.rows` gives them, each with its ``rank``; None in a run of one rank."""
    rows = run.rows(table, columns)
    ranks = ranks_of(run)
    told = ranks.of(table).tolist() if ranks.several and rows else [None] * len(rows)
    for row, rank in zip(rows, told, strict=True):
        row["rank"] = rank
    return rows


def ranks_of(run: Run) -> Ranks:
    """The ranks of a run; none where it has no trace. Raises FiprofError for a table that cannot be read."""
    return run.once(_ranks)


def _ranks(run: Run) -> Ranks:
    rows = sorted(
        run.rows("processes", [name for name in _WHO if name in _declared("processes")]),
        key=lambda row: (row.get("file") or 0, row["device"] or 0, row["pid"]),
    )
    found = [Rank(**{**dict.fromkeys(_WHO), **row}) for row in rows]
    by_nccl = _by_nccl(run) if len(found) > 1 else {}
    for claims in ([by_nccl.get(rank.pid) for rank in found], [row["rank"] for row in rows]):
        if None not in claims and len(set(claims)) == len(claims):
            break
    else:
        claims = list(range(len(found)))
    numbered = [replace(rank, rank=number) for rank, number in zip(found, claims, strict=True) if number is not None]
    return Ranks(run, sorted(numbered, key=lambda rank: rank.rank))


def _by_nccl(run: Run) -> dict[int, int]:
    """Process -> its rank in the largest communicator that it is in, by what NCCL says in NVTX."""
    found: dict[int, tuple[int, int]] = {}
    for row in nccl_ranges(run):
        said = payload(row["payload"])
        if {RANKS, RANK} <= said.keys():
            found[row["pid"]] = max(found.get(row["pid"], (0, 0)), (said[RANKS], -said[RANK]))
    return {pid: -rank for pid, (_, rank) in found.items()}


def nccl_ranges(run: Run) -> list[Row]:
    """NCCL's ranges that set up a communicator."""
    import pyarrow.compute as pc

    if not run.has("ranges"):
        return []
    found = run.table("ranges", ["domain", "name", "payload", "pid"])
    ours = found.filter(pc.and_(pc.equal(found["domain"], NCCL_DOMAIN), pc.is_valid(found["payload"])))
    rows: list[Row] = ours.filter(pc.starts_with(ours["name"].cast("string"), "ncclCommInit")).to_pylist()
    return rows


def payload(text: object) -> dict[str, int]:
    """The whole numbers of an NVTX payload."""
    try:
        values = json.loads(str(text))
    except ValueError:
        return {}
    return {key: value for key, value in values.items() if type(value) is int} if isinstance(values, dict) else {}


def _declared(table: str) -> list[str]:
    names: list[str] = tables.schema(table).names
    return names
