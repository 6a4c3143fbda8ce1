"""The workloads and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from fiprof.reports.view import Column, Document, View


@dataclass(frozen=True)
class Parameter:
    """A parameter as the command line has it."""

    option: str
    """E.g. ``--seq-len``."""
    default: str
    valid: str
    """The valid range in words."""
    help: str


@dataclass(frozen=True)
class Kernel:
    """A workload as ``--kernel`` takes it."""

    name: str
    summary: str
    """One line."""
    parameters: tuple[Parameter, ...]


_PARAMETER = (
    Column("option", "option", least=len("--tensor-cores")),
    Column("default", "default", least=len("default")),
    Column("valid", "valid", least=len("inplace|cos_sin_cache|llama31")),
    Column("help", "meaning"),
)

COLUMNS = (Column("workload"), Column("summary"), *_PARAMETER)


def kernels(found: Sequence[Kernel]) -> Document:
    """A table a workload for people; one row a parameter for programs, and one for a workload without any."""
    nothing = (None,) * len(_PARAMETER)
    cells = [[astuple(parameter) for parameter in kernel.parameters] for kernel in found]
    return Document(
        programs=View(
            COLUMNS,
            tuple(
                (kernel.name, kernel.summary, *row)
                for kernel, rows in zip(found, cells, strict=True)
                for row in rows or [nothing]
            ),
        ),
        shown=tuple(
            View(_PARAMETER, tuple(rows), title=f"{kernel.name}: {kernel.summary}")
            for kernel, rows in zip(found, cells, strict=True)
        ),
    )
