"""ncu's pages as CSV: raw, details and source, as launches with their metrics, rules, and instructions.

A raw page of ``--set full`` has 2,200 cells a launch, nearly all of them numbers, with commas between thousands. Arrow
reads each column as text and casts all of them at once.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from fiprof.errors import FiprofError
from fiprof.files import write_whole
from fiprof.model import tables
from fiprof.model.quantities import METRICS
from fiprof.model.redaction import mask, masking
from fiprof.parsers.names import as_utf8, short_name
from fiprof.parsers.ncu_profile import Profile, masked_cell, ranges_of, sampled_metrics, spelled, to_base
from fiprof.parsers.recognize import RAW_PAGE

Made = TypeVar("Made")
LARGEST_BYTES = 2 * 10**9
NO_VALUE = ("", "n/a", "no data", "nan")  # cells that say that nothing was collected
KNOWN_METRICS = frozenset(name for metric in METRICS for name in metric.ncu)  # whose cells are numbers, if they are any
CAST_CELLS = 30_000  # cells cast at a time: most such batches hold no text, and need no search for it
CHECKED_ROWS = 100  # launches in which the format of numbers is checked: a page has one format throughout
FOREIGN = re.compile(
    r"-?(?:\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+"  # 1.234.567,8
    r"|\d+,(?:\d{1,2}|\d{4,})|\d{4,},\d+|0\d*,\d+"  # 0,25
    r"|\d{1,3}(?:['\N{RIGHT SINGLE QUOTATION MARK}\xa0\u202f\u2009\ufffd ]\d{3})+(?:[.,]\d+)?)"  # 1 234 567
)
"""Numbers of a locale that does not separate thousands by commas; 1.234 and 1,234 may be of either."""


@dataclass(frozen=True)
class Page:
    """The bytes of an exported page, valid UTF-8 (U+FFFD for what was not)."""

    path: Path
    kind: str  # raw, details or source
    data: bytes

    @classmethod
    def read(cls, path: Path, kind: str) -> Page:
        try:
            if (size := path.stat().st_size) > LARGEST_BYTES:
                what = f"{path} has {size / 1e9:.1f} GB; 2 GB is the limit"
                raise FiprofError(what, "profile fewer launches at a time")
            page = cls(path, kind, as_utf8(path.read_bytes()))
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror}"
            raise FiprofError(what, "check the path and its permissions") from error
        if not page.data or page.data.isspace():
            raise page.error("is empty")
        return page

    @property
    def remedy(self) -> str:
        options = {"raw": " --print-units base", "source": " --print-source sass"}.get(self.kind, "")
        return f"export it again: ncu --import REPORT --csv --page {self.kind}{options}"

    def error(self, problem: str) -> FiprofError:
        return FiprofError(f"{self.path} {problem}", self.remedy)

    def cut_short(self, detail: str = "its last row is not complete") -> FiprofError:
        return self.error(f"is cut short: {detail}")

    def several_pages(self) -> FiprofError:
        return self.error("holds several pages, each with launches of its own; import them one by one")

    def check_end(self, begin: int = 0, end: int | None = None, *, closing: bytes = b'\n"}') -> None:
        """Raise FiprofError unless the page between these places ends with a whole cell.

        A whole cell ends at the end of a line, or with its closing quote; whether the last row has all its cells is for
        the reader of the page to check. closing: characters that end a cell.
        """
        characters = np.frombuffer(self.data, np.uint8)[begin:end]
        if characters[-1] not in closing or np.count_nonzero(characters == ord('"')) % 2:
            raise self.cut_short()

    def check_numbers(self, cells: Iterable[str | None]) -> None:
        """Raise FiprofError where a number among cells is written as ``LC_ALL=C`` does not: ``1.234.567``, ``0,25``."""
        foreign = next((cell for cell in cells if cell and FOREIGN.fullmatch(cell)), None)
        if foreign is not None:
            what = f"{self.path} has numbers in another locale's format: {foreign[:40]}"
            raise FiprofError(what, self.remedy.replace("again: ", "again: LC_ALL=C "))

    def records(self, begin: int = 0, end: int | None = None) -> Iterator[list[str]]:
        text = io.TextIOWrapper(io.BytesIO(self.data[begin:end]), encoding="utf-8", newline="")
        try:
            yield from csv.reader(text)
        except csv.Error as error:
            raise self.error(f"is no CSV of ncu: {error}") from error


def scrub_page(path: Path, kind: str) -> bool:
    """Mask the secrets in an exported page, in place. Returns whether there were any. kind: as of :class:`Page`."""
    page, hide = Page.read(path, kind), masking()
    cells = {cell for row in page.records() for cell in row}
    masked = {cell: new for cell in cells if (new := masked_cell(cell, hide)) != cell}
    text = page.data.decode()
    for cell in sorted(masked, key=len, reverse=True):
        # As CSV writes it.
        text = text.replace(cell.replace('"', '""'), masked[cell].replace('"', '""'))
    if masked:
        write_whole(path, text.encode())
    return bool(masked)


@functools.lru_cache(maxsize=1024)
def _number(text: str) -> float | None:
    """A number in any spelling that Python reads, such as ``inf``; None for text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


