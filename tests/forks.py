"""fiprof's command line in processes forked from one that has imported everything: milliseconds each, and any word,
environment or closed stream is a real one."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
LIMIT_S = 120
IMPORTED = "numpy pyarrow.parquet pandas sqlite3 jinja2 rich.console ctypes msgspec"
ERROR = re.compile(r"^(?:fiprof: .*\n(?:  \S.*\n)?|Usage: (?:.+\n)+\nError: .*\n)", re.M)
"""An error as it is printed: a line, and below it at most one of what to do."""
REMARK = re.compile(r"fiprof: .* (?:is left|is not|is damaged|cannot be read)")
"""What is said of a file before the end."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    """Negative for a signal."""
    stdout: str
    stderr: str

    @property
    def in_order(self) -> bool:
        """Done; or failed with one message of a line, and a line of what to do; never with a traceback."""
        if "Traceback" in self.stderr or self.status not in (0, 1, 2, 3) or "Warning:" in self.stderr:
            return False
        if self.status == 0 or not self.stderr:
            return True
        *before, last = ERROR.findall(self.stderr) or [""]
        return bool(last) and self.stderr.endswith(last) and all(map(REMARK.match, before))


class Forks:
    """The process that forks; closing its standard input ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._streams = Path(tempfile.mkdtemp())

    def run(self, words: Iterable[str], folder: Path, env: Mapping[str, str], closed: Iterable[int] = ()) -> Ended:
        """Run ``fiprof WORD…`` in a folder. words: as sys.argv has them. closed: descriptors that the shell closed."""
        assert self._process.stdin and self._process.stdout
        files = [str(self._streams / name) for name in ("stdin", "stdout", "stderr")]
        asked = {"words": list(words), "folder": str(folder), "env": dict(env), "closed": list(closed), "files": files}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return Ended(status, *(Path(file).read_text(errors="backslashreplace") for file in files[1:]))

    def close(self) -> None:
        self._process.communicate()
        shutil.rmtree(self._streams)


def _child(words: list[str], folder: str, env: dict[str, str], closed: list[int], files: list[str]) -> None:
    from fiprof.cli.main import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    for descriptor, name in enumerate(files):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if descriptor else 0)
        file = os.open(name, flags)
        os.dup2(file, descriptor)
        os.close(file)
    for descriptor in closed:
        os.close(descriptor)
        setattr(sys, ("stdin", "stdout", "stderr")[descriptor], None)
    sys.argv = ["fiprof", *words]
    signal.alarm(LIMIT_S)
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        status = 1
        with open(files[2], "a") as errors:
            errors.write(traceback.format_exc())
    # What an interpreter does at its end, without taking the modules apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    os._exit(status)


def serve() -> None:
    """Fork for every line of standard input; answer with the exit status."""
    from fiprof.cli.main import OWN, cli

    for name in IMPORTED.split():
        importlib.import_module(name)
    for path in sorted((REPOSITORY / "fiprof").rglob("*.py")):
        module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        if not module.endswith(("__main__", "guard")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    assert all(cli.get_command(None, name) for name in OWN)  # type: ignore[arg-type]
    gc.freeze()  # or each child copies the pages whose objects it counts
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin.buffer:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _child(**json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers)


if __name__ == "__main__":
    serve()
