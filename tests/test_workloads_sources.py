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
from fiprof.flashinfer.results import SourceMissing, SourcePlace
from fiprof.flashinfer.sources import find as sources
from fiprof.flashinfer.sources.lookup import find_sources
from fiprof.flashinfer.sources.topics import JIT, TOPICS
from tests.conftest import REPOSITORY


def installed() -> list[Path]:
    named = os.environ.get("FIPROF_TEST_FLASHINFER", "")
    folders = [Path(text) for text in named.split(os.pathsep) if text] or sorted(REPOSITORY.glob(".flashinfer/*"))
    return [folder for folder in folders if (folder / "flashinfer").is_dir()]


# Names as nsys and ncu wrote them for FlashInfer 0.6.13 on an H200.
TRAITS = "AttentionKernelTraits<0, 128, 128, 128, 96, 2, cutlass::half_t, cutlass::half_t, cutlass::half_t, int, StandardAttention>"
FA3 = f"void PrefillWithKVCacheKernel<SparseCollectiveMainloop<PagedParams::AdditionalParams, {TRAITS}, 1, 0>, CollectiveEpilogue<{TRAITS}>, {TRAITS}, 0, 1, BatchPrefillTileScheduler<int>, 0>(T1::Params, T2::Params, T6::Params)"
FA2 = "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, (unsigned int)128, (unsigned int)2, (unsigned int)4, (unsigned int)8, (unsigned int)8, (unsigned int)4, (unsigned int)1, (flashinfer::PosEncodingMode)0, __half, __half, __half, float, int, flashinfer::DefaultAttention<(bool)0, (bool)0, (bool)0, (bool)0>>, PagedParams>(T2)"
DECODE = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, (unsigned int)2, (unsigned int)1, (unsigned int)8, (unsigned int)16, (unsigned int)4, (unsigned int)2, flashinfer::DefaultAttention<(bool)0, (bool)0, (bool)0, (bool)0>, Params>(T9)"
DECODE_CUH = """\
// BatchDecodeWithPagedKVCacheKernel( in a comment is no definition {
/*!
 * \\tparam vec_size The elements of a
 *   vector
 */
template <PosEncodingMode POS_ENCODING_MODE, uint32_t num_stages_smem, uint32_t tile_size_per_bdx,
          uint32_t vec_size, uint32_t bdx, uint32_t bdy, uint32_t bdz, typename AttentionVariant,
          typename Params>
__global__ void BatchDecodeWithPagedKVCacheKernel(const __grid_constant__ Params params) {
  BatchDecodeWithPagedKVCacheDevice<vec_size>(params);
}
template <uint32_t HEAD_DIM>
cudaError_t Other() { constexpr uint32_t bdx = 999; }
template <uint32_t HEAD_DIM>
cudaError_t BatchDecodeWithPagedKVCacheDispatched(Params params);
template <uint32_t HEAD_DIM>
cudaError_t BatchDecodeWithPagedKVCacheDispatched(Params params) {
  constexpr uint32_t vec_size = std::max(16 / sizeof(T), HEAD_DIM / 32);
  constexpr uint32_t bdx = HEAD_DIM / vec_size;
  DISPATCH_STAGES(compute_capacity, NUM_STAGES_SMEM, {
    auto kernel = BatchDecodeWithPagedKVCacheKernel<POS, NUM_STAGES_SMEM, 1, vec_size, bdx, bdy, bdz, V, P>;
  });
}
"""
PREFILL_SM90_CUH = """\
template <typename CollectiveMainloop, typename CollectiveEpilogue, typename Ktraits, bool LEFT, bool CAUSAL,
          typename TileScheduler, bool MULTI = false>
__global__ void __launch_bounds__(Ktraits::NUM_WARPS* 32, 1)
    PrefillWithKVCacheKernel(typename CollectiveMainloop::Params const mainloop_params) {}
template <int HEAD_DIM>
cudaError_t BatchPrefillWithPagedKVCacheDispatched(Params& params) {
  if constexpr (HEAD_DIM == 64) {
    run<AttentionKernelTraits</*USE_TMA_LOAD_KV=*/false, HEAD_DIM, HEAD_DIM,
                              /*CTA_Q_=*/192,
                              /*CTA_KV_=*/96, /*NUM_STAGES_=*/2, A, B, C, D, E>>(params);
  } else {
    run<AttentionKernelTraits</*USE_TMA_LOAD_KV=*/false, HEAD_DIM, HEAD_DIM,
                              /*CTA_Q_=*/128,
                              /*CTA_KV_=*/96, /*NUM_STAGES_=*/2, A, B, C, D, E>>(params);
  }
}
"""
TRAITS_CUH = """\
template <bool USE_TMA_LOAD_KV, int HEAD_DIM_QK_, int HEAD_DIM_VO_, int CTA_Q_, int CTA_KV_,
          int NUM_STAGES_, typename Q, typename K, typename O, typename I, typename V>
struct AttentionKernelTraits {
};
"""
DECODE_PY = """\
from typing import overload
class BatchDecodeWithPagedKVCacheWrapper:
    def plan(self): ...
    @overload
    def run(self, q): ...
    @overload
    def run(self, q, lse): ...
    def run(self, q, lse=None): ...
class Other:
    def plan(self): ...
if True:
    def get_batch_decode_module(*args): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A FlashInfer in miniature."""
    root = tmp_path / "site" / "flashinfer"
    files = {
        "__init__.py": "from .decode import (\n    BatchDecodeWithPagedKVCacheWrapper as BatchDecodeWithPagedKVCacheWrapper,\n)\nfrom .norm import rmsnorm\n",
        "activation.py": "def rmsnorm(): ...\n",
        "decode.py": DECODE_PY,
        "norm/__init__.py": "\n\ndef rmsnorm(): ...\n",
        "data/include/flashinfer/attention/decode.cuh": DECODE_CUH,
        "data/include/flashinfer/attention/hopper/prefill_sm90.cuh": PREFILL_SM90_CUH,
        "data/include/flashinfer/attention/hopper/quantization/kernel_traits.cuh": TRAITS_CUH,
        "data/include/flashinfer/attention/hopper/traits.cuh": TRAITS_CUH,
        "data/csrc/batch_decode.cu": "Array BatchDecodeWithPagedKVCachePlan(\n    int x);\nArray BatchDecodeWithPagedKVCachePlan(\n    int x) {\n}\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def where(places: list[SourcePlace], part: str, name: str) -> str:
    (found,) = {f"{place.path}:{place.line}" for place in places if (place.part, place.name) == (part, name)}
    return found


def test_from_the_python_call_to_the_device(root: Path) -> None:
    places = sources.source_map(root, [DECODE]).places
    assert {place.topic for place in places} == {"decode on CUDA cores"}
    assert where(places, "entry", "BatchDecodeWithPagedKVCacheWrapper") == "flashinfer/decode.py:2"
    assert where(places, "plan", "plan") == "flashinfer/decode.py:3"
    # Neither an overload nor another class's.
    assert where(places, "run", "run") == "flashinfer/decode.py:8"
    assert where(places, "module", "get_batch_decode_module") == "flashinfer/decode.py:12"
    # A declaration is no definition.
    assert where(places, "binding", "BatchDecodeWithPagedKVCachePlan") == "flashinfer/data/csrc/batch_decode.cu:3"
    header = "flashinfer/data/include/flashinfer/attention/decode.cuh"
    assert where(places, "kernel", "BatchDecodeWithPagedKVCacheKernel") == f"{header}:9"
    assert where(places, "dispatch", "BatchDecodeWithPagedKVCacheDispatched") == f"{header}:17"


def test_what_is_not_there_is_named(root: Path) -> None:
    found = sources.source_map(root, [DECODE, "void at::native::elementwise_kernel<128, 2>(int)"])
    assert SourceMissing("decode on CUDA cores", "scheduler", "DecodePlan") in found.missing
    assert SourceMissing("", "kernel", "elementwise_kernel") in found.missing


def test_the_exported_function_and_not_another_of_its_name(root: Path) -> None:
    places = sources.source_map(root, ["RMSNormKernel"]).places
    assert where(places, "entry", "rmsnorm") == "flashinfer/norm/__init__.py:3"


def test_a_kernel_of_cute_dsl_is_the_python_class(root: Path) -> None:
    (root / "norm" / "kernels").mkdir()
    (root / "norm" / "kernels" / "rmsnorm.py").write_text("class RMSNormKernel: ...\n")
    header = root / "data/include/flashinfer/norm.cuh"
    header.write_text("template <uint32_t VEC_SIZE>\n__global__ void RMSNormKernel(T* x) {}\n")
    found = sources.source_map(
        root, ["kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensor"]
    )
    assert where(found.places, "kernel in CuTe DSL", "RMSNormKernel") == "flashinfer/norm/kernels/rmsnorm.py:1"
    assert "kernel" not in {place.part for place in found.places}
    assert found.tunables == []


def test_template_parameters_with_the_profiled_values(root: Path) -> None:
    tunables = {tunable.name: tunable for tunable in sources.source_map(root, [DECODE]).tunables}
    assert {name: tunable.value for name, tunable in tunables.items()} == {
        "POS_ENCODING_MODE": "0", "num_stages_smem": "2", "tile_size_per_bdx": "1", "vec_size": "8", "bdx": "16",
        "bdy": "4", "bdz": "2",
    }  # fmt: skip
    assert tunables["vec_size"].source_says == "The elements of a vector"
    assert tunables["vec_size"].declared.line == 7
    # The one of the function that launches this kernel, not the 999 of another.
    assert tunables["bdx"].set_at and tunables["bdx"].set_at.snippet == "constexpr uint32_t bdx = HEAD_DIM / vec_size;"
    assert tunables["num_stages_smem"].set_at and "NUM_STAGES_SMEM" in tunables["num_stages_smem"].set_at.snippet
    assert tunables["bdz"].set_at is None


def test_traits_are_those_of_the_profiled_kernel(root: Path) -> None:
    found = sources.source_map(root, [FA3])
    tunables = {tunable.name: tunable for tunable in found.tunables}
    assert (tunables["CTA_Q"].value, tunables["CTA_KV"].value, tunables["NUM_STAGES"].value) == ("128", "96", "2")
    # The branch for a head of 64 has a tile of 192.
    assert tunables["CTA_Q"].set_at and tunables["CTA_Q"].set_at.line == 13
    assert tunables["CTA_Q"].declared.path == "flashinfer/data/include/flashinfer/attention/hopper/traits.cuh"
    assert tunables["CAUSAL"].value == "1"
    assert where(found.places, "kernel", "PrefillWithKVCacheKernel").endswith("prefill_sm90.cuh:4")


def test_a_kernel_of_another_version_gets_no_values(root: Path) -> None:
    shifted = DECODE.replace("Kernel<", "Kernel<__half, ")
    found = sources.source_map(root, [shifted])
    assert {tunable.value for tunable in found.tunables} == {None}
    assert [item.part for item in found.missing if not item.topic] == ["template"]


def test_the_interpreter_tells(root: Path, tmp_path: Path) -> None:
    """By path, without fiprof on its path, and without importing FlashInfer."""
    (root / "__init__.py").write_text("raise SystemExit('imported')\n")
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root.parent}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    found = find_sources(str(program), [DECODE])
    assert found.package == "flashinfer-python"
    assert any(place.name == "BatchDecodeWithPagedKVCacheKernel" for place in found.places)
    assert [tunable.value for tunable in found.tunables if tunable.name == "bdx"] == ["16"]


