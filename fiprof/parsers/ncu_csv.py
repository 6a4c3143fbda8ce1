"""What ncu's pages have in common as CSV files."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fiprof.errors import FiprofError

LARGEST_BYTES = 2 * 10**9
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
        import numpy as np

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


def as_utf8(data: bytes) -> bytes:
    """Text as valid UTF-8 (U+FFFD for what was none) with plain line ends; UTF-16 is what PowerShell's ``>`` writes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode()
    elif not data.isascii():
        data = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").encode()
    return re.sub(rb"\r+\n", b"\n", data) if b"\r\n" in data else data
