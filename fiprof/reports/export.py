"""A run in other programs' formats: tables as files, a database or JSON, a trace for Perfetto, a zip to hand over; and
the report's files. Each appears whole or not at all. Tables are read and written in pieces.
"""

import contextlib
import dataclasses
import os
import shlex
import shutil
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv
import pyarrow.types as pt

from fiprof import files
from fiprof.errors import FiprofError
from fiprof.files import atomic_write, exchange, file_errors, scratch, write_whole
from fiprof.model import layout, packing, redaction, tables
from fiprof.model.arrays import finite, finite_rows
from fiprof.model.manifest import is_run
from fiprof.model.run import Run
from fiprof.model.tables import TABLES
from fiprof.reports import trace_json
from fiprof.reports.report import Report
from fiprof.reports.trace_json import MARK
from fiprof.text import csv_cell, escape_control

SUFFIXES = {
    "parquet": "-parquet", "csv": "-csv", "json": ".json", "sqlite": ".sqlite", "perfetto": ".trace.json.gz",
    "zip": ".zip",
}  # fmt: skip
"""Format -> how its file, or its folder with a file a table, ends by default."""
PIECE_ROWS = 1 << 16
COPY_BYTES = 1 << 20
ELSEWHERE = "write it elsewhere with --out"
JSON_HEAD = b'{"schema":"export/1",'
APPLICATION_ID = 0x66697072  # the same in the header of SQLite: https://sqlite.org/fileformat.html#application_id
ARCHIVE_FILES = ("catalogue.sqlite", "archive.id")
RAW_REPORTS = (layout.NCU_REPORT, layout.NSYS_REPORT)  # what ncu-ui and nsys-ui open
ZIP_TIMES_S = (315532800 + 86400, 4354819200 - 86400)
"""First and last second since 1970 that a zip file can say in every time zone: 1980 to 2107."""


