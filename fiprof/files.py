"""Files that appear whole or not at all, temporaries that do not outlive their process, and errors that say what to do.

A temporary is called ``.fiprof-…`` and lies beside what it is for. Its process holds a lock on it (flock), which goes
with the process however that ends: what nobody holds is removed by the next fiprof that works in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fiprof import confined
from fiprof.errors import FiprofError

ARCHIVE_FOLDER = "artifacts"
ARCHIVE_VARIABLE = "FIPROF_ARTIFACTS"
ANOTHER_ARCHIVE = f"choose another archive with --artifacts DIR or {ARCHIVE_VARIABLE}"

FOLDER_SUFFIX = ".d"
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
FULL = (errno.ENOSPC, errno.EDQUOT)
AT_FDCWD = -100
RENAME_EXCHANGE = 2
"""linux/fs.h, for renameat2(2)."""


class Unwritable(FiprofError):
    """The disk is full, or nothing may be written there: no fault of what is read."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside a path, to be written in the block; it takes the path's place when the block ends well.

    A reader sees the old content or the new, also when the disk is full, and two processes do not meet.
    Raises OSError, and FiprofError where a link, a device or a FIFO has the path.
    """
    confined.require_replaceable(path)
    clear(path.parent)
    with _temporary(path.parent) as partial:
        yield partial
        os.replace(partial, path)


@contextlib.contextmanager
def scratch(folder: Path, otherwise: Path | None = None) -> Iterator[Path]:
    """A new folder inside a folder, removed after the block. Raises OSError.

    otherwise: taken where the folder may not be written, and made where it is missing.
    """
    with contextlib.ExitStack() as held:
        try:
            clear(folder)
            lock = held.enter_context(_temporary(folder))
        except OSError as error:
            if error.errno not in REFUSED or otherwise is None:
                raise
            otherwise.mkdir(parents=True, exist_ok=True)
            clear(otherwise)
            lock = held.enter_context(_temporary(otherwise))
        inside = lock.with_name(lock.name + FOLDER_SUFFIX)
        inside.mkdir()
        try:
            yield inside
        finally:
            shutil.rmtree(inside, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for a block; whoever else wants to waits, where the file system has locks. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def exchange(new: Path, old: Path) -> None:
    """Let two folders change places: in one step, where the file system can. Raises OSError."""
    import ctypes

    names = (os.fsencode(new), os.fsencode(old))
    if ctypes.CDLL(None).renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE):
        os.rename(old, new.with_name("before"))
        os.rename(new, old)


def cache_folder() -> Path:
    """Where temporaries lie that have no better place."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fiprof"


def clear(folder: Path) -> None:
    """Remove the temporaries in a folder, not below it, that no living process holds; never raises."""
    with contextlib.suppress(OSError):
        for name in [name for name in os.listdir(folder) if name.startswith(confined.TEMPORARY)]:
            path = folder / name
            if name.endswith(FOLDER_SUFFIX):
                if not path.with_name(name.removesuffix(FOLDER_SUFFIX)).exists():
                    shutil.rmtree(path, ignore_errors=True)
                continue
            with contextlib.suppress(OSError), contextlib.ExitStack() as held:
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The folder that it stands for goes first.
                shutil.rmtree(path.with_name(name + FOLDER_SUFFIX), ignore_errors=True)
                path.unlink()


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A new file in a folder, held by this process for the length of a block and removed unless it was renamed."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name, descriptor = confined.create_temporary(inside)
    finally:
        os.close(inside)
    try:
        yield folder / name
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
        os.close(descriptor)


@contextlib.contextmanager
def file_errors(path: Path, elsewhere: str = ANOTHER_ARCHIVE) -> Iterator[None]:
    """Turn the operating system's refusals around a block into FiprofErrors.

    elsewhere: how to have the file written somewhere else.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise refusal(error, path, elsewhere) from error


def refusal(error: OSError, what: Path | str, elsewhere: str) -> Unwritable:
    """What it means that something could not be written, and what to do."""
    if error.errno == errno.EFBIG:
        return Unwritable(f"{what}: no file may be as large here", f"raise ulimit -f, or {elsewhere}")
    if error.errno in FULL:
        return Unwritable(f"{what}: the disk is full", f"free some space, or {elsewhere}")
    if error.errno in REFUSED:
        return Unwritable(f"{what}: no permission to write", elsewhere)
    return Unwritable(f"{what} cannot be written: {error.strerror or error}", elsewhere)


def write_whole(path: Path, data: bytes, elsewhere: str = ANOTHER_ARCHIVE) -> None:
    """Replace a file's contents in one step. Raises FiprofError, see :func:`file_errors`."""
    with file_errors(path, elsewhere), atomic_write(path) as partial:
        partial.write_bytes(data)
