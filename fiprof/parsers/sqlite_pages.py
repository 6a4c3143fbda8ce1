"""Columns of numbers of an SQLite table, thousands of rows at once: decoded from its pages with NumPy.

SQLite hands out one value a call, which takes five times as long for tables of millions of rows. Only what is plain is
read here: a page whose cells lie inside it, records that have all columns and are as long as they say, values that are
numbers or null. Of all else NotPlainError says that SQLite is to read it, or to say what is wrong with it.

The format: https://www.sqlite.org/fileformat2.html, 1.6 (pages) and 2.1 (records).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

INTERIOR, LEAF = 5, 13  # kinds of pages of a table
INTERIOR_HEADER, LEAF_HEADER = 12, 8
RIGHTMOST = 8  # where an interior page has the number of its last child
DEEPEST = 20
NULL, REAL, ZERO, ONE, TEXT = 0, 7, 8, 9, 12  # serial types; 1 to 6 are integers, from TEXT on text and bytes
INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
ONE_BYTE = 128  # from here on a varint, as the sizes and types of a record are, takes more than one byte
RESERVED = (10, 11)
WIDTHS = np.array(
    [*INTEGER_BYTES, 8, 0, 0, *(0 for _ in RESERVED), *((kind - TEXT) // 2 for kind in range(TEXT, ONE_BYTE))]
)
"""Serial type -> bytes."""
SHIFTS = np.array([0, *(64 - 8 * width for width in INTEGER_BYTES[1:]), *([0] * (ONE_BYTE - len(INTEGER_BYTES)))])
"""Serial type -> by how many bits an integer is to the left, read as one of eight bytes."""
BEHIND = ONE_BYTE * (ONE_BYTE // 2)
"""Bytes that as many columns as a record may have here, of the longest type, reach over its page's end at most."""
BLOCK_BYTES = 1 << 20  # of pages that are decoded together: what comes of them fits into a core's cache


class NotPlainError(Exception):
    """SQLite is to read this table, or the rest of it."""


@dataclass
class Values:
    """A column: int64, or float64 where real numbers were asked for."""

    numbers: npt.NDArray[Any]
    nulls: npt.NDArray[np.bool_] | None = None  # which are null; None where none is

    @classmethod
    def join(cls, pieces: Sequence[Values]) -> Values:
        """The values of pieces one after the other, of which there is one at least."""
        nulls = [np.zeros(len(each.numbers), bool) if each.nulls is None else each.nulls for each in pieces]
        no_nulls = all(each.nulls is None for each in pieces)
        return cls(np.concatenate([each.numbers for each in pieces]), None if no_nulls else np.concatenate(nulls))

    def take(self, places: Ints) -> Values:
        return Values(self.numbers[places], None if self.nulls is None else self.nulls[places])

    def set_null(self, rows: slice, which: npt.NDArray[np.bool_] | bool) -> None:
        if self.nulls is None:
            self.nulls = np.zeros(len(self.numbers), bool)
        self.nulls[rows] = which


