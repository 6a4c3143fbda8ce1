"""The verdicts of a run as tables."""

from fiprof.analysis.program import Program
from fiprof.analysis.verdict.model import CaseBound
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts
from fiprof.model.finding import Finding, say
from fiprof.model.selection import Alike, alike, longest_first, title
from fiprof.reports import verdict_words as words
from fiprof.reports.columns import HOW_TIMED, NAMES, TIMES, bounded, grouped, heading
from fiprof.reports.top import ranking
from fiprof.reports.view import Column, Document, Narrow, Value, View

KEYS = (
    "launch", "case", "label", "iteration", "kernel", "grid", "nsys_duration_us", "duration_us", "iteration_share",
    "program_count", "program_us", "program_share", "program_grids", "kind", "part", "limits",
    "causes", "evidence", "runner_up", "margin_points", "confidence", "doubts", "steps", "rules", "notes",
)  # fmt: skip
HOW_TO_READ = (
    "distance: what the resource nearest to its limit leaves. next step: ~ estimates what it saves of the launch's "
    "time, ≤ bounds it."
)
_SUMMARY = (
    *NAMES,
    *TIMES,
    Column("verdict", "limit"),
    Column("distance", "distance"),
    Column("confidence", "confidence"),
    Column("step", "next step", narrow=Narrow.BELOW),
)
_PROGRAM = (
    Column("program_count", "runs", spec=",.0f"),
    Column("program_grids", "grids", spec=",.0f"),
    Column("program_share", "of kernels", spec=".1%"),
)
_EVIDENCE = (
    Column("what", "evidence"),
    Column("value", "value"),
    Column("limit", "compared with"),
    Column("provenance", "measured as", narrow=Narrow.BELOW),
)

_CASES = (
    Column("label", "case"),
    Column("case_kernels", "kernels", spec=".3g"),
    Column("case_busy_us", "GPU busy, nsys", "µs", spec=",.2f"),
    Column("case_wall_us", "host loop", "µs", spec=",.2f"),
    Column("case_waiting_pct", "GPU waits", "%", spec=".1f"),
    Column("case_copying_pct", "only copies", "%", spec=".0f"),
    Column("verdict", "limit"),
)

MOST_ROWS = 20  # groups of launches, and cases that wait for the host, that people are shown
MOST_OF_PROGRAM = 5  # rows of a program's ranking that people are shown before its launches; ``fiprof top`` has more
MOST_STEPS = 3  # groups whose first step is shown whole; and whose evidence, where they were asked for
MOST_RULES = 4  # of a launch, that people are shown


