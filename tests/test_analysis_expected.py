"""``fiprof expected``: what is expected compared with what was measured, and files of expectations."""

from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.expected import combined, read_expectations
from fiprof.errors import FiprofError
from tests.recorded_runs import invoke, parsed, refusal, rows
from tests.reports_fixture import make_run

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


def expected(tmp_path: Path, run: str, content: str, *words: str) -> list[dict[str, Any]]:
    (tmp_path / "ours.toml").write_text(content)
    found = rows("expected", parsed(run).path, "--expectations", tmp_path / "ours.toml", *words)
    return [row for row in found if row["quantity"]]


def test_decode_on_cuda_cores_waits_for_other_things_than_expected(tmp_path: Path) -> None:
    found = expected(tmp_path, "decode", HOPPER)
    mine = [row for row in found if row["label"] == "decode batch=32"]
    assert {row["quantity"]: (round(row["measured"], 2), row["outcome"]) for row in mine} == {
        "long_scoreboard": (5.42, "below"), "barrier": (15.72, "as expected"), "short_scoreboard": (10.70, "as expected"),
        "dram_share": (63.36, "below"), "dram_gb_per_s": (3.05, "below"),
    }  # fmt: skip
    # 1.6 of the A100's 2.039 TB/s; H200: 1504 bytes a cycle at the DRAM clock that ncu measured.
    bandwidth = next(row for row in mine if row["unit"] == "TB/s")
    assert bandwidth["expected_low"] == pytest.approx(1.6 / 2.039 * 4.810, rel=0.001)
    assert [remark["id"] for remark in bandwidth["remarks"]] == ["same_share", "stated_is_reached"]
    # Prefill is on the roof of the instructions that it used.
    prefill = expected(tmp_path, "prefill-decode-rope", HOPPER, "--kernel", "prefill")
    fa2, fa3 = (row for row in prefill if row["quantity"] == "compute_roof_share")
    assert [(row["label"][-3:], row["work"], round(row["measured"], 2)) for row in (fa2, fa3)] == [
        ("fa2", "tensor fp16 mma", 49.88), ("fa3", "tensor fp16", 52.62),
    ]  # fmt: skip
    assert [(each["id"], round(each["wgmma_share"], 3)) for each in fa2["remarks"]] == [("mma", 0.333)]


@pytest.mark.parametrize(
    ("run", "old", "new", "family", "remark"),
    [
        ("decode", '"9.0"', '"8.0"', "decode", "gpu"),
        ("decode", "kv_len = 2048", "kv_len = 4096", "decode", "shape"),
        ("all", "4 = 70", "1 = 70", "prefill", "size"),
    ],
)
def test_another_gpu_shape_or_size(tmp_path: Path, run: str, old: str, new: str, family: str, remark: str) -> None:
    found = [row for row in expected(tmp_path, run, HOPPER.replace(old, new)) if row["family"] == family]
    said = {row["remarks"][-1]["id"] for row in found if row["outcome"] == "not compared"}
    assert remark in said and (remark == "size" or {row["outcome"] for row in found} == {"not compared"})


def test_a_file_of_one_s_own_replaces_the_packaged_family(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text(OWN)
    families = [family for _, family in combined(read_expectations(own))]
    assert [family.name for family in families] == ["norms", "prefill", "decode", "rmsnorm", "rope"]
    assert families[3].workloads == ("fused_add_rmsnorm",)
    words = ("expected", str(parsed("all").path), "--expectations", str(own))
    printed = invoke(*words, "--kernel", "RMSNormKernel")[1]
    for said in ("45 ± 5", "3 of 3 expectations hold", "NVIDIA H200 (compute capability 9.0): ours"):
        assert said in printed
    own.write_text(OWN.replace('"rmsnorm"', '"rmsnrom"'))
    assert refusal(*words).remedy == "did you mean 'rmsnorm'?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("long_scoreboard", "long_scorebord", "family[0]: unknown stall reason 'long_scorebord'; known are barrier"),
        ("[20, 30]", "[30, 20]", "long_scoreboard = [30, 20] begins above its end"),
        ("[20, 30]", "[1, 101]", "family[0].stalls[...][1]: expected float <= 100.0"),
        ("4096 = 45", "0 = 45", "family[0].roof.shares"),
        ("least_tb", "least_gb", "family[0].bandwidth: object contains unknown field least_gb_per_s"),
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


def test_a_run_without_expectations(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0}
    run = make_run(tmp_path / "run", launches=[launch])
    assert "nothing is expected of mine" in refusal("expected", run.path).message