class Pages:
    """The pages of a file. Threads may share it. Methods raise NotPlainError, and OSError."""

    def __init__(self, path: Path, count: int = 1 << 32) -> None:
        """count: how many pages SQLite takes it to have; at most there can be so many."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        header = os.pread(self._file, 100, 0)
        page_bytes = int.from_bytes(header[16:18])
        self.page_bytes = 65536 if page_bytes == 1 else page_bytes
        self._usable = self.page_bytes - header[20]
        self._count = min(count, os.fstat(self._file).st_size // self.page_bytes)

    def close(self) -> None:
        os.close(self._file)

    def leaves(self, root: int) -> Ints:
        """The numbers of the pages that hold a table's rows, in the order of their ids."""
        level = np.array([root], np.int64)
        for _ in range(DEEPEST):
            if self._load(level[:1])[0] == LEAF:
                self._lone = len(level) == 1
                return level
            below = []
            for page in level.tolist():
                data = self._load(np.array([page]))
                cells = int(data[3]) << 8 | int(data[4])
                if data[0] != INTERIOR or not cells or INTERIOR_HEADER + 2 * cells > self._usable:
                    raise NotPlainError
                at = data[INTERIOR_HEADER : INTERIOR_HEADER + 2 * cells].view(">u2").astype(np.int64)
                if at.min() < INTERIOR_HEADER or at.max() + 4 > self._usable:
                    raise NotPlainError
                children = data[np.append(at, RIGHTMOST)[:, None] + np.arange(4)].view(">u4").ravel()
                below.append(children.astype(np.int64))
            level = np.concatenate(below)
            if len(level) > self._count:
                raise NotPlainError
        raise NotPlainError

    def read(self, leaves: Ints, columns: int, wanted: Mapping[int, bool]) -> dict[int, Values]:
        """Some columns of the rows in some leaves. columns: how many the table has.

        wanted: position of a column -> whether it is of real numbers.
        """
        data = self._load(leaves)
        heads = data[: len(leaves) * self.page_bytes].reshape(len(leaves), self.page_bytes)
        counts = heads[:, 3].astype(np.int64) << 8 | heads[:, 4]
        if (heads[:, 0] != LEAF).any() or (LEAF_HEADER + 2 * counts > self._usable).any():
            raise NotPlainError
        # Only a table without rows has a page without.
        if not (self._lone or counts.all()):
            raise NotPlainError
        rows = int(counts.sum())
        columns_read = {
            place: Values(np.empty(rows, np.float64 if real else np.int64)) for place, real in wanted.items()
        }
        step, row = max(1, BLOCK_BYTES // self.page_bytes), 0
        for page in range(0, len(leaves), step):
            page_rows = slice(row, row + int(counts[page : page + step].sum()))
            pages = data[page * self.page_bytes : (page + step) * self.page_bytes + BEHIND]
            if page_rows.stop > row:
                self._decode(pages, counts[page : page + step], columns, columns_read, page_rows)
            row = page_rows.stop
        return columns_read

    def _load(self, pages: Ints) -> Bytes:
        """Some pages one after the other, and BEHIND bytes."""
        if pages.min() < 1 or pages.max() > self._count:
            raise NotPlainError
        data = np.empty(len(pages) * self.page_bytes + BEHIND, np.uint8)
        breaks = [0, *(np.flatnonzero(np.diff(pages) != 1) + 1).tolist(), len(pages)]
        for begin, end in itertools.pairwise(breaks):
            stretch = memoryview(data.data)[begin * self.page_bytes : end * self.page_bytes]
            if os.preadv(self._file, [stretch], (int(pages[begin]) - 1) * self.page_bytes) < len(stretch):
                raise NotPlainError
        return data

    def _decode(self, data: Bytes, counts: Ints, columns: int, columns_read: Mapping[int, Values], rows: slice) -> None:
        """Fill in the rows of some leaves. counts: how many each has; rows: where they are among those read."""
        record, end = self._records(data, counts)
        # Where columns are too many for a byte, no record looks as if it had them.
        if columns + 1 >= ONE_BYTE or (data[record] != columns + 1).any():
            raise NotPlainError
        kinds = np.ascontiguousarray(_at(data, f"V{columns}", record + 1).view(np.uint8).reshape(-1, columns).T)
        if kinds.max() >= ONE_BYTE or (kinds - RESERVED[0] < len(RESERVED)).any():
            raise NotPlainError
        # Most columns are as wide in every row.
        same = (kinds == kinds[:, :1]).all(axis=1).tolist()
        place, further = record, columns + 1
        for column, kind in enumerate(kinds):
            of_all = int(kind[0]) if same[column] else None
            if column in columns_read:
                place, further = place + further, 0
                _fill(columns_read[column], rows, data, place, kind, of_all)
            if of_all is None:
                place = place + WIDTHS[kind]
            else:
                further += int(WIDTHS[of_all])
        if (place + further != end).any():
            raise NotPlainError

    def _records(self, data: Bytes, counts: Ints) -> tuple[Ints, Ints]:
        """Where the records in some leaves begin and end."""
        page = np.repeat(np.arange(len(counts)) * self.page_bytes, counts)
        number = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
        cell = _at(data, ">u2", page + LEAF_HEADER + 2 * number).astype(np.int64)
        if (cell < LEAF_HEADER).any() or (cell >= self._usable).any():
            raise NotPlainError
        at = page + cell
        size, second = data[at].astype(np.int64), data[at + 1].astype(np.int64)
        long = size >= ONE_BYTE
        size = np.where(long, (size - ONE_BYTE) << 7 | second, size)
        at += 1 + long
        # The row id, of nine bytes at most.
        more = data[at] >= ONE_BYTE
        at += 1
        for _ in range(8):
            if not more.any():
                break
            further = more & (data[at] >= ONE_BYTE)
            at += more
            more = further
        # A longer record has overflow pages: it takes up all but 35 bytes of its own.
        if (long & (second >= ONE_BYTE)).any() or (size > self._usable - 35).any():
            raise NotPlainError
        if (at + size > page + self._usable).any():
            raise NotPlainError
        return at, at + size


def _fill(column: Values, rows: slice, data: Bytes, place: Ints, kind: Bytes, of_all: int | None) -> None:
    """Fill in the rows of a column. place: where each value begins; kind: its serial type; of_all: that of all."""
    numbers, real = column.numbers[rows], column.numbers.dtype == np.float64
    if of_all in (NULL, ZERO, ONE):
        numbers[:] = of_all == ONE
        if of_all == NULL:
            column.set_null(rows, True)
        return
    largest = int(kind.max())
    if largest >= TEXT or (not real and (kind == REAL).any()):
        raise NotPlainError
    stored = _at(data, ">i8", place)
    shift = SHIFTS[kind] if of_all is None else int(SHIFTS[of_all])
    if real:
        numbers[:] = np.where(kind == REAL, stored.view(np.float64), stored >> shift)
        # SQLite takes it for null.
        if np.isnan(numbers).any():
            raise NotPlainError
    else:
        np.right_shift(stored, shift, out=numbers)
    if of_all is None and (int(kind.min()) == NULL or largest >= ZERO):
        constant = (kind == NULL) | (kind >= ZERO)
        numbers[constant] = kind[constant] == ONE
        if (kind == NULL).any():
            column.set_null(rows, kind == NULL)


def _at(data: Bytes, kind: str, places: Ints) -> npt.NDArray[Any]:
    """What stands at some places, in the machine's order of bytes."""
    stored = np.dtype(kind)
    anywhere: npt.NDArray[Any] = np.ndarray((len(data) - stored.itemsize + 1,), stored, data, 0, (1,))
    return anywhere[places].astype(stored.newbyteorder("="), copy=False)
