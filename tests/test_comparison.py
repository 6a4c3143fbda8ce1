"""Two runs held against each other: pairs of cases and kernels, what explains a change, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.comparison.answer import (
    Change,
    ComparisonWarning,
    FactorChange,
    ProgramChange,
    ProgramWhy,
    Sure,
    Why,
    change_of,
    program_change,
    program_reasons,
    program_warnings,
    reasons,
    sure,
)
from fiprof.analysis.comparison.conditions import Absent, Of, Weight
from fiprof.analysis.comparison.factors import FactorKind, factors
from fiprof.analysis.comparison.hot_code import Place
from fiprof.analysis.comparison.pairing import Different, Match, pair_cases, pair_kernels
from fiprof.analysis.comparison.programs import PartKind, ProgramComparison
from fiprof.analysis.comparison.runs import ArchivedSide, CaseChange, RunComparison, compare
from fiprof.errors import FiprofError
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Run
from fiprof.reports.comparison.page import page
from fiprof.reports.comparison.tells import measure_command
from fiprof.reports.pages.page import Chart
from fiprof.reports.words import table_of, templates
from tests.nsys_exports import CUDA_GRAPHS, altered
from tests.recorded_runs import copied, invoke, parsed, profiled
from tests.test_top import kernel, made_run


def sides(name: str, parameter: str, *values: str) -> RunComparison:
    run = parsed(name)
    a, b = (ArchivedSide(run, {parameter: value}) for value in values)
    return compare(a, b)


def rounded(found: RunComparison) -> Iterator[tuple[Any, ...]]:
    for case in found.cases:
        assert case.time
        yield (
            case.label,
            round(case.time.change or 0, 2),
            *((kernel.match, kernel.shown.kernel[:13], round(kernel.us, 2)) for kernel in case.kernels),
        )


def test_decode_on_tensor_cores_against_cuda_cores() -> None:
    found = sides("decode", "tensor_cores", "false", "true")
    assert list(rounded(found)) == [
        ("decode batch=32", -22.54, ("replaced", "BatchPrefillW", -18.08), ("gone", "PersistentVar", -4.06)),
        ("decode batch=128", -79.66, ("replaced", "BatchPrefillW", -75.98)),
        ("decode batch=1", -0.51, ("replaced", "BatchPrefillW", -0.58), ("same", "PersistentVar", 0.19)),
        ("decode batch=8", -0.91, ("replaced", "BatchPrefillW", -1.43), ("same", "PersistentVar", -0.13)),
    ]
    assert found.cases[0].pair.different == (Different("tensor_cores", False, True),)
    main = found.cases[0].kernels[0]
    assert [(each.kind, each.reason, round(each.us, 1)) for each in main.factors[:4]] == [
        ("instructions", None, -133.3),
        ("warps", None, 90.9),
        ("stall", "long_scoreboard", 51.5),
        ("stall", "not_selected", -20.0),
    ]
    assert [(each.where, each.reason, round(each.us, 1)) for each in main.moved[:2]] == [
        ("ISETP.NE.AND", "long_scoreboard", 30.2),
        ("HADD2.F32", "not_selected", -27.0),
    ]
    told = {each.quantity.key: (str(each.a), str(each.b)) for each in main.deltas}
    assert told["registers_per_thread"] == ("56", "182")
    assert told["dram_gb_per_s"] == ("3,048 GB/s", "3,917 GB/s")
    why = [each.kind for each in reasons(found.cases[0])]
    assert why == [Why.REPLACED, FactorChange.FEWER_INSTRUCTIONS, Why.VERDICT]
    assert sure(found).kind is Sure.ONE_PROCESS


def test_what_would_tell() -> None:
    """A command: the sides by what differs, and the case."""
    assert measure_command(sides("decode", "tensor_cores", "false", "true")) == (
        "fiprof compare --measure params:tensor_cores=false params:tensor_cores=true "
        "--kernel decode --batch 32 --kv-len 2048 --q-heads 32 --kv-heads 8 --head-dim 128 --page-size 16 "
        "--cuda-graph false --dtype fp16"
    )
    llama, server = ArchivedSide(profiled("llama")), ArchivedSide(profiled("server"))
    assert measure_command(compare(llama, server)) == (
        "fiprof compare --measure 'program:/opt/torch/.venv/bin/python3 llama.py 2 24' 'program:python3 server.py 3600'"
    )


def test_fa3_against_fa2() -> None:
    (case,) = sides("prefill-decode-rope", "backend", "fa2", "fa3").cases
    assert (round(case.time.change or 0, 1) if case.time else None, round(case.outside_us or 0, 1)) == (-161.3, 6.6)
    (kernel,) = case.kernels
    assert [(each.kind, round(each.us, 1)) for each in kernel.factors[:2]] == [
        ("warps", -162.3),
        ("instructions", -59.9),
    ]


def test_across_runs() -> None:
    """Decode in a CUDA graph takes 8% longer: its grid is padded, so that more multiprocessors have nothing to do."""
    found = compare(ArchivedSide(parsed("all")), ArchivedSide(parsed("prefill-decode-rope")))
    decode, rope = found.cases
    assert decode.pair.different == (Different("cuda_graph", False, True),)
    assert [(each.kind, round(each.us, 1)) for each in decode.kernels[0].factors[:1]] == [("active", 7.8)]
    assert (decode.notable, rope.notable) == (True, False)
    assert [(each.of, each.weight) for each in found.conditions] == [("ncu_set", "doubtful")]


@pytest.mark.parametrize("name", ["all", "decode", "prefill-decode-rope"])
def test_a_run_against_itself_has_the_same_numbers(name: str) -> None:
    run = parsed(name)
    found = compare(ArchivedSide(run), ArchivedSide(Run(run.path)))
    assert {change_of(case).kind for case in found.cases} == {Change.SAME_NUMBERS}
    for each in (each for case in found.cases for each in case.kernels):
        assert (each.match, each.us, {part.us for part in each.factors} - {0.0}, each.moved) == (
            Match.SAME,
            0,
            set(),
            (),
        )
    assert found.conditions == ()
    assert sure(found).kind is Sure.SAME_RUN
    assert not any(case.notable for case in found.cases)


def test_b_against_a_is_a_against_b_the_other_way_round() -> None:
    forth, back = (sides("decode", "tensor_cores", *values) for values in (("false", "true"), ("true", "false")))
    assert [_mirrored(case) for case in forth.cases] == [
        _signed(case) for case in sorted(back.cases, key=_order(forth))
    ]


def _order(of: RunComparison) -> Any:
    labels = [case.label for case in of.cases]
    return lambda case: labels.index(case.label)


def _signed(case: CaseChange, sign: int = 1) -> Any:
    assert case.time and case.time.change is not None
    kernels = {
        (kernel.match, kernel.a and kernel.a.kernel, kernel.b and kernel.b.kernel): (
            round(sign * kernel.us, 6),
            {(each.kind, each.reason): round(sign * each.us, 6) for each in kernel.factors},
            {each.where: round(sign * each.us, 6) for each in kernel.moved},
        )
        for kernel in case.kernels
    }
    return round(sign * case.time.change, 6), kernels


def _mirrored(case: CaseChange) -> Any:
    change, kernels = _signed(case, -1)
    other = {Match.NEW: Match.GONE, Match.GONE: Match.NEW}
    return change, {(other.get(match, match), b, a): found for (match, a, b), found in kernels.items()}


@given(st.data())
def test_the_parts_of_a_difference_sum_to_it(data: st.DataObject) -> None:
    runs = [parsed(data.draw(st.sampled_from(("all", "decode")))) for _ in range(2)]
    a, b = ((run, data.draw(st.sampled_from(run.launches))) for run in runs)
    found = factors(a, b)
    if found:
        assert sum(each.us for each in found) == pytest.approx(
            (b[1].duration_us or 0) - (a[1].duration_us or 0), abs=1e-6
        )
        back = {(each.kind, each.reason): each.us for each in factors(b, a)}
        assert back == pytest.approx({(each.kind, each.reason): -each.us for each in found}, abs=1e-6)


# Programs

NCU_PAGE = Path(__file__).parent / "data/ncu/full.raw.csv"


def program(a: Run, b: Run) -> ProgramComparison:
    found = compare(ArchivedSide(a), ArchivedSide(b)).program
    assert found
    return found


def told(found: ProgramComparison) -> tuple[dict[str, float], list[tuple[str, float]]]:
    """Parts, and kernels that account for most, in ms."""
    kernels = [(each.shown.kernel, round(each.us / 1e3, 3)) for each in found.kernels[:2]]
    parts = {kind.value: round(time.us / 1e3, 3) for kind, time in found.parts.items()}
    return {kind: ms for kind, ms in parts.items() if ms}, kernels


def test_two_captures_of_a_server() -> None:
    found = program(profiled("server"), profiled("server again"))
    assert (found.work, round(found.window.us), round(found.share, 4)) == (1.0, 8621, 0.0172)
    assert told(found) == (
        {"kernels": 0.107, "copies": 0.005, "idle": 8.508},
        [("nvjet_sm90_hsh_64x32_64x16_2x1_v_bz_splitK_NNT", 0.066), ("splitKreduce_kernel", 0.015)],
    )
    assert [(each.cause, each.range, round(each.time.us / 1e3, 3)) for each in found.idle[:2]] == [
        ("outside_ranges", None, 5.257),
        ("host", "request", 2.535),
    ]
    back = program(profiled("server again"), profiled("server"))
    assert {(each.shown.kernel_full, each.us) for each in back.kernels} == {
        (each.shown.kernel_full, -each.us) for each in found.kernels
    }
    assert {kind: -time.us for kind, time in back.parts.items()} == {
        kind: time.us for kind, time in found.parts.items()
    }


@pytest.mark.parametrize("name", ["llama", "tworanks", "graph"])
def test_a_program_against_itself_has_the_same_numbers(name: str) -> None:
    found = program(profiled(name), profiled(name))
    assert program_change(found).kind is ProgramChange.SAME_NUMBERS
    times = [*found.parts.values(), *(each.time for each in found.idle), *(each.time for each in found.ranges)]
    assert {each.us for each in times} | {each.us for each in found.kernels} == {0.0}
    assert list(program_reasons(found)) == []
    assert all(each.waits is not None for each in found.ranks) == (name == "tworanks")


def test_traces_of_unlike_length_are_compared_at_equal_work(tmp_path: Path) -> None:
    """Side B has 4 steps for A's 8, each with a copy of twice the length: half the work, and each step longer."""
    runs = []
    for name, steps, copy in (("a", 8, 10), ("b", 4, 20)):
        (tmp_path / name).mkdir()
        starts = [step * (100 + copy) for step in range(steps)]
        kernels = [kernel(at, at + 40, at) for at in starts]
        copies = [{"us": (at + 40, at + 40 + copy), "kind": "Host-to-Device"} for at in starts]
        runs.append(made_run(tmp_path / name, kernels=kernels, copies=copies))
    found = program(runs[0], runs[1])
    root = 2**0.5
    assert found.work == 0.5
    assert told(found)[0] == pytest.approx(
        {"copies": 4 * 20 / 1e3 * root - 8 * 10 / 1e3 / root, "idle": -0.042}, abs=1e-3
    )
    assert found.parts[PartKind.KERNELS].us == pytest.approx(0)
    assert program_change(found).kind is ProgramChange.LESS_WORK


