"""Times one case's first call, and what FlashInfer's just-in-time compilation did meanwhile, as JSON lines.

``python -m fiprof.flashinfer.jit.probe 'rmsnorm' --cache DIR --out FILE``; also started by path by an interpreter
that has torch and flashinfer but not fiprof. DIR is the folder that FLASHINFER_WORKSPACE_BASE names: a FlashInfer that
caches elsewhere is refused before it compiles or loads anything.
"""

from __future__ import annotations

import argparse
import enum
import functools
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if not __package__:
    # Makes this file's package importable; the runner's main function is not run under this name.
    runpy.run_path(str(Path(__file__).parents[2] / "workloads/__main__.py"), run_name="fiprof_bootstrap")

from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.workloads.case import Case

Record = dict[str, Any]
"""One JSON line; its key ``kind`` is environment, module, call or failure. A failure without an environment before it
is one of the machine, not of the case."""

CORE = "flashinfer.jit.core"
GENERATOR = re.compile(r"_?gen_\w*module")
REPEATS = 5
VERSION_TIMEOUT_S = 30


class Trace:
    """What FlashInfer's JIT does, on one clock that starts with :meth:`start`.

    :meth:`install` puts a timer around the methods of its JitSpec classes (write_ninja, build, load, build_and_load)
    and around its generators (``gen_…_module``). A method that a version does not have is left out.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._zero = clock()
        self._depth = 0
        self.spans: dict[str, list[list[Any]]] = {}
        """Module's name -> [phase, begin, end] in seconds."""
        self.generators: dict[str, Record] = {}
        """Module's name -> what makes its spec: module, function and args as Python text."""
        self.compiled_ahead: set[str] = set()
        """Modules that were found compiled in an installed package."""
        self.hooks: list[str] = []
        """What a timer was put around."""

    def start(self) -> float:
        """Forget what was; times count from now on, which is returned as the clock has it."""
        self.spans.clear()
        self._zero = self._clock()
        return self._zero

    def install(self, core: ModuleType) -> None:
        """core: FlashInfer's module of JitSpec. Its generators are looked for in every imported flashinfer module."""
        base = getattr(core, "JitSpec", None)
        for kind in _family(base) if isinstance(base, type) else ():
            for phase in ("build_and_load", "write_ninja", "build", "load"):
                function = vars(kind).get(phase)
                if callable(function) and not getattr(function, "__isabstractmethod__", False):
                    setattr(kind, phase, self._method(function, phase))
                    self.hooks.append(f"{kind.__name__}.{phase}")
        wrapped: dict[int, Any] = {}
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != "flashinfer" or module is None:
                continue
            for attribute, value in list(vars(module).items()):
                if _is_generator(value):
                    timed = wrapped.setdefault(id(value), self._generator(value))
                    setattr(module, attribute, timed)
        self.hooks.append(f"{len(wrapped)} generators")

    def records(self) -> list[Record]:
        """A record a module, in the order in which they were made."""
        return [
            {
                "kind": "module",
                "name": name,
                "spans": spans,
                "generator": self.generators.get(name),
                "compiled_ahead": name in self.compiled_ahead,
            }
            for name, spans in self.spans.items()
        ]

    def _method(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(spec: Any, *args: Any, **kwargs: Any) -> Any:
            name = str(getattr(spec, "name", "?"))
            if phase == "build_and_load" and bool(getattr(spec, "is_aot", False)):
                self.compiled_ahead.add(name)
            with self._span(name, phase):
                return function(spec, *args, **kwargs)

        return timed

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin, outermost = self._clock(), self._depth == 0
            self._depth += 1
            try:
                spec = function(*args, **kwargs)
            finally:
                self._depth -= 1
            name = getattr(spec, "name", None)
            if outermost and isinstance(name, str):
                self.spans.setdefault(name, []).append(["generate", begin - self._zero, self._clock() - self._zero])
                self.generators[name] = {
                    "module": function.__module__,
                    "function": function.__name__,
                    "args": call_text(args, kwargs),
                }
            return spec

        return timed

    @contextmanager
    def _span(self, name: str, phase: str) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self.spans.setdefault(name, []).append([phase, begin - self._zero, self._clock() - self._zero])


def call_text(args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Arguments as Python would write them, ``torch.float16, 128``; None where one cannot be written."""
    words = [_literal(value) for value in args]
    named = [(name, _literal(value)) for name, value in kwargs.items()]
    if None in words or None in dict(named).values():
        return None
    return ", ".join([*map(str, words), *(f"{name}={word}" for name, word in named)])


def _literal(value: Any) -> str | None:
    if isinstance(value, enum.Enum):
        return None
    if isinstance(value, str):
        # Double quotes, so that a shell takes the whole in single ones.
        return json.dumps(value)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        words = [_literal(item) for item in value]
        inside = ", ".join(word for word in words if word is not None)
        if None in words:
            return None
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(words) == 1 else ''})"
    text = str(value)
    return text if type(value).__name__ == "dtype" and re.fullmatch(r"torch\.\w+", text) else None


def _family(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    derived: type[Any]
    for derived in type.__subclasses__(kind):
        yield from _family(derived)


def _is_generator(value: Any) -> bool:
    return (
        callable(value)
        and isinstance(name := getattr(value, "__name__", None), str)
        and GENERATOR.fullmatch(name) is not None
        and str(getattr(value, "__module__", "")).startswith("flashinfer.")
    )


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong use. Results go to --out; ninja's output and steps to the log."""
    options = _parser().parse_args(arguments)
    with open(options.out, "w", encoding="utf-8") as out:

        def emit(record: Record) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        try:
            probe(options.case, Path(options.cache), options.repeats, emit, _say)
        except FiprofError as error:
            emit({"kind": "failure", "message": error.message, "remedy": error.remedy})
            _say(f"error: {error}")
            return error.exit_code
        except Exception as error:
            emit({"kind": "failure", "message": _one_line(error), "remedy": ""})
            raise
    return 0


def probe(text: str, cache: Path, repeats: int, emit: Callable[[Record], None], say: Callable[[str], None]) -> None:
    """Time the first call of a case in this process, then repeats more.

    Raises FiprofError where something that a call needs is missing, or FlashInfer caches outside of ``cache``.
    """
    from fiprof.workloads.case import parse_case
    from fiprof.workloads.runner import import_modules

    case = parse_case(text)
    say("import")
    begin = time.perf_counter()
    import_modules([case])
    import_s = time.perf_counter() - begin
    check_cache(cache)
    facts = environment()
    check_environment(facts)
    emit({"kind": "environment", **facts})
    trace = Trace()
    trace.install(importlib.import_module(CORE))
    import torch

    first_s, again_s = time_calls(case, trace, repeats, torch.cuda.synchronize, say)
    for record in trace.records():
        emit(record)
    emit(
        {
            "kind": "call",
            "case": case.id,
            "import_s": import_s,
            "first_s": first_s,
            "again_s": again_s,
            "hooks": trace.hooks,
        }
    )


def time_calls(
    case: Case, trace: Trace, repeats: int, synchronize: Callable[[], None], say: Callable[[str], None]
) -> tuple[float, list[float]]:
    """Seconds of the first call and of each of the repeats: plan, launch, wait for the GPU; inputs are made before.

    The trace keeps what happened in the first.
    """
    seconds: list[float] = []
    for turn in range(repeats + 1):
        workload = case.build()
        # The inputs of the built-in workloads are a cached property.
        _ = getattr(workload, "inputs", None)
        synchronize()
        if turn == 0:
            say("first call")
        begin = trace.start() if turn == 0 else time.perf_counter()
        workload.setup()()
        synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds[0], seconds[1:]


def check_cache(cache: Path) -> None:
    """Raise FiprofError unless FlashInfer's cache lies in a folder."""
    used = Path(importlib.import_module("flashinfer.jit.env").FLASHINFER_WORKSPACE_DIR)
    if not used.resolve().is_relative_to(cache.resolve()):
        raise FiprofError(
            f"this FlashInfer caches in {used} though FLASHINFER_WORKSPACE_BASE is {cache}",
            "fiprof jit leaves that cache alone: it needs FlashInfer 0.5.3 or later",
        )


def environment() -> Record:
    """packages, GPU, compiler and cores: what the times depend on."""
    import torch

    from fiprof.workloads.environment import gpu_facts, package_versions

    packages = package_versions()
    packages.pop("python_executable", None)
    return {
        "packages": packages,
        "gpu": gpu_facts() if torch.cuda.is_available() else {},
        "nvcc": _tool_version(nvcc_path(), r"release [\d.]+, V([\d.]+)"),
        "host_compiler": _tool_version(os.environ.get("CXX", "c++"), r"(.+)"),
        "ninja": _tool_version("ninja", r"([\d.]*\d)"),
        "cores": len(os.sched_getaffinity(0)),
        "max_jobs": os.environ.get("MAX_JOBS"),
        "nvcc_threads": os.environ.get("FLASHINFER_NVCC_THREADS"),
        "jit_disabled": bool(os.environ.get("FLASHINFER_DISABLE_JIT")),
        "compiled_ahead": [
            name for name in ("flashinfer_jit_cache", "flashinfer_cubin") if find_spec(name) is not None
        ],
    }


def check_environment(facts: Record) -> None:
    """Raise FiprofError naming what a first call needs and is not there."""
    if not facts["gpu"]:
        raise FiprofError(
            "torch sees no CUDA device: a first call launches its kernel",
            "run fiprof jit on a machine with an NVIDIA GPU; --read FILE.json shows what was measured on one",
        )
    if facts["jit_disabled"]:
        raise FiprofError("FLASHINFER_DISABLE_JIT is set: nothing is compiled just in time", "unset it for fiprof jit")
    if facts["compiled_ahead"]:
        return
    if not facts["nvcc"]:
        raise FiprofError(
            f"no CUDA compiler: {nvcc_path()} does not run",
            "install the CUDA toolkit of torch's CUDA version, or name one with CUDA_HOME",
        )
    if not facts["ninja"]:
        raise FiprofError(
            "ninja was not found, with which FlashInfer builds",
            f"put the interpreter's own programs on PATH ({Path(sys.executable).parent}), or pip install ninja",
        )


def nvcc_path() -> str:
    """The compiler that FlashInfer starts."""
    named = os.environ.get("FLASHINFER_NVCC")
    if named:
        return named
    try:
        home = str(importlib.import_module("flashinfer.jit.cpp_ext").get_cuda_path())
    except Exception:
        return "nvcc"
    return str(Path(home) / "bin" / "nvcc")


def _tool_version(program: str, pattern: str) -> str | None:
    """What a program says of its version; None where it does not run."""
    if shutil.which(program) is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stdout)
    return found.group(1).strip() if done.returncode == 0 and found else None


def _one_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"


def _say(text: str) -> None:
    sys.stderr.write(f"fiprof: {text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fiprof.flashinfer.jit.probe", description="Time a case's first call; fiprof jit starts this."
    )
    parser.add_argument("case", help="name or name[key=value,…]")
    parser.add_argument("--cache", required=True, help="the folder that FLASHINFER_WORKSPACE_BASE names")
    parser.add_argument("--out", required=True, help="file for the results, JSON lines")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"calls after the first (default {REPEATS})")
    return parser


if __name__ == "__main__":
    sys.exit(main())
