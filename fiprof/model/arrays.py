"""Columns of Arrow tables as NumPy arrays, of tables that are read in pieces.

``ChunkedArray.to_numpy`` and ``pa.array`` import pandas, which takes half a second: buffers go over as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[Any]
    """Of integers, as wide as they need to be."""

PIECE_ROWS = 1 << 18
MISSING = -1
"""In place of a null."""


def numbers(column: pa.ChunkedArray) -> Ints:
    """A column of integers as int64, MISSING in place of null."""
    import numpy as np

    parts = [_plain(chunk).astype(np.int64, copy=False) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def coded(column: pa.ChunkedArray | pa.Array) -> tuple[list[Any], Ints]:
    """The distinct values of a column, None behind them, and the place of each row's."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    values = [*column.dictionary.to_pylist(), None]
    return values, _plain(column.indices, len(values) - 1)


def arrow(values: Ints) -> pa.Array:
    """Integers as an Arrow array that shares their memory."""
    import numpy as np
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _plain(array: pa.Array, missing: int = MISSING) -> Ints:
    import numpy as np

    filled = array.fill_null(missing) if array.null_count else array
    found: Ints = np.frombuffer(filled.buffers()[1] or b"", f"i{filled.type.bit_width // 8}")
    return found[filled.offset : filled.offset + len(filled)]
