"""What ``fiprof verify`` found, and what ``fiprof prune`` removed or would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fiprof.model.finding import Finding, say, worded
from fiprof.model.keeping import HARMLESS, Pruned, Verified
from fiprof.reports.view import Column, Document, Narrow, view_of

VERIFIED = (
    Column("name", "run", narrow=Narrow.KEEP, meaning="The run's folder."),
    Column("path", meaning="The run folder."),
    Column("intact", meaning="Whether the run is as it was made, or as fiprof changed it since."),
    Column("files", "files", spec=",d", meaning="Files that its run.json names."),
    Column("bytes", unit="bytes", meaning="Of the run folder on disk."),
    Column(
        "tables",
        "tables",
        meaning="whole, rebuildable (missing or damaged, raw files intact), lost, or none.",
    ),
    Column(
        "files_found",
        meaning="Files not as made: missing, changed, damaged, planted, extra, withheld, pruned, leftover.",
    ),
)
PRUNED = (
    Column("name", "run", narrow=Narrow.KEEP),
    Column("path"),
    Column("started", meaning="ISO 8601 with offset."),
    Column(
        "kept",
        meaning="Why its raw files stay: young, baseline, tagged, recorded, no_tables, nothing, damaged; null: none.",
    ),
    Column("raw_files", "raw files", narrow=Narrow.BELOW, meaning="Raw files that go."),
    Column("freed_bytes", unit="bytes", meaning="What they take."),
)


def verified(runs: Sequence[Verified], catalogue: Sequence[Finding] = ()) -> Document:
    """A run with all that was found; of several those that are not intact, and how many there are.

    catalogue: what does not agree in it.
    """
    rows = [
        {
            **vars(run),
            "intact": run.intact,
            "files_found": run.found,
            "mb": run.bytes / 1e6,
            "wrong": sum(each.kind not in HARMLESS for each in run.found),
        }
        for run in runs
    ]
    name, _, _, files, _, tables, _ = VERIFIED
    columns = (name, Column("mb", "size", "MB", ",.1f"), files, tables, Column("wrong", "wrong", spec=",d"))
    harmless = [each for run in runs for each in run.found if each.kind in HARMLESS]
    wrong = [row for row in rows if not row["intact"]]
    warnings = (*(each for run in runs for each in run.found if each.kind not in HARMLESS), *catalogue)
    notes = [worded(each) for each in harmless] if len(runs) == 1 else []
    if harmless and len(runs) > 1:
        words = "{count:file|files} pruned, private or nobody's: fiprof verify RUN names them."
        notes.append(say(words, count=len(harmless)))
    summary = "{wrong} of {count:run|runs} not as made." if wrong else "{count:run is|runs are} as made."
    notes.append(say(summary, count=len(runs), wrong=len(wrong)))
    shown = view_of(columns, rows if len(runs) == 1 else wrong, warnings=warnings, notes=tuple(notes))
    return Document(view_of(VERIFIED, rows), (shown,))


def pruned(runs: Sequence[Pruned], *, dry_run: bool) -> Document:
    """The runs whose raw files go, and how many keep theirs, by why."""
    going = [run for run in runs if run.kept is None]
    rows = [{**vars(run), "when": run.started and run.started[:10], "mb": run.freed_bytes / 1e6} for run in going]
    columns = (PRUNED[0], Column("when", "started", narrow=Narrow.DROP), Column("mb", "frees", "MB", ",.1f"), PRUNED[4])
    kept = Counter(run.kept for run in runs if run.kept is not None)
    notes = [say("kept as it is: {count:run|runs} {why}", count=count, why=why) for why, count in kept.items()]
    words = "nothing to remove"
    if going:
        words = f"{'would free' if dry_run else 'freed'} {{mb:,.1f}} MB of {{count:run|runs}}"
    notes.append(say(words, count=len(going), mb=sum(run.freed_bytes for run in going) / 1e6))
    return Document(view_of(PRUNED, runs), (view_of(columns, rows, notes=tuple(notes)),))
