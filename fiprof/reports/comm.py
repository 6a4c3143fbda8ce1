"""``fiprof comm``: the ranks, what made them late, the worst collectives, and the ranks on one axis of time."""

from collections.abc import Iterator
from typing import Literal

from fiprof.analysis.comm import CAUSES, COLLECTIVES, RANKS, Comm, as_late, doing_words
from fiprof.analysis.frames import Row
from fiprof.model.finding import say, words_of
from fiprof.reports.timeline_text import axis, time_words
from fiprof.reports.view import Column, Document, Narrow, View, left_out, view_of
from fiprof.text import byte_words

By = Literal["collective", "rank", "cause"]
MOST_COLLECTIVES, MOST_CAUSES, MOST_DOINGS = 10, 8, 3  # that people are shown: those that cost most
TELLING = 0.1  # of the delay that recurs: what takes more of it and does not recur is told
LITTLE = 0.02  # of the steps: a rank that waits for less than this says no rank is late
MARKS, IDLE = "█▒w", "·"  # of a rank that computes, communicates and waits, and of one that does nothing
TRACK_WORDS = len("rank 000  ")
NOTE = (
    "late: collectives that it was last to start. others wait: for it in these, while they run nothing else; of "
    "several the longest. recurring: of this without start-up and single events, which take over twice as long as "
    "in other quarters of the collectives. waits: from its start to the last rank's, while it runs nothing else. of "
    "steps: waits in NVTX ranges that repeat, or of the time between collectives. comm.: time of communication "
    "kernels. transfer: of the last rank to start, which waits for none. hidden: share of communication beside "
    "other kernels. bus: GB/s as nccl-tests counts them, so that any number of ranks compares with a link's peak. "
    "meanwhile: what the GPU did; while it had nothing to do, the CUDA call (host code: none) and NVTX range of the "
    "thread that launches the collective. Charts: █ computes, ▒ communicates, w waits for another rank, · idle; "
    "what takes most of a character's time."
)
_WORST = (
    Column("number", "#", spec="d"), Column("op", "operation"), Column("size", "size"), Column("start_us", "at"),
    Column("pair", "waits"), Column("wait_us", "wait"), Column("lost_share", "of step", spec=".1%"),
    Column("transfer_us", "transfer"), Column("bus_gbps", "bus", "GB/s", ".1f"),
    Column("meanwhile", "late rank meanwhile", wrap=True, narrow=Narrow.BELOW),
)  # fmt: skip


def document(what: Comm, *, by: By = "collective", most: int | None = MOST_COLLECTIVES) -> Document:
    """by: of what JSON and CSV have a row. most: collectives that people are shown; None for all."""
    programs = {"rank": (RANKS, what.ranks), "cause": (CAUSES, what.causes)}
    columns, rows = programs.get(by, (COLLECTIVES, what.collectives))
    shown = tuple(_tables(what, most)) if what.collectives else ()
    return Document(view_of(columns, rows), shown, warnings=what.warnings, notes=(NOTE,) if shown else ())


def _tables(what: Comm, most: int | None) -> Iterator[View]:

    def in_words(row: Row, **cells: str | None) -> Row:
        times = {key: time_words(value) for key, value in row.items() if key.endswith("_us") and value is not None}
        return row | times | cells

    yield view_of(RANKS, map(in_words, what.ranks), title="Ranks", summary=(summary(what),))
    causes = [in_words(row, doing=_doing(row)) for row in what.causes[: None if most is None else MOST_CAUSES]]
    yield view_of(CAUSES, causes, title="What the late rank did while the others waited")
    worst = [
        in_words(
            row,
            size=None if row["message_bytes"] is None else byte_words(row["message_bytes"]),
            pair=say("{one} for {other}", one=row["waiting_rank"], other=row["late_rank"]),
            meanwhile=", ".join(f"{_doing(each)} {time_words(each['us'])}" for each in row["meanwhile"][:MOST_DOINGS]),
        )
        for row in what.worst[:most]
    ]
    words = "{count:collective|collectives} left out: --top N or --all shows them."
    notes = left_out(words, len(what.collectives) - len(worst))
    yield view_of(_WORST, worst, title="Collectives with the longest waits", notes=notes)
    for chart in what.charts:
        yield _chart(chart, what)


