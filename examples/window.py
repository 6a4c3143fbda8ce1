"""The same products in two NVTX ranges, once on large and once on small inputs too, between cudaProfilerStart and Stop.

fiprof profile --capture cudaProfilerApi --range prefill --range decode -- python3 examples/window.py [STEPS]
"""

import sys

import torch


def step(large: torch.Tensor, small: torch.Tensor, weight: torch.Tensor) -> None:
    with torch.cuda.nvtx.range("prefill"):
        torch.relu(large @ weight)
        torch.relu(small @ weight)
    with torch.cuda.nvtx.range("decode"):
        for _ in range(8):
            torch.relu(small @ weight)


def main(steps: int) -> None:
    torch.manual_seed(0)
    large, small, weight = (torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16) for rows in (8192, 16, 4096))
    for _ in range(10):
        step(large, small, weight)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for _ in range(steps):
        step(large, small, weight)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
    step(large, small, weight)
    torch.cuda.synchronize()
    print("done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
