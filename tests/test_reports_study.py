"""fiprof/reports/study.py: the five documents of a study follow from its results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fiprof.analysis import claims
from fiprof.analysis.study import Study, load
from fiprof.flashinfer.results import SourceResults
from fiprof.model import packs
from fiprof.model.results import CaseResult, read, write
from fiprof.reports.markdown_html import Markdown, document_html, escape_markdown, grid
from fiprof.reports.study import documents, pages
from tests import study_fixture as fixture
from tests.recorded_runs import STUDY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write_study(tmp_path_factory.mktemp("study") / "study")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Study:
    return load(folder)


def changed(study: Study, change: fixture.Change) -> Study:
    results = (dataclasses.replace(r, cases=list(map(change, r.cases))) for r in study.results)
    return dataclasses.replace(study, results=tuple(results))


# Change the data, and what is found changes


def advice(study: Study, question: str) -> str:
    (only,) = [item for item in claims.choices(study)[0] if item.question == question]
    return only.advice(study)


FA3 = "Prefill by FA3 (GQA 32/8)"


def test_a_recommendation_turns_with_the_times(whole: Study) -> None:
    def slower(case: CaseResult) -> CaseResult:
        return fixture.scaled(case, 10.0) if case.plain and case.params.get("backend") == "fa3" else case

    def small_slower(case: CaseResult) -> CaseResult:
        small = case.params.get("seq_len") == 512 and case.params.get("batch") == 1
        return slower(case) if small else case

    def alike(case: CaseResult) -> CaseResult:
        return fixture.prefill_twin(case) if case.workload == "prefill" else case

    assert 'ass backend="fa3"' in advice(whole, FA3) and "fa2" not in advice(whole, FA3)
    assert 'ass backend="fa2"' in advice(changed(whole, slower), FA3)
    assert 'fa3"; but pass backend="fa2" at batch 1, sequence 512' in advice(changed(whole, small_slower), FA3)
    assert "backend" not in advice(changed(whole, alike), FA3)


# What is missing


def test_a_study_of_one_workload_says_nothing_of_others(tmp_path: Path) -> None:
    study = load(fixture.write_study(tmp_path / "study", only=["rmsnorm"], jit=None))
    assert (claims.choices(study), claims.results(study)) == (([], []), ())
    for name, text in pages(study).items():
        for word in ("Prefill", "FA3", "Not measured", "add_then", "#what-others", "fiprof jit"):
            assert word not in text or name == "kernel-dev-guide", (name, word)


def test_a_study_without_ncu_has_times_and_says_what_is_missing(whole: Study) -> None:
    study = changed(whole, lambda case: dataclasses.replace(case, kernels=[], ncu_us=None, plan={}))
    assert 'ass backend="fa3"' in advice(study, FA3)
    assert {item.title for item in packs.joined("study_sections", study) if item.absent} == {"Split-K's merge"}
    absences = {item.claim.name: item.absence.kind for item in claims.results(study) if item.absence}
    assert absences == {
        "prefill-compute-bound": "verdict",
        "decode-memory-bound": "verdict",
        "fusing-saves-traffic": "dram_bytes",
    }
    made = pages(study)
    assert "growth along batch" in made["analysis"] and "no grid, no counters" in made["analysis"]
    assert "ncu gave no verdict of any of these cases" in made["final-report"]


def test_a_study_whose_cases_were_all_skipped_still_has_its_documents(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", change=lambda case: fixture.skipped(case, "does not fit"))
    assert len(documents(folder)) == 11
    assert "does not fit" in (folder / "reports/final-report.md").read_text()


def test_an_incomplete_study_says_so_first(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["rope"], status="incomplete", missing={"prefill": 64})
    for name, text in pages(load(folder)).items():
        first = next(line for line in text.splitlines() if line.startswith(">"))
        assert "64 prefill" in first, name


def test_without_a_map_the_guide_says_so_and_with_that_of_another_version_too(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["decode"])
    assert "results/sources.json is missing" in pages(load(folder))["kernel-dev-guide"]
    sources = read(STUDY / "results/sources.json", SourceResults)
    write(folder / "results/sources.json", dataclasses.replace(sources, version="0.5.3"))
    guide = pages(load(folder))["kernel-dev-guide"]
    assert "These lines are those of flashinfer-python 0.5.3; measured was 0.6.13." in guide
    assert "is missing" not in guide


def test_a_users_own_workload_has_its_sections(tmp_path: Path) -> None:
    cases = [
        fixture.make_case("mine", {"size": size, "fast": fast}, 10.0 * size)
        for size in (1, 2, 4, 8)
        for fast in (False, True)
    ]
    made = pages(load(fixture.write_study(tmp_path / "study", {"mine": cases})))
    assert "### mine: parameters, and what each did" in made["kernel-dev-guide"]
    assert "### mine: growth along size" in made["analysis"] and "```vega-lite mine: time" in made["analysis"]


# Foreign names

HOSTILE = "<script>alert(1)</script> [a](javascript:x) **b** `c` | _d_ ![e](f) &amp; \\\n# g"


def test_names_from_the_profiled_program_are_text(tmp_path: Path) -> None:
    def change(case: CaseResult) -> CaseResult:
        kernels = [dataclasses.replace(k, kernel=HOSTILE) for k in case.kernels]
        return dataclasses.replace(case, kernels=kernels, skipped="")

    folder = fixture.write_study(tmp_path / "study", only=["rope"], change=change, title=HOSTILE)
    documents(folder)
    for path in (folder / "reports").glob("*.html"):
        text = path.read_text()
        assert "<script>alert(1)" not in text and 'href="javascript' not in text and "<h1># g" not in text, path


@pytest.mark.parametrize("text", [HOSTILE, "# a", "- b", "1. c", "fused_add_rmsnorm", "x\n\ny", "a=b", "~~s~~"])
def test_text_in_markdown_is_the_same_text_on_the_page(text: str) -> None:
    from html import unescape

    shown = document_html(f"# T\n\n{escape_markdown(text)}\n\n{grid('head', [(text,)])}", "T")
    kept = unescape(shown)
    expected = text.replace("\n", "\\n")
    assert f"<p>{expected}</p>" in kept and f"<td>{expected}</td>" in kept


def test_a_table_has_its_numbers_to_the_right_and_sorted_by_value() -> None:
    text = grid("name;time (µs)|,.1f", [("a", 1234.5), ("b", None), (Markdown("[c](x.md#y)"), 3.0)])
    assert text.splitlines()[1:3] == ["| ----------- | --------: |", "| a           |   1,234.5 |"]
    shown = document_html(f"# T\n\n## Part one\n\n{text}\n", "T")
    assert '<td class="n" data-o="1234.5">1,234.5</td>' in shown and 'href="x.html#y"' in shown
    assert '<section id="part-one">' in shown and '<a href="#part-one">Part one</a>' in shown
