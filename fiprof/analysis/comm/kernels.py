"""Communication kernels: what each does, and what NCCL says of it.

Communicators and bytes are in the payloads of NCCL's NVTX ranges, which ``nsys export --include-json=true`` writes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fiprof.analysis.trace import rows_of
from fiprof.model.collectives import COLLECTIVE
from fiprof.model.ranks import COMMUNICATOR, NCCL_DOMAIN, NOBODY, payload, ranks_of
from fiprof.model.run import Run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.model.unions import Ints

    Bools = npt.NDArray[np.bool_]

BYTES, PEER = "Message size [bytes]", "Peer rank"
"""Keys of the NVTX payloads of NCCL's calls (nvtx_payload_schemas.h)."""
UNKNOWN = -1
"""In place of bytes, of a communicator, and of a time."""
FOREVER, LARGEST = 1 << 62, (1 << 62) - 1
TID_BITS = 24
"""Of a thread in nsys."""


class Op(StrEnum):
    """What is communicated."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND_RECV = "send_recv"
    REDUCE = "reduce"
    OTHER = "other"


OPS = tuple(Op)
_NAMES = {
    Op.ALL_REDUCE: ("allreduce", "crossdevicereduce"), Op.ALL_GATHER: ("allgather",),
    Op.REDUCE_SCATTER: ("reducescatter",), Op.ALL_TO_ALL: ("alltoall",), Op.BROADCAST: ("broadcast", "bcast"),
    Op.SEND_RECV: ("sendrecv", "ncclsend", "ncclrecv"), Op.REDUCE: ("nccl.*reduce",),
}  # fmt: skip


def op_of(name: str) -> Op:
    """What a kernel, or a call of NCCL, does by its name."""
    plain = name.replace("_", "").lower()
    return next((op for op, words in _NAMES.items() if any(re.search(word, plain) for word in words)), Op.OTHER)


@dataclass(frozen=True)
class Kernels:
    """Communication kernels, a row each, by start."""

    rank: Ints
    start: Ints
    """ns since the trace began, as ``end`` and ``called``."""
    end: Ints
    stream: Ints
    name: Ints
    """Position in ``names``."""
    names: tuple[str, ...]
    thread: Ints
    """That launched it, as :func:`threads` numbers them; UNKNOWN where the call was not traced."""
    called: Ints
    """When."""
    op: Ints
    """Position in OPS."""
    communicator: Ints
    """NCCL's number modulo 2^62; UNKNOWN without."""
    bytes: Ints
    """Of this rank's message."""
    peer: Ints
    """The only rank of the communicator that it sends to or receives from; UNKNOWN for none and for several."""
    grid: Ints
    """Blocks: NCCL's channels."""

    def __len__(self) -> int:
        return len(self.start)


def communication(run: Run) -> tuple[Kernels, Bools]:
    """The communication kernels of the ranks, and which rows of the table ``kernels`` they are."""
    return run.once(_communication)


def _communication(run: Run) -> tuple[Kernels, Bools]:
    import numpy as np
    import pyarrow as pa

    ranks = ranks_of(run)
    table = run.table("kernels", ["start_ns", "end_ns", "kernel", "stream", "grid", "correlation"]).unify_dictionaries()
    rank = ranks.of("kernels")
    texts, name = coded(table["kernel"])
    chosen = np.array([bool(COLLECTIVE.search(text)) for text in texts], bool)[name] & (rank != NOBODY)
    kept = table.filter(pa.array(chosen))
    order = np.argsort(kept["start_ns"].to_numpy(), kind="stable")
    start, end, stream, correlation = (
        kept[column].fill_null(0).to_numpy()[order].astype(np.int64)
        for column in ("start_ns", "end_ns", "stream", "correlation")
    )
    grids, grid = coded(kept["grid"])
    unknown = np.full(len(order), UNKNOWN, np.int64)
    kernels = Kernels(
        rank=rank[chosen][order],
        start=start,
        end=end,
        stream=stream,
        name=name[chosen][order],
        names=tuple(texts),
        thread=unknown,
        called=unknown,
        op=np.array([OPS.index(op_of(text)) for text in texts], np.int64)[name[chosen][order]],
        communicator=unknown,
        bytes=unknown,
        peer=unknown,
        grid=np.array([_blocks(text) for text in grids], np.int64)[grid[order]],
    )
    if not len(kernels) or not rows_of(run, "api"):
        return kernels, chosen
    return _called(run, kernels, processes(run, "kernels")[chosen][order], correlation), chosen


def coded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """The texts of a column of categories, the last of them empty for null, and which each row has."""
    import numpy as np
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0)
    texts = [text or "" for text in whole.dictionary.to_pylist()]
    return [*texts, ""], whole.indices.fill_null(len(texts)).to_numpy().astype(np.int64)


