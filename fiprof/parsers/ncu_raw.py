"""ncu's raw page as CSV: a row a launch, a column a metric, the second row holding units.

Also the viewer's export of the same page: a row a metric, a column a launch.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError
from fiprof.parsers.ncu_csv import Page, read_page
from fiprof.parsers.ncu_profile import Launch, Profile, dimensions, ranges_of
from fiprof.parsers.ncu_units import to_base

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

NO_VALUE = ("", "n/a", "no data", "nan")
"""Cells that say that nothing was collected."""

_HEADER = re.compile(rb'^"?ID"?,[^\n]*"?Kernel Name"?[,\r\n]', re.MULTILINE)
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
    lines = page.data[header_at.start() :].split(b"\n", 2)
    if len(lines) < 3:
        raise page.cut_short()
    header, units = _record(lines[0]), _record(lines[1])
    rows = _without_messages(lines[2])
    if len(units) != len(header):
        raise page.cut_short("its row of units is not complete")
    if units[0]:
        units, rows = [""] * len(header), lines[1] + b"\n" + rows
    if not rows:
        raise page.error("has a header and no launches")
    page.check_end(rows)
    return _profile(page, header, units, _columns(page, rows, len(header)))


def _record(line: bytes) -> list[str]:
    return next(csv.reader([line.decode().rstrip("\r")]), [])


def _without_messages(rows: bytes) -> bytes:
    """Without ncu's own lines after the last row."""
    while rows:
        last = rows.rfind(b"\n", 0, len(rows) - 1) + 1
        if not rows.startswith(b"==", last):
            break
        rows = rows[:last]
    return rows


