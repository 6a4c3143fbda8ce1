"""Raw files of a recorded run, packed or not."""

import lzma
from pathlib import Path


def recorded_bytes(path: Path) -> bytes:
    if path.exists():
        return path.read_bytes()
    if (packed := path.with_name(path.name + ".xz")).exists():
        return lzma.decompress(packed.read_bytes())
    import pyarrow as pa

    with pa.input_stream(path.with_name(path.name + ".zst"), compression="zstd") as plain:
        return bytes(plain.read())
