"""Communication kernels of all ranks, matched: the n-th collective of a communicator on each of its ranks.

NCCL requires that every rank calls a communicator's collectives in the same order, so the n-th kernel of a communicator
on one rank is the n-th on the others. Communicators and bytes are in the payloads of NCCL's NVTX ranges, which
``nsys export --include-json=true`` writes. Without them, kernels of one name and stream are taken for one
communicator's, of the ranks whose kernels overlap: a collective ends on no rank before it has begun on all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fiprof.analysis.comm_clocks import Clock, clock_of, line
from fiprof.analysis.trace import calls, marks
from fiprof.model.arrays import MISSING, Ints, arrow, coded, grid_blocks, numbers
from fiprof.model.finding import Wording
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
from fiprof.model.run import Run, once
from fiprof.model.spans import NOTHING, split

Bools = npt.NDArray[np.bool_]
BYTES, PEER = "Message size [bytes]", "Peer rank"  # keys of the NVTX payloads of NCCL's calls (nvtx_payload_schemas.h)
UNKNOWN = -1  # in place of bytes, of a communicator, and of a time
FOREVER, LARGEST = 1 << 62, (1 << 62) - 1  # an end that is not known, and the largest number of a communicator


class Op(Wording):
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
    """The operation of a kernel, or of a call of NCCL, by its name."""
    plain = name.replace("_", "").lower()
    return next((op for op, words in _NAMES.items() if any(re.search(word, plain) for word in words)), Op.OTHER)


@dataclass(frozen=True)
class Kernels:
    """Communication kernels, a row each, by start."""

    rank: Ints
    start: Ints  # ns since the trace began, as ``end`` and ``called``
    end: Ints
    stream: Ints
    name: Ints  # position in ``names``
    names: tuple[str, ...]
    grid: Ints  # blocks: NCCL's channels
    thread: Ints  # that launched it, see :func:`thread_keys`; UNKNOWN where the call was not traced
    called: Ints  # when it launched it
    op: Ints  # position in OPS
    communicator: Ints  # NCCL's number modulo 2^62; UNKNOWN without
    bytes: Ints  # of this rank's message
    peer: Ints  # the only rank of the communicator that it sends to or receives from; UNKNOWN for none and for several

    def __len__(self) -> int:
        return len(self.start)


@once
def communication(run: Run) -> tuple[Kernels, Bools]:
    """The communication kernels of the ranks, and which rows of the table ``kernels`` they are."""
    ranks = ranks_of(run)
    table = run.table("kernels", ["start_ns", "end_ns", "stream", "kernel", "grid"])
    rank = ranks.of("kernels")
    texts, name = texts_of(table["kernel"])
    chosen = np.array([bool(COLLECTIVE.search(text)) for text in texts], bool)[name] & (rank != NOBODY)
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(numbers(table["start_ns"])[rows], kind="stable")]
    collectives = table.take(arrow(rows))
    traced, call = calls(run), calls(run).of("kernels")[rows]
    keys = np.array([*traced.threads, UNKNOWN])
    has_call = call != NOTHING
    unknown = np.full(len(rows), UNKNOWN, np.int64)
    kernels = Kernels(
        rank=rank[rows],
        start=numbers(collectives["start_ns"]),
        end=numbers(collectives["end_ns"]),
        stream=numbers(collectives["stream"]),
        name=name[rows],
        names=tuple(texts),
        grid=grid_blocks(collectives["grid"]),
        thread=keys[np.where(has_call, np.append(traced.thread, 0)[call], len(keys) - 1)],
        called=np.where(has_call, np.append(traced.starts, 0)[call], UNKNOWN),
        op=np.array([OPS.index(op_of(text)) for text in texts], np.int64)[name[rows]],
        communicator=unknown,
        bytes=unknown,
        peer=unknown,
    )
    # Nodes of a graph share the call that launched it: NCCL's range around that call is not about one of them.
    _, place, times = np.unique(call, return_inverse=True, return_counts=True)
    by_nccl = np.array(["nccl" in text.lower() for text in texts], bool)[name[rows]]
    return _with_calls(run, kernels, has_call & (times[place] == 1) & by_nccl), chosen


def texts_of(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """The distinct texts of a column, the last one "" for null, and the position of each row's among them."""
    texts, codes = coded(column)
    return [text or "" for text in texts], codes.astype(np.int64)


