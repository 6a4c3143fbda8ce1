"""Where FlashInfer's kernels, and what calls and dispatches them, are defined in an installed package.

kernels.toml and guide.toml name file and symbol; one search gives the line. :func:`find_sources` asks the workload's
interpreter, which starts this file by path: it needs no fiprof there, and imports nothing of FlashInfer.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:
    # Makes this file's package importable; the runner's main function is not run under this name.
    runpy.run_path(str(Path(__file__).parents[1] / "workloads/__main__.py"), run_name="fiprof_bootstrap")

from fiprof.errors import FiprofError
from fiprof.flashinfer.data import data, guide, kernels
from fiprof.flashinfer.results import SOURCES, SourceMissing, SourcePlace, SourceResults

if TYPE_CHECKING:
    from fiprof.orchestrator.study.definition import Measured

PACKAGE, MODULE = "flashinfer-python", "flashinfer"
JIT = "just-in-time compilation"
"""The topic of how a module is built: of no kernel, and looked for always."""
FOLDERS = {".cuh": "data/include/flashinfer", ".cu": "data/csrc", ".py": ""}
"""Ending -> where in the package the tables' paths begin."""
TIMEOUT_S = 120
LONGEST_SNIPPET = 200

TOPICS: dict[str, tuple[str, dict[str, Any]]] = {
    topic["name"]: (workload, topic) for workload, table in kernels().items() for topic in table.get("sources", ())
}
"""Topic -> its workload, and its table in kernels.toml."""
KERNELS = tuple(dict.fromkeys(kernel for _, topic in TOPICS.values() for kernel in topic["kernels"]))
"""The kernels that are looked for unless others are named."""

_DEFINES = r"^(?!\s*(?://|\*|#|return\b|new\b|throw\b))\s*(?:.*[\w>&*]\s+)?{name}\b\s*(?:[({{:]|$)"
"""A line that defines a name; a call has ``=``, ``(`` or ``.`` before it."""


def source_map(root: Path, names: Sequence[str] = KERNELS) -> SourceResults:
    """Places in an installed package: of each kernel, from the Python call down to the device; of the words that choose
    a kernel or a template (part ``choice``); and of the steps and variables of building a module (topic JIT).

    root: the package's folder (``…/site-packages/flashinfer``). names: kernels as profiled, short or full
    (``void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(…)``).
    """
    places: list[SourcePlace] = []
    missing: list[SourceMissing] = []
    asked: dict[str, bool] = {}  # Kernel -> whether it is CUDA's; CuTe DSL's have the class's name in theirs.
    for short in dict.fromkeys(map(short_name, names)):
        dsl = short.startswith("kernel_cutlass")
        kernel = max((each for each in KERNELS if each in short), key=len, default=short) if dsl else short
        asked[kernel] = asked.get(kernel, False) or not dsl
        if kernel not in KERNELS:
            missing.append(SourceMissing("", "kernel", short))
    for topic, (workload, table) in TOPICS.items():
        if not asked.keys() & {*table["kernels"]}:
            continue
        for part, path, symbol, optional in _entries(table):
            if part != "kernel" or asked.get(symbol):
                place = _place(root, topic, part, path, symbol)
                places += [place] if place else []
                missing += [] if place or optional else [SourceMissing(topic, part, symbol)]
        for choice in guide("choices").get(workload, ()) if table is kernels()[workload]["sources"][0] else ():
            place = _place(root, topic, "choice", choice["file"], choice["at"], choice["says"])
            places += [place] if place else []
            missing += [] if place or choice.get("optional") else [SourceMissing(topic, "choice", choice["says"])]
    places += filter(None, (_place(root, JIT, "step", step["file"], step["at"]) for step in guide("jit")["steps"]))
    # The builder's files first.
    files = [file for glob in ("jit/*.py", "*.py", "*/**/*.py") for file in sorted(root.glob(glob))]
    for name in guide("jit")["variables"]:
        found = (_search(file, rf"""["']{name}["']""") for file in files if not file.name.startswith("__main"))
        if at := next(filter(None, found), None):
            places.append(SourcePlace(JIT, "variable", name, *at))
    return SourceResults(version="", places=list(dict.fromkeys(places)), missing=missing, package=PACKAGE)


