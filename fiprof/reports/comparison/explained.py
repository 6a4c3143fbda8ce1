"""A measured comparison with what explains it: the verdicts of ``--measure``, then each decided case's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fiprof.analysis.comparison.answer import reasons
from fiprof.analysis.comparison.measured import MeasuredComparison
from fiprof.analysis.comparison.runs import CaseChange, RunComparison
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.reports.comparison import program
from fiprof.reports.comparison.document import Part, case_parts, conditions, parts
from fiprof.reports.comparison.page import charts, nested
from fiprof.reports.pages.page import Block, Caution, Chart, Page, Section, Table, Text
from fiprof.reports.view import Document, Sayable, View
from fiprof.reports.words import phrase, worded


@dataclass(frozen=True)
class Explained:
    """Both, of the same sides."""

    measured: MeasuredComparison
    told: Document
    """What ``reports.measured`` says of it."""
    drawn: Chart
    """The same, for a browser."""
    by: RunComparison | None
    """Of the runs that profiled each side; None without them."""

    @property
    def _decided(self) -> list[CaseChange]:
        """The cases that are slower or faster, the most first."""
        found = {(case.a, case.b): case.difference for case in self.measured.cases}
        pairs = [(found.get((case.pair.a.id, case.pair.b.id)), case) for case in (self.by.cases if self.by else ())]
        kept = [(each, case) for each, case in pairs if each and each.outcome in (Outcome.SLOWER, Outcome.FASTER)]
        return [case for _, case in sorted(kept, key=lambda item: -abs(item[0].difference_pct))]

    @property
    def _parts(self) -> list[Part]:
        """What explains it: of cases those that are slower or faster, of a program its traces, whatever was decided."""
        if self.by is None:
            return []
        return list(parts(self.by)) if self.by.program else list(case_parts(self._decided))

    def _why(self) -> Iterator[Sayable]:
        if self.by and self.by.program:
            yield from program.summary(self.by.program)
        for case in self._decided:
            if why := tuple(map(worded, reasons(case))):
                yield phrase("comparison.why", case=case.label, reasons="; ".join(why))
        yield phrase("comparison.why_note")

    def document(self) -> Document:
        """For the terminal, Markdown and programs."""
        if not self._parts or self.by is None:
            return self.told
        views = [View((), (), title=phrase("comparison.charts"), summary=tuple(self._why()))]
        views += [replace(view, folded=True) for part in self._parts for view in part.views]
        warnings = (*self.told.warnings, *conditions(self.by))
        return replace(self.told, shown=(*self.told.shown, *views), warnings=warnings)

    def page(self) -> Page:
        """For a browser."""
        blocks: list[Block] = [Caution(worded(each)) for each in self.told.warnings]
        blocks += [Table(view, anchor=f"measured-{number}") for number, view in enumerate(self.told.shown)]
        blocks.append(self.drawn)
        sections = [Section("answer", phrase("comparison.answer"), tuple(blocks))]
        if self._parts and self.by:
            why = tuple(Text((worded(each),)) for each in self._why())
            doubts = tuple(Caution(worded(each)) for each in conditions(self.by))
            drawn = tuple(charts(replace(self.by, cases=tuple(self._decided))))
            sections.append(Section("charts", phrase("comparison.charts"), (*why, *doubts, *drawn)))
            sections += nested(self._parts)
        return Page(phrase("comparison.title"), tuple(sections))