def _with_calls(run: Run, kernels: Kernels, looked_up: Bools) -> Kernels:
    """The kernels with what NCCL's calls say of those ``looked_up``: of the call that launched it, or of a group's
    calls.

    A group's kernel is launched when the group ends: the calls since the thread's last launch belong to it. Where a
    group launched several kernels, it is not known which call is whose.
    """
    if not run.row_count("ranges") or not looked_up.any():
        return kernels
    ranges, (texts, which) = marks(run), texts_of(run.table("ranges", ["payload"])["payload"])
    payloads = [payload(text) for text in texts]
    size = np.array([each.get(BYTES, UNKNOWN) for each in payloads])
    by_nccl = np.array([domain == NCCL_DOMAIN for domain in ranges.domains], bool)[ranges.domain]
    of_calls = np.flatnonzero(by_nccl & (size != UNKNOWN)[which])
    of_calls = of_calls[np.argsort(ranges.starts[of_calls], kind="stable")]
    which, start, end = which[of_calls], ranges.starts[of_calls], ranges.ends[of_calls]
    owners = np.array(
        [each.get(COMMUNICATOR, UNKNOWN) & LARGEST if COMMUNICATOR in each else UNKNOWN for each in payloads]
    )
    peers = np.array([each.get(PEER, UNKNOWN) for each in payloads])
    distinct, name = np.unique(ranges.name[of_calls], return_inverse=True)
    names = [ranges.texts[each] or "" for each in distinct]
    ops = np.array([OPS.index(op_of(text)) for text in names])
    end = np.where(end == MISSING, FOREVER, end)
    fields = {field: getattr(kernels, field).copy() for field in ("op", "communicator", "bytes", "peer")}
    for each, rows in split(ranges.threads[of_calls]):
        of_thread = np.flatnonzero(looked_up & (kernels.thread == each))
        of_thread = of_thread[np.argsort(kernels.called[of_thread], kind="stable")]
        begins, stops, of = start[rows], end[rows], which[rows]
        last = np.searchsorted(begins, kernels.called[of_thread], side="right")
        first = np.append(0, last[:-1])
        inside = (last > 0) & (stops[last - 1] >= kernels.called[of_thread])
        first = np.where(inside, last - 1, first)
        has_own = (last > first) & np.append(last[1:] > first[1:], True)
        of_thread, first, last = of_thread[has_own], first[has_own], last[has_own]

        def same(values: Ints, first: Ints = first, last: Ints = last) -> Bools:
            changes = np.append(0, np.cumsum(values[1:] != values[:-1]))
            equal: Bools = changes[last - 1] == changes[first]
            return equal

        one = same(owners[of])
        received = np.array(["recv" in each.lower() for each in names], bool)[name[rows]]
        # A link carries what is sent and what is received at once: the larger of the two is the message.
        totals = [np.append(0, np.cumsum(np.where(which_way, size[of], 0))) for which_way in (received, ~received)]
        message = np.max([each[last] - each[first] for each in totals], axis=0)
        fields["op"][of_thread] = ops[name[rows]][last - 1]
        fields["bytes"][of_thread] = np.where(one, message, UNKNOWN)
        fields["communicator"][of_thread] = np.where(one, owners[of][last - 1], UNKNOWN)
        fields["peer"][of_thread] = np.where(one & same(peers[of]), peers[of][last - 1], UNKNOWN)
    return replace(kernels, **fields)


SAME_TIME_NS = 50_000
"""More than the clocks of two GPUs of a machine differ: ends of a two-GPU all-reduce were seen 12 µs apart (H200)."""
HEAD = 64  # first kernels of a rank, by which the offset of its clock is found
OVERLAPPING = 0.95  # smallest share of the collectives in which two ranks of one communicator overlap


@dataclass(frozen=True)
class Matched:
    """Collectives, a row each by the last start; a column a rank."""

    kernels: Kernels
    ranks: tuple[int, ...]  # of the columns
    index: Ints  # position of each rank's kernel among the kernels; UNKNOWN for none
    number: Ints  # which collective of its communicator, from 0
    alone: Ints  # positions of the kernels without a partner
    expected: Bools  # which ranks take part in the collective's communicator

    @property
    def there(self) -> Bools:
        """Which ranks have a kernel of the collective."""
        has_kernel: Bools = self.index != UNKNOWN
        return has_kernel

    def of(self, values: Ints, other: int = UNKNOWN) -> Ints:
        """Values of the kernels, for each rank of each collective; ``other`` where it has none."""
        return np.where(self.there, values[self.index], other) if len(self.index) else self.index


