"""What ncu's pages have in common as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fiprof.errors import FiprofError

LARGEST_BYTES = 2 * 10**9


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

    def check_end(self, begin: int = 0, end: int | None = None) -> None:
        """Raise FiprofError unless the page between these places ends with a line's end, every quote closed."""
        import numpy as np

        characters = np.frombuffer(self.data, np.uint8)[begin:end]
        if characters[-1] != ord("\n") or np.count_nonzero(characters == ord('"')) % 2:
            raise self.cut_short()

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
    if not data.isascii():
        data = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").encode()
    page = Page(path, kind, data)
    if not data or data.isspace():
        raise page.error("is empty")
    return page
