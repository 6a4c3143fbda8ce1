"""Formulas over the metrics of a launch: text that evaluates to a number and prints itself in the tools' metric names.

A formula is arithmetic (``+ - * /``, ``a if b > c else d``) over columns of ``launches`` and keys of quantities.csv,
with ``first(a, b)`` (the first that has a value: ncu gives some counts only as rates), ``largest`` and ``total`` (of
those collected), ``at_most(a, limit)`` (where the limit is known), ``bounded(a, low, high)`` and ``max``. Its value is
None where something that it needs was not collected, or a divisor is 0; what it prints is the way that gave the value,
so that anybody can compute the number again from ncu's raw page.
"""

from __future__ import annotations

import ast
import csv
import functools
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
"""Column of ``launches`` -> value, for one launch; a column that is absent, None or NaN was not collected."""

Names = Callable[[str], str]
"""Column of ``launches`` -> the tool's name for it in a run."""

Value = Callable[[Row], float | None]
"""A formula ready to be evaluated."""

OPERATORS: Mapping[type[ast.operator], tuple[str, Callable[[float, float], float | None]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", lambda part, whole: part / whole if whole else None),
}
SUM, PRODUCT, ATOM = 1, 2, 3
"""How tightly the outermost operation of a text binds."""


def number(row: Row, column: str) -> float | None:
    """The value of a column; None where it is absent, None or NaN."""
    value = row.get(column)
    return None if value is None or math.isnan(value) else float(value)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where one is not known or whole is 0."""
    return None if part is None or not whole else part / whole


class Formula(str):
    """A formula as text, e.g. ``dram_rate / 1e9``."""

    @functools.cached_property
    def value(self) -> Value:
        """A launch's number, in the formula's own unit."""
        return _compiled(_parsed(str(self)))

    def written(self, row: Row, names: Names) -> str:
        """The arithmetic in the tools' names, of the way that gives this launch's value."""
        return _text(_parsed(str(self)), row, names)[0]


@functools.cache
def table() -> Mapping[str, Mapping[str, str]]:
    """The rows of quantities.csv by key: without a format for formulas alone, without a formula of a case."""
    with (Path(__file__).parent / "quantities.csv").open(encoding="utf-8", newline="") as file:
        return {row["key"]: row for row in csv.DictReader(file)}


@functools.cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@functools.cache
def _compiled(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=float() | int() as constant):
            return lambda _: constant
        case ast.Name(id=name) if name in table():
            return _compiled(_parsed(table()[name]["formula"]))
        case ast.Name(id=name):
            return lambda row: number(row, name)
        case ast.BinOp():
            left, right, operate = _compiled(node.left), _compiled(node.right), OPERATORS[type(node.op)][1]

            def operation(row: Row) -> float | None:
                one = left(row)
                other = None if one is None else right(row)
                return None if one is None or other is None else operate(one, other)

            return operation
        case ast.IfExp():
            return lambda row: _compiled(_branch(node, row))(row)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _called(name, tuple(map(_compiled, args)))
    raise ValueError(ast.unparse(node))


def _called(name: str, parts: tuple[Value, ...]) -> Value:
    def collected(row: Row) -> list[float]:
        return [value for part in parts if (value := part(row)) is not None]

    match name:
        case "first":
            return lambda row: next((value for part in parts if (value := part(row)) is not None), None)
        case "largest":
            return lambda row: max(collected(row), default=None)
        case "total":
            return lambda row: sum(values) if (values := collected(row)) else None
        case "max":
            return lambda row: max(values) if len(values := collected(row)) == len(parts) else None
        case "at_most":
            inner, most = parts
            return lambda row: min(collected(row)) if (value := inner(row)) is not None and most(row) else value
        case "bounded":
            return lambda row: None if len(values := collected(row)) < 3 else min(max(values[0], values[1]), values[2])
    raise ValueError(f"{name}() is no function of formulas")


def _branch(node: ast.IfExp, row: Row) -> ast.expr:
    """What ``a if b > c else d`` stands for in a launch; d where b or c was not collected."""
    assert isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Gt)
    low, high = _compiled(node.test.comparators[0])(row), _compiled(node.test.left)(row)
    return node.body if low is not None and high is not None and high > low else node.orelse


def _text(node: ast.expr, row: Row, names: Names) -> tuple[str, int]:
    """A formula in the tools' names, and how tightly its outermost operation binds."""
    match node:
        case ast.Constant(value=float() | int() as constant):
            return f"{constant:g}", ATOM
        case ast.Name(id=name):
            return _text(_parsed(table()[name]["formula"]), row, names) if name in table() else (names(name), ATOM)
        case ast.BinOp():
            sign = OPERATORS[type(node.op)][0]
            binds = SUM if sign in "+-" else PRODUCT
            (left, of_left), (right, of_right) = _text(node.left, row, names), _text(node.right, row, names)
            left = f"({left})" if of_left < binds else left
            right = f"({right})" if of_right < binds or (of_right == binds and sign in "-/") else right
            return f"{left} {sign} {right}", binds
        case ast.IfExp():
            return _text(_branch(node, row), row, names)
        case ast.Call(func=ast.Name(id=function), args=args):
            values = [_compiled(each)(row) for each in args]
            collected = [each for each, value in zip(args, values, strict=True) if value is not None] or args
            if function == "total":
                texts = [_text(each, row, names) for each in collected]
                return texts[0] if len(texts) == 1 else (" + ".join(text for text, _ in texts), SUM)
            if function == "largest":
                return _text(max(collected, key=lambda each: _compiled(each)(row) or -math.inf), row, names)
            if function == "first" or (function == "at_most" and values[0] is not None and not values[1]):
                return _text(collected[0], row, names)
            inner, *others = (_text(each, row, names)[0] for each in args)
            if function == "bounded":
                return f"min(max({inner}, {others[0]}), {others[1]})", ATOM
            return f"{'min' if function == 'at_most' else function}({', '.join([inner, *others])})", ATOM
    raise ValueError(ast.unparse(node))
