"""What packs do in a study beyond measuring its cases: ``extras()`` and ``after_measuring(measured)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fiprof.model import packs
from fiprof.orchestrator.process import Supervisor
from fiprof.orchestrator.run_session import Progress
from fiprof.workloads.case import Case


@dataclass(frozen=True)
class ExtraRequest:
    """What a pack is to measure for a study."""

    study: str
    cases: tuple[Case, ...]
    """As the study's table ``extras`` names them."""
    results: Path
    """The folder for its results file; it may not exist yet."""
    python: str
    """The workloads' interpreter."""
    gpu: int | None
    """As nvidia-smi counts; None for the first that is visible."""
    wait: bool
    """Wait while another fiprof profiles on the GPU."""
    progress: Progress
    supervisor: Supervisor


Extra = Callable[[ExtraRequest], None]
"""Measures, and writes its results file; does nothing where that is there."""


@dataclass(frozen=True)
class Measured:
    """A session's end: the results are written."""

    study: str
    results: Path
    """The folder of the results."""
    kernels: tuple[str, ...]
    """Full names of the kernels that ran, those of earlier sessions too."""
    python: str
    progress: Progress


def extras() -> dict[str, Extra]:
    """Name -> what measures it, of all packs."""
    return packs.merged("extras")


def after_measuring(measured: Measured) -> None:
    """Let every pack do its part."""
    packs.parts("after_measuring", measured)