def match(kernels: Kernels, ranks: Ranks, local: Mapping[tuple[int, int], int]) -> Matched:
    """The kernels of all ranks, matched. local: as :func:`local_ranks` gives it."""
    columns = tuple(rank.rank for rank in ranks.all)
    nothing = np.empty((0, len(columns)), np.int64)
    blocks, numbers, expected, alone = [nothing], [nothing[:, 0]], [nothing.astype(bool)], [nothing[:, 0]]
    for members, by_payload in _matchable(kernels, columns, local):
        of_rank = {column: members[kernels.rank[members] == rank] for column, rank in enumerate(columns)}
        of_rank = {column: positions for column, positions in of_rank.items() if len(positions)}
        partners = by_payload or len(columns) == 2 or OPS[kernels.op[members[0]]] is not Op.SEND_RECV
        if len(of_rank) < 2 or not partners:
            alone.append(members)
            continue
        whole, rest = _aligned(kernels, of_rank, len(columns))
        alone += rest
        one_group = by_payload or OPS[kernels.op[members[0]]] is Op.SEND_RECV
        for group in [sorted(of_rank)] if one_group else _communicators(kernels, whole, sorted(of_rank), ranks):
            part = np.full_like(whole, UNKNOWN)
            part[:, group] = whole[:, group]
            matched = (part != UNKNOWN).sum(axis=1) > 1
            alone.append(part[~matched][part[~matched] != UNKNOWN])
            blocks.append(part[matched])
            numbers.append(np.flatnonzero(matched))
            expected.append(np.tile(np.isin(np.arange(len(columns)), group), (int(matched.sum()), 1)))
    index = np.concatenate(blocks)
    last = np.where(index == UNKNOWN, UNKNOWN, kernels.start[index]).max(axis=1) if len(index) else index[:, 0]
    order = np.argsort(last, kind="stable")
    number, expecting = np.concatenate(numbers)[order], np.concatenate(expected)[order]
    return Matched(kernels, columns, index[order], number, np.concatenate(alone), expecting)


def _matchable(
    kernels: Kernels, columns: Sequence[int], local: Mapping[tuple[int, int], int]
) -> Iterator[tuple[Ints, bool]]:
    """Positions of kernels that may be matched with each other, by start, and whether that is by NCCL's payloads."""
    p2p = kernels.op == OPS.index(Op.SEND_RECV)
    peer, who = kernels.peer[p2p], np.column_stack([kernels.rank, kernels.communicator])[p2p]
    numbers = {(rank, owner): rank for rank, owner in np.unique(who, axis=0).tolist()}
    # A trace that begins later lacks the set-up: where all members were traced, their numbers go by their ranks.
    for owner in np.unique(who[:, 1]):
        members = np.unique(kernels.rank[kernels.communicator == owner]).tolist()
        if owner != UNKNOWN and peer[who[:, 1] == owner].max() < len(members):
            numbers |= {(rank, int(owner)): number for number, rank in enumerate(members)}
    numbers |= local
    own_rank = np.array([numbers[rank, owner] for rank, owner in who.tolist()], np.int64)
    low, high = np.full(len(kernels), UNKNOWN), np.full(len(kernels), UNKNOWN)
    low[p2p] = np.where(peer != UNKNOWN, np.minimum(own_rank, peer), UNKNOWN)
    high[p2p] = np.where(peer != UNKNOWN, np.maximum(own_rank, peer), UNKNOWN)
    stream = np.zeros(len(kernels), np.int64)
    for rank in columns:
        own = np.flatnonzero(kernels.rank == rank)
        streams, first, place = np.unique(kernels.stream[own], return_index=True, return_inverse=True)
        stream[own] = np.argsort(np.argsort(first))[place] if len(streams) else 0
    has_payload = kernels.communicator != UNKNOWN
    unless = (np.where(has_payload, UNKNOWN, each) for each in (stream, kernels.name))
    _, key = np.unique(np.column_stack([kernels.communicator, p2p, low, high, *unless]), axis=0, return_inverse=True)
    order = np.argsort(key.ravel(), kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(key.ravel()[order])) + 1) if len(order) else ():
        yield members, bool(has_payload[members[0]])


