"""FlashInfer's pack: what fiprof knows of FlashInfer's kernels (see ``fiprof.model.packs``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent


def studies() -> Mapping[str, Path]:
    """The matrix of FlashInfer's kernels."""
    return {"flashinfer": FOLDER / "studies/flashinfer.toml"}


def expectations() -> Path:
    """Published figures of FlashInfer's kernel families."""
    return FOLDER / "expectations.toml"
