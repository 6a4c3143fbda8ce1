"""fiprof/analysis/expected.py and expectations.py: what is expected beside what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.expectations import (
    Expectation,
    Family,
    check_workloads,
    combined,
    parse_expectations,
    read_expectations,
)
from fiprof.analysis.expected import CaseExpected, Expected, ExpectedValue, expected
from fiprof.errors import FiprofError
from fiprof.flashinfer import pack
from fiprof.model.selection import Selection
from fiprof.reports.expected import cells, document
from fiprof.reports.words import worded
from fiprof.reports.writers import render
from tests.conftest import Fiprof
from tests.recorded_runs import parsed
from tests.reports_fixture import case, make_run

PACKAGED = pack.expectations()
OF_HOPPER = [
    dataclasses.replace(family, source=dataclasses.replace(family.source, compute_capability="9.0"))
    for family in parse_expectations(PACKAGED, "the pack")
]
"""The packaged figures, as if they were said of the recorded runs' compute capability."""


@pytest.fixture(scope="module")
def kernels() -> Expected:
    return expected(parsed("all"), families=OF_HOPPER)


@pytest.fixture(scope="module")
def decode() -> Expected:
    return expected(parsed("decode"), families=OF_HOPPER)


def of(report: Expected, label: str) -> CaseExpected:
    return next(item for item in report.cases if item.at.label == label)


def outcomes(item: CaseExpected) -> dict[str, tuple[float | None, str]]:
    return {
        each.quantity: (None if each.measured is None else round(each.measured, 2), each.outcome)
        for each in item.values
    }


def remarks(item: ExpectedValue) -> dict[str, dict[str, Any]]:
    """Id -> numbers of each remark, to three digits."""
    return {
        str(finding.kind): {k: round(v, 3) if isinstance(v, float) else v for k, v in finding.values.items()}
        for finding in item.remarks
    }


HOPPER = {"gpu": {"name": "NVIDIA H200", "compute_capability": "9.0"}}

# The recorded runs in literal numbers


def test_decode_on_cuda_cores_waits_for_other_things_than_expected(decode: Expected) -> None:
    assert outcomes(of(decode, "decode batch=32")) == {
        "long_scoreboard": (5.42, "below"),
        "barrier": (15.72, "as expected"),
        "short_scoreboard": (10.70, "as expected"),
        "dram_share": (63.36, "below"),
        "dram_gb_per_s": (3.05, "below"),
    }


def test_decode_on_tensor_cores_is_nearly_what_is_expected(decode: Expected) -> None:
    item = of(decode, "decode batch=128 tensor_cores")
    assert outcomes(item) == {
        "long_scoreboard": (59.19, "as expected"),
        "barrier": (7.66, "below"),
        "short_scoreboard": (7.11, "as expected"),
        "dram_share": (88.60, "as expected"),
        "dram_gb_per_s": (4.26, "as expected"),
    }
    assert [(each.kind, each.fields().get("quantity")) for each in item.deviations] == [
        ("stall", "barrier"),
        ("other_stalls", None),
    ]
    assert worded(item.deviations[0]) == (
        "barrier is 7.7% of the warps' time, 7.3 points below what is expected (15–25)."
    )


def test_a_bandwidth_is_taken_as_the_same_share_of_this_roof(decode: Expected) -> None:
    found = of(decode, "decode batch=32").values[-1]
    assert (found.unit, found.high, found.stated) == ("TB/s", None, 1.6)
    # 1.6 of the A100's 2.039 TB/s; H200: 1504 bytes a cycle at the DRAM clock that ncu measured.
    assert found.low == pytest.approx(1.6 / 2.039 * 4.810, rel=0.001)
    assert remarks(found) == {
        "same_share": {
            "stated_tb_per_s": 1.6,
            "source_roof_tb_per_s": 2.039,
            "source_gpu": "NVIDIA A100 80 GB SXM",
            "tb_per_s": 3.774,
            "roof_tb_per_s": 4.81,
        },
        "stated_is_reached": {"stated_tb_per_s": 1.6},
    }


