"""Communication kernels of all ranks, matched: the n-th collective of a communicator on each of its ranks.

NCCL demands that every rank calls a communicator's collectives in the same order, so the n-th kernel of a communicator
on one rank is the n-th on the others. Where NCCL does not tell the communicator, kernels of one name and stream are
taken for those of one, and ranks whose kernels do not overlap are taken apart: a collective ends nowhere before it has
begun everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.analysis.comm.kernels import OPS, UNKNOWN, Kernels, Op
from fiprof.model.ranks import Ranks

if TYPE_CHECKING:
    from fiprof.analysis.comm.kernels import Bools
    from fiprof.model.unions import Ints

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
    import numpy as np

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
    import numpy as np

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
    import numpy as np

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
    import numpy as np

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
    import numpy as np

    both = (one != UNKNOWN) & (other != UNKNOWN)
    one, other = one[both], other[both]
    if not len(one):
        return False
    files = {ranks.files[ranks.all[column].rank] for column in columns}
    shift = int(np.median(kernels.end[one] - kernels.end[other])) if len(files) > 1 else 0
    late = np.maximum(kernels.start[one], kernels.start[other] + shift)
    early = np.minimum(kernels.end[one], kernels.end[other] + shift)
    return bool(np.mean(late - early <= SAME_TIME_NS) >= OVERLAPPING)
