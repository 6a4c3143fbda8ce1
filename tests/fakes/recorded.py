"""Raw files of a recorded run, packed or not."""

from __future__ import annotations

import lzma
from pathlib import Path


def recorded_bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else lzma.decompress(path.with_name(path.name + ".xz").read_bytes())
