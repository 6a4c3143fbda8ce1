"""``fiprof top`` as tables: where the GPU's time went, why it was idle, kernels and ranges by time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fiprof.analysis.copies import COPIES
from fiprof.analysis.frames import Row
from fiprof.analysis.idle import BY_RANGE, DEVICE, IDLE, OWN_WORK_NS, RANK, Activity, IdleCause
from fiprof.analysis.program import FIRST_STEPS, OF_GPU, RANKING, TWICE, Program, Waste, saves_more
from fiprof.analysis.top import KERNELS, RANGES, Spent, Top
from fiprof.analysis.trace import SEPARATOR, counting
from fiprof.model.finding import finding, say
from fiprof.model.selection import by_key, sums_by_key
from fiprof.reports import verdict_words as words
from fiprof.reports.timeline_text import copied, time_words
from fiprof.reports.view import Column, Document, Narrow, View, left_out, view_of
from fiprof.text import detailed_kernel, shorten

if TYPE_CHECKING:
    from fiprof.analysis.across import Traces

KERNEL = Column("shown", "kernel", narrow=Narrow.ABOVE)
DETAILS = BY_COPIES, BY_RANGES = "Copies", "NVTX ranges by the time of the kernels launched in them"
"""Titles of the tables that a report has below its answer."""
PROFILED = (
    "verdict: of the launches that ncu profiled; profiled: share of the kernel's time with their grids and blocks."
)
LONGEST_NAME = 200  # cells of a range's name: PyTorch's operators can have their arguments in theirs
HOW_IDLE = (
    "launching: the call was under way, or the work on its way; on the GPU: the call had long returned. host work: the "
    "launching thread was in no CUDA call; after waiting: a call before had waited until the GPU was done. outside "
    "every range: nothing to do, or work that is not marked."
)
ABOVE = finding(
    "above", "saves ≤ above an idle share: the host then launches ahead, or less, and other idle time goes with it."
)
OWN_WORK = "idle: launching holds the host's own work of up to {own_us} µs before each launch."
LAUNCHING = finding("launching", OWN_WORK, own_us=OWN_WORK_NS // 1000)
EARLY = finding("early", "first steps: of the time of all steps, those before the steady part too.")
CALLS = finding("calls", "only copies holds the calls that kept them from beginning.")
MOST_WORDS = 3  # of a kernel's full name, that tell it from others
MOST_ROWS = 10  # of the ranking, that people are shown


def ranking(what: Program, most: int | None = MOST_ROWS) -> View:
    """A program's verdict: its answer, which part it is about, and all that takes time, what saves most first."""
    more = 0 if most is None else len(what.rows[most:])
    rows = []
    for row in what.rows[:most]:
        cause = ("" if row["cause"] in OF_GPU else "idle: ") + row["cause"].words
        named: Row = {"range": None} if row["range"] == row["name"] else {}  # said once
        if place := row["step"] and row["step"].basis.values.get("place"):
            named["name"] = f"{row['name'] or ''}, in {place}".removeprefix(", ")
        rows.append(short_range(row) | named | {"step": row["step"] and words.short_step(row["step"]), "cause": cause})
    told_apart = ("rank", "device", "range", "per_step", "estimate_pct")
    unneeded = [key for key in told_apart if not any(row[key] for row in rows)]
    notes = [finding("rest", "{count:row|rows} more: --all shows them", count=more)] if more else []
    shown = what.rows[:most]
    causes = dict.fromkeys(row["cause"] for row in shown)
    notes += [LAUNCHING] if Waste.LAUNCHES in causes else []
    notes += [CALLS] if {Waste.COPIES, Waste.PAGEABLE_COPIES} & causes.keys() else []
    twice = tuple(cause for cause in causes if cause in TWICE)
    notes += [finding("twice", "{causes}: the kernels' rows hold their time too.", causes=twice)] if twice else []
    of_nsys = (row["step"].basis.values.get("nsys_most") for row in shown if row["step"])
    if nsys_most := next(filter(None, of_nsys), None):
        text = "launching holds nsys's own part: without it the other shares are up to {times:.2g} times as large."
        notes.append(finding("nsys", text, times=1 / (1 - nsys_most)))
    notes += [EARLY] if any(row["name"] == FIRST_STEPS for row in shown) else []
    notes += [ABOVE] if any(map(saves_more, shown)) else []
    columns = [each for each in RANKING if each.key not in unneeded]
    summary = filter(None, (what.idle_in, what.launched_in, what.steady, what.startup))
    title = "What takes the program's time"
    return view_of(columns, rows, title=title, summary=(what.answer, *summary), notes=tuple(notes))


