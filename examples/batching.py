"""Continuous batching: requests arrive, a scheduler admits them, prefills them in chunks, decodes, and preempts.

    python3 examples/batching.py                  # prints what was decided and how long it took, as JSON lines
    python3 examples/batching.py --dry-run        # the decisions alone, without a GPU: they depend on the seed alone
    fiprof profile -- python3 examples/batching.py

Arrivals are counted in steps, so that a profiler changes no decision. A step has a range of what was decided:
``step 20: admit r3, prefill 512 tokens, decode 7, pages 231/256, queue 2`` > ``plan``, ``layer N``; ``r3 arrives``,
``r3 first token`` and ``r3 finished`` are marks. A preempted request gives its pages back and is prefilled again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

PAGE = 16
"""Tokens in a page, as in paged_llama.py."""


@dataclass
class Request:
    """What is asked, what it has got (its tokens, how many of them the cache holds, its pages), and when."""

    number: int
    arrival_step: int
    prompt: int
    output: int
    tokens: list[int]
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    admitted_step: int | None = None
    preemptions: int = 0
    arrived_s: float = 0
    token_times_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Decision:
    """What a step does: whom it admits and preempts, the new tokens of each request (one: it decodes)."""

    step: int
    admitted: list[Request]
    preempted: list[Request]
    work: list[tuple[Request, int]]
    decodes: int
    pages: int
    of_pages: int
    queue: int

    def __str__(self) -> str:
        names = {"admit": self.admitted, "preempt": self.preempted}
        said = [f"{verb} {' '.join(f'r{each.number}' for each in who)}" for verb, who in names.items() if who]
        prefilled = sum(new for _, new in self.work) - self.decodes
        said += [f"prefill {prefilled} tokens"] if prefilled else []
        said += [f"decode {self.decodes}", f"pages {self.pages}/{self.of_pages}", f"queue {self.queue}"]
        return f"step {self.step}: {', '.join(said)}"


class Scheduler:
    """First come, first served: a token for each that decodes, chunks of prompts with what is left of the budget."""

    def __init__(self, pages: int, budget: int, most_running: int) -> None:
        self.free = list(range(pages))
        self.of_pages, self.budget, self.most_running = pages, budget, most_running
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def grow(self, request: Request, length: int) -> bool:
        """Gives a request the pages of a length; whether there were enough."""
        missing = -(-length // PAGE) - len(request.pages)
        if missing > len(self.free):
            return False
        request.pages += [self.free.pop() for _ in range(missing)]
        return True

    def release(self, request: Request) -> None:
        self.free += request.pages
        request.pages, request.cached = [], 0
        self.running.remove(request)

    def decide(self, step: int) -> Decision:
        preempted: list[Request] = []
        admitted: list[Request] = []
        work: list[tuple[Request, int]] = []
        for request in [each for each in self.running if each.cached == len(each.tokens) - 1]:
            while request in self.running and not self.grow(request, len(request.tokens)):
                victim = self.running[-1]
                self.release(victim)
                victim.preemptions += 1
                self.waiting.appendleft(victim)
                preempted.append(victim)
                work = [each for each in work if each[0] is not victim]
            if request in self.running:
                work.append((request, 1))
        decodes = len(work)
        left = self.budget - decodes
        decoding = {request.number for request, _ in work}
        for request in [each for each in self.running if each.number not in decoding]:
            left = self.chunk(request, left, work)
        while left > 0 and not preempted and self.waiting and len(self.running) < self.most_running:
            if not self.grow(self.waiting[0], len(self.waiting[0].tokens)):
                break
            request = self.waiting.popleft()
            request.admitted_step = step if request.admitted_step is None else request.admitted_step
            self.running.append(request)
            admitted.append(request)
            left = self.chunk(request, left, work)
        used = self.of_pages - len(self.free)
        return Decision(step, admitted, preempted, work, decodes, used, self.of_pages, len(self.waiting))

    @staticmethod
    def chunk(request: Request, left: int, work: list[tuple[Request, int]]) -> int:
        """Adds what fits of a request's prefill to the step's work; tokens that are left then."""
        new = min(left, len(request.tokens) - request.cached)
        work += [(request, new)] if new else []
        return left - new


def arrivals(seed: int, requests: int, every: float, vocabulary: int) -> deque[Request]:
    """Requests in the order of their arrival, with prompts of 60 to 500 tokens and 8 to 48 tokens to decode."""
    draw, at, found = random.Random(seed), 0.0, deque[Request]()
    for number in range(requests):
        prompt = draw.choices(range(vocabulary), k=draw.choice((60, 120, 250, 500)))
        found.append(Request(number, int(at), len(prompt), draw.randint(8, 48), prompt))
        at += draw.expovariate(1 / every)
    return found


def main() -> None:
    """Serves all requests; prints a line of JSON a step and a request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8, help="layers of the model [8]")
    parser.add_argument("--requests", type=int, default=16, help="requests to serve [16]")
    parser.add_argument("--every", type=float, default=2, help="mean steps between arrivals [2]")
    parser.add_argument("--pages", type=int, default=112, help="pages of the KV cache, of 16 tokens [112]")
    parser.add_argument("--budget", type=int, default=256, help="most tokens in a step [256]")
    parser.add_argument("--running", type=int, default=12, help="most requests in a step [12]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="decide only: no GPU, no times")
    arguments = parser.parse_args()
    coming = arrivals(arguments.seed, arguments.requests, arguments.every, vocabulary=128256)
    scheduler = Scheduler(arguments.pages, arguments.budget, arguments.running)
    server = None if arguments.dry_run else Server(arguments)
    everyone = list(coming)
    number = 0
    while coming or scheduler.waiting or scheduler.running:
        while coming and coming[0].arrival_step <= number:
            request = coming.popleft()
            request.arrived_s = time.perf_counter()
            scheduler.waiting.append(request)
            if server:
                server.mark(f"r{request.number} arrives: prompt {request.prompt}, output {request.output}")
        decision = scheduler.decide(number)
        tokens, times = server.step(decision) if server else ([0] * len(decision.work), {})
        finish(decision, tokens, scheduler, server)
        counts = {"tokens": sum(new for _, new in decision.work), "pages": decision.pages, "queue": decision.queue}
        print(json.dumps({"step": number, "decision": str(decision), **counts, **times}))
        number += 1
    for each in everyone:
        found: dict[str, Any] = {"request": each.number, "arrival_step": each.arrival_step, "prompt": each.prompt}
        found |= {"output": each.output, "admitted_step": each.admitted_step, "preemptions": each.preemptions}
        if server:
            times_us = [round(1e6 * (at - each.arrived_s), 1) for at in each.token_times_s]
            found |= {"ttft_us": times_us[0], "token_us": times_us}
        print(json.dumps(found), flush=True)


def finish(decision: Decision, tokens: list[int], scheduler: Scheduler, server: Server | None) -> None:
    """Gives each request that has no prefill left its new token; those that have all of theirs leave."""
    for (request, new), token in zip(decision.work, tokens, strict=True):
        request.cached += new
        if request.cached < len(request.tokens):
            continue
        request.tokens.append(token)
        request.token_times_s.append(time.perf_counter())
        produced = len(request.tokens) - request.prompt
        if produced == request.output:
            scheduler.release(request)
        said = "first token" if produced == 1 else "finished" if produced == request.output else None
        if server and said:
            server.mark(f"r{request.number} {said}")


class Server:
    """The model on the GPU, and what a step took there."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch
        from paged_llama import Model, Part
        from torch.cuda import nvtx

        self.torch, self.part, self.range, self.mark = torch, Part, nvtx.range, nvtx.mark
        torch.set_grad_enabled(False)
        with nvtx.range("load"):
            self.model = Model(arguments.layers, arguments.pages, arguments.budget, arguments.running)
        with nvtx.range("warm up"):
            for tokens in (arguments.budget, 1):
                part = Part([0] * tokens, tokens, list(range(-(-tokens // PAGE))))
                self.model.step([part], decoding=tokens == 1)

    def step(self, decision: Decision) -> tuple[list[int], dict[str, float]]:
        """The next token of each request in the step, and the step's times: within its range."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.range(str(decision)):
            before = time.perf_counter()
            begin.record()
            parts = [
                self.part(each.tokens[each.cached : each.cached + new], each.cached + new, each.pages)
                for each, new in decision.work
            ]
            decoding = all(new == 1 for _, new in decision.work)
            tokens = self.model.step(parts, decoding) if parts else []
            end.record()
            end.synchronize()
            after = time.perf_counter()
        times = {"host_us": 1e6 * (after - before), "gpu_us": 1e3 * begin.elapsed_time(end)}
        return tokens, {key: round(value, 1) for key, value in times.items()}


if __name__ == "__main__":
    main()
