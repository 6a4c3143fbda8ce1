"""The runs of an archive, and what was measured in them, as the catalogue answers; what ``verify`` found and
``prune`` removed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fiprof.model.catalogue.queries import Answer, Question
from fiprof.model.catalogue.store import Row
from fiprof.model.finding import Finding, say, words_of
from fiprof.model.keeping import HARMLESS, Verified
from fiprof.model.manifest import run_warning
from fiprof.model.selection import Labels
from fiprof.reports.view import Column, Document, Narrow, View, view_of

MOST_ROWS = 50  # rows that people are shown: the newest, or the first in the order that was asked for
MOST_WORKLOADS = 4  # workloads of a run that are named
NONE = "no runs yet: fiprof collect makes one"
NOTHING = "nothing fits: fiprof runs without filters lists what there is"
RUN_KEYS = (
    "name", "status", "path", "reason", "started", "duration_s", "cases", "case_labels", "gpu", "uuid", "driver",
    "tools", "fiprof", "replayed_from", "command", "git", "user", "host", "bytes", "tags", "baselines", "notes",
)  # fmt: skip
RESULT_KEYS = ("name", "path", "started", "gpu", "uuid", "driver", "git", "tags", "case", "kernel")


def document(
    answer: Answer, query: Question, baselines: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Document:
    """An answer of the catalogue to a question. baselines: a run folder's path -> the baselines that it is."""
    rows, filtered = answer.rows, query != Question(sort=query.sort, limit=query.limit, everywhere=query.everywhere)
    programs, shown = _results(rows, query.metrics) if query.metrics else _runs(rows, baselines, filtered=filtered)
    more = say("There are more: --limit N or --all shows them.")
    return Document(programs, (shown,), notes=(more,) if answer.more else ())


def _runs(runs: Sequence[Row], baselines: Mapping[str, tuple[str, ...]], *, filtered: bool) -> tuple[View, View]:
    """For programs and for people."""
    rows = [
        row
        | {key: tuple(row[key]) for key in ("cases", "case_labels", "tools", "notes")}
        | {
            "baselines": baselines.get(row["path"], ()),
            "state": f"{row['status']}, replay" if row["replayed_from"] else row["status"],
            "when": when(row["started"]),
            "megabytes": row["bytes"] / 1e6,
            "what": _workloads(row["cases"]),
            "said": "; ".join(note["text"] for note in row["notes"]),
        }
        for row in runs
    ]
    columns = [
        Column("name", "run", narrow=Narrow.KEEP),
        Column("state", "status"),
        Column("when", "started", narrow=Narrow.KEEP),
        Column("duration_s", "took", "s", ".1f"),
        Column("megabytes", "size", "MB", ".1f", narrow=Narrow.DROP),
        Column("gpu", "GPU", narrow=Narrow.DROP),
        Column("fiprof", "fiprof", narrow=Narrow.DROP),
        *([Column("baselines", "baseline")] if any(row["baselines"] for row in rows) else []),
        *([Column("tags", "tags")] if any(row["tags"] for row in rows) else []),
        Column("what", "cases", narrow=Narrow.BELOW),
        *([Column("said", "notes", narrow=Narrow.BELOW)] if any(row["said"] for row in rows) else []),
    ]  # fmt: skip
    ended = [row for row in rows if row["status"] != "complete"]
    warnings = tuple(run_warning(row["status"], row["name"], row["reason"]) for row in ended)
    notes = () if rows else (NOTHING if filtered else NONE,)
    return view_of(list(map(Column, RUN_KEYS)), rows), view_of(columns, rows, warnings=warnings, notes=notes)


def _workloads(cases: Sequence[str]) -> str:
    """The workloads, each with its number of cases where it has several."""
    counts = Counter(case.partition("[")[0] for case in cases)
    words = [f"{count} × {name}" if count > 1 else name for name, count in counts.items()]
    more = [f"{len(words) - MOST_WORKLOADS} more"] if len(words) > MOST_WORKLOADS + 1 else []
    return ", ".join(words[:MOST_WORKLOADS] + (more or words[MOST_WORKLOADS:]))


