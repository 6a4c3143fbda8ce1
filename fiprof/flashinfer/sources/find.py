"""Where a kernel's code lives in the installed FlashInfer: files and lines, found by their definitions.

``python -m fiprof.flashinfer.sources.find`` in the workload's interpreter prints JSON; it reads the installed package's
files and imports nothing of it. Also started by path, by an interpreter that has flashinfer but not fiprof.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import re
import runpy
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

if not __package__:
    # Makes this file's package importable; the runner's main function is not run under this name.
    runpy.run_path(str(Path(__file__).parents[2] / "workloads/__main__.py"), run_name="fiprof_bootstrap")

from fiprof.flashinfer.results import SourceMissing, SourcePlace, SourceResults, SourceTunable
from fiprof.flashinfer.sources.topics import JIT, KERNELS, TOPICS, Topic
from fiprof.flashinfer.sources.tree import MODULE, Tree
from fiprof.flashinfer.sources.tunables import fits, tunables

PACKAGE = "flashinfer-python"


def source_map(root: Path, kernels: Sequence[str] = KERNELS) -> SourceResults:
    """Places and tunables of some kernels in an installed package.

    root: the package's folder (``…/site-packages/flashinfer``). kernels: names as profiled, short or full with
    template arguments (``void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(…)``).
    """
    tree = Tree(root)
    places: dict[SourcePlace, None] = {}
    found_tunables: dict[SourceTunable, None] = {}
    missing: dict[SourceMissing, None] = {}
    for full in kernels:
        short = short_name(full)
        dsl = _dsl_kernel(short)
        definition = None if dsl else tree.cpp(short)
        topics = [topic for topic in TOPICS if (dsl or short) in topic.kernels]
        if definition is None and not dsl:
            missing[SourceMissing("", "kernel", short)] = None
        for topic in topics or [Topic(short, (short,))]:
            for part in topic.parts:
                found = tree.find(part, near=definition)
                if found is not None:
                    places[found.place(topic.name, part.part)] = None
                elif not part.optional:
                    missing[SourceMissing(topic.name, part.part, part.name)] = None
            if definition is not None:
                places[definition.place(topic.name, "kernel")] = None
        if definition is not None:
            if not fits(definition, full):
                missing[SourceMissing("", "template", short)] = None
            found_tunables |= dict.fromkeys(tunables(tree, (topics or [Topic(short, ())])[0], definition, full))
    for part in JIT.parts:
        if (found := tree.find(part, near=None)) is not None:
            places[found.place(JIT.name, part.part)] = None
    order = {part: index for index, part in enumerate(_ORDER)}
    return SourceResults(
        version="",
        places=sorted(places, key=lambda place: (_topic_index(place.topic), order.get(place.part, len(order)))),
        tunables=list(found_tunables),
        missing=list(missing),
        package=PACKAGE,
    )


_ORDER = (
    "entry",
    "plan",
    "run",
    "module",
    "generator",
    "binding",
    "scheduler",
    "dispatch",
    "traits",
    "kernel",
    "device",
)


def _topic_index(name: str) -> int:
    return next((index for index, topic in enumerate(TOPICS) if topic.name == name), len(TOPICS))


def _dsl_kernel(short: str) -> str:
    """The class of a kernel that CuTe DSL made, whose name has the class's in it; empty for other kernels."""
    if not short.startswith("kernel_cutlass"):
        return ""
    return max((kernel for kernel in KERNELS if kernel in short), key=len, default="")


def short_name(full: str) -> str:
    """``RMSNormKernel`` of a kernel's full name: without return type, namespaces, template and call arguments."""
    head = re.split(r"[<(]", re.sub(r"<unnamed>|\(anonymous namespace\)", "_", full), maxsplit=1)[0]
    return head.split()[-1].rpartition("::")[2] if head.split() else ""


def installed_root() -> Path | None:
    """The folder of the installed package, found without importing it."""
    spec = importlib.util.find_spec(MODULE)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def main(arguments: list[str] | None = None) -> int:
    """Print the map as JSON. Exit status: 0 done, 1 no FlashInfer here."""
    parser = argparse.ArgumentParser(
        prog="python -m fiprof.flashinfer.sources.find", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="names as profiled (default: FlashInfer's usual ones)"
    )
    parser.add_argument("--root", type=Path, help="the package's folder (default: the installed one)")
    options = parser.parse_args(arguments)
    root = options.root or installed_root()
    if root is None or not root.is_dir():
        sys.stderr.write(f"fiprof: error: {root or 'flashinfer'} is not installed for {sys.executable}\n")
        return 1
    found = source_map(root, options.kernels or KERNELS)
    try:
        known = "" if options.root else version(PACKAGE)
    except PackageNotFoundError:
        known = ""
    sys.stdout.write(json.dumps(dataclasses.asdict(dataclasses.replace(found, version=known)), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
