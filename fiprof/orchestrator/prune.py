"""Removing raw files of old runs: tables, manifest, logs and report stay, and the manifest says what went and when."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from fiprof import clock, confined
from fiprof.errors import FiprofError
from fiprof.files import file_errors, write_whole
from fiprof.model import baselines, packing
from fiprof.model.keeping import Kept, Pruned, read_annotations
from fiprof.model.manifest import FILE_NAME, RAW_FOLDERS, RECORDED, Manifest, PrunedFile, read_manifest
from fiprof.orchestrator import parse
from fiprof.orchestrator.run_folder import Archive, clear_run, started


def prune(
    archive: Archive,
    older_than: timedelta,
    *,
    keep_baselines: bool = True,
    keep_tags: Collection[str] = (),
    dry_run: bool = False,
) -> Iterator[Pruned]:
    """Go through the runs of an archive, the oldest first. Yields each when it is done.

    First the manifest says what goes, then it goes: at whatever moment this ends, the manifest is right, and what is
    left goes the next time. Raises FiprofError where a baseline cannot be read, or nothing can be removed.
    """
    kept = (
        {baselines.read_baseline(archive.root, name).run for name in baselines.names(archive.root)}
        if keep_baselines
        else set()
    )
    before = clock.now() - older_than
    for folder in [archive.root / name for name in archive.by_time()]:
        try:
            manifest = read_manifest(folder)
            names = [name for name in manifest.files if name.partition("/")[0] in RAW_FOLDERS]
            # Raw files that the run made and still has -> the names under which they lie.
            there = {name: at for name in names if (at := packing.stored(folder, name)) is not None}
            tags = set(read_annotations(folder).tags)
        except FiprofError:
            yield Pruned(folder.name, str(folder), None, Kept.DAMAGED)
            continue
        # Those of a prune that was interrupted go first.
        going = {each.path for each in manifest.pruned} & there.keys()
        if not going:
            why = Kept.TAGGED if tags & {*keep_tags} else _why_kept(folder, before, kept, there)
            if why:
                yield Pruned(folder.name, str(folder), manifest.started, why)
                continue
            going = set(there)
        sizes = {}
        for name in sorted(going):
            # Another prune may have removed it.
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = (folder / there[name]).stat().st_size
        if not dry_run:
            _remove(folder, manifest, there, sizes)
        yield Pruned(folder.name, str(folder), manifest.started, None, tuple(sizes), sum(sizes.values()))


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
    """there: raw file -> the name under which it lies. sizes: of those that go, bytes."""
    when = clock.now_text("seconds")
    said = {each.path for each in manifest.pruned}
    pruned = [*manifest.pruned, *(PrunedFile(name, size, when) for name, size in sizes.items() if name not in said)]
    with file_errors(folder, "whoever owns the run may prune it"):
        clear_run(folder)
        write_whole(folder / FILE_NAME, dataclasses.replace(manifest, pruned=pruned).to_json())
        for name in sizes:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(folder, there[name])
        # Whoever knows a run by the time of its manifest learns that it is smaller.
        os.utime(folder / FILE_NAME, follow_symlinks=False)
