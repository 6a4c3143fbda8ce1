"""Ten programs that are slow for one known reason, each with its mended twin: profile them and see what is named.

    python3 examples/causes.py item               # 40 steps that suffer; prints the time of a step as JSON
    python3 examples/causes.py item --mended      # the same work without the cause
    python3 examples/causes.py item --pairs 10    # both ten times in one process, in random order
    fiprof profile --tool nsys -- python3 examples/causes.py item

late-rank takes two ranks: ``torchrun --nproc-per-node 2 examples/causes.py late-rank``. With fewer GPUs than ranks,
gloo replaces NCCL and the ranks share the GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import nullcontext
from statistics import median

import torch
from torch import Tensor, distributed
from torch.utils.data import DataLoader, Dataset

STEPS, WARM_UP = 40, 4
DEVICE = "cuda"
SIDE = 4096  # of the matrices of a product: 0.2 to 0.25 ms on an H100

Step = Callable[[int], object]
Program = Generator[Step, None, None]  # gives its step once, then cleans up


class Products:
    """Half-precision matrix products, one after another: the work that keeps the GPU busy."""

    def __init__(self) -> None:
        kind = torch.float16 if DEVICE == "cuda" else torch.float32
        self.x, self.weights = torch.randn(2, SIDE, SIDE, device=DEVICE, dtype=kind)
        self.result = torch.empty_like(self.x)

    def __call__(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self.x, self.weights, out=self.result)


def host_loop(mended: bool) -> Program:
    """Python makes the positions of every token, one by one, while the GPU waits. Mended: the GPU makes them."""
    products, tokens = Products(), 100_000

    def positions(step: int) -> Tensor:
        if mended:
            return (torch.arange(tokens, device=DEVICE, dtype=torch.int32) * 7 + step) % 4096
        return torch.tensor([(token * 7 + step) % 4096 for token in range(tokens)], dtype=torch.int32).to(DEVICE)

    def step(number: int) -> None:
        products(12)
        positions(number)

    yield step


def item(mended: bool) -> Program:
    """A solver asks for its residual with ``.item()`` in every iteration: the host waits for the GPU, then the GPU for
    the host. Mended: it asks once a step."""
    iterations = 60
    matrix = torch.randn(SIDE, SIDE, device=DEVICE) / SIDE**0.5
    wanted = torch.randn(SIDE, 64, device=DEVICE)

    def step(_: int) -> float:
        x = torch.zeros_like(wanted)
        residual = wanted
        for _ in range(iterations):
            change = matrix @ residual
            x.add_(change, alpha=0.1)
            residual = residual.sub(change, alpha=0.1)
            norm = residual.norm()
            if not mended and norm.item() < 1e-9:
                break
        return float(residual.norm().item())

    yield step


def lazy_loading(mended: bool) -> Program:
    """Requests of eight kinds: the first of each loads its libraries and kernels. Mended: each runs once before."""
    x = torch.randn(256, 256, device=DEVICE)
    positive = x @ x.T + 256 * torch.eye(256, device=DEVICE)
    products = Products()
    kinds: list[Callable[[], object]] = [
        lambda: torch.fft.fft2(x),
        lambda: torch.linalg.cholesky(positive),
        lambda: torch.sort(x, dim=-1),
        lambda: x.cumsum(0).erfinv(),
        lambda: torch.linalg.solve(positive, x),
        lambda: torch.multinomial(x.abs(), 4),
        lambda: torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bicubic"),
        lambda: torch.special.i0e(x).unique(),
    ]
    if mended:
        products(1)
        for kind in kinds:
            kind()

    def step(number: int) -> None:
        products(20)
        kinds[number % len(kinds)]()

    yield step


def pageable_copies(mended: bool) -> Program:
    """Each batch is copied from pageable memory: through a staging buffer, and before its step. Mended: from pinned
    memory, the next batch while this one is worked on."""
    products = Products()
    batches = [torch.ones(32 << 20, dtype=torch.uint8) for _ in range(4)]
    if not mended:

        def step(number: int) -> None:
            batch = batches[number % 4].to(DEVICE)
            products(16)
            batch.add_(1)

        yield step
        return
    pinned = [batch.pin_memory() for batch in batches]
    copies, current = torch.cuda.Stream(), torch.cuda.current_stream()
    buffers = [torch.empty_like(batch, device=DEVICE) for batch in batches[:2]]

    def copy(number: int) -> None:
        copies.wait_stream(current)  # the buffer's last reader
        with torch.cuda.stream(copies):
            buffers[number % 2].copy_(pinned[number % 4], non_blocking=True)

    copy(0)

    def mended_step(number: int) -> None:
        current.wait_stream(copies)
        buffers[number % 2].add_(1)
        copy(number + 1)
        products(16)

    yield mended_step


def streams(mended: bool) -> Program:
    """Two branches of a model on two streams; each waits for the other's last kernel, which it does not need. Each
    kernel fills a part of the GPU. Mended: they meet once, at the end of the step."""
    rows = [torch.rand(16, 1 << 18, device=DEVICE) for _ in range(2)]
    sums = [torch.empty_like(row) for row in rows]
    branches = [torch.cuda.Stream(), torch.cuda.Stream()]
    current = torch.cuda.current_stream()

    def step(_: int) -> None:
        for branch in branches:
            branch.wait_stream(current)
        for _ in range(40):
            for branch, other, row, total in zip(branches, reversed(branches), rows, sums, strict=True):
                with torch.cuda.stream(branch):
                    if not mended:
                        branch.wait_stream(other)
                    torch.cumsum(row, -1, out=total)
        for branch in branches:
            current.wait_stream(branch)

    yield step


def small_kernels(mended: bool) -> Program:
    """An optimizer updates 500 small parameters one by one, three kernels each. Mended: all in one call."""
    parameters = [torch.randn(64, 64, device=DEVICE) for _ in range(500)]
    gradients = [torch.randn(64, 64, device=DEVICE) for _ in range(500)]
    momenta = [torch.zeros(64, 64, device=DEVICE) for _ in range(500)]
    products = Products()

    def step(_: int) -> None:
        products(8)
        if mended:
            torch._foreach_mul_(momenta, 0.9)
            torch._foreach_add_(momenta, gradients)
            torch._foreach_add_(parameters, momenta, alpha=-0.01)
            return
        for parameter, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
            momentum.mul_(0.9)
            momentum.add_(gradient)
            parameter.add_(momentum, alpha=-0.01)

    yield step


def late_rank(mended: bool) -> Program:
    """Rank 1 evaluates in every step before it sums the gradients; the others wait. Mended: it does not."""
    products = Products()
    gradients = torch.ones(1 << 20, device=DEVICE)
    late = distributed.get_rank() == 1 and not mended

    def step(_: int) -> None:
        products(24)
        if late:
            products(24)
        distributed.all_reduce(gradients)
        gradients.mul_(0.5)

    yield step


def allocation(mended: bool) -> Program:
    """Each step gives its workspace back to the driver and asks for it anew. Mended: PyTorch's allocator keeps it."""
    products = Products()

    def step(_: int) -> None:
        workspaces = [torch.empty(1 << 29, dtype=torch.uint8, device=DEVICE) for _ in range(4)]
        products(16)
        del workspaces
        if not mended:
            torch.cuda.empty_cache()

    yield step


