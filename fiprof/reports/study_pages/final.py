"""``final-report``: what follows for serving and for kernel developers, with pictures, and the claims of others."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis import scaling
from fiprof.analysis.claims import ClaimVerdict, Result
from fiprof.analysis.study import Absence, Study
from fiprof.reports.pages.page import Block, Bullets, Caution, Page, Section, Table, Text, bullets
from fiprof.reports.study_pages import choices, claims, kernel_findings
from fiprof.reports.study_pages.analysis import is_baseline, together
from fiprof.reports.study_pages.choices import Choice, Chosen
from fiprof.reports.study_pages.environment import facts, status, steadiness
from fiprof.reports.study_pages.found import Audience, StudyFinding
from fiprof.reports.study_pages.names import absence_words, cite
from fiprof.reports.study_pages.numbers import METHOD
from fiprof.reports.study_pages.sweep import sweep
from fiprof.reports.study_pages.tables import absent
from fiprof.reports.words import phrase
from fiprof.text import join_words


def page(
    study: Study,
    chosen: Sequence[Chosen],
    findings: Sequence[StudyFinding],
    results: Sequence[Result],
    undecided: Sequence[tuple[Choice, Absence]],
) -> Page:
    """Recommendations, pictures, claims, and what was not measured."""
    missing = _not_measured(study, findings, results, undecided)
    sections = [
        Section("serving", "For those who serve models", *_serving(study, chosen, findings)),
        Section("kernels", "For those who write kernels", *_kernels(study, findings)),
        Section("together", "All kernels", together(study, "report")),
        *_sweeps(study),
        *claims.sections(study, results),
        *([Section("not-measured", "What was not measured", missing)] if missing else []),
        Section("method", "How sure", (bullets([*steadiness(study), METHOD]),)),
    ]
    return Page(f"{study.info.title or study.info.study}: final report", tuple(sections), facts=facts(study))


def _serving(
    study: Study, chosen: Sequence[Chosen], findings: Sequence[StudyFinding]
) -> tuple[tuple[Block, ...], tuple[Section, ...]]:
    blocks: list[Block] = []
    if study.info.status != "complete":
        blocks.append(Caution(phrase("study.not_complete", status=status(study))))
    if chosen:
        blocks += [Table(choices.view(study, chosen), "choices"), Text((phrase("choice.lead"),))]
        if (bounds := choices.by_bound(chosen)).rows:
            blocks += [Text((phrase("choice.by_bound"),)), Table(bounds, "choices-by-bound")]
    if (avoided := kernel_findings.avoid(study)).rows:
        blocks.append(Table(avoided, "avoid", appendix=True))
    return tuple(blocks), _sections(study, findings, Audience.SERVING)


def _kernels(study: Study, findings: Sequence[StudyFinding]) -> tuple[tuple[Block, ...], tuple[Section, ...]]:
    distances = kernel_findings.distances(study)
    tails = Section("tail", "Waves and tails", (Table(kernel_findings.tails(study), "tails"),))
    blocks: tuple[Block, ...] = ()
    if distances.rows:
        steps = bullets(kernel_findings.next_steps(study))
        blocks = (steps, Text((phrase("roof_distance.lead"),)), Table(distances, "distances"))
    return blocks, (*_sections(study, findings, Audience.KERNELS), tails)


def _sections(study: Study, findings: Sequence[StudyFinding], audience: Audience) -> tuple[Section, ...]:
    """A finding under a heading of its own, followed by links to the cases that show it."""
    made = []
    for found in findings:
        if found.absent or found.audience is not audience:
            continue
        blocks: list[Block] = [found.finding, *found.blocks]
        cases = {case.id: case for case in found.cases}
        parts: list[str] = []
        for case in cases.values():
            parts += ["; " if parts else "Shown by: ", cite(study, case)]
        blocks += [Text(tuple(parts))] if parts else []
        made.append(Section(f"section-{found.finding.anchor}", found.subject, tuple(blocks)))
    return tuple(made)


def _sweeps(study: Study) -> list[Section]:
    """The fastest way at each size; how the time grows with the largest axis."""
    from fiprof.reports.study_pages.analysis import growth_chart, middle

    blocks: list[Block] = []
    for workload in study.by_workload:
        if is_baseline(workload):
            continue
        if chart := sweep(study, workload, anchor=f"report-sweep-{workload}"):
            blocks.append(chart)
        axes = study.axes(workload)
        if axes and (fits := scaling.fits(study, workload, axes[-1])):
            shown, fixed = middle(study, workload, axes[-1], fits)
            blocks.append(growth_chart(study, workload, axes[-1], shown, fixed, "report-chart"))
    return [Section("sweeps", "The fastest way at each size", tuple(blocks))] if blocks else []


def _not_measured(
    study: Study, found: Sequence[StudyFinding], results: Sequence[Result], undecided: Sequence[tuple[Choice, Absence]]
) -> tuple[Block, ...]:
    lines = [item.finding.observation for item in found if item.absent]
    lines += [phrase("study.not_measured", what=choice.what, why=absence_words(why)) for choice, why in undecided]
    untested = [item.claim.words for item in results if item.verdict is ClaimVerdict.NOT_TESTABLE]
    if untested:
        lines.append(phrase("claim.untested", claims=join_words([f"«{words}»" for words in untested])))
    missing = absent(study)
    return (
        *([Bullets(tuple(Text((line,)) for line in lines))] if lines else []),
        *([Table(missing, "absent")] if missing.rows else []),
    )
