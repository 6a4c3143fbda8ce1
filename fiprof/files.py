"""Files that appear whole or not at all, for every room."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside a path, to be written in the block; it takes the path's place when the block ends well.

    A reader sees the old content or the new, also when the disk is full, and two processes do not meet. Raises OSError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
