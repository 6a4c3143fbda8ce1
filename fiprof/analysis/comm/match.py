"""Communication kernels of all ranks, matched: the n-th collective of a communicator on each of its ranks.

NCCL demands that every rank calls a communicator's collectives in the same order, so the n-th kernel of a communicator
on one rank is the n-th on the others. Communicators and bytes are in the payloads of NCCL's NVTX ranges, which
``nsys export --include-json=true`` writes. Without them kernels of one name and stream are taken for those of one
communicator, and ranks whose kernels do not overlap are taken apart: a collective ends nowhere before it has begun
everywhere. By the same rule the clocks of several traces are held together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fiprof.analysis.trace import thread_keys
from fiprof.model.arrays import MISSING, arrow, coded, numbers
from fiprof.model.ranks import (
    COLLECTIVE,
    COMMUNICATOR,
    NCCL_DOMAIN,
    NOBODY,
    RANK,
    Ranks,
    nccl_setups,
    payload,
    ranks_of,
)
from fiprof.model.run import Run
from fiprof.model.wording import Worded

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.model.arrays import Ints

    Bools = npt.NDArray[np.bool_]

BYTES, PEER = "Message size [bytes]", "Peer rank"
"""Keys of the NVTX payloads of NCCL's calls (nvtx_payload_schemas.h)."""
UNKNOWN = -1
"""In place of bytes, of a communicator, and of a time."""
FOREVER, LARGEST = 1 << 62, (1 << 62) - 1


class Op(Worded):
    """What is communicated."""

    ALL_REDUCE = "all_reduce", "all-reduce"
    ALL_GATHER = "all_gather", "all-gather"
    REDUCE_SCATTER = "reduce_scatter", "reduce-scatter"
    ALL_TO_ALL = "all_to_all", "all-to-all"
    BROADCAST = "broadcast", "broadcast"
    SEND_RECV = "send_recv", "send/receive"
    REDUCE = "reduce", "reduce"
    OTHER = "other", "other"


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
    ranks = ranks_of(run)
    table = run.table("kernels", ["start_ns", "end_ns", "kernel", "stream", "grid", "correlation"]).unify_dictionaries()
    rank = ranks.of("kernels")
    texts, name = texts_of(table["kernel"])
    chosen = np.array([bool(COLLECTIVE.search(text)) for text in texts], bool)[name] & (rank != NOBODY)
    kept = table.take(arrow(np.flatnonzero(chosen)))
    order = np.argsort(numbers(kept["start_ns"]), kind="stable")
    start, end, stream, correlation = (
        numbers(kept[column])[order] for column in ("start_ns", "end_ns", "stream", "correlation")
    )
    grids, grid = texts_of(kept["grid"])
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
    if not len(kernels) or not run.row_count("api"):
        return kernels, chosen
    return _called(run, kernels, numbers(run.table("kernels", ["pid"])["pid"])[chosen][order], correlation), chosen


