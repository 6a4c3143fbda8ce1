"""Columns of Arrow tables as NumPy arrays and as lists, made when they are asked for.

``ChunkedArray.to_numpy`` and ``pa.array`` import pandas, which takes half a second: buffers go over as they are.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]  # of integers, as wide as they need to be

T = TypeVar("T")

MISSING = -1  # in place of a null
INFINITE = frozenset({float("inf"), float("-inf")})
DENSE = 1 << 20
"""Most combinations of values that an array counts; for more, pyarrow.compute is imported, which takes 0.1 s."""
SPARSE = 64  # combinations a row, from which on to sort the rows takes less time than to go through all combinations
KEPT = 4096  # launches whose rows stay in memory once they are made

# As arrays


def numbers(column: pa.ChunkedArray) -> Ints:
    """A column of integers as int64, MISSING in place of null."""
    parts = [_plain(chunk).astype(np.int64, copy=False) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def floats(column: pa.ChunkedArray) -> Floats:
    """A column of floats, NaN in place of null."""
    return np.concatenate([np.empty(0), *(_plain(chunk, np.nan, "f") for chunk in column.chunks)])


def coded(column: pa.ChunkedArray | pa.Array) -> tuple[list[Any], Ints]:
    """The distinct values of a column, None last, and the position of each row's value among them."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.unify_dictionaries().combine_chunks()
    values = [*column.dictionary.to_pylist(), None]
    return values, _plain(column.indices, len(values) - 1)


def grid_blocks(grids: pa.ChunkedArray | pa.Array) -> Ints:
    """The number of blocks of grids such as ``4x24x1``; 0 for null."""
    values, places = coded(grids)
    return np.array(list(map(grid_size, values)), np.int64)[places]


def grid_size(grid: str | None) -> int:
    """The number of blocks of a grid such as ``4x24x1``; 0 for None."""
    return math.prod(int(size) for size in (grid or "0").split("x") if size.isdigit())


def arrow(values: Ints) -> pa.Array:
    """Integers as an Arrow array that shares their memory."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _plain(array: pa.Array, missing: float = MISSING, kind: str = "i") -> Any:
    valid, values = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    plain_values = np.frombuffer(values or b"", f"{kind}{array.type.bit_width // 8}")[rows]
    if array.null_count:
        # Not fill_null: its scalar imports pandas too.
        plain_values = np.where(
            np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[rows], plain_values, missing
        )
    return plain_values


class Kinds:
    """The distinct combinations of values of some columns, numbered in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}

    def of(self, piece: pa.Table, rows: Ints | slice = slice(None), **added: Ints) -> Ints:
        """The number of each row's combination. added: further columns, of integers, that are not in the table."""
        columns = [(values, codes[rows]) for values, codes in map(coded, piece.columns)]
        key, size = np.zeros(1, np.int64), 1
        for codes in (*(each for _, each in columns), *(values - values.min(initial=0) for values in added.values())):
            if size * (width := int(codes.max(initial=0)) + 1) > DENSE:
                distinct, key = coded(arrow(key))
                size = len(distinct)
            key, size = key.astype(np.int64) * width + codes, size * width
        if size > DENSE:
            distinct, key = coded(arrow(key))
            size = len(distinct)
        elif size > SPARSE * len(key):
            order = np.argsort(key, kind="stable")
            places = np.cumsum(np.diff(key[order], prepend=-1) > 0) - 1
            size, key[order] = int(places.max(initial=-1)) + 1, places
        first = np.full(size, len(key))
        first[key[::-1]] = np.arange(len(key))[::-1]
        example = np.sort(first[first < len(key)])
        first[key[example]] = np.arange(len(example))
        key = first[key]
        shown = [[values[code] for code in codes[example].tolist()] for values, codes in columns]
        shown += [values[example].tolist() for values in added.values()]
        known = [self.numbers.setdefault(values, len(self.numbers)) for values in zip(*shown, strict=True)]
        return np.array(known, np.int32)[key]