def across(scanned: Traces, table: str, by: str | None, kernel: str, most: int | None) -> View:
    """What was asked across traces. kernel: only names with this in them. most: rows; None for all."""
    from fiprof.analysis.across import COLUMNS, NAMES, OUTLIERS

    rows = scanned.asked(table, *([by] if by else []))
    known = {column.key: column for column in (OUTLIERS if table == "outliers" else COLUMNS)}
    named = Column("name", NAMES.get(table, "name"), narrow=Narrow.ABOVE)
    columns = [known.get(key, named if key == "name" else Column(key, key)) for key in rows.columns]
    rows = rows[rows["name"].fillna("").str.contains(kernel, case=False, regex=False)]
    plain = rows.head(most or len(rows)).astype(object).where(rows.notna(), None).to_dict("records")
    if table == "idle":
        causes: dict[str, str] = {each.value: each for each in IdleCause}
        plain = [row | {"name": causes.get(row["name"], row["name"])} for row in plain]
    more = say("{count:row|rows} more: --all shows them", count=len(rows) - len(plain))
    traces, hosts = (scanned.rows[key].nunique() for key in ("run", "host"))
    words = "{traces:trace|traces} of {hosts:host|hosts}" if hosts else "{traces:trace|traces}"
    title = say(words, traces=traces, hosts=hosts)
    notes = [more] if len(plain) < len(rows) else []
    notes += [say("no host is unlike the others")] if table == "outliers" and not plain else []
    return view_of(columns, plain, title=f"{table.capitalize()} across traces", summary=(title,), notes=tuple(notes))


def short_range(row: Row) -> Row:
    """A row with names that people can read in its paths of ranges."""
    paths = {key: row[key].split(SEPARATOR) for key in ("range", "which") if SEPARATOR in str(row.get(key))}
    return row | {key: SEPARATOR.join(shorten(each, LONGEST_NAME) for each in path) for key, path in paths.items()}


def document(what: Top, *, table: str = "kernels", most: int | None = None) -> Document:
    """The tables for people; for programs all rows of one: kernels, ranges, idle, copies or program, and the verdict.
    most: rows of a table that people are shown; None for all."""
    programs = {"kernels": (KERNELS, what.kernels), "ranges": (RANGES, what.ranges), "idle": (IDLE, what.idle)}
    programs["copies"] = COPIES, what.copies
    programs["program"] = RANKING, [row | {"step": row["step"] and row["step"].fields()} for row in what.program.rows]
    columns, rows = programs[table]
    shown, further = tuple(_shown(what, most)), {"program": what.program.fields()}
    return Document(programs=view_of(columns, rows), shown=shown, warnings=what.warnings, further=further)


def _shown(what: Top, most: int | None) -> Iterator[View]:
    """The tables for people, with the columns that tell ranks, GPUs and ranges apart where there are several."""
    profiled = any(not isinstance(row["what"], Spent) for row in what.parts)
    unneeded = [
        *([] if profiled else [each for each in KERNELS if each.key in ("verdict", "profiled")]),
        *([] if any(row["rank"] is not None for row in what.kernels) else [RANK]),
        *([] if len(what.activities) > 1 else [DEVICE]),
    ]

    def view(columns: Sequence[Column], rows: Sequence[Row], **texts: Any) -> View:
        nowhere = [] if any(row["range"] is not None for row in rows) else [BY_RANGE]
        needed = [each for each in columns if each not in (*unneeded, *nowhere)]
        return view_of(needed, map(short_range, rows), **texts)

    def rest(rows: Sequence[Row], text: str, places: int, **values: Any) -> tuple[str, ...]:
        others = rows[len(rows[:most]) :]
        return left_out(text, len(others), share=sum(row["share"] for row in others) / max(places, 1), **values)

    verdict = ranking(what.program, most and min(most, MOST_ROWS))
    notes = (*verdict.notes, _profiled(what.parts)) if profiled else verdict.notes
    yield replace(verdict, summary=(*verdict.summary, *map(_activity, what.activities)), notes=notes)
    if what.idle:
        causes = what.idle if most is None else together(what.idle, ("rank", "device", "cause", "call"))
        others = "{count:other cause|other causes}, {share:.1%} of the GPU's time"
        more = rest(causes, others, len(what.activities))
        yield view(IDLE, causes[:most], title="Why the GPU was idle", notes=(*more, HOW_IDLE))
    if what.copies:
        yield copied(what.copies, places=len(what.activities) > 1, title=BY_COPIES)
    others = "{count:other kernel|other kernels}, {share:.1%} of the kernels' time: --all shows them"
    names = _told_apart(what.kernels)
    yield view(
        [KERNEL if each.key == "kernel" else each for each in KERNELS],
        [row | {"shown": names[row["kernel_full"]]} for row in what.kernels[:most]],
        title="Kernels by time",
        notes=(
            *rest(what.kernels, others, _places(what.kernels)),
            "median, p90: under nsys, in the part above; spread: (p90 - p10) / median.",
            *([PROFILED] if profiled else []),
        ),
    )
    if any(row["range"] is not None for row in what.ranges):
        ranges = what.ranges if most is None else together(what.ranges, ("rank", "device"))
        counted = ("*: ranges that count on, as one; --all shows each",) if len(ranges) < len(what.ranges) else ()
        others = "{count:other range|other ranges}, {share:.1%} of the kernels' time"
        more = rest(ranges, others, _places(what.ranges))
        yield view(RANGES, ranges[:most], title=BY_RANGES, notes=(*more, *counted))


