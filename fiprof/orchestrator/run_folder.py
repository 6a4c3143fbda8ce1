"""The archive of run folders: how one is made, how one is found, and how those of killed fiprofs are recovered."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict, get_args

import fiprof
from fiprof import clock, files
from fiprof.errors import FiprofError
from fiprof.model import json_file, layout, packing
from fiprof.model.json_file import MisfitError, decode
from fiprof.model.manifest import Action, FileEntry, Manifest, Status, is_run, read_manifest
from fiprof.orchestrator import parse

PARTIAL_PREFIX = ".partial-"
RESERVE = ".reserve"  # a file that is removed for the last manifest, so that a run that filled the disk can say so
RESERVE_BYTES = 1 << 18
OWNER = ".owner"  # locked by the process that fills the folder
FURTHEST_WEST = timedelta(hours=12)  # the most that a local time is behind UTC


@dataclasses.dataclass(frozen=True)
class Archive:
    """A folder of run folders."""

    root: Path
    tell: Callable[[str], None] = lambda _: None  # called with a line for the user while something is waited for

    def names(self) -> list[str]:
        """The names of the runs, which begin with their local time, and of folders that this user may not enter."""
        if not self.root.is_dir():
            return []
        return sorted(each.name for each in os.scandir(self.root) if each.name[0] != "." and is_run(each.path))

    def present(self) -> list[str]:
        """The same. Raises FiprofError (exit status 2) where there are none, as in an archive that is not mounted."""
        if names := self.names():
            return names
        raise FiprofError(f"{self.root} holds no run", "fiprof collect --kernel prefill makes one", exit_code=2)

    def by_time(self) -> list[str]:
        """The runs, oldest first by what their manifests say: names are in local time, and clocks are set back.

        Raises as :meth:`present`.
        """
        return sorted(self.present(), key=lambda name: (started(self.root / name), name))

    def unfinished(self) -> list[Path]:
        """Folders of runs that are still being made, or whose fiprof was killed."""
        names = os.listdir(self.root) if self.root.is_dir() else ()
        paths = (self.root / name for name in names if name.startswith(PARTIAL_PREFIX))
        return sorted(path for path in paths if path.is_dir() and not path.is_symlink())

    def latest(self, reads: Callable[[Manifest], bool]) -> Path:
        """The newest complete run that ``reads`` accepts; else the newest that it accepts, else the newest of all.

        Raises as :meth:`present`.
        """
        dated = [((_date(name) or datetime.max).replace(tzinfo=UTC), name) for name in self.present()]
        dated.sort(reverse=True)
        for statuses in (("complete",), get_args(Status)):
            newest: tuple[datetime, str] | None = None
            for local, name in dated:
                if newest and newest[0] - local > FURTHEST_WEST:
                    break
                at = started(self.root / name), name
                with contextlib.suppress(FiprofError):
                    if not newest or at > newest:
                        manifest = read_manifest(self.root / name)
                        newest = at if manifest.status in statuses and reads(manifest) else newest
            if newest:
                return self.root / newest[1]
        return self.root / self.by_time()[-1]

    def find(self, text: str, reads: Callable[[Manifest], bool] = lambda manifest: manifest.kind == "run") -> Path:
        """The run folder that a path, a name, a prefix of either, or ``latest`` means.

        reads: which runs ``latest`` may be; by default not those that hold measured comparisons.
        Raises FiprofError (exit status 2) when there is none or a prefix fits several.
        """
        path = Path(text)
        path = path.parent if path.name == layout.FILE_NAME else path
        if is_run(path):
            return path
        if text == "latest":
            return self.latest(reads)
        if text in self.names():
            return self.root / text
        folder = Archive(path.parent) if len(path.parts) > 1 else self
        prefix = path.name.removesuffix("…").rstrip("*")
        fitting = [name for name in folder.names() if prefix and name.startswith(prefix)]
        if len(fitting) == 1:
            return folder.root / fitting[0]
        if fitting:
            raise FiprofError(f"{text} fits {len(fitting)} runs: {', '.join(fitting)}", "say more of it", exit_code=2)
        study = next((each for each in (path, self.root / text) if (each / layout.STUDY_FILE).exists()), None)
        if study is not None:
            runs = ", ".join(Archive(study).names()) or "none yet"
            remedy = f"its documents begin with {study / 'reports/INDEX.md'}; a run is named {study}/NAME"
            raise FiprofError(f"{study} is a study, not a run; its runs: {runs}", remedy, exit_code=2)
        if path.is_dir():
            read_manifest(path)  # says what it is instead
        remedy = "fiprof runs lists those there are"
        remedy = f"fiprof import {text} makes a run of the file" if path.is_file() else remedy
        raise FiprofError(f"there is no run {text} in {folder.root}", remedy, exit_code=2)

    def create(self, label: str, **known: object) -> RunFolder:
        """A new run folder, named by the time and ``label``, still under its partial name; two at the same second get
        different names. known: fields of its manifest."""
        stem = f"{clock.now():%Y%m%d-%H%M%S}-{label}"
        with files.file_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            for number in range(1, 1000):
                name = stem if number == 1 else f"{stem}-{number}"
                partial = self.root / f"{PARTIAL_PREFIX}{name}"
                if (self.root / name).exists() or partial.exists():
                    continue
                with files.scratch(self.root) as new:
                    for inside in ("logs", layout.TABLES):
                        (new / "run" / inside).mkdir(parents=True)
                    # Other users may not read it until secrets have been masked in what the tools write.
                    (new / "run").chmod((new / "run").stat().st_mode & 0o7700)
                    (new / "run" / RESERVE).write_bytes(bytes(RESERVE_BYTES))
                    owner = os.open(new / "run" / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
                    fcntl.flock(owner, fcntl.LOCK_EX)
                    # Locked before it appears under this name.
                    try:
                        os.rename(new / "run", partial)
                    except OSError as error:
                        os.close(owner)
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                            raise
                        continue
                manifest = Manifest(
                    # Until it ends, so that a killed fiprof leaves no whole-looking run.
                    name, "interrupted", clock.now_text(), 0.0, [], {}, {}, [],
                    reason="fiprof itself ended before the run did", fiprof=fiprof.__version__,
                    argv=["fiprof", *sys.argv[1:]],
                )  # fmt: skip
                folder = RunFolder(self.root, name, manifest, owner)
                folder.set(**known)
                folder.save()
                return folder
        raise FiprofError(f"{self.root} has a thousand runs called {stem}")


class _Start(TypedDict):
    """The field of a manifest by which runs are ordered."""

    started: datetime


def started(folder: Path) -> datetime:
    """When a run began, in UTC: by its manifest, else by its name, else 1970."""
    with contextlib.suppress(MisfitError, FiprofError, OSError):
        text = decode(files.read_bytes(folder, layout.FILE_NAME), _Start)["started"]
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    with contextlib.suppress(ValueError, OverflowError):
        return (_date(folder.name) or datetime.fromtimestamp(0, UTC)).astimezone()
    return datetime.fromtimestamp(0, UTC)


def _date(name: str) -> datetime | None:
    """The local time that the name of a run begins with; None where it has none."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(name[:15], "%Y%m%d-%H%M%S")
    return None


