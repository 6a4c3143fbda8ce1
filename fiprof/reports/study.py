"""The documents of a study, from its results: Jinja templates of Markdown (``templates/study``), and HTML of them."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from fiprof import confined
from fiprof.analysis import alternatives, case_names, choices, claims, scaling, study
from fiprof.analysis.case_names import (
    Params,
    axis_name,
    is_number,
    label,
    parameter_words,
    short,
    short_pair,
    value_word,
)
from fiprof.analysis.choices import Chosen
from fiprof.analysis.claims import Bound, Outcome, Result
from fiprof.analysis.expectations import Family, combined
from fiprof.analysis.frames import Column
from fiprof.analysis.ratio import Direction, of_cases
from fiprof.analysis.reasons import ReasonKind, state
from fiprof.analysis.study import Study, load, main_kernel, matches, pairs, row, side, size
from fiprof.analysis.verdict.model import Kind, Part
from fiprof.files import write_whole
from fiprof.model import kernel_info, packs
from fiprof.model.finding import Finding
from fiprof.model.results import CaseResult, Kernel
from fiprof.model.wording import worded
from fiprof.reports.markdown_html import (
    Markdown,
    code_span,
    document_html,
    grid,
    markdown_table,
    plain_markdown,
    render,
    slug,
    vega_block,
)
from fiprof.reports.study_method import Method
from fiprof.reports.view import Value
from fiprof.text import byte_words, csv_cell, join_words, number, spread

CASES = "cases.csv"
DOCUMENTS = ("INDEX", "environment", "analysis", "kernel-dev-guide", "final-report")

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""
TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""
MOST_ROWS = 8
"""Rows of a table of examples."""


@dataclass(frozen=True)
class StudySection:
    """What a pack adds to a document of a study."""

    document: str
    """``analysis``, ``kernel-dev-guide`` or ``final-report``."""
    place: str
    """A workload; ``all`` for what concerns them all; in the final report ``serving`` or ``kernels``."""
    title: str
    body: Markdown
    """Its paragraphs, tables and code; see :mod:`fiprof.reports.markdown_html`."""
    learned: str = ""
    """One sentence for the head of the final report."""
    absent: str = ""
    """Why there is nothing; it is listed as not measured then."""


def documents(folder: Path) -> list[Path]:
    """Write ``reports/`` of a study folder anew; the files written, Markdown and HTML of each document.

    Raises FiprofError where results are missing or damaged, or a library of ``fiprof[study]`` is missing.
    """
    reports = folder / "reports"
    found = load(folder)
    made = pages(found)
    confined.make_folder(folder, reports.name)
    written = []
    for name, text in made.items():
        title = text.partition("\n")[0].lstrip("# ")
        for suffix, content in ((".md", plain_markdown(text, f"{name}.html")), (".html", document_html(text, title))):
            write_whole(reports / f"{name}{suffix}", content.encode())
            written.append(reports / f"{name}{suffix}")
    write_whole(reports / CASES, cases_csv(found).encode())
    return [*written, reports / CASES]


def cases_csv(found: Study) -> str:
    """The study's frame: every case with its parameters and figures, units in the columns' names."""
    rows = study.frame(found).rows
    keys = list(dict.fromkeys(key for each in rows for key in each))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(keys)
    for each in rows:
        writer.writerow(_csv_value(each.get(key)) for key in keys)
    return text.getvalue()


def _csv_value(value: Any) -> str:
    if isinstance(value, str | Finding):
        return csv_cell(worded(value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def pages(found: Study) -> dict[str, str]:
    """Document -> its Markdown, with its charts."""
    context = {"s": StudyTables(found), "m": Method(found), "info": found.info, "documents": DOCUMENTS}
    return {name: render(f"study/{name}.md.j2", document=name, **context) for name in DOCUMENTS}


@dataclass(frozen=True)
class StudyTables:
    """What the templates print of a study: its tables, its charts, and the figures in its sentences."""

    study: Study
    number = staticmethod(number)
    grid = staticmethod(grid)
    anchor = staticmethod(slug)
    bytes = staticmethod(byte_words)
    title = staticmethod(case_names.title)
    worded = staticmethod(worded)
    knowledge = staticmethod(kernel_info.of_workload)
    rows_: dict[str, dict[str, Any]] = field(default_factory=dict)

    # Cases

    def label(self, case: CaseResult, *, workload: bool = True) -> str:
        return label(self.study, case, workload=workload)

    def row(self, case: CaseResult) -> dict[str, Any]:
        """The case's row of the study's frame."""
        return self.rows_.get(case.id) or self.rows_.setdefault(case.id, row(self.study, case))

    def table(self, cases: Sequence[CaseResult], keys: str) -> Markdown:
        """Columns of the study's frame; those in which no case has a value are left out."""
        rows = [self.row(case) for case in cases]
        declared = {column.key: column for column in study.COLUMNS}
        columns = [declared[key] for key in keys.split() if any(each[key] not in (None, "") for each in rows)]
        if "workload" not in keys.split() and cases and (axes := self.study.axes(cases[0].workload)):
            sizes = " x ".join(map(axis_name, axes))
            columns = [Column("case", sizes) if column.key == "case" else column for column in columns]
        return markdown_table(columns, [[each[column.key] for column in columns] for each in rows])

    @property
    def own(self) -> list[str]:
        """Workloads that are there for themselves."""
        return [name for name in self.study.by_workload if not self.is_baseline(name)]

    @property
    def baselines(self) -> list[str]:
        """Workloads that are there for another one to be compared with."""
        return [name for name in self.study.by_workload if self.is_baseline(name)]

    @staticmethod
    def is_baseline(workload: str) -> bool:
        known = kernel_info.of_workload(workload)
        return known is not None and bool(known.problem)

    def shown(self, workload: str) -> list[CaseResult]:
        """The smallest unbeaten case, then the largest one of each combination of options."""
        ordered = sorted(self.study.of(workload), key=size)
        least = [case for case in ordered if case.id not in self.study.alternatives][:1]
        options = self.study.options(workload)
        largest = {tuple(case.params.get(name) for name in options): case for case in ordered}
        return [*least, *(case for case in largest.values() if case not in least)]

    def in_order(self, workload: str) -> list[CaseResult]:
        """A workload's measured cases by options, then by growing sizes."""

        def order(case: CaseResult) -> tuple[list[str], list[float]]:
            sizes = [float(case.params[name]) for name in self.study.axes(workload) if name in case.params]
            return [str(case.params.get(name)) for name in self.study.options(workload)], sizes

        return sorted(self.study.of(workload), key=order)

    @property
    def again(self) -> str:
        """The command that measures what is missing."""
        return f"fiprof study {self.study.info.study}" + (" --quick" if self.study.info.settings.get("quick") else "")

    @property
    def columns(self) -> list[Column]:
        """The frame's columns that tables here show."""
        return [column for column in study.COLUMNS if column.key not in ("workload", "run", "skipped", "kernel")]

    def in_short(self, workload: str) -> str:
        """How near its roof it comes, what limits it there, and how many ways were measured."""
        case = next((case for case in self.best if case.workload == workload), None)
        figures = self.row(case) if case else {}
        counted = f"{len(self.study.of(workload))} cases."
        if not case or figures["roof_pct"] is None:
            return counted
        limit = f", {worded(figures['bound'])}" if figures["bound"] else ""
        stall = f"; its warps: {figures['stalls']}" if figures["stalls"] else ""
        best = f"At best it reaches {figures['roof_pct']:.0f}% of the {figures['roof']} roof ({figures['case']})"
        return f"{best}{limit}{stall}. {counted}"

    @property
    def without_time(self) -> list[tuple[str, int, str, str]]:
        """Workload, how many cases, the first two, and the reason, of cases that have no time."""
        groups: dict[tuple[str, str], list[str]] = {}
        for workload, cases in self.study.by_workload.items():
            for case in cases:
                if case.plain is None:
                    why = case.skipped or "it has no plain time"
                    groups.setdefault((workload, why), []).append(self.label(case, workload=False))
        return [
            (workload, len(names), join_words(names[:2]) + (" …" if len(names) > 2 else ""), why)
            for (workload, why), names in groups.items()
        ]

    # What packs add

    @cached_property
    def _sections(self) -> list[StudySection]:
        return packs.joined("study_sections", self.study)

    def sections(self, document: str, place: str = "") -> list[StudySection]:
        """What packs add to a document, at one place or at all."""
        return [
            each
            for each in self._sections
            if each.document == document and place in ("", each.place) and not each.absent
        ]

    # Choices and alternatives

    @cached_property
    def _choices(self) -> tuple[list[Chosen], list[tuple[choices.Choice, Finding]]]:
        return choices.choices(self.study)

    @property
    def chosen(self) -> list[Chosen]:
        """The answers to the packs' choices."""
        return self._choices[0]

    @property
    def choice_rows(self) -> list[tuple[Value, ...]]:
        """Question, gain in the median, where it is least and most, pairs that are faster, slower and the same."""
        return [
            (item.question, item.median, self._gain(item, -1), self._gain(item, 0), *map(item.counted, DIRECTIONS))
            for item in self.chosen
        ]

    @property
    def verdicts(self) -> list[tuple[str, list[str]]]:
        """Verdict -> the claims of which it is said."""
        found: dict[str, list[str]] = {}
        for item in self.claims:
            words = item.verdict.replace("_", " ").replace("depends", "depending on the case")
            found.setdefault(words, []).append(item.claim.words)
        return sorted(found.items())

    @staticmethod
    def from_to(gains: Sequence[float]) -> str:
        low, high = f"{min(gains):.2f}", f"{max(gains):.2f}"
        return f"{low}x" if low == high else f"{low}x to {high}x"

    def _gain(self, item: Chosen, index: int) -> str:
        pair, ratio = item.group[index]
        return f"{ratio.value:.2f} at {short_pair(self.study, *pair)}"

    @property
    def beaten(self) -> list[tuple[Value, ...]]:
        """Kernel, case, what to take instead, factor with its ends, and by which time, the largest factor first."""
        rows: list[tuple[Value, ...]] = []
        for case in self.study.measured:
            if (found := self.study.alternatives.get(case.id)) is not None:
                instead = {each.name: each.instead for each in found.changes}
                workload = str(instead.pop(alternatives.WORKLOAD, ""))
                params = {**case.params, **instead}
                words = [workload, *(value_word(name, value, params) for name, value in instead.items())]
                take, factor = ", ".join(filter(None, words)), found.factor
                by = "GPU" if found.measure is alternatives.Measure.GPU else "host's loop"
                rows.append((case.workload, self.row(case)["case"], take, factor.value, factor.low, factor.high, by))
        return sorted(rows, key=lambda item: -item[3])  # type: ignore[operator]

    # Kernels

    @property
    def best(self) -> list[CaseResult]:
        """Of each workload the model shape nearest to its roof, at its largest size, solved the fastest way."""
        found: dict[str, CaseResult] = {}
        for case in self.study.largest:
            if case.workload not in found or self._roof_share(case) > self._roof_share(found[case.workload]):
                found[case.workload] = case
        return list(found.values())

    def _roof_share(self, case: CaseResult) -> float:
        return self.row(case)["roof_pct"] or 0.0

    @property
    def next_steps(self) -> list[str]:
        """What to do about each model shape's largest case, those with the same advice together."""
        alike: dict[tuple[str, str], list[tuple[str, float]]] = {}
        for case in self.study.largest:
            key, reason, share = next_step(case)
            alike.setdefault((key, reason), []).append((case.workload, share))
        return [
            NEXT_STEPS[key].format(
                cases=join_words(list(dict.fromkeys(name for name, _ in found))),
                reason=reason,
                share=spread([share for _, share in found], ".0%"),
                helps=state(reason).helps,
            )
            for (key, reason), found in alike.items()
        ]

    @property
    def tails(self) -> dict[str, Any]:
        """Grids whose last wave is nearly empty, of cases that nothing solves faster: the slowest of each launch."""
        seen = [(case, kernel) for case in self.study.unbeaten if (kernel := main_kernel(case)) and kernel.waves]
        late = [(case, kernel) for case, kernel in seen if wave_efficiency(kernel.waves) < TAIL_EFFICIENCY]
        distinct = {(kernel.kernel, kernel.grid, kernel.block): (case, kernel) for case, kernel in reversed(late)}
        shown = sorted(distinct.values(), key=lambda item: -(item[0].plain.median_us if item[0].plain else 0.0))
        return {
            "cases": len(seen),
            "under": sum((kernel.waves or 0) < 1 for _, kernel in seen),
            "tails": len(late),
            "names": join_words(list(dict.fromkeys(case.workload for case, _ in late))),
            "empty": 1 - TAIL_EFFICIENCY,
            "rows": [
                (case.workload, self.row(case)["case"], kernel.waves, 100 * wave_efficiency(kernel.waves))
                for case, kernel in shown[:MOST_ROWS]
            ],
        }

    def fastest_map(self, workload: str) -> Markdown:
        """A problem over its last size, a row for each model shape and value of its other sizes: the fastest way, and
        its share of the roof. Empty where no size was varied."""
        problems = [(case, *problem_of(case)) for case in self.study.fastest]
        found = [(case, params) for case, name, params in problems if name == workload]
        names = dict.fromkeys(name for case, _ in found for name in case.params)
        defining = [name for name in names if len({params.get(name) for _, params in found}) > 1]
        sizes = [
            name
            for name in defining
            if all(is_number(case.params.get(name)) for case, _ in found) and not kernel_info.of_parameter(name).of
        ]
        if not sizes:
            return Markdown("")
        *others, across = sizes
        models = [name for name in defining if name not in sizes]
        rows: dict[tuple[str, ...], dict[Any, str]] = {}
        for case, params in found:
            model = parameter_words({name: value for name, value in params.items() if name in models}, case.params)
            kernel = main_kernel(case)
            share = kernel.roof_share if kernel and kernel.roof else case.gb_per_s_roof_share
            words = [self._way(case), "" if share is None else f"{share:.0%}"]
            key = (*([model] if models else []), *(f"{case.params[name]:,}" for name in others))
            rows.setdefault(key or (workload,), {})[case.params[across]] = " ".join(filter(None, words))
        values = sorted({value for row in rows.values() for value in row}, key=float)
        head = [*(["model"] if models else []), *map(axis_name, others)] or ["kernel"]
        heads = ";".join([*head, *(f"{axis_name(across)} {value:,}" for value in values)])
        ordered = sorted(rows.items(), key=lambda item: item[0][0]) if models else rows.items()
        return grid(heads, [(*key, *(cells.get(value, "–") for value in values)) for key, cells in ordered])

    def _way(self, case: CaseResult) -> str:
        """The options that a case was solved with; the workload where it is another one for the same problem."""
        workload, params = problem_of(case)
        known = kernel_info.of_workload(case.workload)
        options = {
            name: case.params[name]
            for name in self.study.options(case.workload)
            if name in case.params and name not in params and known and name in known.options
        }
        words = [case.workload if case.workload != workload else "", parameter_words(options, case.params)]
        return ", ".join(filter(None, words))

    def fusing(self, workload: str) -> list[tuple[str, str, Markdown]]:
        """Each workload that solves the same problem, the formula of the traffic, and what is saved against it."""
        made = []
        for rival in self.baselines:
            known = kernel_info.of_workload(rival)
            if known is None or known.problem != workload:
                continue
            both = pairs(self.study, side(workload), side(rival))
            rows = [
                (self.row(one)["case"], *(_saved(self.row(one)[key], self.row(other)[key]) for key in SAVED))
                for one, other in both
            ]
            own = kernel_info.of_workload(workload)
            heads = "case; least bytes (%)|.1f; counted DRAM bytes (%)|.1f; time (%)|.1f"
            made.append((rival, own.traffic if own else "", grid(heads, rows)))
        return made

    @property
    def expected(self) -> tuple[list[str], list[tuple[Value, ...]]]:
        """Where figures come from; and kernel, case, roof, expected and measured share of it, and of the stalls."""
        capability = (self.study.info.environment.get("gpu") or {}).get("compute_capability")
        sources: dict[str, None] = {}
        rows: list[tuple[Value, ...]] = []
        for source, family in combined():
            for case in self.study.fastest:
                expected = _expected_share(family, case)
                kernel = main_kernel(case)
                if expected is None or kernel is None or family.roof is None:
                    continue
                words = f"{source.title} ({source.reference}; {source.gpu})."
                if source.compute_capability != capability:
                    words += " Another GPU than this one: the shares say where to look, not who is right."
                sources[words] = None
                figures = self.row(case)
                of_dram = family.roof.kind == "dram"
                measured = figures["dram_roof_pct"] if of_dram else figures["roof_pct"]
                stalls = "; ".join(
                    f"{reason} {low:g} to {high:g}, {100 * kernel.stalls.get(reason, 0.0):.0f}"
                    for reason, (low, high) in family.stalls.items()
                )
                known = of_dram or kernel.roof_kind == "compute"
                shown = (family.roof.kind, expected, measured if known else None, stalls if kernel.stalls else "–")
                rows.append((case.workload, figures["case"], *shown))
        return list(sources), rows

    # Growth

    def growth(self, workload: str) -> list[dict[str, Any]]:
        """Of each axis: its name, where the other axes stand, the fits there as rows, and a chart."""
        made = []
        for axis in self.study.axes(workload):
            if fits := scaling.fits(self.study, workload, axis):
                shown, fixed = self._middle(workload, axis, fits)
                words = parameter_words(fixed, fixed)
                title = f"{workload}: time against {axis_name(axis)}{f', {words}' if words else ''}"
                made.append(
                    {
                        "axis": axis_name(axis),
                        "where": words,
                        "slope": self.slope(workload, axis),
                        "rows": [self._fit(item) for item in shown],
                        "unit": shown[0].unit[0],
                        "chart": self._chart(title, shown, axis),
                    }
                )
        return made

    def _middle(self, workload: str, axis: str, found: list[scaling.Fit]) -> tuple[list[scaling.Fit], Params]:
        """The fits at the middle of the other axes, and those axes' values there."""
        fixed: dict[str, Any] = {}
        for name in self.study.axes(workload):
            values = sorted({item.cases[0].params[name] for item in found if name in item.cases[0].params}, key=float)
            if name != axis and values:
                fixed[name] = values[len(values) // 2]
                found = [item for item in found if item.cases[0].params.get(name) == fixed[name]]
        return found, fixed

    def _fit(self, item: scaling.Fit) -> tuple[Value, ...]:
        line, law = item.line, item.law
        grown = of_cases(item.cases[-1], item.cases[0])
        return (
            short(self.study, item.cases[0], without=self.study.axes(item.workload)),
            f"{item.xs[0]:,.0f} to {item.xs[-1]:,.0f}",
            grown.value if grown else None,
            line.slope_us.words(item.unit[1]) if line and line.holds else "–",
            line.intercept_us.words() if line and line.holds else "–",
            law.exponent.words() if law and law.holds else "–",
        )

    def slope(self, workload: str, axis: str) -> str:
        """The slopes of the lines along an axis that hold; a dash where none does."""
        fits = scaling.fits(self.study, workload, axis) if axis in self.study.axes(workload) else []
        holding = [(item, item.line) for item in fits if item.line is not None and item.line.holds]
        if not holding:
            return "–"
        unit, scale = max((item for item, _ in holding), key=lambda item: item.xs[-1]).unit
        slopes = spread([line.slope_us.value * scale for _, line in holding])
        return f"{slopes} µs for {unit} more ({len(holding)} of {len(fits)} lines)"

    def _chart(self, title: str, fits: Sequence[scaling.Fit], axis: str) -> Markdown:
        """Time against an axis, a line for each way to solve it."""
        from fiprof.reports.charts import Point, Series, scaling_chart

        series = [
            Series(
                short(self.study, item.cases[0], without=self.study.axes(item.workload)),
                tuple(
                    Point(x, each.median_us, each.low_us, each.high_us, self.label(case), (("run", case.run),))
                    for x, case in zip(item.xs, item.cases, strict=True)
                    if (each := case.plain) is not None
                ),
            )
            for item in fits
        ]
        unit = kernel_info.of_parameter(axis).unit
        x = (axis_name(axis), unit if unit == "tokens" else "")
        return vega_block(title, scaling_chart(series, x=x, y=("time", "µs")))

    @property
    def roofline(self) -> Markdown:
        """Each model shape's largest case under the roofs that follow from its shares of them; empty without any."""
        from fiprof.reports.charts import Point, Series, scaling_chart
        from fiprof.reports.pages import colours

        cases = [(case, self.row(case)["intensity"]) for case in self.study.largest if self.row(case)["intensity"]]
        placed = [(case, x) for case, x in cases if case.tflops]
        if not placed:
            return Markdown("")
        series = [
            Series(
                f"{case.workload} {short(self.study, case, without=self.study.axes(case.workload))}",
                (Point(x, case.tflops or 0.0, name=self.label(case)),),
                colours.kernel(case.workload)[1],
                "points",
            )
            for case, x in placed
        ]
        shares = [(case.gb_per_s, case.gb_per_s_roof_share) for case, _ in placed]
        roofs: dict[str, list[float]] = {}
        for case, _ in placed:
            kernel = main_kernel(case)
            if kernel and kernel.roof and kernel.roof_kind == "compute" and case.tflops and case.tflops_roof_share:
                roofs.setdefault(kernel.roof, []).append(case.tflops / case.tflops_roof_share)
        across = [(name, median(values)) for name, values in roofs.items()]
        if bandwidths := [rate / share for rate, share in shares if rate and share]:
            bandwidth = median(bandwidths) / 1e3
            low, high = min(x for _, x in placed) / 2, max(x for _, x in placed) * 2
            end = min([high, *(value / bandwidth for _, value in across)])
            line = (Point(low, low * bandwidth), Point(end, end * bandwidth))
            series.append(Series(f"DRAM {bandwidth:.2f} TB/s", line, colours.GREY, "line"))
        chart = scaling_chart(series, x=("intensity", "FLOP/byte"), y=("achieved", "TFLOP/s"), roofs=across)
        return vega_block("Roofline: each model shape at its largest size", chart)

    # Claims

    @cached_property
    def claims(self) -> tuple[Result, ...]:
        """What became of what others say."""
        return claims.results(self.study)

    @property
    def claim_rows(self) -> list[tuple[Value, ...]]:
        """Claim, verdict, what was measured, and how many tests have each outcome."""
        return [
            (
                item.claim.words,
                item.verdict.replace("_", " "),
                item.measured,
                len(item.tested),
                *map(item.counted, Outcome),
            )
            for item in self.claims
        ]

    def claim_ends(self, item: Result) -> str:
        """The least and the most that was measured, and where; empty for a bound."""
        if isinstance(item.claim.test, Bound) or not item.tested:
            return ""
        ordered = sorted(item.tested, key=lambda each: each.ratio.value if each.ratio else each.saving or 0.0)
        least, most = (
            f"{each.measured} at {short_pair(self.study, *each.cases)}" for each in (ordered[0], ordered[-1])
        )
        return f"from {least} to {most}"

    @property
    def claim_notes(self) -> list[str]:
        return packs.joined("claim_notes")

    @property
    def not_measured(self) -> list[str]:
        """Sections, choices and claims about which nothing can be said, and why."""
        lines = [f"{each.title}: {each.absent}." for each in self._sections if each.absent]
        lines += [f"{choice.what}: {worded(why)}." for choice, why in self._choices[1]]
        absent = [(item, item.absence) for item in self.claims if item.absence is not None]
        return lines + [f"The claim «{item.claim.words}»: {worded(why)}." for item, why in absent]

    def absence(self, workload: str) -> str:
        """Why a workload has no measured case."""
        return worded(study.absence(self.study, workload))

    # The developers' guide

    def parameters(self, workload: str) -> list[tuple[Value, ...]]:
        """Parameter, what it decides, its values here, and how the time grows with it."""
        about = kernel_info.of_workload(workload)
        meanings, varied = dict(about.parameters) if about else {}, self.study.varied(workload)
        return [
            (name, meanings.get(name, "–"), self._tried(workload, name), self.slope(workload, name))
            for name in dict.fromkeys([*meanings, *varied])
        ]

    def _tried(self, workload: str, name: str) -> str:
        values = dict.fromkeys(case.params[name] for case in self.study.of(workload) if name in case.params)
        shown = self.study.varied(workload).get(name) or tuple(values)
        words = (("on" if each else "off") if isinstance(each, bool) else f"{each:,}" if is_number(each) else str(each)
                 for each in shown)  # fmt: skip
        return ", ".join(words) or "–"

    def effects(self, workload: str) -> list[tuple[Value, ...]]:
        """What each option's values did against its first one, all else the same: pairs, how many are faster and
        slower, time over time in the median, from and to, and where it is largest."""
        rows: list[tuple[Value, ...]] = []
        for name in self.study.options(workload):
            first, *others = self.study.varied(workload)[name]
            for value in others:
                both = pairs(self.study, side(workload, **{name: value}), side(workload, **{name: first}))
                found = [(pair, ratio) for pair in both if (ratio := of_cases(*pair)) is not None]
                if found:
                    params = found[0][0][0].params
                    before, after = (value_word(name, each, {**params, name: each}) for each in (first, value))
                    values = [ratio.value for _, ratio in found]
                    faster, slower = (
                        sum(ratio.direction is each for _, ratio in found) for each in (Direction.LESS, Direction.MORE)
                    )
                    pair, _ = max(found, key=lambda item: item[1].factor)
                    figures = (len(found), faster, slower, median(values), min(values), max(values))
                    rows.append((f"{before} to {after}", *figures, short_pair(self.study, *pair)))
        return rows

    def kernels(self, workload: str) -> list[tuple[CaseResult, Kernel]]:
        """Each kernel of a workload, with the largest case that ran it, if possible one that nothing beats."""
        kept = {case.id for case in self.study.unbeaten}
        ordered = sorted(self.study.of(workload), key=lambda case: (case.id in kept, size(case)))
        return list({kernel.kernel: (case, kernel) for case in ordered for kernel in case.kernels}.values())

    def waiting(self, workload: str) -> list[tuple[Value, ...]]:
        """Kernel, case, the largest states of its warps, and its occupancy."""
        rows: list[tuple[Value, ...]] = []
        for case, kernel in self.kernels(workload):
            if kernel.stalls:
                figures = row(self.study, replace(case, kernels=[kernel]))
                rows.append((code_span(kernel.kernel), *(figures[key] for key in ("case", "stalls", "occupancy"))))
        return rows

    @property
    def states(self) -> list[tuple[Value, ...]]:
        """The states that the kernels' warps are in most: name, largest share, what it is, and what helps."""
        shares: dict[str, float] = {}
        for workload in self.study.by_workload:
            for _, kernel in self.kernels(workload):
                for name, share in study.top_stalls(kernel):
                    shares[name] = max(share, shares.get(name, 0.0))
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        return [
            (
                name,
                100 * share,
                state(name).meaning,
                state(name).helps if state(name).kind is ReasonKind.STALL else f"no stall; {state(name).helps}",
            )
            for name, share in ordered[:MOST_ROWS]
        ]

    @property
    def variants(self) -> dict[tuple[str, ...], list[str]]:
        """How to add a variant: steps -> for which workloads."""
        found: dict[tuple[str, ...], list[str]] = {}
        for workload in self.own:
            about = kernel_info.of_workload(workload)
            found.setdefault(about.variant if about else (), []).append(workload)
        return found

    @property
    def check_cases(self) -> list[str]:
        """Lines of a shell for each kernel: a large and a small case, options of collect, the kernel's name."""
        lines = []
        for workload in self.own:
            kept = [case for case in self.study.unbeaten if case.workload == workload] or list(self.study.of(workload))
            if not kept:
                continue
            case = max([case for case in kept if case.kernels] or kept, key=size)
            options = {name: case.params[name] for name in self.study.options(workload) if name in case.params}
            least = min((each for each in self.study.of(workload) if matches(each, options)), key=size)
            varied = {name: case.params[name] for name in self.study.varied(workload) if name in case.params}
            values = {name: str(each).lower() if isinstance(each, bool) else each for name, each in varied.items()}
            flags = [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in values.items()]
            kernel = main_kernel(case)
            lines.append(
                f"# {workload}\nLARGE={shlex.quote(case.id)}\nSMALL={shlex.quote(least.id)}\n"
                f"OPTIONS={shlex.quote(' '.join([f'--kernel {workload}', *flags]))}\n"
                f"KERNEL={shlex.quote(kernel.kernel if kernel else workload)}"
            )
        return lines

    @property
    def before_profiling(self) -> list[str]:
        """Lines of a shell that make a profile tell more."""
        found = [kernel_info.of_workload(name) for name in self.own]
        return list(dict.fromkeys(line for about in found if about for line in about.before_profiling))


SAVED = ("least_mb", "dram_mb", "plain_us")
DIRECTIONS = (Direction.MORE, Direction.LESS, Direction.SAME)

NEXT_STEPS = {
    "launch": "{cases}: the GPU waits for the host. Fewer launches or a CUDA graph help, a faster kernel does not.",
    "imbalance": "{cases}: multiprocessors idle while others work. More and smaller work items, or a schedule that "
    "evens them out.",
    "issue_slots": "{cases}: the schedulers issue in most cycles. Fewer instructions for the same work: wider loads, "
    "tensor cores.",
    "near_roof": "{cases}: at {share} of the {reason} roof. Only needing less of it helps.",
    "no_stalls": "{cases}: stalls were not collected; fiprof collect --set full, then fiprof stalls.",
    "no_kernel": "{cases}: ncu did not see it.",
    "stall": "{cases}: main stall {reason} ({share}). What helps: {helps}.",
}


def next_step(case: CaseResult) -> tuple[str, str, float]:
    """What follows from the verdict, the roof and the warps' states of a case's main kernel, in this order.

    A key of NEXT_STEPS, the roof or the stall reason, and its share.
    """
    kernel = main_kernel(case)
    if kernel is None:
        return "no_kernel", "", 0.0
    if kernel.verdict is not None and kernel.verdict.kind in (Kind.LAUNCH, Kind.IMBALANCE):
        return kernel.verdict.kind, "", 0.0
    if kernel.verdict is not None and kernel.verdict.part == Part.ISSUE_SLOTS:
        return "issue_slots", "", 0.0
    if kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        return "near_roof", kernel.roof or "", kernel.roof_share
    stalls = study.top_stalls(kernel, len(kernel.stalls))
    waiting = [item for item in stalls if state(item[0]).kind is ReasonKind.STALL]
    return ("stall", *waiting[0]) if waiting else ("no_stalls", "", 0.0)


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0


def problem_of(case: CaseResult) -> tuple[str, Params]:
    """The workload that a case is a way to solve, and the parameters that define the problem."""
    workload, defining = alternatives.problem(case.workload, case.params)
    names = {name for name, _, _ in defining}
    return workload, {name: value for name, value in case.params.items() if name in names}


def _saved(one: float | None, other: float | None) -> float | None:
    """Percent."""
    return 100 * (1 - one / other) if one and other else None


def _expected_share(family: Family, case: CaseResult) -> float | None:
    """Percent of the roof that a family's figures expect of a case; None where they are for others."""
    value = case.params.get(family.size)
    alike = all(case.params.get(name, wanted) == wanted for name, wanted in family.params.items())
    if case.workload not in family.workloads or not alike or family.roof is None:
        return None
    return family.roof.shares.get(float(value) if isinstance(value, int | float) else 0.0)
