"""Times in which at least one of several intervals holds, for millions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]


def union_by(keys: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """The intervals of each key, those that touch or overlap as one: keys, starts and ends, by key and start.

    Ends are not before their starts.
    """
    import numpy as np

    if not len(keys):
        return keys, starts, ends
    order = np.lexsort((starts, keys))
    keys, starts, ends = keys[order], starts[order], ends[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    # Each key's intervals after those of the key before it, on one axis of time: then one running maximum does for all.
    spans = np.maximum.reduceat(ends, first) - starts[first] + 1
    shift = np.repeat(np.cumsum(spans) - spans - starts[first], np.diff(first, append=len(keys)))
    reached = np.maximum.accumulate(ends + shift)
    opens = np.append(0, np.flatnonzero((starts + shift)[1:] > reached[:-1]) + 1)
    last = np.append(opens[1:], len(keys)) - 1
    return keys[opens], starts[opens], reached[last] - shift[last]
