"""A fifth exam for ``fiprof verdict``: 32 kernels of serving, training, HPC, graphics, cryptography and databases. How it
was made stands in docs/verdict.md."""

from functools import partial

from tests.exam_kernels import exams, triton

torch_exam = exams(globals(), "last")

# fmt: off
torch_exam("rms_norm_residual", lambda torch, normal: partial(
    triton("rms_norm_residual", 8192), x := normal(8192, 4096), normal(8192, 4096), normal(4096),
        torch.empty_like(x), length=4096, num_warps=8))
torch_exam("product_ieee", lambda torch, normal: partial(
    triton("product_ieee", 22, 24), a := normal(1408, 1536).float(), normal(1536, 1536).float(),
        torch.empty_like(a), size=1536, tile=64))
torch_exam("ema_lerp",
    lambda torch, normal: partial(torch.lerp, x := normal(1 << 26), normal(1 << 26), 0.01, out=torch.empty_like(x)))
torch_exam("fft_rows", lambda torch, normal: partial(
    torch.fft.fft, torch.complex(normal(4096, 4096).float(), normal(4096, 4096).float())))
torch_exam("scatter_add_counts", lambda torch, normal: partial(
    torch.Tensor.scatter_add_, normal(256).float(), 0, (normal(1 << 23).float() * 1e4).long() % 256, normal(1 << 23).float()))
torch_exam("add_transposed", lambda torch, normal: partial(torch.add, normal(8192, 8192).t(), normal(8192, 8192)))
torch_exam("int8_product", lambda torch, normal: partial(
    torch._int_mm, normal(4096, 8192).to(torch.int8), normal(4096, 8192).to(torch.int8).t()))
torch_exam("clamp_tiny", lambda torch, normal: partial(torch.clamp, normal(4096), -1.0, 1.0))
