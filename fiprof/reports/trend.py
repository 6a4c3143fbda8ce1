"""``fiprof trend`` as tables and as a page: a line for each case or kernel on a GPU, and where its level changed."""

import re
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from fiprof.analysis.trend import FEWEST, TrendLevel, TrendLine
from fiprof.model.baselines import SHORT_COMMIT
from fiprof.model.catalogue.store import Row
from fiprof.model.finding import say
from fiprof.model.selection import Labels
from fiprof.reports import charts, colours
from fiprof.reports.markdown_html import Markdown, code_span, escape_markdown, report_html
from fiprof.reports.runs import NOTHING, RESULT_KEYS, metric_column, when
from fiprof.reports.view import Chart, Column, Document, Narrow, View, left_out, view_of
from fiprof.text import short_kernel

SPARK_CELLS = 32
SPARK = "▁▂▃▄▅▆▇█"
MARK = "╎"  # before the first run at a new level
LEAST_RANGE = 0.05  # range of a line, over its value: less than this is drawn flat
MOST_LINES = 50  # lines that a page shows, those that changed most
MOST_ROWS = 20  # lines that people are shown in a table
CHART_PX = 220
POINT, LEVEL = "#2994ff", "#ff5500"  # of colours.COLOURS, told apart with any colour blindness
MARGIN = 0.02  # share of the value, above and below what is drawn


def document(trends: Sequence[TrendLine], metric: str, *, most: int | None = None) -> Document:
    """A row a run for programs; for people a row a line, and the changes. metric: key of the quantity. most: lines that
    people are shown, those that changed most; None for all."""
    label, value = _labels(trends), metric_column(metric)
    names = (
        Column("label", "case", narrow=Narrow.ABOVE),
        *([Column("kernel", "kernel", narrow=Narrow.ABOVE)] if any(line.rows[0]["kernel"] for line in trends) else []),
        Column("on", "GPU", narrow=Narrow.DROP),
    )
    columns = (
        *names,
        Column("runs", "runs", spec=",d"),
        Column("spark", "oldest to newest", narrow=Narrow.KEEP),
        Column("latest", "now", value.unit, value.spec),
        Column("changed", "since the first", spec="+.1%"),
    )
    firsts = [line.rows[0] for line in trends]
    named = [{"label": label(row["case"]), "kernel": row["kernel"], "on": _gpu(row)} for row in firsts]
    lines = []
    for name, line in zip(named, trends[:most], strict=False):
        first, last = line.levels[0].value, line.levels[-1].value
        own = {"runs": len(line.rows), "spark": sparkline(line), "latest": last, "changed": last / first - 1}
        lines.append(name | own)
    shown = [view_of(columns, lines, notes=_notes(trends))]
    changes = [{**name, **row} for name, line in zip(named, trends, strict=True) for row in _changes(line)]
    if changes:
        shown.append(view_of((*names, *_change_columns(value)), changes, title="Changes"))
    notes = left_out("{count:line|lines} left out that changed less: --all shows them.", len(trends) - len(lines))
    keys = (*RESULT_KEYS, "conditions", metric, "level", "change_ratio", "change_p")
    runs = [
        {**line.rows[place], "level": level.value, "change_ratio": ratio, "change_p": p}
        for line in trends
        for level in line.levels
        for place in range(level.start, level.end)
        for ratio, p in [(level.ratio, level.p_value) if place == level.start else (None, None)]
    ]
    return Document(view_of(list(map(Column, keys)), runs), tuple(shown), notes=notes)


def _change_columns(value: Column) -> tuple[Column, ...]:
    return (
        Column("when", "first run after", narrow=Narrow.KEEP),
        Column("before", "before", value.unit, value.spec),
        Column("after", "after", value.unit, value.spec),
        Column("ratio", "change", spec="+.1%"),
        Column("p", "by chance", spec=".1%"),
        Column("what", "what else changed", narrow=Narrow.BELOW, wrap=True),
    )


def _changes(line: TrendLine) -> list[dict[str, Any]]:
    rows, digits = [], {"commit": SHORT_COMMIT}
    for before, level in zip(line.levels, line.changed, strict=False):
        updates = ((name, *((each or "–")[: digits.get(name)] for each in ends)) for name, *ends in level.updates)
        what = ", ".join(f"{name} {old} → {new}" for name, old, new in updates)
        times = {"when": when(line.rows[level.start]["started"]), "before": before.value, "after": level.value}
        rows.append({**times, "ratio": level.ratio, "p": level.p_value, "what": what})
    return rows


