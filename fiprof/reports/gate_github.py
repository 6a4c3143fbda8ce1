"""A gate as annotations of GitHub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fiprof.analysis.comparison.gate import DOUBTS, Decision, Gate, GatedCase
from fiprof.model.labels import Labels
from fiprof.reports.gate import answer, sentence, suite_name
from fiprof.reports.words import phrase
from fiprof.text import escape_control

MOST_ANNOTATIONS = 10
"""Of one level that GitHub shows of a step; its documentation of workflow commands."""


class Level(StrEnum):
    """Of an annotation, the gravest first."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True)
class Annotation:
    """What GitHub shows on the page of a workflow's run."""

    level: Level
    title: str
    text: str

    def __str__(self) -> str:
        """The workflow command, escaped as actions/toolkit does it."""
        title = _escaped(self.title).replace(":", "%3A").replace(",", "%2C")
        return f"::{self.level} title={title}::{_escaped(self.text)}"


def annotated(found: Gate) -> list[Annotation]:
    """What is to be seen without opening a log; of many of one level the gravest, and how many more there are."""
    levels = {
        **dict.fromkeys((Decision.NEW, Decision.FASTER), Level.NOTICE),
        **dict.fromkeys(DOUBTS, Level.WARNING),
        **dict.fromkeys(found.failing, Level.ERROR),
    }
    return [
        annotation
        for level in Level
        for annotation in _of_level(found, level, [case for case in found.cases if levels.get(case.decision) is level])
    ]


def error_annotated(against: str, message: str) -> Annotation:
    """That nothing was decided."""
    return Annotation(Level.ERROR, suite_name(against), message)


def _of_level(found: Gate, level: Level, cases: Sequence[GatedCase]) -> Iterator[Annotation]:
    label = Labels(found.run.cases)
    kept = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
    for case in kept:
        yield Annotation(level, phrase("gate.annotation", case=label(case.case)), sentence(found, case))
    if rest := len(cases) - len(kept):
        yield Annotation(level, answer(found), phrase("gate.more", count=rest))


def _escaped(text: str) -> str:
    """In one line."""
    return escape_control(text).replace("%", "%25")
