"""fiprof/reports/accesses.py: bank conflicts, sectors a request, widths from the SASS."""

from __future__ import annotations

import re

import pytest

from fiprof.analysis.accesses import Accesses, GlobalAccess, SharedAccess, accesses, widths_by_launch
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
        found = accesses(rows[launch])
        access = found.shared_loads if kind == "load" else found.shared_stores
        assert access is not None
        assert (access.conflicts, f"{100 * access.conflict_share:.2f}") == (float(match[2]), match[3])


def test_fused_add_rmsnorm_makes_nearly_every_pass_twice(rows: tuple[Launch, ...]) -> None:
    loads = accesses(rows[2]).shared_loads
    assert loads == SharedAccess(1132642.0, 538722.0)
    assert loads.ways == pytest.approx(1132642 / 593920)


def test_sectors_and_the_widths_that_make_them_ideal(run: Run, rows: tuple[Launch, ...]) -> None:
    widths = widths_by_launch(run)
    loads = [accesses(row, widths[row["launch"]]).global_loads for row in rows]
    assert [access and access.widths for access in loads] == [(1, 4, 16), (4, 16), (16,), (4, 16), (16,), (4, 16)]
    assert [access and access.ideal for access in loads][2:4] == [(16.0, 16.0), (4.0, 16.0)]
    assert [round(access.sectors_per_request or 0, 2) for access in loads if access] == [
        14.63, 2.18, 16.0, 14.61, 16.0, 15.66,
    ]  # fmt: skip


def test_the_kernel_made_to_conflict_has_32_ways() -> None:
    run = parsed("single-purpose")
    found = run.launches
    loads = next(accesses(row).shared_loads for row in found if row["kernel"] == "bank_conflicts")
    assert loads is not None and loads.ways is not None
    assert loads.conflict_share == pytest.approx(31 / 32, abs=0.001)
    assert loads.ways == pytest.approx(32.0, abs=0.05)


def test_what_was_not_collected_stays_unknown() -> None:
    run = parsed("prefill-decode-rope")
    first = run.launches[0]
    found = accesses(first)
    assert (found.shared_loads, found.global_loads, found.local_requests) == (None, None, None)
    assert widths_by_launch(run) == {}
    assert accesses({}) == Accesses()


def test_nothing_moved_has_no_ratio() -> None:
    assert GlobalAccess(0.0, 0.0).sectors_per_request is None
    assert (SharedAccess(0.0, 0.0).conflict_share, SharedAccess(0.0, 0.0).ways) == (0.0, None)
    assert (
        accesses({"local_load_requests": 3.0, "local_store_requests": 4.0, "spill_requests": 7.0}).local_requests == 7
    )
