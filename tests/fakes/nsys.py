"""Stands in for nsys where a test needs a trace with kernels in it, which takes a GPU; other tests use the real one.

FAKE_RUN: the archived run whose SQLite file it gives out; without its kernels where FAKE_NSYS is ``no-kernels``. As nsys does, it adds the environment to both.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.fakes.recorded import replayed_bytes


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:]
    action = arguments.pop(0)
    options = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0).partition("=")
        options[name] = value
    recorded = Path(os.environ["FAKE_RUN"]) / "nsys"
    if action == "export":
        import sqlite3

        assert options["--type"] == "sqlite"
        Path(options["--output"]).write_bytes(replayed_bytes(recorded / "trace.sqlite"))
        with sqlite3.connect(options["--output"]) as connection:
            record_environment(connection)
            if os.environ.get("FAKE_NSYS") == "no-kernels":
                connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        return 0
    import subprocess

    status = subprocess.run(arguments, check=False).returncode
    environment = "\n".join(f"{name}={value}" for name, value in os.environ.items())
    Path(options["--output"]).write_bytes(b"a report that nsys alone reads\n" + environment.encode())
    # As a shell says it: 134 for an abort.
    return status if status >= 0 else 128 - status


def record_environment(connection: Any) -> None:
    """Write this process's environment where nsys 2025.3 does: tables, single strings and a block of strings."""
    each = [f"{name}={value}" for name, value in os.environ.items()]
    (last,) = connection.execute("SELECT max(id) FROM StringIds").fetchone()
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate([*each, "\0".join(each)], last + 1))
    connection.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
    variables = [("PROCESS_0:ENVIRONMENT_VARIABLE", text) for text in each]
    connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", variables)
    connection.execute("UPDATE DIAGNOSTIC_EVENT SET text = ? WHERE rowid = 1", (f"started with {each}",))


if __name__ == "__main__":
    sys.exit(main())
