"""The documents of the recorded study (artifacts/recorded/study-flashinfer-quick): its numbers, computed again from the JSON."""

from __future__ import annotations

import ast
import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fiprof.analysis import scaling
from fiprof.analysis.claims import Outcome
from fiprof.analysis.study import Study, load
from fiprof.flashinfer.claims import CLAIMS
from fiprof.flashinfer.data import guide as guide_data
from fiprof.reports.markdown_html import plain_markdown, slug
from fiprof.reports.study import DOCUMENTS, cases_csv, pages
from tests.conftest import REPOSITORY
from tests.recorded_runs import STUDY

FOLDER = STUDY
BY_NAME = {claim.name: claim for claim in CLAIMS}

# What the recorded study says. A study recorded anew says it anew, here and in README.md.

VERDICTS = {  # verdict, pairs or cases that hold, are above, below and unclear
    "prefill-compute-bound": ("overstated", 0, 0, 40, 8),
    "decode-memory-bound": ("depends", 57, 0, 45, 6),
    "gqa-faster": ("understated", 1, 47, 5, 1),
    "fusing-saves-traffic": ("overstated", 0, 0, 2, 0),
    "cos-sin-cache-faster": ("depends", 0, 2, 2, 0),
    "fa3-beats-fa2": ("confirmed", 32, 0, 0, 0),
    "tensor-cores-for-gqa": ("depends", 17, 0, 1, 0),
    "four-times-the-kv": ("depends", 44, 0, 28, 0),
}
CITED = {  # pairs, least, most, median
    "gqa-faster": (54, 0.713, 3.97, 2.73),
    "fa3-beats-fa2": (32, 1.062, 4.26, 1.490),
    "cos-sin-cache-faster": (4, 0.990, 5.10, 1.505),
    "four-times-the-kv": (72, 1.045, 4.04, 3.61),
}
SAVED = [0.148, 0.172]
LINES = (95, 59, 40, 0)  # fits, of four sizes or more, lines that hold among those, with an impossible intercept


@pytest.fixture(scope="module")
def recorded() -> Study:
    return load(FOLDER)


MADE = pages(load(FOLDER))


def rows(workload: str) -> list[dict[str, Any]]:
    """A file's cases, as JSON alone has them."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"results/{workload}.json").read_text())["cases"]
    return found


# Claims


def test_the_verdicts(recorded: Study) -> None:
    found = {claim.name: claim.result(recorded) for claim in CLAIMS}
    assert {name: (item.verdict, *map(item.counted, Outcome)) for name, item in found.items()} == VERDICTS


def rounds(workload: str, name: str, one: object, other: object) -> list[tuple[list[float], list[float]]]:
    """Each round's medians of cases that differ in one parameter alone, by the JSON."""
    found: dict[str, dict[object, list[float]]] = {}
    for case in rows(workload):
        key = json.dumps({k: v for k, v in case["params"].items() if k != name})
        found.setdefault(key, {})[case["params"][name]] = case["plain"]["round_medians_us"]
    return [(pair[one], pair[other]) for pair in found.values() if one in pair and other in pair]


