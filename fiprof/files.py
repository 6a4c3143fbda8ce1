"""Files that appear whole or not at all, temporaries that do not outlive their process, and errors that say what to do.

A temporary is called ``.fiprof-…`` and lies beside what it is for. Its process holds a lock on it (flock), which goes
with the process however that ends: what nobody holds is removed by the next fiprof that works in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fiprof.errors import FiprofError

ARCHIVE_FOLDER = "artifacts"
ARCHIVE_VARIABLE = "FIPROF_ARTIFACTS"
ANOTHER_ARCHIVE = f"choose another archive with --artifacts DIR or {ARCHIVE_VARIABLE}"

TEMPORARY = ".fiprof-"  # what the name of a file or folder begins with that is not to outlive its process
FOLDER_SUFFIX = ".d"
MEMORY = Path("/dev/shm")  # where temporaries lie when no disk takes them
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
FULL = (errno.ENOSPC, errno.EDQUOT)
AT_FDCWD = -100
RENAME_EXCHANGE = 2  # linux/fs.h, for renameat2(2)


class Unwritable(FiprofError):
    """The disk is full, or nothing may be written there: no fault of what is read."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside a path, to be written in the block; it takes the path's place when the block ends well.

    A reader sees the old content or the new, also when the disk is full, and two processes do not meet.
    Raises OSError, and FiprofError where a link, a device or a FIFO has the path.
    """
    require_replaceable(path)
    clear(path.parent)
    with _temporary(path.parent) as (partial, _):
        yield partial
        os.replace(partial, path)


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A new folder of this user alone inside a folder, removed after the block. Raises OSError."""
    clear(folder)
    with _temporary(folder) as (lock, _):
        inside = lock.with_name(lock.name + FOLDER_SUFFIX)
        inside.mkdir(mode=0o700)
        try:
            yield inside
        finally:
            shutil.rmtree(inside, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for a block; whoever else wants to waits. Raises OSError where it cannot be opened.

    On a file system without locks on folders the later of two at the same moment wins.
    """
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


def archive_folder(named: str | None = None) -> Path:
    """The archive: the one that is named, else that of the environment, else the one here."""
    return Path(named or os.environ.get(ARCHIVE_VARIABLE) or ARCHIVE_FOLDER)


def cache_folder() -> Path:
    """Where temporaries lie that have no better place. Raises Unwritable for a user without a home."""
    with contextlib.suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fiprof"
    raise Unwritable("this user has no home folder", "name a cache with XDG_CACHE_HOME")


def remote(url: str) -> tuple[Any, str]:
    """The file system of a URL, as fsspec has them (s3, gs, memory, file, …), and the path there.

    Raises FiprofError (exit status 2) without fsspec or the package that brings the file system.
    """
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        remedy = "pip install fsspec, and the package of that file system, e.g. s3fs for s3://"
        raise FiprofError(f"{url} cannot be reached: {error}", remedy, exit_code=2) from error
    return system, path.rstrip("/")


def walk(folder: Path) -> dict[str, os.stat_result]:
    """Every file below a folder by its name in it, and every link, which is not followed; none of a folder that cannot
    be read."""
    entry_status, folders = {}, [""]
    for within in folders:
        with contextlib.suppress(OSError), os.scandir(f"{folder}/{within}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{within}{entry.name}/")
                else:
                    entry_status[within + entry.name] = entry.stat(follow_symlinks=False)
    return entry_status


def clear(folder: Path) -> None:
    """Remove the temporaries in a folder, not below it, that no living process holds; never raises."""
    with contextlib.suppress(OSError):
        for name in [name for name in os.listdir(folder) if name.startswith(TEMPORARY)]:
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
def _temporary(folder: Path, mode: int = 0o666, dir_fd: int | None = None) -> Iterator[tuple[Path, int]]:
    """A new file in a folder: its path and a descriptor, which holds it (flock) for the length of a block; removed
    after it unless it was renamed. dir_fd: of the folder that a relative path begins at. Raises OSError.

    The lock goes with the process, however that ends: what nobody holds, the next fiprof there may remove.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        path = folder / f"{TEMPORARY}{os.urandom(6).hex()}"
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
        # A file system without locks: then nobody can tell, and nobody removes it.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        # Another process found it before it was held.
        os.close(descriptor)
    try:
        yield path, descriptor
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path, dir_fd=dir_fd)
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


# Files of a folder that a stranger may have made. The folder itself may be reached through links; below it none is
# followed: every component is opened by itself with O_NOFOLLOW, only regular files are read or replaced, and what is
# made is made with O_EXCL. A name is relative to the folder, with / between its components.

LARGEST_TEXT = 256 << 20  # bytes of a file that is read as a whole; ``run.json`` of 200 cases has 0.1 MB

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


