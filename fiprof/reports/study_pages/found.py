"""A finding of a study with the cases that show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Observation


class Audience(StrEnum):
    """Whom a finding is for."""

    SERVING = "serving"
    KERNELS = "kernels"


@dataclass(frozen=True)
class StudyFinding:
    """A finding with the cases that show it."""

    subject: str
    """What it is about, as a heading."""
    finding: Observation
    cases: tuple[CaseResult, ...]
    """The few that the evidence names; the reader can open their runs."""
    audience: Audience
    headline: bool = False
    """Whether it belongs at the top of the study."""
    absent: bool = False
    """Whether nothing was found: the observation says why."""
    figure: str = ""
    """The number to remember of it, for the summary; follows the subject."""
    short: str = ""
    """The recommendation for the summary, as the end of a sentence; the finding's own where that is short."""
    command: str = ""
    """What the recommendation asks to run."""


def not_measured(anchor: str, what: str, why: str, audience: Audience) -> StudyFinding:
    """A finding that could not be made."""
    finding = Observation(anchor, f"{what}: not measured, because {why}.", (), "No recommendation follows.")
    return StudyFinding(what, finding, (), audience, absent=True)


def slug(words: str) -> str:
    """Words as a part of an anchor."""
    return "".join(char if char.isalnum() else "-" for char in words.lower()).strip("-")
