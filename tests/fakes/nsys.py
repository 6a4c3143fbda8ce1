"""Stands in for nsys where a test needs a trace with kernels in it, which takes a GPU; other tests use the real one.

FAKE_RUN: the archived run whose report and SQLite file it gives out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.recorded import recorded_bytes


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")
        return 0
    action = arguments.pop(0)
    options = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0).partition("=")
        options[name] = value
    recorded = Path(os.environ["FAKE_RUN"]) / "nsys"
    if action == "export":
        assert options["--type"] == "sqlite"
        Path(options["--output"]).write_bytes(recorded_bytes(recorded / "trace.sqlite"))
        return 0
    status = subprocess.run(arguments, check=False).returncode
    Path(options["--output"]).write_bytes(recorded_bytes(recorded / "trace.nsys-rep"))
    # As a shell says it: 134 for an abort.
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
