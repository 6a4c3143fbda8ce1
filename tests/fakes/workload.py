"""Stands in for the interpreter that has torch: takes the runner's command line, launches nothing.

Marks the same NVTX ranges as the runner, where nvtx is installed, and writes results in the runner's form: those of the
run FAKE_RUN where that has the case.
FAKE_WORKLOAD names how it is to behave: ok, garbage, exit3, abort, hang. FAKE_FAILS: text in the ids of cases that fail;
FAKE_DIES: of cases that end the process; FAKE_HANGS: of cases that never end.

Kept warm for a comparison, its cases take the times of the recorded run FAKE_RUN, with the spread between processes and
rounds that this GPU had. A workload's own ``fake_slower`` is a factor on them; its ``fake_spread`` makes one process
slower and the next faster by so much; one that has ``fake_fails`` fails. FAKE_SLOWER: factor on all; FAKE_SLOW_CLOCK:
``B2 0``, the process and round that lack the clock; FAKE_UUID and FAKE_MHZ: of the GPU; FAKE_HOST_US: of a launch;
FAKE_MEMORY: bytes of a case.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from fiprof.workloads.__main__ import _parser
from fiprof.workloads.case import parse_case
from fiprof.workloads.nvtx import MEASURE, SETUP, WARMUP, ranges
from fiprof.workloads.registry import find
from fiprof.workloads.runner import await_gate


def main() -> None:
    # What follows the interpreter is "…/workloads/__main__.py run …".
    options = _parser().parse_args(sys.argv[2:])
    behaviour = os.environ.get("FAKE_WORKLOAD", "ok")
    if options.action == "rounds":
        rounds(options)
        return
    await_gate()
    if behaviour == "garbage":
        sys.stdout.buffer.write(b"\x00\xff\x1b[31m ==ERROR-ish== \xf0\x28\x8c\x28\n" * 100)
        sys.exit(0)
    if behaviour == "exit3":
        print("something the user wrote", flush=True)
        sys.exit(3)
    if behaviour == "abort":
        os.abort()
    if behaviour == "hang":
        hang()
    fails, dies, hangs = (os.environ.get(f"FAKE_{name}") for name in ("FAILS", "DIES", "HANGS"))
    by_case = {record.get("case"): record for record in recorded()}
    failed = 0
    with open(options.out, "w") as out:
        out.write(json.dumps({"kind": "environment", "packages": {"nvtx": "stand-in"}, "gpu": {}}) + "\n")
        for number, text in enumerate(options.case, 1):
            case = parse_case(text)
            print(f"fiprof: measure {number}/{len(options.case)} {case.id}", file=sys.stderr, flush=True)
            if hangs and hangs in case.id:
                hang()
            if dies and dies in case.id:
                os.abort()
            if fails and fails in case.id:
                error = {"kind": "error", "case": case.id, "error": "does not fit in the GPU's memory"}
                out.write(json.dumps(error) + "\n")
                failed += 1
                continue
            for phase in (SETUP, WARMUP):
                with ranges(phase, case.id):
                    pass
            with ranges(MEASURE, case.id):
                for i in range(options.measure_iterations):
                    with ranges(f"iter {i}"):
                        pass
            times = {"gpu_us": [100.0] * options.measure_iterations, "wall_us": 101.0}
            record = by_case.get(case.id) or {"kind": "case", "case": case.id, **times}
            out.write(json.dumps(record) + "\n")
    if failed and not (options.keep_going and failed < len(options.case)):
        print(f"fiprof: error: {failed} of {len(options.case)} cases failed", file=sys.stderr)
        sys.exit(1)


def rounds(options: argparse.Namespace) -> None:
    """Follows the orders of a comparison."""
    name, env = Path(options.out).stem, os.environ
    cases = [parse_case(text) for text in options.case]
    times_us = {record["case"]: statistics.median(record["gpu_us"]) for record in recorded() if "gpu_us" in record}
    lacks = env.get("FAKE_SLOW_CLOCK", "none 0").split()
    process = random.Random(f"{name} {env.get('FAKE_SEED')}")
    host = random.Random(name)
    typical_us = [
        times_us.get(case.id, 100.0)
        * float(env.get("FAKE_SLOWER", 1))
        * getattr(workload := find(case.workload), "fake_slower", 1.0)
        * (1 + getattr(workload, "fake_spread", 0) * (-1) ** sum(name.encode()))
        * process.gauss(1, 0.0005)
        for case in cases
    ]
    print(f"fiprof: setup 1/{len(cases)} {cases[0].id}", file=sys.stderr, flush=True)
    with open(options.orders) as orders, open(options.out, "w") as out:

        def emit(**record: object) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        gpu = {"uuid": env.get("FAKE_UUID", "GPU-1")}
        emit(kind="environment", packages={"python_executable": sys.argv[0]}, gpu=gpu)
        for place, case in enumerate(cases):
            if env.get("FAKE_FAILS", "none") in case.id or hasattr(find(case.workload), "fake_fails"):
                emit(kind="error", case=case.id, place=place, error="does not fit in the GPU's memory")
            emit(kind="memory", place=place, peak_bytes=int(env.get("FAKE_MEMORY", 10**8)))
        emit(kind="done")
        for line in orders:
            order = json.loads(line)
            if order["do"] == "clock":
                emit(kind="clock", idle_mhz=float(env.get("FAKE_MHZ", 1980)))
            for place in order["cases"] if order["do"] == "plan" else ():
                emit(kind="plan", place=place, iterations=3, launches_per_time=1)
            for place, iterations, _ in order["cases"] if order["do"] == "measure" else ():
                if env.get("FAKE_DIES", "none") in cases[place].id:
                    os.abort()
                while env.get("FAKE_HANGS", "none") in cases[place].id:
                    time.sleep(1)
                gpu_us = [typical_us[place] * process.gauss(1, 0.002) for _ in range(iterations)]
                recovered = lacks not in ([name, str(order["round"])], [name, "all"])
                state = {"launches_per_time": 1, "sm_clock_mhz": 1980.0, "clock_recovered": recovered}
                state["host_us"] = float(env.get("FAKE_HOST_US", 5)) * host.gauss(1, 0.02)
                emit(kind="round", round=order["round"], place=place, gpu_us=gpu_us, **state, at=time.monotonic())
            emit(kind="done")


def recorded() -> list[dict[str, Any]]:
    """What the runner said in the run FAKE_RUN; nothing without one."""
    if "FAKE_RUN" not in os.environ:
        return []
    return [json.loads(line) for line in (Path(os.environ["FAKE_RUN"]) / "baseline.jsonl").read_text().splitlines()]


def hang() -> None:
    print("fiprof: setup 1/1 hanging", file=sys.stderr, flush=True)
    time.sleep(300)


if __name__ == "__main__":
    main()
