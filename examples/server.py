"""Serves made-up requests until SIGTERM or SIGINT, or for the given seconds.

fiprof profile --session served -- python3 examples/server.py [SECONDS]
fiprof capture served
"""

import signal
import sys
import time

import torch

import fiprof

going = True


def stop(*_: object) -> None:
    global going
    going = False


def main(seconds: float) -> None:
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    print("serving", flush=True)
    end, served = time.monotonic() + seconds, 0
    while going and time.monotonic() < end:
        with fiprof.range("request"):
            tokens = torch.randn(32, 4096, device="cuda", dtype=torch.float16)
            for _ in range(8):
                tokens = torch.relu(tokens @ weights) * 0.02
            tokens.sum().item()
        served += 1
        time.sleep(0.005)
    print(f"served {served} requests", flush=True)


with torch.inference_mode():
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0)
