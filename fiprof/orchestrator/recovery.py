"""What killed fiprofs left in an archive: run folders half made, processes, temporaries. The next command ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fiprof import confined, files
from fiprof.errors import FiprofError
from fiprof.model import packing, redaction
from fiprof.model.layout import NCU_REPORT, NSYS_REPORT, RAW_FOLDERS, TABLES
from fiprof.model.manifest import FILE_NAME, read_manifest
from fiprof.orchestrator import parse
from fiprof.orchestrator.run_folder import OWNER, PARTIAL_PREFIX, RESERVE, Archive, RunFolder

KILLED = "fiprof was killed"
UNFINISHED = "unfinished"
"""Folder for reports that a killed tool may not have written to their end."""


def recover(archive: Archive) -> list[str]:
    """Make runs of the folders that killed fiprofs left, as far as there is anything in them.

    Returns what was done, a sentence each. What cannot be changed is left for a command that may.
    """
    said: list[str] = []
    partials = archive.unfinished()
    if partials:
        files.clear(archive.root)
    for partial in partials:
        with contextlib.suppress(OSError, FiprofError), _taken_over(partial):
            from fiprof.orchestrator.process import end_orphans

            said += [f"ended what a killed fiprof had left running: {process}" for process in end_orphans()]
            if not (partial / FILE_NAME).exists():
                shutil.rmtree(partial)
                continue
            kept = _finish(partial)
            said.append(f"{KILLED} while it collected {kept}: kept as an interrupted run")
    return said


def clear_run(folder: Path) -> None:
    """Remove the temporaries that killed fiprofs left in a run folder."""
    for each in (folder, *(folder / name for name in (*RAW_FOLDERS, TABLES, "logs"))):
        if not each.is_symlink():
            files.clear(each)


@contextlib.contextmanager
def _taken_over(partial: Path) -> Iterator[None]:
    """Hold a folder that is being filled for the length of a block. Raises OSError where a living fiprof has it."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(FileNotFoundError):
            owner = os.open(partial / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, owner)
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _finish(partial: Path) -> Path:
    """Give a killed run its manifest and its name. Returns where it lies now."""
    manifest = read_manifest(partial)
    clear_run(partial)
    made = {entry.path for action in manifest.actions for entry in action.files}
    warnings = list(manifest.warnings)
    folders = [partial / name for name in RAW_FOLDERS if not (partial / name).is_symlink()]
    for path in [path for folder in folders for path in folder.glob("*")]:
        name = str(path.relative_to(partial))
        if name in made or packing.plain_name(name) in made:
            continue
        if name in (NSYS_REPORT, NCU_REPORT) and not manifest.replayed_from:
            kept = confined.make_folder(partial, UNFINISHED) / path.name
            os.rename(path, kept)
            # Not read to its end, so nobody knows whether it holds an environment.
            if not kept.is_symlink():
                kept.chmod(0o600)
            warnings.append(f"{UNFINISHED}/{path.name} was being written when {KILLED}")
        elif not path.is_dir():
            path.unlink()
    if not parse.whole(partial):
        shutil.rmtree(partial / TABLES, ignore_errors=True)
    for name in (RESERVE, OWNER, "logs/.gate"):
        with contextlib.suppress(FileNotFoundError):
            confined.remove(partial, name)
    for log in partial.glob("logs/*.log"):
        name = f"logs/{log.name}"
        with contextlib.suppress(FiprofError):
            data = redaction.mask_log(confined.read_bytes(partial, name))
            with confined.replacing(partial, name) as out:
                out.write(data)
    folder = RunFolder(partial.parent, partial.name.removeprefix(PARTIAL_PREFIX), manifest)
    folder.set(warnings=warnings)
    return folder.finish("interrupted", KILLED, manifest.duration_s)
