"""Columns of nsys tables as columns of ours: dictionaries of texts, process and thread ids, devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fiprof.parsers.nsys_export import Export, column

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.parsers.sqlite_pages import Ints

ID_BITS = 24
ID_MASK = (1 << ID_BITS) - 1
PROCESS = column("process", "globalPid", required=True, otherwise=0)


class Labels:
    """Integers to texts, as Arrow dictionaries that grow from piece to piece."""

    def __init__(self, texts: Callable[[Sequence[int]], Sequence[str | None]]) -> None:
        """texts: gives the text of each of some integers, None for an integer without one."""
        self._texts = texts
        self._codes: dict[int, int | None] = {}
        self._by_text: dict[str, int] = {}

    def encode(self, values: pa.Array) -> pa.DictionaryArray:
        """The texts of integers, dictionary-encoded or not; null for a null and for an integer without a text."""
        import pyarrow as pa

        encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        new = [value for value in distinct if value not in self._codes]
        for value, text in zip(new, self._texts(new), strict=True):
            self._codes[value] = None if text is None else self._by_text.setdefault(text, len(self._by_text))
        codes = pa.array([self._codes[value] for value in distinct], pa.int32())
        return pa.DictionaryArray.from_arrays(codes.take(encoded.indices), pa.array(list(self._by_text), pa.string()))


def dimensions(packed: Sequence[int]) -> list[str]:
    """Grids or blocks as ``XxYxZ``, from integers made by :func:`pack_dimensions`."""
    return [f"{value & 0x7FFFFFFF}x{value >> 31 & 0xFFFF}x{value >> 47 & 0xFFFF}" for value in packed]


def pack_dimensions(x: Ints, y: Ints, z: Ints) -> Ints:
    """The dimensions of a grid or block in one integer: CUDA allows 2^31 - 1, 2^16 - 1 and 2^16 - 1."""
    return x | y << 31 | z << 47


def process_id(serialized: int) -> int:
    """The process id in a globalPid or globalTid."""
    return serialized >> ID_BITS & ID_MASK


def process_ids(serialized: pa.Array) -> pa.Array:
    """Process ids from globalPid or globalTid."""
    import pyarrow.compute as pc

    return pc.bit_wise_and(pc.shift_right(serialized, ID_BITS), ID_MASK).cast("int32")


def int32(values: pa.Array) -> pa.Array:
    """Integers that ought to fit; the low 32 bits of those that do not."""
    import pyarrow.compute as pc

    return pc.cast(values, "int32", safe=False)


def numbers(values: pa.Array, missing: int = 0) -> Ints:
    """Integers as a NumPy array, ``missing`` in place of null."""
    filled = values.fill_null(missing) if values.null_count else values
    found: Ints = filled.to_numpy(zero_copy_only=False)
    return found


class Devices:
    """CUDA device ordinals, which each process counts for itself, to GPUs as the trace counts them."""

    def __init__(self, export: Export) -> None:
        known = export.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        self._gpus: dict[tuple[int, int], int] = {
            (pid, ordinal): gpu for pid, ordinal, gpu in known if None not in (pid, ordinal, gpu)
        }

    def gpu(self, process: int, ordinal: int | None) -> int | None:
        """The GPU of an ordinal; the ordinal itself where the trace does not say."""
        return ordinal if ordinal is None else self._gpus.get((process, ordinal), ordinal)

    def gpus(self, processes: pa.Array, ordinals: pa.Array) -> pa.Array:
        """The GPU (int32) of each process id and ordinal."""
        import pyarrow as pa

        moved = {key: gpu for key, gpu in self._gpus.items() if key[1] != gpu}
        pids, here = numbers(processes), numbers(ordinals)
        found = here.copy()
        for (pid, ordinal), gpu in moved.items():
            found[(pids == pid) & (here == ordinal)] = gpu
        return int32(pa.array(found, mask=ordinals.is_null().to_numpy(zero_copy_only=False)))
