"""``kernels.toml`` and ``guide.toml``: what is known of FlashInfer's kernels.

Standard library only: the workloads' interpreter reads it too.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any


@functools.cache
def data(name: str = "kernels") -> dict[str, Any]:
    """A file's tables; its head describes them."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def kernels() -> dict[str, dict[str, Any]]:
    """Workload -> its table."""
    tables: dict[str, dict[str, Any]] = data()["kernels"]
    return tables


def guide(subject: str) -> Any:
    """A table of ``guide.toml``."""
    return data("guide")[subject]
