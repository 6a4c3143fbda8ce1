"""Removing raw files of old runs: tables, manifest, logs and report stay, and the manifest says what went and when."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from fiprof import clock, confined
from fiprof.errors import FiprofError
from fiprof.files import file_errors, write_whole
from fiprof.model import packing
from fiprof.model.annotations import read_annotations
from fiprof.model.baselines import baselines
from fiprof.model.keeping import Kept, Pruned
from fiprof.model.layout import RAW_FOLDERS, RECORDED
from fiprof.model.manifest import FILE_NAME, Manifest, PrunedFile, read_manifest
from fiprof.orchestrator import parse
from fiprof.orchestrator.recovery import clear_run
from fiprof.orchestrator.run_folder import Archive, started


@dataclass(frozen=True)
class Policy:
    """Which runs lose their raw files."""

    older_than: timedelta
    keep_baselines: bool = True
    keep_tags: Collection[str] = ()


def prune(archive: Archive, policy: Policy, *, dry_run: bool) -> Iterator[Pruned]:
    """Go through the runs of an archive, the oldest first. Yields each when it is done.

    First the manifest says what goes, then it goes: at whatever moment this ends, the manifest is right, and what is
    left goes the next time. Raises FiprofError where a baseline cannot be read, or nothing can be removed.
    """
    kept = {each.run for each in baselines(archive.root)} if policy.keep_baselines else set()
    before = clock.now() - policy.older_than
    for name in archive.by_time():
        yield _run(archive.root / name, before, kept, policy.keep_tags, dry_run=dry_run)


def _run(
    folder: Path, before: datetime, baseline_runs: Collection[str], keep_tags: Collection[str], *, dry_run: bool
) -> Pruned:
    try:
        manifest = read_manifest(folder)
        there = _raw_files(folder, manifest)
        tags = set(read_annotations(folder).tags)
    except FiprofError:
        return Pruned(folder.name, str(folder), None, Kept.DAMAGED)
    going = {each.path for each in manifest.pruned} & there.keys()
    if not going:
        why = Kept.TAGGED if tags & {*keep_tags} else _why_kept(folder, before, baseline_runs, there)
        if why:
            return Pruned(folder.name, str(folder), manifest.started, why)
        going = set(there)
    sizes = {}
    for name in sorted(going):
        # Another prune may have removed it.
        with contextlib.suppress(FileNotFoundError):
            sizes[name] = (folder / there[name]).stat().st_size
    if not dry_run:
        _remove(folder, manifest, {name: there[name] for name in sizes}, sizes)
    return Pruned(folder.name, str(folder), manifest.started, None, tuple(sizes), sum(sizes.values()))


def _raw_files(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Raw files that the run made and still has -> the names under which they lie."""
    names = [name for name in manifest.files if name.partition("/")[0] in RAW_FOLDERS]
    return {name: there for name in names if (there := packing.stored(folder, name)) is not None}


def _why_kept(folder: Path, before: datetime, baseline_runs: Collection[str], there: Collection[str]) -> Kept | None:
    if not there:
        return Kept.NOTHING
    if RECORDED in folder.resolve().parts:
        return Kept.RECORDED
    if started(folder) >= before:
        return Kept.YOUNG
    if folder.name in baseline_runs:
        return Kept.BASELINE
    return None if parse.whole(folder) else Kept.NO_TABLES


def _remove(folder: Path, manifest: Manifest, there: dict[str, str], sizes: dict[str, int]) -> None:
    """there: raw file -> the name under which it lies."""
    when = clock.now_text("seconds")
    said = {each.path for each in manifest.pruned}
    pruned = [*manifest.pruned, *(PrunedFile(name, sizes[name], when) for name in there if name not in said)]
    with file_errors(folder, "whoever owns the run may prune it"):
        clear_run(folder)
        write_whole(folder / FILE_NAME, dataclasses.replace(manifest, pruned=pruned).to_json())
        for name in there.values():
            with contextlib.suppress(FileNotFoundError):
                confined.remove(folder, name)
        # Whoever knows a run by the time of its manifest learns that it is smaller.
        os.utime(folder / FILE_NAME, follow_symlinks=False)