# The raw page: a row a launch, a column a metric, the second row holding units

METRIC_ROW = re.compile(r"(?P<name>\w+__[\w.]+)(?: \[(?P<unit>[^\]]*)\])?")
"""Name and unit at the beginning of a row of the viewer's export, which has a row a metric and a column a launch."""
IDENTITY = frozenset({"ID", "Context", "Stream", "Device", "CC"})
"""Columns that say which launch a row is, besides all with a space or a colon in their name."""


def read_raw(path: Path) -> Profile:
    """The launches and metrics of a raw page.

    Lines of ncu or of the program before the header, and after the last row, are skipped.
    """
    page = Page.read(path, "raw")
    header_at = RAW_PAGE.search(page.data)
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
    if units[0]:  # an ID: the page has no row of units
        units, rows_at = [""] * len(header), header_end + 1
    # Skip the lines behind the last row: those without a quote that do not begin with a digit are not of a row.
    end = len(page.data)
    while end > rows_at:
        last = max(page.data.rfind(b"\n", rows_at, end - 1) + 1, rows_at)
        if b'"' in page.data[last:end] or page.data[last : last + 1].isdigit():
            break
        end = last
    if end == rows_at:
        raise page.error("has a header and no launches")
    return _raw_profile(page, header, units, _text_columns(page, rows_at, end, len(header)))


def _read_transposed(page: Page) -> Profile:
    """The viewer's export: a row ``name [unit]`` with a cell a launch, a list of instances behind it in braces."""
    rows = [row for row in page.records() if len(row) > 1]
    if not any(METRIC_ROW.fullmatch(row[0]) for row in rows):
        if b"No kernels were profiled" in page.data:
            what = f"{page.path}: ncu profiled no kernels"
            raise FiprofError(what, "its filters matched nothing, or the workload launched nothing")
        raise page.error("is not a raw page of ncu: it has no header with ID and Kernel Name")
    page.check_end()
    if len({len(row) for row in rows}) > 1:
        raise page.cut_short("its rows have different numbers of cells")
    header: list[str] = []
    units: list[str] = []
    columns: list[list[str | None]] = []
    for label, *cells in rows:
        match = METRIC_ROW.fullmatch(label)
        header.append(match["name"] if match else label.partition(" [")[0])
        units.append(match["unit"] or "" if match else "")
        cells = [cell.partition("{")[0].strip() for cell in cells] if match else cells
        columns.append([None if cell in NO_VALUE else cell for cell in cells])

    # The columns of the tool's page that the viewer has under other names; the process is ``[1355440] python3.12``.
    by_name = dict(zip(header, columns, strict=True))
    nothing: list[str | None] = [None] * (len(rows[0]) - 1)
    of_process = map(re.compile(r"\[(\d+)\]").match, map(str, by_name.get("Process", nothing)))
    major, minor = (by_name.get(f"device__attribute_compute_capability_{part}", nothing) for part in ("major", "minor"))
    own: dict[str, list[str | None]] = {
        "ID": [str(number) for number in range(len(nothing))],
        "Process ID": [match and match[1] for match in of_process],
        "Device": by_name.get("launch__device_id", nothing),
        "Context": by_name.get("launch__context_id", nothing),
        "Stream": by_name.get("launch__stream_id", nothing),
        "CC": [None if None in pair else ".".join(map(str, pair)) for pair in zip(major, minor, strict=True)],
    }
    added = {name: cells for name, cells in own.items() if name not in by_name}
    arrays = [pa.array(cells, pa.string()) for cells in (*added.values(), *columns)]
    return _raw_profile(page, [*added, *header], [*("" for _ in added), *units], arrays)