def test_programs_that_have_little_in_common(tmp_path: Path) -> None:
    found = program(profiled("llama"), profiled("server"))
    assert [each.kind for each in program_warnings(found)] == ["other_program"]
    other = made_run(tmp_path, kernels=[kernel(0, 10, 1)])
    with pytest.raises(FiprofError, match="have no case and no kernel in common"):
        program(profiled("graph"), other)


def test_files_are_compared_as_they_are(tmp_path: Path) -> None:
    half = "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > (SELECT avg(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    other = altered(tmp_path, half, source=CUDA_GRAPHS)
    status, printed = invoke("compare", str(CUDA_GRAPHS), str(other), "--format", "json")
    assert (status, json.loads(printed)["rows"][0]["b"].endswith("-trace")) == (0, True)
    assert invoke("compare", str(CUDA_GRAPHS), str(tmp_path / "none.sqlite"))[0] == 2
    # A trace and a profile have no time in common; two profiles have that of their launches.
    counted = str(NCU_PAGE)
    assert invoke("compare", counted, str(CUDA_GRAPHS))[0] == 1
    status, printed = invoke("compare", counted, counted)
    assert (status, "PrefillWithKVCacheKernel           312.83  312.83   +0.00" in printed) == (0, True)


# Pairs


def case(workload: str, **params: Any) -> CaseEntry:
    return CaseEntry(
        f"{workload}[{','.join(f'{name}={value}' for name, value in params.items())}]", workload, params, 0, 0, 0
    )


