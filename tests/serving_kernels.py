"""A second exam for ``fiprof verdict``: kernels of kinds that occur where language models are served; written with what is
right of them (``tests/test_exam.py``) before any of them ran, collected by ``tests/collect_single_purpose.sh``.
"""

from __future__ import annotations

from tests.exam_kernels import CudaExam


class Serving(CudaExam):
    file = "serving.cu"


def exam(name: str, summary: str, **launch: float) -> None:
    """A kernel of kernels/serving.cu that is launched as the attributes say."""
    globals()[name] = type(name, (Serving,), {"__module__": __name__, "name": name, "summary": summary, **launch})


exam("int8_gemv_bytes", "int8 weights for one token, a byte a lane", elements=1 << 25, grid=1 << 10)
exam("nearest_code", "codes in L2, a wave and a third", elements=1 << 20, threads=1024, blocks_per_sm=2.58)
exam("rope_powers", "rotary embedding with powers, sines and cosines", elements=1 << 25, grid=1 << 16)
exam("rmsnorm_few_rows", "8 rows of 8192", elements=1 << 16, grid=8)
exam("candidates", "an atomic on a counter for each logit above a threshold", elements=1 << 24, grid=1 << 16)
exam("kv_append_strided", "keys of 2 bytes written 32 bytes apart", elements=1 << 25, grid=1 << 15)
exam("paged_gather_halves", "2 bytes a lane behind a page table", elements=1 << 26)
exam("embedding_gather", "random rows of 16 KB", elements=1 << 26, grid=1 << 13)
exam("splitk_reduce", "16 partial results of 8 MiB", elements=1 << 25, grid=1 << 13)
exam("int4_gemv_alu", "int4 weights taken apart by shifts and conversions", elements=1 << 25, grid=1 << 12)
exam("softmax_rows", "32768 rows of 1024", elements=1 << 25, grid=1 << 15)
exam("histogram_one_bank", "shared counters that lie in one bank", elements=1 << 24, shared_bytes=8192)
exam("transpose_padded", "4096 x 4096 through a padded tile", elements=1 << 24, grid=1 << 14)
exam("matmul_naive", "2048 x 2048 without tiles", elements=1 << 22, grid=1 << 14)
exam("tail_of_a_wave", "a wave and a twentieth", threads=1024, blocks_per_sm=2.1, repeats=16384)
exam("grid_barriers", "grid-wide barriers by spinning", blocks_per_sm=1, repeats=256)
exam("spilled_tile", "96 sums in 64 registers", threads=1024, blocks_per_sm=4, repeats=64)
exam("divergent_formats", "eight branches in a warp", repeats=64)
exam("runtime_indices", "divisions by sizes of the run", elements=1 << 25, grid=1 << 17, repeats=48)
exam("residual_tiny", "128 KB", elements=1 << 16, grid=128)
