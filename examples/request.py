"""One request through a model of Llama-3.1-8B's shape: a prompt is prefilled, then tokens are decoded one by one.

    python3 examples/request.py --prompt 2048 --tokens 128        # prints its times as JSON lines
    python3 examples/request.py --graphs                          # a decode step is the replay of a CUDA graph
    fiprof profile -- python3 examples/request.py --layers 8 --tokens 64

In ranges ``warm up``, ``request`` > ``prefill``, ``decode step N`` > ``plan``, ``layer N``. A line a step (``host_us``
from the host's clock, ``gpu_us`` between CUDA events at its begin and end, both within the step's range), then one of
the request: the time to first token (TTFT), between tokens (ITL), bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from statistics import median


def main() -> None:
    """Runs the request; prints a line of JSON a step and one of the request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32, help="layers of the model [32]")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens in, 512 to 8192 [2048]")
    parser.add_argument("--tokens", type=int, default=128, help="tokens out [128]")
    parser.add_argument("--graphs", action="store_true", help="decode steps as replays of a CUDA graph")
    parser.add_argument("--cold", action="store_true", help="no request of two tokens before the measured one")
    arguments = parser.parse_args()

    import torch
    from paged_llama import PAGE, VOCABULARY, Model, Part
    from torch.cuda import nvtx

    length = arguments.prompt + arguments.tokens
    pages = list(range(-(-length // PAGE)))
    random.Random(1).shuffle(pages)
    prompt = random.Random(2).choices(range(VOCABULARY), k=arguments.prompt)

    def part(tokens: list[int], length: int) -> Part:
        return Part(tokens, length, pages[: -(-length // PAGE)])

    lines: list[dict[str, object]] = []

    def step(name: str, part: Part) -> int:
        """One step and the line of its times."""
        decoding = name.startswith("decode")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with nvtx.range(name):
            before = time.perf_counter()
            begin.record()
            (token,) = model.step([part], decoding)
            end.record()
            end.synchronize()
            after = time.perf_counter()
        times = {"begin_us": 1e6 * before, "host_us": 1e6 * (after - before), "gpu_us": 1e3 * begin.elapsed_time(end)}
        lines.append({"step": name, "kv": part.length} | {key: round(value, 1) for key, value in times.items()})
        return token

    def serve(tokens: int) -> None:
        token = step("prefill", part(prompt, len(prompt)))
        for number in range(1, tokens):
            token = step(f"decode step {number}", part([token], len(prompt) + number))

    with torch.inference_mode():
        with nvtx.range("load"):
            model = Model(arguments.layers, len(pages), arguments.prompt, 1)
        if not arguments.cold:
            with nvtx.range("warm up"):
                serve(3)
        if arguments.graphs:
            model.capture(part([0], len(prompt) + 1))
        lines.clear()
        model.copied_bytes = 0
        torch.cuda.synchronize()
        with nvtx.range("request"):
            arrival = 1e6 * time.perf_counter()
            serve(arguments.tokens)
    ends = [round(line["begin_us"] + line["host_us"] - arrival, 1) for line in lines]  # type: ignore[operator]
    for line in lines:
        line["begin_us"] = round(line["begin_us"] - arrival, 1)  # type: ignore[operator]
        print(json.dumps(line))
    gaps = sorted(after - before for before, after in itertools.pairwise(ends))
    truth = {
        "request": 0,
        **vars(arguments),
        "ttft_us": ends[0],
        "itl_us": {"median": round(median(gaps), 1), "p99": round(gaps[int(0.99 * len(gaps))], 1)} if gaps else None,
        "total_us": ends[-1],
        "copied_bytes": model.copied_bytes,
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "kv_bytes": model.kv_bytes_per_token * (length - 1),
        "kv_bytes_allocated": model.cache.nbytes,
        "peak_bytes": torch.cuda.max_memory_allocated(),
    }
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
