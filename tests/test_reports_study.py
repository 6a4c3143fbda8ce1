"""fiprof/reports/study*.py: the five documents of a study follow from its results."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.model.results import Cell
from fiprof.reports.pages.page import (
    Block,
    Bullets,
    Caution,
    Chart,
    Link,
    Observation,
    Page,
    PageLink,
    Section,
    Table,
    Text,
    anchors,
)
from fiprof.reports.study import documents, pages
from fiprof.reports.study_pages import findings
from fiprof.reports.study_pages import guide as study_guide
from fiprof.reports.study_pages.analysis import imbalance, split_factor
from fiprof.reports.study_pages.data import DOCUMENTS, Side, Study, load, pairs
from fiprof.reports.study_pages.environment import drift
from fiprof.reports.study_pages.kernel_findings import merge_share
from fiprof.reports.study_pages.levels import between, levels
from tests import study_fixture as fixture


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


def final(tmp_path: Path, name: str, change: fixture.Change) -> str:
    return sentences(pages(load(fixture.write_study(tmp_path / name, change=change)))["final-report"])


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


def test_cells_link_to_their_run_where_it_is_there(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["rope"])
    run = folder / "20261201-100500-rope"
    run.mkdir()
    (run / "run.json").write_text("{}")
    study = load(folder)
    assert study.cite(study.of("rope")[0]).href == "../20261201-100500-rope/run.json"
    for suffix in ("md", "html"):
        (run / f"report.{suffix}").write_text("")
    link = study.cite(study.of("rope")[0])
    assert isinstance(link, PageLink) and link.href == "../20261201-100500-rope/report"
    assert link.href in {link.href for link in links(pages(study)["final-report"])}


def test_every_cell_is_in_the_analysis_with_its_time(whole: Study, made: dict[str, Page]) -> None:
    tables = {b.anchor: b.view for b in blocks(made["analysis"]) if isinstance(b, Table)}
    for workload, cells in whole.by_workload.items():
        rows = tables[f"cells-{workload}"].rows
        assert len(rows) == len(cells)
        assert sorted(str(row[1]) for row in rows) == sorted(
            str(cell.plain.median_us if cell.plain else None) for cell in cells
        )


def test_every_axis_has_a_chart_with_every_measured_size(made: dict[str, Page]) -> None:
    charts = {block.anchor: block for block in blocks(made["analysis"]) if isinstance(block, Chart)}
    assert charts.keys() >= {"chart-decode-batch", "chart-decode-kv_len", "chart-prefill-seq_len", "chart-rope-tokens"}
    figure = charts["chart-decode-batch"].figure()
    assert {x for trace in figure.data for x in trace.x} == {1, 8, 32, 64, 128, 256}


# Change the data, and the sentence changes


def test_a_recommendation_turns_with_the_times(tmp_path: Path, made: dict[str, Page]) -> None:
    def slower(cell: Cell) -> Cell:
        return fixture.scaled(cell, 3.0) if cell.plain and cell.params.get("backend") == "fa3" else cell

    def alike(cell: Cell) -> Cell:
        return fixture.prefill_twin(cell) if cell.workload == "prefill" else cell

    before = sentences(made["final-report"])
    assert re.search(r'Prefill by FA3 \(GQA 32/8\), [\d., a-z]+ times as fast as FA2: pass backend="fa3"', before)
    after = final(tmp_path, "slower", slower)
    assert 'times as fast as FA2: pass backend="fa2": nothing was faster with FA3.' in after
    assert "«FA3 beats FA2» is refuted" in after
    even = final(tmp_path, "alike", alike)
    assert "times as fast as FA2: no difference was seen: choose by something else." in even
    assert "«FA3 beats FA2» is undecided" in even


def test_sizes_at_which_the_recommendation_is_another_are_named(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        small = cell.params.get("seq_len") == 512 and cell.params.get("batch") == 1
        return fixture.scaled(cell, 3.0) if small and cell.params["backend"] == "fa3" else cell

    text = final(tmp_path, "small", change)
    assert 'pass backend="fa3"; but pass backend="fa2" at batch 1, sequence 512.' in text


def test_a_difference_that_is_sure_but_small_is_no_reason(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        if cell.workload != "rope" or cell.plain is None:
            return cell
        factor = 1.0 if cell.params["variant"] == "inplace" else 0.985
        us = 50 * factor
        return dataclasses.replace(cell, plain=fixture.times(us, relative=0.001))

    text = final(tmp_path, "rope", change)
    assert "Differences were seen, and the largest is 1.5%: choose by something else." in text


def test_numbers_of_the_findings_are_those_of_the_cells(whole: Study) -> None:
    (found,) = [f for f in findings.serving(whole) if f.finding.anchor == "prefill-backend-mha-32-32"]
    old, new = (
        Side("prefill", (("backend", "fa2"), ("kv_heads", 32))),
        Side("prefill", (("backend", "fa3"), ("kv_heads", 32))),
    )
    ratios = sorted(a.plain.median_us / b.plain.median_us for a, b in pairs(whole, old, new) if a.plain and b.plain)
    assert f"{ratios[0]:.2f} to {ratios[-1]:.2f}" in found.finding.observation
    assert "faster in 16 of 16 pairs" in found.finding.observation


def test_the_roof_finding_names_the_stall_that_is_there(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        kernels = [dataclasses.replace(k, stalls={"barrier": 0.6, "selected": 0.4}) for k in cell.kernels]
        return dataclasses.replace(cell, kernels=kernels)

    text = final(tmp_path, "barrier", change)
    assert "What its warps wait for most is barrier (60%)." in text
    assert "long_scoreboard" not in text


def test_what_a_verdict_says_goes_before_the_stalls(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        return dataclasses.replace(cell, kernels=[dataclasses.replace(k, verdict="launch-bound") for k in cell.kernels])

    text = final(tmp_path, "launch", change)
    assert "The GPU waits for the host there" in text
    assert "What its warps wait for most" not in text


def test_a_cuda_graph_is_advised_where_the_host_is_waited_for_and_it_helps(tmp_path: Path) -> None:
    def busy(cell: Cell) -> Cell:
        return dataclasses.replace(cell, waiting_pct=None if cell.waiting_pct is None else 3.0)

    def useless(cell: Cell) -> Cell:
        return dataclasses.replace(cell, waiting_pct=60.0, wall_us=50.0) if cell.workload == "decode" else cell

    assert "The host keeps the GPU busy at all these sizes." in final(tmp_path, "busy", busy)
    assert "a CUDA graph made it no faster" in final(tmp_path, "useless", useless)


def test_the_merge_is_the_kernel_of_that_name_even_where_it_is_the_longer_one() -> None:
    cell = fixture.decode(1, 512, 8, tensor_cores=False, cuda_graph=False)
    main, merge = cell.kernels
    longer = dataclasses.replace(
        cell, kernels=[main, dataclasses.replace(merge, duration_us=2 * (main.duration_us or 0))]
    )
    assert merge_share(longer) == pytest.approx(2 / 3)
    assert merge_share(dataclasses.replace(cell, kernels=[main])) is None
    assert merge_share(fixture.norm("add_then_rmsnorm", 512, 4096)) is None


def test_near_the_roof_there_is_little_left(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        return dataclasses.replace(cell, kernels=[dataclasses.replace(k, roof_share=0.93) for k in cell.kernels])

    assert "At 93% of the DRAM roof there is little left but to need less of it." in final(tmp_path, "near", change)


def test_throughput_names_the_smallest_batch_near_the_best(whole: Study) -> None:
    (found,) = [f for f in findings.serving(whole) if f.finding.anchor == "decode-batch"]
    at_2048 = next(text for text in found.finding.evidence if text.startswith("KV 2,048"))
    named = re.search(r"batch (\d+) is the smallest within 10% of that", at_2048)
    assert named is not None
    best = max((c for c in whole.of("decode") if c.params["kv_len"] == 2048), key=lambda c: c.tokens_per_second or 0)
    line = [
        c for c in whole.of("decode")
        if {**c.params, "batch": 0} == {**best.params, "batch": 0}
    ]  # fmt: skip
    near = [int(c.params["batch"]) for c in line if (c.tokens_per_second or 0) >= 0.9 * (best.tokens_per_second or 0)]
    assert int(named[1]) == min(near)


# What is missing


def test_a_study_of_one_kernel_says_what_it_did_not_measure(tmp_path: Path) -> None:
    made = pages(load(fixture.write_study(tmp_path / "study", only=["decode"], jit=None)))
    text = sentences(made["final-report"])
    assert "Prefill by FA3: not measured, because the study has no prefill cells." in text
    assert "the study has no results of fiprof jit" in text
    assert "«FA3 beats FA2» was not measured: the study has no prefill cells." in text
    headings = [section.title for section in sections(made["final-report"].sections)]
    assert "Prefill by FA3" not in headings and "Decode on tensor cores (GQA 32/8)" in headings


def test_a_study_without_ncu_has_times_and_says_what_is_missing(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        return dataclasses.replace(cell, kernels=[], ncu_us=None, plan={})

    made = pages(load(fixture.write_study(tmp_path / "study", change=change)))
    text = sentences(made["final-report"])
    assert 'pass backend="fa3"' in text
    assert "Distance of decode from its roof: not measured, because ncu gave no roof of its largest cells." in text
    assert "ncu gave no verdict of any of these cells" in text
    assert "chart-decode-batch" in anchors(made["analysis"])
    assert "execution-decode" not in anchors(made["analysis"])


def test_a_study_whose_cells_were_all_skipped_still_has_its_documents(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        return fixture.skipped(cell, "does not fit")

    folder = fixture.write_study(tmp_path / "study", change=change)
    assert len(documents(folder)) == 10
    assert "does not fit" in (folder / "reports/final-report.md").read_text()


def test_an_incomplete_study_says_so_first(tmp_path: Path) -> None:
    folder = fixture.write_study(
        tmp_path / "study", only=["rope"], status="incomplete: not measured yet are 64 prefill"
    )
    documents(folder)
    for name in ("INDEX", "final-report"):
        assert "**Caution:** The study is not complete: incomplete" in (folder / f"reports/{name}.md").read_text()


def test_no_results_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match=r"environment_info\.json cannot be read"):
        documents(tmp_path)
    assert not (tmp_path / "reports").exists()


# Where the code lives


def place(topic: str, part: str, name: str, path: str, line: int) -> dict[str, object]:
    return {"topic": topic, "part": part, "name": name, "path": path, "line": line, "snippet": f"… {name}"}


def tunable(
    kernel: str, name: str, value: str | None, meaning: str, declared: object, chosen: object
) -> dict[str, object]:
    return {
        "kernel": f"void flashinfer::{kernel}<…>(…)", "name": name, "kind": "uint32_t", "value": value, "meaning": meaning, "source_says": "",
        "declared": declared, "set_at": chosen,
    }  # fmt: skip


def write_sources(folder: Path, version: str = "0.6.13") -> None:
    header = "flashinfer/data/include/flashinfer/attention"
    kernel = "BatchPrefillWithPagedKVCacheKernel"
    declared = place("prefill fa2", "traits", "CTA_TILE_Q", f"{header}/prefill.cuh", 80)
    places = [
        place("decode on CUDA cores", "entry", "BatchDecodeWithPagedKVCacheWrapper", "flashinfer/decode.py", 581),
        place("decode on CUDA cores", "kernel", "BatchDecodeWithPagedKVCacheKernel", f"{header}/decode.cuh", 613),
        place("prefill fa2", "kernel", kernel, f"{header}/prefill.cuh", 2345),
        place("decode on tensor cores", "plan", "plan", "flashinfer/decode.py", 800),
        place("decode on tensor cores", "kernel", kernel, f"{header}/prefill.cuh", 2345),
    ]
    chosen = place("prefill fa2", "set", "CTA_TILE_Q", "x.cuh", 7)
    tunables = [
        *(tunable(kernel, "CTA_TILE_Q", value, "query rows of a tile", declared, chosen) for value in ("128", "16")),
        tunable(f"Fused{kernel}", "VEC_SIZE", None, "", place("fused", "kernel", "VEC_SIZE", "norm.cuh", 9), None),
    ]
    found = {"version": version, "places": places, "tunables": tunables, "package": "flashinfer-python",
             "missing": ["decode on CUDA cores: scheduler DecodePlan"], "schema_version": 1}  # fmt: skip
    (folder / "results/sources.json").write_text(json.dumps(found))


def test_the_guide_names_every_place_of_the_kernels_that_ran(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["decode", "prefill"])
    write_sources(folder)
    parts = {section.anchor: section for section in sections(pages(load(folder))["kernel-dev-guide"].sections)}

    def text(workload: str) -> str:
        return sentences(Page("", (parts[f"{workload}-code"],)))

    header = "flashinfer/data/include/flashinfer/attention"
    assert f"kernel: BatchDecodeWithPagedKVCacheKernel, {header}/decode.cuh:613" in text("decode")
    assert "plan: plan, flashinfer/decode.py:800" in text("decode")
    assert "prefill fa2" not in text("decode").replace("prefill.cuh", "")
    assert "decode" not in text("prefill").replace("batch_decode", "")
    template = "BatchPrefillWithPagedKVCacheKernel"
    assert f"What the template {template}, {header}/prefill.cuh:80, takes:" in text("prefill")
    assert "CTA_TILE_Q = 128 and 16: query rows of a tile; chosen at x.cuh:7." in text("prefill")
    assert "CTA_TILE_Q" in text("decode")
    assert "VEC_SIZE" not in text("decode")
    cautions = [block.text for block in parts["decode-code"].blocks if isinstance(block, Caution)]
    assert cautions == [
        "Not found in the installed flashinfer-python: PersistentVariableLengthMergeStatesKernel; torch's, or generated.",
        "Looked for and not there in this version: decode on CUDA cores: scheduler DecodePlan.",
    ]


def test_without_a_map_the_guide_says_so_and_with_that_of_another_version_too(tmp_path: Path) -> None:
    folder = fixture.write_study(tmp_path / "study", only=["decode"])
    documents(folder)
    assert "results/sources.json is missing" in (folder / "reports/kernel-dev-guide.md").read_text()
    write_sources(folder, version="0.5.3")
    documents(folder)
    guide = (folder / "reports/kernel-dev-guide.md").read_text()
    assert "These lines are those of flashinfer-python 0.5.3; measured was 0.6.13." in guide
    assert "is missing" not in guide


# Foreign names


def test_names_from_the_profiled_program_are_text(tmp_path: Path) -> None:
    def change(cell: Cell) -> Cell:
        kernels = [dataclasses.replace(k, kernel="<script>alert(1)</script>|`x`") for k in cell.kernels]
        return dataclasses.replace(cell, kernels=kernels, skipped="")

    folder = fixture.write_study(tmp_path / "study", only=["rope"], change=change)
    documents(folder)
    for path in (folder / "reports").glob("*.html"):
        assert "<script>alert(1)" not in path.read_text()


def test_a_users_own_workload_has_its_sections(tmp_path: Path) -> None:
    cells = [
        fixture.make_cell("mine", {"size": size, "fast": fast}, 10.0 * size, work=(size, size, size), run="r")
        for size in (1, 2, 4, 8)
        for fast in (False, True)
    ]
    folder = fixture.write_study(tmp_path / "study", {"mine": cells})
    made = pages(load(folder))
    assert "no fast to fast" in sentences(made["kernel-dev-guide"])
    assert "size 1 to 8 (8x)" in sentences(made["analysis"])


# Parts


def test_split_factor_and_imbalance_follow_from_the_plan() -> None:
    cell = fixture.decode(1, 2048, 8, tensor_cores=False, cuda_graph=False)
    planned = dataclasses.replace(cell, plan={"split_kv": True, "kv_chunk_tokens": 300})
    assert split_factor(planned) == 7
    assert split_factor(dataclasses.replace(cell, plan={"split_kv": False})) == 1
    assert split_factor(dataclasses.replace(cell, plan={})) is None
    plan: dict[str, bool | int | float | str] = {"work_items": 264, "blocks": 132, "most_work_items_of_a_block": 3}
    assert imbalance(dataclasses.replace(cell, plan=plan)) == 1.5


def test_cells_are_told_apart_by_what_varies(whole: Study) -> None:
    cell = next(c for c in whole.of("decode") if c.params["cuda_graph"] and c.params["batch"] == 256)
    assert whole.label(cell) == "decode batch 256, KV 512, GQA 32/8, CUDA cores, CUDA graph"
    assert whole.short(cell) == "256x512 GQA graph"
    assert len({whole.short(c) for c in whole.of("decode")}) == len(whole.of("decode"))
    assert whole.axes("decode") == ("batch", "kv_len")
    assert whole.options("decode") == ("kv_heads", "tensor_cores", "cuda_graph")


def test_effects_of_an_option_are_pairs_that_differ_in_it_alone(whole: Study) -> None:
    effects = {effect.change: effect for effect in study_guide.effects(whole, "prefill")}
    assert effects.keys() == {"GQA 32/8 to MHA 32/32", "fa2 to fa3"}
    for (after, before), found in effects["fa2 to fa3"].pairs:
        assert {**after.params, "backend": ""} == {**before.params, "backend": ""}
        assert after.plain is not None and before.plain is not None
        assert found.value == after.plain.median_us / before.plain.median_us


def test_drift_is_the_spread_of_the_rounds() -> None:
    cell = fixture.rope(4096, "inplace")
    assert cell.plain is not None
    moved = dataclasses.replace(cell.plain, median_us=100.0, round_medians_us=[100.0, 104.0, 98.0])
    assert drift(dataclasses.replace(cell, plain=moved)) == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("rounds", "upper"),
    [
        ([100.0, 113.0, 101.0, 112.0, 113.0, 100.0], (False, True, False, True, True, False)),
        ([100.0, 100.0, 100.0, 100.0, 100.0, 114.0], (False, False, False, False, False, True)),
        ([100.0, 103.0, 101.0, 104.0, 102.0, 100.0], None),  # no gap of 5 %
        ([100.0, 105.0, 112.0, 118.0, 101.0, 110.0], None),  # something between
        ([100.0, 113.0, 100.0], None),  # too few
    ],
)
def test_two_levels_have_a_gap_and_nothing_between(rounds: list[float], upper: tuple[bool, ...] | None) -> None:
    found = levels(dataclasses.replace(fixture.times(100.0), round_medians_us=rounds))
    assert (found.upper if found else None) == upper


def test_a_median_between_two_levels_is_told_apart(tmp_path: Path) -> None:
    cell = fixture.decode(64, 2048, 32, tensor_cores=False, cuda_graph=False)
    assert cell.plain is not None
    rounds = [100.0, 100.0, 100.0, 114.0, 114.0, 114.0]
    middle = dataclasses.replace(cell, plain=dataclasses.replace(cell.plain, median_us=107.0, round_medians_us=rounds))
    lower = dataclasses.replace(cell, plain=dataclasses.replace(cell.plain, median_us=100.0, round_medians_us=rounds))
    assert (between(middle), between(lower), between(cell)) == (True, False, False)
    text = final(tmp_path, "levels", lambda each: middle if each.case == cell.case else each)
    assert "In 1 of 105 decode cells the rounds lie on two levels, the upper 1.14 times the lower" in text
    assert "the median lies between the levels, where no round was, in 1 of 1" in text
