"""Every quantity of a launch, once: its key, unit, formula over ncu's metrics, and what it means.

Each is a row of ``quantities.csv``; a metric of ``metrics.csv`` (our column in ``launches``, ncu's name, unit, meaning)
with a format is one by itself. Terminal, JSON, reports, studies and docs/keys.md take a quantity from here. The peaks
of tensor operations are the dense ones: ``tensor_peak_*`` by the fastest instruction, ``mma_peak_*`` by that of a warp
(mma) where a warpgroup has a faster one (wgmma).

A formula is arithmetic (``+ - * /``, ``a if b > c else d``) over columns of ``launches`` and keys of quantities.csv,
with ``first(a, b)`` (the first that has a value: ncu gives some counts only as rates), ``largest`` and ``total`` (of
those collected), ``at_most(a, limit)`` (where the limit is known), ``bounded(a, low, high)`` and ``max``. Its value is
None where something that it needs was not collected, or a divisor is 0; what it prints is the way that gave the value,
so that anybody can compute the number again from ncu's raw page.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.model.finding import NAMES, Provenance, TracedNumber
from fiprof.text import csv_rows

Row = Mapping[str, Any]
"""Column of ``launches`` -> value, for one launch; a column that is absent, None or NaN was not collected."""

Names = Callable[[str], str]  # column of ``launches`` -> the tool's name for it in a run

Part = tuple[float, str, int]  # a value, how it comes about, and how tightly the outermost operation of that binds

Evaluate = Callable[[Row, Names], Part | None]
"""A formula ready to be evaluated; None where something that it needs was not collected."""

OPERATORS: Mapping[type[ast.operator], tuple[str, Callable[[float, float], float | None]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", lambda part, whole: part / whole if whole else None),
}
SUM, PRODUCT, ATOM = 1, 2, 3  # how tightly the outermost operation of a text binds


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
    def evaluate(self) -> Evaluate:
        """A launch's number in the formula's own unit, and the arithmetic in the tools' names that gives it."""
        return _evaluation(str(self))

    def value(self, row: Row) -> float | None:
        return evaluated[0] if (evaluated := self.evaluate(row, str)) else None


def calculated(formula: str, *parts: TracedNumber | None, spec: str = ".2f", unit: str = "") -> TracedNumber | None:
    """A formula over other numbers, called a, b, …; None where one of them is not known, or the divisor is 0."""
    values = dict(zip(NAMES, ((None if part is None else part.value) for part in parts), strict=False))
    value, sources = Formula(formula).value(values), tuple(part.source for part in parts if part is not None)
    return None if value is None else TracedNumber(value, Provenance("facts", formula, parts=sources), spec, unit)


@functools.cache
def table() -> Mapping[str, Mapping[str, str]]:
    """The rows of quantities.csv by key: without a format for formulas alone, without a formula of a case."""
    return csv_rows(Path(__file__).with_name("quantities.csv"))


@functools.cache
def _evaluation(text: str) -> Evaluate:
    return _compiled(ast.parse(text, mode="eval").body)


def _compiled(node: ast.expr) -> Evaluate:
    match node:
        case ast.Constant(value=float() | int() as constant):
            found = constant, f"{constant:g}", ATOM
            return lambda *_: found
        case ast.Name(id=name) if name in table():
            return _evaluation(table()[name]["formula"])
        case ast.Name(id=name):

            def column(row: Row, names: Names) -> Part | None:
                value = row.get(name)
                return None if value is None or value != value else (float(value), names(name), ATOM)

            return column
        case ast.BinOp():
            sign, operate = OPERATORS[type(node.op)]
            left, right = _compiled(node.left), _compiled(node.right)
            binds = SUM if sign in "+-" else PRODUCT
            binds_right = binds + (sign in "-/")

            def operation(row: Row, names: Names) -> Part | None:
                if (one := left(row, names)) is None or (other := right(row, names)) is None:
                    return None
                if (value := operate(one[0], other[0])) is None:
                    return None
                left_text = one[1] if one[2] >= binds else f"({one[1]})"
                return value, f"{left_text} {sign} {other[1] if other[2] >= binds_right else f'({other[1]})'}", binds

            return operation
        case ast.IfExp(test=ast.Compare(left=above, ops=[ast.Gt()], comparators=[below])):
            high, low, then, otherwise = map(_compiled, (above, below, node.body, node.orelse))

            def choice(row: Row, names: Names) -> Part | None:
                one, other = high(row, names), low(row, names)
                return (then if one and other and one[0] > other[0] else otherwise)(row, names)

            return choice
        case ast.Call(func=ast.Name(id="first"), args=args):
            ways = tuple(map(_compiled, args))
            return lambda row, names: next(filter(None, (way(row, names) for way in ways)), None)
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            parts = tuple(map(_compiled, args))
            return lambda row, names: _of_parts(name, [part(row, names) for part in parts])
    raise ValueError(ast.unparse(node))


