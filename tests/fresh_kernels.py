"""A fourth exam for ``fiprof verdict``: 32 kernels of serving, training and HPC. docs/verdict.md says how it was made."""

from functools import partial

from tests.exam_kernels import exams, triton

torch_exam = exams(globals(), "fresh")

# fmt: off
torch_exam("cross_entropy_rows", lambda torch, normal: partial(
    triton("cross_entropy", 2048), normal(2048, 32768), (normal(2048).abs() * 1000).long(),
        torch.empty_like(normal(2048).float()), length=32768, num_warps=16))
torch_exam("dropout_philox", lambda torch, normal: partial(
    triton("dropout", 1 << 16), x := normal(1 << 26), torch.empty_like(x), 1234, 0.1, block=1024))
torch_exam("layer_norm_backward", lambda torch, normal: partial(
    triton("layer_norm_backward", 8192), x := normal(8192, 4096), normal(8192, 4096), normal(4096),
        torch.empty_like(x), length=4096, num_warps=8))
torch_exam("experts_product", lambda torch, normal: partial(
    triton("experts_product", 16, 64), normal(64, 16, 1024), normal(64, 1024, 2048),
        torch.empty_like(normal(64, 16, 2048)), inner=1024, columns=2048, tile=128, num_stages=3))
torch_exam("sampling_softmax_tiny", lambda torch, normal: partial(torch.softmax, normal(64, 1024), 1))
torch_exam("decode_bmm", lambda torch, normal: partial(torch.bmm, normal(256, 1, 128), normal(256, 128, 4096)))
torch_exam("histc_ten_bins", lambda torch, normal: partial(torch.histc, normal(1 << 25).float(), 10, -4, 4))
torch_exam("lora_up_rank16", lambda torch, normal: partial(torch.mm, normal(8192, 16), normal(16, 8192)))
torch_exam("dgemm_cublas",
    lambda torch, normal: partial(torch.mm, normal(2048, 2048).double(), normal(2048, 2048).double()))
torch_exam("cat_residuals", lambda torch, normal: partial(torch.cat, [normal(1 << 25), normal(1 << 25)]))
