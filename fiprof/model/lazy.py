"""Rows and columns of tables that are made when they are asked for: of 100,000 launches people are shown 20."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

INFINITE = frozenset({float("inf"), float("-inf")})
KEPT = 4096
"""Launches whose rows are kept when they have been made, so that memory is bounded."""


class ByLaunch(Mapping[int, tuple[T, ...]]):
    """What a function makes of a table's rows, by their column ``launch``, in the order of the table.

    A row is a dict of the other columns; None stands for a null, a NaN and an infinity.
    """

    def __init__(self, make: Callable[[dict[str, Any]], T], table: pa.Table) -> None:
        import numpy as np

        # Column.to_numpy() imports pandas, which takes half a second.
        column = table["launch"].combine_chunks()
        launches = np.frombuffer(column.buffers()[1] or b"", np.int32, len(column), 4 * column.offset)
        rows = table.drop_columns(["launch"])
        if (launches[1:] < launches[:-1]).any():
            order = np.argsort(launches, kind="stable")
            launches, rows = launches[order], rows.take(order)
        self._rows = rows.combine_chunks()
        found, first = np.unique(launches, return_index=True)
        bounds = [*first.tolist(), len(launches)]
        self._at = dict(zip(found.tolist(), itertools.pairwise(bounds), strict=True))
        self._make = make
        self._made = functools.lru_cache(KEPT)(self._of)

    def _of(self, launch: int) -> tuple[T, ...]:
        first, end = self._at[launch]
        return tuple(map(self._make, finite_rows(self._rows.slice(first, end - first))))

    def __getitem__(self, launch: int) -> tuple[T, ...]:
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
    kept = rows if wanted is None else itertools.compress(rows, wanted)
    return [dict(zip(table.column_names, row, strict=True)) for row in kept]


def finite(column: pa.ChunkedArray) -> list[Any]:
    """A column's values likewise; a text that occurs often is one object."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        # to_pylist makes a text anew for each row.
        return [value for chunk in column.chunks for value in _decoded(chunk)]
    if not pa.types.is_floating(column.type):
        return list(column.to_pylist())
    # pyarrow.compute, which could do this, takes longer to import than most tables to read.
    return [None if value != value or value in INFINITE else value for value in column.to_pylist()]


def _decoded(chunk: pa.DictionaryArray) -> Iterator[Any]:
    values = chunk.dictionary.to_pylist()
    return (None if index is None else values[index] for index in chunk.indices.to_pylist())


class Columns(dict[str, Sequence[Any]]):
    """The columns of a table, each made a list when it is first asked for; None as above, and in one that is absent."""

    def __init__(self, table: pa.Table, absent: Iterable[str] = ()) -> None:
        self._table = table
        super().__init__(dict.fromkeys(absent, [None] * table.num_rows))

    def __missing__(self, name: str) -> Sequence[Any]:
        self[name] = finite(self._table[name])
        return self[name]
