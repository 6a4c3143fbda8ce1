"""The report of one run or of several: what limits each kernel first, then pictures, then all of it for looking up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports.pages.charts import occupancy_chart, roofline_chart, stalls_chart
from fiprof.reports.pages.charts_ranks import ranks_chart
from fiprof.reports.pages.charts_time import gpu_time, gpu_time_chart, memory_chart
from fiprof.reports.pages.charts_timeline import timeline_chart
from fiprof.reports.pages.page import Block, Caution, Chart, Page, Section
from fiprof.reports.run_report import again, answer, beside, kernels, parameters, setup, sure, sweep, times
from fiprof.reports.run_report.entries import by_kernel, entries
from fiprof.reports.words import phrase
from fiprof.text import escape_control


def report(runs: Sequence[Run]) -> Page:
    """The report of the runs; several stand side by side, a column each.

    runs: at least one, with their tables made.
    Raises FiprofError for a table that is there and cannot be read.
    """
    measured = [run.once(Analyses) for run in runs]
    found = entries(measured)
    of_kernels = by_kernel(found)
    head = answer.section if len(runs) == 1 else beside.section
    sections = [
        head(of_kernels, found, measured),
        *([_charts(measured[0]), parameters.section(measured[0])] if len(runs) == 1 else []),
        times.section(measured),
        kernels.section(of_kernels),
        sure.section(measured),
        setup.asked(measured),
        setup.environment(measured),
        again.actions(runs),
        again.section(runs),
    ]
    kept = tuple(section for section in sections if section.blocks or section.sections)
    names = ", ".join(escape_control(run.manifest.name) for run in runs)
    return Page(answer.title(runs, of_kernels), kept, subtitle=names)


def _time_chart(measured: Analyses) -> Chart | None:
    """Each kernel's share of the time, where that is of one pipeline: a single case, or a program without cases."""
    time = gpu_time(measured.run) if len(measured.run.cases) < 2 else None
    return gpu_time_chart(time) if time and time.kernels else None


CHARTS: tuple[Callable[[Analyses], Chart | None], ...] = (
    timeline_chart,
    lambda measured: ranks_chart(measured.run),
    _time_chart,
    lambda measured: roofline_chart(measured.roofs),
    lambda measured: stalls_chart(measured.stalls),
    lambda measured: occupancy_chart(measured.figures) if measured.run.launches else None,
    lambda measured: memory_chart(measured.run),
)
"""The pictures of a run, in their order; each is None or raises FiprofError where the run lacks what it shows."""


def _charts(measured: Analyses) -> Section:
    """The pictures, as far as the run has what they show."""
    blocks: list[Block] = []
    for make in CHARTS:
        try:
            chart = make(measured)
        except FiprofError as error:
            blocks.append(Caution(error.message))
            continue
        if chart is not None:
            blocks.append(chart)
    return Section("charts", phrase("pictures.title"), (*sweep.charts(measured), *dict.fromkeys(blocks)))


def warnings(page: Page) -> Iterable[str]:
    """What makes the whole of a report doubtful: the cautions at its beginning."""
    yield from (block.text for block in page.sections[0].blocks if isinstance(block, Caution))
