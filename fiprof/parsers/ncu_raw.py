"""ncu's raw page as CSV: a row a launch, a column a metric, the second row holding units.

Also the viewer's export of the same page: a row a metric, a column a launch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from fiprof.errors import FiprofError
from fiprof.model.metrics import METRICS
from fiprof.parsers.ncu_csv import NO_VALUE, Page, numbers_and_texts, read_page, text_columns
from fiprof.parsers.ncu_profile import Profile, ranges_of, to_base

Made = TypeVar("Made")
_NUMBERS = frozenset(name for metric in METRICS for name in metric.ncu)
_CHECKED_ROWS = 100
"""Launches in which the format of numbers is looked at: a page has one."""
_IDENTITY_METRICS = {
    "Device": "launch__device_id",
    "Context": "launch__context_id",
    "Stream": "launch__stream_id",
}
"""Column that says which launch a row is -> ncu's metric of the same."""

_HEADER = re.compile(rb'^"?ID"?,[^\n]*"?Kernel Name"?[,\r\n]', re.MULTILINE)
_ROW = re.compile(rb'"?\d')
_METRIC_ROW = re.compile(r"(?P<name>\w+__[\w.]+)(?: \[(?P<unit>[^\]]*)\])?")
_IDENTITY = frozenset({"ID", "Context", "Stream", "Device", "CC"})
"""Columns that say which launch a row is; so do all that have a space or a colon in their name."""
_KERNEL_COLUMNS = ("Kernel Name", "Demangled Name", "Function Name")


def read_raw(path: Path) -> Profile:
    """The launches and metrics of a raw page.

    Lines of ncu or of the program before the header, and of ncu after the last row, are passed over.
    Raises FiprofError where the file is missing, too large, empty, no raw page, cut short, holds no launches or no
    metrics, or contradicts itself.
    """
    page = read_page(path, "raw")
    header_at = _HEADER.search(page.data)
    if header_at is None:
        return _read_transposed(page)
    begin = header_at.start()
    header_end = page.data.find(b"\n", begin)
    if page.data[header_end:].isspace():
        raise page.error("has a header and no launches")
    while page.data[header_end + 1 : header_end + 2] == b"\n":
        header_end += 1
    units_end = page.data.find(b"\n", header_end + 1)
    if header_end < 0 or units_end < 0:
        raise page.cut_short()
    header, units = (next(page.records(*line), []) for line in ((begin, header_end), (header_end + 1, units_end)))
    if len(units) != len(header):
        raise page.cut_short("its row of units is not complete")
    rows_at = units_end + 1
    if units[0]:
        units, rows_at = [""] * len(header), header_end + 1
    rows_end = _end_of_rows(page.data, rows_at)
    if rows_end == rows_at:
        raise page.error("has a header and no launches")
    return _profile(page, header, units, text_columns(page, rows_at, rows_end, len(header)))


def _end_of_rows(data: bytes, begin: int) -> int:
    """Where what ncu or the program printed after the last row begins; what may be of a row is none of that."""
    end = len(data)
    while end > begin:
        last = max(data.rfind(b"\n", begin, end - 1) + 1, begin)
        if b'"' in data[last:end] or _ROW.match(data, last):
            break
        end = last
    return end


def _profile(page: Page, header: Sequence[str], units: Sequence[str], columns: Sequence[pa.StringArray]) -> Profile:
    """header, units, columns: of the page's columns, in any order."""
    identity: dict[str, pa.StringArray] = {}
    metrics: dict[str, pa.StringArray] = {}
    found: list[str] = []
    for name, unit, column in zip(header, units, columns, strict=True):
        kept = metrics if _is_metric(name) else identity
        if name not in kept:
            kept[name] = column
            if kept is metrics:
                found.append(unit)
        elif not kept[name].equals(column):
            raise page.error(f"has the column {name} twice, with different values")
    if not metrics:
        raise FiprofError(
            f"{page.path} has launches and no metrics: the sections or metrics asked for do not exist",
            "ncu --list-sections and --query-metrics name what there is",
        )
    found_launches = launches(page, {name: column.to_pylist() for name, column in identity.items()}, len(columns[0]))
    for name, unit in zip(metrics, found, strict=True):
        if unit or name in _NUMBERS:
            page.check_numbers(metrics[name].slice(0, _CHECKED_ROWS).to_pylist())
    values, texts = numbers_and_texts(list(metrics.values()))
    bases = [to_base(unit) for unit in found]
    for row, base in zip(values, bases, strict=True):
        if base is not None and base[1] != 1.0:
            row *= base[1]
    names = tuple(metrics)
    return Profile.sound(
        launches=found_launches,
        metrics=names,
        units=tuple(unit if base is None else base[0] for unit, base in zip(found, bases, strict=True)),
        values=values,
        texts={names[column]: cells for column, cells in texts.items()},
        unscaled=frozenset(name for name, base in zip(names, bases, strict=True) if base is None),
    )


