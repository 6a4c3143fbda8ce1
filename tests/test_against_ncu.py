"""What commands print of recorded launches is what ncu itself says: its charts, its pages of text and source, its rules."""

import csv
import lzma
import re
from collections.abc import Callable
from typing import Any

import pytest

from fiprof.model.run import Run
from tests.recorded_runs import RUNS, parsed, rows
from tests.reports_fixture import DATA, RAW

LAUNCHES = pytest.mark.parametrize("index", range(6))
DETAILS = lzma.decompress((DATA / "ncu/full.details.txt.xz").read_bytes()).decode()
"""ncu's text page of the recorded report."""


# The charts of SpeedOfLight_RooflineChart and SpeedOfLight_Hierarchical…RooflineChart, as the recorded report defines
# them: work a second, traffic a second, peak work, peak traffic.

INSTRUCTIONS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
ROOFS_OF_WORK = {
    "fp32": ("fadd", 1, "fmul", 1, "ffma", 2),
    "fp16": ("hadd", 2, "hmul", 2, "hfma", 4),
    "fp64": ("dadd", 1, "dmul", 1, "dfma", 2),
}
MEMORIES = {
    "dram": ("dram__bytes.sum", "dram__cycles_elapsed.avg.per_second"),
    "l2": ("derived__lts__lts2xbar_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
    "l1": ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex__cycles_elapsed.avg.per_second"),
}


def cells(launch: int) -> Callable[[str], float]:
    """The raw page's numbers of a launch, read here alone."""
    with RAW.open(newline="") as file:
        header, _, *lines = csv.reader(file)
    row = dict(zip(header, lines[launch], strict=True))
    return lambda name: float(row[name].replace(",", ""))


def chart_work(cell: Callable[[str], float], kind: str) -> float:
    if kind == "tensor":
        return cell("sm__ops_path_tensor_src_fp16.sum.per_cycle_elapsed") * cell("sm__cycles_elapsed.avg.per_second")
    add, a, mul, m, fma, f = ROOFS_OF_WORK[kind]
    per_cycle = sum(int(n) * cell(INSTRUCTIONS.format(op)) for op, n in ((add, a), (mul, m), (fma, f)))
    return per_cycle * cell("smsp__cycles_elapsed.avg.per_second")


def chart_peak(cell: Callable[[str], float], kind: str) -> float:
    if kind == "tensor":
        per_cycle = cell("sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained")
    else:
        fma, lanes = str(ROOFS_OF_WORK[kind][4]), ROOFS_OF_WORK[kind][5]
        per_cycle = cell(f"derived__sm__sass_thread_inst_executed_op_{fma}_pred_on_x{lanes}")
    return per_cycle * cell("sm__cycles_elapsed.avg.per_second")


@LAUNCHES
def test_the_roofline_is_that_of_ncu_s_charts(five_kernels: Run, index: int) -> None:
    cell, row = cells(index), rows("roofline", five_kernels.path)[index]
    for kind in ("tensor", "fp32", "fp16", "fp64"):
        assert kind != "fp32" or row["fp32_tflops"]
        if row[f"{kind}_tflops"]:
            assert row[f"{kind}_tflops"] * 1e12 == pytest.approx(chart_work(cell, kind), rel=1e-4), kind
            assert row[f"{kind}_roof_tflops"] * 1e12 == pytest.approx(chart_peak(cell, kind), rel=1e-9), kind
    # HADD alone is 1,193 of RMSNorm's 1,246 half instructions a cycle: conversions, which are not its main work.
    kind = "tensor" if row["work"] == "tensor fp16" else "fp32"
    assert row["work"] in ("tensor fp16", "fp32")
    roofs = {row["work"]: chart_peak(cell, kind)}
    for level, (bytes_, clock) in MEMORIES.items():
        traffic, peak = cell(f"{bytes_}.per_second"), cell(f"{bytes_}.peak_sustained") * cell(clock)
        assert row[f"{level}_gb_per_s"] * 1e9 == pytest.approx(traffic, rel=1e-12)
        assert row[f"{level}_roof_gb_per_s"] * 1e9 == pytest.approx(peak, rel=1e-12)
        assert row[f"{level}_flop_per_byte"] == pytest.approx(chart_work(cell, kind) / traffic, rel=1e-4)
        assert row[f"{level}_ridge_flop_per_byte"] == pytest.approx(chart_peak(cell, kind) / peak, rel=1e-9)
        roofs[level.upper()] = chart_work(cell, kind) / traffic * peak
    assert row["roof"] == min(roofs, key=roofs.__getitem__)
    assert row["attainable_tflops"] * 1e12 == pytest.approx(min(roofs.values()), rel=1e-4)
    assert row["roof_share"] == pytest.approx(chart_work(cell, kind) / min(roofs.values()), rel=1e-4)
    # The use of each memory's peak has counters of its own.
    dram, l2, l1 = (100 * row[f"{level}_gb_per_s"] / row[f"{level}_roof_gb_per_s"] for level in MEMORIES)
    assert dram == pytest.approx(cell("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"), abs=0.01)
    assert l2 == pytest.approx(cell("lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"), rel=1e-2)
    active = cell("l1tex__lsu_writeback_active_mem_lgds.sum.pct_of_peak_sustained_elapsed")
    assert l1 == pytest.approx(active, rel=1e-2, abs=0.005)


def test_the_fp32_and_fp64_shares_are_those_of_ncu_s_rule(five_kernels: Run) -> None:
    text = " ".join(DETAILS.split())
    said = re.findall(r"achieved (\d+)% of this device's FP32 peak performance and (?:close to )?(\d+)%", text)
    assert [int(fp32) for fp32, _ in said] == [7, 24, 10, 7, 5, 4]
    for row, shares in zip(rows("roofline", five_kernels.path), said, strict=True):
        for kind, share in zip(("fp32", "fp64"), shares, strict=True):  # no fp64 at all has no roof
            assert round(100 * (row[f"{kind}_tflops"] or 0) / (row[f"{kind}_roof_tflops"] or 1)) == int(share)


PRINTED = {
    "Duration": "duration_us", "DRAM Throughput": "dram_throughput_pct", "L1/TEX Hit Rate": "l1_hit_pct",
    "Theoretical Occupancy": "theoretical_occupancy_pct", "Achieved Occupancy": "achieved_occupancy_pct",
    "Waves Per SM": "waves_per_sm", "Registers Per Thread": "registers_per_thread", "L2 Hit Rate": "l2_hit_pct",
}  # fmt: skip
"""ncu's name of a metric -> the key of ``fiprof show``."""
SCALES = {"Tbyte/s": 1e3, "Gbyte/s": 1.0, "Mbyte/s": 1e-3, "us": 1.0, "ms": 1e3, "ns": 1e-3}


def launches_of(page: str) -> list[str]:
    """What a text page of ncu says of each launch."""
    return re.split(r", Context \d+, Stream \d+", page)[1:]


def agrees(row: dict[str, Any], part: str) -> None:
    """A launch's row has the figures that ncu prints, to their digits; of a name that comes twice, its first value."""
    page = re.findall(r"^    (\S.*?)(?:  +(\S+))??  +(\S+) *$", part.replace(",", ""), re.MULTILINE)
    printed = {name: (value, unit) for name, unit, value in reversed(page)}
    for name, key in PRINTED.items():
        value, unit = printed[name]
        assert f"{row[key] / SCALES.get(unit, 1.0):.{len(value.partition('.')[2])}f}" == value, name


@LAUNCHES
def test_figures_are_those_that_ncu_prints(five_kernels: Run, index: int) -> None:
    row, part = rows("show", five_kernels.path)[index], launches_of(DETAILS)[index]
    agrees(row, part)
    found = re.search(r"Memory Throughput +(\wbyte/s) +(\S+)", part)
    assert found and f"{row['dram_gb_per_s'] / SCALES[found[1]]:.2f}" == found[2]
    sizes = re.findall(r"(?:Dynamic|Static) Shared Memory Per Block +(K?)byte/block +(\S+)", part)
    shared_kb = sum(float(size.replace(",", "")) * (1 if kilo else 1e-3) for kilo, size in sizes)
    assert len(sizes) == 2 and row["shared_kb_per_block"] == pytest.approx(shared_kb, abs=0.005)


def test_bank_conflicts_are_those_of_ncu_s_rule() -> None:
    said = re.compile(r"shared (load|store) requests\.This results in (\d+) bank conflicts,\s+which represent (\S+)%")
    shown, compared = rows("show", parsed("all").path), 0
    for row in parsed("all").rows("rules", ("launch", "rule", "message")):
        for kind, _, share in said.findall(row["message"]) if row["rule"] == "SharedMemoryConflicts" else ():
            assert f"{100 * shown[row['launch']][f'shared_{kind}s_conflict_share']:.2f}" == share
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", RUNS)
def test_the_limits_of_occupancy_follow_from_the_launch_as_ncu_s_do(name: str) -> None:
    """Registers are given to a warp 256 at a time; waves are blocks over what the GPU holds at once."""
    for row, launch in zip(rows("show", parsed(name).path), parsed(name).launches, strict=False):
        warps = -(-round(launch["threads_per_block"]) // 32)
        limits = {n: 16384 // (-(-n * 32 // 256) * 256) * 4 // warps for n in range(1, 256)}
        registers, limit = round(launch["registers_per_thread"]), launch["limit_registers_blocks"]
        assert row["limit_registers_blocks"] == limits[registers] == limit
        for step in row["occupancy_steps"] or ():
            needed = step["needed"]
            assert step["id"] != "fewer_registers" or limits[needed] == step["blocks"] > limit == limits[needed + 1]
        blocks = min(value for key in row if re.fullmatch("limit_[a-z_]+_blocks", key) and (value := row[key]))
        occupancy = 100 * blocks * warps / 64
        assert occupancy == pytest.approx(row["theoretical_occupancy_pct"], abs=0.006) or row["limit_clusters_blocks"]
        assert row["wave_blocks"] == blocks * 132 or row["limit_clusters_blocks"]
        assert launch["blocks"] / row["wave_blocks"] == pytest.approx(row["waves_per_sm"], abs=0.00501)


def test_every_hotspot_is_in_the_source_page_and_no_hotter_one_is_missing() -> None:
    page = lzma.decompress((RUNS["all"] / "ncu/source.csv.xz").read_bytes()).decode()
    listings = [listing.splitlines() for listing in page.split('"Kernel Name",')[1:]]
    found = rows("hotspots", parsed("all").path, "--instructions", "20")
    assert len(found) == 6 * 20
    for launch in range(6):
        mine = [row for row in found if row["launch"] == launch]
        _, *lines = next(listing for listing in listings if f"::{mine[0]['kernel']}<" in listing[0])
        listing = [*csv.DictReader(lines)]
        at = {int(each["Address"], 16) - int(listing[0]["Address"], 16): each for each in listing}
        for row in mine:
            said = at[int(row["offset"], 16)]
            assert (row["sass"], str(row["samples"])) == (said["Source"].strip(), said["# Samples"])
            assert str(row["samples_not_issued"]) == said["Warp Stall Sampling (Not-issued Samples)"]
        samples = [int(each["# Samples"]) for each in listing]
        assert [row["samples"] for row in mine] == sorted(samples, reverse=True)[:20]
        assert [row["sample_share"] for row in mine] == [pytest.approx(row["samples"] / sum(samples)) for row in mine]
