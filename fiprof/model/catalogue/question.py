"""What is asked of a catalogue, and the words it is asked with: ``batch>=64``, ``30d``, ``-dram_share``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.model.catalogue.summary import VALUES

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip


class Condition(NamedTuple):
    """``NAME OPERATOR VALUE``: of a parameter, a quantity, a package or a fact of the run."""

    name: str
    operator: str
    """One of OPERATORS."""
    text: str

    def on(self, number: Any = None, text: Any = None) -> Any:
        """The condition on a number, or on a text: on SQL columns an expression.

        Raises FiprofError for an order of texts.
        """
        try:
            if number is not None:
                return OPERATORS[self.operator](number, float(self.text))
        except ValueError:
            pass
        if text is None or self.operator not in ("=", "==", "!="):
            raise FiprofError(
                f"{self.name}{self.operator}{self.text} compares no numbers",
                "texts are compared with = and !=",
                exit_code=2,
            )
        return OPERATORS[self.operator](text, self.text)


@dataclass(frozen=True)
class Question:
    """Which runs, and what of them. Empty for all."""

    kernel: str = ""
    """As ``--kernel`` of the other commands: a part of a kernel's or case's name, parameters, or a regular
    expression."""
    where: tuple[Condition, ...] = ()
    gpu: str = ""
    """A part of the GPU's name or UUID."""
    since: datetime | None = None
    metrics: tuple[str, ...] = ()
    """Keys of VALUES."""
    tags: tuple[str, ...] = ()
    """All of them."""
    status: str | None = None
    sort: str = "started"
    """started, name, duration_s, bytes or a metric; with ``-`` before it the largest first."""
    limit: int | None = None
    """The so many first in the order; of ``started`` the newest."""
    everywhere: bool = False
    """Also runs of other archives in the same database."""

    @property
    def filters(self) -> bool:
        """Whether it leaves out anything but by its limit."""
        return bool(self.kernel or self.where or self.gpu or self.since or self.metrics or self.tags or self.status)


def question(
    *,
    where: Sequence[str] = (),
    since_: str = "",
    metrics: Sequence[str] = (),
    tags: Sequence[str] = (),
    sort: str = "",
    **as_they_are: Any,
) -> Question:
    """A question from its words, as the options of ``fiprof runs`` take them. Raises FiprofError."""
    conditions = []
    for text in where:
        found = re.fullmatch(r"\s*([\w.-]+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*?)\s*", text, re.DOTALL)
        if not found or not found[3]:
            raise FiprofError(
                f"--where {text} is not a condition", "NAME=VALUE, or with != > >= < <=: batch>=64", exit_code=2
            )
        conditions.append(Condition(found[1], found[2], found[3]))
    keys = tuple(dict.fromkeys(map(_metric, metrics)))
    order, descending = sort.removeprefix("-") or "started", sort.startswith("-")
    if order not in ("started", "name", "duration_s", "bytes"):
        order = _metric(order)
        keys = keys if order in keys else (*keys, order)
    return Question(
        where=tuple(conditions),
        since=_since(since_) if since_ else None,
        metrics=keys,
        tags=tuple(tags),
        sort=f"{'-' * descending}{order}",
        **as_they_are,
    )


def _since(text: str) -> datetime:
    """``30d``, ``12h``, ``2w`` before now, or a date or time, local unless it says. Raises FiprofError."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(h|d|w)", text.strip()):
        return clock.now() - timedelta(hours=float(found[1]) * {"h": 1, "d": 24, "w": 168}[found[2]])
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise FiprofError(
            f"--since {text} is not a time", "30d, 12h, 2w or a date such as 2026-11-01", exit_code=2
        ) from error


def _metric(name: str) -> str:
    """The key of a quantity that the catalogue has: itself, or without its unit (``l2_hit``). Raises FiprofError.

    A case's duration is that of an iteration without a profiler.
    """
    names = {"case_plain_us" if name == "duration" else name, f"case_{name}"}
    found = [key for key in VALUES if key in names or re.sub("_(us|pct|ghz|gb_per_s|tflops|mb)$", "", key) in names]
    if not found:
        raise FiprofError(f"the catalogue has no quantity {name}", f"it has {', '.join(VALUES)}", exit_code=2)
    return found[0]
