"""Forty decode steps of a small model, one of them with something planted: what ``fiprof story`` has to name.

    python3 examples/surprises.py gc              # prints what was planted, and the time of every step, as JSON
    fiprof profile --tool nsys -- python3 examples/surprises.py gc
    fiprof story latest

A step has LAYERS layers of two products and a norm, and ends when its result is on the host. Step PLANTED_AT does more:
``sleep``, ``gc`` (Python's garbage collection of a large heap), ``item`` (``.item()`` after each layer), ``allocation``
(cudaMalloc), ``compile`` (a kernel that is compiled on first use), ``slow-layer`` (layer SLOW_LAYER of every step),
``kernel`` (more kernels from that step on), ``leak`` (64 MB a step from that step on), ``clean`` (nothing).
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.cuda import nvtx

import fiprof  # its ranges name garbage collections

STEPS, WARM_UP, PLANTED_AT = 40, 8, 29
LAYERS, SLOW_LAYER, SIDE = 8, 5, 2048
KIND = {"dtype": torch.bfloat16, "device": "cuda"}
SOURCE = """
extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) x[i] *= 1.0001f;
}"""


class Planted:
    """What the planted step does more, by name."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.x = torch.ones(1 << 20, device="cuda")

    def sleep(self) -> None:
        time.sleep(0.02)

    def gc(self) -> None:
        gc.collect()

    def allocation(self) -> None:
        size = 256 << 20
        for _ in range(4):
            self.kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))

    def compile(self) -> None:
        import cupy

        kernel = cupy.RawKernel(SOURCE, "scale", backend="nvrtc")
        kernel((4096,), (256,), (cupy.asarray(self.x), self.x.numel()))

    def leak(self) -> None:
        self.kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))


PLANTS: dict[str, Callable[[Planted], None] | None] = {
    "clean": None,
    "sleep": Planted.sleep,
    "gc": Planted.gc,
    "item": None,
    "allocation": Planted.allocation,
    "compile": Planted.compile,
    "slow-layer": None,
    "kernel": None,
    "leak": Planted.leak,
}


def main() -> None:
    """Runs the steps; prints a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planted", choices=PLANTS)
    planted = parser.parse_args().planted
    more = Planted()
    if planted == "gc":
        more.kept += [[number] for number in range(3_000_000)]
    gc.disable()  # but for what is planted
    weights = torch.randn(LAYERS, 2, SIDE, SIDE, **KIND) / SIDE**0.5
    x = torch.randn(64, SIDE, **KIND)

    def layer(number: int, x: Tensor, step: int) -> Tensor:
        with nvtx.range(f"layer {number}"):
            x = torch.nn.functional.rms_norm(x, (SIDE,))
            times = 4 if planted == "slow-layer" and number == SLOW_LAYER else 1
            for _ in range(times):
                x = x @ weights[number, 0] @ weights[number, 1]
            if planted == "kernel" and step >= PLANTED_AT and number == 0:
                x = x.float().sort(dim=1).values.to(x.dtype)
            if planted == "item" and step == PLANTED_AT:
                x.max().item()
        return x

    lines = []
    with torch.inference_mode():
        for step in range(-WARM_UP, STEPS):
            begin = time.perf_counter()
            with nvtx.range(f"step {step}") if step >= 0 else nullcontext(), fiprof.range("decode"):
                y = x
                for number in range(LAYERS):
                    y = layer(number, y, step)
                act = PLANTS[planted]
                if act and (step == PLANTED_AT or (planted == "leak" and step > PLANTED_AT)):
                    act(more)
                y[0, 0].tolist()
            if step >= 0:
                lines.append(round(1e6 * (time.perf_counter() - begin), 1))
    print(json.dumps({"planted": planted, "at": PLANTED_AT, "layers": LAYERS, "step_us": lines}), flush=True)


if __name__ == "__main__":
    main()
