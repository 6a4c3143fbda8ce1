"""Runs of an archive where this user may not write: their tables are made in the user's cache.

A folder of the cache is of one run in one state: its path, its manifest, which has the raw files' checksums, what the
file system says of every raw file, and fiprof's version. So tables of two runs, or of a run before and after, never
mix. The cache belongs to one user; it may be removed at any time, and removes its oldest folders by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import fiprof
from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import cache_folder, file_errors
from fiprof.model.layout import RAW_FOLDERS, TABLES
from fiprof.model.manifest import FILE_NAME
from fiprof.orchestrator import parse

CACHE_BYTES = 4 << 30
"""Most that the cache holds when tables are added; recorded runs' tables have 0.1 to 3 MB."""
IN_USE_S = 24 * 3600
"""After its last use a folder stays that long, whatever the cache holds: somebody may be reading."""
ELSEWHERE = "name another cache with XDG_CACHE_HOME"


def base(folder: Path) -> Path:
    """The folder whose ``tables`` are a run's: the run folder; or one of the cache, where tables are to be made and
    the run folder may not be written.

    Raises FiprofError where the cache is not this user's alone, or cannot be made.
    """
    if parse.whole(folder) or not parse.has_raw_files(folder) or _writable(folder):
        return folder
    root = cache_folder() / "tables"
    with file_errors(root, ELSEWHERE):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (root.parent, root):
            status = each.lstat()
            if each.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise FiprofError(f"{each} is not this user's alone: tables in it may be anybody's", ELSEWHERE)
        own = confined.make_folder(root, state(folder))
        os.utime(own)
    if not parse.whole(folder, at=own):
        _trim(root)
    return own


def with_tables(
    folder: Path, making: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> tuple[Path, tuple[FiprofError, ...]]:
    """The folder whose ``tables`` are a run's, made now where it has none but raw files; and the problems with that.

    making: the block in which they are made. Raises as :func:`base`.
    """
    at = base(folder)
    if parse.whole(folder, at=at) or not parse.has_raw_files(folder):
        return at, ()
    with making():
        return at, parse.parse_all(folder, at).problems


def _writable(folder: Path) -> bool:
    there = folder / TABLES
    return os.access(folder, os.W_OK) and (not there.exists() or os.access(there, os.W_OK))


def state(folder: Path) -> str:
    """What tells a run as it is now from every other, and from itself before a file of it changed.

    Raises FiprofError as :mod:`fiprof.confined`, OSError.
    """
    raw = [
        (f"{name}/{entry.name}", status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for name in (*RAW_FOLDERS, TABLES)
        if (folder / name).is_dir() and not (folder / name).is_symlink()
        for entry in os.scandir(folder / name)
        if name != TABLES or entry.name.endswith(".parquet")
        for status in [entry.stat(follow_symlinks=False)]
    ]
    manifest = hashlib.sha256(confined.read_bytes(folder, FILE_NAME)).hexdigest()
    found = [str(folder.resolve()), manifest, fiprof.__version__, *sorted(raw)]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def _trim(root: Path) -> None:
    """Remove what was not used for longest until there is room; never raises."""
    with contextlib.suppress(OSError):
        used = sorted((path.lstat().st_mtime, path) for path in root.iterdir())
        sizes = {path: sum(each.lstat().st_size for each in path.rglob("*")) for _, path in used}
        for when, path in used:
            if sum(sizes.values()) <= CACHE_BYTES or time.time() - when < IN_USE_S:
                return
            del sizes[path]
            shutil.rmtree(path, ignore_errors=True)
