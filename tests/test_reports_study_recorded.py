"""The documents of the recorded study (artifacts/recorded/study-flashinfer-quick): its numbers, computed again from the JSON."""

from __future__ import annotations

import ast
import dataclasses
import json
import shlex
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiprof.analysis import scaling
from fiprof.analysis.claims import Outcome
from fiprof.analysis.study import Study, load
from fiprof.flashinfer.claims import CLAIMS
from fiprof.flashinfer.jit.pages import load as load_jit
from fiprof.model.results import CaseResult, KernelResults, read
from fiprof.reports.pages import markdown
from fiprof.reports.pages.page import Chart
from fiprof.reports.study import DOCUMENTS, findings, pages
from tests import study_fixture as fixture
from tests.recorded_runs import STUDY

FOLDER = STUDY
BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.fixture(scope="module")
def recorded() -> Study:
    return load(FOLDER)


def rows(workload: str) -> list[dict[str, Any]]:
    """A file's cases, as JSON alone has them."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"results/{workload}.json").read_text())["cases"]
    return found


def ratios(workload: str, name: str, one: object, other: object) -> np.ndarray:
    """Plain medians of cases that differ in one parameter alone, one over the other, by the JSON."""
    found: dict[str, dict[object, float]] = {}
    for case in rows(workload):
        key = json.dumps({k: v for k, v in case["params"].items() if k != name})
        found.setdefault(key, {})[case["params"][name]] = case["plain"]["median_us"]
    return np.array([pair[one] / pair[other] for pair in found.values() if one in pair and other in pair])


def changed(study: Study, change: Callable[[CaseResult], CaseResult]) -> Study:
    return dataclasses.replace(
        study,
        results=tuple(dataclasses.replace(r, cases=[change(case) for case in r.cases]) for r in study.results),
    )


# Claims


def test_the_verdicts(recorded: Study) -> None:
    found = {claim.name: claim.result(recorded) for claim in CLAIMS}
    assert {name: (item.verdict, *map(item.counted, Outcome)) for name, item in found.items()} == {
        "prefill-compute-bound": ("partly", 4, 44, 0, 0),
        "decode-memory-bound": ("refuted", 59, 18, 31, 0),
        "gqa-faster": ("refuted", 1, 0, 53, 0),
        "fusing-saves-traffic": ("refuted", 0, 0, 2, 0),
        "cos-sin-cache-faster": ("refuted", 0, 0, 4, 0),
        "fa3-beats-fa2": ("confirmed", 32, 0, 0, 0),
        "tensor-cores-for-gqa": ("partly", 17, 0, 1, 0),
        "four-times-the-kv": ("partly", 44, 0, 28, 0),
        "four-times-the-sequence": ("refuted", 0, 0, 32, 0),
    }


def numbers(values: np.ndarray) -> tuple[float, float, float]:
    return float(values.min()), float(values.max()), float(np.median(values))


def test_the_numbers_of_the_claims(recorded: Study) -> None:
    """Computed again from the JSON, and the figures that the README cites."""
    longer = [ratios("decode", "kv_len", 4 * n, n) for n in (512, 2048)]
    growth = [ratios("prefill", "seq_len", 4 * n, n) for n in (512, 1024)]
    expected = {
        "gqa-faster": (ratios("decode", "kv_heads", 32, 8), 54, (0.714, 3.97, 2.73)),
        "fa3-beats-fa2": (ratios("prefill", "backend", "fa2", "fa3"), 32, (1.06, 4.25, 1.49)),
        "cos-sin-cache-faster": (ratios("rope", "variant", "inplace", "cos_sin_cache"), 4, (0.990, 5.09, 1.50)),
        "four-times-the-kv": (np.concatenate(longer), 72, (1.05, 4.05, 3.61)),
        "four-times-the-sequence": (np.concatenate(growth), 32, (2.78, 13.4, 9.12)),
    }
    for name, (values, pairs, cited) in expected.items():
        found = np.array([ratio.value for ratio in BY_NAME[name].result(recorded).ratios])
        assert np.sort(found) == pytest.approx(np.sort(values)), name
        assert len(found) == pairs, name
        assert numbers(found) == pytest.approx(cited, rel=4e-3), name
    moved = {
        workload: {
            (c["params"]["rows"], c["params"]["hidden"]): sum(k["dram_bytes"] for k in c["kernels"])
            for c in rows(workload)
        }
        for workload in ("fused_add_rmsnorm", "add_then_rmsnorm")
    }
    sizes = ((4096, 4096), (4096, 8192))
    saved = [1 - moved["fused_add_rmsnorm"][size] / moved["add_then_rmsnorm"][size] for size in sizes]
    assert saved == pytest.approx([0.148, 0.172], abs=5e-4)
    assert BY_NAME["fusing-saves-traffic"].result(recorded).savings == pytest.approx(saved)


def test_the_bounds_of_the_claims(recorded: Study) -> None:
    def kinds(name: str) -> Counter[tuple[str, str]]:
        kernels = BY_NAME[name].result(recorded).kernels
        return Counter((kernel.verdict.kind, kernel.roof_kind or "") for kernel in kernels if kernel.verdict)

    assert kinds("prefill-compute-bound") == {
        ("latency", "compute"): 37,
        ("imbalance", "compute"): 7,
        ("compute", "compute"): 4,
    }
    assert sum(n for (kind, _), n in kinds("decode-memory-bound").items() if kind == "memory") == 59


def judged(kind: str, roof_kind: str) -> Callable[[CaseResult], CaseResult]:
    def change(case: CaseResult) -> CaseResult:
        kernels = [dataclasses.replace(k, verdict=fixture.verdict(kind), roof_kind=roof_kind) for k in case.kernels]
        return dataclasses.replace(case, kernels=kernels)

    return change


def timed(case: CaseResult, us: float) -> CaseResult:
    return dataclasses.replace(case, plain=fixture.times(us, relative=0.001))


def by_power(axis: str, growth: float) -> Callable[[CaseResult], CaseResult]:
    """The time grows by so much for four times the axis."""
    exponent = np.log(growth) / np.log(4)
    return lambda case: timed(case, float(case.params[axis]) ** exponent) if axis in case.params else case


def where(name: str, value: object, factor: float) -> Callable[[CaseResult], CaseResult]:
    """Cases with this value take so much longer than 100 µs, all others 100 µs."""
    return lambda case: timed(case, 100 * factor if case.params.get(name) == value else 100)


def traffic(factor: float) -> Callable[[CaseResult], CaseResult]:
    """Each kernel of the fused workload moves so much of 100 MB, those of the two operations 50 MB."""

    def change(case: CaseResult) -> CaseResult:
        each = factor * 1e8 if case.workload == "fused_add_rmsnorm" else 5e7
        return dataclasses.replace(case, kernels=[dataclasses.replace(k, dram_bytes=each) for k in case.kernels])

    return change


@pytest.mark.parametrize(
    ("name", "change", "verdict", "holds"),
    [
        ("prefill-compute-bound", judged("compute", "compute"), "confirmed", 48),
        ("prefill-compute-bound", judged("memory", "memory"), "refuted", 0),
        ("decode-memory-bound", judged("memory", "memory"), "confirmed", 108),
        ("gqa-faster", where("kv_heads", 32, 1.5), "confirmed", 54),
        ("gqa-faster", where("kv_heads", 32, 0.9), "refuted", 0),
        ("fusing-saves-traffic", traffic(0.6), "confirmed", 2),
        ("fusing-saves-traffic", traffic(0.9), "refuted", 0),
        ("cos-sin-cache-faster", where("variant", "inplace", 1.075), "confirmed", 4),
        ("cos-sin-cache-faster", where("variant", "inplace", 1.0), "refuted", 0),
        ("fa3-beats-fa2", where("backend", "fa2", 0.8), "refuted", 0),
        ("fa3-beats-fa2", where("backend", "fa2", 1.0), "undecided", 0),
        ("four-times-the-kv", by_power("kv_len", 3.8), "confirmed", 72),
        ("four-times-the-kv", by_power("kv_len", 2.0), "refuted", 0),
        ("four-times-the-sequence", by_power("seq_len", 3.8), "confirmed", 32),
    ],
)
def test_change_the_recorded_data_and_the_verdict_changes(
    recorded: Study, name: str, change: Callable[[CaseResult], CaseResult], verdict: str, holds: int
) -> None:
    after = BY_NAME[name].result(changed(recorded, change))
    assert (after.verdict, after.counted(Outcome.HOLDS)) == (verdict, holds)


# Scaling


def test_every_recorded_fit_is_that_of_polyfit(recorded: Study) -> None:
    fitted = 0
    for workload in recorded.by_workload:
        for item in scaling.fits(recorded, workload):
            same = {k: v for k, v in item.cases[0].params.items() if k != item.axis}
            points = sorted(
                (case["params"][item.axis], case["plain"]["median_us"])
                for case in rows(workload)
                if {k: v for k, v in case["params"].items() if k != item.axis} == same
            )
            x, y = np.array(points, dtype=float).T
            x = x ** (2 if (workload, item.axis) == ("prefill", "seq_len") else 1)
            (slope, intercept), covariance = np.polyfit(x, y, 1), _covariance(x, y)
            assert (item.slope_us, item.intercept_us) == pytest.approx((slope, intercept), rel=1e-6)
            line = slope * x + intercept
            assert item.r_squared == pytest.approx(1 - ((y - line) ** 2).sum() / ((y - y.mean()) ** 2).sum(), abs=1e-9)
            # Half of the interval over the standard error is Student's t, the same for slope and intercept.
            errors = np.array([item.slope_error_us, item.intercept_error_us]) / np.sqrt(np.diag(covariance))
            assert errors[0] == pytest.approx(errors[1])
            assert errors[0] == pytest.approx({3: 12.706, 4: 4.3027, 5: 3.1824, 6: 2.7764}[len(x)], rel=1e-4)
            fitted += 1
    # 18 + 36 of decode, 16 + 16 of prefill, 2 of each norm, 3 of rope.
    assert fitted == 95


def _covariance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of slope and intercept, by the design matrix."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    residuals = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    covariance: np.ndarray = np.linalg.inv(design.T @ design) * (residuals @ residuals) / (len(x) - 2)
    return covariance


# Findings


def finding(study: Study, anchor: str) -> str:
    everything = [item for group in findings(study) for item in group]
    (found,) = [item.finding for item in everything if item.finding.anchor == anchor]
    return "\n".join([found.observation, *found.evidence, found.implication])


def test_rounds_without_levels_say_nothing_of_levels(recorded: Study) -> None:
    def even(case: CaseResult) -> CaseResult:
        return timed(case, case.plain.median_us) if case.plain else case

    study = changed(recorded, even)
    assert "two-levels" not in [item.finding.anchor for item in findings(study)[1]]


def test_the_command_that_warms_the_cache_is_that_of_the_results(recorded: Study) -> None:
    """Written as a script that people can read, in a document that wraps lines."""
    jit = load_jit(recorded)
    assert jit is not None
    (command,) = jit.warm_up
    for name in ("final-report", "analysis"):
        text = (FOLDER / f"reports/{name}.md").read_text()
        script = text.partition("python - <<'END'\n")[2].partition("\nEND\n")[0]
        assert ast.dump(ast.parse(script)) == ast.dump(ast.parse(shlex.split(command)[2]))


def test_a_roofline_has_dots_for_cases_and_lines_for_roofs(recorded: Study) -> None:
    charts = {
        block.anchor: block
        for section in pages(recorded)["analysis"].sections
        for part in section.sections
        for block in part.blocks
        if isinstance(block, Chart)
    }
    traces = charts["chart-prefill-roofline"].figure().data
    assert {trace.mode for trace in traces if trace.name and "fa" in trace.name} == {"markers"}
    assert [trace.mode for trace in traces if trace.name == "DRAM roof"] == ["lines"]
    texts = [text for trace in traces if trace.mode == "lines+text" for text in trace.text if text]
    assert [text.partition(" roof")[0] for text in texts] == ["tensor fp16 mma", "tensor fp16"]


# The guide


# The whole


def test_the_committed_documents_are_those_of_the_committed_results(recorded: Study) -> None:
    """After a change of words: fiprof.reports.study.documents() over a copy, and the Markdown back."""
    for name, page in pages(recorded).items():
        assert markdown.render(page, whole=f"{name}.html") == (FOLDER / f"reports/{name}.md").read_text(), name
    assert {path.stem for path in (FOLDER / "reports").glob("*.md")} == set(DOCUMENTS)


def test_every_measured_case_is_complete() -> None:
    info = json.loads((FOLDER / "results/environment_info.json").read_text())
    cases = [
        case
        for path in sorted((FOLDER / "results").glob("*.json"))
        if path.stem in info["workloads"]
        for case in read(path, KernelResults).cases
    ]
    assert len(cases) == 214
    for case in cases:
        assert case.plain and case.nsys and case.kernels and case.ncu_us and case.relative_error is not None
        assert (case.plain.rounds, case.nsys.rounds) == (6, 6)
        assert case.tokens_per_second and case.tflops is not None and case.gb_per_s
        for kernel in case.kernels:
            assert sum(kernel.stalls.values()) == pytest.approx(1, abs=0.02)
            assert kernel.verdict and kernel.achieved_occupancy_pct is not None