def burn(stop: threading.Event) -> None:
    """Counts until it is told to stop: the thread that holds the interpreter's lock."""
    count = 0
    while not stop.is_set():
        for number in range(10_000):
            count += number & 7


def gil(mended: bool) -> Program:
    """A second thread computes in Python: it holds the interpreter's lock for 5 ms each time the first lets go of it.
    Mended: the same in a process of its own."""
    context = multiprocessing.get_context("fork")
    stop = context.Event() if mended else threading.Event()
    other = (context.Process if mended else threading.Thread)(target=burn, args=(stop,), daemon=True)
    batch, weights = torch.randn(2, 4, SIDE, SIDE, device=DEVICE, dtype=torch.float16 if DEVICE == "cuda" else None)
    other.start()

    def step(_: int) -> None:
        for _ in range(4):
            torch.bmm(batch, weights)

    yield step
    stop.set()
    other.join()


class Samples(Dataset):  # type: ignore[misc]
    """Samples that take Python 2 ms each to decode."""

    def __len__(self) -> int:
        return 4 * (STEPS + WARM_UP)

    def __getitem__(self, index: int) -> Tensor:
        end, count = time.thread_time() + 2e-3, 0
        while time.thread_time() < end:
            count += index
        return torch.full((SIDE,), float(count % 7))


