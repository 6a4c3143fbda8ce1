"""The source map, on a FlashInfer in miniature and on those that are installed for the tests.

The real ones are named by FIPROF_TEST_FLASHINFER=DIR:DIR, or lie in .flashinfer/* of the checkout; each is a folder
that ``pip install --no-deps --target DIR flashinfer-python==VERSION`` filled.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.flashinfer.results import SourceMissing
from fiprof.flashinfer.source_map import JIT, TOPICS, find_sources, source_map
from tests.conftest import REPOSITORY

named = os.environ.get("FIPROF_TEST_FLASHINFER", "")
FOLDERS = [Path(text) for text in named.split(os.pathsep) if text] or sorted(REPOSITORY.glob(".flashinfer/*"))
INSTALLED = [folder / "flashinfer" for folder in FOLDERS if (folder / "flashinfer").is_dir()]

DECODE = (
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, (unsigned int)2, Params>(T9)"
)
FILES = {
    "__init__.py": "raise SystemExit('imported')\n",
    "decode.py": "class BatchDecodeWithPagedKVCacheWrapper:\n    def plan(self): ...\n    @overload\n    def run(self): ...\n"
    "    def run(self, lse=None): ...\n",
    "norm/__init__.py": "\n\ndef rmsnorm(): ...\n",
    "norm/kernels/rmsnorm.py": "class RMSNormKernel: ...\n",
    "data/include/flashinfer/norm.cuh": "__global__ void RMSNormKernel(T* x) {}\n",
    "data/include/flashinfer/attention/decode.cuh": "// BatchDecodeWithPagedKVCacheKernel( in a comment\n"
    "__global__ void BatchDecodeWithPagedKVCacheKernel(const Params params) {\n"
    "  auto status = BatchDecodeWithPagedKVCacheDispatched(params);\n}\n"
    "cudaError_t BatchDecodeWithPagedKVCacheDispatched(Params params) {\n  if (tmp_v == nullptr) {}\n}\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "site/flashinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site/flashinfer"


def test_from_the_python_call_to_the_device(root: Path) -> None:
    found = source_map(root, [DECODE, "void at::native::elementwise_kernel<128, 2>(int)"])
    assert {place.topic for place in found.places} == {"decode on CUDA cores"}
    assert [(place.part, place.path.rpartition("/")[2], place.line) for place in found.places] == [
        ("entry", "decode.py", 1), ("plan", "decode.py", 2), ("run", "decode.py", 5), ("dispatch", "decode.cuh", 5),
        ("kernel", "decode.cuh", 2), ("choice", "decode.cuh", 6),
    ]  # fmt: skip
    assert SourceMissing("decode on CUDA cores", "scheduler", "DecodePlan") in found.missing
    assert SourceMissing("", "kernel", "elementwise_kernel") in found.missing
    # CuTe DSL's kernel has its class in its name; no CUDA kernel ran.
    dsl = "kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensor"
    assert [(place.part, place.path) for place in source_map(root, [dsl]).places] == [
        ("entry", "flashinfer/norm/__init__.py"), ("kernel in CuTe DSL", "flashinfer/norm/kernels/rmsnorm.py")
    ]  # fmt: skip


def test_the_interpreter_is_asked(root: Path, tmp_path: Path) -> None:
    """By path, without fiprof on its path, and without importing FlashInfer."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root.parent}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    assert find_sources(str(program), [DECODE]).places == source_map(root, [DECODE]).places
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    with pytest.raises(FiprofError, match="flashinfer is not installed for"):
        find_sources(str(program))
    with pytest.raises(FiprofError, match="cannot tell where"):
        find_sources(str(tmp_path / "none"))


@pytest.mark.parametrize("installed", INSTALLED, ids=lambda root: root.parent.name)
def test_every_place_of_an_installed_version_is_there(installed: Path) -> None:
    found = source_map(installed)
    assert found.missing == []
    assert {place.topic for place in found.places} == {*TOPICS, JIT}
    for place in found.places:
        lines = (installed.parent / place.path).read_text().splitlines()
        assert place.name in lines[place.line - 1] and lines[place.line - 1].strip().startswith(place.snippet)
        if place.part == "kernel":
            assert "__global__" in " ".join(lines[place.line - 2 : place.line])
