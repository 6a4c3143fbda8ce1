"""A run in a notebook: its tables as DataFrames, and the report's charts as Vega-Lite."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fiprof.analysis import roofline, stalls
from fiprof.analysis import show as show_report
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.verdict import verdict
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.reports import roofline_tables, timeline_text, verdict_tables, writers
from fiprof.reports import show as show_tables
from fiprof.reports import stalls as stalls_tables
from fiprof.reports.pages import colours
from fiprof.reports.view import Document
from fiprof.text import escape_control, short_kernel, shorten

if TYPE_CHECKING:
    import pandas as pd

VEGALITE = "application/vnd.vegalite.v6+json"
"""What a notebook calls a chart of Vega-Lite."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
NOTEBOOK_PX = 640
"""Width of a chart."""


class Figure(dict[str, Any]):
    """A Vega-Lite specification that a notebook shows without a network: as a chart, a picture, or a table in text."""

    def __init__(self, text: str, **spec: Any) -> None:
        super().__init__({"$schema": SCHEMA, "width": NOTEBOOK_PX, **spec})
        self.text = text

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            import vl_convert
        except ImportError as error:
            raise FiprofError(
                f"a chart needs {error.name}, which is not installed", "pip install 'fiprof[report]'"
            ) from error
        picture = vl_convert.vegalite_to_svg(dict(self))
        shown = {VEGALITE: dict(self), "image/svg+xml": picture, "text/plain": self.text}
        return shown, {"image/svg+xml": {"needs_background": "light"}}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """IPython's own printer of dictionaries would win over the text."""
        printer.text(self.text)


