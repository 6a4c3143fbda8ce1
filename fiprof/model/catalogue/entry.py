"""A run folder as the catalogue keeps it: what is read of it, and in which form.

A run may be a stranger's: names are escaped and cut, numbers finite, and nothing outside the folder is opened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fiprof.errors import FiprofError
from fiprof.model.annotations import Annotations, Note, read_annotations
from fiprof.model.catalogue import summary
from fiprof.model.catalogue.summary import Result
from fiprof.model.labels import Labels
from fiprof.model.manifest import FILE_NAME, CaseEntry, Manifest, read_manifest
from fiprof.model.run import Run
from fiprof.text import escape_control

DAMAGED = "damaged"
"""Status of a run whose manifest cannot be read."""
LONGEST_TEXT = 4000
"""Characters of a command or a reason."""
MEASURED_BY = ("clock_control", "cache_control")
"""Settings without which ncu's figures of two runs cannot be compared."""
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Environment:
    """What a run was made on."""

    gpu: str | None = None
    uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    packages: tuple[tuple[str, str], ...] = ()
    """Name and version of each that was installed, sorted."""


@dataclass(frozen=True)
class Entry:
    """A run, or what is wrong with it."""

    name: str
    stamp: str
    """See :func:`stamp`."""
    status: str
    """complete, failed, interrupted or damaged."""
    reason: str = ""
    """Why it is not complete; empty otherwise."""
    started: str | None = None
    """ISO 8601 with offset."""
    duration_s: float | None = None
    environment: Environment = Environment()
    fiprof: str | None = None
    replayed_from: str | None = None
    command: str | None = None
    """As it was typed; of older runs the first that was started."""
    git: str | None = None
    """Commit, with ``-dirty`` after changes."""
    user: str | None = None
    host: str | None = None
    conditions: str | None = None
    """Under which ncu measured, e.g. ``clock_control=none, cache_control=all``."""
    bytes: int = 0
    """Of all files of the folder."""
    cases: tuple[CaseEntry, ...] = ()
    case_labels: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    annotations: Annotations = field(default_factory=Annotations)
    results: tuple[Result, ...] = ()

    @property
    def started_us(self) -> int:
        """Microseconds since 1970, UTC; by the name where the manifest does not say, 0 where that has no time."""
        with contextlib.suppress(ValueError):
            began = datetime.fromisoformat(self.started or "")
            return ((began if began.tzinfo else began.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
        with contextlib.suppress(ValueError, OverflowError):
            named = datetime.strptime(self.name[:15], "%Y%m%d-%H%M%S").astimezone()
            return (named - EPOCH) // timedelta(microseconds=1)
        return 0


def stamp(folder: Path | str) -> str | None:
    """What changes when a run folder does; None where it is none.

    Everything that fiprof changes in a run is renamed into its folder, which moves the folder's time; the manifest's
    own time and size tell of whoever edits that in place.
    """
    try:
        inside = os.stat(f"{folder}/{FILE_NAME}", follow_symlinks=False)
        around = os.stat(folder, follow_symlinks=True)
    except OSError:
        return None
    return f"{around.st_mtime_ns:x}-{inside.st_mtime_ns:x}-{inside.st_size:x}"


def read(folder: Path, stamped: str) -> Entry:
    """The entry of a run folder. stamped: its stamp, taken before."""
    name = escape_control(folder.name)
    try:
        manifest = read_manifest(folder)
    except FiprofError as error:
        return Entry(name, stamped, DAMAGED, _text(error.message) or "", bytes=_size(folder))
    program = _dict(manifest.environment.get("program"))
    host = _dict(manifest.environment.get("host"))
    labels = Labels(manifest.cases)
    # Before the folder is measured: it may leave a summary there.
    results = tuple(_with_every_case(manifest, list(_results(folder))))
    return Entry(
        name=name,
        stamp=stamped,
        status=manifest.status,
        reason="" if manifest.status == "complete" else _text(manifest.reason) or "it does not say why",
        started=_text(manifest.started),
        duration_s=manifest.duration_s if math.isfinite(manifest.duration_s) else None,
        environment=_environment(manifest),
        fiprof=_text(manifest.fiprof),
        replayed_from=_text(manifest.replayed_from),
        command=_command(manifest, program),
        git=_git(program.get("git") or manifest.environment.get("git")),
        user=_text(host.get("user")),
        host=_text(host.get("name")),
        conditions=_text(
            ", ".join(f"{name}={manifest.settings[name]}" for name in MEASURED_BY if name in manifest.settings)
        ),
        bytes=_size(folder),
        cases=tuple(_case(case) for case in manifest.cases),
        case_labels=tuple(escape_control(labels(case.id)) for case in manifest.cases),
        tools=tuple(map(escape_control, _tools(manifest))),
        annotations=_annotations(folder),
        results=results,
    )


def _tools(manifest: Manifest) -> Iterable[str]:
    """The profilers that were asked for."""
    found: Iterable[str] = manifest.settings.get("tools", dict.fromkeys(file.tool_name for file in manifest.imported))
    return found


def _results(folder: Path) -> Iterable[Result]:
    """By its summary; without one by its tables, which gives it one where the folder can be written."""
    with contextlib.suppress(FiprofError):
        found = summary.read(folder)
        if found is None:
            run = Run(folder)
            found = summary.summarize(run)
            if run.tables_path.is_dir():
                with contextlib.suppress(FiprofError):
                    summary.write(run, found)
        for each in found.results:
            yield dataclasses.replace(
                each,
                case=each.case and escape_control(each.case),
                kernel=each.kernel and escape_control(each.kernel),
                values={key: value for key, value in each.values.items() if math.isfinite(value)},
            )


def _with_every_case(manifest: Manifest, found: list[Result]) -> list[Result]:
    """With those of which nothing was measured: they were asked for."""
    known = {each.case for each in found}
    cases = dict.fromkeys(escape_control(case.id) for case in manifest.cases)
    return [*found, *(Result(case, None, {}) for case in cases if case not in known)]


def _annotations(folder: Path) -> Annotations:
    with contextlib.suppress(FiprofError):
        found = read_annotations(folder)
        notes = [Note(*(escape_control(text) for text in (note.when, note.who, note.text))) for note in found.notes]
        return Annotations(sorted({escape_control(tag) for tag in found.tags}), notes)
    return Annotations()


def _environment(manifest: Manifest) -> Environment:
    """By the workload's process, or by the driver."""
    state = _dict(_dict(manifest.environment.get("gpu_state")).get("before"))
    gpu = _dict(manifest.environment.get("gpu"))
    uuid = _text(gpu.get("uuid") or state.get("uuid"))
    installed = _dict(manifest.environment.get("packages"))
    packages = ((_text(name), _text(version)) for name, version in installed.items())
    return Environment(
        gpu=_text(gpu.get("name") or state.get("name")),
        uuid=uuid and f"GPU-{uuid.removeprefix('GPU-')}",
        driver=_text(state.get("driver") or manifest.environment.get("driver")),
        cuda=_text(gpu.get("cuda")),
        packages=tuple(sorted((name, version) for name, version in packages if name and version)),
    )


def _command(manifest: Manifest, program: Mapping[str, Any]) -> str | None:
    words = program.get("command") or next((action.argv for action in manifest.actions), ())
    return _text(shlex.join(words))


def _git(found: object) -> str | None:
    if isinstance(found, dict):
        commit = found.get("commit")
        return _text(f"{commit}-dirty" if commit and found.get("dirty") else commit)
    return _text(found)


def _case(case: CaseEntry) -> CaseEntry:
    params = {
        escape_control(name): escape_control(value) if isinstance(value, str) else value
        for name, value in case.params.items()
    }
    return dataclasses.replace(
        case, id=escape_control(case.id), workload=escape_control(case.workload), params=params
    )  # fmt: skip


def _dict(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: object) -> str | None:
    return escape_control(found)[:LONGEST_TEXT] or None if isinstance(found, str) else None


def _size(folder: Path | str) -> int:
    """Bytes of the files in a folder; no link is followed."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += _size(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
