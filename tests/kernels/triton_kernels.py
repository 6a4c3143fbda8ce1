"""The Triton kernels of the exams: imported where they are launched, for they need Triton."""

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


@triton.jit
def cross_entropy(logits, labels, losses, length: tl.constexpr):
    """A program a row, the whole of it at once."""
    row = logits + tl.program_id(0) * length
    values = tl.load(row + tl.arange(0, length)).to(tl.float32)
    top = tl.max(values, 0)
    chosen = tl.load(row + tl.load(labels + tl.program_id(0))).to(tl.float32)
    tl.store(losses + tl.program_id(0), tl.log(tl.sum(tl.exp(values - top), 0)) + top - chosen)


@triton.jit
def dropout(source, target, seed, rate, block: tl.constexpr):
    """Keep with Philox's random numbers, one an element."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    kept = tl.rand(seed, at) > rate
    tl.store(target + at, tl.where(kept, tl.load(source + at) / (1.0 - rate), 0.0))


@triton.jit
def layer_norm_backward(source, gradient, weight, target, length: tl.constexpr):
    """A program a row: the gradient of its values, its mean and variance computed anew."""
    inner = tl.arange(0, length)
    at = tl.program_id(0) * length + inner
    x = tl.load(source + at).to(tl.float32)
    scaled = tl.load(gradient + at).to(tl.float32) * tl.load(weight + inner).to(tl.float32)
    x = x - tl.sum(x, 0) / length
    inverse = tl.rsqrt(tl.sum(x * x, 0) / length + 1e-5)
    x = x * inverse
    result = (scaled - tl.sum(scaled, 0) / length - x * (tl.sum(scaled * x, 0) / length)) * inverse
    tl.store(target + at, result.to(tl.float16))


@triton.jit
def experts_product(tokens, weights, out, inner: tl.constexpr, columns: tl.constexpr, tile: tl.constexpr):
    """16 tokens for each expert by its own weights [inner, columns], a tile of columns a program."""
    expert = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, 16)
    steps = tl.arange(0, 64)
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    sums = tl.zeros((16, tile), tl.float32)
    for k in range(0, inner, 64):
        a = tl.load(tokens + expert * 16 * inner + rows[:, None] * inner + (k + steps)[None, :])
        b = tl.load(weights + expert * inner * columns + (k + steps)[:, None] * columns + at[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(out + expert * 16 * columns + rows[:, None] * columns + at[None, :], sums.to(tl.float16))


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
