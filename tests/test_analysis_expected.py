"""``fiprof expected``: what is expected compared with what was measured, and files of expectations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.expectations import Expectations, combined, read_expectations
from fiprof.analysis.expected import expected
from fiprof.errors import FiprofError
from tests.conftest import Fiprof
from tests.recorded_runs import invoke, parsed
from tests.reports_fixture import case, make_run

HOPPER = """
[source]
title = "ours"
gpu = "NVIDIA A100 80 GB SXM"
compute_capability = "9.0"
dram_tb_per_s = 2.039

[[family]]
name = "decode"
workloads = ["decode"]
params = { kv_len = 2048 }
size = "batch"
stalls = { long_scoreboard = [60, 70], barrier = [15, 25], short_scoreboard = [5, 10] }
roof = { kind = "dram", shares = { 1 = 35, 32 = 80, 128 = 87 } }
bandwidth = { least_tb_per_s = 1.6 }

[[family]]
name = "prefill"
workloads = ["prefill"]
size = "batch"
stalls = { long_scoreboard = [15, 25] }
roof = { kind = "tensor", shares = { 4 = 70, 8 = 72 } }
bandwidth = { least_tb_per_s = 1.4 }
"""
"""Figures of the packaged kind, as if they were said of the recorded runs' compute capability."""

OWN = """
[source]
title = "ours"
gpu = "NVIDIA H200"
compute_capability = "9.0"
[[family]]
name = "norms"
workloads = ["rmsnorm"]
size = "rows"
[family.stalls]
long_scoreboard = [20, 30]
[family.roof]
kind = "dram"
shares = { 4096 = 45 }
[family.bandwidth]
least_tb_per_s = 2
"""


def rows(tmp_path: Path, run: str, content: str, *words: str) -> list[dict[str, Any]]:
    (tmp_path / "ours.toml").write_text(content)
    status, printed = invoke(
        "expected", str(parsed(run).path), "--expectations", str(tmp_path / "ours.toml"), "--format", "json", *words
    )
    assert status == 0
    return [row for row in json.loads(printed)["rows"] if row["quantity"]]


def outcomes(rows: list[dict[str, Any]], label: str) -> dict[str, tuple[float, str]]:
    return {row["quantity"]: (round(row["measured"], 2), row["outcome"]) for row in rows if row["label"] == label}


def test_decode_on_cuda_cores_waits_for_other_things_than_expected(tmp_path: Path) -> None:
    found = rows(tmp_path, "decode", HOPPER)
    assert outcomes(found, "decode batch=32") == {
        "long_scoreboard": (5.42, "below"),
        "barrier": (15.72, "as expected"),
        "short_scoreboard": (10.70, "as expected"),
        "dram_share": (63.36, "below"),
        "dram_gb_per_s": (3.05, "below"),
    }
    bandwidth = next(row for row in found if row["label"] == "decode batch=32" and row["unit"] == "TB/s")
    # 1.6 of the A100's 2.039 TB/s; H200: 1504 bytes a cycle at the DRAM clock that ncu measured.
    assert bandwidth["expected_low"] == pytest.approx(1.6 / 2.039 * 4.810, rel=0.001)
    assert [remark["id"] for remark in bandwidth["remarks"]] == ["same_share", "stated_is_reached"]
    tensor_cores = next(row for row in found if row["label"] == "decode batch=32 tensor_cores")
    assert (tensor_cores["kernel"], tensor_cores["family"]) == ("BatchPrefillWithPagedKVCacheKernel", "decode")


def test_prefill_is_on_the_roof_of_the_instructions_that_it_used(tmp_path: Path) -> None:
    found = rows(tmp_path, "prefill-decode-rope", HOPPER, "--kernel", "prefill")
    of_roof = {row["label"]: row for row in found if row["quantity"] == "compute_roof_share"}
    fa2, fa3 = of_roof["prefill backend=fa2"], of_roof["prefill backend=fa3"]
    assert (fa2["work"], fa3["work"]) == ("tensor fp16 mma", "tensor fp16")
    assert (round(fa2["measured"], 2), round(fa3["measured"], 2)) == (49.88, 52.62)
    (remark,) = fa2["remarks"]
    assert (remark["id"], round(remark["wgmma_share"], 3)) == ("mma", 0.333)