def _text_columns(page: Page, begin: int, end: int, count: int) -> list[pa.StringArray]:
    """The columns of the rows between two positions in a page, null for NO_VALUE. count: of the columns."""
    page.check_end(begin, end)
    names = [str(column) for column in range(count)]
    bad_rows: list[pyarrow.csv.InvalidRow] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        bad_rows.append(row)
        return "error"

    # Arrow would turn a Ctrl-C into an error of its own.
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
            cells = f"row {row.number} has {row.actual_columns:,} of {count:,} cells"
            raise page.error(f"is cut short, or other output stands among its rows: {cells}") from error
        raise page.error(f"is no CSV of ncu: {str(error).splitlines()[0]}") from error
    if not table.num_rows:
        raise page.error("has a header and no launches")
    (batch,) = table.to_batches()
    return list(batch.columns)


def _raw_profile(page: Page, header: Sequence[str], units: Sequence[str], columns: Sequence[pa.StringArray]) -> Profile:
    """The launches and metrics of a page's columns, in any order: header (their names), units and cells."""
    identity: dict[str, pa.StringArray] = {}
    metrics: dict[str, pa.StringArray] = {}
    column_units: list[str] = []
    for name, unit, column in zip(header, units, columns, strict=True):
        target = identity if name in IDENTITY or " " in name or ":" in name else metrics
        if name not in target:
            target[name] = column
            if target is metrics:
                column_units.append(unit)
        elif not target[name].equals(column):
            raise page.error(f"has the column {name} twice, with different values")
    if not metrics:
        what = f"{page.path} has launches and no metrics: the sections or metrics asked for do not exist"
        raise FiprofError(what, "ncu --list-sections and --query-metrics name what there is")
    launches = _launches(page, {name: column.to_pylist() for name, column in identity.items()}, len(columns[0]))
    for name, unit in zip(metrics, column_units, strict=True):
        if unit or name in KNOWN_METRICS:
            page.check_numbers(metrics[name].slice(0, CHECKED_ROWS).to_pylist())
    values, texts = _numbers_and_texts(list(metrics.values()))
    bases = [to_base(unit) for unit in column_units]
    for row, base in zip(values, bases, strict=True):
        if base is not None and base[1] != 1.0:
            row *= base[1]
    names = tuple(metrics)
    return Profile.sound(
        launches=launches,
        metrics=names,
        units=tuple(unit if base is None else base[0] for unit, base in zip(column_units, bases, strict=True)),
        values=values,
        texts={names[column]: cells for column, cells in texts.items()},
        unscaled=frozenset(name for name, base in zip(names, bases, strict=True) if base is None),
    )


