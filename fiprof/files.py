"""Files that appear whole or not at all, and errors that say what to do, for every room."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fiprof import confined
from fiprof.errors import FiprofError

ARCHIVE_FOLDER = "artifacts"
ARCHIVE_VARIABLE = "FIPROF_ARTIFACTS"
ANOTHER_ARCHIVE = f"choose another archive with --artifacts DIR or {ARCHIVE_VARIABLE}"


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside a path, to be written in the block; it takes the path's place when the block ends well.

    A reader sees the old content or the new, also when the disk is full, and two processes do not meet.
    Raises OSError, and FiprofError where a link, a device or a FIFO has the path.
    """
    confined.require_replaceable(path)
    partial = path.with_name(confined.partial_name(path.name))
    try:
        confined.create_anew(partial)
        yield partial
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


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
        if error.errno == errno.ENOSPC:
            raise FiprofError(f"{path}: the disk is full", "free some space; what was collected is kept") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FiprofError(f"{path}: no permission to write", elsewhere) from error
        raise FiprofError(f"{path} cannot be written: {error.strerror}", elsewhere) from error


def write_whole(path: Path, data: bytes, elsewhere: str = ANOTHER_ARCHIVE) -> None:
    """Replace a file's contents in one step. Raises FiprofError, see :func:`file_errors`."""
    with file_errors(path, elsewhere), atomic_write(path) as partial:
        partial.write_bytes(data)
