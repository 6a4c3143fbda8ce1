"""What is asked of a catalogue, and the words it is asked with: ``batch>=64``, ``30d``, ``-dram_share``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.model.catalogue.schema import VALUES

ALIASES = {"duration": "case_plain_us"}
"""What else a quantity is called: a case's duration is that of an iteration without a profiler."""
UNITS = re.compile(r"_(us|pct|ghz|gb_per_s|tflops|mb)$")
_CONDITION = re.compile(r"\s*([\w.-]+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*?)\s*", re.DOTALL)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|w)")
_HOURS = {"h": 1, "d": 24, "w": 168}


class Operator(StrEnum):
    """How a value is compared."""

    EQUAL = "="
    UNEQUAL = "!="
    AT_LEAST = ">="
    AT_MOST = "<="
    ABOVE = ">"
    BELOW = "<"


@dataclass(frozen=True)
class Condition:
    """``NAME OPERATOR VALUE``: of a parameter, a quantity, a package or a fact of the run."""

    name: str
    operator: Operator
    text: str

    @property
    def number(self) -> float | None:
        """The value, where it is a number."""
        try:
            return float(self.text)
        except ValueError:
            return None


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
    status: str = ""
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


def condition(text: str) -> Condition:
    """``batch>=64``. Raises FiprofError."""
    found = _CONDITION.fullmatch(text)
    if not found or not found[3]:
        raise FiprofError(f"--where {text} is no condition", "NAME=VALUE, or with != > >= < <=: batch>=64", exit_code=2)
    return Condition(found[1], Operator("=" if found[2] == "==" else found[2]), found[3])


def since(text: str, now: datetime | None = None) -> datetime:
    """``30d``, ``12h``, ``2w`` before now, or a date or time, local unless it says. Raises FiprofError."""
    if found := _SPAN.fullmatch(text.strip()):
        return (now or clock.now()) - timedelta(hours=float(found[1]) * _HOURS[found[2]])
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise FiprofError(
            f"--since {text} is no time", "30d, 12h, 2w or a date such as 2026-11-01", exit_code=2
        ) from error


def metric(name: str) -> str:
    """The key of a quantity that the catalogue has: itself, or without its unit (``l2_hit``). Raises FiprofError."""
    known = {ALIASES.get(name, name), f"case_{name}"}
    found = [key for key in VALUES if key in known or UNITS.sub("", key) in known]
    if not found:
        raise FiprofError(f"the catalogue has no quantity {name}", f"it has {', '.join(VALUES)}", exit_code=2)
    return found[0]


def question(
    *,
    kernel: str = "",
    where: Sequence[str] = (),
    gpu: str = "",
    since_: str = "",
    metrics: Sequence[str] = (),
    tags: Sequence[str] = (),
    status: str | None = None,
    sort: str = "",
    limit: int | None = None,
    everywhere: bool = False,
) -> Question:
    """A question from its words, as the options of ``fiprof runs`` take them. Raises FiprofError."""
    keys = tuple(dict.fromkeys(map(metric, metrics)))
    order, descending = sort.removeprefix("-"), sort.startswith("-")
    if order and order not in SORTS:
        order = metric(order)
        keys = keys if order in keys else (*keys, order)
    return Question(
        kernel=kernel,
        where=tuple(map(condition, where)),
        gpu=gpu,
        since=since(since_) if since_ else None,
        metrics=keys,
        tags=tuple(tags),
        status=status or "",
        sort=f"{'-' * descending}{order or 'started'}",
        limit=limit,
        everywhere=everywhere,
    )


SORTS = ("started", "name", "duration_s", "bytes")
"""What runs are sorted by, beside a metric."""
