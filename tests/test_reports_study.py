"""fiprof/reports/study*.py: the five documents of a study follow from its results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis import claims
from fiprof.analysis.study import Study, load
from fiprof.errors import FiprofError
from fiprof.flashinfer.results import SourceResults
from fiprof.model import packs
from fiprof.model.results import CaseResult, read, write
from fiprof.reports.pages.page import (
    Block,
    Bullets,
    Caution,
    Link,
    Observation,
    Page,
    PageLink,
    RowLink,
    Section,
    Table,
    Text,
)
from fiprof.reports.study import DOCUMENTS, documents, pages
from fiprof.reports.study_pages import choices
from fiprof.reports.study_pages.choices import Chosen
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.kernel_findings import next_step
from fiprof.reports.study_pages.names import cite, run_link
from tests import study_fixture as fixture
from tests.pages import anchors
from tests.recorded_runs import STUDY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write_study(tmp_path_factory.mktemp("study") / "study")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Study:
    return load(folder)


@pytest.fixture(scope="module")
def made(whole: Study) -> dict[str, Page]:
    return pages(whole)


def sections(parts: tuple[Section, ...]) -> list[Section]:
    return [found for part in parts for found in (part, *sections(part.sections))]


def blocks(page: Page) -> list[Block]:
    return [block for section in sections(page.sections) for block in section.blocks]


def sentences(page: Page) -> str:
    """Every paragraph, bullet and finding of a page."""
    lines: list[str] = []
    for block in blocks(page):
        match block:
            case Text():
                lines.append("".join(block.parts))
            case Bullets():
                lines += ["".join(item.parts) for item in block.items]
            case Observation():
                lines += [block.observation, *block.evidence, block.implication]
            case _:
                pass
    return "\n".join(lines)


def links(page: Page) -> list[Link]:
    found: list[Link] = list(page.links)
    for block in blocks(page):
        texts = block.items if isinstance(block, Bullets) else (block,) if isinstance(block, Text) else ()
        found += [part for text in texts for part in text.parts if isinstance(part, Link)]
        if isinstance(block, Table):
            found += [value for row in block.view.rows for value in row if isinstance(value, Link)]
    return found


# The whole


def test_five_documents_in_both_forms(folder: Path) -> None:
    written = documents(folder)
    assert [path.name for path in written] == [f"{name}{suffix}" for name in DOCUMENTS for suffix in (".md", ".html")]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert "NVIDIA H200" in text
        if path.suffix == ".md":
            long = [line for line in text.splitlines() if len(line) > 100 and "](" not in line and "'" not in line]
            assert long == []


def test_every_link_leads_somewhere(made: dict[str, Page]) -> None:
    for page in made.values():
        assert len(set(anchors(page))) == len(anchors(page))
        for link in links(page):
            path, _, anchor = link.href.partition("#")
            if isinstance(link, PageLink) or not path:
                target = made[path] if path else page
                assert not anchor or anchor in anchors(target), link.href
                assert not isinstance(link, RowLink) or link.row in anchors(target), link.row


def test_a_case_leads_to_its_row_and_a_run_to_its_page(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["rope"])
    study = load(folder)
    link = cite(study, study.of("rope")[0])
    assert isinstance(link, RowLink)
    assert (link.href, link.row) == ("analysis#cases-rope", "case-rope-512-cos-sin-cache")
    name = study.of("rope")[0].run
    assert not isinstance(run_link(study, name), Link)
    run = folder / name
    run.mkdir()
    (run / "run.json").write_text((STUDY / name / "run.json").read_text())
    assert run_link(study, name).href == f"../{name}/run.json"  # type: ignore[attr-defined]
    for suffix in ("md", "html"):
        (run / f"report.{suffix}").write_text("")
    found = run_link(study, name)
    assert isinstance(found, PageLink) and found.href == f"../{name}/report"
    assert found.href in {link.href for link in links(pages(study)["analysis"])}


def test_every_case_is_in_the_analysis_with_its_time(whole: Study, made: dict[str, Page]) -> None:
    tables = {b.anchor: b.view for b in blocks(made["analysis"]) if isinstance(b, Table)}
    for workload, cases in whole.by_workload.items():
        rows = tables[f"cases-{workload}"].rows
        assert len(rows) == len(cases)
        assert sorted(str(row[1]) for row in rows) == sorted(
            str(case.plain.median_us if case.plain else None) for case in cases
        )


# Change the data, and what is found changes


def found(study: Study, anchor: str) -> StudyFinding:
    (only,) = [item for item in packs.joined("findings", study) if item.finding.anchor == anchor]
    assert isinstance(only, StudyFinding)
    return only


def chosen(study: Study, anchor: str) -> Chosen:
    (only,) = [item for item in choices.choices(study)[0] if item.anchor == anchor]
    return only


def changed(study: Study, change: fixture.Change) -> Study:
    results = (dataclasses.replace(r, cases=list(map(change, r.cases))) for r in study.results)
    return dataclasses.replace(study, results=tuple(results))


def advice(study: Study, anchor: str) -> str:
    return choices.advice(study, chosen(study, anchor))


def test_a_recommendation_turns_with_the_times(whole: Study) -> None:
    def slower(case: CaseResult) -> CaseResult:
        return fixture.scaled(case, 10.0) if case.plain and case.params.get("backend") == "fa3" else case

    def small_slower(case: CaseResult) -> CaseResult:
        small = case.params.get("seq_len") == 512 and case.params.get("batch") == 1
        return slower(case) if small else case

    def alike(case: CaseResult) -> CaseResult:
        return fixture.prefill_twin(case) if case.workload == "prefill" else case

    anchor = "prefill-backend-gqa-32-8"
    assert 'ass backend="fa3"' in advice(whole, anchor) and "fa2" not in advice(whole, anchor)
    assert 'ass backend="fa2"' in advice(changed(whole, slower), anchor)
    assert 'fa3"; but pass backend="fa2" at batch 1, sequence 512' in advice(changed(whole, small_slower), anchor)
    assert "backend" not in advice(changed(whole, alike), anchor)


def test_a_difference_that_is_sure_but_small_is_no_reason(whole: Study) -> None:
    def change(case: CaseResult) -> CaseResult:
        if case.workload != "rope" or case.plain is None:
            return case
        us = 50 * (1.0 if case.params["variant"] == "inplace" else 0.985)
        return dataclasses.replace(case, plain=fixture.times(us, relative=0.001))

    assert "cos/sin" not in advice(changed(whole, change), "rope-cache")


def test_what_to_do_follows_from_verdict_roof_and_stalls(whole: Study) -> None:
    def of(**changes: Any) -> tuple[str, str, float]:
        case = whole.of("rope")[0]
        return next_step(dataclasses.replace(case, kernels=[dataclasses.replace(k, **changes) for k in case.kernels]))

    stalls = {"barrier": 0.6, "selected": 0.4}
    memory, launch = fixture.verdict("memory"), fixture.verdict("launch")
    assert of(stalls=stalls, verdict=launch, roof_share=0.5) == ("launch", "", 0.0)
    assert of(stalls=stalls, verdict=memory, roof_share=0.93, roof="DRAM") == ("near_roof", "DRAM", 0.93)
    assert of(stalls=stalls, verdict=memory, roof_share=0.5) == ("stall", "barrier", 0.6)
    assert of(stalls={}, verdict=memory, roof_share=0.5) == ("no_stalls", "", 0.0)


def test_throughput_names_the_smallest_batch_near_the_best(whole: Study) -> None:
    (table,) = [block for block in found(whole, "decode-batch").blocks if isinstance(block, Table)]
    for kv_len, row in zip((512, 2048, 8192), table.view.rows, strict=True):
        cases = [case for case in whole.of("decode") if case.params["kv_len"] == kv_len]
        best = max(cases, key=lambda case: case.tokens_per_second or 0)
        line = [case for case in cases if {**case.params, "batch": 0} == {**best.params, "batch": 0}]
        near = [
            case.params["batch"]
            for case in line
            if (case.tokens_per_second or 0) >= 0.9 * (best.tokens_per_second or 0)
        ]
        assert str(row[1]) == str(min(map(int, near)))


# What is missing


def test_a_study_of_one_workload_says_nothing_of_others(tmp_path: Path) -> None:
    study = load(fixture.write_study(tmp_path / "study", only=["rmsnorm"], jit=None))
    assert (choices.choices(study), claims.results(study), packs.joined("findings", study)) == (([], []), (), [])
    for name, page in pages(study).items():
        text = f"{sentences(page)}{[section.anchor for section in sections(page.sections)]}"
        for word in ("decode", "prefill", "rope", "KV", "FA3", "claim", "Not measured", "fiprof jit", "add_then"):
            assert word not in text, (name, word)


def test_a_study_without_ncu_has_times_and_says_what_is_missing(whole: Study) -> None:
    study = changed(whole, lambda case: dataclasses.replace(case, kernels=[], ncu_us=None, plan={}))
    assert 'ass backend="fa3"' in advice(study, "prefill-backend-gqa-32-8")
    assert {item.finding.anchor for item in packs.joined("findings", study) if item.absent} == {"decode-merge"}
    absences = {item.claim.name: item.absence.why for item in claims.results(study) if item.absence}
    assert absences == {
        "prefill-compute-bound": "verdict",
        "decode-memory-bound": "verdict",
        "fusing-saves-traffic": "dram_bytes",
    }
    made = pages(study)
    assert "chart-decode-batch" in anchors(made["analysis"])
    assert "launches-decode" not in anchors(made["analysis"])


def test_a_study_whose_cases_were_all_skipped_still_has_its_documents(tmp_path: Path) -> None:
    def change(case: CaseResult) -> CaseResult:
        return fixture.skipped(case, "does not fit")

    folder = fixture.write_study(tmp_path / "study", change=change)
    assert len(documents(folder)) == 10
    assert "does not fit" in (folder / "reports/final-report.md").read_text()


def test_an_incomplete_study_says_so_first(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["rope"], status="incomplete", missing={"prefill": 64})
    made = pages(load(folder))
    for name in ("INDEX", "final-report"):
        (first, *_) = [block.text for block in blocks(made[name]) if isinstance(block, Caution)]
        assert "64 prefill" in first


def test_no_results_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match=r"environment_info\.json cannot be read"):
        documents(tmp_path)
    assert not (tmp_path / "reports").exists()


# Where the code lives


def test_without_a_map_the_guide_says_so_and_with_that_of_another_version_too(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["decode"])
    documents(folder)
    assert "results/sources.json is missing" in (folder / "reports/kernel-dev-guide.md").read_text()
    sources = read(STUDY / "results/sources.json", SourceResults)
    write(folder / "results/sources.json", dataclasses.replace(sources, version="0.5.3"))
    documents(folder)
    guide = (folder / "reports/kernel-dev-guide.md").read_text()
    assert "These lines are those of flashinfer-python 0.5.3; measured was 0.6.13." in guide
    assert "is missing" not in guide


# Foreign names


def test_names_from_the_profiled_program_are_text(tmp_path: Path) -> None:
    def change(case: CaseResult) -> CaseResult:
        kernels = [dataclasses.replace(k, kernel="<script>alert(1)</script>|`x`") for k in case.kernels]
        return dataclasses.replace(case, kernels=kernels, skipped="")

    folder = fixture.write_study(tmp_path / "study", only=["rope"], change=change)
    documents(folder)
    for path in (folder / "reports").glob("*.html"):
        assert "<script>alert(1)" not in path.read_text()


def test_a_users_own_workload_has_its_sections(tmp_path: Path) -> None:
    cases = [
        fixture.make_case("mine", {"size": size, "fast": fast}, 10.0 * size)
        for size in (1, 2, 4, 8)
        for fast in (False, True)
    ]
    folder = fixture.write_study(tmp_path / "study", {"mine": cases})
    made = pages(load(folder))
    assert {"mine-parameters", "effects-mine"} <= set(anchors(made["kernel-dev-guide"]))
    assert {"chart-mine-size", "fits-mine-size"} <= set(anchors(made["analysis"]))
