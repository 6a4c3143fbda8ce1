"""``fiprof expected`` as tables: one a case for people, with the deviations below it; one flat table for programs."""

from fiprof.analysis.expected import COLUMNS, TOLERANCE_POINTS, Expected, deviation_text
from fiprof.reports import verdict_words
from fiprof.reports.columns import heading
from fiprof.reports.view import Column, Document, View, left_out, view_of

SHOWN = (
    Column("what", "what", least=26),
    Column("unit", "in"),
    Column("limits", "expected", least=8),
    Column("measured", "measured", spec=".2f"),
    Column("in_words", "outcome"),
)

NOT_COMPARED = (
    Column("family", "family"),
    Column("what", "what"),
    Column("figure", "said", least=37),
    Column("params", "for"),
    Column("why", "not compared"),
)

MOST_CASES = 8  # cases that people are shown
HOW_TO_READ = (
    "Stalls: % of the warps' time, by ncu's counters; a range holds within a point, a share expected as one number "
    f"within {TOLERANCE_POINTS:g}. Measured is the launch named above each table: of the case's longest kernel, the "
    "one of median duration."
)


def document(report: Expected, *, most: int | None = None) -> Document:
    """What the run solved faster, a table a case, the deviations in words below it, and what is not compared; for
    programs a row a comparison, a faster case and a figure that is not compared.

    most: cases that people are shown; None for all.
    """
    hidden = max(len(items) - (len(items) if most is None else most) for items in (report.cases, report.faster))
    faster = [f"Measured faster, {case}: {verdict_words.step(step)}" for case, step in [*report.faster.values()][:most]]
    shown = [View(title="Expected against measured", summary=(*report.summary, *faster))]
    for case in report.cases[:most]:
        rows = [{**row, "in_words": deviation_text(row)} for row in case.rows]
        shown.append(view_of(SHOWN, rows, title=heading(case.at), warnings=case.warnings, notes=case.notes))
    if report.not_compared:
        title = "Said of other GPUs or shapes, not compared"
        shown.append(view_of(NOT_COMPARED, report.not_compared, title=title))
    notes: list[str] = [*left_out("{count:case|cases} left out: --all shows them.", hidden)]
    notes += [HOW_TO_READ] if report.cases else []
    for each in report.sources:
        about = f"{each.title}{each.reference and '; '}{each.reference}"
        notes.append(f"Expectations of {each.gpu} (compute capability {each.compute_capability}): {about}.")
    return Document(view_of(COLUMNS, report.rows), tuple(shown), warnings=report.warnings, notes=tuple(notes))
