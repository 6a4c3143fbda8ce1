"""Columns of Arrow tables as NumPy arrays, of tables that are read in pieces."""

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
    """A column of integers, MISSING in place of null."""
    import numpy as np

    filled = column if not column.null_count else column.fill_null(MISSING)
    found: Ints = filled.to_numpy().astype(np.int64, copy=False)
    return found


def coded(column: pa.ChunkedArray) -> tuple[list[Any], Ints]:
    """The texts of a category, None behind them, and the place of each row's."""
    array = column.combine_chunks()
    texts = [*array.dictionary.to_pylist(), None]
    codes: Ints = array.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    return texts, codes
