"""A model of Llama-3.1-8B's shape split over two GPUs: each rank has half of the heads and of the MLP, and all-reduces
sum what the halves come to, after attention and after the MLP. One rank can be slowed by a known factor.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py                # prints its times as JSON lines
    torchrun --nproc-per-node 2 examples/tensor_parallel.py --slow-rank 1 --slow-by 1.25 --all-reduce flashinfer
    python3 examples/tensor_parallel.py --dry-run                          # the split alone, without a GPU
    fiprof profile --tool nsys -- torchrun --nproc-per-node 2 examples/tensor_parallel.py --slow-rank 1

Ranges: ``warm up``, ``prefill``, ``decode step N`` > ``plan``, ``layer N`` > ``all-reduce``, ``slowed`` (a kernel that
does nothing, before the MLP's all-reduce). The times are those of CUDA events, a list of both ranks each. The ranks end
an all-reduce together: by how much shorter one's was, so much later it came to it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

RANKS, HIDDEN, PARAMETERS, HEADS = 2, 4096, 218_112_000, 32
"""Ranks, and of the whole model: its hidden size, a layer's parameters, its heads."""
PAGE = 512
"""Tokens in a page: plan() sends a table of them."""


def flashinfer_all_reduce(most_bytes: int) -> Callable[[Tensor], Tensor]:
    """FlashInfer's all-reduce of two processes of one host: each reads the other's buffer over NVLink (CUDA IPC)."""
    import torch
    from flashinfer import comm
    from flashinfer.comm.cuda_ipc import cudart
    from torch import distributed

    rank = distributed.get_rank()
    signals = comm.create_shared_buffer(comm.vllm_meta_size())
    cudart.cudaMemset(signals[rank], 0, comm.vllm_meta_size())
    torch.cuda.synchronize()
    distributed.barrier()
    table = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    handle = comm.vllm_init_custom_ar(signals, table, rank, True)
    buffers = comm.create_shared_buffer(most_bytes)
    comm.vllm_register_buffer(handle, buffers)

    def all_reduce(part: Tensor, _table: Tensor = table) -> Tensor:
        total = torch.empty_like(part)
        comm.vllm_all_reduce(handle, part, total, buffers[rank], most_bytes, 36)
        return total

    return all_reduce