def _blocks(grid: str) -> int:
    return math.prod(int(size) for size in grid.split("x") if size.isdigit())


def processes(run: Run, table: str) -> Ints:
    """The process of each row of a table."""
    import numpy as np

    found: Ints = run.table(table, ["pid"])["pid"].to_numpy().astype(np.int64)
    return found


def threads(run: Run, table: str) -> Ints:
    """A number for the thread of each row of a table."""
    found: Ints = processes(run, table) << TID_BITS | run.table(table, ["tid"])["tid"].to_numpy()
    return found


def _called(run: Run, kernels: Kernels, process: Ints, correlation: Ints) -> Kernels:
    """The kernels with the calls that launched them, and what NCCL's ranges say of those."""
    import numpy as np

    api = run.table("api", ["start_ns", "correlation"])
    keys, place, times = np.unique(process << 32 | correlation, return_inverse=True, return_counts=True)
    of_call = processes(run, "api") << 32 | api["correlation"].fill_null(0).to_numpy()
    near = np.minimum(np.searchsorted(keys, of_call), len(keys) - 1)
    rows = np.flatnonzero((keys[near] == of_call) & (of_call & 0xFFFFFFFF != 0))
    row = np.full(len(keys), UNKNOWN, np.int64)
    row[near[rows]] = rows
    row = row[place]
    called = np.where(row == UNKNOWN, UNKNOWN, api["start_ns"].to_numpy()[row])
    thread = np.where(row == UNKNOWN, UNKNOWN, threads(run, "api")[row])
    # Nodes of a graph share the call that launched it: a range around that tells nothing of each.
    by_itself = (row != UNKNOWN) & (times[place] == 1)
    by_nccl = np.array(["nccl" in name.lower() for name in kernels.names])[kernels.name]
    return _told(run, replace(kernels, called=called, thread=thread), by_itself & by_nccl)


def _told(run: Run, kernels: Kernels, asked: Bools) -> Kernels:
    """What NCCL's calls say of some of the kernels: the call that launched it, or those of a group.

    A group's kernel is launched when the group ends: the calls since the thread's last launch belong to it. Of a group
    that took several kernels nobody knows which did what.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not run.has("ranges"):
        return kernels
    table = run.table("ranges", ["domain", "name", "start_ns", "end_ns", "payload"])
    ours = np.flatnonzero(pc.and_(pc.equal(table["domain"], NCCL_DOMAIN), pc.is_valid(table["payload"])).to_numpy())
    if not len(ours):
        return kernels
    calls = table.take(pa.array(ours))
    said, which = coded(calls["payload"])
    told = [payload(text) for text in said]
    size = np.array([each.get(BYTES, UNKNOWN) for each in told])[which]
    owner = np.array([each.get(COMMUNICATOR, UNKNOWN) & LARGEST if COMMUNICATOR in each else UNKNOWN for each in told])
    owner, peer = owner[which], np.array([each.get(PEER, UNKNOWN) for each in told])[which]
    names, name = coded(calls["name"])
    op = np.array([OPS.index(op_of(text)) for text in names])[name]
    start, thread = calls["start_ns"].to_numpy(), threads(run, "ranges")[ours]
    end = calls["end_ns"].fill_null(FOREVER).to_numpy()
    found = {field: getattr(kernels, field).copy() for field in ("op", "communicator", "bytes", "peer")}
    for each in np.unique(kernels.thread[asked]):
        mine = np.flatnonzero(asked & (kernels.thread == each))
        mine = mine[np.argsort(kernels.called[mine], kind="stable")]
        of_thread = np.flatnonzero((thread == each) & (size != UNKNOWN))
        if not len(of_thread):
            continue
        of_thread = of_thread[np.argsort(start[of_thread], kind="stable")]
        last = np.searchsorted(start[of_thread], kernels.called[mine], side="right")
        first = np.append(0, last[:-1])
        inside = (last > 0) & (end[of_thread][last - 1] >= kernels.called[mine])
        first = np.where(inside, last - 1, first)
        sure = (last > first) & np.append(last[1:] > first[1:], True)
        mine, first, last = mine[sure], first[sure], last[sure]
        total = np.append(0, np.cumsum(size[of_thread]))

        def same(values: Ints, first: Ints = first, last: Ints = last) -> Bools:
            changes = np.append(0, np.cumsum(values[1:] != values[:-1]))
            equal: Bools = changes[last - 1] == changes[first]
            return equal

        one = same(owner[of_thread])
        found["op"][mine] = op[of_thread][last - 1]
        found["bytes"][mine] = np.where(one, total[last] - total[first], UNKNOWN)
        found["communicator"][mine] = np.where(one, owner[of_thread][last - 1], UNKNOWN)
        found["peer"][mine] = np.where(one & same(peer[of_thread]), peer[of_thread][last - 1], UNKNOWN)
    return replace(kernels, **found)