def export(
    run: Run,
    target: str,
    out: Path,
    *,
    force: bool = False,
    with_private: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write an export. Returns its path.

    target: of SUFFIXES. force: replace an earlier export. with_private: a zip has the raw reports that hold an
    environment. tell: told which table is being written.
    Raises FiprofError where the path is taken, among runs or cannot be written, or something of the run cannot be read.
    """
    if os.path.lexists(out) and not force:
        raise FiprofError(f"{out} is there already", "--force replaces it; --out names another", exit_code=2)
    require_target(out, target)
    run = dataclasses.replace(run, leaving=True)
    if target in ("parquet", "csv"):
        _folder(run, target, out, tell)
    elif target == "perfetto":
        trace_json.write(run, out)
    elif target == "zip":
        from fiprof.reports.report import report

        write_bundle(report([run]), [run], out, ("md", "html"), with_private=with_private)
    else:
        write = _json if target == "json" else _sqlite
        with file_errors(out, ELSEWHERE), atomic_write(out) as partial:
            write(run, partial, tell)
    return out


def require_target(out: Path, target: str) -> None:
    """Raise FiprofError where a path is no earlier export of this format, or lies in an archive or a run folder."""
    place = out.resolve()
    for folder in place.parents:
        if is_run(folder) or any((folder / name).exists() for name in ARCHIVE_FILES):
            raise FiprofError(f"{out} lies in {folder}, where runs are kept", "name another path", exit_code=2)
    if os.path.lexists(out) and not _is_export(out, target):
        raise FiprofError(f"{out} is not an earlier export of this format", "name another path", exit_code=2)


def _is_export(out: Path, target: str) -> bool:
    """Whether fiprof's mark for a format stands in what has a path."""
    with contextlib.suppress(FiprofError, OSError):
        if target in ("parquet", "csv"):
            known = {layout.FILE_NAME, layout.EXPORTED, *(f"{name}.{target}" for name in TABLES)}
            mark = files.read_bytes(out, layout.EXPORTED, limit=99)
            return not out.is_symlink() and {*os.listdir(out)} <= known and mark == MARK + target.encode()
        with files.open_file(out.parent, out.name) as file:
            head = file.read(99)
            if target == "zip":
                file.seek(-len(MARK), os.SEEK_END)
                return file.read() == MARK
            of_sqlite = head[68:72] == APPLICATION_ID.to_bytes(4)
            return {"json": head.startswith(JSON_HEAD), "sqlite": of_sqlite}.get(target, MARK in head)
    return False


def _readers(run: Run, tell: Callable[[str], None]) -> Iterator[tuple[str, tables.Reader]]:
    names = [name for name in TABLES if run.has(name)]
    if not names:
        raise FiprofError(f"{run.manifest.name} has no tables", "fiprof parse makes them from the raw files")
    for name in names:
        tell(name)
        yield name, tables.Reader(run.tables_path, name, hide=redaction.masking())


def _pieces(reader: tables.Reader) -> Iterator[pa.Table]:
    """A table in pieces that can be held, at least one; its columns in their order."""
    yield from reader.pieces(reader.names, PIECE_ROWS) if reader.rows else [reader.read()]


def _folder(run: Run, target: str, out: Path, tell: Callable[[str], None]) -> None:
    """run.json and a file a table."""
    with file_errors(out, ELSEWHERE):
        out.parent.mkdir(parents=True, exist_ok=True)
        with scratch(out.parent) as held:
            new = held / "new"
            new.mkdir()
            for name, reader in _readers(run, tell):
                with (new / f"{name}.{target}").open("wb") as file:
                    if target == "csv":
                        _write_csv(reader, file)
                    else:
                        _copy_parquet(reader, file)
            (new / layout.EXPORTED).write_bytes(MARK + target.encode())
            (new / layout.FILE_NAME).write_bytes(run.manifest.to_json())
            if out.exists():
                exchange(new, out)
            else:
                os.rename(new, out)


def _copy_parquet(reader: tables.Reader, out: IO[bytes]) -> None:
    """A table's file as it is; written anew where it holds a secret."""
    import pyarrow.parquet as pq

    if reader.holds_secrets():
        with pq.ParquetWriter(out, reader.schema, compression="zstd", write_page_checksum=True) as file:
            for piece in _pieces(reader):
                file.write_table(piece)
        return
    with files.open_file(reader.path.parent, reader.path.name) as source:
        shutil.copyfileobj(source, out, COPY_BYTES)


def _write_csv(reader: tables.Reader, out: IO[bytes]) -> None:
    """A table as CSV; texts are such that a spreadsheet shows them and computes nothing."""

    def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
        """CSV has no dictionaries; of a text that comes often one is looked at."""
        if not (pt.is_dictionary(column.type) or pt.is_string(column.type)):
            return column
        chunks = []
        for chunk in column.dictionary_encode().chunks:
            texts = [None if text is None else csv_cell(text) for text in chunk.dictionary.to_pylist()]
            chunks.append(pa.array(texts, pa.string()).take(chunk.indices))
        return pa.chunked_array(chunks, pa.string())

    writer = None
    for piece in _pieces(reader):
        cells = pa.table({name: plain(piece[name]) for name in piece.column_names})
        writer = writer or pyarrow.csv.CSVWriter(out, cells.schema)
        writer.write_table(cells)
    assert writer is not None
    writer.close()


def _json(run: Run, path: Path, tell: Callable[[str], None]) -> None:
    """``{"schema", "run": the manifest, "tables": {name: [row, …]}}``; null for what is no number."""
    import msgspec

    with path.open("wb") as out:
        out.write(b'%b\n"run":%b,\n"tables":{' % (JSON_HEAD, msgspec.json.encode(run.manifest)))
        for number, (name, reader) in enumerate(_readers(run, tell)):
            out.write(b'%b\n"%b":[' % (b"," * bool(number), name.encode()))
            before = b""
            for piece in _pieces(reader):
                if rows := finite_rows(piece):
                    out.write(before + msgspec.json.encode(rows)[1:-1])
                    before = b",\n"
            out.write(b"]")
        out.write(b"}}\n")


def _sqlite(run: Run, path: Path, tell: Callable[[str], None]) -> None:
    """A table each, and ``run`` with the manifest as JSON in its one row."""
    import sqlite3

    def affinity(kind: pa.DataType) -> str:
        """What SQLite calls a column's type."""
        if pt.is_floating(kind):
            return "REAL"
        return "INTEGER" if pt.is_integer(kind) or pt.is_boolean(kind) else "TEXT"

    try:
        # In one transaction, which is the file's only one.
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            # A journal would lie beside the file, and stay where the disk is full: what fails is thrown away.
            database.execute("PRAGMA journal_mode = OFF")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute("CREATE TABLE run (json TEXT)")
            database.execute("INSERT INTO run VALUES (?)", (run.manifest.to_json().decode(),))
            for name, reader in _readers(run, tell):
                columns = (f'"{column}" {affinity(reader.schema.field(column).type)}' for column in reader.names)
                database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
                insert = f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(reader.names))})'
                for piece in _pieces(reader):
                    database.executemany(insert, zip(*map(finite, piece.columns), strict=True))
    except sqlite3.Error as error:
        raise FiprofError(f"the database cannot be written: {error}", f"is the disk full? {ELSEWHERE}") from error


