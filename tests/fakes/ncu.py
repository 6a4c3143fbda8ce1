"""Stands in for ncu, which needs a GPU: runs the program, and replays a recorded run's output.

FAKE_RUN: the archived run whose output it replays. FAKE_NCU names a failure that real ncu was seen with
(no-kernels, permission, no-report); exit statuses and lines are those of ncu 2025.3.1.
"""

import os
import signal
import sys
from pathlib import Path

from tests.fakes.recorded import replayed_bytes

FLAGS = {"--nvtx", "--csv", "--force-overwrite"}
"""Switches that take no value; every other one of fiprof's does: tests/test_orchestrator.py."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:]
    options: dict[str, str] = {}
    while arguments and arguments[0].startswith("--"):
        name = arguments.pop(0)
        options[name] = "" if name in FLAGS else arguments.pop(0)
    recorded = Path(os.environ["FAKE_RUN"])
    if "--import" not in options:
        return profile(options, arguments, recorded)
    if not Path(options["--import"]).read_bytes().startswith(b"NVR"):
        print("==ERROR== The file is not an Nsight Compute profiler report.")
        return 1
    sys.stdout.buffer.write(replayed_bytes(recorded / "ncu" / f"{options['--page']}.csv"))
    return 0


def profile(options: dict[str, str], program: list[str], recorded: Path) -> int:
    failure = os.environ.get("FAKE_NCU", "")
    report = Path(options["--export"])
    assert options.get("--nvtx-include", "fiprof@measure/").endswith("/"), "ncu would match start/end ranges, and none"
    if failure == "permission":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access GPU Performance Counters")
        return 1
    import subprocess  # here: most calls run nothing

    if status := abs(subprocess.run(program, check=False).returncode):
        print(f"==ERROR== The application returned an error code ({status}).")
        return status
    if failure == "no-kernels":
        print("==WARNING== No kernels were profiled.")
        return 0
    for line in (recorded / "logs" / "ncu.log").read_text().splitlines():
        if line.startswith("==PROF== Profiling"):
            print(line, flush=True)
    if failure != "no-report":
        report.write_bytes(replayed_bytes(recorded / "ncu" / "profile.ncu-rep"))
        print(f"==PROF== Report: {report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
