"""Raw files of a run that lie elsewhere than under their name: compressed, or outside the folder.

FILE.xz stands for FILE, and is read in its place: profilers' files shrink to a tenth or less, and a packed run can be
kept for years or committed to a repository. An imported file that was linked is read where it lies, and only while it
has the checksum that ``run.json`` gives: a run of somebody else's can make nobody read a file that he did not have.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import cache_folder, file_errors, scratch
from fiprof.model.manifest import FileEntry, ImportedFile, read_manifest

SUFFIX = ".xz"
COPY_BYTES = 1 << 20
UNRECORDED_BYTES = 1 << 30
"""Most that a packed file may hold of which the manifest says nothing."""
LARGEST_RATIO = 1000
"""Most that a packed file may grow, whatever the manifest says; those of profilers grow 5 to 40 times."""
SMALLEST_LIMIT = 1 << 20
XZ_MEMORY_BYTES = 256 << 20
"""Most that unpacking may take; ``xz -9`` needs 65 MiB."""
_LINK_REMEDY = "put it back where it was, or import it again: fiprof import FILE"


def exists(folder: Path, name: str) -> bool:
    """Whether a run folder has a raw file, packed or linked too. Raises FiprofError where it is no regular file."""
    return _inside(folder, name) or _link(folder, name) is not None


def _inside(folder: Path, name: str) -> bool:
    return confined.exists(folder, name) or confined.exists(folder, name + SUFFIX)


def _link(folder: Path, name: str) -> ImportedFile | None:
    """What the manifest says of a file that was linked; None where it was not."""
    with contextlib.suppress(FiprofError):
        return next((file for file in read_manifest(folder).imported if file.linked and file.path == name), None)
    return None


def _linked(file: ImportedFile) -> Path:
    """Where a linked file lies. Raises FiprofError where it is gone, no regular file, or not what was imported."""
    path = Path(file.source)
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(source, "rb") as opened:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.bytes:
                raise FiprofError(f"{path} is not the file that was imported: its size differs", _LINK_REMEDY)
            if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                raise FiprofError(f"{path} is not the file that was imported: its checksum differs", _LINK_REMEDY)
    except OSError as error:
        raise FiprofError(
            f"{path}, which the run is linked to, cannot be read: {error.strerror}", _LINK_REMEDY
        ) from error
    return path


@contextlib.contextmanager
def unpacked(folder: Path, name: str) -> Iterator[Path]:
    """A raw file of a run folder as a plain one for the length of a block; itself where it is not packed.

    Raises FiprofError where it is no regular file, the packed one is damaged or holds more than its run made, or the
    disk is too full to unpack it.
    """
    if confined.exists(folder, name):
        yield folder / name
        return
    if not confined.exists(folder, name + SUFFIX):
        link = _link(folder, name)
        yield _linked(link) if link else folder / name
        return
    with contextlib.ExitStack() as held:
        with file_errors(folder):
            temporary = held.enter_context(scratch(folder, cache_folder()))
            _copy(folder, name, temporary)
        try:
            yield temporary / name
        except FiprofError as error:
            # What is wrong with the copy is wrong with the file, which is still there to look at.
            error.message = error.message.replace(str(temporary / name), str(folder / (name + SUFFIX)))
            raise


def copy_out(folder: Path, name: str, target: Path) -> None:
    """Copy a raw file, packed or not, to a plain one of the same name in another folder. Raises as :func:`unpacked`."""
    with file_errors(target / name):
        _copy(folder, name, target)


def _copy(folder: Path, name: str, target: Path) -> None:
    if "/" in name:
        confined.make_folder(target, name.rpartition("/")[0])
    with confined.replacing(target, name) as out:
        if confined.exists(folder, name):
            with confined.open_file(folder, name) as plain:
                shutil.copyfileobj(plain, out, COPY_BYTES)
            return
        for block in _unpack(folder, name):
            out.write(block)


def checksum(folder: Path, name: str) -> str:
    """SHA-256 of a raw file's plain content. Raises as :func:`unpacked`, OSError."""
    digest = hashlib.sha256()
    if link := None if _inside(folder, name) else _link(folder, name):
        _linked(link)
        return link.sha256
    if confined.exists(folder, name):
        with confined.open_file(folder, name) as plain:
            return hashlib.file_digest(plain, "sha256").hexdigest()  # type: ignore[arg-type]
    for block in _unpack(folder, name):
        digest.update(block)
    return digest.hexdigest()


def pack(folder: Path) -> list[Path]:
    """Compress the files of a run that its actions made. Returns those that were; a packed one is left alone.

    Each is read back and compared with the manifest's checksum before the plain file goes. Two at once do no harm.
    Raises FiprofError when a file differs from its checksum or there is no room; the plain file stays then.
    """
    packed = []
    for entry in (entry for action in read_manifest(folder).actions for entry in action.files):
        if not entry.path.endswith(".jsonl") and _pack_file(folder, entry):
            packed.append(folder / (entry.path + SUFFIX))
    return packed


def _pack_file(folder: Path, entry: FileEntry) -> bool:
    """Returns whether the file was there."""
    path = folder / entry.path
    try:
        source = confined.open_file(folder, entry.path)
    except FileNotFoundError:
        return False
    with file_errors(path), source:
        mode = os.fstat(source.fileno()).st_mode & 0o666
        with confined.replacing(folder, entry.path + SUFFIX, mode) as out:
            with lzma.open(out, "wb") as compressed:
                shutil.copyfileobj(source, compressed, COPY_BYTES)
            out.seek(0)
            with lzma.open(out) as back:
                if _digest(back) != entry.sha256:
                    raise FiprofError(
                        f"{path} is not the file that its run made: the checksum in run.json differs",
                        "it was changed after the run, and is left as it is",
                    )
        # Another one that packs may have removed it.
        with contextlib.suppress(FileNotFoundError):
            confined.remove(folder, entry.path)
    return True


def _unpack(folder: Path, name: str) -> Iterator[bytes]:
    """The content of a packed file, block by block."""
    path = folder / (name + SUFFIX)
    with confined.open_file(folder, name + SUFFIX) as source:
        left = _limit(folder, name, os.fstat(source.fileno()).st_size)
        try:
            for block in _decompressed(source):
                left -= len(block)
                if left < 0:
                    raise FiprofError(
                        f"{path} holds more than its run made of {name}", "it is damaged or made to fill the disk"
                    )
                yield block
        except (lzma.LZMAError, EOFError) as error:
            raise FiprofError(f"{path} is damaged: {error}", "fetch or copy it again") from error


def _limit(folder: Path, name: str, packed_bytes: int) -> int:
    """Most bytes that a packed file may hold: what the manifest says, and what such a file can."""
    try:
        entries = [entry for action in read_manifest(folder).actions for entry in action.files if entry.path == name]
    except FiprofError:
        entries = []
    recorded = max((entry.bytes for entry in entries), default=UNRECORDED_BYTES)
    return min(recorded, max(SMALLEST_LIMIT, packed_bytes * LARGEST_RATIO))


def _decompressed(source: BinaryIO) -> Iterator[bytes]:
    """As lzma.open reads it, with a limit to the memory. Raises LZMAError, EOFError."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY_BYTES)
    while not decompressor.eof:
        data = source.read(COPY_BYTES) if decompressor.needs_input else b""
        if decompressor.needs_input and not data:
            raise EOFError("it is cut short")
        yield decompressor.decompress(data, COPY_BYTES)


def _digest(file: lzma.LZMAFile) -> str:
    digest = hashlib.sha256()
    while block := file.read(COPY_BYTES):
        digest.update(block)
    return digest.hexdigest()
