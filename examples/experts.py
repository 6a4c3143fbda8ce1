"""A layer with a mixture of experts whose routing is skewed: a few have most of the tokens, and the others wait.

    python3 examples/experts.py --skew 1.2             # 0: all experts alike; prints load and times as JSON lines
    python3 examples/experts.py --grouped              # one grouped product for all experts, not a loop over them
    fiprof profile -- python3 examples/experts.py --steps 8

Ranges: ``step N`` > ``route``, ``expert E: N rows`` (or ``experts``), ``combine``.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median


def main() -> None:
    """Runs the steps; prints a line of JSON a step and one of the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens in a step [4096]")
    parser.add_argument("--experts", type=int, default=32, help="experts, of which each token takes two [32]")
    parser.add_argument("--skew", type=float, default=1.0, help="expert E is chosen as if by 1 / (E + 1) ^ SKEW [1.0]")
    parser.add_argument("--steps", type=int, default=20, help="steps after three that warm up [20]")
    parser.add_argument("--grouped", action="store_true", help="torch's grouped product instead of a loop")
    arguments = parser.parse_args()

    import flashinfer
    import torch
    from torch import Tensor
    from torch.cuda import nvtx

    hidden, intermediate, chosen = 2048, 1024, 2
    torch.manual_seed(0)
    tokens, experts = arguments.tokens, arguments.experts

    def weights(*shape: int) -> Tensor:
        return torch.empty(*shape, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02)

    x, gate_up = weights(tokens, hidden), weights(experts, hidden, 2 * intermediate)
    down = weights(experts, intermediate, hidden)
    chances = torch.arange(1, experts + 1, dtype=torch.float32, device="cuda") ** -arguments.skew

    def route() -> tuple[Tensor, Tensor]:
        """The token of each row in the order of the experts, and where each expert's rows end."""
        picked = torch.multinomial(chances.expand(tokens, -1), chosen).flatten()
        order = picked.argsort(stable=True)
        return order // chosen, torch.bincount(picked, minlength=experts).cumsum(0).int()

    def loop(rows: Tensor, ends: Tensor) -> Tensor:
        out, begin = torch.empty_like(rows), 0
        for expert, end in enumerate(ends.tolist()):
            if end > begin:
                with nvtx.range(f"expert {expert}: {end - begin} rows"):
                    inner = flashinfer.silu_and_mul(rows[begin:end] @ gate_up[expert])
                    torch.mm(inner, down[expert], out=out[begin:end])
            begin = end
        return out

    def grouped(rows: Tensor, ends: Tensor) -> Tensor:
        with nvtx.range("experts"):
            inner = flashinfer.silu_and_mul(torch._grouped_mm(rows, gate_up, offs=ends))
            return torch._grouped_mm(inner, down, offs=ends)

    def step() -> Tensor:
        with nvtx.range("route"):
            owners, ends = route()
            rows = x[owners]
        out = (grouped if arguments.grouped else loop)(rows, ends)
        with nvtx.range("combine"):
            torch.zeros_like(x).index_add_(0, owners, out)
        return ends

    times = []
    load = torch.zeros(experts, dtype=torch.int64)
    with torch.inference_mode():
        for number in range(-3, arguments.steps):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with nvtx.range("warm up" if number < 0 else f"step {number}"):
                before = time.perf_counter()
                begin.record()
                ends = step()
                end.record()
                end.synchronize()
                after = time.perf_counter()
            if number < 0:
                continue
            each = torch.diff(ends.cpu(), prepend=torch.zeros(1, dtype=torch.int32))
            load += each
            found = {"host_us": 1e6 * (after - before), "gpu_us": 1e3 * begin.elapsed_time(end)}
            times.append(found["gpu_us"])
            most = {"most": int(each.max()), "of_tokens": chosen * tokens}
            print(json.dumps({"step": number} | most | {key: round(value, 1) for key, value in found.items()}))
    print(json.dumps({**vars(arguments), "load": load.tolist(), "gpu_us": round(median(times), 1)}), flush=True)


if __name__ == "__main__":
    main()
