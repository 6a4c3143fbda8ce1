"""The ranks of a run on one axis of time: who computes, who communicates, who waits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fiprof.analysis.comm.comm import comm
from fiprof.analysis.comm.meanwhile import RankChart, RankTrack
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.reports import comm as comm_text
from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.timeline_text import time_words
from fiprof.reports.writers import render

if TYPE_CHECKING:
    from altair import LayerChart

FINER = 4
"""Pieces of a rank's time in the picture for one in the text."""
PALETTE = {"computes": colours.COLOURS[8], "communicates": colours.COMMUNICATION, "waits": colours.COLOURS[9]}


def ranks_chart(run: Run) -> Chart | None:
    """From the first collective to the last; None in a run without collectives of several ranks.

    Raises FiprofError for a table that cannot be read.
    """
    if not ranks_of(run).several:
        return None
    found = comm(run, cells=FINER * comm_text.chart_cells(plot.WIDTH))
    if not found.charts:
        return None
    chart = found.charts[0]
    text = comm_text.strips(replace(chart, tracks=tuple(map(_coarser, chart.tracks))))
    return Chart(
        anchor="chart-ranks",
        title="Ranks over time",
        text=render(text, "table", width=plot.WIDTH),
        figure=lambda: _ranks(chart),
        caption=" ".join((comm_text.summary(found), comm_text.CAPTION)),
    )


def _coarser(track: RankTrack) -> RankTrack:
    def means(shares: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sum(each) / FINER for each in zip(*[iter(shares)] * FINER, strict=True))

    return RankTrack(track.rank, means(track.compute), means(track.transfer), means(track.wait))


def _ranks(chart: RankChart) -> LayerChart:
    length_us = chart.end_us - chart.start_us
    rows = [vega.Row(f"rank {track.rank}", tuple(_bars(track, length_us))) for track in chart.tracks]
    return vega.rows(
        rows, PALETTE, title=f"time from the first collective's start, % of {time_words(length_us)}", most=100.0
    )


def _bars(track: RankTrack, length_us: float) -> Iterator[vega.Bar]:
    """Pieces that are mostly of one kind, as one bar."""
    kinds = comm_text.mostly(track)
    per_cell = 100 / len(kinds)
    place = 0
    for kind, pieces in itertools.groupby(kinds):
        count = len(list(pieces))
        if kind is not None:
            key = list(PALETTE)[kind]
            told = [
                ("for about", time_words(count * per_cell / 100 * length_us)),
                ("from", time_words(place * per_cell / 100 * length_us)),
            ]
            yield vega.Bar(
                key, place * per_cell, (place + count) * per_cell, vega.tip(f"rank {track.rank} {key}", told)
            )
        place += count
