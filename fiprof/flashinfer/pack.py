"""FlashInfer's pack: what fiprof knows of FlashInfer's kernels (see ``fiprof.model.packs``)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from fiprof.flashinfer import data
from fiprof.model.packs import KernelInfo, ParameterName


def studies() -> Mapping[str, Mapping[str, Any]]:
    """The matrix of FlashInfer's kernels."""
    study = data.data()["study"]
    cases = [{"workload": name, **block} for name, table in data.kernels().items() for block in table.get("study", ())]
    return {study["name"]: {**study, "cases": cases}}


def expectations() -> Mapping[str, Any]:
    """Published figures of FlashInfer's kernel families."""
    expected = {name: table["expected"] for name, table in data.kernels().items() if "expected" in table}
    families = [
        {"name": name, "workloads": [name, *(other for other in expected if expected[other] == name)], **figures}
        for name, figures in expected.items()
        if isinstance(figures, dict)
    ]
    return {"source": data.data()["source"], "family": families}


def best_cases() -> Mapping[str, Any]:
    """The most that FlashInfer's kernels were measured to use a resource."""
    best: dict[str, Any] = data.data()["best_cases"]
    return best


def kernels() -> Mapping[str, KernelInfo]:
    as_they_are = ("title", "family", "parameters", "problem", "growth")
    return {
        workload: KernelInfo(
            algorithm=tuple(table["algorithm"]),
            options={name: tuple(values) for name, values in table.get("options", {}).items()},
            variant=tuple(data.data()["variants"][table["variant"]]),
            before_profiling=tuple(data.data()["before_profiling"]),
            **{key: table[key] for key in as_they_are if key in table},
        )
        for workload, table in data.kernels().items()
    }


def parameters() -> Mapping[str, ParameterName]:
    """How the workloads' parameters are called."""
    return {name: ParameterName(**words) for name, words in data.data()["names"].items()}


def packages() -> Mapping[str, str]:
    return {"flashinfer-python": "FlashInfer"}


ELSEWHERE = {
    "after_measuring": "source_map",
    "choices": "study",
    "claim_notes": "study",
    "claims": "study",
    "extras": "jit.measure",
    "files": "study",
    "study_sections": "study",
}
"""The pack's other functions -> the module of this package that has it."""


def __getattr__(name: str) -> Any:
    """A function that stands elsewhere, whose module is imported when it is wanted."""
    if name not in ELSEWHERE:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"fiprof.flashinfer.{ELSEWHERE[name]}"), name)