def page(
    trends: Sequence[TrendLine], metric: str, command: str, *, lead: Sequence[Markdown] = (), library: str = ""
) -> str:
    """The page: each line as a chart with its changes, those that changed most first. command: that asks for it. lead,
    library: as ``report_html`` takes them."""
    label, value = _labels(trends), metric_column(metric)
    what = re.split(r"[,:;.]( |$)", value.meaning)[0]  # the key is for programs
    caption = "A point a run; the line is the median of a level; dashed where it changed."
    views = []
    for line in trends[:MOST_LINES]:
        run = line.rows[0]
        facts = (run["gpu"], run["uuid"], run["driver"] and f"driver {run['driver']}", line.conditions)
        name = " · ".join(filter(None, (label(run["case"]), run["kernel"] and short_kernel(run["kernel"]), _gpu(run))))
        chart = Chart(f"{what} over time", partial(_figure, line, value), caption)
        texts = {"title": name, "summary": (", ".join(filter(None, facts)),), "charts": (chart,)}
        views.append(view_of(_change_columns(value), _changes(line), **texts))
    views.append(View(title="How changes are found", summary=_notes(trends)))
    meaning, asked = escape_markdown(value.meaning), Markdown(f"Command: {code_span(command)}")
    title, report = f"Trend: {what}", Document(views[0], tuple(views))
    return report_html(report, title, lead=(*lead, meaning, asked), library=library)


def sparkline(line: TrendLine) -> str:
    """The values as blocks, several runs in one where there are many; a mark before each new level."""
    values = line.values
    # A single run off the line does not flatten the others.
    calm = [median(values[max(place - 1, 0) : place + 2]) for place in range(len(values))]
    low, high = min(calm), max(calm)
    high = max(high, low * (1 + LEAST_RANGE))
    width = -(-len(values) // SPARK_CELLS)

    def block(level: TrendLevel, start: int) -> str:
        value = median(values[start : min(start + width, level.end)])
        return SPARK[min(max(int((value - low) / (high - low) * 8), 0), 7)]

    return MARK.join("".join(block(of, start) for start in range(of.start, of.end, width)) for of in line.levels)


def _gpu(run: Row) -> str:
    return " ".join(filter(None, ((run["gpu"] or "–").removeprefix("NVIDIA "), (run["uuid"] or "")[4:12])))


def _labels(trends: Sequence[TrendLine]) -> Labels:
    return Labels(dict.fromkeys(line.rows[0]["case"] for line in trends if line.rows[0]["case"]))


def _notes(trends: Sequence[TrendLine]) -> tuple[str, ...]:
    if not trends:
        return (NOTHING,)
    notes = []
    if short := sum(len(line.rows) < FEWEST for line in trends):
        words = "{count:line has|lines have} fewer than {fewest} runs: too few to find a change."
        notes.append(say(words, count=short, fewest=FEWEST))
    method = "by chance: part of random orders of the same runs that shows a change as large. Marked are changes of at "
    method += "least 1 % that at most 1 % of the orders show."
    if not any(line.changed for line in trends):
        method = "No change found: none of at least 1 % that at most 1 % of random orders of the same runs show."
    return (*notes, method)


def _figure(line: TrendLine, value: Column) -> charts.Spec:
    """A point a run over time, the level it is at, and a dashed line where that changed."""
    points: charts.Rows = []
    for run, number in zip(line.rows, line.values, strict=True):
        words = f"{number:{value.spec}} {value.unit}".rstrip()
        facts = [(value.title, words), ("commit", run["git"] or ""), ("tags", ", ".join(run["tags"]))]
        points.append({"x": run["started"], "y": number, "tip": charts.tip(run["name"], facts)})
    levels: charts.Rows = [
        {"x": points[level.start]["x"], "x2": points[level.end - 1]["x"], "y": level.value} for level in line.levels
    ]
    changes: charts.Rows = []
    for level in line.changed:
        words = f"{level.ratio:+.1%}"
        tip = charts.tip("change", [("", words), ("p", f"{level.p_value:.3f}")])
        changes.append({"x": points[level.start]["x"], "words": words, "tip": tip})
    low, high = min(line.values) * (1 - MARGIN), max(line.values) * (1 + 2 * MARGIN)
    ruler = {"title": None, "labelAngle": 0, "tickCount": {"expr": "max(2, width / 110)"}, "labelOverlap": True}
    title = f"{value.title}{f' ({value.unit})' if value.unit else ''}"
    x = {"field": "x", "type": "temporal", "axis": ruler}
    scale = {"domain": [low, high], "nice": False, "zero": False}
    place = {"x": x, "y": charts.quantity("y", axis=charts.axis(title, tickCount=5), scale=scale)}
    rule = {"type": "rule", "strokeWidth": 3, "color": LEVEL, "opacity": 0.8}
    dot = {"type": "point", "size": 45, "filled": True, "color": POINT, "opacity": 0.9, **charts.TIP}
    dashed = {"type": "rule", "strokeDash": [4, 3], "color": colours.GREY, **charts.TIP}
    label = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "color": charts.INK}
    layers = [
        charts.layer("levels", levels, rule, {**place, "x2": {"field": "x2"}}),
        charts.layer("points", points, dot, place),
        charts.layer("changes", changes, dashed, {"x": x}),
        charts.layer("changes", changes, label, {"x": x, "y": {"value": 0}, "text": {"field": "words"}}),
    ]
    return charts.figure(layers, CHART_PX)
