"""A CUDA graph of a small network, captured once and replayed.

fiprof profile -- python3 examples/graph.py [REPLAYS]
"""

import sys

import torch

import fiprof

REPLAYS = int(sys.argv[1]) if len(sys.argv) > 1 else 200


def main() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        *(layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024)))
    ).to("cuda", torch.bfloat16)
    tokens = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            layers(tokens)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with fiprof.range("capture"), torch.cuda.graph(graph):
        out = layers(tokens)
    with fiprof.range("replay"):
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
    with fiprof.range("eager"):
        for _ in range(20):
            layers(tokens)
        torch.cuda.synchronize()
    print("mean", out.float().mean().item())


with torch.inference_mode():
    main()
