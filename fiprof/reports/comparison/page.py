"""``fiprof compare`` as a page: the answer, charts of what accounts for it, then every table for looking into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fiprof.analysis.comparison.answer import LEADS
from fiprof.analysis.comparison.factors import FactorKind
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.programs import ProgramComparison
from fiprof.analysis.comparison.runs import CaseChange, RunComparison
from fiprof.reports.comparison.document import Part, about, conditions, parts, summary
from fiprof.reports.comparison.launch import factor_name, kernel_name
from fiprof.reports.comparison.program import leads
from fiprof.reports.pages.charts_comparison import Contribution, contributions_chart, mixes_chart
from fiprof.reports.pages.page import Block, Caution, Chart, Page, Section, Table, Text
from fiprof.reports.words import phrase, worded

MOST_BARS = 8
MOST_DETAILED = 20
"""Cases."""


def page(found: RunComparison) -> Page:
    """The page."""
    blocks: list[Block] = [Text((worded(each),)) for each in summary(found)]
    blocks += [Caution(worded(each)) for each in conditions(found)]
    drawn = tuple(charts(found))
    sections = [Section("answer", phrase("comparison.answer"), tuple(blocks))]
    sections += [Section("charts", phrase("comparison.charts"), drawn)] if drawn else []
    sections += nested(parts(found, most=MOST_DETAILED))
    told = tuple(Text((worded(each),)) for each in about(found))
    return Page(phrase("comparison.title"), (*sections, Section("sides", phrase("comparison.about"), told)))


def nested(made: Iterable[Part]) -> list[Section]:
    """The parts as sections: what explains a kernel in that of its case. The first of those is open."""
    found: list[Section] = []
    opened = False
    for part in made:
        if part.kernel and found and part.anchor.startswith(found[-1].anchor):
            inner = section(part, folded=opened)
            outer = found.pop()
            found.append(replace(outer, sections=(*outer.sections, inner), folded=outer.folded and opened))
            opened = True
        else:
            found.append(section(part, folded=part.detail))
    return found


def section(part: Part, *, folded: bool) -> Section:
    """A part of the page."""
    title = part.views[0].title
    blocks: list[Block] = []
    for number, view in enumerate(part.views):
        if view.rows:
            blocks.append(Table(view if number else replace(view, title=""), anchor=f"{part.anchor}-{number}"))
        else:
            blocks += [Text((worded(each),)) for each in view.summary]
    if chart := _mixes(part):
        blocks.append(chart)
    return Section(part.anchor, title, tuple(blocks), folded=folded)


# Charts


def charts(found: RunComparison) -> Iterator[Chart]:
    """What accounts for the change that matters most."""
    if found.program and found.program.window.us:
        yield _program(found.program)
    for case in [each for each in found.cases if each.notable][:1]:
        yield _case(case)
        yield from (_factors(each) for each in case.kernels[:1] if each.factors)
    for kernel in [] if found.cases else [*(found.program.kernels if found.program else found.launches)][:1]:
        if kernel.factors and (not found.program or leads(kernel, found.program)):
            yield _factors(kernel)


def _program(found: ProgramComparison) -> Chart:
    items = [Contribution(worded(kind), time.us / 1e3) for kind, time in found.parts.items() if time.us]
    return contributions_chart(
        "chart-program", phrase("comparison.chart_program"), sorted(items, key=_size), unit="ms",
        caption=phrase("comparison.chart_note"),
    )  # fmt: skip


def _case(case: CaseChange) -> Chart:
    items = [Contribution(kernel_name(each), each.us) for each in case.kernels[:MOST_BARS]]
    if case.outside_us is not None:
        items.append(Contribution(phrase("comparison.outside"), case.outside_us))
    title = phrase("comparison.kernels", case=case.label)
    return contributions_chart(
        "chart-case", title, sorted(items, key=_size), unit="µs", caption=phrase("comparison.chart_note")
    )


def _factors(kernel: KernelChange) -> Chart:
    total = abs(kernel.launch_us or 0.0)
    kept = [each for each in kernel.factors if each.kind is not FactorKind.REST and abs(each.us) >= LEADS * total]
    kept = kept[:MOST_BARS]
    items = [
        Contribution(factor_name(each), each.us, (("A", f"{each.a:,.4g}"), ("B", f"{each.b:,.4g}"))) for each in kept
    ]
    rest = (kernel.launch_us or 0.0) - sum(each.us for each in kept)
    items.append(Contribution(phrase("comparison.rest"), rest))
    title = phrase("comparison.chart_factors", kernel=kernel_name(kernel))
    return contributions_chart("chart-factors", title, items, unit="µs", caption=phrase("comparison.factors_note"))


def _size(of: Contribution) -> float:
    return -abs(of.change)


def _mixes(part: Part) -> Chart | None:
    """The stall mixes of a kernel's launches."""
    shares = [each for each in part.kernel.deltas if each.reason] if part.kernel else []
    sides: dict[str, dict[str | None, float]] = {
        phrase("comparison.a"): {each.reason: each.a.value / 100 for each in shares if each.a},
        phrase("comparison.b"): {each.reason: each.b.value / 100 for each in shares if each.b},
    }
    if not all(sides.values()):
        return None
    mixes = {name: {reason: share for reason, share in mix.items() if reason} for name, mix in sides.items()}
    return mixes_chart(f"{part.anchor}-mix", phrase("comparison.chart_mix"), mixes, phrase("chart.stalls", only=""))
