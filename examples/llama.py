"""A Llama with random weights (transformers): requests of one prefill and decode steps each, marked with fiprof.range.

fiprof profile -- python3 examples/llama.py [REQUESTS] [STEPS]
"""

import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fiprof

BATCH, PROMPT = 4, 512


@fiprof.range("load")
def load() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=8
    )
    with torch.device("cuda"):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def main(requests: int, steps: int) -> None:
    model = load()
    for _ in range(requests):
        tokens = torch.randint(0, 32000, (BATCH, PROMPT), device="cuda")
        with fiprof.range("prefill"):
            out = model(tokens, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        for _ in range(steps):
            with fiprof.range("decode"):
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
        print("tokens", token.flatten().tolist(), flush=True)


if __name__ == "__main__":
    begin = time.monotonic()
    with torch.inference_mode():
        main(*(int(word) for word in sys.argv[1:3] or ("2", "24")))
    torch.cuda.synchronize()
    print(f"{time.monotonic() - begin:.2f} s without imports")
