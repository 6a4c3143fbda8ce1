"""The Triton kernels of tests/exam_kernels.py: imported where they are launched, for they need Triton."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def softmax_three_passes(source, target, length, block: tl.constexpr):
    """A program a row: its maximum, its sum, its values, each by another pass over memory."""
    row = tl.program_id(0) * length
    at = tl.arange(0, block)
    largest = tl.full((block,), float("-inf"), tl.float32)
    for start in range(0, length, block):
        largest = tl.maximum(largest, tl.load(source + row + start + at))
    top = tl.max(largest, 0)
    sums = tl.zeros((block,), tl.float32)
    for start in range(0, length, block):
        sums += tl.exp(tl.load(source + row + start + at) - top)
    scale = 1.0 / tl.sum(sums, 0)
    for start in range(0, length, block):
        tl.store(target + row + start + at, tl.exp(tl.load(source + row + start + at) - top) * scale)


@triton.jit
def count_bins(source, bins, block: tl.constexpr):
    """A histogram of 64 bins, every element added in global memory."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(bins + tl.load(source + at), 1)


@triton.jit
def matmul_unpipelined(left, right, out, size: tl.constexpr, tile: tl.constexpr, step: tl.constexpr):
    """Square fp16 matrices; loads, then the product, in turn (num_stages=1)."""
    rows = tl.program_id(0) * tile + tl.arange(0, tile)
    columns = tl.program_id(1) * tile + tl.arange(0, tile)
    inner = tl.arange(0, step)
    sums = tl.zeros((tile, tile), tl.float32)
    for k in range(0, size, step):
        a = tl.load(left + rows[:, None] * size + (k + inner)[None, :])
        b = tl.load(right + (k + inner)[:, None] * size + columns[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(out + rows[:, None] * size + columns[None, :], sums.to(tl.float16))