def _results(results: Sequence[Row], metrics: Sequence[str]) -> tuple[View, View]:
    """For programs and for people."""
    label = Labels(filter(None, {row["case"]: None for row in results}))
    rows = [{**row, "when": when(row["started"]), "label": label(row["case"])} for row in results]
    values = list(map(metric_column, metrics))
    columns = [
        Column("name", "run", narrow=Narrow.KEEP),
        Column("when", "started", narrow=Narrow.DROP),
        Column("gpu", "GPU", narrow=Narrow.DROP),
        Column("git", "commit", narrow=Narrow.DROP),
        Column("label", "case", narrow=Narrow.ABOVE),
        *([Column("kernel", "kernel", narrow=Narrow.ABOVE)] if any(row["kernel"] for row in results) else []),
        *values,
    ]
    programs = view_of([*map(Column, RESULT_KEYS), *values], rows)
    return programs, view_of(columns, rows, notes=() if rows else (NOTHING,))


def when(started: str | None) -> str | None:
    """The start to the minute, in its own time zone."""
    return started and started[:16].replace("T", " ")


def metric_column(key: str) -> Column:
    """A column of a quantity of the catalogue."""
    # Only here: a list of runs needs no NumPy.
    from fiprof.model.case_quantities import KEYS
    from fiprof.model.quantities import Quantity

    key_info = KEYS[key]
    spec = key_info.spec if isinstance(key_info, Quantity) else ".1%" if key.endswith(("_share", "_spread")) else ",.2f"
    return Column(key, key, key_info.unit, spec, key_info.meaning)


VERIFIED = (
    Column("name", "run", narrow=Narrow.KEEP, meaning="The run's folder."),
    Column("path", meaning="The run folder."),
    Column("intact", meaning="Whether the run is as it was made, or as fiprof changed it since."),
    Column("files", "files", spec=",d", meaning="Files that its run.json names."),
    Column("bytes", unit="bytes", meaning="Of the run folder on disk."),
    Column("tables", "tables", meaning="whole, rebuildable (missing or damaged, raw files intact), lost, or none."),
    Column("files_found", meaning="Files missing, changed, damaged, planted, extra, withheld, pruned, leftover."),
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
    """A run with all that was found; of several those that are not intact. catalogue: what does not agree in it."""
    rows = []
    for run in runs:
        wrong_files = sum(each.kind not in HARMLESS for each in run.found)
        own = {"intact": run.intact, "files_found": run.found, "mb": run.bytes / 1e6, "wrong": wrong_files}
        rows.append({**vars(run), **own})
    name, _, _, files, _, tables, _ = VERIFIED
    columns = (name, Column("mb", "size", "MB", ",.1f"), files, tables, Column("wrong", "wrong", spec=",d"))
    harmless = [each for run in runs for each in run.found if each.kind in HARMLESS]
    wrong = [row for row in rows if not row["intact"]]
    warnings = (*(each for run in runs for each in run.found if each.kind not in HARMLESS), *catalogue)
    notes = [words_of(each) for each in harmless] if len(runs) == 1 else []
    if harmless and len(runs) > 1:
        words = "{count:file|files} pruned, private or unowned: fiprof verify RUN names them."
        notes.append(say(words, count=len(harmless)))
    summary = "{wrong} of {count:run|runs} not as made." if wrong else "{count:run is|runs are} as made."
    notes.append(say(summary, count=len(runs), wrong=len(wrong)))
    shown = view_of(columns, rows if len(runs) == 1 else wrong, warnings=warnings, notes=tuple(notes))
    return Document(view_of(VERIFIED, rows), (shown,))


def pruned(runs: Sequence[Row], *, dry_run: bool) -> Document:
    """The runs whose raw files go, and how many keep theirs, by why."""
    going = [run for run in runs if run["kept"] is None]
    rows = [{**run, "when": run["started"][:10], "mb": run["freed_bytes"] / 1e6} for run in going]
    columns = (PRUNED[0], Column("when", "started", narrow=Narrow.DROP), Column("mb", "frees", "MB", ",.1f"), PRUNED[4])
    kept = Counter(run["kept"] for run in runs if run["kept"] is not None)
    notes = [say("kept as it is: {count:run|runs} {why}", count=count, why=why) for why, count in kept.items()]
    words = "nothing to remove"
    if going:
        words = f"{'would free' if dry_run else 'freed'} {{mb:,.1f}} MB of {{count:run|runs}}"
    notes.append(say(words, count=len(going), mb=sum(row["mb"] for row in rows)))
    return Document(view_of(PRUNED, runs), (view_of(columns, rows, notes=tuple(notes)),))
