"""A run in a notebook: its tables as DataFrames, and the report's charts as Altair charts."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from fiprof.analysis import roofline, stalls
from fiprof.analysis import show as show_report
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.verdict import verdict
from fiprof.errors import FiprofError
from fiprof.model.labels import Labels
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.reports import show as show_tables
from fiprof.reports import verdict_tables
from fiprof.reports.pages import charts, charts_time, charts_timeline
from fiprof.reports.pages.page import Chart
from fiprof.reports.view import Document
from fiprof.text import escape_control

if TYPE_CHECKING:
    import pandas as pd
    from altair import LayerChart


NOTEBOOK_PX = 760
"""Width of a chart."""
VEGALITE = "application/vnd.vegalite.v6+json"
"""What a notebook calls a chart of Vega-Lite."""


class OpenedRun(Run):
    """A run folder, opened in a notebook: ``frame`` gives a table, the other methods what the report shows.

    Where figures cannot be drawn, a chart shows itself in characters. Each method raises FiprofError for a table that
    cannot be read, and says why where the run has nothing of the kind.
    """

    def roofline(self, kernel: str = "") -> LayerChart:
        """Launches under the roofs. kernel: only launches of these, as ``fiprof roofline --kernel``."""
        return _figure(charts.roofline_chart(roofline.roofline(self, wanted=Selection(kernel))))

    def stalls(self, kernel: str = "") -> LayerChart:
        """What the warps of each launch waited for. kernel: as for ``roofline``."""
        return _figure(charts.stalls_chart(stalls.stalls(self, wanted=Selection(kernel))))

    def occupancy(self) -> LayerChart:
        """Achieved and theoretical occupancy of each launch."""
        return _figure(charts.occupancy_chart(show_report.show(self)))

    def timeline(self) -> LayerChart:
        """Kernels, calls, phases and the hardware's levels on one time axis."""
        return _figure(self._traced(charts_timeline.timeline_chart(self.once(Analyses)), "timeline"))

    def memory(self) -> LayerChart:
        """Device memory over time."""
        return _figure(self._traced(charts_time.memory_chart(self), "allocations"))

    def gpu_time(self) -> LayerChart:
        """Each kernel's share of the GPU's time, of a run of one case or of a program."""
        if len(self.cases) > 1:
            raise FiprofError(
                f"{self.manifest.name} has {len(self.cases)} cases, no pipeline: shares over them mean nothing",
                "run.timeline() shows each case by itself",
            )
        return _figure(charts_time.gpu_time_chart(charts_time.gpu_time(self)))

    def show(self) -> pd.DataFrame:
        """A row a launch, with the figures of ``fiprof show`` in full precision; its case's begin with ``case_``."""
        return _frame(show_tables.document(show_report.show(self)))

    def verdicts(self) -> pd.DataFrame:
        """A row a launch: what binds it, by which evidence, how sure, and what ``fiprof verdict`` says to do next."""
        return _frame(verdict_tables.document(verdict.verdicts(self)))

    def _traced(self, chart: Chart | None, what: str) -> Chart:
        if chart is None:
            raise FiprofError(
                f"{self.manifest.name} has no {what}",
                self.remedy("--tool nsys,ncu"),
                why=self.missing("nsys"),
            )
        return chart

    def _repr_html_(self) -> str:
        """What the run is, in a few lines."""
        manifest, labels = self.manifest, Labels(self.manifest.cases)
        gpu = (manifest.environment.get("gpu") or {}).get("name", "")
        tables = [name.stem for name in sorted(self.tables_path.glob("*.parquet"))]
        facts = (
            ("status", manifest.status + (f": {manifest.reason}" if manifest.reason else "")),
            ("GPU", gpu),
            ("started", manifest.started),
            ("cases", ", ".join(labels(case.id) for case in manifest.cases)),
            ("tables", ", ".join(tables)),
        )
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{_text(value)}</td></tr>"
            for name, value in facts
            if value
        )
        return f"<table><caption style='text-align:left'><b>{_text(manifest.name)}</b></caption>{rows}</table>"


def _text(value: object) -> str:
    return html.escape(escape_control(str(value)))


def _figure(chart: Chart) -> LayerChart:
    """The chart's figure; where a notebook cannot show it, the chart in characters."""
    try:
        import altair as alt
        import vl_convert
    except ImportError as error:
        raise FiprofError(
            f"a chart needs {error.name}, which is not installed", "pip install 'fiprof[report]'"
        ) from error

    class WithText(alt.LayerChart):  # type: ignore[misc]
        """A figure that a notebook shows without a network: as Vega-Lite, as a picture, or in characters."""

        def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
            if alt.renderers.active != "default":
                return super()._repr_mimebundle_(*args, **kwds)
            spec = self.to_dict()
            picture = vl_convert.vegalite_to_svg(spec)
            shown = {VEGALITE: spec, "image/svg+xml": picture, "text/plain": chart.text or chart.title}
            return shown, {"image/svg+xml": {"needs_background": "light"}}

    return WithText.from_dict({**chart.figure().to_dict(validate=False), "width": NOTEBOOK_PX}, validate=False)


def _frame(document: Document) -> pd.DataFrame:
    """A document's data as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(list(document.data.rows), columns=[column.key for column in document.data.columns])
