"""The cells of a raw page as numbers and texts.

A page of ``--set full`` has 2,200 cells a launch, nearly all of them numbers, with commas between thousands. A general
reader of CSV makes a text of each cell first, column by column, and that costs most of the time. ncu quotes every cell:
here some launches at a time become one array of digits, by a handful of operations on their bytes, and are cast at
once. A page written in another way comes to the same array through the csv module.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

NO_VALUE = ("", "n/a", "no data", "nan")
"""Cells that say that nothing was collected."""

_BATCH = 32
"""Launches converted at a time: about half a megabyte of the page, which stays in the processor's cache."""
_CELL = r'"([^"]*+(?:""[^"]*+)*+)",'


@dataclass(frozen=True)
class Cells:
    """All cells of a page."""

    identity: Sequence[Sequence[str]]
    """The leading cells of each launch, as they stand."""
    values: NDArray[np.float64]
    """Metrics x launches; NaN for text and for NO_VALUE."""
    texts: dict[int, list[str | None]]
    """A metric's place -> the text of each launch's cell; only metrics that have one."""

    def same(self, one: int, other: int) -> bool:
        """Whether two metrics have the same cells."""
        import numpy as np

        numbers = np.array_equal(self.values[one], self.values[other], equal_nan=True)
        return numbers and self.texts.get(one) == self.texts.get(other)


@dataclass(frozen=True)
class _Batch:
    """The metrics' cells of some launches, launch by launch."""

    digits: pa.StringArray
    """Without commas."""
    text: Callable[[int], str]
    """A cell as it stands."""


def quoted_cells(page: bytes, begin: int, end: int, *, identity: int, metrics: int) -> Cells | None:
    """The cells of rows as ncu writes them: every one quoted, no quote and no line's end inside those of metrics.

    begin, end: where the rows are in the page. identity: how many cells of a row come before those of its metrics.
    None for rows written otherwise, or incomplete.
    """
    cell, leading = re.compile(_CELL), re.compile(rb"(?:%b){%d}+" % (_CELL.encode(), identity))
    names: list[list[str]] = []
    numbers: list[bytes] = []
    at = begin
    while at < end:
        match = leading.match(page, at, end)
        line_end = page.find(b"\n", match.end(), end) + 1 if match else 0
        if match is None or not line_end:
            return None
        names.append([text.replace('""', '"') for text in cell.findall(match[0].decode())])
        numbers.append(page[match.end() : line_end])
        at = line_end

    def batches() -> Iterable[_Batch | None]:
        for first in range(0, len(numbers), _BATCH):
            yield _unquoted(b"".join(numbers[first : first + _BATCH]), metrics)

    return _cells(names, metrics, batches())


def plain_cells(rows: Sequence[Sequence[str]], identity: int) -> Cells:
    """The same from the text of each cell, in rows of equal length."""
    import pyarrow as pa

    def batches() -> Iterable[_Batch]:
        for first in range(0, len(rows), _BATCH):
            cells = [cell for row in rows[first : first + _BATCH] for cell in row[identity:]]
            yield _Batch(pa.array([cell.replace(",", "") for cell in cells], pa.string()), cells.__getitem__)

    cells = _cells([row[:identity] for row in rows], len(rows[0]) - identity, batches())
    assert cells is not None, "every batch is there"
    return cells


def _cells(identity: Sequence[Sequence[str]], metrics: int, batches: Iterable[_Batch | None]) -> Cells | None:
    """All batches together; None where one is None."""
    import numpy as np

    values = np.empty((metrics, len(identity)))
    texts: dict[int, list[str | None]] = {}
    launch = 0
    for batch in batches:
        if batch is None:
            return None
        numbers, words = _numbers(batch)
        count = len(numbers) // metrics
        values[:, launch : launch + count] = numbers.reshape(count, metrics).T
        for cell, word in words.items():
            row, metric = divmod(cell, metrics)
            if metric not in texts:
                texts[metric] = [None] * len(identity)
            texts[metric][launch + row] = word
        launch += count
    return Cells(identity, values, texts)


def _unquoted(rows: bytes, metrics: int) -> _Batch | None:
    """A batch of rows of quoted cells; None where they are anything else."""
    import numpy as np
    import pyarrow as pa

    quote, comma, line_end = b'",\n'
    characters = np.frombuffer(rows, np.uint8)
    quotes = np.flatnonzero(characters == quote)
    if not len(quotes) or len(quotes) % (2 * metrics):
        return None
    opening, closing = quotes[::2], quotes[1::2]
    behind = characters[closing + 1].reshape(-1, metrics)
    one_apart = opening[0] == 0 and (opening[1:] - closing[:-1] == 2).all() and closing[-1] + 2 == len(rows)
    if not (one_apart and (behind[:, :-1] == comma).all() and (behind[:, -1] == line_end).all()):
        return None

    # Without commas and line ends only quotes stand between cells. Once those are removed too, a cell begins as many
    # characters further left as there are quotes before it.
    quoted = rows.translate(None, b",\n")
    begins = np.flatnonzero(np.frombuffer(quoted, np.uint8) == quote)[::2]
    offsets = np.empty(len(begins) + 1, np.int32)
    np.subtract(begins, np.arange(0, len(quotes), 2), out=offsets[:-1], casting="same_kind")
    offsets[-1] = len(quoted) - len(quotes)
    digits = pa.StringArray.from_buffers(len(begins), pa.py_buffer(offsets), pa.py_buffer(quoted.translate(None, b'"')))
    return _Batch(digits, lambda cell: rows[opening[cell] + 1 : closing[cell]].decode())


def _numbers(batch: _Batch) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Each cell as a number, NaN where it is none; and the cells that are neither a number nor NO_VALUE."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, characters = batch.digits.buffers()
    begins = np.frombuffer(offsets, np.int32)[: len(batch.digits) + 1]
    filled = begins[1:] > begins[:-1]
    # An empty cell at the very end begins behind the last character.
    first = np.append(np.frombuffer(characters or b"", np.uint8), np.uint8(0))[begins[:-1]]
    numeric = (first >= ord("-")) & (first <= ord("9")) & filled

    def cast() -> NDArray[np.float64]:
        valid = pa.py_buffer(np.packbits(numeric, bitorder="little"))
        cells = pa.StringArray.from_buffers(len(numeric), offsets, characters, valid)
        numbers: NDArray[np.float64] = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return numbers

    try:
        values = cast()
    except pa.ArrowInvalid:
        # Some texts begin as a number does.
        numeric &= np.array(pc.match_substring_regex(batch.digits, r"^-?\d+(\.\d+)?$"))
        values = cast()
    texts = {}
    for cell in np.flatnonzero(filled & ~numeric).tolist():
        text = batch.text(cell)
        number = _number(text)
        if number is None:
            texts[cell] = text
        else:
            values[cell] = number
    return values, texts


@functools.lru_cache(maxsize=1024)
def _number(text: str) -> float | None:
    """NaN for NO_VALUE, None for any other text."""
    if text in NO_VALUE:
        return math.nan
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