def test_prefill_is_on_the_roof_of_the_instructions_that_it_used() -> None:
    assert OF_HOPPER[0].roof is not None
    of_batch_4 = dataclasses.replace(OF_HOPPER[0], roof=dataclasses.replace(OF_HOPPER[0].roof, shares_pct={4: 70}))
    report = expected(parsed("prefill-decode-rope"), families=[of_batch_4], wanted=Selection("prefill"))
    fa2, fa3 = of(report, "prefill backend=fa2"), of(report, "prefill backend=fa3")
    assert outcomes(fa2)["compute_roof_share"] == (49.88, "below")
    assert outcomes(fa3)["compute_roof_share"] == (52.62, "below")
    assert (fa2.values[3].work, fa3.values[3].work) == ("tensor fp16 mma", "tensor fp16")
    assert outcomes(fa3)["short_scoreboard"] == (5.69, "below")
    assert outcomes(fa3)["long_scoreboard"] == (14.88, "as expected")
    assert remarks(fa2.values[3]) == {"mma": {"roof_tflops": 641.276, "wgmma_tflops": 961.913, "wgmma_share": 0.333}}
    assert [(each.fields()["reason"], round(each.fields()["share_pct"], 1)) for each in fa2.instead] == [
        ("wait", 37.1),
        ("selected", 20.3),
        ("math_pipe_throttle", 12.4),
    ]


def test_expectations_that_exclude_each_other_are_told(kernels: Expected) -> None:
    # 167.8 MB over 137.5 GFLOP at 927 TFLOP/s
    assert remarks(of(kernels, "prefill").values[-1])["excludes_roof"] == {"tb_per_s": 1.131}
    assert "excludes_roof" not in remarks(of(kernels, "decode").values[-1])


def test_the_family_is_the_workload_s_not_the_kernel_s(decode: Expected) -> None:
    item = of(decode, "decode batch=32 tensor_cores")
    assert (item.at.kernel, item.family) == ("BatchPrefillWithPagedKVCacheKernel", "decode")


# Like with like


def test_a_figure_of_another_gpu_is_said_once_and_not_compared() -> None:
    report = expected(parsed("decode"))
    assert report.cases == ()
    rows = [
        (item.family, item.quantity, worded(item.figure), [each.kind for each in item.why])
        for item in report.not_compared
    ]
    assert rows == [
        ("decode", "long_scoreboard", "60–70 %", ["gpu"]),
        ("decode", "barrier", "15–25 %", ["gpu"]),
        ("decode", "short_scoreboard", "5–10 %", ["gpu"]),
        ("decode", "dram_share", "35, 80 and 87 % at batch 1, 32 and 128", ["gpu"]),
        ("decode", "dram_gb_per_s", "≥ 1.6 TB/s", ["gpu"]),
    ]
    assert [finding.kind for finding in report.summary] == ["nothing_alike"]
    assert [source.gpu for source in report.sources] == ["NVIDIA A100 80 GB SXM"]
    told = json.loads(render(document(report), "json"))["rows"]
    of_figures = [row for row in told if row["quantity"]]
    assert {row["outcome"] for row in of_figures} == {"not compared"} and len(of_figures) == 5


def test_another_shape_or_size_is_not_compared_either() -> None:
    report = expected(parsed("all"), families=OF_HOPPER)
    assert [item.at.label for item in report.cases] == ["decode", "fused_add_rmsnorm", "prefill", "rmsnorm", "rope"]
    # Prefill's batch of 4 and 4,096 rows have no figure for their size; stalls and bandwidth are of any.
    assert {(item.family, item.quantity) for item in report.not_compared} == {
        ("prefill", "compute_roof_share"), ("rmsnorm", "dram_share"), ("rope", "dram_share")
    }  # fmt: skip
    assert [(each.kind, each.values["cases"]) for item in report.not_compared for each in item.why] == [
        ("size", ("fused_add_rmsnorm", "rmsnorm")), ("size", ("prefill",)), ("size", ("rope",))
    ]  # fmt: skip
    longer = [dataclasses.replace(OF_HOPPER[1], params={"kv_len": 4096})]
    other = expected(parsed("decode"), families=longer)
    assert not other.cases and {each.kind for item in other.not_compared for each in item.why} == {"shape"}


def test_the_summary_counts_what_is_compared(kernels: Expected) -> None:
    (held,) = kernels.summary
    assert held.fields() == {"id": "held", "held": 3, "measured": 12}


def test_a_faster_alternative_comes_first() -> None:
    shown = document(expected(parsed("decode"))).shown
    assert [str(line).split(":")[0] for line in shown[0].summary[:2]] == [
        "Measured faster, decode batch=32", "Measured faster, decode batch=128"
    ]  # fmt: skip
    rows = json.loads(render(document(expected(parsed("decode"))), "json"))["rows"]
    assert [(row["label"], row["steps"][0]["id"]) for row in rows[:2]] == [
        ("decode batch=32", "use_alternative"), ("decode batch=128", "use_alternative")
    ]  # fmt: skip


