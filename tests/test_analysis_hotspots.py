"""fiprof/analysis/hotspots.py: the instructions that hold most warp samples; sass.py: what they probably wait for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis.frames import OfRun
from fiprof.analysis.hotspots import LaunchHotspots, hotspots
from fiprof.analysis.sass import Code
from fiprof.model.run import Run
from fiprof.reports.hotspots import document
from fiprof.reports.writers import render
from tests.reports_fixture import add, make_run

# Made-up runs


def made(folder: Path, lines: Sequence[dict[str, Any] | tuple[str, int, str | None]], **row: Any) -> Run:
    """A run of one launch with these instructions."""
    launch = {"launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 1000.0, **row}
    run = make_run(folder, launches=[launch])
    records = (
        line if isinstance(line, dict) else dict(zip(("sass", "samples", "top_reason"), line, strict=True))
        for line in lines
    )
    add(run, "hotspots", [{"launch": 0, "address": 16 * place, **record} for place, record in enumerate(records)])
    return run


def shape(report: OfRun[LaunchHotspots, None]) -> list[list[tuple[int, int | None]]]:
    """Of the only launch: place and rank of the lines in each block."""
    (launch,) = report.launches
    return [[(line["offset"] // 16, line["rank"]) for line in block] for block in launch.blocks]


def test_neighbours_are_merged(tmp_path: Path) -> None:
    samples = {2: 50, 5: 90, 11: 70}
    run = made(tmp_path / "run", [("NOP", samples.get(i, 0), None) for i in range(13)])
    assert shape(hotspots(run, context=1)) == [
        [(1, None), (2, 3), (3, None), (4, None), (5, 1), (6, None)],
        [(10, None), (11, 2), (12, None)],
    ]
    assert shape(hotspots(run, context=0)) == [[(2, 3)], [(5, 1)], [(11, 2)]]
    assert shape(hotspots(run, context=3)) == [[(i, {2: 3, 5: 1, 11: 2}.get(i)) for i in range(13)]]
    assert shape(hotspots(run, top=1, context=0)) == [[(5, 1)]]


@pytest.mark.parametrize("samples", [0, None])
def test_a_launch_without_samples_says_so(tmp_path: Path, samples: int | None) -> None:
    report = hotspots(made(tmp_path / "run", [{"sass": "EXIT", "samples": samples}]))
    assert document(report).data.rows == ()
    assert "None of its 1 instructions has a sample" in render(document(report), "table")


# SASS


FRAGMENTS = st.sampled_from(
    ["LDG", "BRA", "HGMMA", "F2F", "I2F.U32", ".E", ".128", ".64x", "64x999999x16", "R12", "R999", "UR", "P0", "PT", "[", "]",
     ",", " ", "@!", "0x", "7f", "-", "|", "!", "desc[UR4][R2.64]", "\n", "٣", "R" + "9" * 5000]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=12).map(" ".join)), min_size=1, max_size=8))
def test_any_listing_is_read(lines: list[str]) -> None:
    code = listing(*lines)
    for place in range(len(lines)):
        code.shown(place)
        for reason in ("long_scoreboard", "short_scoreboard", "barrier", "wait", None):
            cause = code.waits_for(place, reason)
            assert cause is None or cause < place


def listing(*lines: str) -> Code:
    return Code([16 * i for i in range(len(lines))], lines)


LOAD, USE = "LDG.E.128 R12, desc[UR6][R2.64]", "FADD R1, R15, R15"


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ([], True),
        (["FADD R30, R31, R32", "NOP"], True),
        (["@P0   EXIT"], False),
        (["@P0   BRA 0x100"], True),  # whoever is here fell through
        (["FADD R30, R12, R32"], False),  # this one waited for the load already
        (["FADD R14, R31, R32"], False),
        (["CALL.REL.NOINC 0x100"], False),
        (["RET.REL.NODEC R20 0x0"], False),
        (["BRA 0x100"], False),
        (["something else"], False),
        (["NOP"] * 300, False),
        (["LDS R15, [R4]"], False),  # R15 is another load's now, and that is of the other scoreboard
    ],
)
def test_what_a_load_is_waited_for_by(between: list[str], found: bool) -> None:
    code = listing(LOAD, *between, USE, *["NOP"] * 300, "BRA 0x%x")
    lines = list(code.lines)
    lines[-1] = f"BRA {hex(code.offsets[-1])}"
    place = 1 + len(between)
    assert Code(code.offsets, lines).waits_for(place, "long_scoreboard") == (0 if found else None)


@pytest.mark.parametrize(
    ("lines", "place", "reason", "found"),
    [
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "long_scoreboard", 1),
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "short_scoreboard", 0),
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "wait", None),
        # Across a branch's target nothing is said, nor where targets are unknown.
        ((LOAD, "NOP", USE, "@P0 BRA 0x7000", "BRA 0x7040", "NOP"), 2, "long_scoreboard", 0),
        ((LOAD, "NOP", USE, "@P0 BRA 0x7010", "BRA 0x7040", "NOP"), 2, "long_scoreboard", None),
        ((LOAD, "NOP", USE, "@P0 BRA 0x7020", "BRA 0x7040", "NOP"), 2, "long_scoreboard", None),
        ((LOAD, USE, "@P0 BRA 0x7010", "EXIT"), 1, "long_scoreboard", None),
        ((LOAD, USE, "BRX R4 -0x10", "EXIT"), 1, "long_scoreboard", None),
        # If the last branch leads to itself, the other one leads out of the kernel.
        ((LOAD, USE, "@P0 BRA 0x9990", "BRA 0x7030"), 1, "long_scoreboard", None),
        (("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP", "LDS R1, [R2]"), 2, "barrier", 0),
        (("BAR.ARV 0x1, 0x80", "NOP"), 1, "barrier", None),
        (("BAR.SYNC 0x0", "WARPGROUP.ARRIVE", "NOP"), 2, "barrier", None),
        (("BAR.SYNC 0x0", *["NOP"] * 17), 17, "barrier", None),
        (("DEPBAR.LE SB0, 0x1", "BAR.SYNC 0x0"), 1, "long_scoreboard", 0),
        ((LOAD, "DEPBAR.LE SB0, 0x1", USE), 2, "long_scoreboard", None),
    ],
)
def test_what_is_waited_for(lines: tuple[str, ...], place: int, reason: str, found: int | None) -> None:
    assert listing(*lines).waits_for(place, reason) == found