class RunFolder:
    """A run folder while it is filled, and its manifest: every action is on disk before the next one starts. Safe to
    call from threads. owner: descriptor of its file OWNER, which this process has locked."""

    def __init__(self, root: Path, name: str, manifest: Manifest, owner: int | None = None) -> None:
        self.name = name
        self.path = root / f"{PARTIAL_PREFIX}{name}"
        self.final_path = root / name
        self.manifest = manifest
        self._owner = owner
        self._begin = time.monotonic()
        self._lock = threading.RLock()

    def settled(self, text: str) -> str:
        """A text with the folder's final path in place of the partial one."""
        return text.replace(str(self.path), str(self.final_path))

    def set(self, **changes: object) -> None:
        with self._lock:
            self.manifest = dataclasses.replace(self.manifest, **changes)  # type: ignore[arg-type]

    def save(self) -> None:
        with self._lock:
            json_file.write(self.path / layout.FILE_NAME, self.manifest)

    def note(self, **more: Mapping[str, Any] | Iterable[Any]) -> None:
        """Add to fields of the manifest that are dicts or lists."""
        with self._lock:
            for name, added in more.items():
                before = getattr(self.manifest, name)
                self.set(**{name: {**before, **added} if isinstance(added, Mapping) else [*before, *added]})

    def add(self, action: Action) -> None:
        settled = dataclasses.replace(action, message=self.settled(action.message), remedy=self.settled(action.remedy))
        with self._lock:
            self.note(actions=[settled])
            self.save()

    def warn(self, text: str) -> None:
        self.note(warnings=[self.settled(text)])

    def keep_private(self, paths: Collection[str]) -> None:
        """Keep tools' files in which a secret was found from other users, and out of bundles."""

        def as_private(entry: FileEntry) -> FileEntry:
            if str(path := self.path / entry.path) not in paths:
                return entry
            path.chmod(0o600)
            return dataclasses.replace(entry, private=True)

        with self._lock:
            actions = self.manifest.actions
            self.set(actions=[dataclasses.replace(each, files=list(map(as_private, each.files))) for each in actions])

    def finish(self, status: Status, reason: str, duration_s: float | None = None) -> Path:
        """Write the manifest and give the folder its name. Returns its path. duration_s: by default since the begin."""
        if duration_s is None:
            duration_s = round(time.monotonic() - self._begin, 3)
        tables = parse.table_entries(self.path)
        self.set(status=status, reason=self.settled(reason), duration_s=duration_s, tables=tables)
        (self.path / RESERVE).unlink(missing_ok=True)
        try:
            self.save()
        finally:
            # Also when the disk is too full for the last manifest: the one before says that the run was interrupted.
            with files.file_errors(self.path.parent):
                (self.path / OWNER).unlink(missing_ok=True)
                mode = (self.path / layout.FILE_NAME).stat().st_mode & 0o666
                self.path.chmod(self.path.stat().st_mode & 0o7777 | mode | (mode & 0o444) >> 2)
                os.rename(self.path, self.final_path)
            if self._owner is not None:
                os.close(self._owner)
        return self.final_path


