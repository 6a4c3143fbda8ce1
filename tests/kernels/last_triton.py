"""The Triton kernels of tests/last_kernels.py: imported where they are launched, for they need Triton."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def rms_norm_residual(source, residual, weight, target, length: tl.constexpr):
    """A program a row: added to the residual stream, which is written back, and normalized."""
    inner = tl.arange(0, length)
    at = tl.program_id(0) * length + inner
    x = tl.load(source + at).to(tl.float32) + tl.load(residual + at).to(tl.float32)
    tl.store(residual + at, x.to(tl.float16))
    x = x * tl.rsqrt(tl.sum(x * x, 0) / length + 1e-5)
    tl.store(target + at, (x * tl.load(weight + inner).to(tl.float32)).to(tl.float16))


@triton.jit
def product_ieee(left, right, out, size: tl.constexpr, tile: tl.constexpr):
    """A product in single precision, tensor cores forbidden: right is square, its rows as long as those of left."""
    rows = tl.program_id(0) * tile + tl.arange(0, tile)
    columns = tl.program_id(1) * tile + tl.arange(0, tile)
    steps = tl.arange(0, 32)
    sums = tl.zeros((tile, tile), tl.float32)
    for k in range(0, size, 32):
        a = tl.load(left + rows[:, None] * size + (k + steps)[None, :])
        b = tl.load(right + (k + steps)[:, None] * size + columns[None, :])
        sums = tl.dot(a, b, sums, input_precision="ieee")
    tl.store(out + rows[:, None] * size + columns[None, :], sums)
