"""Raw files of a run that lie elsewhere than under their name: compressed, or outside the folder.

FILE.zst or FILE.xz stands for FILE, and is read in its place. A run is packed with zstd when it is made: the recorded
ones shrink to an eighth within a second. Files that somebody packed with ``xz`` are half of that. An imported file that
was linked is read where it lies, and only while it has the checksum that ``run.json`` gives: a run of somebody else's
can make nobody read a file that he did not have.
"""

import contextlib
import hashlib
import lzma
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from fiprof import files
from fiprof.errors import FiprofError
from fiprof.model import layout
from fiprof.model.manifest import ImportedFile, read_manifest

ZSTD, XZ = ".zst", ".xz"
LEFT_PLAIN = (".jsonl", ".nsys-rep")
"""What is not packed: it is small, or its tool made it small (zstd leaves 65 % of a .nsys-rep, 7 % of a .ncu-rep)."""
COPY_BYTES = 1 << 20
UNRECORDED_BYTES = 1 << 30  # most that a packed file may hold of which the manifest says nothing
LARGEST_RATIO = 1000
"""Most that a packed file may grow, whatever the manifest says; those of profilers grow 5 to 40 times."""
SMALLEST_LIMIT = 1 << 20
_LINK_REMEDY = "put it back where it was, or import it again: fiprof import FILE"


def exists(folder: Path, name: str) -> bool:
    """Whether a run folder has a raw file, packed or linked too."""
    return stored(folder, name) is not None or _link(folder, name) is not None


def stored(folder: Path, name: str) -> str | None:
    """The name under which a raw file lies in its run folder, packed or not; None where it is not there."""
    return next((name + suffix for suffix in ("", ZSTD, XZ) if files.exists(folder, name + suffix)), None)


def plain_name(name: str) -> str:
    """The name of the file that a packed one stands for."""
    return name.removesuffix(ZSTD).removesuffix(XZ)


def _link(folder: Path, name: str) -> ImportedFile | None:
    """What the manifest says of a file that was linked; None where it was not."""
    with contextlib.suppress(FiprofError):
        return next((file for file in read_manifest(folder).imported if file.linked and file.path == name), None)
    return None


def _linked(file: ImportedFile) -> Path:
    path = Path(file.source)
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(source, "rb") as opened:
            status, differs = os.fstat(source), ""
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.bytes:
                differs = "size"
            elif hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                differs = "checksum"
            if differs:
                raise FiprofError(f"{path} is not the file that was imported: its {differs} differs", _LINK_REMEDY)
    except OSError as error:
        what = f"{path}, which the run is linked to, cannot be read: {error.strerror}"
        raise FiprofError(what, _LINK_REMEDY) from error
    return path


@contextlib.contextmanager
def unpacked(folder: Path, name: str) -> Iterator[Path]:
    """A raw file of a run folder as a plain one for the length of a block; itself where it is not packed."""
    packed = stored(folder, name)
    if packed in (None, name):
        link = None if packed else _link(folder, name)
        yield _linked(link) if link else folder / name
        return
    with contextlib.ExitStack() as held:
        for place in (folder, None, files.MEMORY):
            try:
                with files.file_errors(folder), contextlib.ExitStack() as trial:
                    if not place:
                        files.cache_folder().mkdir(parents=True, exist_ok=True)
                    temporary = trial.enter_context(files.scratch(place or files.cache_folder()))
                    copy_out(folder, name, temporary)
                    held.enter_context(trial.pop_all())
                break
            except (files.Unwritable, FileExistsError):
                if place == files.MEMORY:
                    raise
        try:
            yield temporary / name
        except FiprofError as error:
            # What is wrong with the copy is wrong with the file, which is still there to look at.
            error.message = error.message.replace(str(temporary / name), str(folder / str(packed)))
            raise


def copy_out(folder: Path, name: str, target: Path) -> None:
    """Copy a raw file, packed or not, to a plain one of the same name and permissions in another folder."""
    with files.file_errors(target / name):
        stored_name = stored(folder, name)
        mode = (folder / stored_name).stat().st_mode & 0o666 if stored_name else 0o666
        with files.replacing(target, name, mode) as out:
            for block in _blocks(folder, name):
                out.write(block)


def checksum(folder: Path, name: str) -> str:
    """SHA-256 of a raw file's plain content. Raises OSError."""
    if stored(folder, name) is None and (link := _link(folder, name)):
        _linked(link)
        return link.sha256
    return _digest(_blocks(folder, name))


