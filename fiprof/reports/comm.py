"""``fiprof comm``: the ranks, what made them late, the worst collectives, and the ranks on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from fiprof.analysis.comm.comm import Collective, Comm
from fiprof.analysis.comm.meanwhile import Doing, RankChart, RankTrack
from fiprof.model.wording import say, worded
from fiprof.reports.columns import Cells, attribute, filled
from fiprof.reports.timeline_text import axis, bytes_words, time_words
from fiprof.reports.view import Column, Document, Narrow, Record, View
from fiprof.text import short_kernel

By = Literal["collective", "rank", "cause"]

MOST_COLLECTIVES, MOST_CAUSES, MOST_SPELLS = 10, 8, 3
"""That people are shown: those that cost most."""
SMALLEST_SHARE = 0.01
"""Of a delay: what the late rank did for less of it is told of no single collective."""
CAPTION = (
    "What takes most of each piece of time, by nsys: a kernel that does not communicate, communication with every "
    "rank there, or waiting for a rank that has not begun; nothing where the GPU idles. fiprof comm has every "
    "collective."
)
"""Of the chart of the ranks in a report."""
COMPUTE, TRANSFER, WAIT, IDLE = "█", "▒", "w", "·"
TRACK_WORDS = len("rank 000  ")


def _us(title: str, key: str, *, of: str = "") -> tuple[Column, Callable[[object], str]]:
    """A time in the unit that fits."""
    _, value = attribute(key, title, of=of)
    return Column("", title), lambda item: time_words(value(item) or 0.0)  # type: ignore[arg-type]


def _spell(doing: Doing, name: str, range_: str) -> str:
    """What a rank did, in words."""
    words = {"kernel": "kernel {name}", "communication": "another collective", "copy": "copy", "call": "{name}"}
    inside = " in {range}" if range_ and doing in (Doing.CALL, Doing.HOST) else ""
    return say(words.get(doing.value, "host code") + inside, name=short_kernel(name), range=range_)


def _meanwhile(item: Collective) -> str:
    told = [each for each in item.meanwhile[:MOST_SPELLS] if each.us >= SMALLEST_SHARE * item.skew_us]
    return ", ".join(f"{_spell(each.doing, each.name, each.range)} {time_words(each.us)}" for each in told)


def _arrivals(item: Collective) -> tuple[Record, ...]:
    return tuple(
        {"rank": each.rank, "start_us": each.start_us, "wait_us": each.wait_us, "duration_us": each.duration_us}
        for each in item.arrivals
    )


def _told(item: Collective) -> tuple[Record, ...]:
    return tuple(
        {"doing": each.doing.value, "doing_name": each.name, "range": each.range, "us": each.us}
        for each in item.meanwhile
        if each.us >= SMALLEST_SHARE * item.skew_us
    )


_RANK: Cells = tuple(
    attribute(key, of=of)
    for key, of in (
        ("rank", "rank.rank"), ("file", "rank.file"), ("pid", "rank.own_pid"), ("process", "rank.process"),
        ("host", "rank.host"), ("device", "rank.device"), ("gpu", "rank.gpu"), ("uuid", "rank.uuid"),
        ("collectives", ""), ("late_collectives", "late"), ("delay_us", ""), ("wait_us", ""), ("communication_us", ""),
        ("overlap_share", "overlap"), ("compute_us", ""), ("lost_share", ""),
    )
)  # fmt: skip
_CAUSE: Cells = (
    attribute("rank"),
    (Column("doing"), lambda cause: cause.doing.value),
    attribute("doing_name", of="name"),
    attribute("range"),
    attribute("doing_us", of="us"),
    attribute("collectives"),
    attribute("delay_share", of="share"),
)
_COLLECTIVE: Cells = (
    (Column("op"), lambda item: item.op.value),
    attribute("kernel"),
    attribute("communicator"),
    attribute("number"),
    attribute("message_bytes", of="bytes"),
    attribute("channels"),
    attribute("start_us"),
    attribute("skew_us"),
    attribute("transfer_us"),
    attribute("wait_us"),
    attribute("waiting_us"),
    attribute("waiting_rank"),
    attribute("late_rank"),
    attribute("algorithm_gbps"),
    attribute("bus_gbps"),
    attribute("overlap_share", of="overlap"),
    attribute("range"),
    attribute("step_us"),
    attribute("lost_share"),
    (Column("arrivals"), _arrivals),
    (Column("missing_ranks"), lambda item: tuple({"rank": rank} for rank in item.missing)),
    (Column("meanwhile"), _told),
)

_RANKS_SHOWN: Cells = (
    attribute("", "rank", of="rank.rank"),
    attribute("", "GPU", of="rank.device"),
    attribute("", "host", of="rank.host", narrow=Narrow.DROP),
    attribute("", "late", of="late"),
    _us("others wait", "delay_us"),
    _us("waits", "wait_us"),
    attribute("", "of steps", spec=".1%", of="lost_share"),
    _us("comm.", "communication_us"),
    attribute("", "hidden", spec=".1%", of="overlap"),
    _us("computes", "compute_us"),
)
_CAUSES_SHOWN: Cells = (
    attribute("", "late rank", of="rank"),
    (Column("", "meanwhile"), lambda cause: _spell(cause.doing, cause.name, cause.range)),
    _us("time", "us"),
    attribute("", "of its delays", spec=".1%", of="share"),
    attribute("", "collectives", spec=",d", of="collectives"),
)
_WORST_SHOWN: Cells = (
    attribute("", "#", spec="d", of="number"),
    (Column("", "operation"), lambda item: worded(item.op)),
    (Column("", "size"), lambda item: None if item.bytes is None else bytes_words(item.bytes)),
    (Column("", "at"), lambda item: time_words(item.start_us)),
    (Column("", "waits"), lambda item: say("{one} for {other}", one=item.waiting_rank, other=item.late_rank)),
    _us("wait", "wait_us"),
    attribute("", "of step", spec=".1%", of="lost_share"),
    _us("transfer", "transfer_us"),
    attribute("", "bus", "GB/s", ".1f", of="bus_gbps"),
    (Column("", "late rank meanwhile", wrap=True, narrow=Narrow.BELOW), _meanwhile),
)


def document(what: Comm, *, by: By = "collective", most: int | None = MOST_COLLECTIVES) -> Document:
    """by: of what JSON and CSV have a row. most: collectives that people are shown; None for all."""

    def programs() -> View:
        if by == "rank":
            return filled(_RANK, what.ranks)
        return filled(_CAUSE, what.causes) if by == "cause" else filled(_COLLECTIVE, what.collectives)

    shown = list(_tables(what, most)) if what.collectives else []
    return Document(
        programs,
        tuple(shown),
        warnings=what.warnings,
        notes=(
            "late: collectives that it was last to start. others wait: from the first rank's start to its own, in "
            "these. waits: from its start to the last rank's. of steps: of NVTX ranges that repeat, or of the time "
            "between collectives. comm.: time of communication kernels. transfer: from the last rank's start to the "
            "end. hidden: share of communication beside other kernels. bus: GB/s as nccl-tests counts them, so that "
            "any number of ranks compares with a link's peak. meanwhile: what the GPU did; while it had nothing to do, "
            "the CUDA call (host code: none) and NVTX range of the thread that launches the collective. Charts: █ "
            "computes, ▒ communicates, w waits for another rank, · idle; what takes most of a character's time.",
        )
        if shown
        else (),
    )


def _tables(what: Comm, most: int | None) -> Iterator[View]:
    yield filled(_RANKS_SHOWN, what.ranks, title="Ranks", summary=(summary(what),))
    causes = what.causes[: None if most is None else MOST_CAUSES]
    yield filled(_CAUSES_SHOWN, causes, title="What the late rank did while the others waited")
    worst = what.worst[:most]
    rest = len(what.collectives) - len(worst)
    yield filled(
        _WORST_SHOWN,
        worst,
        title="Collectives with the longest waits",
        notes=(say("{count:collective|collectives} left out: --top N or --all shows them.", count=rest),)
        if rest
        else (),
    )
    for chart in what.charts:
        yield _chart(chart, what)


def summary(what: Comm) -> str:
    """Which rank makes the others wait most, and what it does meanwhile."""
    latest = max(what.ranks, key=lambda rank: rank.delay_us)
    if not latest.delay_us:
        return "All ranks start every collective together."
    cause = next((each for each in what.causes if each.rank == latest.rank.rank), None)
    first = say(
        "Rank {rank} makes the others wait most: {delay} in {late} of {of} collectives.",
        rank=latest.rank.rank,
        delay=time_words(latest.delay_us),
        late=latest.late,
        of=len(what.collectives),
    )
    if cause is None:
        return first
    doing = _spell(cause.doing, cause.name, cause.range)
    return first + say(
        " Longest meanwhile: {doing}, {time} ({share:.0%} of it).",
        doing=doing,
        time=time_words(cause.us),
        share=cause.share,
    )


def _chart(chart: RankChart, what: Comm) -> View:
    length_us = chart.end_us - chart.start_us
    title = say(
        "From the first collective to the last: {length} from {start_ms:,.3f} ms",
        length=time_words(length_us),
        start_ms=chart.start_us / 1e3,
    )
    if chart.number is not None:
        item = what.collectives[chart.number]
        title = say(
            "The longest wait: {op} {number}, from {start_ms:,.3f} ms",
            op=item.op,
            number=item.number,
            start_ms=chart.start_us / 1e3,
        )
    return strips(chart, title)


def strips(chart: RankChart, title: str = "") -> View:
    """The ranks' time as characters."""
    header, ticks = axis(chart.end_us - chart.start_us, len(chart.tracks[0].compute))
    marks = (COMPUTE, TRANSFER, WAIT)
    rows = tuple(
        (say("rank {rank}", rank=track.rank), "".join(IDLE if kind is None else marks[kind] for kind in mostly(track)))
        for track in chart.tracks
    )
    return View((Column("", "time"), Column("", header, narrow=Narrow.KEEP)), (("", ticks), *rows), title=title)


def mostly(track: RankTrack) -> list[int | None]:
    """What took most of each piece: 0 for compute, 1 for communication, 2 for waiting; None where all is idle."""
    pieces = zip(track.compute, track.transfer, track.wait, strict=True)
    return [max(range(3), key=shares.__getitem__) if max(shares) > 0 else None for shares in pieces]


def chart_cells(width: int) -> int:
    """Pieces of a track on a terminal of this width."""
    return max(min(width - TRACK_WORDS, 120), 20)
