"""The documents of a study, from its results: Jinja templates of Markdown (``templates/study``), and HTML of them."""

import csv
import io
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from fiprof import files
from fiprof.analysis import alternatives, claims
from fiprof.analysis import study as studies
from fiprof.analysis.claims import ClaimOutcome
from fiprof.analysis.frames import Column
from fiprof.analysis.ratio import Direction
from fiprof.analysis.stalls import ReasonKind, state
from fiprof.analysis.verdict.model import Kind, Part
from fiprof.model import packs
from fiprof.model.finding import Finding, words_of
from fiprof.model.manifest import fact
from fiprof.model.results import ENVIRONMENT, CaseResult
from fiprof.reports import colours, markdown_html
from fiprof.reports.charts import scaling_chart
from fiprof.reports.environment import environment_words
from fiprof.reports.markdown_html import Markdown, escape_markdown, markdown_table
from fiprof.reports.view import Value
from fiprof.text import byte_words, count, csv_cell, duration, join_words, span, spread

DOCUMENTS = ("INDEX", "environment", "analysis", "kernel-dev-guide", "final-report")

NEAR_ROOF = 0.85  # Part of its roof from which a kernel has little left to gain there. fiprof's own choice.
TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""
MOST_ROWS = 8  # rows of a table of examples
MOST_WARNINGS = 3  # warnings that are shown; more are counted

Row = tuple[Value, ...]


@dataclass(frozen=True)
class StudySection:
    """What a pack adds to a document of a study."""

    document: str  # ``analysis``, ``kernel-dev-guide`` or ``final-report``
    place: str  # a workload; ``all`` for what concerns them all; in the final report ``serving`` or ``kernels``
    title: str
    body: Markdown  # its paragraphs, tables and code; see :mod:`fiprof.reports.markdown_html`
    learned: str = ""  # one sentence for the head of the final report
    absent: str = ""  # why there is nothing; it is listed as not measured then


def documents(folder: Path) -> list[Path]:
    """Write ``reports/`` of a study folder anew; the files written, Markdown and HTML of each document."""
    reports = folder / "reports"
    study = studies.load(folder)
    contents: dict[str, str] = {}
    for name, text in pages(study).items():
        contents[f"{name}.md"] = markdown_html.plain_markdown(text, f"{name}.html")
        contents[f"{name}.html"] = markdown_html.document_html(text, text.partition("\n")[0].lstrip("# "))
    contents["cases.csv"] = cases_csv(study)
    files.make_folder(folder, reports.name)
    for name, content in contents.items():
        files.write_whole(reports / name, content.encode())
    return [reports / name for name in contents]


def cases_csv(study: studies.Study) -> str:
    """The study's frame: every case with its parameters and figures, units in the columns' names."""
    rows = study.rows.values()
    keys = list(dict.fromkeys(key for each in rows for key in each))

    def cell(value: Any) -> str:
        if isinstance(value, str | Finding):
            return csv_cell(words_of(value))
        return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([keys, *([cell(each.get(key)) for key in keys] for each in rows)])
    return text.getvalue()


def pages(study: studies.Study) -> dict[str, str]:
    """Document -> its Markdown, with its charts."""
    s = StudyTables(study.folder, study.info, study.results)
    context = {
        "info": study.info,
        "documents": DOCUMENTS,
        "columns": studies.COLUMNS,
        "s": s,
        "m": {**machine(study), **certainty(study)},
        **choices_found(s),
        **claims_found(s),
        **kernels_found(s),
        **guide(s),
        **missing(s),
    }
    return {name: markdown_html.render(f"study/{name}.md.j2", document=name, **context) for name in DOCUMENTS}