def summary(what: Comm) -> str:
    """Which rank makes the others wait most, again and again, and what it does meanwhile; then what does not recur."""
    recurs = any(row["recurring_us"] for row in what.ranks)
    delay, doing = ("recurring_us", "recurring_us") if recurs else ("delay_us", "doing_us")
    latest = max(what.ranks, key=lambda row: row[delay])
    if not latest["delay_us"]:
        return "No rank loses time waiting for another."
    words = "Rank {rank} makes the others wait most: {delay} in {late_collectives} of {of} collectives"
    values = {**latest, "delay": time_words(latest[delay]), "of": len(what.collectives)}
    if (most := max(row["lost_share"] or 0.0 for row in what.ranks)) < LITTLE:
        words += ", which is little: no rank waits for more than {most:.1%} of the steps"
        values["most"] = most
    elif (latest["lost_share"] or 0.0) >= most / 2:
        words += ", and waits itself for {lost_share:.0%} of the steps"
    elif others := as_late([row for row in what.collectives if row["late_rank"] == latest["rank"]]):
        words += "; as late: {others:rank|ranks}"
        values["others"] = others
    sentences = [say(words + ".", **values)]
    if cause := next((row for row in what.causes if row["rank"] == latest["rank"]), None):
        words = "Longest meanwhile: {doing}, {time} ({share:.0%} of it)."
        share = min(cause[doing] / latest[delay], 1.0)
        sentences.append(say(words, doing=_doing(cause), time=time_words(cause[doing]), share=share))
    once = max(what.ranks, key=lambda row: row["delay_us"] - row["recurring_us"])
    if recurs and (every := once["delay_us"] - once["recurring_us"]) >= TELLING * latest[delay]:
        causes = (row for row in what.causes if row["rank"] == once["rank"])
        cause = max(causes, key=lambda row: row["doing_us"] - row["recurring_us"])
        time = min(cause["doing_us"] - cause["recurring_us"], every)
        words = "Left out, for it does not recur: {every} of rank {rank}, of it {doing} {time}."
        times = {"every": time_words(every), "time": time_words(time)}
        sentences.append(say(words, rank=once["rank"], doing=_doing(cause), **times))
    return " ".join(sentences)


def _doing(row: Row) -> str:
    return words_of(doing_words(row["doing"], row["doing_name"], row["range"]))


def _chart(chart: Row, what: Comm) -> View:
    """The ranks' time as characters: what takes most of each piece."""
    length_us, start_ms = chart["end_us"] - chart["start_us"], chart["start_us"] / 1e3
    words = "From the first collective to the last: {length} from {start_ms:,.3f} ms"
    title = say(words, length=time_words(length_us), start_ms=start_ms)
    if chart["number"] is not None:
        item = what.collectives[chart["number"]]
        words = "The longest wait: {op} {number}, from {start_ms:,.3f} ms"
        title = say(words, op=item["op"], number=item["number"], start_ms=start_ms)
    header, ticks = axis(length_us, len(chart["tracks"][0]["compute"]))
    rows: list[tuple[str, str]] = [("", ticks)]
    for track in chart["tracks"]:
        pieces = zip(track["compute"], track["transfer"], track["wait"], strict=True)
        marks = (MARKS[max(range(3), key=shares.__getitem__)] if max(shares) > 0 else IDLE for shares in pieces)
        rows.append((say("rank {rank}", rank=track["rank"]), "".join(marks)))
    return View((Column("", "time"), Column("", header, narrow=Narrow.KEEP)), tuple(rows), title=title)


def chart_cells(width: int) -> int:
    """Pieces of a track on a terminal of this width."""
    return max(min(width - TRACK_WORDS, 120), 20)