def _is_metric(name: str) -> bool:
    return name not in _IDENTITY and " " not in name and ":" not in name


def launches(page: Page, columns: Mapping[str, Sequence[str | None]], count: int) -> dict[str, list[Any]]:
    """The launches of a page, as ``Profile.launches``.

    columns: those that say which launch a row is. count: how many rows there are.
    """
    nothing = [None] * count

    def cells(*names: str, made: Callable[[str], Made]) -> list[Made]:
        """The first of the columns that the page has, each different text converted once."""
        found = next((columns[name] for name in names if name in columns), nothing)
        each = {cell: made(cell or "") for cell in set(found)}
        return [each[cell] for cell in found]

    ids = cells("ID", made=_integer)
    if None in ids:
        row = ids.index(None)
        found = columns["ID"][row] if "ID" in columns else None
        if found == "ID":
            raise page.several()
        raise page.error(f"has no launch ID in row {row + 1}" + (f": {found[:40]!r}" if found else ""))
    if twice := [launch for launch, times in Counter(ids).items() if times > 1]:
        raise page.error(f"has launch {twice[0]} twice")
    return {
        "launch": ids,
        "kernel_full": cells(*_KERNEL_COLUMNS, made=str),
        "grid": cells("Grid Size", made=_dimensions),
        "block": cells("Block Size", made=_dimensions),
        "ranges": cells(*(name for name in columns if "Push/Pop" in name), made=ranges_of),
        "pid": cells("Process ID", made=_integer),
        "context": cells("Context", made=_integer),
        "stream": cells("Stream", made=_integer),
        "device": cells("Device", made=_integer),
        "cc": cells("CC", made=lambda cell: cell or None),
    }


def _dimensions(cell: str) -> str:
    """``(132, 1, 1)`` -> ``132x1x1``."""
    return "x".join(re.findall(r"\d+", cell))


def _integer(cell: str) -> int | None:
    """A number that the tables have room for (32 bits)."""
    digits = cell.replace(",", "").strip()
    return int(digits) if re.fullmatch("[0-9]{1,10}", digits) and int(digits) < 1 << 31 else None


def _read_transposed(page: Page) -> Profile:
    """The viewer's export: a row ``name [unit]`` with a cell a launch, a list of instances behind it in braces."""
    rows = [row for row in page.records() if len(row) > 1]
    if not any(_METRIC_ROW.fullmatch(row[0]) for row in rows):
        raise _not_raw(page)
    page.check_end()
    if len({len(row) for row in rows}) > 1:
        raise page.cut_short("its rows have different numbers of cells")
    header, units, columns = [], [], []
    for label, *cells in rows:
        match = _METRIC_ROW.fullmatch(label)
        header.append(match["name"] if match else label.partition(" [")[0])
        units.append(match["unit"] or "" if match else "")
        cells = [cell.partition("{")[0].strip() for cell in cells] if match else cells
        columns.append(pa.array([None if cell in NO_VALUE else cell for cell in cells], pa.string()))
    for name, own in _viewers_own(dict(zip(header, columns, strict=True)), len(rows[0]) - 1):
        header, units, columns = [name, *header], ["", *units], [pa.array(own, pa.string()), *columns]
    return _profile(page, header, units, columns)


def _viewers_own(columns: Mapping[str, pa.StringArray], count: int) -> Iterator[tuple[str, list[str | None]]]:
    """The columns of the tool's page that the viewer has under other names; the launches in order where it has no ID.

    The process is ``[1355440] python3.12``. count: how many launches there are.
    """

    def cells(name: str) -> list[str | None]:
        return columns[name].to_pylist() if name in columns else [None] * count

    if "ID" not in columns:
        yield "ID", [str(number) for number in range(count)]
    if "Process ID" not in columns:
        yield (
            "Process ID",
            [match and match[1] for match in map(re.compile(r"\[(\d+)\]").match, map(str, cells("Process")))],
        )
    for name, metric in _IDENTITY_METRICS.items():
        if name not in columns:
            yield name, cells(metric)
    if "CC" not in columns:
        parts = zip(
            *(cells(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")), strict=True
        )
        yield "CC", [None if None in (major, minor) else f"{major}.{minor}" for major, minor in parts]


def _not_raw(page: Page) -> FiprofError:
    if b"No kernels were profiled" in page.data:
        return FiprofError(
            f"{page.path}: ncu profiled no kernels", "its filters matched nothing, or the workload launched nothing"
        )
    return page.error("is not a raw page of ncu: it has no header with ID and Kernel Name")