class Quantiles:
    """Counts, p10, medians and p90 of groups of integers: tens of millions, in 8 bytes each and one sort.

    Values range from ``low`` to ``low`` + 2^42 (73 minutes of ns): others count as the nearest of these.
    """

    BITS = 42

    def __init__(self, rows: int, low: int = 0) -> None:
        """rows: the most values that are added. low: the smallest value."""
        self._keys, self._count, self._low = np.empty(rows, np.int64), 0, low

    def add(self, groups: Ints, values: Ints) -> None:
        """Add values. groups: the number of each value's group, below 2^21."""
        keys = self._keys[self._count : self._count + len(values)]
        np.clip(values - self._low, 0, (1 << self.BITS) - 1, out=keys)
        keys += groups.astype(np.int64) << self.BITS
        self._count += len(values)

    def spreads(self) -> dict[int, tuple[int, float, float, float]]:
        """Group -> count, p10, median and p90, interpolated between neighbours."""
        keys = self._keys[: self._count]
        keys.sort()
        most = int(keys[-1]) >> self.BITS if len(keys) else -1
        first = np.searchsorted(keys, np.arange(most + 2) << self.BITS)
        count, groups = np.diff(first), np.flatnonzero(np.diff(first))
        columns = []
        for share in (0.1, 0.5, 0.9):
            place = share * (count[groups] - 1)
            below = first[groups] + place.astype(np.int64)
            above = np.minimum(below + 1, first[groups + 1] - 1)
            one, other = (keys[each] & (1 << self.BITS) - 1 for each in (below, above))
            columns.append((self._low + one + (other - one) * (place % 1)).tolist())
        return dict(zip(groups.tolist(), zip(count[groups].tolist(), *columns, strict=True), strict=True))


# As lists, which are made when they are asked for: of 100,000 launches people see 20


class ByLaunch(Mapping[int, T]):
    """Launch -> what ``make`` gives for its rows, which are in the order of the table.

    A row is a dict of the other columns; None stands for a null, a NaN and an infinity.
    """

    def __init__(self, make: Callable[[list[dict[str, Any]]], T], table: pa.Table) -> None:
        # Column.to_numpy() imports pandas, which takes half a second.
        column = table["launch"].combine_chunks()
        launches = np.frombuffer(column.buffers()[1] or b"", np.int32, len(column), 4 * column.offset)
        rows = table.drop_columns(["launch"])
        if (launches[1:] < launches[:-1]).any():
            order = np.argsort(launches, kind="stable")
            launches, rows = launches[order], rows.take(order)
        self._rows = rows.combine_chunks()
        # Not np.unique and np.percentile: they import numpy.ma, which takes longer than all launches.
        first = np.flatnonzero(np.diff(launches, prepend=launches[:1] - 1))
        bounds = [*first.tolist(), len(launches)]
        self._at = dict(zip(launches[first].tolist(), itertools.pairwise(bounds), strict=True))
        self._make = make
        self._made = functools.lru_cache(KEPT)(self._of)

    def _of(self, launch: int) -> T:
        first, end = self._at[launch]
        return self._make(finite_rows(self._rows.slice(first, end - first)))

    def __getitem__(self, launch: int) -> T:
        return self._made(launch)

    def __iter__(self) -> Iterator[int]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, launch: object) -> bool:
        return launch in self._at


def finite_rows(table: pa.Table, wanted: Sequence[bool] | None = None) -> list[dict[str, Any]]:
    """A table's rows, or some of them. None stands for a null, a NaN and an infinity."""
    rows = zip(*map(finite, table.columns), strict=True)
    chosen = rows if wanted is None else itertools.compress(rows, wanted)
    return [dict(zip(table.column_names, row, strict=True)) for row in chosen]


def finite(column: pa.ChunkedArray) -> list[Any]:
    """A column's values likewise; a text that occurs often is one object."""
    if pa.types.is_dictionary(column.type):
        # to_pylist makes a text anew for each row.
        result = []
        for chunk in column.chunks:
            values = chunk.dictionary.to_pylist()
            result += [None if index is None else values[index] for index in chunk.indices.to_pylist()]
        return result
    if not pa.types.is_floating(column.type):
        return list(column.to_pylist())
    # pyarrow.compute, which could do this, takes longer to import than most tables to read.
    if column.null_count:
        return [None if value != value or value in INFINITE else value for value in column.to_pylist()]
    return [value if -math.inf < value < math.inf else None for value in column.to_pylist()]


class Columns(dict[str, Sequence[Any]]):
    """The columns of a table, each made a list when it is first asked for; None as above, and in one that is absent."""

    def __init__(self, table: pa.Table, absent: Iterable[str] = ()) -> None:
        self._table = table
        super().__init__(dict.fromkeys(absent, [None] * table.num_rows))

    def __missing__(self, name: str) -> Sequence[Any]:
        self[name] = finite(self._table[name])
        return self[name]
