"""How sure a report's numbers are: the run's own checks; and what the report says about itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.check_rules import Check, CheckName
from fiprof.model.labels import Labels
from fiprof.model.run import Run
from fiprof.reports.columns import attribute
from fiprof.reports.pages.page import Block, Bullets, Caution, Section, Table, Text
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded

MOST_ALIKE = 3


def section(run: Run, found: Sequence[Check]) -> Section:
    """The run's checks: how many passed, and every one that did not."""
    if not found:
        return Section("sure", phrase("sure.title"), (Caution(phrase("sure.nothing")),))
    passed, failed, unknown = (_of(found, outcome) for outcome in (True, False, None))
    head = phrase(
        "sure.head",
        all=len(found),
        passed=len(passed),
        failed=phrase(f"sure.{'some' if failed else 'none'}_failed", count=len(failed)),
        unknown=phrase("sure.unknown", count=len(unknown)) if unknown else ".",
    )
    columns: TracedColumns = (
        (Column("what", "what holds"), _holds),
        *(
            (Column(key, title, spec="d"), lambda name, own=own: sum(check.check == name for check in own))
            for key, title, own in (
                ("passed", "passed", passed),
                ("failed", "failed", failed),
                ("unknown", "not known", unknown),
            )
        ),
        attribute("check", "check", of="value"),
    )
    names = dict.fromkeys(check.check for check in found)
    blocks: list[Block] = [Text((head,)), listed(columns, names, anchor="sure-checks", title="Checks")]
    for key, sentences in (("what_failed", _sentences(failed, run.labels)), ("what_unknown", _reasons(unknown))):
        if sentences:
            blocks += [Text((phrase(f"sure.{key}"),)), Bullets(tuple(Text((sentence,)) for sentence in sentences))]
    return Section("sure", phrase("sure.title"), tuple(blocks))


def _of(found: Sequence[Check], outcome: bool | None) -> list[Check]:
    return [check for check in found if check.passed is outcome]


def _holds(check: CheckName) -> str:
    """What a check holds."""
    return phrase(f"check_name.{check.name.lower()}.holds")


def _sentences(failed: Sequence[Check], labels: Labels) -> list[str]:
    """A sentence for each failed check, with what it is about; of many alike the first."""
    alike: dict[CheckName, list[Check]] = defaultdict(list)
    for check in failed:
        alike[check.check].append(check)
    told: list[str] = []
    for name, checks in alike.items():
        for check in checks[:MOST_ALIKE]:
            about = _subject(check, labels)
            told.append(phrase("sure.check", about=f"{about}: " if about else "", finding=check.finding))
        if len(checks) > MOST_ALIKE:
            told.append(phrase("sure.more", count=len(checks) - MOST_ALIKE, check=name.value))
    return told


def _reasons(unknown: Sequence[Check]) -> list[str]:
    alike = Counter((_holds(check.check), worded(check.finding)) for check in unknown)
    return [
        phrase(f"sure.reason{'s' * (count > 1)}", what=what, why=why, count=count)
        for (what, why), count in alike.items()
    ]


def _subject(check: Check, labels: Labels) -> str:
    """The launch or case that a check is about; empty for the run."""
    if check.launch is not None:
        return phrase("sure.launch", launch=check.launch, label=labels(check.case))
    return "" if check.case is None else labels(check.case)


def checks_table(run: Run, found: Sequence[Check]) -> Table | None:
    """Every check with its value and range, for the appendix; None for none."""
    outcomes = {True: "passed", False: "FAILED", None: "not known"}
    columns: TracedColumns = (
        attribute("check", "check", of="check.value"),
        (Column("about", "about"), lambda check: _subject(check, run.labels) or "the run"),
        attribute("value", "value", "", ",.4g"),
        attribute("low", "low", "", ",.4g"),
        attribute("high", "high", "", ",.4g"),
        (Column("unit", "unit"), lambda check: check.unit or None),
        (Column("passed", "passed"), lambda check: outcomes[check.passed]),
    )
    title = phrase("appendix.checks")
    return listed(columns, found, anchor="appendix-checks", title=title, appendix=True) if found else None


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
    columns: TracedColumns = (
        attribute("what", "is it so?"),
        (Column("outcome", "yes/no"), lambda item: words[item.outcome]),
        attribute("why", "because"),
    )
    no = sum(item.outcome is False for item in items)
    head = phrase(f"checklist.{'not_all' if no else 'all'}", no=no, all=len(items))
    return Section("checklist", "Checklist", (Text((head,)), listed(columns, items, anchor="checklist-items")))


OF_CHECKS = {
    "reference": (CheckName.REFERENCE,),
    "spread": (CheckName.SPREAD,),
    "clocks": (CheckName.SM_CLOCK,),
    "alone": (CheckName.OTHER_PROCESSES,),
    "profilers": (CheckName.NSYS_VS_PLAIN,),
    "in_use": (CheckName.NCU_VS_NSYS,),
    "operations": (CheckName.FLOPS,),
    "stalls": (CheckName.STALL_SUM, CheckName.SAMPLE_SUM, CheckName.DROPPED_SAMPLES),
}
"""Lines of the checklist that the run's own checks answer."""


def items_of_checks(found: Sequence[Check]) -> list[Item]:
    """These lines."""
    items = []
    for key, names in OF_CHECKS.items():
        own = [check for check in found if check.check in names]
        failed, known = len(_of(own, False)), sum(check.passed is not None for check in own)
        why = worded(own[0].finding) if own else phrase("checklist.no_check")
        if known:
            why = phrase(f"checklist.{'failed' if failed else 'passed'}", failed=failed, known=known)
        items.append(Item(phrase(f"checklist.{key}"), not failed if known else None, why))
    return items
