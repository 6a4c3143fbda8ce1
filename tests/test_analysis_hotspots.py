"""What the instructions that hold most warp samples probably wait for."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis.sass import Code, parse
from tests.recorded_runs import invoke, rows
from tests.reports_fixture import add, make_run


@pytest.mark.parametrize("samples", [0, None])
def test_a_launch_without_samples_says_so(tmp_path: Path, samples: int | None) -> None:
    launch = {"launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 1000.0}
    run = make_run(tmp_path / "run", launches=[launch])
    add(run, "hotspots", [{"launch": 0, "address": 0, "sass": "EXIT", "samples": samples}])
    assert rows("hotspots", run.path) == []
    assert "None of its 1 instructions has a sample" in invoke("hotspots", str(run.path))[1]


@pytest.mark.parametrize(
    ("line", "reads", "writes"),
    [
        ("@!P1  LDG.E.64.CONSTANT R8, desc[UR12][R2.64+0x10]", "P1 R2 R3 UR12 UR13", "R8 R9"),
        ("LDSM.16.M88.4 R120, [R142+UR4+-0x1000]", "R142 UR4", "R120 R121 R122 R123"),
        ("STG.E.64 desc[UR14][R28.64], R8", "R8 R9 R28 R29 UR14 UR15", ""),
        ("LDGSTS.E.BYPASS.LTC128B.128 desc[UR14][R10.64], !P3, [R32+0x1800]", "P3 R10 R11 R32 UR14 UR15", ""),
        ("ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], R7", "R2 R3 R7 UR4 UR5", "R5"),
        ("IADD3 R14, P0, R19, UR4, RZ", "R19 UR4", "R14 P0"),
        ("SHFL.BFLY PT, R24, R25, 0x4, 0x1f", "R25", "R24"),
        ("LOP3.LUT P0, RZ, R16, 0x1, RZ, 0xc0, !PT", "R16", "P0"),
        ("IMAD.WIDE.U32 R12, R9, 0x4, R20", "R9 R20 R21", "R12 R13"),
        ("HMMA.16816.F32 R112, R128, R132, RZ", "R128 R129 R130 R131 R132 R133", "R112 R113 R114 R115"),
        ("DMUL R2, R4, UR18", "R4 R5 UR18 UR19", "R2 R3"),
        ("F2F.F32.F64 R0, R2", "R2 R3", "R0"),
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