def main() -> None:
    """Runs the steps on every rank; the first prints a line of JSON a step and one of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8, help="layers of the model [8]")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of the prefill [2048]")
    parser.add_argument("--batch", type=int, default=32, help="requests that decode [32]")
    parser.add_argument("--context", type=int, default=16384, help="tokens of each that the KV cache holds [16384]")
    parser.add_argument("--steps", type=int, default=12, help="decode steps [12]")
    parser.add_argument("--all-reduce", choices=("nccl", "flashinfer"), default="nccl", help="whose [nccl]")
    parser.add_argument("--slow-rank", type=int, choices=range(RANKS), help="the rank that is slowed [none]")
    parser.add_argument("--slow-by", type=float, default=1.25, help="times as long as its layers take [1.25]")
    parser.add_argument("--dry-run", action="store_true", help="print the split alone: no GPU")
    arguments = parser.parse_args()
    split = {"ranks": RANKS, "heads": HEADS // RANKS, "layer_bytes": 2 * PARAMETERS // RANKS}
    split |= {"all_reduces": 2 * arguments.layers, "prefill_bytes": 2 * HIDDEN * arguments.prompt}
    split |= {"decode_bytes": 2 * HIDDEN * arguments.batch}
    if arguments.dry_run:
        print(json.dumps(vars(arguments) | split))
        return
    if os.environ.get("WORLD_SIZE") != str(RANKS):
        raise SystemExit(f"needs {RANKS} processes: torchrun --nproc-per-node {RANKS} {__file__}")

    import torch

    if (gpus := torch.cuda.device_count()) < RANKS:
        raise SystemExit(f"needs {RANKS} GPUs, and here are {gpus}; --dry-run needs none")
    from paged_llama import VOCABULARY, Model, Part
    from torch import distributed
    from torch.cuda import nvtx

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {"all_reduce_us": [], "slowed_us": []}
    spin_cycles = 0

    def timed(key: str, name: str, act: Callable[[], Any]) -> Any:
        """What an action gives; a range and two events around it."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with nvtx.range(name):
            begin.record()
            found = act()
            end.record()
        marks[key].append((begin, end))
        return found

    def nccl_all_reduce(part: Tensor) -> Tensor:
        distributed.all_reduce(part)
        return part

    def reduce(part: Tensor) -> Tensor:
        if spin_cycles and len(marks["all_reduce_us"]) % 2:  # after the MLP
            timed("slowed_us", "slowed", lambda: torch.cuda._sleep(spin_cycles))
        return timed("all_reduce_us", "all-reduce", lambda: all_reduce(part))

    def step(name: str, parts: list[Part]) -> dict[str, Any]:
        """One step of all layers, and its times on this rank."""
        for pairs in marks.values():
            pairs.clear()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with nvtx.range(name):
            before = time.perf_counter()
            begin.record()
            model.step(parts, decoding=name.startswith("decode"))
            end.record()
            end.synchronize()
            after = time.perf_counter()
        times = {"host_us": round(1e6 * (after - before), 1), "gpu_us": round(1e3 * begin.elapsed_time(end), 1)}
        apart = {key: [round(1e3 * a.elapsed_time(b), 1) for a, b in pairs] for key, pairs in marks.items()}
        layers_us = 1e3 * marks["all_reduce_us"][0][0].elapsed_time(marks["all_reduce_us"][-1][1])
        return {**times, **apart, "layer_us": layers_us / (arguments.layers - 0.5)}

    with torch.inference_mode(), nvtx.range("load"):
        most = max(arguments.prompt, arguments.batch)
        nccl = arguments.all_reduce == "nccl"
        all_reduce = nccl_all_reduce if nccl else flashinfer_all_reduce(2 * HIDDEN * most)
        summed = all_reduce(torch.full((8, HIDDEN), rank + 1.0, dtype=torch.bfloat16, device="cuda"))
        assert summed.eq(sum(range(1, RANKS + 1))).all(), "the all-reduce does not sum"
        each = -(-max(arguments.context + arguments.steps + 4, arguments.prompt) // PAGE)
        pages = [list(range(each * owner, each * (owner + 1))) for owner in range(arguments.batch)]
        model = Model(
            arguments.layers,
            each * arguments.batch,
            most,
            arguments.batch,
            page=PAGE,
            ranks=RANKS,
            reduce=reduce,
        )
        model.cache.normal_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(10**6)
        begin.record()
        torch.cuda._sleep(10**7)
        end.record()
        end.synchronize()
        cycles_a_us = 1e7 / (1e3 * begin.elapsed_time(end))

    tokens = random.Random(2).choices(range(VOCABULARY), k=arguments.prompt)
    prompt = Part(tokens, arguments.prompt, pages[0][: -(-arguments.prompt // PAGE)])

    def decoded(number: int) -> list[Part]:
        """The requests in a decode step: each has one token more than in the step before."""
        length = arguments.context + number
        return [Part([number], length, owned[: -(-length // PAGE)]) for owned in pages]

    slowed_by = arguments.slow_by - 1 if arguments.slow_rank == rank else 0
    lines = []
    with torch.inference_mode():
        with nvtx.range("warm up"):
            prefill_us = [step("prefill", [prompt])["layer_us"] for _ in range(2)][-1]
            decode_us = [step("decode", decoded(number))["layer_us"] for number in range(1, 4)][-1]
        distributed.barrier()
        spin_cycles = round(slowed_by * prefill_us * cycles_a_us)
        lines.append(step("prefill", [prompt]))
        spin_cycles = round(slowed_by * decode_us * cycles_a_us)
        lines += [step(f"decode step {number}", decoded(number + 4)) for number in range(arguments.steps)]
    gathered: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    distributed.all_gather_object(gathered, lines)
    if rank == 0:
        late_us = []
        for number, ranks in enumerate(zip(*gathered, strict=True)):
            found: dict[str, Any] = {"step": f"decode step {number - 1}" if number else "prefill"}
            found |= {key: [each[key] for each in ranks] for key in ("host_us", "gpu_us", *marks)}
            together = list(zip(*found["all_reduce_us"], strict=True))
            found["late_us"] = [round(sum(max(times) - times[each] for times in together), 1) for each in range(RANKS)]
            late_us.append(found["late_us"])
            print(json.dumps(found))
        gpu_us = [round(median(line["gpu_us"] for line in ranks[1:]), 1) for ranks in gathered]
        late = [round(median(each), 1) for each in zip(*late_us[1:], strict=True)]
        print(json.dumps(vars(arguments) | split | {"gpu_us": gpu_us, "late_us": late}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
