"""Raw files of a run folder -> its tables, there or in the user's cache."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import fiprof
from fiprof import files
from fiprof.errors import FiprofError
from fiprof.files import MEMORY, Unwritable, cache_folder, exchange, file_errors, locked, scratch
from fiprof.model import json_file, layout, packing
from fiprof.model.layout import Page, numbered
from fiprof.model.manifest import FileEntry, Manifest, read_manifest

if TYPE_CHECKING:
    from fiprof.parsers.nsys import NsysSummary

NSYS_TABLES = frozenset({"kernels", "ranges", "api", "copies", "memory", "gpu_metrics", "processes", "diagnostics"})
HOST_TABLES = frozenset({"host_samples"})  # nsys's too; runs of an older fiprof lack them
NCU_TABLES = frozenset({"launches", "metrics", "stalls", "rules", "hotspots"})

READABLE: tuple[Page, ...] = ("raw", "details")  # pages of ncu that can be read by themselves
PARSED = (".sqlite", ".csv", ".ncu-rep")
NCU_FORMS = (layout.NCU_REPORT, *(layout.NCU_PAGES[page] for page in READABLE))
CACHE_BYTES = 4 << 30  # most that the cache holds when tables are added; recorded runs' tables have 0.1 to 3 MB
IN_USE_S = 24 * 3600  # a folder stays so long after its last use, however full the cache is: somebody may be reading
ELSEWHERE = "name another cache with XDG_CACHE_HOME"
in_memory = contextlib.ExitStack()  # folders in memory, of tables that no disk takes; removed when it is closed
atexit.register(in_memory.close)


class Parsed(NamedTuple):
    """What :func:`parse_all` made."""

    tables: tuple[str, ...]  # names
    missing: tuple[str, ...]  # what the tools' output did not have, a sentence each
    problems: tuple[FiprofError, ...] = ()  # with a tool's output; the other tool's tables are made all the same


def numbers(folder: Path, name: str) -> list[int]:
    """The numbers of a run's files of a kind: 0, and in an imported run further ones."""
    return list(itertools.takewhile(lambda number: packing.exists(folder, numbered(name, number)), itertools.count()))


def declared_ranges(folder: Path) -> list[str]:
    """NVTX ranges that the run's manifest declares to be cases; none where it cannot be read."""
    with contextlib.suppress(FiprofError):
        return read_manifest(folder).ranges
    return []


def parse_nsys(folder: Path, out: Path) -> NsysSummary:
    """nsys/trace.sqlite, and what an imported run has beside it -> NSYS_TABLES, into the folder ``out``."""
    from fiprof.parsers import nsys, torch_memory
    from fiprof.parsers.nsys import merge

    declared, tables_folder = declared_ranges(folder), folder / layout.TABLES

    def parse(number: int, into: Path) -> NsysSummary:
        with packing.unpacked(folder, numbered(layout.NSYS_SQLITE, number)) as sqlite, file_errors(tables_folder):
            return nsys.parse(sqlite, into, declared=declared)

    if len(traces := numbers(folder, layout.NSYS_SQLITE)) < 2:
        summary = parse(0, out)
        if packing.exists(folder, layout.TORCH_MEMORY):
            with packing.unpacked(folder, layout.TORCH_MEMORY) as history, file_errors(tables_folder):
                torch_memory.parse(history, out, session_start_ns=summary.session_start_ns)
        return summary
    with scratch(out) as parts:
        summaries = [parse(number, parts / str(number)) for number in traces]
        starts = [summary.session_start_ns for summary in summaries]
        known_starts = [start for start in starts if start is not None]
        # Two ranks' sessions may begin in the same nanosecond; only the same trace also has the same kernels and calls.
        marks = [
            (start, *(packing.checksum(parts / str(number), f"{name}.parquet") for name in ("kernels", "api")))
            for number, start in zip(traces, starts, strict=True)
        ]
        if twice := next((mark for mark in marks if mark[0] is not None and marks.count(mark) > 1), None):
            names = [numbered(layout.NSYS_SQLITE, number) for number in traces]
            same = " and ".join(name for name, mark in zip(names, marks, strict=True) if mark == twice)
            raise FiprofError(f"{folder}: {same} are the same trace", "import it once")
        aligned = len(known_starts) == len(starts)
        shifts = [start - min(known_starts) if aligned and start is not None else 0 for start in starts]
        shifted = {parts / str(number): shift for number, shift in zip(traces, shifts, strict=True)}
        with file_errors(tables_folder):
            merge(shifted, sorted(NSYS_TABLES | HOST_TABLES), out)
    return dataclasses.replace(
        summaries[0],
        rows={name: sum(summary.rows[name] for summary in summaries) for name in summaries[0].rows},
        missing=_of_files(layout.NSYS_SQLITE, [summary.missing for summary in summaries]),
        warnings=_of_files(layout.NSYS_SQLITE, [summary.warnings for summary in summaries]),
        session_start_ns=min(known_starts, default=None),
        nvtx_incompatible=any(summary.nvtx_incompatible for summary in summaries),
    )


