"""A run in a notebook: its tables and the commands' rows as DataFrames, and charts of them as Vega-Lite."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fiprof.analysis import show as show_analysis
from fiprof.analysis.roofline import compute_roofs, memory_roofs, roofline
from fiprof.analysis.stalls import stalls
from fiprof.analysis.timeline import timeline
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.reports import charts, colours, timeline_text, verdict_tables, writers
from fiprof.reports import roofline as roofline_report
from fiprof.reports import show as show_report
from fiprof.reports import stalls as stalls_report
from fiprof.reports.view import Document
from fiprof.text import escape_control, short_kernel, shorten

if TYPE_CHECKING:
    import pandas as pd

VEGALITE = "application/vnd.vegalite.v6+json"  # what a notebook calls a chart of Vega-Lite
NOTEBOOK_PX = 640  # width of a chart


class NotebookFigure(dict[str, Any]):
    """A Vega-Lite specification that a notebook shows without a network: as chart, picture, or table in text."""

    def __init__(self, table: Document, **spec: Any) -> None:
        super().__init__({"$schema": charts.SCHEMA, **spec, "width": NOTEBOOK_PX})
        self.text = writers.render(table, "table", width=100)

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            import vl_convert
        except ImportError as error:
            what = f"a chart needs {error.name}, which is not installed"
            raise FiprofError(what, "pip install vl-convert-python") from error
        picture = vl_convert.vegalite_to_svg(dict(self))
        shown = {VEGALITE: dict(self), "image/svg+xml": picture, "text/plain": self.text}
        return shown, {"image/svg+xml": {"needs_background": "light"}}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """IPython's own printer of dictionaries would win over the text."""
        printer.text(self.text)


class OpenedRun(Run):
    """A run folder, opened in a notebook: ``frame`` gives a table, the other methods what the commands show. Each
    method raises FiprofError for a table that cannot be read, and says why where the run has nothing of the kind."""

    def show(self) -> pd.DataFrame:
        """A row a launch, with the figures of ``fiprof show`` in full precision; its case's begin with ``case_``."""
        return show_report.document(show_analysis.show(self), self).data.frame()

    def verdicts(self) -> pd.DataFrame:
        """A row a launch: what limits it, by which evidence, and what ``fiprof verdict`` says to do next."""
        return verdict_tables.document(verdicts(self)).data.frame()

    def roofline(self, kernel: str = "") -> NotebookFigure:
        """Launches under the roofs. kernel: only launches of these, as ``fiprof roofline --kernel``."""
        placed = roofline(self, wanted=Selection(kernel))
        shown = roofline_report.document(placed)
        points: charts.Rows = []
        for row in shown.data.records():
            if row["dram_flop_per_byte"] and row["tflops"]:
                place = {"x": row["dram_flop_per_byte"], "y": row["tflops"], "drawn": "points"}
                about = [] if row["roof_share"] is None else [("of roof", f"{row['roof_share']:.0%}")]
                points.append({"series": short_kernel(row["kernel"]), "name": _name(row), "details": about, **place})
        points.sort(key=lambda point: point["x"])
        works = [(kind, high / 1e12) for kind, (_, high) in compute_roofs(placed.launches).items()]
        xs, top = [point["x"] for point in points] or [1.0], max((work for _, work in works), default=math.inf)
        for level, (_, high) in memory_roofs(placed.launches).items():
            rate, line = high / 1e12, {"series": f"{level} {high / 1e12:.2f} TB/s", "drawn": "line"}
            last = min(2 * max(xs), top / rate)
            ends = (min(min(xs) / 2, last / 10), last)
            points += [{**line, "colour": colours.GREY, "x": x, "y": x * rate} for x in ends]
        axes: Any = {"x": ("intensity at DRAM", "FLOP/byte"), "y": ("achieved", "TFLOP/s")}
        return NotebookFigure(shown, **charts.scaling_chart(points, roofs=works, **axes))

    def stalls(self, kernel: str = "") -> NotebookFigure:
        """What the warps of each launch waited for. kernel: as for ``roofline``."""
        shown = stalls_report.document(stalls(self, wanted=Selection(kernel)))
        mixes: dict[str, dict[str, float]] = defaultdict(dict)
        for row in shown.data.records():
            if share := row["sample_share"] if row["stall_share"] is None else row["stall_share"]:
                mixes[_name(row)][row["reason"]] = share
        return NotebookFigure(shown, **charts.stall_mixes(mixes))

    def timeline(self) -> NotebookFigure:
        """When the kernels of each case ran."""
        phases = timeline(self, phase="all")
        rows = [
            {
                "case": escape_control(part.label), "kernel": short_kernel(span["kernel"]),
                "start": span["start_us"] - part.start_us, "end": span["end_us"] - part.start_us,
                "median µs": span["nsys_duration_us"], "count": span["executions"],
            }
            for part in phases.phases
            for span in part.spans
        ]  # fmt: skip
        if not rows:
            why = self.missing("nsys")
            raise FiprofError(f"{self.manifest.name} has no timeline", self.remedy("--tool nsys,ncu"), why=why)
        encoding = {
            "x": charts.quantity("start", title="µs since the case's phase began"), "x2": {"field": "end"},
            "y": {"field": "kernel", "type": "nominal"}, "row": {"field": "case", "type": "nominal"},
        }  # fmt: skip
        return NotebookFigure(timeline_text.document(phases), data={"values": rows}, mark="bar", encoding=encoding)

    def _repr_html_(self) -> str:
        """What the run is, in a few lines."""
        manifest = self.manifest
        facts = (
            ("status", manifest.status + (f": {manifest.reason}" if manifest.reason else "")),
            ("GPU", self.environment("gpu", "name")),
            ("started", manifest.started),
            ("cases", ", ".join(self.labels(case.id) for case in manifest.cases)),
            ("tables", ", ".join(name.stem for name in sorted(self.tables_path.glob("*.parquet")))),
        )
        align_left = "style='text-align:left'"
        shown = ((name, html.escape(escape_control(str(value)))) for name, value in facts if value)
        rows = "".join(f"<tr><th {align_left}>{name}</th><td {align_left}>{value}</td></tr>" for name, value in shown)
        name = html.escape(escape_control(manifest.name))
        return f"<table><caption {align_left}><b>{name}</b></caption>{rows}</table>"


def _name(row: Mapping[str, Any]) -> str:
    return shorten(escape_control(f"{row['launch']} {row.get('label') or row['case'] or ''} {row['kernel']}"), 60)
