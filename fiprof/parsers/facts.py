"""What a file of nsys or ncu tells about how it came about: which version wrote it, and on which GPU."""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fiprof.model import tables
from fiprof.model.manifest import FileKind
from fiprof.parsers.nsys_export import Export

_VERSIONS: dict[FileKind, re.Pattern[bytes]] = {
    "nsys-rep": re.compile(rb"Report (20\d\d)@(\d+)@(\d+)"),
    "ncu-rep": re.compile(rb"(20\d\d)\.(\d+)\.(\d+)[\d.]* \(build"),
}
_GPU = {
    "name": "name",
    "uuid": "uuid",
    "multiprocessors": "smCount",
    "memory_bytes": "totalMemory",
    "l2_bytes": "l2CacheSize",
}
"""Field of the environment's GPU -> column of TARGET_INFO_GPU."""
_ATTRIBUTES = {
    "multiprocessors": "device__attribute_multiprocessor_count",
    "l2_bytes": "device__attribute_l2_cache_size",
}
"""Field of the environment's GPU -> ncu's metric."""


def tool_version(path: Path, kind: FileKind) -> str | None:
    """The version of the tool that wrote a file; None where it does not say, as pages of ncu do."""
    if kind == "nsys-sqlite":
        with Export(path) as export:
            return export.product_version or None
    if kind not in _VERSIONS:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _VERSIONS[kind].search(data)
        # Its groups lie in the file.
        return ".".join(part.decode() for part in found.groups()) if found else None


def traced_gpus(path: Path) -> dict[int, dict[str, Any]]:
    """The GPUs that an export lists, by their number, with the fields of the environment's GPU."""
    with Export(path) as export:
        rows = export.rows("TARGET_INFO_GPU", "id", "computeMajor", "computeMinor", *_GPU.values())
    return {
        number: {
            **dict(zip(_GPU, fields, strict=True)),
            "compute_capability": None if None in (major, minor) else f"{major}.{minor}",
        }
        for number, major, minor, *fields in rows
    }


def used_gpu(gpus: dict[int, dict[str, Any]], used: Collection[int | None]) -> dict[str, Any]:
    """What the GPUs have in common on which kernels ran; empty where none is known."""
    ran = [gpus[number] for number in sorted(set(gpus) & set(used))] or (list(gpus.values()) if len(gpus) == 1 else [])
    return {name: value for name, value in (ran[0] if ran else {}).items() if all(gpu[name] == value for gpu in ran)}


def profiled_gpu(folder: Path) -> dict[str, Any]:
    """The GPU of ncu's launches, from the tables in a folder; empty where they do not say, or differ."""
    import pyarrow.compute as pc

    found = tables.read(folder, "metrics", ["metric", "value", "text"])
    of = {
        name: pc.unique(found.filter(pc.equal(found["metric"], metric))[column].combine_chunks()).to_pylist()
        for name, metric, column in (
            ("name", "device__attribute_display_name", "text"),
            *((name, metric, "value") for name, metric in _ATTRIBUTES.items()),
        )
    }
    gpu = {name: values[0] for name, values in of.items() if len(values) == 1}
    capabilities = tables.read(folder, "launches", ["cc"])["cc"].unique().to_pylist()
    return {
        **{name: value if isinstance(value, str) else int(value) for name, value in gpu.items()},
        **({"compute_capability": capabilities[0]} if len(capabilities) == 1 and capabilities[0] else {}),
    }