def texts_of(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """The texts of a column of categories, the last of them empty for null, and which each row has."""
    texts, codes = coded(column)
    return [text or "" for text in texts], codes.astype(np.int64)


def _blocks(grid: str) -> int:
    return math.prod(int(size) for size in grid.split("x") if size.isdigit())


def threads(run: Run, table: str) -> Ints:
    """A number for the thread of each row of a table."""
    found = run.table(table, ["pid", "tid"])
    return thread_keys(numbers(found["pid"]), numbers(found["tid"]))


def _called(run: Run, kernels: Kernels, process: Ints, correlation: Ints) -> Kernels:
    """The kernels with the calls that launched them, and what NCCL's ranges say of those."""
    api = run.table("api", ["start_ns", "correlation", "pid"])
    keys, place, times = np.unique(process << 32 | np.maximum(correlation, 0), return_inverse=True, return_counts=True)
    of_call = numbers(api["pid"]) << 32 | np.maximum(numbers(api["correlation"]), 0)
    near = np.minimum(np.searchsorted(keys, of_call), len(keys) - 1)
    rows = np.flatnonzero((keys[near] == of_call) & (of_call & 0xFFFFFFFF != 0))
    row = np.full(len(keys), UNKNOWN, np.int64)
    row[near[rows]] = rows
    row = row[place]
    called = np.where(row == UNKNOWN, UNKNOWN, numbers(api["start_ns"])[row])
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
    if not run.has("ranges"):
        return kernels
    table = run.table("ranges", ["domain", "name", "start_ns", "end_ns", "payload"])
    domains, domain = texts_of(table["domain"])
    said, which = texts_of(table["payload"])
    ours = np.flatnonzero((np.array(domains) == NCCL_DOMAIN)[domain] & (which < len(said) - 1))
    if not len(ours):
        return kernels
    calls, which = table.take(arrow(ours)), which[ours]
    told = [payload(text) for text in said]
    size = np.array([each.get(BYTES, UNKNOWN) for each in told])[which]
    owner = np.array([each.get(COMMUNICATOR, UNKNOWN) & LARGEST if COMMUNICATOR in each else UNKNOWN for each in told])
    owner, peer = owner[which], np.array([each.get(PEER, UNKNOWN) for each in told])[which]
    names, name = texts_of(calls["name"])
    op = np.array([OPS.index(op_of(text)) for text in names])[name]
    start, thread = numbers(calls["start_ns"]), threads(run, "ranges")[ours]
    end = numbers(calls["end_ns"])
    end = np.where(end == MISSING, FOREVER, end)
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


# The kernels of a collective

SAME_TIME_NS = 50_000
"""Clocks of two GPUs of a machine differ by less: ends of a two-GPU all-reduce were seen 12 µs apart (H200)."""
OVERLAPPING = 0.95
"""Share of the collectives in which two ranks of one communicator overlap at least."""


@dataclass(frozen=True)
class Matched:
    """Collectives, a row each by the last start; a column a rank."""

    kernels: Kernels
    ranks: tuple[int, ...]
    """Of the columns."""
    index: Ints
    """Position of each rank's kernel among the kernels; UNKNOWN for none."""
    number: Ints
    """Which collective of its communicator, from 0."""
    alone: Ints
    """Kernels that no partner was found for, or known for, positions."""
    expected: Bools
    """Which ranks take part in the collective's communicator."""


def match(kernels: Kernels, ranks: Ranks, local: Mapping[tuple[int, int], int]) -> Matched:
    """The kernels of all ranks, matched. local: (rank, communicator) -> its number there, where that is known."""
    columns = tuple(rank.rank for rank in ranks.all)
    blocks, numbers, expected, alone = [], [], [], []
    for members, told in _keys(kernels, columns, local):
        of_rank = {column: members[kernels.rank[members] == rank] for column, rank in enumerate(columns)}
        of_rank = {column: positions for column, positions in of_rank.items() if len(positions)}
        partners = told or len(columns) == 2 or OPS[kernels.op[members[0]]] is not Op.SEND_RECV
        if len(of_rank) < 2 or not partners:
            alone.append(members)
            continue
        whole, rest = _in_columns(kernels, of_rank, len(columns))
        alone += rest
        groups = [np.array(sorted(of_rank))] if told else _together(kernels, whole, sorted(of_rank), ranks)
        for group in groups:
            part = np.full_like(whole, UNKNOWN)
            part[:, group] = whole[:, group]
            matched = (part != UNKNOWN).sum(axis=1) > 1
            alone.append(part[~matched][part[~matched] != UNKNOWN])
            blocks.append(part[matched])
            numbers.append(np.flatnonzero(matched))
            taking = np.zeros((int(matched.sum()), len(columns)), bool)
            taking[:, group] = True
            expected.append(taking)
    index = np.concatenate(blocks) if blocks else np.empty((0, len(columns)), np.int64)
    last = np.where(index == UNKNOWN, UNKNOWN, kernels.start[index]).max(axis=1, initial=UNKNOWN)
    order = np.argsort(last, kind="stable")
    return Matched(
        kernels=kernels,
        ranks=columns,
        index=index[order],
        number=np.concatenate(numbers)[order] if numbers else np.empty(0, np.int64),
        alone=np.concatenate(alone) if alone else np.empty(0, np.int64),
        expected=np.concatenate(expected)[order] if expected else np.empty((0, len(columns)), bool),
    )


def _keys(
    kernels: Kernels, columns: Sequence[int], local: Mapping[tuple[int, int], int]
) -> Iterator[tuple[Ints, bool]]:
    """Positions of the kernels that are matched with each other, by start, and whether NCCL told so."""
    p2p = kernels.op == OPS.index(Op.SEND_RECV)
    who = zip(kernels.rank[p2p].tolist(), kernels.communicator[p2p].tolist(), strict=True)
    mine = np.array([local.get((rank, owner), rank) for rank, owner in who], np.int64)
    low, high = np.full(len(kernels), UNKNOWN), np.full(len(kernels), UNKNOWN)
    pair = kernels.peer[p2p] != UNKNOWN
    low[p2p] = np.where(pair, np.minimum(mine, kernels.peer[p2p]), UNKNOWN)
    high[p2p] = np.where(pair, np.maximum(mine, kernels.peer[p2p]), UNKNOWN)
    stream = np.zeros(len(kernels), np.int64)
    for rank in columns:
        own = np.flatnonzero(kernels.rank == rank)
        streams, first, place = np.unique(kernels.stream[own], return_index=True, return_inverse=True)
        stream[own] = np.argsort(np.argsort(first))[place] if len(streams) else 0
    told = kernels.communicator != UNKNOWN
    rows = np.column_stack(
        [kernels.communicator, p2p, low, high, np.where(told, UNKNOWN, stream), np.where(told, UNKNOWN, kernels.name)]
    )
    _, key = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(key.ravel(), kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(key.ravel()[order])) + 1) if len(order) else ():
        yield members, bool(told[members[0]])


