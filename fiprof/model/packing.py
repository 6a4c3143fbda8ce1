"""Raw files stored compressed: FILE.xz stands for FILE, and is read in its place.

Profilers' files shrink to a tenth or less; a packed run can be kept for years or committed to a repository.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.files import file_errors
from fiprof.model.manifest import read_manifest

SUFFIX = ".xz"
COPY_BYTES = 1 << 20


def exists(path: Path) -> bool:
    """Whether a raw file is there, packed or not."""
    return path.exists() or _packed(path).exists()


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A raw file as a plain one for the length of a block; itself where it is not packed.

    Raises FiprofError where the packed file is damaged or the disk is too full to unpack it.
    """
    if path.exists() or not _packed(path).exists():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fiprof-") as folder:
        target = Path(folder) / path.name
        copy_out(path, target)
        yield target


def copy_out(path: Path, target: Path) -> None:
    """Copy a raw file, packed or not, to a plain one. Raises as :func:`unpacked`."""
    with file_errors(target):
        if path.exists():
            shutil.copyfile(path, target)
            return
        try:
            with lzma.open(_packed(path)) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out, COPY_BYTES)
        except (lzma.LZMAError, EOFError) as error:
            raise FiprofError(f"{_packed(path)} is damaged: {error}", "fetch or copy it again") from error


def pack(folder: Path) -> list[Path]:
    """Compress the files of a run that its actions made. Returns those that were; a packed one is left alone.

    Each is read back and compared with the manifest's checksum before the plain file goes.
    Raises FiprofError when a file differs from its checksum or there is no room; the plain file stays then.
    """
    packed = []
    for entry in (entry for action in read_manifest(folder).actions for entry in action.files):
        path = folder / entry.path
        if path.exists() and path.suffix != ".jsonl":
            _pack_file(path, entry.sha256)
            packed.append(_packed(path))
    return packed


def _pack_file(path: Path, sha256: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        with file_errors(path), open(path, "rb") as source, lzma.open(partial, "wb") as out:
            shutil.copyfileobj(source, out, COPY_BYTES)
        with lzma.open(partial) as back:
            if _digest(back) != sha256:
                raise FiprofError(
                    f"{path} is not the file that its run made: the checksum in run.json differs",
                    "it was changed after the run, and is left as it is",
                )
        os.replace(partial, _packed(path))
        path.unlink()
    finally:
        partial.unlink(missing_ok=True)


def _digest(file: lzma.LZMAFile) -> str:
    digest = hashlib.sha256()
    while block := file.read(COPY_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _packed(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
