"""``final-report``: what was found, what follows for serving and for kernel developers, and the claims of others."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Link, Page, Section, Table, Text
from fiprof.reports.study_pages.claims import Result, Tested
from fiprof.reports.study_pages.data import Study, short_pair
from fiprof.reports.study_pages.environment import facts, steadiness
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.ratio import METHOD
from fiprof.reports.study_pages.tables import absent, claims, key
from fiprof.reports.view import Column, View
from fiprof.text import count

RULES = (
    "Two of the rules were made after the first data from a GPU had been seen, and not before: that a claim of a bound "
    "holds in part where a roof of that kind is the lowest and the verdict is another, and that the claim of saved "
    "traffic leaves out what fits in L2. The limits of the numbers, such as ±10%, are older than the data."
)
"""Said below the claims."""


def page(
    study: Study, serving: Sequence[StudyFinding], kernels: Sequence[StudyFinding], results: Sequence[Result]
) -> Page:
    """Findings, recommendations, claims, and what was not measured."""
    made = [[found for found in group if not found.absent] for group in (serving, kernels)]
    sections = [
        Section("in-short", "In short", _short(study, serving, kernels, results)),
        Section(
            "serving", "For those who serve models", _none(made[0]), tuple(_finding(study, found) for found in made[0])
        ),
        Section(
            "kernels", "For those who write kernels", _none(made[1]), tuple(_finding(study, found) for found in made[1])
        ),
        Section(
            "claims",
            "What others say, tested",
            (
                Text(
                    ("Each claim is a test on this study's cells; confirmed or refuted on this GPU, at these sizes.",)
                ),
                Table(claims(results), "claims-table"),
                Text((RULES,)),
            ),
            tuple(_claim(study, result) for result in results),
        ),
        Section("not-measured", "What was not measured", _not_measured(study, [*serving, *kernels], results)),
        Section("method", "How sure", (*(Text((line,)) for line in steadiness(study)), Text((METHOD,)))),
    ]
    return Page(f"{study.info.title or study.info.study}: final report", tuple(sections), facts=facts(study))


def _none(made: Sequence[StudyFinding]) -> tuple[Block, ...]:
    return () if made else (Text(("Nothing could be found out for them; the last section says why.",)),)


def _short(
    study: Study, serving: Sequence[StudyFinding], kernels: Sequence[StudyFinding], results: Sequence[Result]
) -> tuple[Block, ...]:
    made = [found for found in (*serving, *kernels) if not found.absent]
    counts = [
        f"{sum(item.verdict == verdict for item in results)} {word}"
        for verdict, word in (
            ("confirmed", "confirmed"),
            ("partly", "true in part"),
            ("refuted", "refuted"),
            ("undecided", "undecided"),
            ("not measured", "not measured"),
        )
        if any(item.verdict == verdict for item in results)
    ]
    blocks: list[Block] = []
    if study.info.status != "complete":
        blocks.append(Caution(f"The study is not complete: {study.info.status}."))
    blocks.append(
        Text(
            (
                f"{count(len(study.measured), 'cell')}, {count(len(made), 'finding')}, {count(len(results), 'claim')}: "
                f"{', '.join(counts)}.",
            )
        )
    )
    for group, who in ((serving, "serve models"), (kernels, "write kernels")):
        if lines := [_line(found) for found in group if not found.absent]:
            blocks += [Text((f"For those who {who}:",)), Bullets(tuple(lines))]
    return tuple(blocks)


def _line(found: StudyFinding) -> Text:
    """The number behind a recommendation, the recommendation, and a link to the finding."""
    advice = found.short or _clause(found.finding.implication)
    figure = f", {found.figure}" if found.figure else ""
    return Text((f"{found.subject}{figure}: {advice} ", Link("Why", f"#{found.finding.anchor}")))


def _finding(study: Study, found: StudyFinding) -> Section:
    """A finding under a heading of its own, followed by links to the cells that show it."""
    blocks: list[Block] = [found.finding]
    if found.command:
        blocks.append(Code(found.command))
    cells = {cell.case: cell for cell in found.cells}
    if cells:
        parts: list[str] = ["Shown by: "]
        for i, cell in enumerate(cells.values()):
            parts += ["; " if i else "", study.cite(cell)]
        blocks.append(Text(tuple(parts)))
    return Section(f"section-{found.finding.anchor}", found.subject, tuple(blocks))


def _clause(sentence: str) -> str:
    """The sentence to follow a colon."""
    return sentence[:1].lower() + sentence[1:]


def _claim(study: Study, result: Result) -> Section:
    claim = result.claim
    blocks: list[Block] = [
        Text((result.sentence,)),
        Bullets((Text((f"Cells: {claim.about}.",)), Text((f"Test: {claim.how}.",)))),
    ]
    if result.tested:
        blocks.append(Table(_tested(study, result.tested), f"tested-{claim.name}", appendix=True))
    return Section(f"claim-{claim.name}", f"«{claim.words}»: {result.verdict}", tuple(blocks))


_ORDER = ("fails", "partly", "unclear", "holds")


def _tested(study: Study, tested: Sequence[Tested]) -> View:
    """Every cell or pair, those that contradict first, with the runs that hold them."""
    runs = max(len({cell.run for cell in item.cells}) for item in tested)
    rows = []
    for item in sorted(tested, key=lambda item: _ORDER.index(item.outcome)):
        names = list(dict.fromkeys(cell.run for cell in item.cells))
        links = [study.run_link(name) for name in names] + [""] * (runs - len(names))
        name = short_pair(study, *item.cells) if len(item.cells) == 2 else study.short(item.cells[0])
        rows.append((name, item.measured, item.outcome, *links))
    columns = [Column("cells", "cells"), Column("measured", "measured"), Column("outcome", "claim")]
    columns += [Column(f"run_{i}", "run" if not i else "other run") for i in range(runs)]
    return View(tuple(columns), tuple(rows), notes=tuple(filter(None, [key(study, tested[0].cells)])))


def _not_measured(study: Study, found: Sequence[StudyFinding], results: Sequence[Result]) -> tuple[Block, ...]:
    lines = [item.finding.observation for item in found if item.absent]
    lines += [item.sentence for item in results if item.verdict == "not measured"]
    blocks: list[Block] = []
    if lines:
        blocks.append(Bullets(tuple(Text((line,)) for line in lines)))
    missing = absent(study)
    if missing.rows:
        blocks.append(Table(missing, "absent"))
    return tuple(blocks) or (Text(("Nothing that the study asked for is missing.",)),)
