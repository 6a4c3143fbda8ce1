"""Arithmetic over the metrics of a launch that evaluates to a number and prints itself in the tools' metric names.

An expression is built from columns of ``launches`` with ``+ - * /`` and the functions below. Its value is None where
something that it needs was not collected, or a divisor is 0; its formula is that of the way which gave the value, so
that anybody can compute the number again from ncu's raw page.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
"""Column of ``launches`` -> value, for one launch; a column that is absent, None or NaN was not collected."""

Names = Callable[[str], str]
"""Column of ``launches`` -> the tool's name for it in a run."""

SUM, PRODUCT, ATOM = 1, 2, 3
"""How tightly the outermost operation of a formula binds."""


def number(row: Row, column: str) -> float | None:
    """The value of a column; None where it is absent, None or NaN."""
    value = row.get(column)
    return None if value is None or math.isnan(value) else float(value)


class Expression(ABC):
    """Something that evaluates on a launch."""

    @abstractmethod
    def value(self, row: Row) -> float | None:
        """The number, in the expression's own unit."""

    @abstractmethod
    def formula(self, row: Row, names: Names) -> str:
        """The arithmetic in the tools' names, of the way that gives this launch's value."""

    def binding(self, row: Row) -> int:  # noqa: ARG002
        """SUM, PRODUCT or ATOM: what the formula's outermost operation is."""
        return ATOM

    def __add__(self, other: Expression | float) -> Expression:
        return _Operation("+", self, _wrapped(other))

    def __sub__(self, other: Expression | float) -> Expression:
        return _Operation("-", self, _wrapped(other))

    def __mul__(self, other: Expression | float) -> Expression:
        return _Operation("*", self, _wrapped(other))

    def __truediv__(self, other: Expression | float) -> Expression:
        return _Operation("/", self, _wrapped(other))

    def __rmul__(self, other: float) -> Expression:
        return _Operation("*", _Constant(other), self)

    def __rsub__(self, other: float) -> Expression:
        return _Operation("-", _Constant(other), self)


def _wrapped(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else _Constant(value)


@dataclass(frozen=True)
class Metric(Expression):
    """A column of ``launches``: one metric of ncu."""

    column: str

    def value(self, row: Row) -> float | None:
        return number(row, self.column)

    def formula(self, row: Row, names: Names) -> str:  # noqa: ARG002
        return names(self.column)


@dataclass(frozen=True)
class _Constant(Expression):
    number: float

    def value(self, row: Row) -> float | None:  # noqa: ARG002
        return self.number

    def formula(self, row: Row, names: Names) -> str:  # noqa: ARG002
        return f"{self.number:g}"


@dataclass(frozen=True)
class _Operation(Expression):
    operator: str
    left: Expression
    right: Expression

    def value(self, row: Row) -> float | None:
        left, right = self.left.value(row), self.right.value(row)
        if left is None or right is None:
            return None
        if self.operator == "/":
            return left / right if right else None
        return {"+": left + right, "-": left - right, "*": left * right}[self.operator]

    def formula(self, row: Row, names: Names) -> str:
        own = self.binding(row)
        left, right = self.left.formula(row, names), self.right.formula(row, names)
        if self.left.binding(row) < own:
            left = f"({left})"
        if self.right.binding(row) < own or (self.right.binding(row) == own and self.operator in "-/"):
            right = f"({right})"
        return f"{left} {self.operator} {right}"

    def binding(self, row: Row) -> int:  # noqa: ARG002
        return SUM if self.operator in "+-" else PRODUCT


@dataclass(frozen=True)
class First(Expression):
    """The first of several ways that has a value: ncu gives some counts only as rates, and the other way round."""

    ways: tuple[Expression, ...]

    def chosen(self, row: Row) -> Expression:
        return next((way for way in self.ways if way.value(row) is not None), self.ways[0])

    def value(self, row: Row) -> float | None:
        return self.chosen(row).value(row)

    def formula(self, row: Row, names: Names) -> str:
        return self.chosen(row).formula(row, names)

    def binding(self, row: Row) -> int:
        return self.chosen(row).binding(row)


@dataclass(frozen=True)
class Chosen(Expression):
    """An expression that the launch itself decides, e.g. the peak of the instructions that it used."""

    choose: Callable[[Row], Expression | None]
    """None where the launch has nothing of the kind."""

    def value(self, row: Row) -> float | None:
        found = self.choose(row)
        return None if found is None else found.value(row)

    def formula(self, row: Row, names: Names) -> str:
        found = self.choose(row)
        return "" if found is None else found.formula(row, names)

    def binding(self, row: Row) -> int:
        found = self.choose(row)
        return ATOM if found is None else found.binding(row)


@dataclass(frozen=True)
class Total(Expression):
    """The sum of what was collected of several; None where nothing was."""

    parts: tuple[Expression, ...]

    def value(self, row: Row) -> float | None:
        known = [value for part in self.parts if (value := part.value(row)) is not None]
        return sum(known) if known else None

    def formula(self, row: Row, names: Names) -> str:
        return " + ".join(part.formula(row, names) for part in self.parts if part.value(row) is not None)

    def binding(self, row: Row) -> int:
        known = [part for part in self.parts if part.value(row) is not None]
        return SUM if len(known) > 1 else known[0].binding(row) if known else ATOM


@dataclass(frozen=True)
class Largest(Expression):
    """The largest of what was collected of several; None where nothing was. Its formula is that of the largest."""

    parts: tuple[Expression, ...]

    def chosen(self, row: Row) -> Expression:
        known = [(value, part) for part in self.parts if (value := part.value(row)) is not None]
        return max(known, key=lambda item: item[0])[1] if known else self.parts[0]

    def value(self, row: Row) -> float | None:
        return self.chosen(row).value(row)

    def formula(self, row: Row, names: Names) -> str:
        return self.chosen(row).formula(row, names)

    def binding(self, row: Row) -> int:
        return self.chosen(row).binding(row)


@dataclass(frozen=True)
class Bounded(Expression):
    """An expression that is never taken below one number or above another."""

    inner: Expression
    low: float
    high: float

    def value(self, row: Row) -> float | None:
        value = self.inner.value(row)
        return None if value is None else min(max(value, self.low), self.high)

    def formula(self, row: Row, names: Names) -> str:
        return f"min(max({self.inner.formula(row, names)}, {self.low:g}), {self.high:g})"


@dataclass(frozen=True)
class AtMost(Expression):
    """An expression that cannot be above another one, where that is known; the formula says so where it is, and where
    there is no value at all, as on the page of keys."""

    inner: Expression
    limit: Expression

    def value(self, row: Row) -> float | None:
        value, limit = self.inner.value(row), self.limit.value(row)
        return value if value is None or not limit else min(value, limit)

    def formula(self, row: Row, names: Names) -> str:
        inner = self.inner.formula(row, names)
        return inner if self._free(row) else f"min({inner}, {self.limit.formula(row, names)})"

    def binding(self, row: Row) -> int:
        return self.inner.binding(row) if self._free(row) else ATOM

    def _free(self, row: Row) -> bool:
        return not self.limit.value(row) and self.inner.value(row) is not None


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where one is not known or whole is 0."""
    return None if part is None or not whole else part / whole
