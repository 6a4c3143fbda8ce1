"""fiprof/analysis/accesses.py and its quantities: bank conflicts, sectors a request, widths from the SASS."""

from __future__ import annotations

import re

import pytest

from fiprof.analysis.accesses import GlobalWidths, widths_by_launch
from fiprof.model.quantities import (
    GLOBAL_LOADS_SECTORS,
    LOCAL_REQUESTS,
    QUANTITIES,
    SHARED_LOADS_PASSES,
)
from fiprof.model.run import Launch, Run
from tests.recorded_runs import parsed


@pytest.fixture(scope="module")
def run() -> Run:
    """The recorded run of all five kernels, with the SASS of its kernels."""
    return parsed("all")


@pytest.fixture(scope="module")
def rows(run: Run) -> tuple[Launch, ...]:
    return run.launches


def test_conflicts_are_those_that_ncu_s_rule_says(run: Run, rows: tuple[Launch, ...]) -> None:
    said = {
        (row["launch"], match[1]): match
        for row in run.rows("rules", ("launch", "rule", "message"))
        if row["rule"] == "SharedMemoryConflicts"
        for match in re.finditer(
            r"shared (load|store) requests\.This results in (\d+) bank conflicts,\s+which represent (\S+)%",
            row["message"],
        )
    }
    assert len(said) >= 3
    for (launch, kind), match in said.items():
        row = rows[launch]
        share = QUANTITIES[f"shared_{kind}s_conflict_share"].of(row)
        assert share is not None
        assert (row[f"shared_{kind}_bank_conflicts"], f"{100 * share:.2f}") == (float(match[2]), match[3])


def test_fused_add_rmsnorm_makes_nearly_every_pass_twice(rows: tuple[Launch, ...]) -> None:
    assert SHARED_LOADS_PASSES.of(rows[2]) == pytest.approx(1132642 / 593920)


def test_sectors_and_the_widths_that_make_them_ideal(run: Run, rows: tuple[Launch, ...]) -> None:
    widths = widths_by_launch(run)
    assert [widths[row.launch].loads for row in rows] == [(1, 4, 16), (4, 16), (16,), (4, 16), (16,), (4, 16)]
    assert [widths[row.launch].ideal_loads for row in rows][2:4] == [(16.0, 16.0), (4.0, 16.0)]
    assert [round(GLOBAL_LOADS_SECTORS.of(row) or 0, 2) for row in rows] == [14.63, 2.18, 16.0, 14.61, 16.0, 15.66]


def test_the_kernel_made_to_conflict_has_32_ways() -> None:
    (row,) = (row for row in parsed("single-purpose").launches if row.kernel == "bank_conflicts")
    assert QUANTITIES["shared_loads_conflict_share"].of(row) == pytest.approx(31 / 32, abs=0.001)
    assert SHARED_LOADS_PASSES.of(row) == pytest.approx(32.0, abs=0.05)


def test_what_was_not_collected_stays_unknown() -> None:
    run = parsed("prefill-decode-rope")
    quantities = (QUANTITIES["shared_loads_conflict_share"], SHARED_LOADS_PASSES, GLOBAL_LOADS_SECTORS, LOCAL_REQUESTS)
    assert {quantity.of(run.launches[0]) for quantity in quantities} == {None}
    assert widths_by_launch(run) == {}
    assert GlobalWidths().ideal_loads is None


def test_nothing_moved_has_no_ratio_and_no_conflicts() -> None:
    row: dict[str, float] = dict.fromkeys(
        ("global_load_requests", "global_load_sectors", "shared_load_wavefronts"), 0.0
    )
    assert GLOBAL_LOADS_SECTORS.of(row) is None
    row["shared_load_bank_conflicts"] = 0.0
    assert (QUANTITIES["shared_loads_conflict_share"].of(row), SHARED_LOADS_PASSES.of(row)) == (0.0, None)
    assert LOCAL_REQUESTS.of({"local_load_requests": 3.0, "local_store_requests": 4.0}) == 7
