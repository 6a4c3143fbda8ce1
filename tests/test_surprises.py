"""examples/surprises.py, recorded on a GPU: what was planted in one step is named with its step, and nothing else is."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.recorded_runs import answer, imported, on_h100

DATA = Path(__file__).parent / "data/surprises"
PRINTED = {
    line["recording"]: line for line in map(json.loads, (DATA / "printed.jsonl").read_text("utf-8").splitlines())
}
"""Recording -> what its process printed of itself: step_us of each step, on the host's clock."""
CLEAN = [name for name in PRINTED if name.startswith("clean")]
LAYER: dict[str, Any] = {"range": "layer 0"}
FUNCTION: dict[str, Any] = {"id": "function", "range": "decode"}
SLOW: dict[str, dict[str, Any]] = {
    "sleep": FUNCTION | {"name": "sleep (surprises.py:42)"},
    "gc": FUNCTION | {"name": "gc (surprises.py:45)"},
    "item": LAYER | {"id": "loading", "name": "cuLibraryLoadData"},
    "allocation": {"id": "allocating", "range": "decode", "name": "cudaMalloc", "count": 4},
    "compile": {"id": "compiling", "range": "decode"},
    "kernel": LAYER | {"id": "loading", "name": "cuLibraryLoadData", "count": 3},
}
"""What the cause of the planted step says at least. The first ``.item()`` and another kernel load its code."""
FIRST_USE = {"item": "reduce_kernel", "compile": "scale", "kernel": "radixSortKVInPlace"}


def surprises(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer("story", imported(DATA / f"{name}.sqlite.xz", name=name).path)["surprises"]
    return found


@pytest.mark.parametrize("name", SLOW)
def test_what_was_planted_in_a_step_is_named(name: str) -> None:
    step, *others = surprises(name)
    assert (step["id"], step["number"]) == ("slow_step", PRINTED[name]["at"])
    assert step["cause"].items() >= SLOW[name].items()
    assert 1e3 * step["length_ms"] == pytest.approx(PRINTED[name]["step_us"][step["number"]], rel=0.02, abs=50)
    assert FIRST_USE.get(name, "") in " ".join(step["first_use"])
    assert [other["id"] for other in others] == (["kernels_change"] if name == "kernel" else [])


def test_a_layer_that_is_slow_in_every_step() -> None:
    *steps, layer = surprises("slow-layer")
    assert (layer["id"], layer["which"]) == ("slow_layer", ["layer 5"])
    assert (layer["kernels"], layer["usual_kernels"]) == (9, 3)
    times = PRINTED["slow-layer"]["step_us"]
    assert [step["number"] for step in steps] == [n for n, us in enumerate(times) if us > 1.5 * median(times)] == [31]


def test_memory_that_grows_and_is_not_given_back() -> None:
    (leak,) = surprises("leak")
    assert (leak["id"], leak["what"]) == ("leak", "step 30")  # the first 64 MB fit into what torch had kept
    assert leak["more_mb"] / leak["count"] == pytest.approx(67.1, abs=0.1)


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_surprises_where_nothing_was_planted(name: str) -> None:
    assert surprises(name) == []


def test_steps_that_take_another_time_for_good() -> None:
    """The first of two requests to a model: its 24 steps take ten times as long as those of the second."""
    run = on_h100("llama").path
    lengths = [step["length_ms"] for step in answer("story", run, "--table", "steps")["rows"]]
    (pace,) = answer("story", run)["surprises"]
    assert (pace["id"], pace["what"], pace["number"]) == ("pace", "decode", 24)
    assert pace["before_ms"] == pytest.approx(median(lengths[:24]), rel=0.02)
    assert pace["after_ms"] == pytest.approx(median(lengths[24:]), rel=0.02)
    assert pace["reason"]["id"] == "host"
    folded = [line["said"] for line in answer("story", run, "--table", "told")["rows"]]
    assert [line["count"] for line in folded if line["id"] == "steps"] == [23, 24]
