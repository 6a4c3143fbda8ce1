"""FlashInfer's pack: what fiprof knows of FlashInfer's kernels (see ``fiprof.model.packs``)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiprof.analysis.claims import Claim
    from fiprof.model.kernel_info import KernelInfo, ParameterName
    from fiprof.orchestrator.study.definition import Extra


def studies() -> Mapping[str, Mapping[str, Any]]:
    """The matrix of FlashInfer's kernels."""
    from fiprof.flashinfer.data import data, kernels

    study = data()["study"]
    cases = [
        {"workload": workload, **block} for workload, table in kernels().items() for block in table.get("study", ())
    ]
    return {study["name"]: {**study, "cases": cases}}


def expectations() -> Mapping[str, Any]:
    """Published figures of FlashInfer's kernel families."""
    from fiprof.flashinfer.data import data, kernels

    tables = kernels()
    families = [
        {
            "name": workload,
            "workloads": [workload, *(name for name, other in tables.items() if other.get("expected") == workload)],
            **table["expected"],
        }
        for workload, table in tables.items()
        if isinstance(table.get("expected"), dict)
    ]
    return {"source": data()["source"], "family": families}


def kernels() -> Mapping[str, KernelInfo]:
    """What is known of each workload."""
    from fiprof.flashinfer.data import data
    from fiprof.flashinfer.data import kernels as tables
    from fiprof.model.kernel_info import KernelInfo

    return {
        workload: KernelInfo(
            title=table["title"],
            family=table["family"],
            algorithm=tuple(table["algorithm"]),
            parameters=table["parameters"],
            options={name: tuple(values) for name, values in table.get("options", {}).items()},
            problem=table.get("problem", ""),
            traffic=table.get("traffic", ""),
            variant=tuple(data()["variants"][table["variant"]]),
            growth=table.get("growth", {}),
            before_profiling=tuple(data()["before_profiling"]),
        )
        for workload, table in tables().items()
    }


def parameters() -> Mapping[str, ParameterName]:
    """How the workloads' parameters are called."""
    from fiprof.flashinfer.data import data
    from fiprof.model.kernel_info import ParameterName

    return {name: ParameterName(**words) for name, words in data()["names"].items()}


def packages() -> Mapping[str, str]:
    """The package whose version matters."""
    return {"flashinfer-python": "FlashInfer"}


def claims() -> Iterable[Claim]:
    """What others say of the kernels."""
    from fiprof.flashinfer.claims import CLAIMS

    return CLAIMS


def claim_notes() -> Iterable[str]:
    """What to know of the claims' rules."""
    from fiprof.flashinfer.claims import NOTE

    return (NOTE,)


def extras() -> Mapping[str, Extra]:
    """What a study can measure beyond its cases."""
    from fiprof.flashinfer.jit.measure import measure_jit

    return {"jit": measure_jit}


ELSEWHERE = {
    "after_measuring": "source_map",
    "choices": "study_sections",
    "files": "study_sections",
    "study_sections": "study_sections",
}
"""The pack's other functions -> the module of this package that has it."""


def __getattr__(name: str) -> Any:
    """A function that stands elsewhere, whose module is imported when it is wanted."""
    if name not in ELSEWHERE:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"fiprof.flashinfer.{ELSEWHERE[name]}"), name)
