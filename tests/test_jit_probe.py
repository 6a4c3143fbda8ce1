"""The probe that runs in the workload's interpreter, on a FlashInfer in miniature with the shapes of the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fiprof.flashinfer.jit.probe import call_text
from tests.conftest import REPOSITORY, python_path

CORE_06 = """
class JitSpec:
    def __init__(self, name): self.name = name
    @property
    def is_aot(self): return self.name == "ahead"
    def write_ninja(self): pass
    def build(self, verbose, need_lock=True): self.write_ninja()
    def load(self, path): return "module"
    def build_and_load(self):
        if self.is_aot: return self.load("aot")
        self.build(False, need_lock=False)
        return self.load("jit")
SPEC = JitSpec
"""
CORE_07 = """
import abc
class JitSpec(abc.ABC):
    @abc.abstractmethod
    def build(self): ...
    @abc.abstractmethod
    def load(self): ...
    def build_and_load(self):
        self.build()
        return self.load()
class JitSpecNvcc(JitSpec):
    is_aot = False
    def __init__(self, name): self.name = name
    def write_ninja(self): pass
    def build(self, verbose=None, need_lock=False): self.write_ninja()
    def load(self, path=None): return "module"
SPEC = JitSpecNvcc
"""
# The outer generator is the one that a warm-up calls; the names are bound twice, as in flashinfer.norm.
GENERATORS = """
from flashinfer.jit.core import SPEC
def gen_inner_module(name): return SPEC(name)
def gen_norm_module(name="norm", **options): return gen_inner_module(name)
"""
DRIVER = """
import importlib, json, sys
from fiprof.flashinfer.jit import probe as jit_probe
import flashinfer.norm
trace = jit_probe.Trace()
trace.install(importlib.import_module("flashinfer.jit.core"))
class Workload:
    def setup(self):
        flashinfer.norm.load(sys.argv[1])
        return lambda: ()
class Case:
    def build(self): return Workload()
first, again = jit_probe.time_calls(Case(), trace, 2, lambda: None, lambda text: None)
print(json.dumps({"records": trace.records(), "hooks": trace.hooks, "first": first, "again": again}))
"""


@pytest.fixture(params=[CORE_06, CORE_07], ids=["0.6", "0.7"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the miniature."""
    jit = tmp_path / "site" / "flashinfer" / "jit"
    jit.mkdir(parents=True)
    (jit.parent / "__init__.py").write_text("")
    (jit / "__init__.py").write_text("")
    (jit / "core.py").write_text(request.param)
    (jit / "norm.py").write_text(GENERATORS)
    (jit.parent / "norm.py").write_text(
        "import functools\nfrom flashinfer.jit.norm import gen_norm_module\n"
        "@functools.cache\ndef load(name): return gen_norm_module(name, sizes=[1, 2]).build_and_load()\n"
    )
    return tmp_path / "site"


def traced(site: Path, name: str = "norm") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, name], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": f"{site}:{python_path()}"},
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_the_first_call_is_traced(site: Path) -> None:
    found = traced(site)
    (record,) = found["records"]
    assert [phase for phase, _, _ in record["spans"]] == ["generate", "write_ninja", "build", "load", "build_and_load"]
    begin, end = next(span[1:] for span in record["spans"] if span[0] == "build_and_load")
    inside = [span for span in record["spans"] if span[0] in ("write_ninja", "build", "load")]
    assert all(begin <= span[1] <= span[2] <= end for span in inside)
    assert end <= found["first"]
    assert len(found["again"]) == 2


def test_a_generator_is_told_with_its_arguments(site: Path) -> None:
    (record,) = traced(site)["records"]
    assert record["generator"] == {
        "module": "flashinfer.jit.norm", "function": "gen_norm_module", "args": '"norm", sizes=[1, 2]',
    }  # fmt: skip


def test_a_module_that_a_package_brings(site: Path) -> None:
    (record,) = traced(site, "ahead")["records"]
    assert record["compiled_ahead"] is ("write_ninja" not in [span[0] for span in record["spans"]])


def test_arguments_that_cannot_be_written() -> None:
    assert call_text((1, "fa2", None, (2,)), {"swa": False}) == '1, "fa2", None, (2,), swa=False'
    assert call_text((object(),), {}) is None
    assert call_text((), {"mode": object()}) is None


def test_a_cache_elsewhere_is_refused(site: Path, tmp_path: Path) -> None:
    """Before anything is compiled or loaded; started by path, as an interpreter without fiprof is."""
    (site / "flashinfer" / "jit" / "env.py").write_text('FLASHINFER_WORKSPACE_DIR = "/users/own/.cache/flashinfer"\n')
    (site / "torch.py").write_text("")
    out = tmp_path / "out.jsonl"
    done = subprocess.run(
        [
            sys.executable, str(REPOSITORY / "fiprof/flashinfer/jit/probe.py"), "rmsnorm",
            f"--cache={tmp_path}", f"--out={out}",
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (failure,) = map(json.loads, out.read_text().splitlines())
    assert failure["message"] == (
        f"this FlashInfer caches in /users/own/.cache/flashinfer though FLASHINFER_WORKSPACE_BASE is {tmp_path}"
    )
