"""A finding of a study with the cases that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Block, Observation
from fiprof.reports.words import phrase, templates_of


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
    """The few that the evidence names; the reader can open their rows."""
    audience: Audience
    absent: bool = False
    """Whether nothing was found: the observation says why."""
    blocks: tuple[Block, ...] = ()
    """Tables, or what the recommendation asks to run."""


def found(
    table: str,
    anchor: str,
    audience: Audience,
    *,
    evidence: Sequence[str] = (),
    cases: Sequence[CaseResult] = (),
    advice: str = "",
    blocks: Sequence[Block] = (),
    **values: Any,
) -> StudyFinding:
    """A finding in the words of a table: ``subject``, ``observation``, ``advice``, and ``sure`` where it has that.

    advice: takes the template's place. values: what the templates are filled with.
    """
    known = templates_of(table)

    def said(key: str) -> str:
        return phrase(f"{table}.{key}", **values) if f"{table}.{key}" in known else ""

    finding = Observation(anchor, said("observation"), tuple(evidence), advice or said("advice"), said("sure"))
    return StudyFinding(said("subject"), finding, tuple(cases), audience, blocks=tuple(blocks))


def not_measured(anchor: str, what: str, why: str, audience: Audience) -> StudyFinding:
    """A finding that could not be made."""
    finding = Observation(anchor, phrase("study.not_measured", what=what, why=why), (), phrase("study.no_advice"))
    return StudyFinding(what, finding, (), audience, absent=True)