def loader(mended: bool) -> Program:
    """One worker decodes 8 ms for a batch that takes the GPU 4 ms. Mended: eight workers."""
    products = Products()
    batches = iter(DataLoader(Samples(), batch_size=4, num_workers=8 if mended else 1))

    def step(_: int) -> None:
        next(batches).to(DEVICE)
        products(16)

    yield step


PROGRAMS: dict[str, tuple[Callable[[bool], Program], bool]] = {  # with or without NVTX ranges, as users' programs are
    "host-loop": (host_loop, True),
    "item": (item, False),
    "lazy-loading": (lazy_loading, True),
    "pageable-copies": (pageable_copies, False),
    "streams": (streams, True),
    "small-kernels": (small_kernels, False),
    "late-rank": (late_rank, True),
    "allocation": (allocation, True),
    "gil": (gil, False),
    "loader": (loader, True),
}


def run(name: str, mended: bool) -> dict[str, object]:
    """Runs a program's steps; its times in ms: the loop, and the median from the beginning of a step to the next."""
    make, ranges = PROGRAMS[name]
    warm_up = 0 if name == "lazy-loading" else WARM_UP
    program = make(mended)
    step = next(program)
    begins = []
    synchronize = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    for number in range(warm_up + STEPS):
        if number == warm_up:
            synchronize()
            if distributed.is_initialized():
                distributed.barrier()
        if number >= warm_up:
            begins.append(time.perf_counter())
        with torch.cuda.nvtx.range("step") if ranges and DEVICE == "cuda" else nullcontext():
            step(number)
    synchronize()
    begins.append(time.perf_counter())
    next(program, None)
    loop_ms = 1e3 * (begins[-1] - begins[0])
    step_ms = 1e3 * median(b - a for a, b in itertools.pairwise(begins))
    times = {"loop_ms": round(loop_ms, 3), "step_ms": round(step_ms, 3)}
    return {"program": name, "mended": mended, "steps": STEPS, **times}


def main() -> None:
    """Runs one program, or pairs of it and its twin; prints a line of JSON a run."""
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--mended", action="store_true", help="the twin without the cause")
    parser.add_argument("--pairs", type=int, metavar="N", help="both, N times, each pair in random order")
    parser.add_argument("--device", default=DEVICE, choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    DEVICE, name = arguments.device, arguments.program
    rank = int(os.environ.get("RANK", 0))
    if name == "late-rank":
        several = DEVICE == "cuda" and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
        if several:
            torch.cuda.set_device(rank)
        distributed.init_process_group("nccl" if several else "gloo")

    def once(mended: bool, pair: int) -> None:
        found = run(name, mended)
        if rank == 0:
            print(json.dumps(found | {"pair": pair}), flush=True)

    if arguments.pairs is None:
        once(arguments.mended, 0)
    order = random.Random(1)
    for pair in range(arguments.pairs or 0):
        for mended in order.sample((False, True), 2):
            if name == "lazy-loading":  # in a fresh process, whose CUDA has nothing loaded; this one has not begun CUDA
                other = multiprocessing.get_context("fork").Process(target=once, args=(mended, pair))
                other.start()
                other.join()
            else:
                once(mended, pair)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