def _aligned(kernels: Kernels, of_rank: Mapping[int, Ints], columns: int) -> tuple[Ints, list[Ints]]:
    """The n-th kernels of the ranks in a row, a column a rank; and those that are left over.

    Ranks with as many kernels are matched by order. Each kernel of a rank with fewer goes to the row of the kernel of
    the fullest rank that ends when it does, by an offset of the clocks that is corrected from one to the next.
    """
    fullest = max(of_rank, key=lambda column: len(of_rank[column]))
    whole = np.full((len(of_rank[fullest]), columns), UNKNOWN, np.int64)
    ends, rest = kernels.end[of_rank[fullest]], []
    for column, positions in of_rank.items():
        if len(positions) == len(whole):
            whole[:, column] = positions
            continue
        head = kernels.end[positions[:HEAD]]
        apart = np.lib.stride_tricks.sliding_window_view(ends, len(head)) - head
        offsets = np.median(apart, axis=1)
        spread = np.median(np.abs(apart - offsets[:, None]), axis=1)
        offset = float(min(offsets[spread <= 2 * spread.min() + SAME_TIME_NS], key=abs))
        for position in positions.tolist():
            own_end = kernels.end[position] + offset
            after = min(max(int(np.searchsorted(ends, own_end)), 1), len(ends) - 1)
            place = after - (own_end - ends[after - 1] <= ends[after] - own_end)
            if whole[place, column] == UNKNOWN:
                whole[place, column] = position
            offset += float(np.clip(ends[place] - own_end, -SAME_TIME_NS, SAME_TIME_NS))
        rest.append(np.setdiff1d(positions, whole[:, column]))
    return whole, rest


def _communicators(kernels: Kernels, whole: Ints, columns: Sequence[int], ranks: Ranks) -> list[list[int]]:
    """Columns that are of one communicator, without payloads: those whose kernels overlap nearly always."""

    def overlap(column: int, other: int) -> bool:
        both = (whole[:, column] != UNKNOWN) & (whole[:, other] != UNKNOWN)
        if not both.any():
            return False
        one, two = whole[both, column], whole[both, other]
        files = {ranks.files[ranks.all[each].rank] for each in (column, other)}
        shift = line(kernels.end[two], kernels.end[one] - kernels.end[two]) if len(files) > 1 else 0
        late = np.maximum(kernels.start[one], kernels.start[two] + shift)
        early = np.minimum(kernels.end[one], kernels.end[two] + shift)
        return bool(np.mean(late - early <= SAME_TIME_NS) >= OVERLAPPING)

    groups: list[list[int]] = []
    for column in columns:
        group = next((each for each in groups if all(overlap(column, other) for other in each)), None)
        if group is None:
            groups.append([column])
        else:
            group.append(column)
    return groups


SYMMETRIC = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER)
"""Operations that end on all ranks at nearly the same time; NCCL's barriers are all-reduces."""


@once
def trace_clocks(run: Run) -> tuple[Clock, ...]:
    """The clocks of other traces that symmetric collectives tie to the first one's, directly or by others."""
    ranks = ranks_of(run)
    if len(set(ranks.files.values())) < 2:
        return ()
    matched = match(communication(run)[0], ranks, local_ranks(run, ranks))
    kernels, files = matched.kernels, [ranks.files[rank] for rank in matched.ranks]
    start, end = matched.of(kernels.start, -FOREVER), matched.of(kernels.end, FOREVER)
    symmetric = np.isin(kernels.op[matched.index.max(axis=1)], [OPS.index(op) for op in SYMMETRIC])
    tied, queue = {files[0]: Clock(files[0])}, [files[0]]
    for reference in queue:
        for other in sorted(set(files) - tied.keys()):
            one, two = (np.array(files) == each for each in (reference, other))
            both = symmetric & matched.there[:, one].any(axis=1) & matched.there[:, two].any(axis=1)
            if not both.any():
                continue
            first, own = ((start[both][:, of].max(axis=1), end[both][:, of].min(axis=1)) for of in (one, two))
            has_kernel = matched.there[:, two]
            around = int(start[:, two][has_kernel].min()), int(end[:, two][has_kernel].max())
            clock = clock_of(other, first, own, around)
            start[:, two], end[:, two] = clock.to_first(start[:, two]), clock.to_first(end[:, two])
            tied[other] = clock._replace(error_ns=clock.error_ns + tied[reference].error_ns)
            queue.append(other)
    return tuple(tied.values())[1:]


def local_ranks(run: Run, ranks: Ranks) -> dict[tuple[int, int], int]:
    """(Rank, communicator) -> the rank's number in it, by the payloads of NCCL's set-up."""
    of_process = {rank.pid: rank.rank for rank in ranks.all}
    return {
        (of_process[pid], setup[COMMUNICATOR] & LARGEST): setup[RANK]
        for pid, setup in nccl_setups(run)
        if pid in of_process and {COMMUNICATOR, RANK} <= setup.keys()
    }
