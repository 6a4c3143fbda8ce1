"""The Triton kernels of tests/fresh_kernels.py: imported where they are launched, for they need Triton."""

# mypy: ignore-errors
import triton
import triton.language as tl


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