def _entries(table: dict[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """Part, path, symbol, and whether versions may lack it, of a topic; ``@name`` stands for a list of [shared]."""
    for key in ("places", "optional"):
        for entry in table.get(key, ()):
            for each in data()["shared"][entry[1:]] if entry.startswith("@") else (entry,):
                part, path, symbol = each.rsplit(" ", 2)
                yield part, path, symbol, key == "optional"


def _place(root: Path, topic: str, part: str, path: str, symbol: str, says: str = "") -> SourcePlace | None:
    """Where a file defines ``name`` or ``Class.method``, or says something from there on."""
    file = root / FOLDERS[Path(path).suffix] / path
    if not file.is_file():
        file = file.with_suffix("") / "__init__.py"
    at: tuple[str, int, str] | None = None
    for pattern in [*(_DEFINES.format(name=name) for name in symbol.split(".")), *([re.escape(says)] if says else [])]:
        at = _search(file, pattern, at[1] if at else 0)
        if at is None:
            return None
    return SourcePlace(topic, part, says or symbol.rpartition(".")[2], *at) if at else None


def _search(file: Path, pattern: str, start: int = 0) -> tuple[str, int, str] | None:
    """Path, number and text of the first line that has a pattern, of those behind line ``start``; no overload's."""
    lines = _lines(file)
    for number, line in enumerate(lines[start:], start + 1):
        if re.search(pattern, line) and lines[number - 2].strip() != "@overload":
            return "/".join(file.parts[file.parts.index(MODULE) :]), number, line.strip()[:LONGEST_SNIPPET]
    return None


@functools.cache
def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []


def short_name(full: str) -> str:
    """``RMSNormKernel`` of a kernel's full name: without return type, namespaces, template and call arguments."""
    head = re.split(r"[<(]", re.sub(r"<unnamed>|\(anonymous namespace\)", "_", full), maxsplit=1)[0]
    return head.split()[-1].rpartition("::")[2] if head.split() else ""


def find_sources(python: str, names: Sequence[str] = ()) -> SourceResults:
    """Where the kernels' code lives in the FlashInfer of an interpreter; takes a second or two.

    names: kernels as profiled; none for FlashInfer's usual ones.
    Raises FiprofError where the interpreter does not run or has no FlashInfer.
    """
    import msgspec

    remedy = "--python PATH names the interpreter that has flashinfer"
    asked = f"{python} cannot tell where FlashInfer's sources are"
    try:
        command = (python, str(Path(__file__)), "--", *names)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{asked}: {error}", remedy) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise FiprofError(f"{asked}: {last.removeprefix('fiprof: error: ')}", remedy)
    try:
        return msgspec.json.decode(done.stdout, type=SourceResults)
    except msgspec.MsgspecError as error:
        raise FiprofError(f"{asked}: it printed something else: {error}", remedy) from error


def after_measuring(measured: Measured) -> None:
    """Write the map of a study's kernels; says why where there is none."""
    from fiprof.model.results import write

    if measured.kernels:
        try:
            write(measured.results / SOURCES, find_sources(measured.python, measured.kernels))
        except FiprofError as error:
            measured.progress.say(f"the kernels' source code was not looked up: {error.message}")


def main() -> int:
    """Print the map as JSON. Exit status: 0 done, 1 no FlashInfer here."""
    parser = argparse.ArgumentParser(description="Where FlashInfer's kernels are defined, as JSON.")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="names as profiled (default: all)")
    options = parser.parse_args()
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        sys.stderr.write(f"fiprof: error: {MODULE} is not installed for {sys.executable}\n")
        return 1
    found = source_map(Path(next(iter(spec.submodule_search_locations))), options.kernels or KERNELS)
    with contextlib.suppress(PackageNotFoundError):
        found = dataclasses.replace(found, version=version(PACKAGE))
    sys.stdout.write(json.dumps(dataclasses.asdict(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
