"""Kernels that wait for another GPU's."""

from __future__ import annotations

import re

COLLECTIVE = re.compile(
    r"nccl|nvshmem|mscclpp|cross_device_reduce|all_?(reduce|gather|to_?all)|reduce_?scatter|multimem", re.IGNORECASE
)
"""In the name of a kernel of NCCL, NVSHMEM, MSCCL++, or of a library's own all-reduce."""