def test_cases_are_paired_by_their_parameters() -> None:
    a = [case("p", batch=1, backend="fa2"), case("p", batch=2, backend="fa2"), case("n", rows=1), case("n", rows=2)]
    # Another backend throughout, a newer option, and nothing like n[rows=2].
    b = [case("p", batch=2, backend="fa3", fast=0), case("p", batch=1, backend="fa3", fast=0), case("n", rows=1)]
    pairs, only_a, only_b = pair_cases(a, b)
    assert [(pair.a.id, pair.b.id) for pair in pairs] == [
        ("p[batch=1,backend=fa2]", "p[batch=1,backend=fa3,fast=0]"),
        ("p[batch=2,backend=fa2]", "p[batch=2,backend=fa3,fast=0]"),
        ("n[rows=1]", "n[rows=1]"),
    ]
    assert pairs[0].different == (Different("backend", "fa2", "fa3"),)
    assert [[each.id for each in only] for only in (only_a, only_b)] == [["n[rows=2]"], []]
    # Two of a side that agree in the rest are no pair of either.
    assert pair_cases([case("p", x=1, y=1), case("p", x=1, y=2)], [case("p", x=2)])[0] == []


@dataclass(frozen=True)
class Named:
    kernel: str
    kernel_full: str
    total_us: float = 1.0


