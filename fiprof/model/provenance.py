"""Numbers that know where they come from: one cell of a raw file, or a documented formula over such cells.

A :class:`TracedNumber` is a number with its source; ``wording.say`` puts such numbers into a sentence that keeps them;
a report writes them down with it (``reports/run_report/ink.py``), so that anybody can compute them
(``tests/test_reports_numbers.py`` does, from ncu's raw CSV, nsys's SQLite file and ``baseline.jsonl``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

SUM = "sum(parts)"
RATIO = "sum(parts[:-1]) / parts[-1]"
"""All but the last together over the last."""
NAMES = "abcdefgh"

Origin = Literal["ncu", "nsys", "plain", "run.json", "facts"]


@dataclass(frozen=True)
class Provenance:
    """Where a number comes from.

    The formula is arithmetic (``+ - * /``, parentheses) and the functions ``median``, ``spread``, ``mean``, ``sum``,
    ``min``, ``max`` and ``count`` over these names. spread is (p90 - p10) / median, percentiles between neighbours.

    - ncu: ncu's metrics of the launch, by ncu's names and in base units; ``sum(a*b)`` is over all that fit the pattern.
    - nsys: of the kernel's executions in the phase of the case (of all its kernels, where none is named):
      ``duration_ns``, ``start_ns`` and ``end_ns`` of each since the trace began; ``iteration_ns``, the sum over the
      kernels of each iteration; ``busy_ns``, the time from the first one's start to the last one's end in which a
      kernel, a copy or a memory set ran, and ``iteration_busy_ns``, that time of each iteration.
    - plain: ``gpu_us`` of the case in baseline.jsonl, each iteration between CUDA events; ``round_us``, the median of
      each round's; ``wall_us``, the host's time of one, back to back; ``relative_error``.
    - run.json: ``flops``, ``bytes_read``, ``bytes_written`` of the case; ``duration_s`` of the run.
    - facts: ``a``, ``b``, … are the values of ``parts``, and ``parts`` is the list of them.
    """

    origin: Origin
    formula: str
    launch: int | None = None
    """ncu's launch ID."""
    case: str | None = None
    """Case id."""
    kernel: str | None = None
    """Its short name."""
    grid: str | None = None
    """Of the executions, where only those with this grid are meant."""
    phase: str = "measure"
    """Of nsys's executions."""
    parts: tuple[Provenance, ...] = ()

    def of(self, formula: str) -> Provenance:
        """The same place with another formula."""
        return replace(self, formula=formula)

    def __str__(self) -> str:
        """``ncu, launch 3: gpu__time_duration.sum / 1000``."""
        if self.origin == "facts":
            if self.formula == SUM:
                return " + ".join(f"({part})" for part in self.parts)
            if self.formula == RATIO:
                return f"({' + '.join(f'({part})' for part in self.parts[:-1])}) / ({self.parts[-1]})"
            inner = "; ".join(f"{name}: {part}" for name, part in zip(NAMES, self.parts, strict=False))
            return f"{self.formula}, where {inner}"
        where: list[str] = [self.origin]
        if self.launch is not None:
            where.append(f"launch {self.launch}")
        elif self.case is not None:
            where.append(self.case)
        if self.origin == "nsys":
            where += [*([self.kernel] if self.kernel else []), *([f"grid {self.grid}"] if self.grid else [])]
            where.append(self.phase)
        return f"{', '.join(where)}: {self.formula}"


@dataclass(frozen=True)
class TracedNumber:
    """A number as it is said."""

    value: float
    source: Provenance
    spec: str = ".2f"
    """How it is written."""
    unit: str = ""
    """What follows it, with a space where there is one."""

    def __str__(self) -> str:
        return f"{self.value:{self.spec}}{self.unit}"

    def __truediv__(self, other: TracedNumber) -> TracedNumber:
        """The ratio, written as ``1.31``. Raises ZeroDivisionError."""
        return TracedNumber(self.value / other.value, Provenance("facts", "a / b", parts=(self.source, other.source)))

    def as_(self, spec: str, unit: str = "") -> TracedNumber:
        """The same number, written in another way."""
        return TracedNumber(self.value, self.source, spec, unit)


class TracedText(str):
    """A text that keeps the facts in it."""

    facts: tuple[TracedNumber, ...] = ()


def join(separator: str, texts: Iterable[str | None]) -> TracedText:
    """The texts that there are as one, with the facts of each."""
    kept = [text for text in texts if text]
    said = TracedText(separator.join(kept))
    said.facts = tuple(fact for text in kept for fact in numbers_of(text))
    return said


def numbers_of(part: object) -> tuple[TracedNumber, ...]:
    """The facts in a part of a sentence."""
    if isinstance(part, TracedNumber):
        return (part,)
    return part.facts if isinstance(part, TracedText) else ()
