"""Where FlashInfer's kernels, and what calls and dispatches them, are defined in an installed package.

kernels.toml and guide.toml name file and symbol; one search gives the line. :func:`find_sources` asks the workload's
interpreter where the package lies; nothing of FlashInfer is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError
from fiprof.flashinfer.data import SOURCES, SourcePlace, SourceResults, data, kernels
from fiprof.model import json_file
from fiprof.parsers.names import short_name

if TYPE_CHECKING:
    from fiprof.orchestrator.study import PackRequest

PACKAGE, MODULE = "flashinfer-python", "flashinfer"
JIT = "just-in-time compilation"  # the topic of how a module is built: of no kernel, and looked for always
FOLDERS = {".cuh": "data/include/flashinfer", ".cu": "data/csrc", ".py": ""}
"""Ending -> where in the package the tables' paths begin."""
TIMEOUT_S = 120
ASK = f"""
import sys
sys.path = [each for each in sys.path if each]
from importlib import metadata, util
if not (spec := util.find_spec("{MODULE}")):
    sys.exit(f"{MODULE} is not installed for {{sys.executable}}")
print(spec.submodule_search_locations[0])
print(next((each.version for each in metadata.distributions(name="{PACKAGE}")), ""))
"""
"""What an interpreter is asked: the package's folder, not one of its name here, and its version, if it has one."""
LONGEST_SNIPPET = 200
TOPICS = {topic: workload for workload, table in kernels().items() for topic in table.get("sources", ())}

_DEFINES = r"^(?!\s*(?://|\*|#|return\b|new\b|throw\b))\s*(?:.*[\w>&*]\s+)?{name}\b\s*(?:[({{:]|$)"
"""A line that defines a name; a call has ``=``, ``(`` or ``.`` before it."""


def entries(topic: str) -> Iterator[tuple[str, str, str, bool]]:
    """Part, path, symbol, and whether versions may lack it, of each place of a topic."""
    for line in kernels()[TOPICS[topic]]["sources"][topic]:
        for each in data()["shared"][line[1:]] if line.startswith("@") else (line,):
            path, *symbols = each.split(" | ")
            for symbol in symbols:
                part, _, name = symbol.rpartition(" ")
                yield part, path.removesuffix("?"), name, path.endswith("?")


OWN = {topic: {symbol for part, _, symbol, _ in entries(topic) if part == "kernel"} for topic in TOPICS}
KERNELS = tuple(dict.fromkeys(kernel for own in OWN.values() for kernel in sorted(own)))
"""The kernels that are looked for unless others are named."""


def source_map(root: Path, names: Sequence[str] = KERNELS) -> SourceResults:
    """Places in an installed package: of each kernel, from the Python call down to the device; of the words that choose
    a kernel or a template (part ``choice``); and of the steps and variables of building a module (topic JIT).

    root: the package's folder (``…/site-packages/flashinfer``). names: kernels as profiled, short or full
    (``void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(…)``).
    """
    places: list[SourcePlace] = []
    missing: list[SourcePlace] = []
    is_cuda: dict[str, bool] = {}  # Kernel -> whether it is CUDA's; CuTe DSL's have the class's name in theirs.
    for short in dict.fromkeys(map(short_name, names)):
        dsl = short.startswith("kernel_cutlass")
        kernel = max((each for each in KERNELS if each in short), key=len, default=short) if dsl else short
        is_cuda[kernel] = is_cuda.get(kernel, False) or not dsl
        if kernel not in KERNELS:
            missing.append(SourcePlace("", "kernel", short))
    for topic, workload in TOPICS.items():
        if not is_cuda.keys() & OWN[topic]:
            continue
        looked = [(*entry, "") for entry in entries(topic) if entry[0] != "kernel" or is_cuda.get(entry[2])]
        # A workload's choices stand with its first topic.
        if topic == next(each for each, owner in TOPICS.items() if owner == workload):
            for _, _, at, says, *optional in data("guide")["choices"].get(workload, ()):
                path, symbol = at.split()
                looked.append(("choice", path, symbol, bool(optional), says))
        for part, path, symbol, may_lack, says in looked:
            if place := _place(root, topic, part, path, symbol, says):
                places.append(place)
            elif not may_lack:
                missing.append(SourcePlace(topic, part, says or symbol))
    places += filter(None, (_place(root, JIT, "step", *at.split()) for _, _, at in data("guide")["jit"]["steps"]))
    # The builder's files first.
    files = [file for glob in ("jit/*.py", "*.py", "*/**/*.py") for file in sorted(root.glob(glob))]
    for name in data("guide")["jit"]["variables"]:
        found = (_search(file, rf"""["']{name}["']""") for file in files if not file.name.startswith("__main"))
        if at := next(filter(None, found), None):
            places.append(SourcePlace(JIT, "variable", name, *at))
    return SourceResults(version="", places=list(dict.fromkeys(places)), missing=missing, package=PACKAGE)


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


def find_sources(python: str, names: Sequence[str] = ()) -> SourceResults:
    """Where the kernels' code lives in the FlashInfer of an interpreter; takes a second or two.

    names: kernels as profiled; none for FlashInfer's usual ones.
    Raises FiprofError where the interpreter does not run or has no FlashInfer.
    """
    remedy = "--python PATH names the interpreter that has flashinfer"
    problem = f"{python} cannot tell where FlashInfer's sources are"
    try:
        done = subprocess.run((python, "-c", ASK), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{problem}: {error}", remedy) from error
    root, version = ["", "", *done.stdout.splitlines()][-2:]
    if done.returncode != 0 or not root:
        raise FiprofError(f"{problem}: {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}", remedy)
    return dataclasses.replace(source_map(Path(root), names or KERNELS), version=version)


def after_measuring(request: PackRequest) -> None:
    """Write the map of a study's kernels; says why where there is none."""
    if request.kernels:
        try:
            json_file.write(request.results / SOURCES, find_sources(request.python, request.kernels))
        except FiprofError as error:
            request.bench.progress.say(f"the kernels' source code was not looked up: {error.message}")