class StudyTables(studies.Study):
    """A study with what the templates print of it: its tables, its charts, and the figures in its sentences."""

    anchor = staticmethod(markdown_html.slug)
    bytes = staticmethod(byte_words)
    grid = staticmethod(markdown_html.grid)
    knowledge = staticmethod(packs.of_workload)
    title = staticmethod(packs.title)
    words_of = staticmethod(words_of)

    # Cases

    def table(self, cases: Sequence[CaseResult], keys: str) -> Markdown:
        """Columns of the study's frame; those in which no case has a value are left out."""
        rows = [self.rows[case.id] for case in cases]
        columns = [
            column
            for key in keys.split()
            for column in studies.COLUMNS
            if column.key == key and any(each[key] not in (None, "") for each in rows)
        ]
        if "workload" not in keys.split() and cases and (axes := self.axes(cases[0].workload)):
            sizes = " x ".join(map(studies.axis_name, axes))
            columns = [Column("case", sizes) if column.key == "case" else column for column in columns]
        return markdown_table(columns, [[each[column.key] for column in columns] for each in rows])

    @property
    def own(self) -> list[str]:
        """Workloads that are there for themselves, and not for another one to be compared with."""
        return [name for name in self.by_workload if not getattr(packs.of_workload(name), "problem", "")]

    def shown(self, workload: str) -> list[CaseResult]:
        """The smallest unbeaten case, then the largest one of each combination of options."""
        ordered = sorted(self.of(workload), key=studies.size)
        least = [case for case in ordered if case.id not in self.alternatives][:1]
        options = self.options(workload)
        largest = {tuple(case.params.get(name) for name in options): case for case in ordered}
        return [*least, *(case for case in largest.values() if case not in least)]

    def in_order(self, workload: str) -> list[CaseResult]:
        """A workload's measured cases by options, then by growing sizes."""
        axes, options = self.axes(workload), self.options(workload)

        def order(case: CaseResult) -> tuple[list[str], list[float]]:
            sizes = [float(case.params[name]) for name in axes if name in case.params]
            return [str(case.params.get(name)) for name in options], sizes

        return sorted(self.of(workload), key=order)

    def in_short(self, workload: str) -> str:
        """How near its roof it comes, what limits it there, and how many ways were measured."""
        figures = next((self.rows[case.id] for case in self.best if case.workload == workload), None)
        counted = f"{len(self.of(workload))} cases."
        if figures is None or figures["roof_pct"] is None:
            return counted
        limit = f", {words_of(figures['bound'])}" if figures["bound"] else ""
        stall = f"; its warps: {figures['stalls']}" if figures["stalls"] else ""
        best = f"At best it reaches {figures['roof_pct']:.0f}% of the {figures['roof']} roof ({figures['case']})"
        return f"{best}{limit}{stall}. {counted}"

    # What packs add

    @cached_property
    def _sections(self) -> list[StudySection]:
        return packs.joined("study_sections", self)

    @property
    def absent(self) -> list[StudySection]:
        """Sections about which nothing can be said."""
        return [each for each in self._sections if each.absent]

    @property
    def learned(self) -> list[str]:
        """What they say at the head of the final report."""
        return [each.learned for each in self._sections if each.document == "final-report" and each.learned]

    def sections(self, document: str, place: str, level: int) -> Markdown:
        """What packs add to a document at one place, under headings of a level."""
        wanted = [each for each in self._sections if (each.document, each.place, each.absent) == (document, place, "")]
        titled = (Markdown(f"{'#' * level} {escape_markdown(each.title)}\n\n{each.body}") for each in wanted)
        return markdown_html.paragraphs(*titled)

    # Kernels

    @property
    def best(self) -> list[CaseResult]:
        """Of each workload the model shape nearest to its roof, at its largest size, solved the fastest way."""
        by_share = sorted(self.largest, key=lambda case: -(self.rows[case.id]["roof_pct"] or 0.0))
        found = {case.workload: case for case in reversed(by_share)}
        return [found[name] for name in dict.fromkeys(case.workload for case in self.largest)]

    def fastest_map(self, workload: str) -> Markdown:
        """A problem over its last size, a row for each model shape and value of its other sizes: the fastest way, and
        its share of the roof. Empty where no size was varied."""
        placed = []
        for case in self.fastest:
            name, defining = alternatives.problem(case.workload, case.params)
            if name == workload:
                names = {each for each, _, _ in defining}
                placed.append((case, {each: value for each, value in case.params.items() if each in names}))
        every = dict.fromkeys(name for case, _ in placed for name in case.params)
        varied = [name for name in every if len({params.get(name) for _, params in placed}) > 1]
        sizes = [
            name
            for name in varied
            if all(studies.is_number(case.params.get(name)) for case, _ in placed) and not packs.of_parameter(name).of
        ]
        if not sizes:
            return Markdown("")
        *others, across = sizes
        models = [name for name in varied if name not in sizes]
        rows: dict[tuple[str, ...], dict[Any, str]] = {}
        for case, params in placed:
            of_model = {name: value for name, value in params.items() if name in models}
            model = studies.parameter_words(of_model, case.params)
            kernel, workload_info = studies.main_kernel(case), packs.of_workload(case.workload)
            share = kernel.roof_share if kernel and kernel.roof else case.gb_per_s_roof_share
            solving = [name for name in self.options(case.workload) if name in case.params and name not in params]
            options = {name: case.params[name] for name in solving if workload_info and name in workload_info.options}
            way = [case.workload if case.workload != workload else "", studies.parameter_words(options, case.params)]
            words = [", ".join(filter(None, way)), "" if share is None else f"{share:.0%}"]
            key = (*([model] if models else []), *(f"{case.params[name]:,}" for name in others))
            rows.setdefault(key or (workload,), {})[case.params[across]] = " ".join(filter(None, words))
        values = sorted({value for each in rows.values() for value in each}, key=float)
        head = [*(["model"] if models else []), *map(studies.axis_name, others)] or ["kernel"]
        heads = ";".join([*head, *(f"{studies.axis_name(across)} {value:,}" for value in values)])
        ordered = sorted(rows.items(), key=lambda item: item[0][0]) if models else rows.items()
        shown = [(*key, *(cells.get(value, "–") for value in values)) for key, cells in ordered]
        return markdown_html.grid(heads, shown)

    # Growth

    def growth(self, workload: str) -> list[dict[str, Any]]:
        """Of each axis: its name, where the other axes stand (in their middle), the fits there as rows, and a chart."""
        charts = []
        for axis in self.axes(workload):
            shown, fixed = self.fits(workload, axis), {}
            for name in self.axes(workload) if shown else ():
                values = sorted({of.cases[0].params[name] for of in shown if name in of.cases[0].params}, key=float)
                if name != axis and values:
                    fixed[name] = values[len(values) // 2]
                    shown = [each for each in shown if each.cases[0].params.get(name) == fixed[name]]
            if shown:
                words = studies.parameter_words(fixed, fixed)
                title = f"{workload}: time against {studies.axis_name(axis)}{f', {words}' if words else ''}"
                facts = {"axis": studies.axis_name(axis), "where": words, "unit": shown[0].unit[0]}
                facts |= {"slope": self.slope(workload, axis), "chart": self._chart(title, shown, axis)}
                charts.append(facts | {"rows": [self._fit(each) for each in shown]})
        return charts

    def _fit(self, item: studies.Fit) -> Row:
        line = item.line
        grown = self.ratio(item.cases[-1], item.cases[0])
        return (
            self.short(item.cases[0], without=self.axes(item.workload)),
            f"{item.xs[0]:,.0f} to {item.xs[-1]:,.0f}",
            grown.value if grown else None,
            line.slope_us.words(item.unit[1]) if line and line.holds else "–",
            line.intercept_us.words() if line and line.holds else "–",
        )

    def slope(self, workload: str, axis: str) -> str:
        """The slopes of the lines along an axis that hold; a dash where none does."""
        lines = self.fits(workload, axis)
        holding = [(item, item.line) for item in lines if item.line is not None and item.line.holds]
        if not holding:
            return "–"
        unit, scale = max((item for item, _ in holding), key=lambda item: item.xs[-1]).unit
        slopes = spread([line.slope_us.value * scale for _, line in holding])
        return f"{slopes} µs for {unit} more ({len(holding)} of {len(lines)} lines)"

    def _chart(self, title: str, fits: Sequence[studies.Fit], axis: str) -> Markdown:
        """Time against an axis, a line for each way to solve it."""
        points = []
        for item in fits:
            series = self.short(item.cases[0], without=self.axes(item.workload))
            for at, case in zip(item.xs, item.cases, strict=True):
                if time := case.plain:
                    place = {"x": at, "y": time.median_us, "low": time.low_us, "high": time.high_us}
                    about = {"name": self.label(case), "details": [("run", case.run)]}
                    points.append({"series": series, **place, **about})
        unit = packs.of_parameter(axis).unit
        x = (studies.axis_name(axis), unit if unit == "tokens" else "")
        return markdown_html.vega_block(title, scaling_chart(points, x=x, y=("time", "µs")))

    @property
    def roofline(self) -> Markdown:
        """Each model shape's largest case under the roofs that follow from its shares of them; empty without any."""
        placed = [(case, self.rows[case.id]["intensity"], case.tflops) for case in self.largest]
        points, bandwidths = list[dict[str, Any]](), list[float]()
        roofs: dict[str, list[float]] = {}
        for case, x, tflops in placed:
            if not x or not tflops:
                continue
            name = f"{case.workload} {self.short(case, without=self.axes(case.workload))}"
            own = {"name": self.label(case), "colour": colours.kernel(case.workload)[1], "drawn": "points"}
            points.append({"series": name, "x": x, "y": tflops, **own})
            kernel = studies.main_kernel(case)
            if kernel and kernel.roof and kernel.roof_kind == "compute" and case.tflops_roof_share:
                roofs.setdefault(kernel.roof, []).append(tflops / case.tflops_roof_share)
            if case.gb_per_s and case.gb_per_s_roof_share:
                bandwidths.append(case.gb_per_s / case.gb_per_s_roof_share)
        if not points:
            return Markdown("")
        across = [(name, median(values)) for name, values in roofs.items()]
        if bandwidths:
            bandwidth = median(bandwidths) / 1e3
            xs = [point["x"] for point in points]
            low, end = min(xs) / 2, min([max(xs) * 2, *(value / bandwidth for _, value in across)])
            line = {"series": f"DRAM {bandwidth:.2f} TB/s", "colour": colours.GREY, "drawn": "line"}
            points += [{**line, "x": x, "y": x * bandwidth} for x in (low, end)]
        chart = scaling_chart(points, x=("intensity", "FLOP/byte"), y=("achieved", "TFLOP/s"), roofs=across)
        return markdown_html.vega_block("Roofline: each model shape at its largest size", chart)

    # The developers' guide

    def parameters(self, workload: str) -> list[Row]:
        """Parameter, what it decides, its values here, and how the time grows with it."""
        about = packs.of_workload(workload)
        meanings, varied = dict(about.parameters) if about else {}, self.varied[workload]
        rows: list[Row] = []
        for name in dict.fromkeys([*meanings, *varied]):
            there = dict.fromkeys(case.params[name] for case in self.of(workload) if name in case.params)
            words = {True: "on", False: "off"}
            values = varied.get(name) or there
            tried = [words[each] if isinstance(each, bool) else _word(each) for each in values]
            rows.append((name, meanings.get(name, "–"), ", ".join(tried) or "–", self.slope(workload, name)))
        return rows

    def effects(self, workload: str) -> list[Row]:
        """What each option's values did against its first one, all else the same: pairs, how many are faster and
        slower, time over time in the median, from and to, and where it is largest."""
        rows: list[Row] = []
        for name in self.options(workload):
            first, *others = self.varied[workload][name]
            for value in others:
                both = self.pairs(studies.CaseSide(workload, {name: value}), studies.CaseSide(workload, {name: first}))
                ratios = [(pair, ratio) for pair in both if (ratio := self.ratio(*pair)) is not None]
                if ratios:
                    params = ratios[0][0][0].params
                    before, after = (studies.value_word(name, each, {**params, name: each}) for each in (first, value))
                    values = [ratio.value for _, ratio in ratios]
                    counts = Counter(ratio.direction for _, ratio in ratios)
                    pair, _ = max(ratios, key=lambda item: item[1].factor)
                    faster, slower = counts[Direction.LESS], counts[Direction.MORE]
                    figures = (len(ratios), faster, slower, median(values), min(values), max(values))
                    rows.append((f"{before} to {after}", *figures, self.short_pair(*pair)))
        return rows


def choices_found(s: StudyTables) -> dict[str, Any]:
    """What the packs' choices and the study's alternatives say."""
    chosen, absent = claims.choices(s)
    rows: list[Row] = []
    for item in chosen:
        ends = item.group[-1], item.group[0]
        least, most = (f"{ratio.value:.2f} at {s.short_pair(*pair)}" for pair, ratio in ends)
        counts = map(item.counted, (Direction.MORE, Direction.LESS, Direction.SAME))
        rows.append((item.question, item.median, least, most, *counts))

    beaten: list[tuple[Any, ...]] = []
    for case in s.measured:
        if (alternative := s.alternatives.get(case.id)) is not None:
            instead = {each.name: each.instead for each in alternative.changes}
            workload = str(instead.pop(alternatives.WORKLOAD, ""))
            params = {**case.params, **instead}
            words = [workload, *(studies.value_word(name, value, params) for name, value in instead.items())]
            take, factor = ", ".join(filter(None, words)), alternative.factor
            by = "GPU" if alternative.measure is alternatives.Measure.GPU else "host's loop"
            beaten.append((case.workload, s.rows[case.id]["case"], take, factor.value, factor.low, factor.high, by))
    return {
        "chosen": chosen,
        "choice_rows": rows,
        "choices_absent": absent,
        "beaten": sorted(beaten, key=lambda each: -each[3]),
    }


def claims_found(s: StudyTables) -> dict[str, Any]:
    """What became of what others say."""
    results = claims.results(s)
    verdicts: dict[str, list[str]] = {}
    rows: list[Row] = []
    for item in results:
        verdict = item.verdict.replace("_", " ")
        verdicts.setdefault(verdict.replace("depends", "depending on the case"), []).append(item.claim.words)
        counts = (len(item.tested), *map(item.counted, ClaimOutcome))
        rows.append((item.claim.words, verdict, item.measured, *counts))
    return {
        "claims": results,
        "claim_rows": rows,
        "claim_notes": packs.joined("claim_notes"),
        "verdicts": sorted(verdicts.items()),
    }


def kernels_found(s: StudyTables) -> dict[str, Any]:
    """What to do in the kernels, by each model shape's largest case, and grids whose last wave is nearly empty."""
    alike: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for case in s.largest:
        advice, reason, share = next_step(case)
        alike.setdefault((advice, reason), []).append((case.workload, share))
    steps = []
    for (advice, reason), found in alike.items():
        cases, shares = join_words(list(dict(found))), spread([share for _, share in found], ".0%")
        steps.append(advice.format(cases=cases, reason=reason, share=shares, helps=state(reason).helps))

    # Of cases that nothing solves faster: the slowest of each launch.
    rows = [s.rows[case.id] for case in s.unbeaten if s.rows[case.id]["waves"]]
    used = [each["waves"] / math.ceil(each["waves"]) if each["waves"] > 1 else 1.0 for each in rows]
    late = [(each, part) for each, part in zip(rows, used, strict=True) if part < TAIL_EFFICIENCY]
    distinct = {(each["kernel"], each["grid"], each["block"]): (each, part) for each, part in reversed(late)}
    slowest = sorted(distinct.values(), key=lambda item: -item[0]["plain_us"])[:MOST_ROWS]
    tails = {
        "cases": len(rows),
        "under": sum(each["waves"] < 1 for each in rows),
        "tails": len(late),
        "names": join_words(list(dict.fromkeys(each["workload"] for each, _ in late))),
        "empty": 1 - TAIL_EFFICIENCY,
        "rows": [(each["workload"], each["case"], each["waves"], 100 * part) for each, part in slowest],
    }
    return {"next_steps": steps, "tails": tails}


def guide(s: StudyTables) -> dict[str, Any]:
    """What the developers' guide says of all kernels: how to add a variant, what to run."""
    variants: dict[tuple[str, ...], list[str]] = {}
    before_profiling: dict[str, None] = {}
    checks = []
    for workload in s.own:
        about, of = packs.of_workload(workload), s.of(workload)
        variants.setdefault(about.variant if about else (), []).append(workload)
        before_profiling |= dict.fromkeys(about.before_profiling if about else ())
        unbeaten = [case for case in of if case.id not in s.alternatives] or list(of)
        if not unbeaten:
            continue
        case = max([case for case in unbeaten if case.kernels] or unbeaten, key=studies.size)
        options: studies.Params = {name: case.params[name] for name in s.options(workload) if name in case.params}
        least = min((each for each in of if studies.matches(each, options)), key=studies.size)
        flags = [f"--kernel {workload}"]
        for name in s.varied[workload]:
            if name in case.params:
                value = case.params[name]
                word = str(value).lower() if isinstance(value, bool) else str(value)
                flags.append(f"--{name.replace('_', '-')} {shlex.quote(word)}")
        main = studies.main_kernel(case)
        checks.append(
            f"# {workload}\nLARGE={shlex.quote(case.id)}\nSMALL={shlex.quote(least.id)}\n"
            f"OPTIONS={shlex.quote(' '.join(flags))}\nKERNEL={shlex.quote(main.kernel if main else workload)}"
        )
    return {"variants": variants, "check_cases": checks, "before_profiling": list(before_profiling)}


def missing(s: StudyTables) -> dict[str, Any]:
    """Cases without a time: workload, how many, the first two and the reason; and the command that measures them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for workload, cases in s.by_workload.items():
        for case in cases:
            if case.plain is None:
                why = case.skipped or "it has no plain time"
                groups.setdefault((workload, why), []).append(s.label(case, workload=False))
    rows = [
        (workload, len(names), join_words(names[:2]) + (" …" if len(names) > 2 else ""), why)
        for (workload, why), names in groups.items()
    ]
    quick = " --quick" if s.info.settings.get("quick") else ""
    command = fact(s.info.environment, "program", "command") or ()
    study = next((shlex.quote(word) for word in command if word.endswith(".toml")), s.info.study)
    return {"without_time": rows, "again": f"fiprof study {study}{quick}"}


def next_step(case: CaseResult) -> tuple[str, str, float]:
    """What follows from the verdict, the roof and the warps' states of a case's main kernel, in this order. The advice,
    the roof or the stall reason in it, and its share."""
    kernel = studies.main_kernel(case)
    if kernel is None:
        return "{cases}: ncu did not see it.", "", 0.0
    kind, part = (kernel.verdict.kind, kernel.verdict.part) if kernel.verdict else (None, None)
    if kind == Kind.LAUNCH:
        words = "the GPU waits for the host. Fewer launches or a CUDA graph help, a faster kernel does not."
    elif kind == Kind.IMBALANCE:
        words = (
            "multiprocessors idle while others work. More and smaller work items, or a schedule that evens them out."
        )
    elif part == Part.ISSUE_SLOTS:
        words = "the schedulers issue in most cycles. Fewer instructions for the same work: wider loads, tensor cores."
    elif kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        words = "{cases}: at {share} of the {reason} roof. Only needing less of it helps."
        return words, kernel.roof or "", kernel.roof_share
    else:
        for reason, share in studies.top_stalls(kernel, len(kernel.stalls)):
            if state(reason).kind is ReasonKind.STALL:
                return "{cases}: main stall {reason} ({share}). What helps: {helps}.", reason, share
        words = "stalls were not collected; fiprof collect --set full, then fiprof stalls."
    return f"{{cases}}: {words}", "", 0.0


# Method


def machine(study: studies.Study) -> dict[str, Any]:
    """What the documents say of the machine, the runs and the files, by the templates' names."""
    info, environment = study.info, study.info.environment
    packages = fact(environment, "packages") or {}
    names = {name: words for found in packs.parts("packages").values() for name, words in found.items()}
    cuda, driver = fact(environment, "gpu", "cuda"), fact(environment, "gpu_state", "before", "driver")
    versions = [f"{words} {packages[name]}" for name, words in names.items() if packages.get(name)]
    facts = [fact(environment, "gpu", "name"), *versions, cuda and f"CUDA {cuda}", driver and f"driver {driver}"]
    facts += [f"{info.cases:,} cases measured, {info.skipped:,} skipped"]
    facts += [f"{info.started.replace('T', ' ').partition('+')[0]}, {duration(info.duration_s * 1e6)}"]

    skipped = [case for cases in study.by_workload.values() for case in cases if case.skipped]
    cautions = [
        *(f"Not all runs had the same {what}: {join_words(values)}." for what, values in info.mixed.items()),
        *(f"{case.id}: {case.skipped}" for case in skipped),
        *(f"{run}: {text}" for run, texts in info.run_warnings.items() for text in texts),
    ]
    if (more := len(cautions) - MOST_WARNINGS) > 0:
        cautions = [*cautions[:MOST_WARNINGS], f"{more} more warnings are in results/{ENVIRONMENT}."]
    if info.status != "complete":
        missing = join_words([f"{count} {name}" for name, count in info.missing.items()])
        cautions.insert(0, f"The study is not complete: not measured yet are {missing or 'some'} cases.")

    def run_link(name: str) -> Markdown | str:
        """The name of a run, a link where its folder is beside the results."""
        folder = study.folder / name
        if not name or not (folder / "run.json").is_file():
            return name
        whole = all((folder / f"report.{suffix}").is_file() for suffix in ("md", "html"))
        return markdown_html.link(name, f"../{name}/{'report.md' if whole else 'run.json'}")

    held: dict[str, list[str]] = {name: [] for name in info.runs}
    for case in study.measured:
        held.setdefault(case.run, []).append(case.workload)
    files: list[tuple[str, str, int | None]] = [
        (f"{each.workload}.json", packs.title(each.workload), len(study.of(each.workload))) for each in study.results
    ]
    files += [*packs.joined("files", study), (ENVIRONMENT, "where and how it was measured", None)]

    return {
        "facts": " · ".join(map(str, filter(None, facts))),
        "cautions": cautions,
        "runs": [(run_link(name), len(cases), ", ".join(dict.fromkeys(cases)) or "–") for name, cases in held.items()],
        "files": [(markdown_html.link(name, f"../results/{name}"), *rest) for name, *rest in files],
        "machine": [*environment_words(environment).items(), ("fiprof", info.fiprof)],
        "settings": ", ".join(f"{name} {_word(item)}" for name, item in info.settings.items() if item is not None),
        # Whether something else was on the GPU before or after.
        "others": any(fact(environment, "gpu_state", when, "other_processes") for when in ("before", "after")),
    }


def certainty(study: studies.Study) -> dict[str, Any]:
    """How the cases were timed, and how far their times can be trusted, by the templates' names."""
    cases = [(case, case.plain) for case in study.measured if case.plain]
    if not cases:
        return {"checked": [], "drift": "", "flushed": "", "slow_clocks": None}
    slow = [case.slow_clock_rounds for case, _ in cases if case.slow_clock_rounds is not None]
    flushed = [case.ncu_us / case.nsys.median_us for case, _ in cases if case.nsys and case.ncu_us]
    drifts = [(max(of) - min(of)) / plain.median_us for _, plain in cases if len(of := plain.round_medians_us) > 1]
    return {
        "rounds": span((plain.rounds for _, plain in cases), ","),
        # Of a study on several: how many, what all of them measured, and how far that lies apart at most.
        "boards": len(set(study.info.boards.values())),
        "anchors": (count(len(study.info.anchors), "case"), f"{study.boards_apart:.1%}"),
        "counts": span((plain.count for _, plain in cases), ","),
        "confidence": span((plain.confidence for _, plain in cases), ".0%"),
        # Relative errors against the references.
        "checked": [case.relative_error for case, _ in cases if case.relative_error is not None],
        "widths": spread([studies.half_width(case) for case, _ in cases], ".1%"),
        "widest": study.label(max((case for case, _ in cases), key=studies.half_width)),
        # How far a case's rounds lie apart, of its time.
        "drift": spread(drifts, ".1%") if drifts else "",
        # Rounds that began before the SM clock was back, and all of them; None where that was not recorded.
        "slow_clocks": (sum(slow), sum(plain.rounds for _, plain in cases)) if slow else None,
        # ncu's times over nsys's.
        "flushed": spread(flushed) if flushed else "",
    }


def _word(item: object) -> str:
    if isinstance(item, list | tuple):
        return " and ".join(map(str, item))
    if isinstance(item, bool):
        return "yes" if item else "no"
    return f"{item:,}" if isinstance(item, int) else str(item)
