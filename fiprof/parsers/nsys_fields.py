"""Fields of nsys tables of millions of rows: what they are made of, and pieces of such rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fiprof.parsers.sqlite_pages import Values

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")


@dataclass(frozen=True)
class Field:
    """A column to read in bulk: integers, or null where the export lacks what they are made of."""

    name: str
    """Its name in the result."""
    needs: tuple[str, ...]
    """The source columns."""
    combine: Callable[..., Any] | None = None
    """Makes one array of integers of those of several source columns; null where one of them is."""
    real: bool = False
    """Whether it holds real numbers instead."""
    required: bool = False
    """Whether a row without it says nothing."""
    otherwise: int | None = None
    """In place of it where the export lacks a source column."""


def column(name: str, source: str | None = None, *, required: bool = False, otherwise: int | None = None) -> Field:
    """A source column as it is."""
    return Field(name, (source or name,), required=required, otherwise=otherwise)


def batch(fields: Sequence[Field], found: Mapping[str, Values], rows: int) -> pa.RecordBatch:
    """Rows of some fields. found: the source columns that there are."""
    import numpy as np
    import pyarrow as pa

    columns = []
    for field in fields:
        sources = [found[name] for name in field.needs if name in found]
        if len(sources) < len(field.needs):
            kind = pa.float64() if field.real else pa.int64()
            columns.append(pa.repeat(pa.scalar(field.otherwise, kind), rows))
            continue
        numbers = [source.numbers for source in sources]
        nulls = [source.nulls for source in sources if source.nulls is not None]
        mask = np.logical_or.reduce(nulls) if nulls else None
        columns.append(pa.array(field.combine(*numbers) if field.combine else numbers[0], mask=mask))
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def sound(piece: pa.RecordBatch, required: Sequence[str]) -> pa.RecordBatch:
    """The rows that have a value in each of these columns and end no sooner than they begin."""
    import pyarrow.compute as pc

    for name in required:
        if piece[name].null_count:
            piece = piece.filter(piece[name].is_valid())
    if {"start_ns", "end_ns"} <= set(required):
        whole = pc.less_equal(piece["start_ns"], piece["end_ns"])
        return piece if pc.all(whole).as_py() is not False else piece.filter(whole)
    return piece


class OutOfOrderError(Exception):
    """Rows were not in ascending order."""


def in_order(read: Callable[[bool], Result]) -> Result:
    """``read(False)``, which takes rows as they lie; ``read(True)``, which sorts them, if they were not in order.

    nsys promises no order but keeps one, and to have SQLite sort millions of rows takes many times as long.
    """
    try:
        return read(False)
    except OutOfOrderError:
        return read(True)


def last_in_order(values: pa.Array, last: int | None) -> int | None:
    """The last of the values. Raises OutOfOrderError where they do not ascend from ``last``, or one is null."""
    import numpy as np

    if not len(values):
        return last
    numbers = values.to_numpy(zero_copy_only=False)
    if values.null_count or (last is not None and numbers[0] < last) or not np.all(numbers[:-1] <= numbers[1:]):
        raise OutOfOrderError
    return int(numbers[-1])