def _digest(blocks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def pack(folder: Path, stopped: Callable[[], bool] = lambda: False, *, within: str = "") -> list[Path]:
    """Compress the files of a run that its actions made, with zstd. Returns those that were.

    Each is read back and compared with the manifest's checksum before the other goes. Two at once do no harm.
    stopped: whether to leave the rest as it is. within: the only folder of the run whose files are.
    Raises FiprofError when a file differs from its checksum or there is no room; the plain file stays then.
    """
    import pyarrow as pa

    packed = []
    for entry in read_manifest(folder).files.values():
        path, target = folder / entry.path, entry.path + ZSTD
        if stopped() or not entry.path.startswith(within) or entry.path.endswith(LEFT_PLAIN):
            continue
        if stored(folder, entry.path) != entry.path:
            continue
        # Another one that packs may have removed it.
        with files.file_errors(path), contextlib.suppress(FileNotFoundError):
            with files.replacing(folder, target, path.stat().st_mode & 0o666) as out:
                # Arrow closes what it writes to. Its level of zstd is 1.
                with (
                    open(os.dup(out.fileno()), "wb", buffering=0) as sink,
                    pa.CompressedOutputStream(pa.PythonFile(sink), "zstd") as compressed,
                ):
                    for block in _blocks(folder, entry.path):
                        compressed.write(block)
                out.seek(0)
                if _digest(_decompressed_zstd(out)) != entry.sha256:
                    what = f"{path} is not the file that its run made: the checksum in run.json differs"
                    raise FiprofError(what, "it was changed after the run, and is left as it is")
            files.remove(folder, entry.path)
            packed.append(folder / target)
    _touch(folder, packed)
    return packed


def unpack(folder: Path) -> list[Path]:
    """Replace the packed files of a run by plain ones, for the tools' own viewers. Returns those."""
    plain = []
    for name in read_manifest(folder).files:
        if (stored_name := stored(folder, name)) not in (None, name):
            copy_out(folder, name, folder)
            files.remove(folder, str(stored_name))
            plain.append(folder / name)
    _touch(folder, plain)
    return plain


def _touch(folder: Path, changed: Sequence[Path]) -> None:
    """Have those who know a run by the time of its manifest learn that its size has changed."""
    if changed:
        with files.file_errors(folder):
            os.utime(folder / layout.FILE_NAME, follow_symlinks=False)


def _blocks(folder: Path, name: str) -> Iterator[bytes]:
    """The plain content of a raw file, packed or not, block by block."""
    stored_name = stored(folder, name) or name
    path = folder / stored_name
    with files.open_file(folder, stored_name) as source:
        if stored_name == name:
            while block := source.read(COPY_BYTES):
                yield block
            return
        # Most that it may hold: what the manifest says, and what such a file can.
        recorded = UNRECORDED_BYTES
        with contextlib.suppress(FiprofError):
            actions = read_manifest(folder).actions
            sizes = (entry.bytes for action in actions for entry in action.files if entry.path == name)
            recorded = max(sizes, default=UNRECORDED_BYTES)
        bytes_left = min(recorded, max(SMALLEST_LIMIT, os.fstat(source.fileno()).st_size * LARGEST_RATIO))
        try:
            for block in _decompressed_zstd(source) if stored_name.endswith(ZSTD) else _decompressed_xz(source):
                bytes_left -= len(block)
                if bytes_left < 0:
                    what = f"{path} holds more than its run made of {name}"
                    raise FiprofError(what, "it is damaged or made to fill the disk")
                yield block
        except (lzma.LZMAError, EOFError) as error:
            raise FiprofError(f"{path} is damaged: {error}", "fetch or copy it again") from error


def _decompressed_xz(source: BinaryIO) -> Iterator[bytes]:
    """The plain content with a limit to the memory. Raises LZMAError, EOFError."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, 256 << 20)  # ``xz -9`` needs 65 MiB
    while not decompressor.eof:
        data = source.read(COPY_BYTES) if decompressor.needs_input else b""
        if decompressor.needs_input and not data:
            raise EOFError("it is cut short")
        yield decompressor.decompress(data, COPY_BYTES)


def _decompressed_zstd(source: BinaryIO) -> Iterator[bytes]:
    """As zstd does it, which refuses by itself what needs more than 128 MiB."""
    import pyarrow as pa

    if not os.fstat(source.fileno()).st_size:
        raise EOFError("it is empty")
    with (
        open(os.dup(source.fileno()), "rb", buffering=0) as raw,
        pa.CompressedInputStream(pa.PythonFile(raw), "zstd") as plain,
    ):
        raw.seek(0)
        while True:
            try:
                block = plain.read(COPY_BYTES)
            except OSError as error:
                raise EOFError(str(error)) from error
            if not block:
                return
            yield block
