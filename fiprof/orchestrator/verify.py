"""Whether a run folder is what its manifest says: every file's checksum, tables that can be read or made again.

And ``prune``: the raw files of old runs whose tables are whole.
"""

import contextlib
import dataclasses
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from fiprof import clock, files
from fiprof.errors import FiprofError
from fiprof.files import FULL, atomic_write, file_errors, locked
from fiprof.model import baselines, layout, packing, tables
from fiprof.model.finding import Finding, finding
from fiprof.model.keeping import HARMLESS, FileState, Kept, TablesState, Verified, read_annotations
from fiprof.model.manifest import Manifest, PrunedFile, read_manifest
from fiprof.model.tables import TABLES as KNOWN_TABLES
from fiprof.orchestrator import index, parse
from fiprof.orchestrator.run_folder import UNFINISHED, Archive, clear_run, started
from fiprof.text import escape_control

OWN_FILES = {layout.FILE_NAME, layout.ANNOTATIONS, layout.COMPARISON, layout.DIGEST, layout.SUMMARY}
OWN_FILES |= {"report.md", "report.html"}
PAGES = (".sqlite", ".csv")
OWN_FOLDERS = ("logs", UNFINISHED)


def verify(folder: Path) -> Verified:
    """Compare a run folder with its manifest: reads every byte of it, and changes nothing but temporaries."""
    clear_run(folder)
    name = folder.resolve().name
    present = files.walk(folder)
    size = sum(status.st_size for status in present.values())

    try:
        manifest = read_manifest(folder)
    except FiprofError as error:
        damaged = _file_state(folder, FileState.DAMAGED, layout.FILE_NAME, reason=error.message)
        return Verified(name, str(folder), "damaged", 0, size, TablesState.NONE, (damaged,))
    of_raw = list(_raw_files(folder, manifest))
    # What its run did not make.
    for file, status in sorted(present.items()):
        head, _, last = file.partition("/")
        known = (
            packing.plain_name(file) in manifest.files
            or file in OWN_FILES
            or head in OWN_FOLDERS
            or (head == layout.TABLES and last.removesuffix(".parquet") in KNOWN_TABLES)
        )
        regular = stat.S_ISREG(status.st_mode)
        if not (known and regular):
            harmful = head in layout.RAW_FOLDERS or not regular
            of_raw.append(_file_state(folder, FileState.PLANTED if harmful else FileState.EXTRA, file))
    of_tables = list(_changed_tables(folder, manifest))
    pruned = {each.path for each in manifest.pruned}
    gone = [each.values["file"] for each in of_raw if each.kind == FileState.PRUNED or each.kind not in HARMLESS]
    # ncu's report is read where it has no page.
    parsed = PAGES if any(file.endswith(".csv") for file in manifest.files) else parse.PARSED
    raw_intact = not any(str(file).endswith(parsed) for file in gone)
    made = all((folder / entry.path).exists() for entry in manifest.tables)
    state = TablesState.REBUILDABLE if raw_intact else TablesState.LOST
    if parse.whole(folder, pruned) and made and not of_tables:
        state = TablesState.WHOLE
    elif not pruned and raw_intact and not parse.has_raw_files(folder):
        state = TablesState.NONE
    return Verified(name, str(folder), manifest.status, len(manifest.files), size, state, (*of_raw, *of_tables))


def verify_catalogue(archive: Archive, runs: Sequence[Verified], url: str | None = None) -> tuple[Finding, ...]:
    """The runs of which an archive's catalogue, brought up to date as every command does, says something else.

    Nothing is found of an archive that has none.
    """
    from fiprof.model.catalogue.queries import Question

    if not index.exists(archive, url):
        return ()
    listed = {row["name"]: (row["status"], row["bytes"]) for row in index.answer(archive, Question(), url).rows}
    # What is wrong with a run may have been done to it behind the catalogue's back.
    recorded = ((run.name, (run.status, run.bytes)) for run in runs if run.intact)
    differing = [name for name, entry in recorded if listed.get(escape_control(name), entry) != entry]
    return tuple(finding("stale", "{run}: the catalogue says something else of it", run=name) for name in differing)


def _file_state(folder: Path, state: FileState, file: str, **values: Any) -> Finding:
    """What is to be said of a file. values: what its words need besides."""
    return finding(state, state.words, run=folder.resolve().name, file=file, **values)


