"""How sure a report's numbers are: the run's own checks; and what the report says about itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.check_rules import Check, CheckName
from fiprof.model.labels import Labels
from fiprof.model.run import Run
from fiprof.reports.pages.page import Block, Bullets, Caution, Section, Table, Text
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded

MOST_ALIKE = 3


def section(run: Run, found: Sequence[Check]) -> Section:
    """The run's checks: how many passed, and every one that did not."""
    if not found:
        return Section("sure", "How sure the numbers are", (Caution("the run has nothing to check"),))
    failed, unknown = _of(found, False), _of(found, None)
    passed = len(found) - len(failed) - len(unknown)
    text = f"Of {len(found):,} checks that the run makes on its own numbers, {passed:,} passed"
    text += f", {len(failed)} failed" if failed else ", none failed"
    text += f", and {len(unknown)} could not be made." if unknown else "."
    blocks: list[Block] = [Text((text,)), _summary(found)]
    if failed:
        blocks.append(Text(("What failed, and what it means:",)))
        blocks.append(Bullets(tuple(Text((sentence,)) for sentence in _sentences(failed, run.labels))))
    if unknown:
        blocks.append(Text(("What could not be told, and why:",)))
        blocks.append(Bullets(tuple(Text((sentence,)) for sentence in _reasons(unknown))))
    return Section("sure", "How sure the numbers are", tuple(blocks))


def _of(found: Sequence[Check], outcome: bool | None) -> list[Check]:
    return [check for check in found if check.passed is outcome]


_SUMMARY = (
    Column("what", "what holds"),
    Column("passed", "passed", spec="d"),
    Column("failed", "failed", spec="d"),
    Column("unknown", "not known", spec="d"),
    Column("check", "check"),
)


def _holds(check: CheckName) -> str:
    """What a check holds."""
    return phrase(f"check_name.{check.name.lower()}.holds")


def _summary(found: Sequence[Check]) -> Table:
    names = dict.fromkeys(check.check for check in found)
    rows: list[list[Cell]] = []
    for name in names:
        own = [check for check in found if check.check == name]
        counts = [len(_of(own, outcome)) for outcome in (True, False, None)]
        rows.append([_holds(name), *counts, name.value])
    return table(_SUMMARY, rows, anchor="sure-checks", title="Checks")


def _sentences(failed: Sequence[Check], labels: Labels) -> list[str]:
    """A sentence for each failed check, with what it is about; of many alike the first."""
    alike: dict[CheckName, list[Check]] = defaultdict(list)
    for check in failed:
        alike[check.check].append(check)
    told = []
    for name, checks in alike.items():
        told += [f"{_subject(check, labels)}{worded(check.finding)}." for check in checks[:MOST_ALIKE]]
        if len(checks) > MOST_ALIKE:
            told.append(f"{len(checks) - MOST_ALIKE} more like this: check {name} in the appendix.")
    return told


def _reasons(unknown: Sequence[Check]) -> list[str]:
    alike: dict[tuple[str, str], int] = defaultdict(int)
    for check in unknown:
        alike[_holds(check.check), worded(check.finding)] += 1
    return [f"{what}: {why}" + (f" ({count} times)." if count > 1 else ".") for (what, why), count in alike.items()]


def _subject(check: Check, labels: Labels) -> str:
    if check.launch is not None:
        return f"launch {check.launch} ({labels(check.case)}): "
    return "" if check.case is None else f"{labels(check.case)}: "


_ALL = (
    Column("check", "check"),
    Column("about", "about"),
    Column("value", "value", spec=",.4g"),
    Column("low", "low", spec=",.4g"),
    Column("high", "high", spec=",.4g"),
    Column("unit", "unit"),
    Column("passed", "passed"),
)


def checks_table(run: Run, found: Sequence[Check]) -> Table | None:
    """Every check with its value and range, for the appendix; None for none."""
    rows: list[list[Cell]] = [
        [
            check.check.value,
            _subject(check, run.labels).removesuffix(": ") or "the run",
            check.value,
            check.low,
            check.high,
            check.unit or None,
            {True: "passed", False: "FAILED", None: "not known"}[check.passed],
        ]
        for check in found
    ]
    title = "Every check, its value and the range that passes"
    return table(_ALL, rows, anchor="appendix-checks", title=title, appendix=True) if rows else None


# What the report says about itself


@dataclass(frozen=True)
class Item:
    """A line of the checklist."""

    what: str
    outcome: bool | None
    """None where it does not apply, or cannot be told."""
    why: str


def checklist(items: Sequence[Item]) -> Section:
    """The checklist as a section."""
    words = {True: "yes", False: "NO", None: "–"}
    rows: list[list[Cell]] = [[item.what, words[item.outcome], item.why] for item in items]
    columns = (Column("what", "is it so?"), Column("outcome", ""), Column("why", "because"))
    columns = (columns[0], Column("outcome", "yes/no"), columns[2])
    no = sum(item.outcome is False for item in items)
    head = "Everything that this report can ask of itself holds."
    if no:
        head = f"{no} of {len(items)} do{'es' if no == 1 else ''} not hold."
    return Section("checklist", "Checklist", (Text((head,)), table(columns, rows, anchor="checklist-items")))


def items_of_checks(found: Sequence[Check]) -> list[Item]:
    """The lines of the checklist that the run's own checks answer."""
    return [
        _item("the result was compared with a reference", found, CheckName.REFERENCE),
        _item("iterations took the same time", found, CheckName.SPREAD),
        _item("the clocks were up during every launch", found, CheckName.SM_CLOCK),
        _item("nothing else used the GPU", found, CheckName.OTHER_PROCESSES),
        _item("the profilers did not slow the kernels down", found, CheckName.NSYS_VS_PLAIN),
        _item("ncu measured the kernels that are in use", found, CheckName.NCU_VS_NSYS),
        _item("counted operations are those of the algorithm", found, CheckName.FLOPS),
        _item(
            "the stall mix is consistent", found, CheckName.STALL_SUM, CheckName.SAMPLE_SUM, CheckName.DROPPED_SAMPLES
        ),
    ]


def _item(what: str, found: Sequence[Check], *names: CheckName) -> Item:
    own = [check for check in found if check.check in names]
    known = [check for check in own if check.passed is not None]
    failed = _of(own, False)
    if not known:
        return Item(what, None, worded(own[0].finding) if own else "the run has no such check")
    if failed:
        return Item(what, False, f"{len(failed)} of {len(known)} checks failed")
    return Item(what, True, f"{len(known)} check{'s' * (len(known) > 1)} passed")