class UnsafeName(FiprofError, ValueError):
    """A name that is absolute, climbs, or has unprintable characters."""


_UNSAFE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")


@functools.lru_cache(1 << 14)  # runs have files of the same names
def parts(name: str, *, printable: bool = True) -> tuple[str, ...]:
    """The components of a name. printable: as one in a file of text has to be. Raises UnsafeName."""
    if _UNSAFE.search(name) or (printable and not name.isprintable()):
        raise UnsafeName(f"{name!r} names no file inside its folder")
    return tuple(name.split("/"))


def exists(folder: Path, name: str) -> bool:
    """Whether a regular file is there. Raises FiprofError where something else has its name."""
    with contextlib.suppress(FileNotFoundError), _parent(folder, name) as (descriptor, last):
        _require(os.stat(last, dir_fd=descriptor, follow_symlinks=False), folder, name)
        return True
    return False


def open_file(folder: Path, name: str) -> BinaryIO:
    """A regular file, for reading.

    Raises FiprofError where a component of the name is something else, FileNotFoundError where there is none.
    """
    with _parent(folder, name) as (descriptor, last):
        # First looked at, then opened: opening alone wakes a device, and waits at a FIFO.
        _require(os.stat(last, dir_fd=descriptor, follow_symlinks=False), folder, name)
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        _require(os.fstat(file), folder, name)
        return io.BufferedReader(io.FileIO(file))
    except BaseException:
        os.close(file)
        raise


def read_bytes(folder: Path, name: str, limit: int = LARGEST_TEXT) -> bytes:
    """The whole of a regular file of at most ``limit`` bytes. Raises as :func:`open_file`, and for a larger one."""
    with open_file(folder, name) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise FiprofError(f"{folder / name} is larger than {limit} bytes", "fiprof makes no such file: look at it")
        return file.read()


def make_folder(folder: Path, name: str) -> Path:
    """The path of a folder inside a folder, made where it is missing.

    Raises FiprofError where a component is a link or a file, OSError where it cannot be made.
    """
    # The folder in question is the parent of a file of any name.
    with _parent(folder, f"{name}/any", make=True):
        return folder / name


@contextlib.contextmanager
def replacing(folder: Path, name: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file to be written and read in the block; it replaces a regular file, or none, at its end.

    Folders that its name has are made where they are missing. mode: its permissions, less the umask.
    Raises FiprofError where something else has the name, OSError where it cannot be written.
    """
    with _parent(folder, name, make=True) as (descriptor, last):
        require_replaceable(folder / name, last, descriptor)
        with (
            _temporary(Path(), mode, descriptor) as (partial, held),
            io.FileIO(held, "r+", closefd=False) as raw,
            io.BufferedRandom(raw) as file,
        ):
            yield file
            file.flush()
            os.replace(partial, last, src_dir_fd=descriptor, dst_dir_fd=descriptor)


def remove(folder: Path, name: str) -> None:
    """Remove a file; a link goes, not what it leads to. Raises FileNotFoundError, FiprofError as :func:`open_file`."""
    with _parent(folder, name) as (descriptor, last):
        os.unlink(last, dir_fd=descriptor)


def require_replaceable(path: Path, name: str | None = None, folder: int | None = None) -> None:
    """Raise FiprofError where a path is there and no regular file: a link, a FIFO or a device is not replaced.

    name, folder: its last component and a descriptor of the folder that it lies in, where that is open.
    """
    with contextlib.suppress(FileNotFoundError):
        _require(os.stat(name or path, dir_fd=folder, follow_symlinks=False), path)


def open_lock(path: Path) -> int:
    """A descriptor of a lock file, for reading and writing; made where it is missing.

    Raises FiprofError where it is a link, has another name besides or is no regular file; OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        _require(status, path)
        if status.st_nlink > 1:
            raise FiprofError(f"{path} is a file that has other names besides", "remove it")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


@contextlib.contextmanager
def _parent(folder: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder in which a name's last component lies, and that component."""
    *folders, last = parts(name, printable=False)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, part in enumerate(folders, 1):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            status = os.stat(part, dir_fd=descriptor, follow_symlinks=False)
            _require(status, folder, *folders[:number], kind=stat.S_IFDIR)
            above, flags = descriptor, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(part, flags, dir_fd=above)
            os.close(above)
        yield descriptor, last
    finally:
        os.close(descriptor)


def _require(status: os.stat_result, *path: Path | str, kind: int = stat.S_IFREG) -> None:
    """Raise FiprofError unless what stands at a path, given in parts, is of a kind."""
    found = stat.S_IFMT(status.st_mode)
    if found != kind:
        what = _KINDS.get(found, "something else")
        raise FiprofError(
            f"{Path(*path)} is {what}, not {_KINDS[kind]}",
            "fiprof follows no links and replaces only files; look at it",
        )
