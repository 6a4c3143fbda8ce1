"""Numbers of a report: each comes from one cell of a raw file or one documented formula over such cells."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from fiprof.model.provenance import numbers_of
from fiprof.reports.pages import markdown
from fiprof.reports.pages.page import Answer, Page
from fiprof.reports.pages.traced import LocatedNumber, of_page
from fiprof.reports.report import report
from tests.raw_figures import RawRun
from tests.recorded_runs import RUNS, parsed

AT_RANDOM = 10


@pytest.fixture(scope="module", params=RUNS)
def reported(request: pytest.FixtureRequest) -> tuple[Page, RawRun]:
    run = parsed(request.param)
    return report([run]), RawRun(run.path)


def recompute(found: LocatedNumber, raw: RawRun) -> None:
    """The number's value is that of the raw files, and so is what is written."""
    value = raw.value(found.fact.source)
    assert found.fact.value == pytest.approx(value, rel=1e-6, abs=1e-9), f"{found.text}: {found.fact.source}"


def test_ten_at_random(reported: tuple[Page, RawRun]) -> None:
    page, raw = reported
    seed = os.environ.get("FIPROF_TEST_SEED") or str(random.randrange(10**6))
    print(f"FIPROF_TEST_SEED={seed} repeats this choice")
    text = markdown.render(page)
    for found in random.Random(seed).sample(of_page(page), AT_RANDOM):
        print(f"{found.section}: {found.text} = {found.fact.source}")
        recompute(found, raw)
        # Kernels of less time are a line each in Markdown.
        assert found.section == "answer" or in_text(found.text, text)


def test_every_number_that_names_its_source(reported: tuple[Page, RawRun]) -> None:
    page, raw = reported
    for found in of_page(page):
        recompute(found, raw)


def in_text(number: str, text: str) -> bool:
    """Whether a number stands in a text; its line of a cell may end before its unit, which then stands below."""
    value, *unit = map(re.escape, number.split())
    return re.search(rf"(?<![\d.,]){value}" + "".join(rf"\s(?:.*\n.*)?{each}" for each in unit), text) is not None


def test_every_number_of_the_first_screen_names_its_source(reported: tuple[Page, RawRun]) -> None:
    page, _ = reported
    (answer,) = [block for block in page.sections[0].blocks if isinstance(block, Answer)]
    texts = [text for row in (*answer.rows, *answer.more) for text in row.texts]
    texts += answer.first.parts[-1:] if answer.first else ()
    for text in texts:
        known = {number for fact in numbers_of(text) for number in NUMBER.findall(str(fact))}
        # How often a kernel ran and how many checks failed are counts, and fp8, x 50 and 16 bytes no measurements.
        said = set(NUMBER.findall(COUNTED.sub("", text)))
        assert said <= known, text
    assert all(use.number is not None for row in answer.rows for use in row.uses)


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
COUNTED = re.compile(r" x \d+$|, \d+ checks? failed|\d+ bytes|fp\d+")
DECIMAL = re.compile(r"(?<![\w.])\d[\d,]*\.\d+")


@pytest.mark.parametrize(("anchor", "least"), [("answer", 1.0), ("times", 1.0), ("kernels", 0.75)])
def test_most_measured_numbers_name_their_source(reported: tuple[Page, RawRun], anchor: str, least: float) -> None:
    page, _ = reported
    (section,) = [section for section in page.sections if section.anchor == anchor]
    alone = Page("", (section,))
    known = {number for found in of_page(alone) for number in DECIMAL.findall(found.text)}
    # Instructions and the share of the samples that they hold are of ncu's source page, which has no formula.
    said = DECIMAL.findall(re.sub(r"```\n#   offset.*?```", "", markdown.render(alone), flags=re.DOTALL))
    traced = [number for number in said if number in known]
    missing = sorted(set(said) - known)
    assert len(traced) >= least * len(said), f"{len(traced)} of {len(said)}; without a source: {missing}"


def test_facts_are_not_many_by_accident(reported: tuple[Page, RawRun]) -> None:
    page, _ = reported
    found = of_page(page)
    assert len(found) > 200
    assert {each.fact.source.origin for each in found} == {"ncu", "nsys", "plain", "run.json", "facts"}


def test_the_recomputation_can_fail(tmp_path: Path) -> None:
    """It reads the files: another cell gives another number."""
    from fiprof.model.provenance import Provenance

    (tmp_path / "ncu").mkdir()
    (tmp_path / "ncu/raw.csv").write_text('"ID","a__x.sum","a__y.sum"\n"","ns","ns"\n"3","1,500","2"\n')
    source = Provenance("ncu", "a__x.sum / sum(a__*.sum) * 2", launch=3)
    assert RawRun(tmp_path).value(source) == pytest.approx(1500 / 1502 * 2)