def _of_parts(function: str, parts: Sequence[Part | None]) -> Part | None:
    """A function of several values, of which all have to be known, or some."""
    known = [part for part in parts if part]
    values, texts = [value for value, *_ in known], [text for _, text, _ in known]
    if function == "largest":
        return max(known, key=operator.itemgetter(0), default=None)
    if function == "total":
        return (sum(values), " + ".join(texts), SUM) if len(known) > 1 else next(iter(known), None)
    if function == "at_most" and parts[0] and not (parts[1] and parts[1][0]):
        return parts[0]
    if len(known) < len(parts):
        return None
    if function == "bounded":
        value, low, high = values
        return min(max(value, low), high), "min(max({}, {}), {})".format(*texts), ATOM
    chosen, name = (min, "min") if function == "at_most" else (max, "max")
    return chosen(values), f"{name}({', '.join(texts)})", ATOM


FUNCTIONS = {"at_most", "bounded", "largest", "max", "total"}  # and ``first``, which looks no further than it has to


class Metric(NamedTuple):
    """One float64 column of ``launches``."""

    name: str  # the column
    ncu: tuple[str, ...]
    """ncu's names for it, the preferred one first; compute capabilities and versions spell some differently."""
    unit: str  # base unit of the values; ``1`` for counts and ratios
    label: str
    """Section and label of the preferred name on ncu's details page, found by comparing the two pages of 385 launches
    (ncu 2025.3 and 2025.4; compute capabilities 9.0 and 10.0); empty where that does not show it."""
    expected: bool  # false where a report does well without it: another column says the same, or few GPUs have it
    shown: str  # how people read it, a format such as ``.1f``, where it is a quantity by itself
    meaning: str  # one sentence
    title: str  # as of a quantity


METRICS = tuple(
    Metric(**{**row, "ncu": tuple(row["ncu"].split()), "expected": row["expected"] == "yes"})  # type: ignore[arg-type]
    for row in csv_rows(Path(__file__).with_name("metrics.csv")).values()
)

COLUMNS: tuple[str, ...] = tuple(metric.name for metric in METRICS)  # every metric's column, ``duration_ns`` first

TENSOR_KINDS = tuple(name.removeprefix("tensor_ops_") for name in COLUMNS if name.startswith("tensor_ops_"))
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0).

