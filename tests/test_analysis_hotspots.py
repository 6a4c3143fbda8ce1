"""fiprof/analysis/hotspots.py: the instructions that hold most warp samples; sass.py: what they probably wait for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis.frames import OfRun
from fiprof.analysis.hotspots import LaunchHotspots, hotspots
from fiprof.analysis.sass import Code, parse
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


@pytest.mark.parametrize(
    ("line", "reads", "writes"),
    [
        ("LDG.E.128 R12, desc[UR6][R2.64]", "R2 R3 UR6 UR7", "R12 R13 R14 R15"),
        ("@!P1  LDG.E.64.CONSTANT R8, desc[UR12][R2.64+0x10]", "P1 R2 R3 UR12 UR13", "R8 R9"),
        ("LDG.E.U8 R2, desc[UR14][R4.64]", "R4 R5 UR14 UR15", "R2"),
        ("LDS.64 R16, [R17+0x2000]", "R17", "R16 R17"),
        ("LDSM.16.M88.4 R120, [R142+UR4+-0x1000]", "R142 UR4", "R120 R121 R122 R123"),
        ("STG.E.64 desc[UR14][R28.64], R8", "R8 R9 R28 R29 UR14 UR15", ""),
        ("LDGSTS.E.BYPASS.LTC128B.128 desc[UR14][R10.64], !P3, [R32+0x1800]", "P3 R10 R11 R32 UR14 UR15", ""),
        ("ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], R7", "R2 R3 R7 UR4 UR5", "R5"),
        ("HADD2.F32 R24, -RZ, R12.H0_H0", "R12", "R24"),
        ("IADD3 R14, P0, R19, UR4, RZ", "R19 UR4", "R14 P0"),
        ("IADD3.X R3, RZ, UR5, RZ, P0, !PT", "UR5 P0", "R3"),
        ("SEL R10, R9, RZ, P0", "R9 P0", "R10"),
        ("ISETP.GE.U32.AND P0, PT, R16, R13, PT", "R13 R16", "P0"),
        ("SHFL.BFLY PT, R24, R25, 0x4, 0x1f", "R25", "R24"),
        ("LOP3.LUT P0, RZ, R16, 0x1, RZ, 0xc0, !PT", "R16", "P0"),
        ("IMAD.WIDE.U32 R12, R9, 0x4, R20", "R9 R20 R21", "R12 R13"),
        ("HMMA.16816.F32 R112, R128, R132, RZ", "R128 R129 R130 R131 R132 R133", "R112 R113 R114 R115"),
        ("DMUL R2, R4, UR18", "R4 R5 UR18 UR19", "R2 R3"),
        ("F2F.F32.F64 R0, R2", "R2 R3", "R0"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P5, [UR23+0x20008], R2", "R2 UR23", "P5"),
        ("@!P5  BRA 0x7f4727d64490", "P5", ""),
        ("BAR.SYNC.DEFER_BLOCKING R2, 0x100", "R2", ""),
        ("<script> R1, R2", "", ""),
        ("", "", ""),
    ],
)
def test_registers(line: str, reads: str, writes: str) -> None:
    found = parse(line)
    assert (set(found.reads), set(found.writes)) == (set(reads.split()), set(writes.split()))


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


def test_the_other_scoreboard_and_other_reasons() -> None:
    code = listing("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12")
    assert code.waits_for(2, "long_scoreboard") == 1
    assert code.waits_for(2, "short_scoreboard") == 0
    assert code.waits_for(2, "wait") is None
    assert code.waits_for(2, None) is None


def test_nothing_is_said_across_a_branch_target() -> None:
    assert listing(LOAD, "NOP", USE, "@P0 BRA 0x7000", "BRA 0x7040", "NOP").waits_for(2, "long_scoreboard") == 0
    assert listing(LOAD, "NOP", USE, "@P0 BRA 0x7010", "BRA 0x7040", "NOP").waits_for(2, "long_scoreboard") is None
    assert listing(LOAD, "NOP", USE, "@P0 BRA 0x7020", "BRA 0x7040", "NOP").waits_for(2, "long_scoreboard") is None


def test_nothing_is_said_where_targets_are_unknown() -> None:
    assert listing(LOAD, USE, "@P0 BRA 0x7010", "EXIT").waits_for(1, "long_scoreboard") is None
    assert listing(LOAD, USE, "BRX R4 -0x10", "EXIT").waits_for(1, "long_scoreboard") is None
    # If the last branch leads to itself, the other one leads out of the kernel.
    assert listing(LOAD, USE, "@P0 BRA 0x9990", "BRA 0x7030").waits_for(1, "long_scoreboard") is None


def test_barriers_and_asynchronous_copies() -> None:
    code = listing("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP", "LDS R1, [R2]")
    assert code.waits_for(2, "barrier") == 0
    assert listing("BAR.ARV 0x1, 0x80", "NOP").waits_for(1, "barrier") is None
    assert listing("BAR.SYNC 0x0", "WARPGROUP.ARRIVE", "NOP").waits_for(2, "barrier") is None
    assert listing("BAR.SYNC 0x0", *["NOP"] * 16).waits_for(16, "barrier") == 0
    assert listing("BAR.SYNC 0x0", *["NOP"] * 17).waits_for(17, "barrier") is None
    assert listing("DEPBAR.LE SB0, 0x1", "BAR.SYNC 0x0").waits_for(1, "long_scoreboard") == 0
    assert listing(LOAD, "DEPBAR.LE SB0, 0x1", USE).waits_for(2, "long_scoreboard") is None
