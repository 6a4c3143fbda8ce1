"""The cells of a raw page: from the bytes of its rows to columns of text, and from those to numbers.

A page of ``--set full`` has 2,200 cells a launch, nearly all of them numbers, with commas between thousands. Arrow
reads each column as text and casts all of them at once.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fiprof.parsers.ncu_csv import Page

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

NO_VALUE = ("", "n/a", "no data", "nan")
"""Cells that say that nothing was collected."""

_BATCH = 30_000
"""Cells cast at a time. Most such batches hold no text, and need no search for it."""


def text_columns(page: Page, begin: int, end: int, count: int) -> list[pa.StringArray]:
    """The columns of the rows between two places of a page, null for NO_VALUE.

    count: how many columns there are. Raises FiprofError where a row has another number of cells, or there is none.
    """
    import pyarrow as pa
    import pyarrow.csv

    page.check_end(begin, end)
    names = [str(column) for column in range(count)]
    bad_rows: list[pyarrow.csv.InvalidRow] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        bad_rows.append(row)
        return "error"

    # Arrow would answer a signal itself, by an error of its own.
    pa.enable_signal_handlers(False)
    try:
        table = pyarrow.csv.read_csv(
            pa.py_buffer(page.data).slice(begin, end - begin),
            # In one block, so that every column is one array.
            pyarrow.csv.ReadOptions(column_names=names, block_size=end - begin, use_threads=False),
            pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            pyarrow.csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=NO_VALUE,
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        for row in bad_rows:
            found = f"row {row.number} has {row.actual_columns:,} of {count:,} cells"
            raise page.error(f"is cut short, or other output stands among its rows: {found}") from error
        raise page.error(f"is no CSV of ncu: {str(error).splitlines()[0]}") from error
    if not table.num_rows:
        raise page.error("has a header and no launches")
    (batch,) = table.to_batches()
    return list(batch.columns)


def numbers_and_texts(columns: Sequence[pa.StringArray]) -> tuple[NDArray[np.float64], dict[int, list[str | None]]]:
    """The numbers, columns x rows, NaN for text and null; and by column the cells that are no number."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(columns[0])
    values = np.empty((len(columns), rows))
    texts: dict[int, list[str | None]] = defaultdict(lambda: [None] * rows)
    at_once = max(_BATCH // rows, 1)
    for first in range(0, len(columns), at_once):
        cells = pa.concat_arrays(columns[first : first + at_once])
        numbers = _numbers(pc.replace_substring(cells, ",", ""))
        values[first : first + at_once] = numbers.to_numpy(zero_copy_only=False).reshape(-1, rows)
        others = pc.indices_nonzero(pc.and_(cells.is_valid(), numbers.is_null()))
        for place, text in zip(others.to_pylist(), cells.take(others).to_pylist(), strict=True):
            column, row = divmod(first * rows + place, rows)
            value = number(text)
            if value is None:
                texts[column][row] = text
            else:
                values[column, row] = value
    return values, texts


def _numbers(digits: pa.StringArray) -> pa.DoubleArray:
    """The cells as numbers, null for what is none. digits: without commas."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return digits.cast(pa.float64())
    except pa.ArrowInvalid:
        return pc.if_else(pc.match_substring_regex(digits, r"^-?\d+(\.\d+)?$"), digits, None).cast(pa.float64())


@functools.lru_cache(maxsize=1024)
def number(text: str) -> float | None:
    """A number in a spelling that Arrow does not read, such as ``inf``; None for text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