def test_kernels_are_matched_whatever_their_template_arguments() -> None:
    a = [
        Named("gemm", "void gemm<128, float>(int)", 5),
        Named("elementwise", "void elementwise<4, AddFunctor<float>>()"),
        Named("old", "old()", 2),
        Named("small", "small()"),
    ]
    b = [
        Named("gemm", "void gemm<256, half>(int)", 6),
        Named("elementwise", "void elementwise<4, MulFunctor<float>>()"),
        Named("small", "small()"),
    ]
    found = {(x and x.kernel_full[:25], y and y.kernel_full[:25], match) for x, y, match in pair_kernels(a, b)}
    assert found == {
        ("void gemm<128, float>(int", "void gemm<256, half>(int)", Match.RENAMED),
        ("small()", "small()", Match.SAME),
        ("void elementwise<4, AddFu", None, Match.GONE),
        (None, "void elementwise<4, MulFu", Match.NEW),
        ("old()", None, Match.GONE),
    }


# What differs


def _changed(name: str, into: Path, **settings: Any) -> Run:
    folder = copied(name, into)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["environment"]["gpu"]["name"] = settings.pop("gpu", manifest["environment"]["gpu"]["name"])
    manifest["settings"] |= settings
    (folder / "run.json").write_text(json.dumps(manifest))
    return Run(folder)