# Outcomes


@pytest.mark.parametrize(
    ("measured", "outcome", "words"),
    [
        (None, "not measured", "not measured"),
        (58.9, "below", "1.1 points below"),
        (59.0, "as expected", "as expected"),
        (71.0, "as expected", "as expected"),
        (71.5, "above", "1.5 points above"),
    ],
)
def test_a_range_of_stalls_holds_within_a_point(measured: float | None, outcome: str, words: str) -> None:
    found = ExpectedValue(Expectation.STALL, "long_scoreboard", 60, 70, measured)
    assert (found.outcome, cells(found)[-1]) == (outcome, words)
    # Of a roof's share the tolerance is that of the figure.
    found = ExpectedValue(Expectation.DRAM_ROOF, "dram_share", 75, 85, 85.1, 80)
    assert (found.outcome, cells(found)[2]) == ("above", "80 ± 5")


# Runs that lack something


def test_no_expectation_for_any_case(tmp_path: Path) -> None:
    rows = [{"launch": 0, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0}]
    with pytest.raises(FiprofError) as raised:
        expected(make_run(tmp_path / "run", launches=rows))
    assert raised.value.message == "nothing is expected of mine"
    assert "--expectations FILE" in raised.value.remedy


def test_a_launch_of_which_little_was_collected(tmp_path: Path) -> None:
    mine = dataclasses.replace(case("decode[batch=32]"), params={"batch": 32})
    rows = [{"launch": 0, "case": mine.id, "kernel": "K", "duration_ns": 1000.0}]
    run = make_run(tmp_path / "run", launches=rows, cases=[mine, case("other[rows=1]")], environment=HOPPER)
    report = expected(run, families=OF_HOPPER)
    assert {item.outcome for item in report.cases[0].values} == {"not measured"}
    assert report.summary[0].fields() == {"id": "held", "held": 0, "measured": 0}
    assert [each.kind for each in report.cases[0].deviations] == ["stall"] * 3 + ["dram_roof", "bandwidth"]
    assert all(map(worded, report.cases[0].deviations))


def test_iterations_are_held_against_by_their_median(tmp_path: Path) -> None:
    mine = case("rope[tokens=32]")
    mine = dataclasses.replace(mine, params={"tokens": 32})
    rows = [
        {"launch": i, "case": mine.id, "iteration": i, "kernel": "K", "duration_ns": ns}
        for i, ns in enumerate([3000.0, 1000.0, 2000.0])
    ]
    run = make_run(tmp_path / "run", launches=rows, cases=[mine], environment=HOPPER)
    (item,) = expected(run, families=OF_HOPPER).cases
    assert (item.at.launch, item.at.repeated, item.at.duration_us) == (2, True, 2.0)


# Files of users


OWN: dict[str, Any] = {
    "source": 'title = "ours"\ngpu = "NVIDIA H200"\ncompute_capability = "9.0"',
    "head": 'name = "norms"\nworkloads = ["rmsnorm"]\nsize = "rows"',
    "stalls": "long_scoreboard = [20, 30]",
    "roof": 'kind = "dram"\nshares = { 4096 = 45 }',
    "bandwidth": "least_tb_per_s = 2",
}


def write(path: Path, **changes: str) -> Path:
    part = {**OWN, **changes}
    path.write_text(
        f"[source]\n{part['source']}\n[[family]]\n{part['head']}\n[family.stalls]\n{part['stalls']}\n"
        f"[family.roof]\n{part['roof']}\n[family.bandwidth]\n{part['bandwidth']}\n"
    )
    return path