def document(
    verdicts: Verdicts, *, most: int | None = MOST_ROWS, detailed: bool = False, program: Program | None = None
) -> Document:
    """The verdicts as a table, what takes most time first, and the first steps of the first ones; flat for programs.

    Like launches with the same verdict are one for people. most: rows; None for all. detailed: with the evidence, all
    steps, ncu's rules and the cases.
    """
    like = verdicts.groups or alike(verdicts.launches, also=lambda item: item.names, weights=verdicts.weights)
    shown_groups, left_out = bounded(longest_first(like), most)
    standing = _PROGRAM if any(item.stands_for for item in verdicts.launches) else ()
    columns = (*_SUMMARY[:5], *standing, *_SUMMARY[5:])
    shown = [ranking(program, most and MOST_OF_PROGRAM)] if program else []
    if shown_groups:
        heads = {"title": "Kernels" if program else "", "notes": (*left_out, HOW_TIMED)}
        shown.append(grouped(columns, shown_groups, _cell, **heads))
    if detailed:
        shown += map(_launch_view, shown_groups)
        if verdicts.cases:
            rows = []
            for each in verdicts.cases:
                numbers = (each.busy_time, each.wall_time, each.waiting, each.copying)
                values = (number and number.value for number in numbers)
                rows.append((each.label, each.kernels, *values, words.case_kind(each)))
            shown.append(View(_CASES, tuple(rows), title="Cases"))
    elif stepped := [group.shown for group in shown_groups[:MOST_STEPS] if group.shown.steps]:
        steps = []
        for item in stepped:
            label, step = title(item.label, item.kernel), words.step(item.steps[0])
            steps.append(say("launch {launch} ({label}): {step}", launch=item.launch, label=label, step=step))
        shown.append(View(title="First steps", summary=tuple(steps)))
    # Of a program, or of files, no iteration was timed without a profiler, and none need have been.
    untimed = {case.bound for case in verdicts.cases} == {CaseBound.NO_PLAIN_TIME}
    if waiting := [case for case in verdicts.cases if case.bound is not CaseBound.KERNELS and not untimed]:
        waiting_cases = [*map(words.case, waiting[:MOST_ROWS])]
        if rest := len(waiting[MOST_ROWS:]):
            waiting_cases.append(say("{count:case|cases} more: --format json has them.", count=rest))
        shown.append(View(title="The GPU waits", summary=tuple(waiting_cases)))
    # Of a program its own verdict is the answer: that no launch has one is said after it.
    aside = tuple(each for each in verdicts.warnings if program and each.kind == "no_launches")
    shown += [View(warnings=aside)] * bool(aside)
    notes = [HOW_TO_READ] if shown_groups else []
    if shown_groups and not detailed:
        more = f"--launch {shown_groups[0].shown.launch} shows its evidence, all steps and ncu's rules"
        notes.append(f"{more}; --all shows those of every launch.")
    programs = View(tuple(map(Column, KEYS)), tuple(map(_data_row, verdicts.launches)))
    warnings = tuple(each for each in verdicts.warnings if each not in aside)
    return Document(programs, tuple(shown), warnings, tuple(notes), {"program": program.fields()} if program else {})


def _cell(item: LaunchVerdict, key: str) -> Value:
    """What stands in a column of _SUMMARY or _PROGRAM."""
    match key:
        case "verdict":
            return words.short_title(item)
        case "distance":
            return words.distance(item)
        case "confidence":
            return item.confidence.value
        case "step":
            return words.short_step(item.steps[0]) if item.steps else None
        case "program_count" | "program_grids" | "program_share":
            return getattr(item.stands_for, key.removeprefix("program_"), None)
    found: Value = getattr(item, key)
    return found


def _launch_view(group: Alike[LaunchVerdict]) -> View:
    item = group.shown
    summary = [say("{reason}.", reason=words.reason(item))]
    if runner_up := words.runner_up(item):
        summary.append(say("Runner-up: {runner_up}.", runner_up=runner_up))
    summary.append(say("Confidence {confidence}.", confidence=words.confidence(item)))
    notes: list[Finding | str] = [f"{number}. {words.step(step)}" for number, step in enumerate(item.steps, 1)]
    notes += [words.rule(rule) for rule in item.rules[:MOST_RULES]]
    rows = []
    for of in (*item.evidence, *(shown for cause in item.causes for shown in cause.evidence)):
        # The heading names launch and case.
        parts = tuple(part._replace(launch=None, case=None) for part in of.number.source.parts)
        source = of.number.source._replace(parts=parts)
        provenance = str(source) if source.origin == "facts" else source.formula
        rows.append((words.what(of), str(of.number), ", ".join(words.limits(of)), provenance))
    return View(_EVIDENCE, tuple(rows), title=heading(item, group), summary=tuple(summary), notes=(*notes, *item.notes))


def _data_row(item: LaunchVerdict) -> tuple[Value, ...]:
    of, stands = item.row, item.stands_for
    return (
        of.launch, of.case, of.label, of.iteration, of.kernel, of.grid, of.nsys_duration_us, of.duration_us,
        item.iteration_share,
        *((stands.count, stands.total_us, stands.share, stands.grids) if stands else (None,) * 4),
        item.kind.value, item.part.value if item.part else None, tuple(each.fields() for each in item.limits),
        tuple(each.fields() for each in item.causes), tuple(each.fields() for each in item.evidence),
        item.runner_up.fields() if item.runner_up else None, item.margin_points, item.confidence.value, item.caveats,
        tuple(each.fields() for each in item.steps), tuple(each.fields() for each in item.rules), item.notes,
    )  # fmt: skip