def _raw_files(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """The files that the run's actions made, and those that were imported and not copied."""
    pruned = {each.path: each.when for each in manifest.pruned}
    linked = [file.path for file in manifest.imported if file.linked]
    for name in (*manifest.files, *linked):
        entry = manifest.files.get(name)
        private = entry is not None and entry.private
        try:
            if entry is None:
                packing.checksum(folder, name)
            elif packing.stored(folder, name) is None:
                if name in pruned:
                    yield _file_state(folder, FileState.PRUNED, name, when=pruned[name])
                else:
                    yield _file_state(folder, FileState.WITHHELD if private else FileState.MISSING, name)
            elif name in pruned:
                yield _file_state(folder, FileState.LEFTOVER, name)
            elif packing.checksum(folder, name) != entry.sha256:
                yield _file_state(folder, FileState.CHANGED, name)
        except (FiprofError, OSError) as error:
            if private and isinstance(error, PermissionError):
                yield _file_state(folder, FileState.WITHHELD, name)
            else:
                reason = error.message if isinstance(error, FiprofError) else error.strerror or str(error)
                yield _file_state(folder, FileState.DAMAGED, name, reason=reason)


def _changed_tables(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """The tables that are not those that were made, or, where that was not recorded, cannot be read to their ends."""
    sums = set() if layout.recorded(folder) else {(entry.path, entry.sha256) for entry in manifest.tables}
    for name in KNOWN_TABLES:
        file = f"{layout.TABLES}/{name}.parquet"
        try:
            if sums and files.exists(folder, file):
                if (file, packing.checksum(folder, file)) not in sums:
                    yield _file_state(folder, FileState.CHANGED, file)
            elif tables.table_path(folder / layout.TABLES, name).exists():
                reader = tables.Reader(folder / layout.TABLES, name)
                for _ in reader.pieces(reader.names):
                    pass
        except (FiprofError, OSError) as error:
            yield _file_state(folder, FileState.DAMAGED, file, reason=getattr(error, "message", None) or str(error))


def prune(
    archive: Archive,
    older_than: timedelta,
    *,
    keep_baselines: bool = True,
    keep_tags: Collection[str] = (),
    dry_run: bool = False,
) -> Iterator[dict[str, Any]]:
    """Go through the runs of an archive, the oldest first. Yields each when it is done, as a row: ``name``, ``path``,
    ``started`` (ISO 8601; None where that cannot be read), ``kept`` (why it keeps its raw files; None where they go),
    ``raw_files`` (their names) and ``freed_bytes``.

    Only what :func:`verify` accepts goes, tables and raw files alike. First the manifest says what goes, then it goes:
    at whatever moment this ends, the manifest is right, and what is left goes the next time. On a full disk the first
    file makes the room for the manifest. Raises FiprofError where a baseline cannot be read, or nothing can be removed.
    """
    names = baselines.names(archive.root) if keep_baselines else ()
    of_baselines = {baselines.read_baseline(archive.root, name).run for name in names}
    before = clock.now() - older_than
    for folder in [archive.root / name for name in archive.by_time()]:
        row: dict[str, Any] = dict.fromkeys(("started", "kept"))
        row |= {"name": folder.name, "path": str(folder), "raw_files": (), "freed_bytes": 0}
        try:
            manifest = read_manifest(folder)
            raw = [name for name in manifest.files if name.partition("/")[0] in layout.RAW_FOLDERS]
            # Raw files that the run made and still has -> the names under which they lie.
            stored = {name: at for name in raw if (at := packing.stored(folder, name)) is not None}
            tags, row["started"] = set(read_annotations(folder).tags), manifest.started
        except FiprofError:
            yield row | {"kept": Kept.DAMAGED}
            continue
        # Those of a prune that was interrupted go first.
        going = {each.path for each in manifest.pruned} & stored.keys()
        why = None
        if not going:
            reasons = {
                Kept.TAGGED: tags & {*keep_tags},
                Kept.NOTHING: not stored,
                Kept.RECORDED: layout.recorded(folder),
                Kept.YOUNG: started(folder) >= before,
                Kept.BASELINE: folder.name in of_baselines,
            }
            why = next((reason for reason, holds in reasons.items() if holds), None)
        if why is None:
            # Nothing else may be as whole as the raw files are.
            verified = verify(folder)
            if verified.tables == TablesState.REBUILDABLE or (verified.intact and not manifest.tables):
                why = Kept.NO_TABLES
            elif not verified.intact or verified.tables != TablesState.WHOLE:
                why = Kept.DAMAGED
        if why:
            yield row | {"kept": why}
            continue
        going = going or set(stored)
        sizes = {}
        for name in sorted(going):
            # Another prune may have removed it.
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = (folder / stored[name]).stat().st_size
        if not dry_run:
            _remove(folder, manifest, stored, sizes)
        yield row | {"raw_files": tuple(sizes), "freed_bytes": sum(sizes.values())}


def _remove(folder: Path, manifest: Manifest, stored: dict[str, str], sizes: dict[str, int]) -> None:
    """stored: raw file -> the name under which it lies. sizes: of those that go, bytes."""
    when = clock.now_text("seconds")
    noted = {each.path for each in manifest.pruned}
    pruned = [*manifest.pruned, *(PrunedFile(name, size, when) for name, size in sizes.items() if name not in noted)]
    going = list(sizes)
    with file_errors(folder, "whoever owns the run may prune it"), locked(folder):
        clear_run(folder)
        while True:
            try:
                with atomic_write(folder / layout.FILE_NAME) as partial:
                    partial.write_bytes(dataclasses.replace(manifest, pruned=pruned).to_json())
                break
            except OSError as error:
                if error.errno not in FULL or not going:
                    raise
            with contextlib.suppress(FileNotFoundError):
                files.remove(folder, stored[going.pop()])
        for name in going:
            with contextlib.suppress(FileNotFoundError):
                files.remove(folder, stored[name])
        # Whoever knows a run by the time of its manifest learns that it is smaller.
        os.utime(folder / layout.FILE_NAME, follow_symlinks=False)