def _of_files(name: str, sentences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Sentences about several files of a kind, each once; with the names of the files, unless it is about all."""
    every = dict.fromkeys(sentence for of_file in sentences for sentence in of_file)
    of = {text: [number for number, of_file in enumerate(sentences) if text in of_file] for text in every}
    return tuple(
        text if len(files) == len(sentences) else f"{', '.join(numbered(name, number) for number in files)}: {text}"
        for text, files in of.items()
    )


def parse_ncu(folder: Path, out: Path) -> tuple[str, ...]:
    """ncu/*.csv, or ncu/profile.ncu-rep where the raw page is missing -> NCU_TABLES, into the folder ``out``.

    Returns what the report does not have, a sentence each.
    """
    from fiprof.parsers.nsys import merge

    if len(reports := profiles(folder)) < 2:
        return _parse_ncu(folder, 0, out)
    with scratch(out) as parts:
        missing = [_parse_ncu(folder, number, parts / str(number)) for number in reports]
        with file_errors(folder / layout.TABLES):
            merge({parts / str(number): 0 for number in reports}, sorted(NCU_TABLES), out)
    return _of_files("ncu/profile.ncu-rep", missing)


def profiles(folder: Path) -> list[int]:
    """The numbers of ncu's reports that a run has, in whatever form."""
    return sorted({number for name in NCU_FORMS for number in numbers(folder, name)})


def _parse_ncu(folder: Path, number: int, out: Path) -> tuple[str, ...]:
    from fiprof.parsers import ncu

    declared = declared_ranges(folder)
    with contextlib.ExitStack() as files:

        def file(name: str) -> Path | None:
            path = numbered(name, number)
            return files.enter_context(packing.unpacked(folder, path)) if packing.exists(folder, path) else None

        with file_errors(folder / layout.TABLES):
            details, source = file(layout.NCU_PAGES["details"]), file(layout.NCU_PAGES["source"])
            raw = file(layout.NCU_PAGES["raw"])
            report = None if raw else file(layout.NCU_REPORT) or (None if details else folder / layout.NCU_REPORT)
            return ncu.parse(raw, out, details=details, source=source, report=report, declared=declared)


def parse_checks(folder: Path, out: Path) -> None:
    """The run's checks on its own numbers, from the tables in ``out`` -> checks; and the summary of them."""
    from fiprof.analysis import checks
    from fiprof.model import tables
    from fiprof.model.catalogue import summary
    from fiprof.model.run import Run

    run = Run(folder, out)
    with file_errors(folder / layout.TABLES):
        tables.write(out, "checks", checks.compute(run))
    summary.write(run, summary.summarize(run))


def parse_all(folder: Path, at: Path | None = None) -> Parsed:
    """Everything that the run has raw files of; the tables appear together, at the end.

    at: the folder that the tables are made in, where that is not the run's.
    Tables that are not made anew, for want of their raw files, stay as they were.
    Raises FiprofError when the run has no raw files; one tool's unreadable output is a problem in the result.
    """
    manifest: Manifest | None = None
    with contextlib.suppress(FiprofError):
        manifest = read_manifest(folder)
    if not has_raw_files(folder):
        if manifest and manifest.pruned:
            what = f"the raw files of {folder} were pruned on {manifest.pruned[0].when[:10]}"
            raise FiprofError(what, "its tables stay as they are, and every command reads them")
        what = f"{folder} has no raw files to parse: neither {layout.NSYS_SQLITE} nor {layout.NCU_PAGES['raw']}"
        raise FiprofError(what, "its run.json says how far the run came")
    missing: list[str] = []
    for name, entry in manifest.files.items() if manifest else ():
        with contextlib.suppress(FiprofError, OSError):  # reading it says what is wrong
            is_read = name.endswith(PARSED) and packing.exists(folder, name)
            if is_read and packing.checksum(folder, name) != entry.sha256:
                missing.append(f"{folder / name} is not the file that its run made: its checksum in run.json differs")
    problems: list[FiprofError] = []

    @contextlib.contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        except FiprofError as error:
            problems.append(error)

    tables = folder / layout.TABLES
    with contextlib.ExitStack() as folders:
        with file_errors(tables):
            out = folders.enter_context(scratch(at or folder)) / layout.TABLES
            out.mkdir()
        with noting():
            missing += parse_nsys(folder, out).missing if packing.exists(folder, layout.NSYS_SQLITE) else ()
        with noting():
            missing += parse_ncu(folder, out) if profiles(folder) else ()
        names = [path.stem for path in out.glob("*.parquet")]
        with file_errors(tables):
            for old in os.scandir(tables) if tables.is_dir() and not tables.is_symlink() else ():
                if old.is_file(follow_symlinks=False) and not (out / old.name).exists():
                    shutil.copy2(old.path, out)
        with noting():
            parse_checks(folder, out)
            names.append("checks")
        with file_errors((at or folder) / layout.TABLES):
            tables = files.make_folder(at or folder, layout.TABLES)
            with contextlib.suppress(FileNotFoundError):
                files.remove(at or folder, layout.DIGEST)
            if at in (None, folder):
                _take_place(folder, out, tables)
            else:
                exchange(out, tables)
    return Parsed(tuple(sorted(names)), tuple(missing), tuple(problems))


def table_entries(folder: Path) -> list[FileEntry]:
    """The tables of a folder, with their checksums. Raises OSError."""
    names = sorted(f"{layout.TABLES}/{path.name}" for path in (folder / layout.TABLES).glob("*.parquet"))
    return [FileEntry(name, (folder / name).stat().st_size, packing.checksum(folder, name)) for name in names]


def _take_place(folder: Path, new: Path, old: Path) -> None:
    """Replace a run's tables by new ones, and note these in its manifest, which lists both sets while they are
    exchanged.

    A manifest that cannot be read, or that a repository keeps, stays as it is.
    """
    new_entries = table_entries(new.parent)

    def record(entries: list[FileEntry]) -> None:
        manifest = None
        with contextlib.suppress(FiprofError):
            manifest = read_manifest(folder)
        if manifest and manifest.tables != entries and not layout.recorded(folder):
            json_file.write(folder / layout.FILE_NAME, dataclasses.replace(manifest, tables=entries))

    with locked(folder):
        record([*new_entries, *(entry for entry in table_entries(folder) if entry not in new_entries)])
        exchange(new, old)
        record(new_entries)


def whole(folder: Path, gone: Collection[str] = (), *, at: Path | None = None) -> bool:
    """Whether a run has any tables, and all those of its exports.

    gone: exports that it had. at: the folder that its tables are in, where that is not the run's.
    """
    names = {path.stem for path in ((at or folder) / layout.TABLES).glob("*.parquet")}
    if names >= NSYS_TABLES | NCU_TABLES:
        return True
    trace = layout.NSYS_SQLITE
    had = {name for name in (trace, *NCU_FORMS[1:]) if name in gone or packing.exists(folder, name)}
    expected = {*(NSYS_TABLES if trace in had else ()), *(NCU_TABLES if had - {trace} else ())}
    return bool(names) and expected <= names


def has_raw_files(folder: Path) -> bool:
    return packing.exists(folder, layout.NSYS_SQLITE) or bool(profiles(folder))


def base(folder: Path) -> Path:
    """The folder whose ``tables`` are a run's: the run folder; or a folder of the user's cache, where tables have to be
    made and this user may not write to the run.

    That folder is of one run in one state (:func:`state`): tables of two runs, or of a run before and after a change,
    never mix. The cache may be removed at any time; its oldest folders are removed by themselves.
    Raises FiprofError where the cache is not this user's alone, or cannot be made.
    """
    present = [path for path in (folder, folder / layout.TABLES) if path.exists()]
    if whole(folder) or not has_raw_files(folder) or all(os.access(path, os.W_OK) for path in present):
        return folder
    root = cache_folder() / "tables"
    with file_errors(root, ELSEWHERE):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (root.parent, root):
            status = each.lstat()
            if each.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise FiprofError(f"{each} is not this user's alone: tables in it may be anybody's", ELSEWHERE)
        own = files.make_folder(root, state(folder))
        os.utime(own)
    if not whole(folder, at=own):
        # Make room: the folders that were not used for longest go.
        with contextlib.suppress(OSError):
            used = sorted((path.lstat().st_mtime, path) for path in root.iterdir())
            sizes = {path: sum(each.lstat().st_size for each in path.rglob("*")) for _, path in used}
            for when, path in used:
                if sum(sizes.values()) <= CACHE_BYTES or time.time() - when < IN_USE_S:
                    break
                del sizes[path]
                shutil.rmtree(path, ignore_errors=True)
    return own


def with_tables(
    folder: Path, making: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> tuple[Path, tuple[FiprofError, ...]]:
    """The folder whose ``tables`` are a run's, which are made now where it only has raw files; and the problems.

    Where neither the run nor the cache can take them, the tables are in memory, as long as this process lasts.
    making: a context around the making. Raises as :func:`base`.
    """
    at = None
    with contextlib.suppress(Unwritable, FileExistsError):
        at = base(folder)
        if whole(folder, at=at) or not has_raw_files(folder):
            return at, ()
    with making():
        if at:
            with contextlib.suppress(Unwritable):
                problems = parse_all(folder, at).problems
                if not any(isinstance(problem, Unwritable) for problem in problems):
                    return at, problems
        with file_errors(MEMORY, ELSEWHERE):
            at = Path(in_memory.enter_context(scratch(MEMORY)))
        problems = parse_all(folder, at).problems
        if full := next((problem for problem in problems if isinstance(problem, Unwritable)), None):
            raise full
        return at, problems


def state(folder: Path) -> str:
    """A digest that differs between runs, and before and after a run's files change. Raises OSError."""
    read = []  # the files that tables are made of, and tables
    for name in (".", *layout.RAW_FOLDERS, layout.TABLES):
        if not os.path.isdir(at := f"{folder}/{name}") or os.path.islink(at):
            continue
        for entry in os.scandir(at):
            table = name == layout.TABLES and entry.name.endswith(".parquet")
            if table or name in layout.RAW_FOLDERS or entry.name in (layout.BASELINE, layout.COMPARISON):
                status = entry.stat(follow_symlinks=False)
                read.append((f"{name}/{entry.name}", status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    manifest = hashlib.sha256(files.read_bytes(folder, layout.FILE_NAME)).hexdigest()
    parts = [str(folder.resolve()), manifest, fiprof.__version__, *sorted(read)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