def _in_columns(kernels: Kernels, of_rank: Mapping[int, Ints], columns: int) -> tuple[Ints, list[Ints]]:
    """The n-th kernels of the ranks in a row, a column a rank; and those that are left over.

    Ranks with as many kernels are matched by their order. Of one that has fewer, each goes to the kernel of the rank
    with most that ends nearest to it: a collective ends everywhere at about the same time.
    """
    fullest = max(of_rank, key=lambda column: len(of_rank[column]))
    whole = np.full((len(of_rank[fullest]), columns), UNKNOWN, np.int64)
    ends, rest = kernels.end[of_rank[fullest]], []
    for column, positions in of_rank.items():
        if len(positions) == len(whole):
            whole[:, column] = positions
            continue
        mine = kernels.end[positions]
        after = np.clip(np.searchsorted(ends, mine), 1, max(len(ends) - 1, 1))
        near = np.where(
            np.abs(ends[after - 1] - mine) <= np.abs(ends[np.minimum(after, len(ends) - 1)] - mine), after - 1, after
        )
        near = np.minimum(near, len(ends) - 1)
        order = np.lexsort((np.abs(ends[near] - mine), near))
        kept = order[np.append(True, np.diff(near[order]) > 0)]
        whole[near[kept], column] = positions[kept]
        rest.append(np.delete(positions, kept))
    return whole, rest


def _together(kernels: Kernels, whole: Ints, columns: Sequence[int], ranks: Ranks) -> list[Ints]:
    """The columns by communicator, where NCCL did not tell: those whose kernels overlap nearly always."""
    groups: list[list[int]] = []
    for column in columns:
        for group in groups:
            if all(_overlap(kernels, whole[:, column], whole[:, other], ranks, column, other) for other in group):
                group.append(column)
                break
        else:
            groups.append([column])
    return [np.array(group) for group in groups]