@pytest.mark.fault(
    "two runs of different GPUs are held against each other", "refused with one line, but for `--anyway`"
)
def test_another_gpu_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    run, other = parsed("all"), _changed("all", tmp_path, gpu="NVIDIA H100")
    assert invoke("compare", str(run.path), str(other.path)) == (1, "")
    status, printed = invoke("compare", str(run.path), str(other.path), "--anyway")
    assert (status, printed.startswith("! GPU differs (NVIDIA H200 · NVIDIA H100)")) == (0, True)


@pytest.mark.fault("ncu's clock or cache control differs between two runs", "its numbers are left out, and it is said")
def test_counters_under_other_conditions_are_not_compared(tmp_path: Path) -> None:
    a, b = ArchivedSide(parsed("all")), ArchivedSide(_changed("all", tmp_path, cache_control="none"))
    assert {kernel.factors for case in compare(a, b).cases for kernel in case.kernels} == {()}
    assert all(kernel.factors for case in compare(a, b, anyway=True).cases for kernel in case.kernels)


# The command


def test_the_command() -> None:
    path = str(parsed("decode").path)
    both = f"{path}:tensor_cores=false,batch=32", f"{path}:tensor_cores=true"
    status, printed = invoke("compare", *both, "--format", "json")
    (rows, schema) = (json.loads(printed)[key] for key in ("rows", "schema"))
    assert (status, schema) == (0, "compare/1")
    assert {row["about"] for row in rows} == {
        "side", "outcome", "case", "outside_kernels", "kernel", "verdict", "factor", "counter", "stall", "hot_code",
    }  # fmt: skip
    assert [row["item"] for row in rows if row["about"] == "outcome"] == ["cannot_tell"]
    (time,) = [row for row in rows if row["item"] == "case_plain_us"]
    assert [round(time[key], 2) for key in ("a", "b", "change")] == [92.78, 70.24, -22.54]
    assert invoke("compare", path, f"{path}:batch=7")[0] == 2
    assert invoke("compare", path, str(parsed("single-purpose").path))[0] == 1
    assert [invoke("compare", *both, "--format", format_)[0] for format_ in ("table", "csv", "md")] == [0, 0, 0]


def test_a_comment_folds_what_explains_and_a_page_draws_it(tmp_path: Path) -> None:
    path = parsed("prefill-decode-rope").path
    both, out = [f"{path}:backend={backend}" for backend in ("fa2", "fa3")], tmp_path / "page.html"
    status, comment = invoke("compare", *both, "--format", "md", "--out", str(out))
    explained = comment.partition("<details>")[2]
    assert (status, comment.count("<details>"), comment.count("</details>")) == (0, 1, 1)
    assert comment.startswith("prefill: B took 303.73 µs instead of 465.02 µs without a profiler (-161.30 µs, -34.7%).")
    assert "| warps in flight a scheduler | 1.95 | 3 | -162.31 |" in explained
    found = page(sides("prefill-decode-rope", "backend", "fa2", "fa3"))
    sections = [*found.sections, *(inner for section in found.sections for inner in section.sections)]
    charts = {block.anchor: block for section in sections for block in section.blocks if isinstance(block, Chart)}
    assert list(charts) == ["chart-case", "chart-factors", "case-0-0-explained-mix"]
    assert charts["chart-case"].text.splitlines()[0].split()[-3:-1] == ["-167.87", "µs"]
    assert out.read_text().endswith("</html>")


def test_everything_has_words() -> None:
    for kinds in (
        Absent,
        Change,
        ComparisonWarning,
        FactorChange,
        FactorKind,
        Match,
        Of,
        PartKind,
        Place,
        ProgramChange,
        ProgramWhy,
        Sure,
        Weight,
        Why,
    ):
        assert {f"{table_of(kinds)}.{each.name.lower()}" for each in kinds} <= set(templates())
