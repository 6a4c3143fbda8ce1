"""fiprof/model/selection.py: which launches a user means, which are alike; and the options of every command."""

from __future__ import annotations

import json
import re

import pytest

from fiprof.errors import FiprofError
from fiprof.model.selection import Selection
from tests.recorded_runs import invoke, parsed


@pytest.mark.parametrize(
    ("words", "launches"),
    [
        # The run has decode with batch 1, 8, 32 and 128, each with and without tensor_cores.
        ("decode[batch=1]", [0, 1]),
        ("batch=1", [0, 1, 2, 3]),
        ("decode batch=1", [0, 1]),
        ("decode batch=1 tensor_cores", [2, 3]),
        ("batch=1,tensor_cores", [2, 3]),
        ("batch=128", [11, 12]),
        ("Persistent", [1, 3, 5, 7, 9]),
        ("persistentvariable", [1, 3, 5, 7, 9]),
        ("^BatchDecode", [0, 4, 8, 11]),
        ("batch=(1|8),", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("decode", list(range(13))),
    ],
)
def test_words_mean_a_kernel_a_case_or_a_pattern(words: str, launches: list[int]) -> None:
    assert [each.launch for each in parsed("decode").selected(Selection(words))] == launches


@pytest.mark.parametrize("wanted", [Selection("batch=2"), Selection("batch=12"), Selection("(x"), Selection("", (99,))])
def test_what_nothing_matches_says_what_there_is(wanted: Selection) -> None:
    with pytest.raises(FiprofError, match="has no launch with") as error:
        parsed("decode").selected(wanted)
    for part in ("launches 0 to 12", "BatchDecodeWithPagedKVCacheKernel", "decode batch=128 tensor_cores"):
        assert part in error.value.remedy


@pytest.mark.parametrize("command", ["show", "stalls", "roofline", "verdict", "expected", "hotspots", "timeline"])
@pytest.mark.parametrize("options", [["--launch", "3"], ["--kernel", "prefill"], ["--top", "1"]])
def test_every_reading_command_takes_the_same_choice(command: str, options: list[str]) -> None:
    """Launch 3 of this run is the only one of prefill, and what takes most time."""
    status, printed = invoke(command, str(parsed("all").path), *options, "--format", "json")
    cases = {row["case"] for row in json.loads(printed)["rows"] if row["case"]}
    assert (status, {case.partition("[")[0] for case in cases} - {"prefill"}) == (0, set())


def test_what_is_left_out_is_said() -> None:
    run = str(parsed("troubles").path)
    shown = invoke("stalls", run)[1]
    assert shown.count("\nreason ") == 5
    assert re.search(r"^19 launches left out, 31\.\d% of the time: --top N", shown, re.MULTILINE)
    assert invoke("stalls", run, "--all")[1].count("\nreason ") == 24
    assert invoke("stalls", run, "--top", "7")[1].count("\nreason ") == 7


@pytest.mark.parametrize("command", ["show", "verdict"])
def test_the_first_screen_is_a_screen(command: str) -> None:
    lines = invoke(command, str(parsed("all").path))[1].splitlines()
    assert 20 < len(lines) <= 42
    assert len(invoke(command, str(parsed("all").path), "--all")[1].splitlines()) > 120


def test_sections_of_show_stand_alone() -> None:
    printed = invoke("show", str(parsed("all").path), "--occupancy")[1]
    titles = [
        line for line in printed.splitlines() if line.startswith(("Cases", "Kernels", "Occupancy", "Limits", "Waves"))
    ]
    assert titles == ["Occupancy", "Limits of occupancy: blocks on a multiprocessor that each resource allows"]