def _columns(page: Page, rows: bytes, count: int) -> list[pa.Array]:
    """The cells of each column, null where NO_VALUE."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    names = [str(i) for i in range(count)]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(rows),
            # One block: a column is one piece, and 2,240 columns are not started again every megabyte.
            read_options=pa_csv.ReadOptions(column_names=names, block_size=max(len(rows) + 1, 1 << 20)),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=NO_VALUE,
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise page.cut_short(str(error).partition("\n")[0][:120]) from error
    return [column.combine_chunks() for column in table.columns]


def _profile(page: Page, header: Sequence[str], units: Sequence[str], columns: list[pa.Array]) -> Profile:
    first = _first_of_equals(page, header, columns)
    metrics = [name for name in first if _is_metric(name)]
    if not metrics:
        raise FiprofError(
            f"{page.path} has launches and no metrics: the sections or metrics asked for do not exist",
            "ncu --list-sections and --query-metrics name what there is",
        )
    launches = _launches(page, {name: columns[i] for name, i in first.items() if not _is_metric(name)})
    values, texts = _numbers(metrics, [columns[first[name]] for name in metrics])
    bases = [to_base(units[first[name]]) for name in metrics]
    for row, base in zip(values, bases, strict=True):
        if base is not None and base[1] != 1.0:
            row *= base[1]
    return Profile(
        launches=launches,
        metrics=tuple(metrics),
        units=tuple(units[first[name]] if base is None else base[0] for name, base in zip(metrics, bases, strict=True)),
        values=values,
        texts=texts,
        unscaled=frozenset(name for name, base in zip(metrics, bases, strict=True) if base is None),
    )


def _is_metric(name: str) -> bool:
    return name not in _IDENTITY and " " not in name and ":" not in name


def _first_of_equals(page: Page, header: Sequence[str], columns: list[pa.Array]) -> dict[str, int]:
    """Column name -> its index; one that stands twice must say the same twice."""
    first: dict[str, int] = {}
    for i, name in enumerate(header):
        if not columns[first.setdefault(name, i)].equals(columns[i]):
            raise page.error(f"has the column {name} twice, with different values")
    return first


def _launches(page: Page, columns: dict[str, pa.Array]) -> tuple[Launch, ...]:
    cells: dict[str, list[str | None]] = {name: column.to_pylist() for name, column in columns.items()}
    nothing: list[str | None] = [None] * len(cells["ID"])

    def texts(*names: str) -> list[str]:
        """The first of the columns that the page has."""
        return [cell or "" for cell in next((cells[name] for name in names if name in cells), nothing)]

    def numbers(name: str) -> list[int | None]:
        return [_integer(cell) for cell in texts(name)]

    ids = [launch for launch in numbers("ID") if launch is not None]
    if len(ids) < len(nothing):
        raise page.error(f"has no launch ID in row {numbers('ID').index(None) + 1}")
    if twice := [launch for launch, times in Counter(ids).items() if times > 1]:
        raise page.error(f"has launch {twice[0]} twice")
    stacks = texts(*(name for name in cells if "Push/Pop" in name))
    ranges = {stack: ranges_of(stack) for stack in set(stacks)}
    return tuple(
        Launch(
            id=launch,
            kernel_full=kernel,
            grid=dimensions(grid),
            block=dimensions(block),
            ranges=ranges[stack],
            pid=pid,
            context=context,
            stream=stream,
            device=device,
            cc=cc or None,
        )
        for launch, kernel, grid, block, stack, pid, context, stream, device, cc in zip(
            ids,
            texts(*_KERNEL_COLUMNS),
            texts("Grid Size"),
            texts("Block Size"),
            stacks,
            numbers("Process ID"),
            numbers("Context"),
            numbers("Stream"),
            numbers("Device"),
            texts("CC"),
            strict=True,
        )
    )


def _integer(cell: str) -> int | None:
    digits = cell.replace(",", "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _numbers(names: list[str], columns: list[pa.Array]) -> tuple[NDArray[np.float64], dict[str, list[str | None]]]:
    """Columns x cells as numbers, thousands commas removed, NaN where a cell is none; and the text of those columns.

    Columns are converted many at once; where one turns out to hold text, the halves are tried, down to a column alone.
    """
    import numpy as np

    values = np.full((len(columns), len(columns[0])), np.nan)
    texts: dict[str, list[str | None]] = {}

    def convert(indices: list[int]) -> None:
        numbers = _cast([columns[i] for i in indices])
        if numbers is not None:
            values[indices] = numbers.reshape(len(indices), -1)
        elif len(indices) > 1:
            convert(indices[: len(indices) // 2])
            convert(indices[len(indices) // 2 :])
        else:
            (index,) = indices
            cells = columns[index].to_pylist()
            values[index] = [float(cell.replace(",", "")) if cell and _is_number(cell) else np.nan for cell in cells]
            texts[names[index]] = [None if not cell or _is_number(cell) else cell for cell in cells]

    text, plain, with_commas = [], [], []
    for index, column in enumerate(columns):
        if not _is_number(column[0].as_py() or "0"):
            text.append([index])
        elif _has_comma(column):
            with_commas.append(index)
        else:
            plain.append(index)
    for group in (plain, with_commas, *text):
        if group:
            convert(group)
    return values, texts


def _cast(columns: list[pa.Array]) -> NDArray[np.float64] | None:
    """All cells of the columns in a row as numbers; None where one is text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pa.concat_arrays(columns)
    if _has_comma(cells):
        cells = pc.replace_substring(cells, ",", "")
    try:
        numbers: NDArray[np.float64] = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return numbers


def _has_comma(column: pa.Array) -> bool:
    characters = column.buffers()[2]
    return characters is not None and b"," in characters.to_pybytes()


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True


def _read_transposed(page: Page) -> Profile:
    """The viewer's export: a row ``name [unit]`` with a cell a launch, a list of instances behind it in braces."""
    import pyarrow as pa

    rows = [row for row in page.records() if len(row) > 1]
    if not any(_METRIC_ROW.fullmatch(row[0]) for row in rows):
        raise _not_raw(page)
    page.check_end(page.data)
    if len({len(row) for row in rows}) > 1:
        raise page.cut_short("its rows have different numbers of cells")
    header, units, columns = [], [], []
    for label, *cells in rows:
        match = _METRIC_ROW.fullmatch(label)
        header.append(match["name"] if match else label)
        units.append(match["unit"] or "" if match else "")
        values = [cell.partition("{")[0].strip() for cell in cells] if match else cells
        columns.append(pa.array([None if value in NO_VALUE else value for value in values], pa.string()))
    if "ID" not in header:
        header, units = ["ID", *header], ["", *units]
        columns.insert(0, pa.array([str(i) for i in range(len(rows[0]) - 1)], pa.string()))
    return _profile(page, header, units, columns)


def _not_raw(page: Page) -> FiprofError:
    if b"No kernels were profiled" in page.data:
        return FiprofError(
            f"{page.path}: ncu profiled no kernels", "its filters matched nothing, or the workload launched nothing"
        )
    return page.error("is not a raw page of ncu: it has no header with ID and Kernel Name")
