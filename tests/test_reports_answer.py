"""What a reader of a report meets: the answer on the first screen, few words, no sentence again and again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.reports.pages import html, markdown
from fiprof.reports.pages.page import Answer
from fiprof.reports.report import report
from tests.browser import CHROMIUM, launched
from tests.recorded_runs import RUNS, parsed

MOST_WORDS = {"all": 2500, "decode": 3200, "prefill-decode-rope": 2500}
"""Run -> words of its report, in Markdown and in HTML, folded parts too; of many kernels there are more."""
MOST_ALIKE = 3

FENCED = re.compile(r"^(`{3,})(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
SASS = "hottest instructions"


@pytest.fixture(scope="module", params=RUNS)
def texts(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """A run's name, its report as Markdown, and the text of its HTML."""
    page = report([parsed(request.param)])
    return request.param, markdown.render(page), html.render(page)


def words(text: str) -> int:
    """Words, which have a letter; numbers are none."""
    return sum(any(char.isalpha() for char in word) for word in text.split())


def without_code(text: str) -> str:
    """Markdown without commands and listings of instructions."""
    return FENCED.sub(lambda block: "" if block[2] or SASS in block[3].partition("\n")[0] else block[3], text)


def test_few_words(texts: tuple[str, str, str]) -> None:
    name, text, shown = texts
    most = MOST_WORDS.get(name, 8000)
    assert words(re.sub("<a id=.*", "", without_code(text))) <= most
    body = "<main" + shown.partition("<main")[2]
    assert "limited by" in body
    body = re.sub(r"<(script|style|pre|code|svg)\b.*?</\1>", "", body, flags=re.DOTALL)
    assert words(re.sub(r"<[^>]+>", " ", body)) <= most


def test_no_sentence_again_and_again(texts: tuple[str, str, str]) -> None:
    """Outside of tables; what differs in numbers and names alone is the same."""
    _, text, _ = texts
    prose = " ".join(line for line in FENCED.sub("", text).splitlines() if not line.startswith(("#", "<a id")))
    found = Counter(
        re.sub(r"\[[^]]*\]\([^)]*\)|\S*[\d_A-Z]\S*", "#", sentence) for sentence in re.split(r"(?<=[.:]) ", prose)
    )
    assert {sentence: count for sentence, count in found.items() if count > MOST_ALIKE} == {}


def test_markdown_keeps_to_100_columns(texts: tuple[str, str, str]) -> None:
    for line in texts[1].splitlines():
        assert len(line) <= 100 or line.startswith(("<a id=", "](")) or len(max(line.split(), key=len)) > 90, line


# The answers


def answer(name: str) -> Answer:
    (found,) = [block for block in report([parsed(name)]).sections[0].blocks if isinstance(block, Answer)]
    return found


def test_the_answer_for_five_kernels() -> None:
    found = answer("all")
    assert [(row.kernel, row.case, *map(str, row.texts)) for row in found.rows] == [
        ("PrefillWithKVCacheKernel", "prefill", "300.0 µs", "latency-bound", "47% (tensor cores at 53%)",
         "overlap wgmma with the rest", "saves at most 47%", "medium"),
        ("BatchQKApplyRotaryKernel", "rope", "94.7 µs", "memory-bound (DRAM)", "26% (DRAM at 74%)",
         "more bytes in flight", "saves at most 26%", "medium"),
        ("BatchDecodeWithPagedKVCacheKernel", "decode", "85.7 µs", "compute-bound (issue slots)", "26% (issue slots at 74%)",
         "tensor cores", "saves at most 37%", "medium"),
        ("FusedAddRMSNormKernel", "fused_add_rmsnorm", "35.6 µs", "memory-bound (DRAM)", "21% (DRAM at 79%)",
         "more bytes in flight", "saves at most 21%", "medium"),
        ("RMSNormKernel", "rmsnorm", "23.8 µs", "no single limit", "39% (issue slots at 61%)", "–", "", "high"),
    ]  # fmt: skip
    assert [[str(use.number) for use in row.uses] for row in found.rows[:2]] == [
        ["53%", "12%", "39%", "47%"], ["45%", "74%", "44%", "40%"],
    ]  # fmt: skip
    assert [(row.kernel, row.confidence) for row in found.more] == [
        ("PersistentVariableLengthMergeStatesKernel", "medium, 1 check failed")
    ]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("all", "Start with PrefillWithKVCacheKernel (prefill): Overlap the products with everything else: deeper "
                "pipelines with more tiles in flight, or ping-pong warpgroups, one's other arithmetic (softmax, "
                "conversions) during the other's wgmma (saves at most 47%)."),
        # What was measured comes before what is only bounded.
        ("decode", "Start with BatchDecodeWithPagedKVCacheKernel (decode batch=128): Use tensor cores instead of CUDA "
                   "cores (1.32x faster, measured)."),
        ("prefill-decode-rope", "Start with BatchPrefillWithPagedKVCacheKernel (prefill backend=fa2): Use fa3 "
                                "instead of fa2 (1.53x faster, measured)."),
    ],
)  # fmt: skip
def test_what_to_do_first(name: str, first: str) -> None:
    found = answer(name).first
    assert found is not None and "".join(found.parts) == first


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no chromium at {CHROMIUM}: FIPROF_TEST_CHROMIUM names one")
    with launched() as browser:
        yield browser


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("name", RUNS)
def test_the_first_screen_has_the_table_and_the_first_step(
    name: str, width: int, height: int, browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(report([parsed(name)])), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(file.as_uri())
    for selector in (".answers .first", "table.answer"):
        box = page.locator(selector).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, selector
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, selector
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