def _numbers_and_texts(columns: Sequence[pa.StringArray]) -> tuple[NDArray[np.float64], dict[int, list[str | None]]]:
    """The numbers, columns x rows, NaN for text and null; and by column the cells that are no number."""
    rows = len(columns[0])
    values = np.empty((len(columns), rows))
    texts: dict[int, list[str | None]] = defaultdict(lambda: [None] * rows)
    at_once = max(CAST_CELLS // rows, 1)
    for first in range(0, len(columns), at_once):
        cells = pa.concat_arrays(columns[first : first + at_once])
        digits = pc.replace_substring(cells, ",", "")
        try:
            numbers = digits.cast(pa.float64())
        except pa.ArrowInvalid:
            plain = pc.match_substring_regex(digits, r"^-?\d+(\.\d+)?$")
            numbers = pc.if_else(plain, digits, None).cast(pa.float64())
        values[first : first + at_once] = numbers.to_numpy(zero_copy_only=False).reshape(-1, rows)
        others = pc.indices_nonzero(pc.and_(cells.is_valid(), numbers.is_null()))
        for place, text in zip(others.to_pylist(), cells.take(others).to_pylist(), strict=True):
            column, row = divmod(first * rows + place, rows)
            value = _number(text)
            if value is None:
                texts[column][row] = text
            else:
                values[column, row] = value
    return values, texts


def _launches(page: Page, columns: Mapping[str, Sequence[str | None]], count: int) -> dict[str, list[Any]]:
    """The launches of a page, as ``Profile.launches``.

    columns: those that say which launch a row is. count: how many rows there are.
    """

    def cells(*names: str, made: Callable[[str], Made]) -> list[Made]:
        """The first of the columns that the page has, each different text converted once."""
        column = next((columns[name] for name in names if name in columns), [None] * count)
        each = {cell: made(cell or "") for cell in set(column)}
        return [each[cell] for cell in column]

    def integer(cell: str) -> int | None:
        """A number that the tables have room for (32 bits)."""
        digits = cell.replace(",", "").strip()
        return int(digits) if re.fullmatch("[0-9]{1,10}", digits) and int(digits) < 1 << 31 else None

    def dimensions(cell: str) -> str:
        """``(132, 1, 1)`` -> ``132x1x1``."""
        return "x".join(re.findall(r"\d+", cell))

    ids = cells("ID", made=integer)
    if None in ids:
        row = ids.index(None)
        texts = columns["ID"][row] if "ID" in columns else None
        if texts == "ID":
            raise page.several_pages()
        raise page.error(f"has no launch ID in row {row + 1}" + (f": {texts[:40]!r}" if texts else ""))
    if twice := [launch for launch, times in Counter(ids).items() if times > 1]:
        raise page.error(f"has launch {twice[0]} twice")
    return {
        "launch": ids,
        "kernel_full": cells("Kernel Name", "Demangled Name", "Function Name", made=mask),
        "grid": cells("Grid Size", made=dimensions),
        "block": cells("Block Size", made=dimensions),
        "ranges": cells(*(name for name in columns if "Push/Pop" in name), made=ranges_of),
        "pid": cells("Process ID", made=integer),
        "context": cells("Context", made=integer),
        "stream": cells("Stream", made=integer),
        "device": cells("Device", made=integer),
        "cc": cells("CC", made=lambda cell: cell or None),
    }


# The details page: a row a metric, and a row a finding of ncu's rules
#
# Beside a raw page its rules alone are read. By itself it is a poorer profile, and ncu's default: metrics as sections
# show them, under their labels and rounded, or under their own names where ``--metrics`` asked for them.

METRIC_COLUMNS = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULE_COLUMNS = ("Section Name", "Rule Name", "Rule Type", "Rule Description")


def read_rules(path: Path, profile: Profile) -> pa.Table:
    """The table ``rules`` of a details page beside the raw page whose launches ``profile`` has."""
    page = Page.read(path, "details")
    by_text = {str(launch): launch for launch in profile.launches["launch"]}
    return _rules_table(page, list(_details(page, RULE_COLUMNS)), by_text)


def read_details(path: Path) -> tuple[Profile, pa.Table]:
    """The launches with the metrics that a details page has, and the table ``rules``.

    A metric with an unknown label is named ``section/label``.
    """
    page = Page.read(path, "details")
    rows = list(_details(page, METRIC_COLUMNS))
    first: dict[str, dict[str, str]] = {}
    for row in rows:
        first.setdefault(row["ID"], row)
    if not first:
        raise page.error("has a header and no launches")
    columns = {name: [row.get(name) or None for row in first.values()] for name in rows[0]}
    launches = _launches(page, columns, len(first))
    labels = {metric.label: metric.ncu[0] for metric in METRICS if metric.label}
    places = {launch: place for place, launch in enumerate(first)}
    cells: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for row in rows:
        section, label, unit, cell = (row.get(name, "") for name in METRIC_COLUMNS)
        if not label or row.get("Body Item Label"):
            continue
        metric = label if "__" in label else labels.get(f"{section}/{label}", f"{section}/{label}")
        if cells[metric].setdefault(places[row["ID"]], (unit, cell))[1] != cell and "__" in label:
            raise page.error(f"has {label} of launch {row['ID']} twice, with different values")
        if unit or metric in KNOWN_METRICS:
            page.check_numbers([cell])
    if not cells:
        raise page.error("has launches and no metrics")
    values, units, unscaled = np.full((len(cells), len(first)), np.nan), [], set()
    texts: dict[str, list[str | None]] = defaultdict(lambda: [None] * len(first))
    for place, (metric, of_launches) in enumerate(cells.items()):
        bases = {unit: to_base(unit) for unit, _ in of_launches.values()}
        known_bases = {base[0] for base in bases.values() if base} if all(bases.values()) else set()
        units.append(known_bases.pop() if len(known_bases) == 1 else next(iter(bases)))
        if None in bases.values() or known_bases:
            unscaled.add(metric)
        for launch, (unit, cell) in of_launches.items():
            base, value = bases[unit], _number(cell)
            if cell.lower() in NO_VALUE:
                continue
            if value is None:
                texts[metric][launch] = cell
            else:
                values[place, launch] = value * (base[1] if base and metric not in unscaled else 1.0)
    profile = Profile.sound(
        launches=launches,
        metrics=tuple(cells),
        units=tuple(units),
        values=values,
        texts=texts,
        unscaled=frozenset(unscaled),
    )
    return profile, _rules_table(page, rows, dict(zip(first, launches["launch"], strict=True)))


def _details(page: Page, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows by column; those of metrics may end before the columns of rules."""
    # The row of a metric ends with an empty cell.
    page.check_end(closing=b'\n",')
    needed = ("ID", "Kernel Name", *columns)
    header: list[str] = []
    closest: list[str] = []
    row: list[str] = []
    for row in page.records():
        if not header:
            # Before the header there can be lines of ncu and of the program.
            header = row if set(needed) <= set(row) else []
            closest = max(closest, row, key=lambda cells: len(set(needed).intersection(cells)))
        elif row == header:
            raise page.several_pages()
        elif len(row) > header.index("Section Name"):
            yield dict(zip(header, row, strict=False))
    if not header:
        absent = next(name for name in (*needed[3:], *needed) if name not in closest)
        raise page.error(f"is not a details page of ncu: it has no column {absent}")
    whole = (len(header), header.index("Metric Value") + 2 if "Metric Value" in header else len(header))
    if not page.data.endswith(b"\n") and len(row) not in whole:
        raise page.cut_short()


def _rules_table(page: Page, rows: Iterable[dict[str, str]], launches: Mapping[str, int]) -> pa.Table:
    """The table ``rules``. launches: ID as the page has it -> launch."""
    rules = []
    for row in rows:
        if not row.get("Rule Name") or "Rule Description" not in row:
            continue
        if row["ID"] not in launches:
            raise page.error(f"is not of the same report: the raw page has no launch {row['ID']}")
        percent = _number(row.get("Estimated Speedup", ""))
        rules.append({
            "launch": launches[row["ID"]], "section": row["Section Name"], "rule": row["Rule Name"],
            "kind": row["Rule Type"], "message": row["Rule Description"],
            "speedup_kind": row.get("Estimated Speedup Type") or None,
            "speedup_pct": percent if percent is not None and math.isfinite(percent) else None,
        })  # fmt: skip
    return pa.Table.from_pylist(rules, tables.schema("rules"))


# The source page: for each launch a line with its kernel's name, a header, and a row a SASS instruction

SOURCE_COLUMNS = {
    "samples": ("# Samples", "Warp Stall Sampling (All Samples)", "Sampling Data (All)"),
    "samples_not_issued": ("Warp Stall Sampling (Not-issued Samples)", "Sampling Data (Not Issued)"),
    "executed": ("Instructions Executed", "# Instructions Executed"),
    "sectors": ("L2 Theoretical Sectors Global",),
    "ideal_sectors": ("L2 Theoretical Sectors Global Ideal",),
}
"""Column of the table ``hotspots`` -> its names on the pages of different versions."""

Instruction = dict[str, Any]
"""A row of the table ``hotspots``, its address as loaded, with ``reasons``: samples by reason, empty without any."""


class SourceListing(NamedTuple):
    """The instructions of a launch."""

    kernel: str  # short name
    reasons: frozenset[str]  # those that the page has a column for
    instructions: list[Instruction]


def read_hotspots(path: Path, profile: Profile) -> pa.Table:
    """The table ``hotspots`` from a source page.

    The page does not say which launch a listing belongs to. Listings are given to the launches in order, and each
    must have the kernel and the number of samples that the raw page gives its launch. Where several kernels of a module
    were profiled, ncu prints listings more than once; repetitions count once.
    """
    page = Page.read(path, "source")
    page.check_end()
    listings = list(_listings(page))
    if not listings:
        raise page.error("is not a source page of ncu: it has no line Kernel Name")
    launches, kernels = profile.launches["launch"], [short_name(name) for name in profile.launches["kernel_full"]]
    chosen = _without_repetitions(listings, kernels)
    if len(chosen) != len(kernels):
        raise page.error(f"does not fit the raw page: {len(chosen)} listings, {len(kernels)} launches")

    def counts(metric: str) -> list[int | None]:
        """A count of each launch; None where it was not collected."""
        values = profile.of(metric)
        return [None] * len(launches) if values is None else [None if each != each else int(each) for each in values]

    counted = counts("smsp__pcsamp_sample_count")
    sampled = {reason: counts(metric) for reason, metric in sampled_metrics(profile.metrics).items()}
    hotspots = {}
    for place, (listing, launch) in enumerate(zip(chosen, launches, strict=True)):
        if listing.kernel != kernels[place]:
            raise page.error(f"does not fit the raw page: launch {launch} is not {listing.kernel}")
        samples = sum(instruction["samples"] or 0 for instruction in listing.instructions)
        if counted[place] not in (None, samples):
            values = f"{counted[place]} samples, its listing {samples}"
            raise page.error(f"does not fit the raw page: launch {launch} has {values}")
        # Where one reason of the launch has no column (in 2025.3 warpgroup_arrive), the samples of no column are its.
        unnamed = {reason for reason, values in sampled.items() if (values[place] or 0) > 0} - listing.reasons
        for instruction in listing.instructions if len(unnamed) == 1 else ():
            rest = (instruction["samples"] or 0) - sum(instruction["reasons"].values())
            if rest > 0:
                instruction["reasons"] |= dict.fromkeys(unnamed, rest)
        hotspots[launch] = listing.instructions
    return hotspots_table(hotspots)


def _without_repetitions(listings: list[SourceListing], kernels: list[str]) -> list[SourceListing]:
    """One listing for each launch, as far as repetitions can be told from launches with the same samples.

    kernels: short name of each launch's kernel. Where a kernel's listings in a row are a multiple of its launches in a
    row, each launch has that many copies. Otherwise equal neighbours count once.
    """
    if len(listings) == len(kernels):
        return listings
    printed = [(kernel, list(group)) for kernel, group in itertools.groupby(listings, key=lambda each: each.kernel)]
    launched = [(kernel, len(list(group))) for kernel, group in itertools.groupby(kernels)]
    if [kernel for kernel, _ in printed] != [kernel for kernel, _ in launched]:
        return [listing for listing, _ in itertools.groupby(listings)]
    chosen = []
    for (_, group), (_, count) in zip(printed, launched, strict=True):
        copies, rest = divmod(len(group), count)
        starts = range(0, len(group), max(copies, 1))
        if rest or any(group[start] != copy for start in starts for copy in group[start : start + copies]):
            chosen += [listing for listing, _ in itertools.groupby(group)]
        else:
            chosen += [group[start] for start in starts]
    return chosen


@functools.lru_cache(maxsize=1 << 14)
def _count(cell: str) -> int | None:
    """A whole number that the table has room for; None for all else. Most cells of a page are the same few."""
    digits = cell.replace(",", "")
    return int(digits) if re.fullmatch("[0-9]{1,18}", digits) else None


def _listings(page: Page) -> Iterator[SourceListing]:
    listing: SourceListing | None = None
    columns: dict[str, int | None] = {}
    reasons: dict[str, int] = {}
    kernel, width = "", 0

    for row in page.records():
        if row[:1] == ["Kernel Name"] and len(row) > 1:
            if listing:
                yield listing
            kernel, listing = short_name(mask(row[1])), None
        elif kernel and listing is None and row[:2] == ["Address", "Source"]:
            # Columns differ between versions and between kernels.
            header, width = {name: place for place, name in enumerate(row)}, len(row)
            columns = {
                column: next((header[name] for name in names if name in header), None)
                for column, names in SOURCE_COLUMNS.items()
            }
            stalls = {name: re.fullmatch(r"stall_(\w+)", name) for name in header}
            reasons = {spelled(match[1]): header[name] for name, match in stalls.items() if match}
            listing = SourceListing(kernel, frozenset(reasons), [])
        elif listing and row:
            if len(row) != width:
                raise page.cut_short(f"an instruction of {kernel} has {len(row)} of {width} cells")
            try:
                address = int(row[0], 16)
            except ValueError:
                address = -1
            if not 0 <= address < 1 << 63:
                raise page.error(f"has an instruction of {kernel} at {row[0][:40]!r}, which is no address")
            counts = {column: None if place is None else _count(row[place]) for column, place in columns.items()}
            sampled = {reason: _count(row[place]) or 0 for reason, place in reasons.items() if counts["samples"]}
            listing.instructions.append({"address": address, "sass": row[1].strip(), **counts, "reasons": sampled})
    if listing:
        yield listing


def hotspots_table(instructions: Mapping[int, list[Instruction]]) -> pa.Table:
    """The table ``hotspots``. instructions: launch ID -> its instructions, the first one first."""
    rows = []
    for launch, listing in instructions.items():
        for each in listing:
            reasons, samples = each["reasons"], each["samples"] or 0
            # The reason with most samples; None without samples, or where the page does not name it.
            top = max(reasons, key=reasons.__getitem__, default=None)
            named = top is not None and samples - sum(reasons.values()) <= reasons[top]
            address = each["address"] - listing[0]["address"]
            rows.append({**each, "launch": launch, "address": address, "top_reason": top if named else None})
    return pa.Table.from_pylist(rows, tables.schema("hotspots"))
