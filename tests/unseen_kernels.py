"""A third exam for ``fiprof verdict``: 32 kernels as working engineers write them. docs/verdict.md says how it was made."""

from functools import partial

from tests.exam_kernels import exams

torch_exam = exams(globals(), "unseen")

# fmt: off
torch_exam("bias_add_small",
    lambda torch, normal: partial(torch.add, x := normal(64, 4096), normal(4096), out=torch.empty_like(x)))
torch_exam("prefix_sum_long",
    lambda torch, normal: partial(torch.cumsum, x := normal(1 << 26).float(), 0, out=torch.empty_like(x)))
torch_exam("permute_nhwc",
    lambda torch, normal: partial(normal(64, 256, 56, 56).contiguous, memory_format=torch.channels_last))
torch_exam("conv_channels_last", lambda torch, normal: partial(
    torch.nn.functional.conv2d, normal(32, 128, 56, 56).to(memory_format=torch.channels_last),
        normal(128, 128, 3, 3).to(memory_format=torch.channels_last), padding=1))
torch_exam("sgemm_cublas",
    lambda torch, normal: partial(torch.mm, normal(4096, 4096).float(), normal(4096, 4096).float()))
torch_exam("fill_buffer", lambda torch, normal: partial(torch.fill_, normal(1 << 27), 1.5))
torch_exam("sdpa_prefill", lambda torch, normal: partial(
    torch.nn.functional.scaled_dot_product_attention, *(normal(4, 16, 4096, 128) for _ in range(3))))
