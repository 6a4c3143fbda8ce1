"""``final-report``: what was found, what follows for serving and for kernel developers, and the claims of others."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.claims import ClaimVerdict, Result
from fiprof.analysis.study import Study
from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Link, Page, Section, Table, Text, bullets
from fiprof.reports.study_pages import claims
from fiprof.reports.study_pages.environment import facts, status, steadiness
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.names import cite
from fiprof.reports.study_pages.numbers import METHOD
from fiprof.reports.study_pages.tables import absent
from fiprof.reports.words import phrase
from fiprof.text import count


def page(
    study: Study, serving: Sequence[StudyFinding], kernels: Sequence[StudyFinding], results: Sequence[Result]
) -> Page:
    """Findings, recommendations, claims, and what was not measured."""
    made = [[found for found in group if not found.absent] for group in (serving, kernels)]
    missing = _not_measured(study, [*serving, *kernels], results)
    found = {
        who: (_none(group), tuple(_finding(study, item) for item in group))
        for who, group in zip(("serving", "kernels"), made, strict=True)
    }
    method = tuple(Text((line,)) for line in (*steadiness(study), METHOD))
    sections = [
        Section("in-short", "In short", _short(study, made, results)),
        Section("serving", "For those who serve models", *found["serving"]),
        Section("kernels", "For those who write kernels", *found["kernels"]),
        *claims.sections(study, results),
        *([Section("not-measured", "What was not measured", missing)] if missing else []),
        Section("method", "How sure", method),
    ]
    return Page(f"{study.info.title or study.info.study}: final report", tuple(sections), facts=facts(study))


def _none(made: Sequence[StudyFinding]) -> tuple[Block, ...]:
    return () if made else (Text(("Nothing was found for them.",)),)


def _short(study: Study, made: Sequence[Sequence[StudyFinding]], results: Sequence[Result]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if study.info.status != "complete":
        blocks.append(Caution(phrase("study.not_complete", status=status(study))))
    words = f"{count(len(study.measured), 'case')}, {count(sum(map(len, made)), 'finding')}"
    words += f", {count(len(results), 'claim')}: {claims.counts(results)}" if results else ""
    blocks.append(Text((f"{words}.",)))
    for group, who in zip(made, ("serve models", "write kernels"), strict=True):
        if group:
            blocks += [Text((f"For those who {who}:",)), Bullets(tuple(map(_line, group)))]
    return tuple(blocks)


def _line(found: StudyFinding) -> Text:
    """The number behind a recommendation, the recommendation, and a link to the finding."""
    advice = found.short or _clause(found.finding.implication)
    figure = f", {found.figure}" if found.figure else ""
    return Text((f"{found.subject}{figure}: {advice} ", Link("Why", f"#{found.finding.anchor}")))


def _finding(study: Study, found: StudyFinding) -> Section:
    """A finding under a heading of its own, followed by links to the cases that show it."""
    blocks: list[Block] = [found.finding]
    if found.command:
        blocks.append(Code(found.command))
    cases = {case.id: case for case in found.cases}
    if cases:
        parts: list[str] = ["Shown by: "]
        for i, case in enumerate(cases.values()):
            parts += ["; " if i else "", cite(study, case)]
        blocks.append(Text(tuple(parts)))
    return Section(f"section-{found.finding.anchor}", found.subject, tuple(blocks))


def _clause(sentence: str) -> str:
    """The sentence to follow a colon."""
    return sentence[:1].lower() + sentence[1:]


def _not_measured(study: Study, found: Sequence[StudyFinding], results: Sequence[Result]) -> tuple[Block, ...]:
    lines = [item.finding.observation for item in found if item.absent]
    lines += [claims.sentence(study, item) for item in results if item.verdict is ClaimVerdict.NOT_TESTABLE]
    missing = absent(study)
    return (*([bullets(lines)] if lines else []), *([Table(missing, "absent")] if missing.rows else []))