PAIRS: dict[str, list[tuple[str, str, object, object]]] = {
    "gqa-faster": [("decode", "kv_heads", 32, 8)],
    "fa3-beats-fa2": [("prefill", "backend", "fa2", "fa3")],
    "cos-sin-cache-faster": [("rope", "variant", "inplace", "cos_sin_cache")],
    "four-times-the-kv": [("decode", "kv_len", 2048, 512), ("decode", "kv_len", 8192, 2048)],
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_ratios_of_a_claim_and_their_intervals_are_those_of_scipys_t_test(recorded: Study, name: str) -> None:
    pairs = [pair for what in PAIRS[name] for pair in rounds(*what)]
    theirs = []
    for one, other in pairs:
        test = stats.ttest_rel(np.log(one), np.log(other)).confidence_interval(1 - 0.05 / len(pairs))
        theirs.append((stats.gmean(np.array(one) / np.array(other)), np.exp(test.low), np.exp(test.high)))
    result = BY_NAME[name].result(recorded)
    ratios = [item.ratio for item in result.tested if item.ratio]
    found = sorted((ratio.value, ratio.low, ratio.high) for ratio in ratios)
    assert np.array(found) == pytest.approx(np.array(sorted(theirs)))
    assert result.effect is not None and result.effect.interval == pytest.approx(
        (np.median([low for _, low, _ in theirs]), np.median([high for *_, high in theirs]))
    )
    values = np.array([value for value, *_ in theirs])
    assert (len(values), *numbers(values)) == pytest.approx(CITED[name], rel=4e-3)


def numbers(values: np.ndarray) -> tuple[float, float, float]:
    return float(values.min()), float(values.max()), float(np.median(values))


def test_the_traffic_of_the_claims(recorded: Study) -> None:
    moved = {
        workload: {
            (c["params"]["rows"], c["params"]["hidden"]): sum(k["dram_bytes"] for k in c["kernels"])
            for c in rows(workload)
        }
        for workload in ("fused_add_rmsnorm", "add_then_rmsnorm")
    }
    sizes = ((4096, 4096), (4096, 8192))
    saved = [1 - moved["fused_add_rmsnorm"][size] / moved["add_then_rmsnorm"][size] for size in sizes]
    assert saved == pytest.approx(SAVED, abs=5e-4)
    tested = BY_NAME["fusing-saves-traffic"].result(recorded).tested
    assert [item.saving for item in tested] == pytest.approx(saved)


# Scaling


def test_every_recorded_fit_is_the_best_possible_one(recorded: Study) -> None:
    """By np.polyfit where its line is possible, else by trying the possible intercepts; from the JSON."""
    fitted = lines = holding = impossible = 0
    for workload in recorded.by_workload:
        for item in scaling.fits(recorded, workload):
            fitted += 1
            same = {k: v for k, v in item.cases[0].params.items() if k != item.axis}
            points = sorted(
                (case["params"][item.axis], case["plain"]["median_us"])
                for case in rows(workload)
                if {k: v for k, v in case["params"].items() if k != item.axis} == same
            )
            x, y = np.array(points, dtype=float).T
            if item.line is None or item.law is None:
                assert len(x) < 4
                continue
            lines += 1
            grown = x ** (2 if (workload, item.axis) == ("prefill", "seq_len") else 1)
            (slope, intercept), covariance = np.polyfit(grown, y, 1, w=1 / y, cov=True)
            found = item.line.intercept_us.value, item.line.slope_us.value
            if 0 <= intercept <= y.min() and slope >= 0:
                assert found == pytest.approx((intercept, slope), rel=1e-6)
            else:
                tried = np.linspace(0, y.min(), 401)
                assert _squares(grown, y, *found) <= min(_squares(grown, y, each) for each in tried) * (1 + 1e-9)
            half = stats.t.ppf(0.975, len(x) - 2) * np.sqrt(np.diag(covariance))
            ends = item.line.intercept_us.low, item.line.intercept_us.high
            assert ends == pytest.approx((max(intercept - half[1], 0), min(intercept + half[1], y.min())))
            line = found[0] + found[1] * grown
            assert item.line.worst.part == pytest.approx(max((y - line) / y, key=abs))
            (exponent, factor), spread = np.polyfit(np.log(x), np.log(y), 1, cov=True)
            wide = stats.t.ppf(0.975, len(x) - 2) * np.sqrt(spread[0, 0])
            law = item.law.exponent
            assert (law.value, law.low, law.high) == pytest.approx((exponent, exponent - wide, exponent + wide))
            assert item.law.worst.part == pytest.approx(max(1 - np.exp(factor) * x**exponent / y, key=abs))
            holding += item.line.holds
            impossible += not 0 <= found[0] <= y.min()
    assert (fitted, lines, holding, impossible) == LINES


def _squares(x: np.ndarray, y: np.ndarray, intercept: float, slope: float | None = None) -> float:
    """Of the relative residuals; without a slope, of the best one that is not negative."""
    best = max(((y - intercept) * x / y**2).sum() / (x**2 / y**2).sum(), 0.0) if slope is None else slope
    return float((((y - intercept - best * x) / y) ** 2).sum())


# The documents


def cells(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of a document."""
    below = text.partition(f"# {heading}\n")[2]
    lines = [line for line in below.partition("\n#")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_command_that_warms_the_cache_is_that_of_the_results() -> None:
    """With a statement or a call a line."""
    (command,) = json.loads((FOLDER / "results/jit_analysis.json").read_text())["warm_up"]
    text = (FOLDER / "reports/final-report.md").read_text()
    script = text.partition("Fill the cache with:\n\n```sh\n")[2].partition("\n```\n")[0]
    assert len(script.splitlines()) > 5
    assert ast.dump(ast.parse(shlex.split(script)[2])) == ast.dump(ast.parse(shlex.split(command)[2]))


def test_the_fits_and_choices_of_the_documents_are_those_of_the_json() -> None:
    (table,) = [row for row in cells(MADE["analysis"], "prefill: growth along batch") if row[0] == "GQA fa3"]
    points = sorted(
        (case["params"]["batch"], case["plain"]["median_us"])
        for case in rows("prefill")
        if (case["params"]["seq_len"], case["params"]["kv_heads"], case["params"]["backend"]) == (2048, 8, "fa3")
    )
    x, y = np.array(points).T
    slope, intercept = np.polyfit(x, y, 1, w=1 / y)
    assert (float(table[3].split()[0]), float(table[4].split()[0])) == pytest.approx((slope, intercept), rel=5e-3)
    gains = [np.median(one) / np.median(other) for one, other in rounds("prefill", "backend", "fa2", "fa3")]
    choices = {row[0]: row for row in cells(MADE["final-report"], "What to choose")}
    low, high = (float(choices["Prefill by FA3 (GQA 32/8)"][i].split()[0]) for i in (2, 3))
    assert low == pytest.approx(min(gains), rel=0.02) and high == pytest.approx(max(gains), rel=0.02)


def test_every_case_is_in_the_table_of_cases_with_its_time() -> None:
    found = list(csv.DictReader((FOLDER / "reports/cases.csv").open()))
    workloads = json.loads((FOLDER / "results/environment_info.json").read_text())["workloads"]
    times = [case["plain"]["median_us"] for workload in workloads for case in rows(workload)]
    assert [float(each["plain_us"]) for each in found] == pytest.approx(times, rel=1e-5)


def test_every_link_leads_somewhere() -> None:
    """In the committed documents: to a file that is there, and to a heading of it."""
    for name in DOCUMENTS:
        text = (FOLDER / f"reports/{name}.md").read_text()
        found = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", re.sub(r"(?ms)^```.*?^```", "", text))
        assert len(found) > 3
        for path, anchor in found:
            target = FOLDER / "reports" / (path or f"{name}.md")
            assert target.is_file(), (name, path)
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in map(slug, headings), (name, path, anchor)


def test_the_committed_documents_are_those_of_the_committed_results() -> None:
    """After a change of words: fiprof.reports.study.documents() over a copy, and the Markdown and cases.csv back."""
    for name, text in MADE.items():
        assert plain_markdown(text, f"{name}.html") == (FOLDER / f"reports/{name}.md").read_text(), name
    assert cases_csv(load(FOLDER)) == (FOLDER / "reports/cases.csv").read_text()


# The guide's code


def roots() -> list[Path]:
    return sorted(
        folder / "flashinfer" for folder in REPOSITORY.glob(".flashinfer/*") if (folder / "flashinfer").is_dir()
    )


@pytest.fixture(params=roots() or [Path()], ids=lambda root: root.parent.name or "none")
def installed(request: pytest.FixtureRequest) -> Path:
    if request.param == Path():
        pytest.skip("no FlashInfer in .flashinfer/VERSION")
    assert isinstance(request.param, Path)
    return request.param


def test_the_calls_of_the_guide_fit_the_installed_version(installed: Path) -> None:
    """Each function and method that a call names is there, with each of its keywords."""
    defined: dict[str, set[str]] = {}
    for path in installed.glob("**/*.py"):
        if path.parent == installed or path.parent.name == "norm":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    names = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
                    defined[node.name] = defined.get(node.name, set()) | names
    checked = 0
    for code in guide_data("calls").values():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner, name = ast.unparse(node.func.value), node.func.attr
                if owner in ("flashinfer", "wrapper", "graphed"):
                    known = defined["__init__" if name.endswith("Wrapper") else name]
                    assert {each.arg for each in node.keywords if each.arg} <= known, (name, known)
                    checked += 1
    assert checked >= 12
