"""fiprof.workloads.case and base: the notation of cases, and what is refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.workloads.base import Parameter
from fiprof.workloads.case import parse_case
from fiprof.workloads.registry import builtin, find
from tests.conftest import REPOSITORY, Fiprof


@pytest.mark.parametrize("name", builtin())
def test_an_id_reads_back(name: str) -> None:
    case = parse_case(name)
    assert parse_case(case.id) == case
    assert parse_case(case.argument) == case


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefil", "there is no workload 'prefil'"),
        ("rmsnorm[rows=4", "case 'rmsnorm[rows=4': no closing ]"),
        ("rmsnorm[rows]", "case 'rmsnorm[rows]': 'rows' is not one key=value"),
        ("rmsnorm[rows=4,rows=5]", "case 'rmsnorm[rows=4,rows=5]': 'rows=5' is not one key=value"),
        ("rmsnorm[batch=4]", "rmsnorm has no parameter batch"),
        ("rmsnorm[rows=0]", "--rows: '0' is not valid (at least 1)"),
        ("rmsnorm[rows=4.5]", "--rows: '4.5' is not valid (at least 1)"),
        ("rmsnorm[dtype=fp8]", "--dtype: 'fp8' is not valid (fp16|bf16)"),
        ("decode[cuda_graph=maybe]", "--cuda-graph: 'maybe' is not valid (true|false)"),
        ("prefill[kv_heads=5]", "prefill: 32 query heads do not divide over 5 KV heads"),
        ("no/such/file.py:mine", "no/such/file.py: there is no such file"),
    ],
)
def test_wrong_words(text: str, message: str) -> None:
    with pytest.raises(FiprofError) as caught:
        parse_case(text)
    assert caught.value.message == message
    assert caught.value.exit_code == 2
    assert caught.value.remedy


@given(st.text(max_size=40))
def test_any_text_is_a_case_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(FiprofError):
        case = parse_case(text)
        assert parse_case(case.id) == case


@pytest.mark.parametrize("word", ["a:b", "a/b", "a,b", "a]b", 'a"b', "a\nb"])
def test_words_that_would_break_an_nvtx_filter(word: str) -> None:
    parameter = Parameter("name", str, "x", "help", None, None, ())
    with pytest.raises(FiprofError):
        parameter.parse(word)


# Costs by hand: prefill 4 x 2048, causal, 32/8 heads of 128, fp16; and so on with the defaults.
@pytest.mark.parametrize(
    ("text", "flops", "bytes_read", "bytes_written"),
    [
        ("prefill", 4 * 4 * 32 * 128 * (2048 * 2049 // 2), 67_108_864 + 2 * 16_777_216, 67_108_864),
        ("prefill[causal=false]", 4 * 4 * 32 * 128 * 2048**2, 67_108_864 + 2 * 16_777_216, 67_108_864),
        ("decode", 4 * 32 * 32 * 128 * 2048, 262_144 + 268_435_456 + 4 * 32 * 128, 262_144),
        ("decode[kv_len=2049]", 4 * 32 * 32 * 128 * 2049, 262_144 + 2 * 32 * 2049 * 8 * 128 * 2 + 4 * 32 * 129, 262_144),
        ("rmsnorm", 4 * 4096**2, 2 * 4096 * 4097, 2 * 4096**2),
        ("fused_add_rmsnorm", 5 * 4096**2, 2 * 4096 * 8193, 2 * 2 * 4096**2),
        ("rope", 3 * 16384 * 40 * 128, 167_772_160, 167_772_160),
        ("rope[variant=cos_sin_cache]", 3 * 16384 * 40 * 128, 167_772_160 + 16384 * 4 + 512 * 128 * 4, 167_772_160),
    ],
)  # fmt: skip
def test_costs(text: str, flops: int, bytes_read: int, bytes_written: int) -> None:
    cost = parse_case(text).build().cost()
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, bytes_read, bytes_written)


USERS_OWN = """
from dataclasses import dataclass
from fiprof.workloads.base import Cost, Workload, param

@dataclass(frozen=True)
class Params:
    width: int = param(64, "columns", low=1, high=128)

class Mine(Workload[Params]):
    name = "mine"
    summary = "a kernel of my own"
    Params = Params

    def setup(self):
        raise NotImplementedError

    def cost(self):
        return Cost(self.params.width, 1, 2)
"""


def test_a_file_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module")
    with pytest.raises(FiprofError) as caught:
        find(f"{tmp_path}/broken.py:mine")
    assert "No module named 'no_such_module'" in caught.value.message
    assert "inside its methods" in caught.value.remedy


MINE = """
from __future__ import annotations
from dataclasses import dataclass
from fiprof.workloads.base import Workload, param

@dataclass(frozen=True)
class Params:
    {name}: int = param(1, "a number")

class Mine(Workload[Params]):
    name = "mine"
    summary = "mine"
    Params = Params

    def setup(self):
        return lambda: ()
"""


def test_an_unfinished_workload_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(name="size"))
    with pytest.raises(FiprofError, match=r"the workload 'mine' in .*mine.py has no cost") as raised:
        find(f"{tmp_path / 'mine.py'}:mine")
    assert "rmsnorm.py" in raised.value.remedy


def test_a_parameter_that_collect_has_an_option_for(tmp_path: Path, fiprof: Fiprof) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(name="seed") + "\n    def cost(self):\n        return None\n")
    done = fiprof("collect", "--workload", f"{tmp_path / 'mine.py'}:mine", "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("fiprof: a workload's parameter has the name of the command's own option --seed")


@pytest.mark.parametrize("name", ["workloads", "parsers", "orchestrator"])
def test_a_link_at_the_top_is_seen_and_not_imported(name: str) -> None:
    assert (REPOSITORY / name).is_symlink() and (REPOSITORY / name / "__init__.py").is_file()
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 1 and f"import fiprof.{name}" in done.stderr.decode()
