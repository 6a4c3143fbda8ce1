"""Trends: where the level of a quantity changed, over runs made from a recorded one."""

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis.trend import levels
from fiprof.model import json_file
from fiprof.model.catalogue.summary import summarize
from tests.recorded_runs import RUNS, invoke, parsed

OTHER_GPU = (3, 4, 17)
"""Runs on another board."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run a day of the recorded decode: from the 13th 5 % slower with tensor cores, with another FlashInfer; one run in
    which everything took 20 % longer."""
    archive = tmp_path_factory.mktemp("trend")
    recorded = json.loads((RUNS["decode"] / "run.json").read_text())
    summary = json.loads(json_file.encode(summarize(parsed("decode"))))
    chance = random.Random(0)
    for day in range(24):
        began = datetime(2026, 10, 1, tzinfo=UTC) + timedelta(days=day)
        folder = archive / f"{began:%Y%m%d-%H%M%S}-decode"
        (folder / "tables").mkdir(parents=True)
        environment = json.loads(json.dumps(recorded["environment"]))
        environment["git"] = f"{day // 4:012x}"
        environment["gpu"]["uuid"] = "11111111-1" if day in OTHER_GPU else environment["gpu"]["uuid"]
        environment["packages"]["flashinfer-python"] = "0.6.14" if day >= 13 else "0.6.13"
        manifest = {**recorded, "name": folder.name, "started": began.isoformat(), "environment": environment}
        (folder / "run.json").write_text(json.dumps(manifest))
        results = []
        for each in summary["results"]:
            slower = 1.05 if day >= 13 and "tensor_cores=true" in each["case"] else 1.2 if day == 8 else 1.0
            factor = slower * chance.lognormvariate(0, 0.003)
            results.append({**each, "values": {key: value * factor for key, value in each["values"].items()}})
        (folder / "tables/summary.json").write_text(json.dumps({**summary, "results": results}))
    return archive


def test_a_change_is_marked_with_what_else_changed(archive: Path, tmp_path: Path) -> None:
    words = ("trend", "--artifacts", str(archive), "--where", "batch=128")
    rows = json.loads(invoke(*words, "--format", "json")[1])["rows"]
    changed = [row for row in rows if row["change_p"] is not None]
    assert [(row["name"], row["level"], row["change_ratio"], row["change_p"]) for row in changed] == [
        ("20261014-000000-decode", pytest.approx(265.05, abs=1), pytest.approx(0.05, abs=0.004), 0.008)
    ]
    assert "tensor_cores=true" in changed[0]["case"]
    status, text = invoke(*words, "--out", str(tmp_path / "trend.html"))
    assert status == 0
    assert "flashinfer-python 0.6.13 → 0.6.14" in text and "commit" not in text.split("Changes")[1].split("→")[0]
    page = (tmp_path / "trend.html").read_text()
    assert "flashinfer-python 0.6.13 → 0.6.14" in page and '"x": "2026-10-14T00:00:00Z"' in page.replace('":"', '": "')


def test_boards_drivers_and_ways_of_measuring_have_lines_of_their_own(archive: Path) -> None:
    for metric, expected in (("duration", 2), ("dram_share", 4)):
        words = ("--where", "batch=128", "--where", "tensor_cores=false", "--metric", metric, "--format", "json")
        if metric == "dram_share":
            path = archive / "20261002-000000-decode/run.json"
            manifest = json.loads(path.read_text())
            manifest["settings"]["clock_control"] = "base"
            path.write_text(json.dumps(manifest))
        rows = json.loads(invoke("trend", "--artifacts", str(archive), *words)[1])["rows"]
        keys = {(row["kernel"], row["uuid"], row["driver"], metric != "duration" and row["conditions"]) for row in rows}
        lines = [key for key in keys if key[0] in (None, "BatchDecodeWithPagedKVCacheKernel")]
        assert len(rows) in (24, 48) and len(lines) == expected - (metric == "dram_share")


def found(values: Iterable[float]) -> list[int]:
    return [place for place, *_ in levels(list(values))]


@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from((6, 12, 40)))
def test_noise_is_seldom_a_change(seed: int, count: int) -> None:
    """Of four lines at most one."""
    chance = np.random.default_rng(seed)
    assert sum(bool(found(np.exp(chance.normal(0, 0.02, count)))) for _ in range(4)) <= 1


@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(((12, 6), (20, 16), (60, 57))), st.sampled_from((0.9, 1.1)))
def test_a_tenth_is_found_where_it_is(seed: int, place: tuple[int, int], factor: float) -> None:
    count, change = place
    values = np.exp(np.random.default_rng(seed).normal(0, 0.002, count))
    values[change:] *= factor
    assert found(values) == [change]
    assert found(values[: change + 1]) == []


def test_lines_that_agree_to_the_digit_or_are_short() -> None:
    assert found([5.0] * 20) == []
    assert found([5.0] * 10 + [6.0] * 10) == [10]
    assert found([1.0, 2.0]) == found([]) == []