def file_entry(folder: Path, path: Path) -> FileEntry:
    """Size and checksum of a file in a run folder. A report that holds an environment is kept from other users."""
    from fiprof.model import redaction

    # The tools' own formats, in which secrets cannot be masked.
    private = path.suffix in (".nsys-rep", ".ncu-rep") and redaction.holds_environment(path)
    if private:
        path.chmod(0o600)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(str(path.relative_to(folder)), path.stat().st_size, digest.hexdigest(), private)


KILLED = "fiprof was killed"
UNFINISHED = "unfinished"  # folder for reports that a killed tool may not have written to their end


def recover(archive: Archive) -> list[str]:
    """Make interrupted runs of the folders that killed fiprofs left; those without a manifest are removed.

    Returns what was done, a sentence each. Folders that this process may not change stay.
    """
    messages: list[str] = []
    partials = archive.unfinished()
    if partials:
        files.clear(archive.root)
    for partial in partials:
        with contextlib.suppress(OSError, FiprofError), contextlib.ExitStack() as descriptors:
            with contextlib.suppress(FileNotFoundError):
                owner = os.open(partial / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                descriptors.callback(os.close, owner)
                # Refused where a living fiprof has it.
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            from fiprof.orchestrator.process import end_orphans

            messages += [f"ended what a killed fiprof had left running: {process}" for process in end_orphans()]
            if not (partial / layout.FILE_NAME).exists():
                shutil.rmtree(partial)
                continue
            path = _finish(partial)
            messages.append(f"{KILLED} while it collected {path}: kept as an interrupted run")
    return messages


def clear_run(folder: Path) -> None:
    """Remove the temporaries that killed fiprofs left in a run folder."""
    for each in (folder, *(folder / name for name in (*layout.RAW_FOLDERS, layout.TABLES, "logs"))):
        if not os.path.islink(each):
            files.clear(each)


def _finish(partial: Path) -> Path:
    """Give a killed run its manifest and its name. Returns where it lies now."""
    manifest = read_manifest(partial)
    clear_run(partial)
    listed = {entry.path for action in manifest.actions for entry in action.files}
    warnings = list(manifest.warnings)
    folders = [partial / name for name in layout.RAW_FOLDERS if not (partial / name).is_symlink()]
    for path in [path for folder in folders for path in folder.glob("*")]:
        name = str(path.relative_to(partial))
        if name in listed or packing.plain_name(name) in listed:
            continue
        if name in (layout.NSYS_REPORT, layout.NCU_REPORT) and not manifest.replayed_from:
            unfinished = files.make_folder(partial, UNFINISHED) / path.name
            os.rename(path, unfinished)
            # Not read to its end, so nobody knows whether it holds an environment.
            if not unfinished.is_symlink():
                unfinished.chmod(0o600)
            warnings.append(f"{UNFINISHED}/{path.name} was being written when {KILLED}")
        elif not path.is_dir():
            path.unlink()
    if not parse.whole(partial):
        shutil.rmtree(partial / layout.TABLES, ignore_errors=True)
    for name in (RESERVE, OWNER, "logs/.gate"):
        with contextlib.suppress(FileNotFoundError):
            files.remove(partial, name)
    from fiprof.model import redaction

    for log in (*partial.glob("logs/*.log"), *partial.glob("**/*.jsonl")):
        with contextlib.suppress(FiprofError):
            redaction.mask_file(partial, name := str(log.relative_to(partial)))
            # The secrets of the killed one's environment are not known here.
            if log.suffix == ".jsonl" and name not in listed:
                log.chmod(0o600)
    folder = RunFolder(partial.parent, partial.name.removeprefix(PARTIAL_PREFIX), manifest)
    folder.set(warnings=warnings)
    return folder.finish("interrupted", KILLED, manifest.duration_s)
