"""What the host did when: CUDA calls and NVTX ranges of its threads, for millions of moments at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.model.run import Run

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[Any]
    """Of integers, as wide as they need to be."""

NOTHING = -1
"""The label of a moment with no call, or outside every range."""
LIBRARIES = ("NCCL", "CCCL", "cuBLAS", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "TensorRT")
"""NVTX domains of libraries: their ranges are not the program's phases."""
SEPARATOR = " > "
"""Between the names of nested ranges."""
DEEPEST = 64


@dataclass(frozen=True)
class Stretches:
    """What was innermost on one thread, in order of time; between two stretches there is nothing."""

    starts: Ints
    ends: Ints
    labels: Ints

    def at(self, moments: Ints) -> Ints:
        """The label of each moment, NOTHING between stretches."""
        import numpy as np

        if not len(self.starts):
            return np.full(len(moments), NOTHING)
        if len(moments) > 2 * len(self.starts) and (moments[1:] >= moments[:-1]).all():
            bounds = np.searchsorted(moments, np.column_stack([self.starts, self.ends]).ravel())
            labels = np.column_stack([self.labels, np.full_like(self.labels, NOTHING)]).ravel()
            return np.repeat(np.append(NOTHING, labels), np.diff(bounds, prepend=0, append=len(moments)))
        place = np.searchsorted(self.starts, moments, side="right") - 1
        inside = (place >= 0) & (moments < self.ends[place])
        return np.where(inside, self.labels[place], NOTHING)

    def overlaps(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """The stretches that some disjoint intervals meet: where each begins and ends inside, and its label."""
        import numpy as np

        first = np.searchsorted(self.ends, starts, side="right")
        count = np.maximum(np.searchsorted(self.starts, ends, side="left") - first, 0)
        of = np.repeat(np.arange(len(starts)), count)
        place = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
        return np.maximum(self.starts[place], starts[of]), np.minimum(self.ends[place], ends[of]), self.labels[place]


def nothing() -> Stretches:
    """A thread that did nothing."""
    import numpy as np

    return Stretches(*(np.empty(0, np.int64) for _ in range(3)))


def innermost(starts: Ints, ends: Ints, labels: Ints) -> Stretches:
    """Nested intervals of one thread as what is innermost when. Those of no length are left out."""
    import numpy as np

    lasting = ends > starts
    if not lasting.all():
        starts, ends, labels = starts[lasting], ends[lasting], labels[lasting]
    if (starts[1:] >= ends[:-1]).all():
        return Stretches(starts, ends, labels)
    order = np.lexsort((-ends, starts))
    starts, ends, labels = starts[order], ends[order], labels[order]
    number = np.arange(len(starts))
    depth = np.minimum(number - np.searchsorted(np.sort(ends), starts, side="right"), DEEPEST)
    parent = np.full(len(starts), NOTHING)
    for level in range(1, int(depth.max()) + 1):
        here, above = number[depth == level], number[depth == level - 1]
        place = np.searchsorted(above, here) - 1
        parent[here] = np.where(place >= 0, above[place], NOTHING)
    moments = np.concatenate([starts, ends])
    then = np.concatenate([number, parent])
    # At one moment the inner end comes before the outer, and every end before a start.
    rank = np.concatenate([depth + 1, -depth])
    order = np.lexsort((rank, moments))
    moments, then = moments[order], then[order]
    held = (then[:-1] != NOTHING) & (moments[1:] > moments[:-1])
    return Stretches(moments[:-1][held], moments[1:][held], labels[then[:-1][held]])


def by_thread(threads: Ints, *columns: Ints) -> Iterator[tuple[int, tuple[Ints, ...]]]:
    """The rows of each thread, in their order."""
    import numpy as np

    if len(threads) and (threads == threads[0]).all():
        yield int(threads[0]), columns
        return
    order = np.argsort(threads, kind="stable")
    found, first = np.unique(threads[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    for thread, begin, end in zip(found.tolist(), bounds[:-1], bounds[1:], strict=True):
        yield thread, tuple(column[order[begin:end]] for column in columns)


@dataclass(frozen=True)
class Phases:
    """The program's NVTX ranges: push/pop, of its own domains."""

    paths: tuple[str, ...]
    """Label -> names from the outermost to the innermost, joined by SEPARATOR."""
    threads: dict[int, Stretches]
    """Thread (:func:`thread_keys`) -> its ranges."""

    def at(self, threads: Ints, moments: Ints) -> Ints:
        """The label of each moment on a thread."""
        import numpy as np

        found = np.full(len(moments), NOTHING)
        for thread, stretches in self.threads.items():
            here = threads == thread
            found[here] = stretches.at(moments[here])
        return found


def thread_keys(pids: Ints, tids: Ints) -> Ints:
    """Process and thread in one number."""
    return pids << 32 | tids


def phases(run: Run) -> Phases:
    """The program's ranges; none without nsys. Raises FiprofError for a table that cannot be read."""
    return run.once(_phases)


def _phases(run: Run) -> Phases:
    import numpy as np

    columns = ("domain", "name", "start_ns", "end_ns", "depth", "parent", "kind", "pid", "tid")
    rows = run.rows("ranges", columns)
    paths: list[str] = []
    for row in rows:
        around = row["parent"]
        paths.append(f"{paths[around]}{SEPARATOR}{row['name']}" if around is not None else row["name"])
    labels = {path: label for label, path in enumerate(dict.fromkeys(paths))}
    own = [
        (row["pid"] << 32 | row["tid"], row["start_ns"], row["end_ns"] or np.iinfo(np.int64).max, labels[path])
        for row, path in zip(rows, paths, strict=True)
        if row["kind"] == "push_pop" and row["domain"] not in LIBRARIES
    ]
    threads, *numbers = np.array(own, np.int64).reshape(-1, 4).T
    return Phases(tuple(labels), {thread: innermost(*each) for thread, each in by_thread(threads, *numbers)})