def _told_apart(rows: Sequence[Row]) -> dict[str, str]:
    """Full name of each kernel -> how it is shown: words of it beside, where others are called the same."""
    alike = by_key((detailed_kernel(row["kernel"], row["kernel_full"]), row["kernel_full"]) for row in rows)
    shown = {}
    for name, fulls in alike.items():
        words = {full: dict.fromkeys(re.findall(r"\b\w+\b(?!::)", full)) for full in fulls}
        common = set.intersection(*map(set, words.values()))
        for full, own in words.items():
            apart = " ".join([word for word in own if word not in common][:MOST_WORDS])
            shown[full] = f"{name.removesuffix(')')}{', ' if name.endswith(')') else ' ('}{apart})" if apart else name
    return shown


def _places(rows: Sequence[Row]) -> int:
    return len({(row["rank"], row["device"]) for row in rows})


def _activity(each: Activity) -> str:
    split = together = rank = ""
    if each.copies_ns:
        words = ": kernels {kernels:.1%}, copies without a kernel {alone:.1%}; copies take {copies}, {hidden:.0%} of "
        words += "that beside kernels"
        kernels, alone = (ns / each.window_ns for ns in (each.kernels_ns, each.only_copies_ns))
        hidden = 1 - each.only_copies_ns / each.copies_ns
        split = say(words, kernels=kernels, alone=alone, copies=time_words(each.copies_ns / 1e3), hidden=hidden)
    if each.side_by_side_ns:
        share = each.side_by_side_ns / max(each.kernels_ns, 1)
        together = f"; kernels of several streams run side by side for {share:.1%} of the kernels' time"
    if each.rank is not None:
        rank = f"Rank {each.rank}, "
    busy, window = 1 - each.idle_ns / each.window_ns, time_words(each.window_ns / 1e3)
    return f"{rank}GPU {each.device}: busy {busy:.1%} of {window}{split}{together}."


def _profiled(parts: Sequence[Row]) -> str:
    """How much of the kernels' time the verdicts are about."""
    spent = sums_by_key((row["what"] if isinstance(row["what"], Spent) else None, row["total_ns"]) for row in parts)
    profiled_ns, not_profiled_ns, collectives_ns = (
        spent.get(what, 0) for what in (None, Spent.NOT_PROFILED, Spent.COLLECTIVES)
    )
    total = profiled_ns + not_profiled_ns + collectives_ns
    words = "the launches that ncu profiled stand for {profiled:.1%} of the kernels' time; not profiled: {left:.1%}"
    words += "; collectives, which ncu cannot repeat: {waiting:.1%}" if collectives_ns else ""
    return say(words, profiled=profiled_ns / total, left=not_profiled_ns / total, waiting=collectives_ns / total)


# Ranges whose names count on (step 0, step 1, …) as one row (step *)

COUNTED = re.compile(r"(\D*[^\d=])(\d+)(\D*)")
"""A name with one number that is no parameter's: ``step 12``, ``layer.3``."""
FEWEST = 3  # names that differ in their number, from which on they are one row
MOST_SHARE = 0.5  # of the row's time: what has more stands by itself, as a first step often does
SUMMED = ("count", "total_ns", "total_ms", "share")


def folded(paths: Iterable[str | None]) -> dict[str | None, str | None]:
    """Paths of ranges -> as they are shown. Numbers that count are folded, sizes (128, 256, 512) are not."""
    names = {path: path.split(SEPARATOR) for path in paths if path is not None}
    heads: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    for level in range(max(map(len, names.values()), default=0)):
        of_level = {path: each[level] for path, each in names.items() if level < len(each)}
        matches = {path: match for path, name in of_level.items() if (match := COUNTED.fullmatch(counting(name)))}
        numbers: dict[Hashable, set[int]] = defaultdict(set)
        for path, match in matches.items():
            numbers[heads[path], match[1], match[3]].add(int(match[2]))
        for path, match in matches.items():
            counts = numbers[heads[path], match[1], match[3]]
            if len(counts) >= FEWEST and max(counts) - min(counts) < 2 * len(counts):
                of_level[path] = f"{match[1]}*{match[3]}"
        heads = {path: (*head, of_level[path]) if path in of_level else head for path, head in heads.items()}
    return {None: None, **{path: SEPARATOR.join(head) for path, head in heads.items()}}


def together(rows: Sequence[Row], alike: Sequence[str]) -> list[Row]:
    """Rows of ranges that count on as one, the longest first. alike: what must be the same besides."""
    shown = folded(row["range"] for row in rows)
    merged = []
    for group in by_key(((*(row[key] for key in alike), shown[row["range"]]), row) for row in rows).values():
        group.sort(key=lambda row: -row["total_ns"])
        if len(group) > 1 and group[0]["total_ns"] > MOST_SHARE * sum(row["total_ns"] for row in group):
            merged.append(group.pop(0))
        first, name = group[0], group[0]["range"]
        sums = {key: sum(row[key] for row in group) for key in SUMMED if key in first}
        merged.append(first | {"range": shown[name] if len(group) > 1 else name} | sums)
    return sorted(merged, key=lambda row: -row["total_ns"])
