"""What a run's environment may hold: whatever could be found out about the machine, each fact of one type.

The schema of a dict in ``run.json`` and ``environment_info.json``; what else stands there is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """The GPU as torch sees it. Sizes in bytes."""

    name: str | None = None
    compute_capability: str | None = None
    """E.g. 9.0."""
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    uuid: str | None = None
    cuda: str | None = None
    visible_devices: str | None = None


@dataclass(frozen=True)
class GpuState:
    """The GPU as the driver sees it at one moment."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    other_processes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class GpuStates:
    """Before and after the run."""

    before: GpuState | None = None
    after: GpuState | None = None


@dataclass(frozen=True)
class Program:
    """What was run, as the user typed it."""

    command: tuple[str, ...] | None = None
    cwd: str | None = None
    program: Program | None = None
    git: str | None = None
    """Commit of the checkout that the program lies in, with ``-dirty`` after changes."""
    files: dict[str, str] | None = None
    """Each file of the command line that could be read -> SHA-256."""
    exit_status: int | None = None
    """Of the traced program; negative for a signal."""
    seconds: float | None = None
    """That the program took under nsys."""


@dataclass(frozen=True)
class Environment:
    """The whole."""

    packages: dict[str, str | None] | None = None
    """Name -> version; None where it is not installed."""
    tools: dict[str, str | None] | None = None
    """nsys and ncu -> version."""
    gpu: Gpu | None = None
    gpu_state: GpuStates | None = None
    driver: str | None = None
    host: dict[str, str | int | float | None] | None = None
    program: Program | None = None
    git: str | dict[str, str | bool | None] | None = None
    """Commit of the folder that collect was started in."""
