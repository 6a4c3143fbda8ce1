"""Raw files of a recorded run, packed or not."""

import os
from pathlib import Path

UNPACKED = "FIPROF_TEST_UNPACKED"
"""The folder in which a session of tests keeps what it has unpacked."""


def recorded_bytes(path: Path) -> bytes:
    if path.exists():
        return path.read_bytes()
    if (packed := path.with_name(path.name + ".xz")).exists():
        import lzma  # here: stand-ins start often, and seldom unpack

        return lzma.decompress(packed.read_bytes())
    import pyarrow as pa

    with pa.input_stream(path.with_name(path.name + ".zst"), compression="zstd") as plain:
        return bytes(plain.read())


def replayed_bytes(path: Path) -> bytes:
    """The same of a run that the stand-ins give out again and again: unpacked once where a session keeps it."""
    if UNPACKED not in os.environ:
        return recorded_bytes(path)
    kept = Path(os.environ[UNPACKED], str(path).replace("/", "-"))
    if kept.exists():
        return kept.read_bytes()
    kept.parent.mkdir(parents=True, exist_ok=True)
    making = kept.with_name(f"{kept.name}-{os.getpid()}")
    making.write_bytes(recorded_bytes(path))
    making.rename(kept)
    return kept.read_bytes()