Those with fp4 and fp6 are of compute capability 10.0 on, where one counter may hold several types. Their names and
those of the peaks (``utchmma``, ``utcqmma``, ``utcomma``, ``utcimma``: tcgen05.mma) were read in public lists of
``ncu --query-metrics --chips gb100`` and of its roofline sections; no recorded run has them.
"""


@dataclass(frozen=True)
class Key:
    """A key of the JSON output."""

    key: str  # with the unit in it where it has one, e.g. ``duration_us``
    unit: str  # e.g. ``µs``, ``GB/s``, ``%``; empty for counts, shares (0 to 1) and what is no number
    meaning: str  # one phrase
    title: str = field(default="", kw_only=True)
    """What a table or a sentence calls it where its heading alone does not say; empty for most."""


def unit_text(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


@dataclass(frozen=True)
class Quantity(Key):
    """A number of a launch."""

    formula: Formula
    spec: str = ".2f"  # format for people

    def of(self, row: Row) -> float | None:
        """The number in its unit; None where something that it needs was not collected."""
        return self.formula.value(row)

    def traced(self, row: Row, names: Names, *, spec: str = "", unit: str | None = None) -> TracedNumber | None:
        """The number with its provenance. spec, unit: how to write it, where not as usual."""
        if (evaluated := self.formula.evaluate(row, names)) is None:
            return None
        source = Provenance("ncu", evaluated[1], launch=row.get("launch"))
        return TracedNumber(evaluated[0], source, spec or self.spec, unit_text(self.unit if unit is None else unit))


_METRIC_UNITS = ("%", "cycles", "bytes")  # others are of counts and ratios

QUANTITIES: dict[str, Quantity] = {
    name: Quantity(name, unit if unit in _METRIC_UNITS else "", meaning, Formula(name), shown, title=title)
    for name, _, unit, _, _, shown, meaning, title in METRICS
    if shown
} | {
    key: Quantity(key, row["unit"], row["meaning"], Formula(row["formula"]), row["format"], title=row["title"])
    for key, row in table().items()
    if row["formula"] and row["format"]
}
"""Every quantity of a launch by its key, e.g. ``dram_share``, or by its metric's column."""

quantity = QUANTITIES.__getitem__
DURATION = quantity("duration_us")
DRAM_GB_PER_S, DRAM_ROOF, DRAM_SHARE = map(quantity, ("dram_gb_per_s", "dram_roof_gb_per_s", "dram_share"))
L2_USE = quantity("l2_use_pct")
SHARED_MEMORY = quantity("shared_kb_per_block")
IDLE, OVERHEAD, FIXED = map(quantity, ("idle_pct", "overhead_pct", "fixed_pct"))
GLOBAL_LOADS_SECTORS = quantity("global_loads_sectors_per_request")
GLOBAL_STORES_SECTORS = quantity("global_stores_sectors_per_request")
BANK_CONFLICTS = quantity("shared_conflict_share")
"""Passes are compared with passes; ncu's rule SharedMemoryConflicts divides by the requests instead, so that a 16-byte
load, which needs four passes, is a 4-way conflict to it."""
LOCAL_REQUESTS, LOCAL_SHARE, LOCAL_BYTES = map(quantity, ("local_requests", "local_pct", "local_mb"))
SECTORS_PER_NEEDED = quantity("global_sectors_per_needed")
SECTORS_PER_REQUEST = quantity("global_sectors_per_request")
L2_PER_NEEDED, DRAM_PER_NEEDED = map(quantity, ("l2_sectors_per_needed", "dram_sectors_per_needed"))
ATOMIC_SHARE, ATOMIC_CONTENTION = map(quantity, ("l2_atomic_pct", "l2_atomic_max_over_mean"))
SHARED_ATOMIC_SHARE, SHUFFLE_SHARE = map(quantity, ("shared_atomic_pct", "shuffle_pct"))
CONFLICT_SHARE = quantity("bank_conflict_pct")
HOST_SHARE = quantity("host_memory_pct")

STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""ncu's metric of a stall reason, in warps an issued instruction."""
STALL_SHARE = Key(
    "stall_share_pct", "%", "Part of the warps' time in a stall reason, by ncu's counters.", title="warps in {of}"
)
BESIDE = Key(
    "beside_pct",
    "%",
    "Part of a kernel's time under nsys in which a kernel of another stream ran beside it.",
    title="time beside other kernels",
)


def stall_provenance(row: Row, reason: str, *, percent: bool = False) -> Provenance:
    """Where a reason's share of the warps' time comes from."""
    share = f"{STALL_METRIC.format(reason)} / sum({STALL_METRIC.format('*')})"
    return Provenance("ncu", f"100 * ({share})" if percent else share, launch=row.get("launch"))


def stall_share(row: Row, reason: str, share: float) -> TracedNumber:
    """STALL_SHARE of a reason. share: of the table ``stalls``, 0 to 1."""
    return TracedNumber(100 * share, stall_provenance(row, reason, percent=True), ".0f", "%")