def _overlap(kernels: Kernels, one: Ints, other: Ints, ranks: Ranks, *columns: int) -> bool:
    both = (one != UNKNOWN) & (other != UNKNOWN)
    one, other = one[both], other[both]
    if not len(one):
        return False
    files = {ranks.files[ranks.all[column].rank] for column in columns}
    shift = int(np.median(kernels.end[one] - kernels.end[other])) if len(files) > 1 else 0
    late = np.maximum(kernels.start[one], kernels.start[other] + shift)
    early = np.minimum(kernels.end[one], kernels.end[other] + shift)
    return bool(np.mean(late - early <= SAME_TIME_NS) >= OVERLAPPING)


# Clocks


@dataclass(frozen=True)
class Clock:
    """The clock of a trace against that of the first, by collectives with ranks in both.

    A collective ends on no rank before it has begun on all: that bounds how far the clocks can be apart.
    """

    file: int
    shift_ns: int
    """Added to its times, beyond what the sessions' start times say; 0 where they agree with the collectives."""
    error_ns: int
    """How far off its times may still be."""


def clocks(matched: Matched, ranks: Ranks) -> tuple[Clock, ...]:
    """Those of every trace but the first that has collectives with it."""
    file = np.array([ranks.files[rank] for rank in matched.ranks])
    there = matched.index != UNKNOWN
    start = np.where(there, matched.kernels.start[matched.index], UNKNOWN) if len(there) else matched.index
    end = np.where(there, matched.kernels.end[matched.index], FOREVER) if len(there) else matched.index
    found = []
    for other in sorted(set(file[file != file[0]].tolist())) if len(file) else ():
        first, second = file == file[0], file == other
        both = there[:, first].any(axis=1) & there[:, second].any(axis=1)
        if not both.any():
            continue
        low = int((start[both][:, first].max(axis=1) - end[both][:, second].min(axis=1)).max())
        high = int((end[both][:, first].min(axis=1) - start[both][:, second].max(axis=1)).min())
        shift = 0
        if not low <= 0 <= high:
            ends = end[both][:, first].min(axis=1) - end[both][:, second].min(axis=1)
            shift = int(np.clip(np.median(ends), min(low, high), max(low, high)))
        found.append(Clock(other, shift, max(abs(high - shift), abs(low - shift))))
    return tuple(found)


def trace_clocks(run: Run) -> tuple[Clock, ...]:
    """The clock of every trace that has collectives with the first; none in a run of one."""
    return run.once(_trace_clocks)


def _trace_clocks(run: Run) -> tuple[Clock, ...]:
    ranks = ranks_of(run)
    if len(set(ranks.files.values())) < 2:
        return ()
    kernels, _ = communication(run)
    return clocks(match(kernels, ranks, local_ranks(run, ranks)), ranks)


def local_ranks(run: Run, ranks: Ranks) -> dict[tuple[int, int], int]:
    """(Rank, communicator) -> its number in the communicator, by what NCCL says when it sets one up."""
    of_process = {rank.pid: rank.rank for rank in ranks.all}
    found = {}
    for pid, said in nccl_setups(run):
        rank = of_process.get(pid)
        if rank is not None and {COMMUNICATOR, RANK} <= said.keys():
            found[rank, said[COMMUNICATOR] & (1 << 62) - 1] = said[RANK]
    return found


def shifted(kernels: Kernels, ranks: Ranks, found: Sequence[Clock]) -> tuple[Kernels, dict[int, int]]:
    """The kernels on the first trace's clock; and what is added to the times of each rank, ns."""
    of_file = {clock.file: clock.shift_ns for clock in found}
    added = {rank: of_file.get(file, 0) for rank, file in ranks.files.items()}
    if not any(added.values()):
        return kernels, added
    by = np.array([added[rank] for rank in kernels.rank.tolist()], np.int64)
    return replace(kernels, start=kernels.start + by, end=kernels.end + by, called=kernels.called + by), added
