"""A verdict as data: what was measured, what it was held against, what may bind and what does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fiprof.model.provenance import TracedNumber, TracedText, sentence

Kind = Literal["compute", "memory", "latency", "launch", "imbalance", "unknown"]
Test = Literal["at least", "below", ""]

CLOSE_POINTS = 10.0
"""A margin below it is called close: so far apart are compute and memory that ncu's rule SOLBottleneck does not call
balanced."""

IDLE = "idle time of the multiprocessors"
WAITING = "time in which the GPU waits"
RULED_OUT = {IDLE: "imbalanced", WAITING: "launch-bound"}
"""What a reading is of -> the verdict that it rules out where it is below its threshold."""

_WORDS: dict[Kind, str] = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "latency": "latency-bound",
    "launch": "launch-bound",
    "imbalance": "imbalanced",
    "unknown": "not enough evidence",
}


@dataclass(frozen=True)
class Comparison:
    """A measured value, and what it was held against."""

    what: str
    """What it says, e.g. ``use of DRAM``."""
    column: str
    """Of ``launches``; empty for what was computed from several."""
    fact: TracedNumber
    """The value with its unit, and ncu's or nsys's names for it (``fact.source.formula``)."""
    test: Test = ""
    """How it compares with the threshold; empty where there is none."""
    threshold: float | None = None
    """In the value's unit."""
    origin: str = ""
    """Where the threshold comes from."""

    @property
    def value(self) -> float:
        return self.fact.value

    @property
    def holds(self) -> bool:
        """Whether the value compares with the threshold as it says."""
        if not self.test or self.threshold is None:
            return True
        return self.value >= self.threshold if self.test == "at least" else self.value < self.threshold

    @property
    def rules_out(self) -> str:
        """The verdict that it rules out, where it is there for that only; else empty."""
        return RULED_OUT.get(self.what, "") if self.test == "below" else ""

    def said(self) -> TracedText:
        """``use of DRAM 88.6%, at least 80% (ncu's rule SOLBottleneck)``."""
        if not self.test or self.threshold is None:
            return sentence("{} {}", self.what, self.fact)
        limit = f"{self.threshold:g}{self.fact.unit}"
        return sentence("{} {}, {} {} ({})", self.what, self.fact, self.test, limit, self.origin)


@dataclass(frozen=True)
class Bottleneck:
    """Something that may bind a launch."""

    kind: Kind
    part: str
    """Which resource, or which imbalance; empty where the kind says all."""
    value: float
    """Percent of time; see the module. Of latency: what the busiest resource leaves."""
    reading: Comparison | None = None
    """The value itself; None for latency, which is the absence of the others."""

    @property
    def title(self) -> str:
        """E.g. ``memory-bound (DRAM)``."""
        return title(self.kind, self.part)


@dataclass(frozen=True)
class Judgement:
    """What binds a launch, and why."""

    kind: Kind
    part: str
    readings: tuple[Comparison, ...]
    """The evidence, the deciding one first; each holds."""
    runner_up: Bottleneck | None = None
    margin: float | None = None
    """Points of a percent by which the readings would have to change for the runner-up; negative where it is ahead and
    merely feeds what binds."""
    resources: tuple[Bottleneck, ...] = ()
    """Every resource that was measured, the busiest first."""
    idle_pct: float | None = None
    """Of the time of the multiprocessor that worked longest, what the average one was idle."""
    missing: tuple[str, ...] = ()
    """Columns that would have told more."""
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return title(self.kind, self.part)

    @property
    def close(self) -> bool:
        """Whether it might as well be the runner-up."""
        return self.margin is not None and self.margin < CLOSE_POINTS

    @property
    def busiest(self) -> Bottleneck | None:
        return self.resources[0] if self.resources else None

    def resource(self, part: str) -> Bottleneck | None:
        return next((found for found in self.resources if found.part == part), None)


def title(kind: Kind, part: str = "") -> str:
    """The verdict in words."""
    return f"{_WORDS[kind]} ({part})" if part else _WORDS[kind]
