"""Numbers of a report: each comes from one cell of a raw file or one documented formula over such cells."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.reports.report import Report, report
from tests.raw_figures import RawRun
from tests.recorded_runs import RUNS, parsed

AT_RANDOM = 40


@pytest.fixture(scope="module", params=RUNS)
def reported(request: pytest.FixtureRequest) -> tuple[Report, RawRun]:
    run = parsed(request.param)
    return report([run]), RawRun(run.path)


def recompute(found: tuple[str, str, TracedNumber], raw: RawRun) -> None:
    """The number's value is that of the raw files."""
    _, text, fact = found
    assert fact.value == pytest.approx(raw.value(fact.source), rel=1e-6, abs=1e-9), f"{text}: {fact.source}"


def test_ten_at_random(reported: tuple[Report, RawRun]) -> None:
    made, raw = reported
    seed = os.environ.get("FIPROF_TEST_SEED") or str(random.randrange(10**6))
    print(f"FIPROF_TEST_SEED={seed} repeats this choice")
    for found in random.Random(seed).sample(made.numbers, AT_RANDOM):
        recompute(found, raw)


def test_every_number_that_names_its_source(reported: tuple[Report, RawRun]) -> None:
    made, raw = reported
    for found in made.numbers:
        recompute(found, raw)


def test_every_number_of_the_table_names_its_source(reported: tuple[Report, RawRun]) -> None:
    made, _ = reported
    for row in made.data["runs"][0]["rows"]:
        assert "s" in row["time"]
        for said in (row["distance"], row["gain"]):
            plain = "".join(piece for piece in said if isinstance(piece, str)) if isinstance(said, list) else said
            assert not NUMBER.findall(COUNTED.sub("", plain)), said
        assert all("s" in use for _, use in row["uses"])


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
COUNTED = re.compile(r"\d+ bytes|fp\d+")


def test_facts_are_not_many_by_accident(reported: tuple[Report, RawRun]) -> None:
    made, _ = reported
    assert len({str(fact.source) for _, _, fact in made.numbers}) > 500
    assert {fact.source.origin for _, _, fact in made.numbers} == {"ncu", "nsys", "plain", "run.json", "facts"}


def test_the_recomputation_can_fail(tmp_path: Path) -> None:
    """It reads the files: another cell gives another number."""
    (tmp_path / "ncu").mkdir()
    (tmp_path / "ncu/raw.csv").write_text('"ID","a__x.sum","a__y.sum"\n"","ns","ns"\n"3","1,500","2"\n')
    source = Provenance("ncu", "a__x.sum / sum(a__*.sum) * 2", launch=3)
    assert RawRun(tmp_path).value(source) == pytest.approx(1500 / 1502 * 2)
