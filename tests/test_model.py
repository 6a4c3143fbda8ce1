"""What all readers share: metrics and quantities, choices of launches, settings, results."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fiprof.errors import FiprofError
from fiprof.model.arrays import Kinds
from fiprof.model.quantities import Formula
from fiprof.model.results import CaseResult, CaseTimes, EnvironmentInfo, Kernel, KernelResults, KernelVerdict
from fiprof.model.selection import Selection
from fiprof.model.settings import Settings, StudySettings, settings_of
from fiprof.model.work import peak_of
from fiprof.orchestrator.study import load
from tests.conftest import REPOSITORY
from tests.recorded_runs import invoke, parsed


@pytest.mark.parametrize(
    ("row", "clock", "cycles"),
    [
        ({"sm_clock_hz": 1.9e9, "sm_cycles": 5.0}, 1.9e9, 5.0),
        # 2.18 GHz on an H200: cycles of one replay over the duration of another.
        ({"sm_clock_hz": 2.18e9, "max_sm_clock_khz": 1.98e6, "sm_cycles": 5.0}, 1.98e9, 5.0),
        ({"gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 1.5e9, 300.0),
        ({"sm_clock_hz": 2e9, "gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 2e9, 400.0),
        ({"sm_cycles": 500.0, "duration_ns": 200.0, "max_sm_clock_khz": 1.98e6}, 1.98e9, 500.0),
        # The highest clock by itself is none that was measured.
        ({"max_sm_clock_khz": 1.98e6, "duration_ns": 200.0}, None, None),
    ],
)
def test_a_clock_is_at_most_the_highest(row: dict[str, float], clock: float | None, cycles: float | None) -> None:
    assert (Formula("sm_hz").value(row), Formula("cycles").value(row)) == (clock, cycles)
    peak = None if clock is None else pytest.approx(10 * clock)
    assert peak_of("fp32").value({**row, "fp32_peak_ops_per_cycle": 10.0}) == peak


@pytest.mark.parametrize("kind", [CaseResult, CaseTimes, Kernel, KernelVerdict, EnvironmentInfo, KernelResults])
def test_every_field_is_described(kind: type) -> None:
    described = set(re.findall(r"`(\w+)`", (REPOSITORY / "docs/results.md").read_text()))
    assert {field.name for field in dataclasses.fields(kind)} <= described


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


def test_sections_of_show_stand_alone() -> None:
    printed = invoke("show", str(parsed("all").path), "--occupancy")[1]
    every = ("Cases", "Kernels", "Occupancy", "Limits", "Waves")
    titles = [line for line in printed.splitlines() if line.startswith(every)]
    assert titles == ["Occupancy", "Limits of occupancy: blocks on a multiprocessor that each resource allows"]


@pytest.mark.fault("a time limit that is 0, negative, nan or infinite", "refused, exit status 2")
@pytest.mark.parametrize(
    "words", ["--set x", "--iterations 0", "--tool perf", "--seed a", *(f"--timeout {each}" for each in ("0", "-1", "nan", "inf"))]
)  # fmt: skip
def test_what_a_setting_refuses(words: str) -> None:
    assert invoke("collect", "--kernel", "rope", "--dry-run", *words.split())[0] == 2


def test_a_study_takes_the_settings_of_a_collect(tmp_path: Path) -> None:
    """Every one that both have; what it refuses: tests/test_study.py."""
    cases = '[[cases]]\nworkload = "rope"\n'
    for each in settings_of(StudySettings):
        given = "" if each.default is None else f"{each.name} = {json.dumps(each.default)}"
        (tmp_path / "study.toml").write_text(f'name = "x"\n[settings]\n{given}\n{cases}')
        assert load(str(tmp_path / "study.toml")).settings == StudySettings()
    assert {each.name for each in settings_of(Settings)} <= {each.name for each in settings_of(StudySettings)}


@pytest.mark.parametrize("bits", [20, 33, 40])
def test_the_kinds_of_rows_are_told_apart_whatever_the_numbers_beside_them(bits: int) -> None:
    """Also where the product of the columns' ranges is beyond 32 and 62 bits."""
    chance = np.random.default_rng(bits)
    names = chance.integers(0, 700, 5000)
    table = pa.table({name: pa.array([f"{name}{value}" for value in names]) for name in ("kernel", "grid")})
    added = {name: chance.integers(0, 1 << bits, 5000) >> shift for name, shift in (("range", 3), ("rank", bits - 5))}
    kinds, found = Kinds(), []
    for first in (0, 2500):
        piece = slice(first, first + 2500)
        found += kinds.of(table.slice(first, 2500), **{name: values[piece] for name, values in added.items()}).tolist()
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), *map(list, added.values()), strict=True))
    numbered: dict[object, int] = {}
    assert found == [numbered.setdefault(row, len(numbered)) for row in rows]
    assert list(kinds.numbers) == list(numbered)
