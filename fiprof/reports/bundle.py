"""A report on disk: its files, written whole or not at all, and the bundle that can be sent."""

from __future__ import annotations

import os
import shlex
import shutil
import time
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fiprof import confined
from fiprof.files import atomic_write, file_errors, write_whole
from fiprof.model import packing, redaction, tables
from fiprof.model.layout import BASELINE, NCU_REPORT, NSYS_REPORT
from fiprof.model.manifest import FILE_NAME
from fiprof.model.run import Run
from fiprof.reports.export import write_csv
from fiprof.text import escape_control

if TYPE_CHECKING:
    from fiprof.reports.report import Report

RAW_REPORTS = (NCU_REPORT, NSYS_REPORT)
"""What ncu-ui and nsys-ui open."""
ZIP_TIMES_S = (315532800 + 86400, 4354819200 - 86400)
"""First and last second since 1970 that a zip file can say in every time zone: 1980 to 2107."""
COPY_BYTES = 1 << 20
ELSEWHERE = "write it elsewhere with --out DIR"


def write_report(made: Report, folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Write report.md and report.html into a folder; each appears whole or not at all. Returns their paths.

    suffixes: md, html or both. Raises FiprofError where the folder cannot be written.
    """
    texts = render(made, suffixes)
    with file_errors(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode(), ELSEWHERE)
    return [folder / name for name in texts]


def render(made: Report, suffixes: Sequence[str]) -> dict[str, str]:
    """File name -> the page as text. suffixes: md, html or both."""
    texts = {}
    if "md" in suffixes:
        texts["report.md"] = made.markdown("report.html" if "html" in suffixes else "")
    if "html" in suffixes:
        texts["report.html"] = made.html()
    return texts


def write_bundle(
    made: Report, runs: Sequence[Run], path: Path, suffixes: Sequence[str], *, with_private: bool = False
) -> Path:
    """A zip file with the report, the tables as CSV and Parquet, the raw reports unpacked, and where numbers come from.

    Each run has a folder of its name in it; the report lies at the top. with_private: raw reports that hold an
    environment too. Raises FiprofError where it cannot be written, or something of a run is damaged or no file.
    """
    texts = render(made, suffixes)
    with (
        file_errors(path, "name another file with --bundle"),
        atomic_write(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        for name, text in texts.items():
            bundle.writestr(name, text)
        bundle.writestr("numbers.csv", _numbers(made))
        names = [run.path.resolve().name for run in runs]
        folders = names if len(runs) == 1 else [f"{number}-{name}" for number, name in enumerate(names, 1)]
        private = []
        for run, folder in zip(runs, folders, strict=True):
            private += [f"{folder}/{report}" for report in _add_run(bundle, run, folder, with_private=with_private)]
        bundle.writestr("guide.md", _guide(made, folders[0], () if with_private else private))
    return path


def _add_run(bundle: zipfile.ZipFile, run: Run, folder: str, *, with_private: bool) -> list[str]:
    """Returns the raw reports that are private."""
    for name in (FILE_NAME, BASELINE):
        if confined.exists(run.path, name):
            with confined.open_file(run.path, name) as file:
                _add(bundle, file, f"{folder}/{name}")
    for table in sorted(path.stem for path in run.tables_path.glob("*.parquet")):
        reader = tables.Reader(run.tables_path, table)
        with confined.open_file(reader.path.parent, reader.path.name) as file:
            _add(bundle, file, f"{folder}/tables/{table}.parquet", zipfile.ZIP_STORED)
        with bundle.open(f"{folder}/tables/{table}.csv", "w", force_zip64=True) as out:
            write_csv(reader, out)
    private = []
    for report in RAW_REPORTS:
        if packing.exists(run.path, report):
            with packing.unpacked(run.path, report) as plain:
                readable = os.access(plain, os.R_OK)  # a private one may be another user's
                if not readable or redaction.holds_environment(plain):
                    private.append(report)
                    if not (readable and with_private):
                        continue
                with plain.open("rb") as file:
                    _add(bundle, file, f"{folder}/{report}")
    return private


def _add(bundle: zipfile.ZipFile, file: BinaryIO, name: str, compression: int = zipfile.ZIP_DEFLATED) -> None:
    first, last = ZIP_TIMES_S
    changed = time.localtime(min(max(os.fstat(file.fileno()).st_mtime, first), last))
    info = zipfile.ZipInfo(name, changed[:6])
    info.compress_type = compression
    info.external_attr = 0o600 << 16
    with bundle.open(info, "w", force_zip64=True) as out:
        shutil.copyfileobj(file, out, COPY_BYTES)


def _numbers(made: Report) -> str:
    """Every number of the report whose source is known, as CSV."""
    from fiprof.reports import view, writers

    columns = tuple(view.Column(key) for key in ("section", "text", "value", "source"))
    rows = tuple((section, text, fact.value, str(fact.source)) for section, text, fact in made.numbers)
    return writers.render(view.View(columns, rows), "csv") + "\n"


def _guide(made: Report, folder: str, private: Collection[str]) -> str:
    """What the bundle holds and how to open it, then the reproduction guides.

    folder: a run's in it. private: the raw reports that were left out.
    """
    from fiprof.reports.report import environment

    return (
        environment()
        .get_template("guide.md.j2")
        .render(
            report=made,
            sections=[section for section in made.sections if section.anchor == "reproduce"],
            folder=escape_control(folder),
            where=shlex.quote(f"./{escape_control(folder)}"),
            private=sorted(map(escape_control, private)),
        )
        + "\n"
    )
