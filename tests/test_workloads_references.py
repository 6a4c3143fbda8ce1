"""The float32 references, against formulas of their own, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from fiprof.workloads.case import parse_case

torch = pytest.importorskip("torch", reason="torch is not installed: references are not checked")


def build(text: str, seed: int = 0) -> Any:
    return parse_case(text).build(device="cpu", seed=seed)


def relative_error(got, want) -> float:  # type: ignore[no-untyped-def]
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", ["true", "false"])
def test_prefill(kv_heads: int, causal: str) -> None:
    text = f"prefill[batch=2,seq_len=37,q_heads=4,kv_heads={kv_heads},head_dim=16,page_size=8,causal={causal}]"
    workload = build(text)
    query, kv = workload.inputs
    (got,) = workload.reference()
    for request in range(2):
        pages = kv.cache[kv.indices.long().view(2, 5)[request]]
        keys, values = pages[:, 0].reshape(40, kv_heads, 16)[:37], pages[:, 1].reshape(40, kv_heads, 16)[:37]
        rows = slice(request * 37, (request + 1) * 37)
        want = torch.nn.functional.scaled_dot_product_attention(
            query[rows].double().transpose(0, 1),
            keys.double().transpose(0, 1).repeat_interleave(4 // kv_heads, 0),
            values.double().transpose(0, 1).repeat_interleave(4 // kv_heads, 0),
            is_causal=causal == "true",
        ).transpose(0, 1)
        assert relative_error(got[rows], want) < 1e-5


def test_decode_ignores_the_rest_of_the_last_page() -> None:
    workload = build("decode[batch=3,kv_len=21,q_heads=4,kv_heads=2,head_dim=16,page_size=8]")
    query, kv = workload.inputs
    (before,) = workload.reference()
    last_pages = kv.indices.long().view(3, 3)[:, -1]
    kv.cache[last_pages, :, 21 - 16 :] = 1000.0
    (after,) = workload.reference()
    assert torch.equal(before, after)
    keys, values = kv.dense(1)
    scores = torch.stack([keys[:, head // 2].double() @ query[1, head].double() for head in range(4)]) / 4
    weights = scores.softmax(-1)
    want = torch.stack([weights[head] @ values[:, head // 2].double() for head in range(4)])
    assert relative_error(after[1], want) < 1e-5


def test_pages_are_shuffled() -> None:
    _, kv = build("decode[batch=8,kv_len=128]").inputs
    assert not torch.equal(kv.indices, torch.arange(64, dtype=torch.int32))
    assert torch.equal(kv.indices.sort().values, torch.arange(64, dtype=torch.int32))


def test_rmsnorm() -> None:
    workload = build("rmsnorm[rows=5,hidden=64]")
    rows, weight = workload.inputs
    (got,) = workload.reference()
    want = torch.nn.functional.rms_norm(rows.double(), (64,), weight.double(), eps=1e-6)
    assert relative_error(got, want) < 1e-6


def test_fused_add_rmsnorm() -> None:
    workload = build("fused_add_rmsnorm[rows=5,hidden=64]")
    rows, residual, weight = workload.inputs
    normalized, total = workload.reference()
    assert torch.equal(total, rows.float() + residual.float())
    want = torch.nn.functional.rms_norm(total.double(), (64,), weight.double(), eps=1e-6)
    assert relative_error(normalized, want) < 1e-6


@pytest.mark.parametrize("variant", ["inplace", "cos_sin_cache"])
def test_rope_is_a_rotation_of_complex_pairs(variant: str) -> None:
    workload = build(f"rope[tokens=50,seq_len=20,q_heads=2,kv_heads=1,head_dim=8,variant={variant}]")
    query, _, positions = workload.inputs
    got, _ = workload.reference()
    assert positions.tolist() == [*range(20), *range(20), *range(10)]
    pairs = torch.complex(query[..., :4].double(), query[..., 4:].double())
    angles = positions.double()[:, None, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    assert relative_error(got, torch.cat([turned.real, turned.imag], -1)) < 1e-6


def test_llama31_slows_the_low_frequencies_alone() -> None:
    plain = 5e5 ** (-torch.arange(0, 128, 2).double() / 128)
    scaled = build("rope[variant=llama31,tokens=2,q_heads=1,kv_heads=1]").frequencies()
    wavelength = 2 * torch.pi / plain
    short, long = wavelength < 8192 / 4, wavelength > 8192 / 1
    assert relative_error(scaled[short], plain[short]) < 1e-6
    assert relative_error(scaled[long], plain[long] / 8) < 1e-6
    between = ~short & ~long
    assert bool(((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8)).all())


@pytest.mark.parametrize("name", ["decode[batch=2,kv_len=8]", "rmsnorm[rows=2]", "rope[tokens=4]"])
def test_inputs_are_seeded_and_never_zero(name: str) -> None:
    first, again, other = (build(name, seed).inputs[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float((first == 0).double().mean()) < 0.01


def test_a_wrong_result_is_refused() -> None:
    from fiprof.errors import FiprofError
    from fiprof.workloads.runner import compare

    want = torch.ones(4)
    assert compare((want.half(),), (want,), 1e-3)["relative_error"] == 0.0
    for wrong in (want * 1.1, want * float("nan"), torch.zeros(4)):
        with pytest.raises(FiprofError, match="wrong result"):
            compare((wrong,), (want,), 1e-3)
