"""fiprof/reports/run_report/story.py: a run in order of time, and what the hardware did meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.analyses import Analyses
from fiprof.model.provenance import TracedNumber, numbers_of
from fiprof.reports.pages.page import Bullets, Caution, Section, Table
from fiprof.reports.run_report import story
from tests.recorded_runs import parsed
from tests.reports_fixture import case, execution, make_run, record_run

ID = "mine[rows=8]"


@pytest.fixture(scope="module")
def recorded() -> story.Story:
    return story.story(Analyses(parsed("all")))


def sentences(section: Section) -> list[str]:
    return ["".join(item.parts) for block in section.blocks if isinstance(block, Bullets) for item in block.items]


def test_the_recorded_run_in_order_of_time(recorded: story.Story) -> None:
    starts = [phase.at.start_us for phase in recorded.phases]
    assert starts == sorted(starts)
    assert [(phase.at.phase, phase.at.label) for phase in recorded.phases][:4] == [
        ("setup", "decode"),
        ("warmup", "decode"),
        ("measure", "decode"),
        ("setup", "fused_add_rmsnorm"),
    ]
    assert [phase.at.label for phase in recorded.measured] == [
        "decode", "fused_add_rmsnorm", "prefill", "rmsnorm", "rope",
    ]  # fmt: skip


def test_an_event_has_the_state_of_the_hardware(recorded: story.Story) -> None:
    (prefill,) = recorded.measured[2].events
    assert (prefill.span.kernel, prefill.span.count, prefill.by) == ("PrefillWithKVCacheKernel", 20, "nsys")
    assert isinstance(prefill.tensor, TracedNumber)
    assert (str(prefill.sms), str(prefill.tensor), str(prefill.dram)) == ("92.7", "52.3", "11.8")
    # Too short for a sample of its own: ncu's counters stand for it.
    merge = next(event for event in recorded.measured[0].events if "Merge" in event.span.kernel)
    assert merge.by == "ncu" and merge.group is not None
    assert (str(merge.sms), str(merge.tensor), str(merge.dram)) == ("69.2", "0.6", "4.0")


def test_loops_are_folded_with_median_and_spread(recorded: story.Story) -> None:
    told = sentences(story.section(recorded))[2]
    assert told == (
        "prefill, 6.04 ms, GPU busy 99%: PrefillWithKVCacheKernel x 20, median 300.05 µs, spread 0.5%, grid 132x1x1, "
        "with the SMs 92.7% active, the tensor cores 52.3%, DRAM at 11.8% of its peak (60 samples). "
        "Host: cudaDeviceSynchronize x 1, 5.527 ms in all; cudaLaunchKernel x 20, 108 µs in all; "
        "cudaGetDriverEntryPointByVersion x 20, 4.8 µs in all; 20 others, 3.0 µs."
    )


def kernels(*times: tuple[int, int], **values: Any) -> list[dict[str, Any]]:
    return [execution(*time, **{"iteration": index, **values}) for index, time in enumerate(times)]


def test_a_gpu_that_waits_is_said_to(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=kernels((0, 1000), (9000, 10_000)))
    (told,) = sentences(story.section(story.story(Analyses(run))))
    assert "GPU busy 20%: K x 2, median 1.00 µs, spread 0.0%, grid 8x1x1." in told
    assert "For 80% of the time no kernel ran." in told


def test_cases_that_took_turns_are_as_long_as_their_turns(tmp_path: Path) -> None:
    rows = [
        *kernels((0, 1000), (1000, 2000)),
        *kernels((5000, 6000), case="mine[rows=9]"),
        *kernels((90_000, 91_000), (92_000, 93_000)),
    ]
    settings = {"tools": ["nsys"], "rounds": 2}
    run = make_run(tmp_path / "run", kernels=rows, cases=[case(ID), case("mine[rows=9]")], settings=settings)
    found = story.section(story.story(Analyses(run)))
    # 2 µs and 3 µs; the time of others between them is not theirs.
    told = sentences(found)
    assert any(each.startswith("mine rows=8, 0.01 ms in 2 turns, GPU busy 80%: K x 4,") for each in told)
    assert any(each.startswith("mine rows=9, 0.00 ms, GPU busy 100%: K, 1.00 µs") for each in told)
    (phases,) = [block for block in found.blocks if isinstance(block, Table) and block.anchor == "story-phases"]
    assert [(row[1], row[5]) for row in phases.view.rows] == [(0.001, 1.0), (0.005, 0.8)]
    # A number of several turns is no formula of nsys's rows.
    assert [phases.sources[index][1] == "" for index in (0, 1)] == [False, True]


def test_without_nsys_it_says_why(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", settings={"tools": ["ncu"]})
    section = story.section(story.story(Analyses(run)))
    assert [block.text for block in section.blocks if isinstance(block, Caution)] == [
        "no timeline: nsys was not asked for"
    ]
    assert not any(isinstance(block, Table) for block in section.blocks)


def test_without_ranges_every_kernel_is_told(tmp_path: Path) -> None:
    rows = kernels((0, 1000), (1000, 2000), phase=None, case=None, iteration=None)
    run = make_run(tmp_path / "run", kernels=rows, cases=[case()])
    told = story.story(Analyses(run))
    assert [phase.at.phase for phase in told.measured] == [None]
    section = story.section(told)
    assert any("no NVTX ranges at all" in block.text for block in section.blocks if isinstance(block, Caution))
    assert "K x 2" in sentences(section)[0]


def test_many_kernels_stay_readable(tmp_path: Path) -> None:
    rows = [
        {**row, "kernel": f"k{index}", "kernel_full": f"k{index}"}
        for index, row in enumerate(kernels(*((i * 100, i * 100 + 50 + i % 7) for i in range(200))))
    ]
    run = make_run(tmp_path / "run", kernels=rows)
    section = story.section(story.story(Analyses(run)))
    (shown,) = [block for block in section.blocks if isinstance(block, Table) and block.anchor == "story-kernels"]
    assert len(shown.view.rows) == story.MOST_EVENTS
    assert f"The {story.MOST_EVENTS} kernels that take most time, of 200." in shown.view.notes
    assert "and 197 other kernels" in sentences(section)[0]


def test_numbers_keep_their_sources(recorded: story.Story) -> None:
    (bullets,) = [block for block in story.section(recorded).blocks if isinstance(block, Bullets)]
    facts = [fact for item in bullets.items for part in item.parts for fact in numbers_of(part)]
    assert "nsys, decode[" in str(facts[0].source)
    assert {fact.source.origin for fact in facts} == {"nsys", "ncu"}


def test_doubtful_levels_give_way_to_the_counters(tmp_path: Path) -> None:
    """This trace's samples are not shares of the whole GPU: Tensor Active 26.7 where ncu counts 52.5."""
    told = story.story(Analyses(record_run(tmp_path / "recorded")))
    assert [each.kind for each in told.warnings] == ["tensor_differs"]
    (prefill,) = told.measured[0].events
    assert (prefill.by, str(prefill.tensor), str(prefill.dram)) == ("ncu", "52.5", "10.2")
