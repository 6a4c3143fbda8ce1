"""Stands in for the interpreter that has torch: takes the runner's command line, launches nothing.

Marks the same NVTX ranges as the runner, where nvtx is installed, and writes results in the runner's form: those of the
run FAKE_RUN where that has the case.
FAKE_WORKLOAD names how it is to behave: ok, garbage, exit3, abort, hang, stubborn (hangs and ignores SIGINT and
SIGTERM, with a child in a session of its own). FAKE_FAILS: text in the ids of cases that fail; FAKE_DIES: of
cases that end the process; FAKE_HANGS: of cases that never end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fiprof.model.records import read_jsonl
from fiprof.workloads.__main__ import _parser
from fiprof.workloads.case import parse_case
from fiprof.workloads.nvtx import MEASURE, SETUP, WARMUP, Marks
from fiprof.workloads.runner import await_gate


def main() -> None:
    # What follows the interpreter is «…/workloads/__main__.py run …».
    options = _parser().parse_args(sys.argv[2:])
    behaviour = os.environ.get("FAKE_WORKLOAD", "ok")
    await_gate()
    if behaviour == "garbage":
        sys.stdout.buffer.write(b"\x00\xff\x1b[31m ==ERROR-ish== \xf0\x28\x8c\x28\n" * 100)
        sys.exit(0)
    if behaviour == "exit3":
        print("something the user wrote", flush=True)
        sys.exit(3)
    if behaviour == "abort":
        os.abort()
    if behaviour in ("hang", "stubborn"):
        hang(stubborn=behaviour == "stubborn")
    marks = Marks()
    fails, dies, hangs = (os.environ.get(f"FAKE_{name}") for name in ("FAILS", "DIES", "HANGS"))
    recorded = {}
    if "FAKE_RUN" in os.environ:
        recorded = {
            record.get("case"): record for record in read_jsonl(Path(os.environ["FAKE_RUN"]) / "baseline.jsonl")
        }
    failed = 0
    with open(options.out, "w") as out:
        out.write(json.dumps({"kind": "environment", "packages": {"nvtx": "stand-in"}, "gpu": {}}) + "\n")
        for number, text in enumerate(options.case, 1):
            case = parse_case(text)
            print(f"fiprof: measure {number}/{len(options.case)} {case.id}", file=sys.stderr, flush=True)
            if hangs and hangs in case.id:
                hang(stubborn=False)
            if dies and dies in case.id:
                os.abort()
            if fails and fails in case.id:
                out.write(
                    json.dumps({"kind": "error", "case": case.id, "error": "does not fit in the GPU's memory"}) + "\n"
                )
                failed += 1
                continue
            for phase in (SETUP, WARMUP):
                with marks.range(phase, case.id):
                    pass
            with marks.range(MEASURE, case.id):
                for i in range(options.measure_iterations):
                    with marks.range(f"iter {i}"):
                        pass
            record = recorded.get(case.id) or {
                "kind": "case",
                "case": case.id,
                "gpu_us": [100.0] * options.measure_iterations,
                "wall_us": 101.0,
            }
            out.write(json.dumps(record) + "\n")
    if failed and not (options.keep_going and failed < len(options.case)):
        print(f"fiprof: error: {failed} of {len(options.case)} cases failed", file=sys.stderr)
        sys.exit(1)


def hang(*, stubborn: bool) -> None:
    if stubborn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    print("fiprof: setup 1/1 hanging", file=sys.stderr, flush=True)
    time.sleep(300)


if __name__ == "__main__":
    main()
