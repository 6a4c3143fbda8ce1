"""What ncu's pages have in common as CSV files: bytes, rows, and cells as texts and numbers.

A raw page of ``--set full`` has 2,200 cells a launch, nearly all of them numbers, with commas between thousands. Arrow
reads each column as text and casts all of them at once.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from fiprof.errors import FiprofError
from fiprof.parsers.names import as_utf8

LARGEST_BYTES = 2 * 10**9
NO_VALUE = ("", "n/a", "no data", "nan")
"""Cells that say that nothing was collected."""
_BATCH = 30_000
"""Cells cast at a time. Most such batches hold no text, and need no search for it."""
_FOREIGN = re.compile(
    r"-?(?:\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+"  # 1.234.567,8
    r"|\d+,(?:\d{1,2}|\d{4,})|\d{4,},\d+|0\d*,\d+"  # 0,25
    r"|\d{1,3}(?:['\N{RIGHT SINGLE QUOTATION MARK}\xa0\u202f\u2009\ufffd ]\d{3})+(?:[.,]\d+)?)"  # 1 234 567
)
"""Numbers that nobody writes who separates thousands by commas; 1.234 and 1,234 alone tell nothing."""


@dataclass(frozen=True)
class Page:
    """The bytes of an exported page, valid UTF-8 (U+FFFD for what was not)."""

    path: Path
    kind: str
    """raw, details or source."""
    data: bytes

    @property
    def remedy(self) -> str:
        """How to export it again."""
        options = {"raw": " --print-units base", "source": " --print-source sass"}.get(self.kind, "")
        return f"export it again: ncu --import REPORT --csv --page {self.kind}{options}"

    def error(self, problem: str) -> FiprofError:
        """The error to raise for a page that cannot be used."""
        return FiprofError(f"{self.path} {problem}", self.remedy)

    def cut_short(self, detail: str = "its last row is not complete") -> FiprofError:
        return self.error(f"is cut short: {detail}")

    def several(self) -> FiprofError:
        return self.error("holds several pages, each with launches of its own; import them one by one")

    def check_end(self, begin: int = 0, end: int | None = None, *, closing: bytes = b'\n"}') -> None:
        """Raise FiprofError unless the page between these places ends with a whole cell.

        That is before a line's end, or behind a quote that closes a cell: whether the last row has all its cells is for
        the reader of the page to say. closing: characters that end a cell.
        """
        characters = np.frombuffer(self.data, np.uint8)[begin:end]
        if characters[-1] not in closing or np.count_nonzero(characters == ord('"')) % 2:
            raise self.cut_short()

    def check_numbers(self, cells: Iterable[str | None]) -> None:
        """Raise FiprofError where a number among cells is written as ``LC_ALL=C`` does not: ``1.234.567``, ``0,25``."""
        found = next((cell for cell in cells if cell and _FOREIGN.fullmatch(cell)), None)
        if found is not None:
            raise FiprofError(
                f"{self.path} has numbers in another locale's format: {found[:40]}",
                f"{self.remedy.replace('export it again: ', 'export it again: LC_ALL=C ')}",
            )

    def records(self, begin: int = 0, end: int | None = None) -> Iterator[list[str]]:
        """The cells of each row between two places of the page. Raises FiprofError for what is no CSV."""
        text = io.TextIOWrapper(io.BytesIO(self.data[begin:end]), encoding="utf-8", newline="")
        try:
            yield from csv.reader(text)
        except csv.Error as error:
            raise self.error(f"is no CSV of ncu: {error}") from error


def read_page(path: Path, kind: str) -> Page:
    """A page's bytes. Raises FiprofError where the file is missing, empty or larger than LARGEST_BYTES."""
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise FiprofError(f"{path} has {size / 1e9:.1f} GB; 2 GB is the limit", "profile fewer launches at a time")
        data = path.read_bytes()
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    page = Page(path, kind, as_utf8(data))
    if not data or data.isspace():
        raise page.error("is empty")
    return page


def text_columns(page: Page, begin: int, end: int, count: int) -> list[pa.StringArray]:
    """The columns of the rows between two places of a page, null for NO_VALUE.

    count: how many columns there are. Raises FiprofError where a row has another number of cells, or there is none.
    """
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
