"""The catalogue of an archive, brought up to date from the run folders: they are the truth, it can go at any time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof import files

if TYPE_CHECKING:
    from fiprof.model.catalogue.queries import Answer, Question
    from fiprof.model.catalogue.store import Catalogue
    from fiprof.orchestrator.run_folder import Archive

VARIABLE = "FIPROF_CATALOG"
FILE_NAME = "catalogue.sqlite"
SUFFIXES = ("", "-wal", "-shm", "-journal")  # of the files that SQLite keeps
IDENTITY = "archive.id"  # what tells an archive from others in a database that several share, wherever it is mounted
SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "gpfs", "ceph", "beegfs", "afs", "glusterfs"}
"""File systems of several machines: SQLite's WAL works on one only (sqlite.org/wal.html)."""


def opened(archive: Archive, url: str | None = None, *, anew: bool = False) -> Catalogue:
    """The catalogue of an archive, with this fiprof's tables; not yet brought up to date.

    url: of the database; else FIPROF_CATALOG, else an SQLite file beside the runs, or in the user's cache folder where
    the archive may not be written or is another machine's. anew: make such a file again. Raises FiprofError.
    """
    from fiprof.model.catalogue.store import Catalogue, Damaged

    root = archive.root.resolve()
    if named := url or os.environ.get(VARIABLE):
        # What tells the archive from others there: a number in a file of it, or its host and path.
        identity = os.fsencode(f"{platform.node()}:{root}") if root.is_dir() else b""
        with contextlib.suppress(OSError):
            if identity and not files.exists(root, IDENTITY):
                with files.scratch(root) as new, contextlib.suppress(FileExistsError):
                    (new / IDENTITY).write_text(f"{uuid.uuid4()}\n")
                    # Of two at once the first.
                    os.link(new / IDENTITY, root / IDENTITY)
            identity = identity and files.read_bytes(root, IDENTITY)
        key = hashlib.sha256(identity).hexdigest()[:32] if identity else "none"
        return Catalogue(named, archive.tell).migrate().of(archive.root, key, alone=False)
    file, usable = _file(root) if root.is_dir() else None, None
    with contextlib.suppress(*([Damaged] if file else [])):
        usable = None if anew and file else Catalogue(f"sqlite:///{file or ':memory:'}", archive.tell).migrate()
    for suffix in () if usable else SUFFIXES:
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    catalogue = usable or Catalogue(f"sqlite:///{file}", archive.tell).migrate()
    # A copy of an archive brings a catalogue of other folders along.
    return catalogue.of(archive.root, f"inode {root.stat().st_ino}" if file else "none", alone=True)


def exists(archive: Archive, url: str | None = None) -> bool:
    """Whether an archive has a catalogue, or ought to."""
    with contextlib.suppress(files.Unwritable):
        return bool(url or os.environ.get(VARIABLE)) or _file(archive.root.resolve()).exists()
    return False


def answer(archive: Archive, question: Question, url: str | None = None) -> Answer:
    """What the catalogue says of the archive as it is now. url: as for :func:`opened`. Raises FiprofError."""
    from fiprof.model.catalogue import queries

    try:
        catalogue = opened(archive, url)
        catalogue.refresh()
    except files.Unwritable:
        if url or os.environ.get(VARIABLE):
            raise
        catalogue = opened(archive, "sqlite://")
        catalogue.refresh()
    with catalogue.transaction():
        return queries.ask(catalogue, question)


def share(folder: Path, tell: Callable[[str], None]) -> None:
    """Tell a database of several people of a new or changed run, where FIPROF_CATALOG names one.

    A catalogue beside the runs needs no telling: whoever asks it looks for new folders first.
    tell: is told what has to be waited for.
    """
    if os.environ.get(VARIABLE):
        from fiprof.model.catalogue.store import read_entry, stamp
        from fiprof.orchestrator.run_folder import Archive

        catalogue = opened(Archive(folder.parent, tell))
        if stamped := stamp(folder):
            catalogue.add([read_entry(folder, stamped)])


def _file(root: Path) -> Path:
    in_archive = root / FILE_NAME
    for suffix in SUFFIXES:
        files.require_replaceable(Path(f"{in_archive}{suffix}"))
    longest, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines():
            mount, file_system = line.split(" ")[1:3]
            mount = mount.replace("\\040", " ")
            if len(mount) >= len(longest) and root.is_relative_to(mount):
                longest, kind = mount, file_system
    shared = kind in SHARED or kind.startswith("fuse.")
    if not shared and os.access(root, os.W_OK) and (not in_archive.exists() or os.access(in_archive, os.W_OK)):
        return in_archive
    folder = files.cache_folder() / "catalogues"
    another = "set XDG_CACHE_HOME to a folder that you may write, or name a catalogue with --catalog"
    with files.file_errors(folder, another):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.sqlite"
