"""An exam for ``fiprof verdict``: kernels as GPU programmers write them, whose limit and first step are known.

Written by somebody who had not read the verdict's rules; collected as those of ``tests/single_purpose.py``, by
``tests/collect_single_purpose.sh``. What is right stands in ``tests/test_exam.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from fiprof.workloads.base import Cost, Random, Workload
from tests.single_purpose import KERNELS
from tests.trouble_kernels import RepeatsParams, Trouble

if TYPE_CHECKING:
    from torch import Tensor


class CudaExam(Trouble):
    """The kernel of a file of tests/kernels that has the workload's name."""

    file: ClassVar[str] = "exam.cu"
    grid: ClassVar[int] = 0
    """Blocks; 0: blocks_per_sm on each multiprocessor."""

    def source(self, name: str) -> str:
        text = (KERNELS / "common.cu").read_text() + (KERNELS / self.file).read_text()
        head, *parts = re.split(r"(?m)^//# ", text)
        return f"{head}{next(part.partition(chr(10))[2] for part in parts if part.startswith(f'{name}:'))}"

    def blocks(self) -> int:
        return self.grid or super().blocks()


class TextureBlur(CudaExam):
    """By CuPy: torch makes no textures."""

    name, summary = "texture_blur", "25 bilinear texture fetches a pixel"
    width = 4096

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import cupy
        import cupy.cuda.texture
        import numpy as np
        import torch

        pixels = Random(self.device, self.seed).normal((self.width, self.width), "fp16").float().cpu().numpy()
        texture = cupy.cuda.texture
        image = texture.CUDAarray(texture.ChannelFormatDescriptor(32, 0, 0, 0, 2), self.width, self.width)
        image.copy_from(pixels)
        looked_up = texture.TextureObject(
            texture.ResourceDescriptor(0, cuArr=image), texture.TextureDescriptor((1, 1), 1, 0)
        )
        kernel = cupy.RawKernel(self.source(self.name), self.name)
        out = torch.zeros(self.width * self.width, device=self.device)
        arguments = (looked_up, np.uintp(out.data_ptr()), np.int32(self.width))

        def launch() -> Sequence[Tensor]:
            kernel((self.width * self.width // self.threads,), (self.threads,), arguments)
            return (out,)

        return launch


class TorchExam(Workload[RepeatsParams]):
    """What torch or Triton launches: ``make`` takes torch and what gives half-precision random numbers of a shape."""

    Params = RepeatsParams
    make: ClassVar[Callable[[Any, Callable[..., Any]], Callable[[], object]]]

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        random = Random(self.device, self.seed)
        launch = type(self).make(torch, lambda *shape: random.normal(shape, "fp16"))

        def launch_one() -> Sequence[Tensor]:
            launch()
            return ()

        return launch_one

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=0, bytes_written=0)


def exam(name: str, summary: str, **launch: float) -> None:
    """A kernel of kernels/exam.cu that is launched as the attributes say."""
    globals()[name] = type(name, (CudaExam,), {"__module__": __name__, "name": name, "summary": summary, **launch})


def torch_exam(name: str, summary: str, make: Callable[[Any, Callable[..., Any]], Callable[[], object]]) -> None:
    """A workload of what the function makes."""
    attributes = {"__module__": __name__, "name": name, "summary": summary, "make": staticmethod(make)}
    globals()[name] = type(name, (TorchExam,), attributes)


def triton(name: str, *grid: int, file: str = "exam_triton") -> Callable[..., object]:
    """What launches a kernel of a file of Triton kernels."""
    launch: Callable[..., object] = getattr(import_module(f"tests.kernels.{file}"), name)[grid]
    return launch


IN_FLIGHT = "more_loads more_warps less_stall"
BYTES = "need_fewer_bytes move_fewer_bytes"
"""Steps of which any is right, where it is this that is wanted."""

Make = Callable[[Any, Callable[..., Any]], object]


def exams(
    module: dict[str, Any], stem: str, answers: dict[str, tuple[str, str, str]]
) -> tuple[Callable[..., None], Callable[[str, str, str, str, Make], None], Callable[..., Callable[..., object]]]:
    """For an exam with answers: what adds to the module, and to these, a kernel of kernels/STEM.cu, launched as the
    attributes say; what adds a workload of what a function makes of torch and half-precision random numbers of a shape;
    and what launches a kernel of kernels/STEM_triton.py."""

    def add(base: type, name: str, answer: tuple[str, str, str], **attributes: object) -> None:
        answers[name] = answer
        module[name] = type(
            name, (base,), {"__module__": module["__name__"], "name": name, "summary": answer[2], **attributes}
        )

    def exam(name: str, limits: str, first_steps: str, built_in: str, **launch: float) -> None:
        add(CudaExam, name, (limits, first_steps, built_in), file=f"{stem}.cu", **launch)

    def torch_exam(name: str, limits: str, first_steps: str, built_in: str, make: Make) -> None:
        add(TorchExam, name, (limits, first_steps, built_in), make=staticmethod(make))

    return exam, torch_exam, partial(triton, file=f"{stem}_triton")


exam("aos_update", "arrays of structures of 64 bytes, two floats of each used", elements=1 << 26, grid=1 << 14)
exam("transpose_naive", "columns written with 32 sectors a store", elements=1 << 24, grid=1 << 14)
exam("transpose_conflicts", "a transpose through an unpadded tile", elements=1 << 24, grid=1 << 14)
exam("histogram_hot_bin", "shared atomics, nearly all on one bin", elements=1 << 24)
exam("tree_reduction", "a block's tree with a barrier and a modulo a step", elements=1 << 24, grid=1 << 16)
exam("spmv_rows", "a sparse matrix, one thread a row", elements=1 << 24, grid=1 << 12)
exam("sgemm_tile", "a matrix product by 16 x 16 tiles, one result a thread", grid=1 << 12)
exam("mma_conflicts", "mma fed by shared loads with 8-way bank conflicts", repeats=512, blocks_per_sm=4)
exam("polynomial_hash", "32-bit integer multiply-adds", repeats=4096)
exam("black_scholes", "option prices: logarithms, exponentials, divisions", repeats=512)
exam("half2_poly", "packed half-precision multiply-adds", repeats=8192)
exam("dp4a_rows", "dot products of four bytes", repeats=8192)
exam("mandelbrot", "lanes that leave a loop at different times", repeats=512, grid=1 << 12)
exam("invert_matrices", "12 x 12 matrices in local memory", threads=128)
exam("nbody_tail", "all pairs of bodies, a wave and a tenth", threads=1024, blocks_per_sm=2.2, repeats=4)
exam("uneven_rows", "a block a row, lengths as 1, 1/2, 1/3, …", elements=1 << 22)
exam("uber_kernel", "warps in turns through 16 long pieces of code", repeats=64, threads=128, blocks_per_sm=4)
exam("warp_sums", "a shuffle tree for each value", repeats=256)
exam("block_scan", "a scan with two barriers a step", elements=1 << 24, threads=1024, grid=1 << 14)
exam("voxel_lookup", "random 4-byte reads from 16 MiB", elements=1 << 22, repeats=64, blocks_per_sm=16)
exam("conv_l1", "64 taps read through L1", elements=1 << 22, grid=1 << 14)
exam("scaled_sum", "y = a x + y with ten warps a multiprocessor", elements=1 << 25, threads=320, blocks_per_sm=1)
exam("horner_few_warps", "one chain in ten warps", threads=320, blocks_per_sm=1, repeats=32768)
exam("gelu_big", "an activation of 128 MiB, arithmetic and DRAM alike", elements=1 << 25, grid=1 << 15)


class ScaledSumMore(CudaExam):
    name, summary = "scaled_sum_more", "scaled_sum with fourteen warps"
    elements, threads, blocks_per_sm = 1 << 25, 448, 1

    def launch(self, name: str) -> Callable[..., Tensor]:  # noqa: ARG002
        return super().launch("scaled_sum")


# fmt: off
torch_exam("gelu_tiny", "an activation of 128 KB",
    lambda torch, normal: partial(torch.nn.functional.gelu, normal(16, 4096)))
torch_exam("residual_add", "the sum of two tensors of 128 MiB",
    lambda torch, normal: partial(torch.add, normal(1 << 26), x := normal(1 << 26), out=torch.empty_like(x)))
torch_exam("layer_norm", "torch's layer norm of 8192 rows of 4096",
    lambda torch, normal: partial(torch.nn.functional.layer_norm, normal(8192, 4096).bfloat16(), (4096,),
                                  weight := normal(4096).bfloat16(), weight))
torch_exam("gemm_bf16", "4096 x 4096 x 4096 by cuBLAS",
    lambda torch, normal: partial(torch.mm, normal(4096, 4096).bfloat16(), normal(4096, 4096).bfloat16()))
torch_exam("skinny_linear", "a layer of 268 MB for eight tokens",
    lambda torch, normal: partial(torch.mm, normal(8, 8192).bfloat16(), normal(16384, 8192).bfloat16().T))
torch_exam("cumsum_rows", "prefix sums of 16 long rows",
    lambda torch, normal: partial(torch.cumsum, normal(16, 1 << 17).float(), 1))
torch_exam("softmax_three_passes", "Triton: rows of 64 KB read three times",
    lambda torch, normal: partial(triton("softmax_three_passes", 2048), x := normal(2048, 16384).float(),
                                  torch.empty_like(x), 16384, block=1024, num_warps=4))
torch_exam("histogram_global", "Triton: an atomic in global memory for each element",
    lambda torch, normal: partial(triton("count_bins", 1 << 12), x := (normal(1 << 22) * 16).int() & 63,
                                  torch.zeros_like(x[:64]), block=1024))
torch_exam("matmul_unpipelined", "Triton: loads and tensor cores in turn",
    lambda torch, normal: partial(triton("matmul_unpipelined", 32, 32), x := normal(2048, 2048), normal(2048, 2048),
                                  torch.empty_like(x), size=2048, tile=64, step=32, num_stages=1))