def test_another_gpu_shape_or_size_is_stated_and_not_compared(tmp_path: Path) -> None:
    other = {row["quantity"]: row["remarks"] for row in rows(tmp_path, "decode", HOPPER.replace('"9.0"', '"8.0"'))}
    assert other["dram_share"][0]["shares"] == [35, 80, 87] and other["barrier"][-1]["id"] == "gpu"
    found = rows(tmp_path, "decode", HOPPER.replace("kv_len = 2048", "kv_len = 4096"), "--kernel", "decode")
    assert {(row["outcome"], row["remarks"][-1]["id"]) for row in found} == {("not compared", "shape")}
    found = [
        row
        for row in rows(tmp_path, "all", HOPPER.replace("4 = 70", "1 = 70"))
        if row["family"] == "prefill" and row["outcome"] == "not compared"
    ]
    assert [(row["quantity"], row["remarks"][-1]["id"]) for row in found] == [("compute_roof_share", "size")]
    # 167.8 MB over 137.5 GFLOP at 927 TFLOP/s
    (prefill,) = (row for row in rows(tmp_path, "all", HOPPER, "--kernel", "prefill") if row["unit"] == "TB/s")
    assert {round(each["tb_per_s"], 3) for each in prefill["remarks"] if each["id"] == "excludes_roof"} == {1.131}


def test_a_file_of_one_s_own_replaces_the_packaged_family(fiprof: Fiprof, tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text(OWN)
    families = [family for _, family in combined(read_expectations(own))]
    assert [family.name for family in families] == ["norms", "prefill", "decode", "rmsnorm", "rope"]
    assert families[3].workloads == ("fused_add_rmsnorm",)
    done = fiprof("expected", str(parsed("all").path), "--expectations", str(own), "--kernel", "RMSNormKernel")
    for words in (
        "long_scoreboard",
        "45 ± 5",
        "3 of 3 expectations hold",
        "NVIDIA H200 (compute capability 9.0): ours",
    ):
        assert words in done.stdout
    own.write_text(OWN.replace('"rmsnorm"', '"rmsnrom"'))
    done = fiprof("expected", str(parsed("all").path), "--expectations", str(own))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "  did you mean 'rmsnorm'?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("long_scoreboard", "long_scorebord", "family[0]: unknown stall reason 'long_scorebord'; known are barrier"),
        ("[20, 30]", "[30, 20]", "long_scoreboard = [30, 20] begins above its end"),
        ("[20, 30]", "30", "family[0].stalls[...]: expected array, got int"),
        ("[20, 30]", "[1, 101]", "family[0].stalls[...][1]: expected float <= 100.0"),
        ("[20, 30]", "[nan, 2]", "family[0].stalls[...][0]: expected float >= 0.0"),
        ('"dram"', '"l3"', "family[0].roof.kind: invalid enum value 'l3'"),
        ("4096 = 45", "big = 45", "family[0].roof.shares"),
        ("4096 = 45", "0 = 45", "family[0].roof.shares"),
        ("4096 = 45", "", "family[0].roof.shares: expected object of length >= 1"),
        ("least_tb_per_s = 2", "least_tb_per_s = -1", "family[0].bandwidth.least_tb_per_s: expected float >= 0.0"),
        ("least_tb", "least_gb", "family[0].bandwidth: object contains unknown field least_gb_per_s"),
        ('gpu = "NVIDIA H200"', "", "source: object missing required field gpu"),
        ("[family.bandwidth]\nleast_tb_per_s = 2", '[[family]]\nname = "b"\nworkloads = ["rmsnorm"]', "two families claim rmsnorm"),
        ("[source]", "= 1", "Invalid statement"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(FiprofError) as raised:
        read_expectations(path)
    assert raised.value.message.startswith(str(path)) and message in raised.value.message
    with pytest.raises(FiprofError, match="cannot be read: Is a directory"):
        read_expectations(tmp_path)


def test_runs_without_expectations_counters_or_with_iterations(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"launch": 0, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0}]
    with pytest.raises(FiprofError, match="nothing is expected of mine"):
        expected(make_run(tmp_path / "none", launches=rows))
    (tmp_path / "ours.toml").write_text(HOPPER)
    own: Expectations = read_expectations(tmp_path / "ours.toml")
    rows = [
        {"launch": i, "case": "decode[batch=32]", "iteration": i, "kernel": "K", "duration_ns": ns}
        for i, ns in enumerate([3000.0, 1000.0, 2000.0])
    ]
    gpu = {"gpu": {"name": "NVIDIA H200", "compute_capability": "9.0"}}
    mine = make_run(tmp_path / "run", launches=rows, cases=[case("decode[batch=32]")], environment=gpu)
    report = expected(mine, families=combined(own))
    assert (report.cases[0].at.launch, report.cases[0].at.duration_us) == (2, 2.0)
    assert {row["outcome"] for row in report.cases[0].rows} == {"not measured"}
