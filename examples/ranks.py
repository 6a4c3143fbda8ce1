"""Data-parallel steps, a matrix product and an all-reduce each.

    fiprof profile -- torchrun --nproc-per-node 2 examples/ranks.py [STEPS]

Rank 1 comes late to the all-reduce of some steps: in steps 5, 15, … it sleeps 10 ms, in step 8 it loads a kernel
that it has not used before. The others wait for it.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

import fiprof

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
SLEEP_S = 0.010


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(rank)
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    tokens = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)
    gradients = torch.zeros(16 << 20, device="cuda", dtype=torch.bfloat16)
    dist.all_reduce(gradients)
    torch.cuda.synchronize()
    late = []
    for step in range(STEPS):
        with fiprof.range("step"):
            with fiprof.range("forward"):
                for _ in range(4):
                    tokens = torch.nn.functional.gelu(tokens @ weights) * 0.01
            if rank == 1 and step % 10 == 5:
                torch.cuda.synchronize()
                with fiprof.range("late"):
                    begin = time.perf_counter()
                    time.sleep(SLEEP_S)
                    late.append(time.perf_counter() - begin)
            if rank == 1 and step == 8:
                with fiprof.range("first use"):
                    torch.linalg.qr(torch.randn(64, 64, device="cuda"))
            with fiprof.range("all-reduce"):
                dist.all_reduce(gradients)
            torch.cuda.synchronize()
    print(f"rank {rank} late by {[round(1000 * seconds, 3) for seconds in late]} ms", flush=True)
    dist.destroy_process_group()


main()
