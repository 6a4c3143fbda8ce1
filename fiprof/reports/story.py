"""``fiprof story`` as a document: what happened in order of time, what surprised, what repeats, what to change."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fiprof.analysis.frames import Row
from fiprof.analysis.program import Program
from fiprof.analysis.requests import REQUESTS
from fiprof.analysis.story import HAPPENED, SAYS, SHOWN, STEPS, Story
from fiprof.analysis.surprises import LEAST_SHARE
from fiprof.analysis.telling import TOLD
from fiprof.errors import FiprofError
from fiprof.model.finding import finding, say, words_of
from fiprof.reports.show import planning
from fiprof.reports.top import ABOVE, ranking
from fiprof.reports.view import Document, View, left_out, view_of
from fiprof.text import byte_words, escape_control, shorten

MOST_ROWS, MOST_STEPS, MOST_REQUESTS = 20, 40, 6
"""Phases, steps and requests that people are shown: those of most time, and of the longest TTFT, in order."""
MOST_KERNELS, FIRST = 3, 3  # of a layer, that are named; and rows of the program's verdict
LONGEST_NAME = 60  # cells
LISTED = "fiprof story RUN --table steps --format csv lists them"


def document(
    what: Story, program: Program, *, planned: Sequence[Row] = (), table: str = "happened", most: int | None = MOST_ROWS
) -> Document:
    """The story for people; for programs the rows of one table, and the findings beside. planned: rows of PLANS. most:
    phases that people are shown; None for all."""
    further: Row = {"rank": what.rank, "device": what.device}
    further |= {key: [each.fields() for each in found] for key, found in what.found.items()}
    further |= {"plans": planned} if planned else {}
    words = "GPU {device} of {count}: --rank shows another."
    notes = (say(words, device=what.device, count=what.several),) if what.several > 1 else ()
    shown = tuple(_shown(what, program, planned, most))
    return Document(programs=view_of(*what.tables[table]), shown=shown, further=further, notes=notes)


def _shown(what: Story, program: Program, planned: Sequence[Row], most: int | None) -> Iterator[View]:
    findings, requests = what.found, what.rows("requests")
    rows = [row | {"said": escape_control(words_of(row["said"])) + (row["hot"] and " ◀")} for row in what.rows("told")]
    yield view_of(TOLD, rows, title="What happened", summary=findings["summary"])
    yield happened(what, most)
    if requests:
        late = sorted(requests, key=lambda row: -(row["ttft_ms"] or 0.0))[: most and MOST_REQUESTS]
        rows = [row for row in requests if row in late]
        notes = left_out("{count:request|requests} more: --all", len(requests) - len(rows))
        kept = [column for column in REQUESTS if any(row[column.key] is not None for row in rows)]
        yield view_of(kept, rows, title="Requests", summary=findings["served"], notes=notes)
    grown = [law for law in findings["laws"] if abs(law.values["grown"]) >= LEAST_SHARE]
    most_of = max(what.rows("happened"), key=lambda row: row["share"] or 0.0)
    words = "No step takes much longer than its neighbours."
    if (most_of["spread"] or 0.0) > 1:
        words = "No step stands out: {count:,d} x {what} have a spread of {spread:,.0%}, and no regular period."
    slow = (*findings["causes"], *grown) or (say(words, **most_of),)
    once = [finding("first", "First, as expected: {step}", step=each) for each in findings["first_steps"]]
    yield View(title="What surprised", summary=(*slow, *once))
    each = []
    for names in (layer.values["kernels"] for layer in findings["layers"][-1:]):
        words = "  each: {names}" + (" and {more} more" if (more := len(names) - MOST_KERNELS) > 0 else "")
        each.append(finding("each", words, names=", ".join(names[:MOST_KERNELS]), more=more))
    if inside := (*findings["layers"], *each, *(law for law in findings["laws"] if law not in grown)):
        yield View(title="What repeats inside a step, and how steps grow", summary=inside)
    if planned:
        yield planning(planned)
    for title, key in (("Memory", "peak"), ("To see it again", "again")):
        if findings[key]:
            yield View(title=title, summary=findings[key])
    first = ranking(program, FIRST)
    yield replace(first, title="What to change first", summary=(), notes=tuple(n for n in first.notes if n is ABOVE))


def happened(what: Story, most: int | None = MOST_ROWS) -> View:
    shared = [row for row in what.rows("happened") if row["share"] is not None]
    longest = sorted(shared, key=lambda row: -row["total_ms"])[:most]
    shown = [row for row in shared if row in longest and (most is None or row["share"] >= SHOWN)]
    rows = [
        row
        | {"what": "  " * row["level"] + shorten(escape_control(row["what"]), LONGEST_NAME) + (row["hot"] and " ◀")}
        | {key: byte_words(row[key]) if row[key] else "" for key in ("copied_bytes", "memory_bytes")}
        for row in shown
    ]
    columns = [each for each in HAPPENED if any(row[each.key] not in (None, "", ()) for row in rows)]
    rest = [row["share"] for row in shared if row not in shown]
    more = left_out("{count:phase|phases} more, {share:.1%} of the time: --all", len(rest), share=sum(rest))
    how = "each: median, until host and GPU are done with it. GPU busy: with kernels launched in it. ◀: most time."
    return view_of(columns, rows, title="Phases", notes=(*more, how))


def one_request(run: str, what: Story, name: str) -> Document:
    """One request, and for people the steps from its arrival to its end. Raises FiprofError where there is none."""
    request = next((row for row in what.rows("requests") if row["request"] == name), None)
    if request is None:
        there = ", ".join(row["request"] for row in what.rows("requests")[:MOST_KERNELS])
        instead = f"it has {there}, …" if there else "its ranges and marks name none"
        remedy = f"fiprof story {run} --table requests --format csv lists them"
        raise FiprofError(f"{run} has no request {name}: {instead}", remedy, exit_code=2)
    begin, end = request["arrived_ms"] or request["admitted_ms"] or 0.0, request["ended_ms"]
    rows = [row for row in what.rows("steps") if row["at_ms"] >= begin and (end is None or row["at_ms"] < end)]
    notes = left_out("{count:step|steps} more: --step N", len(rows) - MOST_STEPS)
    kept = [column for column in REQUESTS if request[column.key] is not None]
    shown = view_of(kept, [request], title=f"Request {name}")
    return Document(
        view_of(REQUESTS, [request]), (shown, view_of(STEPS, rows[:MOST_STEPS], title="Steps", notes=notes))
    )


def steps(what: Story, *, number: int | None = None, around_ms: float | None = None) -> Document:
    """The steps one by one; or those next to a number, or to a time."""
    rows: Sequence[Row] = what.rows("steps")
    if number is not None:
        if not any(row["number"] == number for row in rows):
            raise FiprofError(f"there is no step {number}", LISTED, exit_code=2)
        rows = [row for row in rows if abs(row["number"] - number) <= 2]
    if around_ms is not None and rows:
        begin, end = min(row["at_ms"] for row in rows), max(row["at_ms"] + row["length_ms"] for row in rows)
        if not math.floor(begin) <= around_ms <= math.ceil(end):
            there = f"they lie between {math.floor(begin):,} and {math.ceil(end):,} ms"
            raise FiprofError(f"there is no step around {around_ms:,g} ms: {there}", LISTED, exit_code=2)

        def away(row: Row) -> float:
            return float(max(row["at_ms"] - around_ms, around_ms - row["at_ms"] - row["length_ms"]))

        rows = sorted(sorted(rows, key=away)[:5], key=lambda row: row["at_ms"])
    columns, _ = what.tables["steps"]
    notes = left_out("{count:step|steps} more: as CSV and JSON", len(rows) - MOST_STEPS)
    kept = [column for column in columns if not column.key.startswith(SAYS)]
    return Document(view_of(columns, rows), (view_of(kept, rows[:MOST_STEPS], title="Steps", notes=notes),))
