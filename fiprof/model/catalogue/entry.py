"""A run folder as the catalogue keeps it: what is read of it, and in which form.

A run may be a stranger's: names are escaped and cut, numbers finite, and nothing outside the folder is opened.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.errors import FiprofError
from fiprof.model.annotations import Annotations, read_annotations
from fiprof.model.catalogue import summary
from fiprof.model.catalogue.summary import Result
from fiprof.model.labels import Labels
from fiprof.model.manifest import FILE_NAME, Manifest, read_manifest
from fiprof.model.run import Run
from fiprof.text import escape_control

LONGEST_TEXT = 4000
"""Characters of a command or a reason."""
EPOCH = datetime.fromtimestamp(0, UTC)

Row = dict[str, Any]


class Entry(NamedTuple):
    """A run as rows of the catalogue's tables, or what is wrong with it."""

    run: Row
    """Columns of ``runs`` that the folder decides."""
    description: Row
    """What is only shown: reason, replayed_from, command, cases, case_labels, tools and notes."""
    environment: Row
    """Columns of ``environments``."""
    parameters: Mapping[str, Row]
    """Case id -> its parameters."""
    results: tuple[Result, ...]


def stamp(folder: Path | str) -> str | None:
    """What changes when a run folder does; None where it is not one.

    Everything that fiprof changes in a run is renamed into its folder, which moves the folder's time; the manifest's
    own time and size change when somebody edits it in place.
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
        problem = ""
    except FiprofError as error:
        manifest, problem = Manifest(name, "failed", "", math.nan, [], {}, {}, []), error.message
    status = "damaged" if problem else manifest.status
    known, settings = manifest.environment, manifest.settings
    program, host, gpu = (_dict(known.get(key)) for key in ("program", "host", "gpu"))
    state = _dict(_dict(known.get("gpu_state")).get("before"))
    uuid = _text(gpu.get("uuid") or state.get("uuid"))
    packages = {_text(key): _text(value) for key, value in _dict(known.get("packages")).items()}
    git = program.get("git") or known.get("git")
    if isinstance(git, dict):
        git = f"{git['commit']}-dirty" if git.get("commit") and git.get("dirty") else git.get("commit")
    # Before the folder is measured: it may leave a summary there.
    results = () if problem else tuple(_results(folder, manifest))
    annotations = Annotations()
    with contextlib.suppress(FiprofError):
        annotations = read_annotations(folder)

    # Microseconds since 1970, UTC; by the folder's name where the manifest does not say, 0 where that has no time.
    started, began = _text(manifest.started), EPOCH
    with contextlib.suppress(ValueError, OverflowError):
        began = datetime.strptime(name[:15], "%Y%m%d-%H%M%S").astimezone()
    with contextlib.suppress(ValueError):
        said = datetime.fromisoformat(started or "")
        began = said if said.tzinfo else said.replace(tzinfo=UTC)

    labels = Labels(manifest.cases)
    words = program.get("command") or next((action.argv for action in manifest.actions), ())
    reason = _text(problem or manifest.reason) or "it does not say why"
    # Without these, ncu's figures of two runs cannot be compared.
    conditions = [f"{key}={settings[key]}" for key in ("clock_control", "cache_control") if key in settings]
    tools = settings.get("tools", dict.fromkeys(file.tool_name for file in manifest.imported))
    return Entry(
        run={
            "name": name,
            "stamp": stamped,
            "status": status,
            "started": started,
            "started_us": (began - EPOCH) // timedelta(microseconds=1),
            "duration_s": manifest.duration_s if math.isfinite(manifest.duration_s) else None,
            "fiprof": _text(manifest.fiprof),
            "git": _text(git),
            "user": _text(host.get("user")),
            "host": _text(host.get("name")),
            "conditions": _text(", ".join(conditions)),
            "bytes": folder_bytes(folder),
            "tags": json.dumps(sorted(set(map(escape_control, annotations.tags)))),
        },
        description={
            "reason": "" if status == "complete" else reason,
            "replayed_from": _text(manifest.replayed_from),
            "command": _text(shlex.join(words)),
            "cases": [escape_control(case.id) for case in manifest.cases],
            "case_labels": [escape_control(labels(case.id)) for case in manifest.cases],
            "tools": list(map(escape_control, tools)),
            "notes": [{key: escape_control(text) for key, text in vars(note).items()} for note in annotations.notes],
        },
        environment={
            "gpu": _text(gpu.get("name") or state.get("name")),
            "uuid": uuid and f"GPU-{uuid.removeprefix('GPU-')}",
            "driver": _text(state.get("driver") or known.get("driver")),
            "cuda": _text(gpu.get("cuda")),
            "packages": json.dumps({key: packages[key] for key in sorted(filter(None, packages)) if packages[key]}),
        },
        parameters={
            escape_control(case.id): {
                escape_control(key): escape_control(value) if isinstance(value, str) else value
                for key, value in case.params.items()
            }
            for case in manifest.cases
        },
        results=results,
    )


def _results(folder: Path, manifest: Manifest) -> Iterator[Result]:
    """The results of the run's summary, made from its tables where it has none, and every case that was asked for."""
    cases = dict.fromkeys(escape_control(case.id) for case in manifest.cases)
    with contextlib.suppress(FiprofError):
        found = summary.read(folder)
        if found is None:
            run = Run(folder)
            found = summary.summarize(run)
            if run.tables_path.is_dir():
                with contextlib.suppress(FiprofError):
                    summary.write(run, found)
        for each in found.results:
            case, kernel = (text and escape_control(text) for text in (each.case, each.kernel))
            cases.pop(case or "", None)
            yield Result(case, kernel, {key: value for key, value in each.values.items() if math.isfinite(value)})
    for case in cases:
        yield Result(case, None, {})


def _dict(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: object) -> str | None:
    return escape_control(found)[:LONGEST_TEXT] or None if isinstance(found, str) else None


def folder_bytes(folder: Path | str) -> int:
    """Bytes of the files in a folder; no link is followed."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += folder_bytes(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
