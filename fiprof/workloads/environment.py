"""What this interpreter and GPU are, as far as a workload's process can tell."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

PACKAGES = (
    "torch", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "apache-tvm-ffi", "nvidia-cutlass-dsl",
    "triton", "nvtx", "numpy",
)  # fmt: skip


def package_versions() -> dict[str, str | None]:
    """Version of each package that matters here; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {"python": platform.python_version(), "python_executable": sys.executable}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def gpu_facts() -> dict[str, Any]:
    """The current CUDA device as torch sees it. Sizes in bytes."""
    import torch

    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": device.name,
        "compute_capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "memory_bytes": device.total_memory,
        "l2_bytes": getattr(device, "L2_cache_size", None),
        "uuid": str(getattr(device, "uuid", "")) or None,
        "cuda": torch.version.cuda,
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def describe() -> dict[str, Any]:
    """For ``fiprof env``: packages, CUDA, GPU, FlashInfer's cache; what is missing is said, never raised."""
    facts: dict[str, Any] = {"packages": package_versions(), "problems": {}}
    try:
        import torch

        if torch.cuda.is_available():
            facts["gpu"] = gpu_facts()
        else:
            facts["problems"]["torch"] = "torch sees no CUDA device"
    except Exception as error:
        facts["problems"]["torch"] = f"torch cannot be imported: {error!r}"
    try:
        from flashinfer.jit import env

        cache = env.FLASHINFER_WORKSPACE_DIR
        modules = sorted(path.parent.name for path in cache.glob("cached_ops/*/*.so"))
        facts["jit_cache"] = {
            "path": str(cache),
            "modules": modules,
            "bytes": sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()),
        }
    except Exception as error:
        facts["problems"]["flashinfer-python"] = f"flashinfer cannot be imported: {error!r}"
    return facts