class OpenedRun(Run):
    """A run folder, opened in a notebook: ``frame`` gives a table, the other methods what the report shows.

    Each method raises FiprofError for a table that cannot be read, and says why where the run has nothing of the kind.
    """

    def roofline(self, kernel: str = "") -> Figure:
        """Launches under the roofs. kernel: only launches of these, as ``fiprof roofline --kernel``."""
        found = roofline.roofline(self, wanted=Selection(kernel))
        points = [
            {
                "launch": _name(item),
                "FLOP per byte": memory.flop_per_byte,
                "TFLOP/s": item.work.ops_per_second / 1e12,
                "of roof": item.share,
                "colour": colours.kernel(item.kernel)[1],
            }
            for item in found.launches
            if item.work and (memory := item.memory(roofline.Level.DRAM)) and memory.flop_per_byte
        ]
        peak = max((high for _, high in roofline.compute_roofs(found.launches).values()), default=1e12)
        memories = {level: high for level, (_, high) in roofline.memory_roofs(found.launches).items()}
        ends = [0.1, 10_000.0, *(peak / rate for rate in memories.values())]
        roofs = [
            {"roof": level, "FLOP per byte": at, "TFLOP/s": min(at * rate, peak) / 1e12}
            for level, rate in memories.items()
            for at in sorted(ends)
        ]
        log = {"type": "log"}
        place = {"x": _axis("FLOP per byte", scale=log), "y": _axis("TFLOP/s", scale=log)}
        colour = {"field": "colour", "type": "nominal", "scale": None}
        mark = {"type": "point", "filled": True, "size": 90, "tooltip": {"content": "data"}}
        return Figure(
            _text(roofline_tables.document(found)),
            height=320,
            layer=[
                {**_data(roofs), "mark": "line", "encoding": {**place, "detail": {"field": "roof"}}},
                {**_data(points), "mark": mark, "encoding": {**place, "color": colour}},
            ],
        )

    def stalls(self, kernel: str = "") -> Figure:
        """What the warps of each launch waited for. kernel: as for ``roofline``."""
        found = stalls.stalls(self, wanted=Selection(kernel))
        rows = [
            {"launch": _name(item), "reason": stall.reason, "share": stall.weight}
            for item in found.launches
            for stall in item.stalls
            if stall.weight
        ]
        reasons = list(dict.fromkeys(row["reason"] for row in rows))
        scale = {"domain": reasons, "range": [colours.stall(str(reason)) for reason in reasons]}
        colour = {"field": "reason", "type": "nominal", "scale": scale}
        return _bars(_text(stalls_tables.document(found)), rows, "share", "share of the warps' time", color=colour)

    def occupancy(self) -> Figure:
        """Achieved and theoretical occupancy of each launch, percent."""
        found = show_report.show(self)
        rows = [
            {"launch": _name(item), "of": name, "occupancy": value}
            for item in found.launches
            for name, key in (("achieved", "achieved_occupancy_pct"), ("theoretical", "theoretical_occupancy_pct"))
            if (value := item.row.get(key)) is not None
        ]
        text = _text(show_tables.document(found, sections=[show_tables.Section.OCCUPANCY], overview=False))
        more = {"color": {"field": "of", "type": "nominal"}, "yOffset": {"field": "of"}}
        return _bars(text, rows, "occupancy", "occupancy, %", **more)

    def timeline(self) -> Figure:
        """When the kernels of each case ran."""
        found = self.once(Analyses).timeline
        rows = [
            {
                "case": part.label, "kernel": short_kernel(span["kernel"]), "start": span["start_us"] - part.start_us,
                "end": span["end_us"] - part.start_us, "median µs": span["nsys_duration_us"],
                "count": span["executions"],
            }
            for part in found.phases
            for span in part.spans
        ]  # fmt: skip
        self._need(rows, "timeline")
        encoding = {
            "x": _axis("start", title="µs since the case's phase began"),
            "x2": {"field": "end"},
            "y": {"field": "kernel", "type": "nominal"},
            "row": {"field": "case", "type": "nominal"},
        }
        return Figure(_text(timeline_text.document(found)), **_data(rows), mark="bar", encoding=encoding)

    def memory(self) -> Figure:
        """Device memory over time, a line a process and GPU."""
        rows = [
            {"ms": row["time_ns"] / 1e6, "MB": row["total_bytes"] / 1e6, "GPU": f"GPU {row['device']}, {row['pid']}"}
            for row in self.rows("memory", ["time_ns", "total_bytes", "device", "pid"])
        ]
        self._need(rows, "allocations")
        rows = rows[:: max(len(rows) // 2000, 1)]
        most = max(rows, key=lambda row: float(row["MB"]))
        encoding = {"x": _axis("ms"), "y": _axis("MB"), "color": {"field": "GPU", "type": "nominal"}}
        mark = {"type": "line", "interpolate": "step-after"}
        text = f"device memory: at most {most['MB']:,.1f} MB, at {most['ms']:,.3f} ms"
        return Figure(text, **_data(rows), mark=mark, encoding=encoding)

    def gpu_time(self) -> Figure:
        """What takes the time, of a run of one case or of a program."""
        from fiprof.reports.run_report.rows import rows_of

        if len(self.cases) > 1:
            raise FiprofError(
                f"{self.manifest.name} has {len(self.cases)} cases, no pipeline: shares over them mean nothing",
                "run.timeline() shows each case by itself",
            )
        found = rows_of(self.once(Analyses)).rows[:40]
        rows = [{"launch": row.title, "share": row.share, "kind": row.family[0]} for row in found]
        self._need(rows, "kernels")
        text = "\n".join(f"{row['share']:6.1%}  {escape_control(str(row['launch']))}" for row in rows)
        return _bars(text, rows, "share", "share of the time", color={"field": "kind", "type": "nominal"})

    def show(self) -> pd.DataFrame:
        """A row a launch, with the figures of ``fiprof show`` in full precision; its case's begin with ``case_``."""
        return _frame(show_tables.document(show_report.show(self)))

    def verdicts(self) -> pd.DataFrame:
        """A row a launch: what limits it, by which evidence, and what ``fiprof verdict`` says to do next."""
        return _frame(verdict_tables.document(verdict.verdicts(self)))

    def _need(self, rows: Sequence[object], what: str) -> None:
        if not rows:
            raise FiprofError(
                f"{self.manifest.name} has no {what}", self.remedy("--tool nsys,ncu"), why=self.missing("nsys")
            )

    def _repr_html_(self) -> str:
        """What the run is, in a few lines."""
        manifest = self.manifest
        gpu = (manifest.environment.get("gpu") or {}).get("name", "")
        facts = (
            ("status", manifest.status + (f": {manifest.reason}" if manifest.reason else "")),
            ("GPU", gpu),
            ("started", manifest.started),
            ("cases", ", ".join(self.labels(case.id) for case in manifest.cases)),
            ("tables", ", ".join(name.stem for name in sorted(self.tables_path.glob("*.parquet")))),
        )
        left = "style='text-align:left'"
        rows = "".join(
            f"<tr><th {left}>{name}</th><td {left}>{_html(value)}</td></tr>" for name, value in facts if value
        )
        return f"<table><caption {left}><b>{_html(manifest.name)}</b></caption>{rows}</table>"


def _html(value: object) -> str:
    return html.escape(escape_control(str(value)))


def _name(item: Any) -> str:
    return shorten(escape_control(f"{item.launch} {item.label} {item.kernel}"), 60)


def _text(document: Document) -> str:
    return writers.render(document, "table", width=100)


def _data(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as a specification has them; names stay text."""
    values = [{key: escape_control(v) if isinstance(v, str) else v for key, v in row.items()} for row in rows]
    return {"data": {"values": values}}


def _axis(field: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", **more}


def _bars(text: str, rows: Sequence[Mapping[str, Any]], field: str, title: str, **more: Any) -> Figure:
    """A bar a launch, in the rows' order."""
    y = {"field": "launch", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260}}
    mark = {"type": "bar", "tooltip": {"content": "data"}}
    return Figure(text, **_data(rows), mark=mark, encoding={"y": y, "x": _axis(field, title=title), **more})


def _frame(document: Document) -> pd.DataFrame:
    """A document's data as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(list(document.data.rows), columns=[column.key for column in document.data.columns])