def test_no_flashinfer(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    with pytest.raises(FiprofError, match="flashinfer is not installed for"):
        find_sources(str(program))
    with pytest.raises(FiprofError, match="cannot tell where"):
        find_sources(str(tmp_path / "none"))


@pytest.fixture(params=installed() or [Path()], ids=lambda folder: folder.name or "none")
def flashinfer(request: pytest.FixtureRequest) -> Path:
    if request.param == Path():
        pytest.skip("no FlashInfer: FIPROF_TEST_FLASHINFER=DIR:DIR, or .flashinfer/VERSION")
    return Path(request.param) / "flashinfer"


def test_every_place_of_an_installed_version_is_there(flashinfer: Path) -> None:
    found = sources.source_map(flashinfer)
    assert found.missing == []
    assert {place.topic for place in found.places} == {topic.name for topic in (*TOPICS, JIT)}
    chosen = [tunable.set_at for tunable in found.tunables if tunable.set_at]
    assert len(chosen) > 20
    for place in [*found.places, *(tunable.declared for tunable in found.tunables), *chosen]:
        line = (flashinfer.parent / place.path).read_text().splitlines()[place.line - 1]
        assert place.name in line
        assert line.strip().startswith(place.snippet)


def test_kernels_of_an_installed_version_are_kernels(flashinfer: Path) -> None:
    for place in sources.source_map(flashinfer).places:
        if place.part == "kernel":
            lines = (flashinfer.parent / place.path).read_text().splitlines()
            assert "__global__" in " ".join(lines[place.line - 2 : place.line])


def test_the_tile_of_fa3_in_an_installed_version(flashinfer: Path) -> None:
    tunables = {tunable.name: tunable for tunable in sources.source_map(flashinfer, [FA3]).tunables}
    assert tunables["CTA_KV"].value == "96"
    assert tunables["CTA_KV"].set_at and "/*CTA_KV_=*/96" in tunables["CTA_KV"].set_at.snippet
    assert tunables["CTA_Q"].set_at and "/*CTA_Q_=*/128" in tunables["CTA_Q"].set_at.snippet
