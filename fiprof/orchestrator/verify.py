"""Whether a run folder is what its manifest says: every file's checksum, tables that can be read or made again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model import packing, tables
from fiprof.model.catalogue.question import Question
from fiprof.model.finding import Finding, finding
from fiprof.model.keeping import HARMLESS, FileState, TablesState, Verified
from fiprof.model.layout import ANNOTATIONS, COMPARISON, RAW_FOLDERS, SUMMARY, TABLES
from fiprof.model.manifest import FILE_NAME, Manifest, read_manifest
from fiprof.model.tables import TABLES as KNOWN_TABLES
from fiprof.orchestrator import index, parse
from fiprof.orchestrator.recovery import UNFINISHED, clear_run
from fiprof.orchestrator.run_folder import Archive
from fiprof.text import escape_control

OWN_FILES = frozenset({FILE_NAME, ANNOTATIONS, COMPARISON, SUMMARY, "report.md", "report.html"})
PIECE_ROWS = 1 << 18
PAGES = (".sqlite", ".csv")
OWN_FOLDERS = ("logs", UNFINISHED)


def verify(folder: Path) -> Verified:
    """Hold a run folder against its manifest: reads every byte of it, and changes nothing but temporaries."""
    clear_run(folder)
    name = folder.resolve().name
    there = dict(_walk(folder))
    size = sum(status.st_size for status in there.values())
    try:
        manifest = read_manifest(folder)
    except FiprofError as error:
        damaged = _named(name, FileState.DAMAGED.of(FILE_NAME, reason=error.message))
        return Verified(name, str(folder), "damaged", 0, size, TablesState.NONE, (damaged,))
    of_tables = list(_damaged_tables(folder))
    of_raw = [*_made(folder, manifest), *_linked(folder, manifest), *_others(manifest, there)]
    state = _tables(folder, manifest, of_raw, damaged=bool(of_tables))
    found = (_named(name, each) for each in (*of_raw, *of_tables))
    return Verified(name, str(folder), manifest.status, len(manifest.files), size, state, tuple(found))


def _named(run: str, of_file: Finding) -> Finding:
    """A file's state with the name of its run."""
    return finding(of_file.kind, of_file.words, run=run, **of_file.values)


def verify_catalogue(archive: Archive, runs: Sequence[Verified], url: str | None = None) -> tuple[Finding, ...]:
    """Hold an archive's catalogue, brought up to date as every command does, against all its runs.

    Nothing is found of an archive that has none. Raises FiprofError where it cannot be read.
    """
    if not index.exists(archive, url):
        return ()
    told = {row["name"]: (row["status"], row["bytes"]) for row in index.answer(archive, Question(), url).runs}
    there = {escape_control(name) for name in archive.names()}
    found = [
        finding("gone", "{run}: the catalogue lists it, and it is not there", run=name)
        for name in sorted(told.keys() - there)
    ]
    for run in runs:
        name = escape_control(run.name)
        if name not in told and name in there:
            found.append(finding("unlisted", "{run}: the catalogue does not know it", run=name))
        # What is wrong with a run may have been done to it behind the catalogue's back.
        elif name in told and run.intact and told[name] != (run.status, run.bytes):
            found.append(finding("stale", "{run}: the catalogue says something else of it", run=name))
    return tuple(found)


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below a folder by its name in it, and every link, which is not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from ((f"{entry.name}/{name}", status) for name, status in _walk(Path(entry.path)))
            else:
                yield entry.name, entry.stat(follow_symlinks=False)


def _made(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """What is to be said of the files that the run's actions made."""
    pruned = {each.path: each.when for each in manifest.pruned}
    for name, entry in manifest.files.items():
        try:
            if packing.stored(folder, name) is None:
                gone = FileState.WITHHELD if entry.private else FileState.MISSING
                when = pruned.get(name)
                yield FileState.PRUNED.of(name, when=when) if when else gone.of(name)
            elif name in pruned:
                yield FileState.LEFTOVER.of(name)
            elif packing.checksum(folder, name) != entry.sha256:
                yield FileState.CHANGED.of(name)
        except (FiprofError, OSError) as error:
            another_users = entry.private and isinstance(error, PermissionError)
            yield FileState.WITHHELD.of(name) if another_users else _damaged(name, error)


def _linked(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """What is to be said of imported files that were not copied."""
    for name in [file.path for file in manifest.imported if file.linked]:
        try:
            packing.checksum(folder, name)
        except (FiprofError, OSError) as error:
            yield _damaged(name, error)


def _damaged(name: str, error: FiprofError | OSError) -> Finding:
    reason = error.message if isinstance(error, FiprofError) else error.strerror or str(error)
    return FileState.DAMAGED.of(name, reason=reason)


def _others(manifest: Manifest, there: dict[str, os.stat_result]) -> Iterator[Finding]:
    """What lies in the folder that its run did not make."""
    for name, status in sorted(there.items()):
        head, _, last = name.partition("/")
        known = (
            packing.plain_name(name) in manifest.files
            or name in OWN_FILES
            or head in OWN_FOLDERS
            or (head == TABLES and last.removesuffix(".parquet") in KNOWN_TABLES)
        )
        regular = stat.S_ISREG(status.st_mode)
        if not (known and regular):
            harmful = head in RAW_FOLDERS or not regular
            yield (FileState.PLANTED if harmful else FileState.EXTRA).of(name)


def _damaged_tables(folder: Path) -> Iterator[Finding]:
    """The tables that cannot be read to their ends."""
    for name in KNOWN_TABLES:
        try:
            if tables.table_path(folder / TABLES, name).exists():
                reader = tables.Reader(folder / TABLES, name)
                for _ in reader.pieces(reader.names, PIECE_ROWS):
                    pass
        except FiprofError as error:
            yield _damaged(f"{TABLES}/{name}.parquet", error)


def _tables(folder: Path, manifest: Manifest, of_raw: Sequence[Finding], *, damaged: bool) -> TablesState:
    """of_raw: what was found of raw files. damaged: whether a table is."""
    pruned = {each.path for each in manifest.pruned}
    gone = [each.values["file"] for each in of_raw if each.kind == FileState.PRUNED or each.kind not in HARMLESS]
    # ncu's report is read where it has no page.
    parsed = PAGES if any(name.endswith(".csv") for name in manifest.files) else parse.PARSED
    raw_intact = not any(str(name).endswith(parsed) for name in gone)
    if parse.whole(folder, pruned) and not damaged:
        return TablesState.WHOLE
    if not pruned and raw_intact and not parse.has_raw_files(folder):
        return TablesState.NONE
    return TablesState.REBUILDABLE if raw_intact else TablesState.LOST
