"""How a run becomes a baseline."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
from datetime import datetime
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.baselines import NamedBaseline, require_name, write_baseline
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.orchestrator.archive import Archive
from fiprof.orchestrator.environment import DIRTY, full_commit


def set_baseline(archive: Archive, name: str, folder: Path, commit: str | None = None) -> tuple[Path, NamedBaseline]:
    """Make a run of the archive a baseline, in the place of another of the name. Returns its file too.

    commit: whose tree it stands for; that of the run where it is None.
    Raises FiprofError for a run of another archive, without cases or of changes that are in no commit (exit status 2
    for a name or a commit that is none), and where the file cannot be written.
    """
    require_name(name)
    manifest = read_manifest(folder)
    if folder.resolve().parent != archive.root.resolve():
        raise FiprofError(f"{folder} lies outside the archive {archive.root}", "name its archive with --artifacts DIR")
    if manifest.status != "complete":
        raise FiprofError(f"{folder.name} is no baseline: the run {manifest.status}", "collect it again")
    if not manifest.cases:
        raise FiprofError(
            f"{folder.name} is no baseline: it names no case that could be measured again",
            "fiprof collect and fiprof compare --measure make runs with cases",
        )
    baseline = NamedBaseline(
        name=name,
        run=folder.resolve().name,
        commit=_commit(manifest, commit),
        set_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        set_by=f"{_user()}@{platform.node()}",
    )
    return write_baseline(archive.root, baseline), baseline


def _commit(manifest: Manifest, given: str | None) -> str | None:
    """In full where this checkout has it."""
    if given is not None:
        if found := full_commit(Path.cwd(), given):
            return found
        raise FiprofError(f"git knows no commit {given} here", "git log --oneline lists them", exit_code=2)
    found = manifest.environment.get("git")
    if not isinstance(found, str):
        return None
    if found.endswith(DIRTY):
        raise FiprofError(
            f"{manifest.name} was made of {found.removesuffix(DIRTY)} with changes that are in no commit",
            "commit them and collect it again, or name the commit that it stands for: --commit REV",
        )
    return full_commit(Path.cwd(), found) or found


def _user() -> str:
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())
