"""The table of metrics and the formulas over it."""

from __future__ import annotations

import ast
import re

import pytest

from fiprof.model import metrics
from fiprof.model.formula import Formula, table
from fiprof.model.metrics import METRICS
from fiprof.model.work import peak_of

FUNCTIONS = {"first", "largest", "total", "max", "at_most", "bounded"}


def test_names_units_and_meanings_are_well_formed() -> None:
    assert len(set(metrics.COLUMNS)) == len(metrics.COLUMNS)
    assert metrics.COLUMNS[0] == "duration_ns"
    for metric in METRICS:
        assert re.fullmatch(r"[a-z0-9_]+", metric.name)
        assert metric.ncu
        assert metric.meaning.endswith(".")


def test_a_unit_in_the_name_is_the_unit() -> None:
    units = {"_pct": "%", "_ns": "ns", "_hz": "Hz", "_bytes": "bytes", "_per_second": "bytes/s", "_cycles": "cycles"}
    for suffix, unit in units.items():
        assert {metric.unit for metric in METRICS if metric.name.endswith(suffix)} == {unit}


def test_no_tensor_metric_counts_parents_and_children() -> None:
    """Children are ``…_op_<instruction>_src_…``; their sums are in the parents' already."""
    counted = [name for metric in METRICS if metric.name.startswith("tensor_ops_") for name in metric.ncu]
    assert counted
    assert all(name.startswith("sm__ops_path_tensor_src_") for name in counted)


@pytest.mark.parametrize(
    ("row", "clock", "cycles"),
    [
        ({"sm_clock_hz": 1.9e9, "sm_cycles": 5.0}, 1.9e9, 5.0),
        # 2.18 GHz on an H200: cycles of one replay over the duration of another.
        ({"sm_clock_hz": 2.18e9, "max_sm_clock_khz": 1.98e6, "sm_cycles": 5.0}, 1.98e9, 5.0),
        ({"gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 1.5e9, 300.0),
        ({"sm_clock_hz": 2e9, "gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 2e9, 400.0),
        ({"sm_cycles": 500.0, "duration_ns": 200.0, "max_sm_clock_khz": 1.98e6}, 1.98e9, 500.0),
        # The highest clock by itself is none that was measured.
        ({"max_sm_clock_khz": 1.98e6, "duration_ns": 200.0}, None, None),
    ],
)
def test_a_clock_is_at_most_the_highest(row: dict[str, float], clock: float | None, cycles: float | None) -> None:
    assert (Formula("sm_hz").value(row), Formula("cycles").value(row)) == (clock, cycles)
    peak = None if clock is None else pytest.approx(10 * clock)
    assert peak_of("fp32").value({**row, "fp32_peak_ops_per_cycle": 10.0}) == peak


def test_every_name_in_a_formula_is_a_column_or_another_row() -> None:
    columns = {*metrics.COLUMNS}
    assert not columns & {*table()}
    assert all(row["meaning"].endswith(".") for row in table().values() if row["format"])
    for key, row in ((key, row) for key, row in table().items() if row["formula"]):
        names = {node.id for node in ast.walk(ast.parse(row["formula"])) if isinstance(node, ast.Name)}
        assert names - FUNCTIONS <= columns | {*table()}, key
        assert Formula(row["formula"]).value({}) is None and Formula(row["formula"]).written({}, str)
