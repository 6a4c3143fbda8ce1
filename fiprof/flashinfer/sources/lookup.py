"""The map of the installed FlashInfer's sources, asked of the workload's interpreter."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.flashinfer.results import SOURCES, SourceResults
from fiprof.model.results import write
from fiprof.orchestrator.study.extras import Measured

TIMEOUT_S = 120


def sources_argv(python: str, kernels: Sequence[str]) -> tuple[str, ...]:
    """The command. kernels: names as profiled; none for FlashInfer's usual ones."""
    import fiprof.flashinfer.sources.find

    return (python, str(Path(fiprof.flashinfer.sources.find.__file__)), "--", *kernels)


def find_sources(python: str, kernels: Sequence[str] = ()) -> SourceResults:
    """Where the kernels' code lives in the FlashInfer of an interpreter; takes a second or two.

    Raises FiprofError where the interpreter does not run or has no FlashInfer.
    """
    import msgspec

    remedy = "--python PATH names the interpreter that has flashinfer"
    try:
        done = subprocess.run(
            sources_argv(python, kernels), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FiprofError(f"{python} cannot tell where FlashInfer's sources are: {error}", remedy) from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1].removeprefix("fiprof: error: ")
        raise FiprofError(f"{python} cannot tell where FlashInfer's sources are: {said}", remedy)
    try:
        return msgspec.json.decode(done.stdout, type=SourceResults)
    except msgspec.MsgspecError as error:
        raise FiprofError(f"{python} printed something else than the map of its sources: {error}", remedy) from error


def after_measuring(measured: Measured) -> None:
    """Write the map of a study's kernels; says why where there is none."""
    if not measured.kernels:
        return
    try:
        write(measured.results / SOURCES, find_sources(measured.python, measured.kernels))
    except FiprofError as error:
        measured.progress.say(f"the kernels' source code was not looked up: {error.message}")