def render(page: Report, suffixes: Sequence[str]) -> dict[str, str]:
    """File name -> the page as text. suffixes: md, html or both."""
    texts = {}
    if "md" in suffixes:
        texts["report.md"] = page.markdown("report.html" if "html" in suffixes else "")
    if "html" in suffixes:
        texts["report.html"] = page.html()
    return texts


def write_report(page: Report, folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Write report.md and report.html into a folder. Returns their paths. suffixes: md, html or both."""
    elsewhere = f"{ELSEWHERE} DIR"
    texts = render(page, suffixes)
    with file_errors(folder, elsewhere):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode(), elsewhere)
    return [folder / name for name in texts]


def write_bundle(
    page: Report, runs: Sequence[Run], path: Path, suffixes: Sequence[str], *, with_private: bool = False
) -> Path:
    """A zip file with the report, the tables as CSV and Parquet, the raw reports unpacked, and where numbers come from.

    Each run has a folder of its name in it; the report lies at the top. with_private: raw reports that hold an
    environment too.
    """
    from fiprof.reports import view, writers

    require_target(path, "zip")
    columns = tuple(map(view.Column, ("section", "text", "value", "source")))
    numbers = tuple((section, text, fact.value, str(fact.source)) for section, text, fact in page.numbers)
    texts = render(page, suffixes) | {"numbers.csv": writers.render(view.View(columns, numbers), "csv") + "\n"}
    names = [escape_control(run.path.resolve().name) for run in runs]
    folders = names if len(runs) == 1 else [f"{number}-{name}" for number, name in enumerate(names, 1)]
    with (
        file_errors(path, "name another file with --bundle"),
        atomic_write(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        bundle.comment = MARK
        for name, text in texts.items():
            bundle.writestr(name, text)
        private = []
        for run, folder in zip(runs, folders, strict=True):
            private += [f"{folder}/{report}" for report in _add_run(bundle, run, folder, with_private=with_private)]
        raw = [name for name in bundle.namelist() if name.endswith(RAW_REPORTS)]
        bundle.writestr("guide.md", _guide(page, folders[0], raw, () if with_private else private))
    return path


def _add_run(bundle: zipfile.ZipFile, run: Run, folder: str, *, with_private: bool) -> list[str]:
    """Returns the raw reports that are private."""

    def entry(name: str, changed_s: float) -> zipfile.ZipInfo:
        first, last = ZIP_TIMES_S
        info = zipfile.ZipInfo(f"{folder}/{name}", time.localtime(min(max(changed_s, first), last))[:6])
        info.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        return info

    bundle.writestr(entry(layout.FILE_NAME, (run.path / layout.FILE_NAME).stat().st_mtime), run.manifest.to_json())
    if files.exists(run.path, layout.BASELINE):
        masked = redaction.mask_bytes(files.read_bytes(run.path, layout.BASELINE))
        bundle.writestr(entry(layout.BASELINE, (run.path / layout.BASELINE).stat().st_mtime), masked)
    secret = False
    for table in sorted(path.stem for path in run.tables_path.glob("*.parquet")):
        reader = tables.Reader(run.tables_path, table, hide=redaction.masking())
        secret |= reader.holds_secrets()
        table_entry = entry(f"tables/{table}.parquet", reader.path.stat().st_mtime)
        with bundle.open(table_entry, "w", force_zip64=True) as out:
            _copy_parquet(reader, out)
        with bundle.open(f"{folder}/tables/{table}.csv", "w", force_zip64=True) as out:
            _write_csv(reader, out)
    private = []
    for report in RAW_REPORTS:
        if packing.exists(run.path, report):
            with packing.unpacked(run.path, report) as plain:
                readable = os.access(plain, os.R_OK)  # a private one may be another user's
                noted = report in run.manifest.files and run.manifest.files[report].private
                if not readable or noted or secret or redaction.holds_environment(plain):
                    private.append(report)
                    if not (readable and with_private):
                        continue
                table_entry = entry(report, plain.stat().st_mtime)
                with plain.open("rb") as file, bundle.open(table_entry, "w", force_zip64=True) as out:
                    shutil.copyfileobj(file, out, COPY_BYTES)
    return private


def _guide(page: Report, folder: str, raw: Collection[str], private: Collection[str]) -> str:
    """What the bundle holds and how to open it, then the reproduction guides. folder: a run's in it. raw: the tools'
    reports in it. private: those that were left out."""
    from fiprof.reports.markdown_html import templates

    sections = [section for section in page.parts if section.anchor == "reproduce"]
    files = {"raw": sorted(map(escape_control, raw)), "private": sorted(map(escape_control, private))}
    where = shlex.quote(f"./{folder}")
    guide = templates().get_template("guide.md.j2")
    return guide.render(report=page, sections=sections, folder=folder, where=where, **files) + "\n"