def test_a_file_of_one_s_own_takes_the_place_of_the_packaged_family(tmp_path: Path) -> None:
    families = combined(write(tmp_path / "ours.toml"))
    assert [family.name for family in families] == ["norms", "prefill", "decode", "rmsnorm", "rope"]
    assert families[3].workloads == ("fused_add_rmsnorm",)
    run = parsed("all")
    report = expected(run, families=families, wanted=Selection("RMSNormKernel"))
    assert [item.family for item in report.cases] == ["norms"]
    item = of(report, "rmsnorm")
    assert outcomes(item) == {
        "long_scoreboard": (28.56, "as expected"),
        "dram_share": (43.88, "as expected"),
        "dram_gb_per_s": (2.11, "as expected"),
    }
    alone = expected(run, families=families[:1], wanted=Selection("RMSNormKernel"))
    assert [each.fields() for each in alone.summary] == [
        {"id": "held", "held": 3, "measured": 3},
        {"id": "without", "cases": ["fused_add_rmsnorm"]},
    ]


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"stalls": "long_scorebord = [1, 2]"}, "unknown stall reason 'long_scorebord'", "did you mean 'long_score"),
        ({"stalls": "barrier = [30, 20]"}, "barrier = [30, 20] begins above its end", "the lowest share comes first"),
        ({"stalls": "barrier = 30"}, "barrier = 30 is no range", "write barrier = [35, 45]"),
        ({"stalls": "barrier = [1, 101]"}, "barrier = 101 is more than 100", "shares are in %"),
        ({"stalls": 'barrier = ["a", 2]'}, "barrier = 'a' is no number from 0 on", "write barrier"),
        ({"stalls": "barrier = [nan, 2]"}, "barrier = nan is no number from 0 on", "write barrier"),
        ({"roof": 'kind = "l3"\nshares = { 1 = 1 }'}, "kind = 'l3' is no roof", "roofs are tensor, dram"),
        ({"roof": 'kind = "dram"\nshares = { big = 1 }'}, "'big' is no size", "write shares = { 1 = 70"),
        ({"roof": 'kind = "dram"\nshares = { 0 = 1 }'}, "'0' is no size above 0", "write shares = { 1 = 70"),
        ({"roof": 'kind = "dram"\nshares = {}'}, "it is empty", "write shares = { 1 = 70"),
        ({"bandwidth": "least_tb_per_s = -1"}, "least_tb_per_s = -1 is no number from 0 on", "write least"),
        ({"bandwidth": "least_gb_per_s = 1"}, "unknown key 'least_gb_per_s'", "did you mean 'least_tb_per_s'?"),
        ({"head": 'name = "x"\nworkload = ["y"]'}, "unknown key 'workload'", "did you mean 'workloads'?"),
        ({"head": 'name = "x"\nworkloads = "y"'}, "workloads is missing or no list of names", "write workloads"),
        ({"source": 'title = "ours"'}, "gpu is missing or no text", 'write gpu = "…"'),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_way_out(
    tmp_path: Path, changes: dict[str, str], message: str, remedy: str
) -> None:
    path = write(tmp_path / "ours.toml", **changes)
    with pytest.raises(FiprofError) as raised:
        read_expectations(path)
    assert raised.value.message.startswith(str(path))
    assert raised.value.message.endswith(message)
    assert remedy in raised.value.remedy


def test_files_that_are_no_expectations(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    for content, words in ((b"= 1", "is not TOML"), (b"\xff", "is not TOML"), (b"[source]\n", "title is missing")):
        broken.write_bytes(content)
        with pytest.raises(FiprofError, match=words):
            read_expectations(broken)
    with pytest.raises(FiprofError, match="cannot be read: Is a directory"):
        read_expectations(tmp_path)


def test_two_families_of_the_same_workload(tmp_path: Path) -> None:
    path = write(tmp_path / "ours.toml")
    path.write_text(path.read_text() + '[[family]]\nname = "more"\nworkloads = ["rmsnorm"]\n')
    with pytest.raises(FiprofError, match="the families norms and more both claim the workload rmsnorm"):
        read_expectations(path)


def test_a_workload_that_nobody_knows() -> None:
    (first, *_) = parse_expectations(PACKAGED, "the pack")
    wrong: Family = dataclasses.replace(first, workloads=("prefil",))
    with pytest.raises(FiprofError) as raised:
        check_workloads([wrong], ["decode", "prefill"])
    assert raised.value.message == "the family prefill is for the workload 'prefil', which is not known"
    assert raised.value.remedy == "did you mean 'prefill'?"


def test_the_command_with_a_file(fiprof: Fiprof, tmp_path: Path) -> None:
    run = str(parsed("all").path)
    mine = write(tmp_path / "ours.toml")
    done = fiprof("expected", run, "--kernel", "rmsnorm", "--expectations", str(mine), "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert "\n" in done.stdout and ",norms," in done.stdout
    slip = write(tmp_path / "slip.toml", head='name = "norms"\nworkloads = ["rmsnrom"]\nsize = "rows"')
    done = fiprof("expected", run, "--expectations", str(slip))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "  did you mean 'rmsnorm'?"
