"""CUDA calls, and what they tell about the work that they started: how long the launch took, phase, case, iteration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiprof.model import tables
from fiprof.parsers.nsys_columns import ID_BITS, ID_MASK, Labels, int32, numbers, process_ids, thread_ids
from fiprof.parsers.nsys_export import Export
from fiprof.parsers.nsys_fields import column, in_order
from fiprof.parsers.nsys_ranges import NOWHERE, Scopes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.parsers.nsys_columns import Ints

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
FIELDS = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("thread", "globalTid", required=True),
    column("correlation", "correlationId"),
    column("name", "nameId"),
    column("status", "returnValue"),
)
UNKNOWN = -1
"""In place of a duration."""
LARGEST_KEY = (1 << 63) - 1


class Calls:
    """The calls of a trace, to be found by process and correlation id."""

    def __init__(self, scopes: Scopes, keys: Ints, durations_ns: Ints, positions: npt.NDArray[np.int32]) -> None:
        """Of each call its key, duration (or UNKNOWN) and position in ``scopes``; the last one is of LARGEST_KEY."""
        import numpy as np
        import pyarrow as pa

        self._keys, self._durations_ns, self._positions = keys, durations_ns, positions
        if (self._keys[1:] < self._keys[:-1]).any():
            order = np.argsort(self._keys, kind="stable")
            self._keys = self._keys[order]
            self._durations_ns = self._durations_ns[order]
            self._positions = self._positions[order]
        self._phases = Labels(lambda positions: [scopes.all[position].phase for position in positions])
        self._cases = Labels(lambda positions: [scopes.all[position].case for position in positions])
        self._iterations = pa.array([scope.iteration for scope in scopes.all], pa.int32())

    def attribute(self, owners: pa.Array, correlations: pa.Array) -> dict[str, pa.Array]:
        """Columns launch_call_ns, phase, case and iteration of what calls started; null where no call was traced.

        owners: globalPid. correlations: of the calls; CUPTI gives 0 to what has none.
        """
        import numpy as np
        import pyarrow as pa

        keys = call_keys(owners, correlations)
        at = np.searchsorted(self._keys, keys)
        untraced = (self._keys[at] != keys) | (numbers(correlations) == 0)
        durations_ns, positions = self._durations_ns[at], self._positions[at]
        scopes = pa.array(positions, pa.int32(), mask=untraced | (positions == NOWHERE))
        encoded = scopes.dictionary_encode()
        return {
            "launch_call_ns": pa.array(durations_ns, mask=untraced | (durations_ns == UNKNOWN)),
            "phase": self._phases.encode(encoded),
            "case": self._cases.encode(encoded),
            "iteration": self._iterations.take(scopes),
        }


class _Growing:
    """Numbers that come in pieces, in one array that grows where it lies: to join pieces takes twice the memory."""

    def __init__(self, kind: str) -> None:
        import numpy as np

        self._room = np.empty(0, kind)
        self.count = 0

    def add(self, piece: npt.ArrayLike) -> None:
        import numpy as np

        end = self.count + np.size(piece)
        if end > len(self._room):
            self._room.resize(end + end // 8, refcheck=False)
        self._room[self.count : end] = piece
        self.count = end

    def ended(self, last: int) -> npt.NDArray[Any]:
        """All of them, and another one."""
        self.add(last)
        return self._room[: self.count]


def call_keys(owners: pa.Array, correlations: pa.Array) -> Ints:
    """Process (of a globalPid or globalTid) and correlation id in one integer."""
    return ((numbers(owners) >> ID_BITS & ID_MASK) << 32) | (numbers(correlations) & 0xFFFFFFFF)


def write_api(export: Export, folder: Path, scopes: Scopes) -> tuple[int, Calls]:
    """Write the table ``api``. Returns its rows and the calls."""
    return in_order(lambda sort: _write_api(export, folder, scopes, sort))


def _write_api(export: Export, folder: Path, scopes: Scopes, sort: bool) -> tuple[int, Calls]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = Labels(lambda ids: [text and plain_name(text) for text in export.strings(ids)])
    keys, durations_ns, positions = _Growing("int64"), _Growing("int64"), _Growing("int32")
    with tables.writer(folder, "api") as write:
        for piece in export.scan(RUNTIME, FIELDS, order="start_ns", sort=sort):
            threads = piece["thread"]
            write(
                pa.table(
                    {
                        "name": names.encode(piece["name"]),
                        "start_ns": piece["start_ns"],
                        "end_ns": piece["end_ns"],
                        "pid": process_ids(threads),
                        "tid": thread_ids(threads),
                        "correlation": piece["correlation"],
                        "status": int32(piece["status"]),
                    }
                )
            )
            keys.add(call_keys(threads, piece["correlation"]))
            durations_ns.add(numbers(pc.subtract(piece["end_ns"], piece["start_ns"]), UNKNOWN))
            positions.add(scopes.at(numbers(threads), numbers(piece["start_ns"])))
    rows = keys.count
    calls = Calls(scopes, keys.ended(LARGEST_KEY), durations_ns.ended(UNKNOWN), positions.ended(NOWHERE))
    return rows, calls


def plain_name(name: str) -> str:
    """``cudaLaunchKernel`` for ``cudaLaunchKernel_v7000``."""
    return re.sub(r"_v\d+$", "", name)
