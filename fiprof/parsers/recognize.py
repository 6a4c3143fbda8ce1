"""Which file of nsys or ncu a file is, by what stands in it and never by its name; who wrote it, and on which GPU."""

import contextlib
import json
import mmap
import os
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.manifest import FileKind
from fiprof.parsers.names import as_utf8
from fiprof.text import csv_rows

HEAD_BYTES = 4 << 20  # looked at; a program may print much before ncu prints its page
NSYS_MAGIC, NCU_MAGIC, SQLITE_MAGIC = b"NVIDIA Tegra Profiler Report", b"NVR\0", b"SQLite format 3\0"
LOG_REMEDY = "export it again; or make one whole of what there is: sqlite3 FILE 'VACUUM INTO \"whole.sqlite\"'"
REMEDY = (
    "fiprof imports .nsys-rep, its SQLite (nsys export --type sqlite), .ncu-rep and its CSV pages"
    " (ncu --import REPORT --csv --page raw)"
)
_DETAILS = re.compile(rb'^"?ID"?,[^\n]*"?Metric Name"?,[^\n]*"?Metric Value"?', re.MULTILINE)
RAW_PAGE = re.compile(rb'^"?ID"?,[^\n]*"?Kernel Name"?[,\r\n]', re.MULTILINE)
_SOURCE = re.compile(rb'^"?Kernel Name"?,[^\n]*\n+(?:[^\n]*\n){0,4}?"?Address"?,"?Source"?', re.MULTILINE)
_TRANSPOSED = re.compile(rb'^"?\w+__[\w.]+(?: \[[^\]\n]*\])?"?,', re.MULTILINE)
_PAGES: tuple[tuple[re.Pattern[bytes], FileKind], ...] = (
    (_DETAILS, "ncu-details"),
    (RAW_PAGE, "ncu-raw"),
    (_SOURCE, "ncu-source"),
    (_TRANSPOSED, "ncu-raw"),
)
OTHERS = csv_rows(Path(__file__).with_name("others.csv")).values()
"""What a file begins with or contains (a regular expression), what it is then, and what to do; in this order."""
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
    "name": ("device__attribute_display_name", "text"),
    "multiprocessors": ("device__attribute_multiprocessor_count", "value"),
    "l2_bytes": ("device__attribute_l2_cache_size", "value"),
}
"""Field of the environment's GPU -> ncu's metric, and the column that has it."""


def recognize(path: Path) -> FileKind:
    """The kind of a file. Raises FiprofError for one that cannot be read, is empty, or is of another tool."""
    try:
        if path.is_dir():
            raise FiprofError(f"{path} is a folder", "name the files in it that are to be imported", exit_code=2)
        if not path.exists():
            raise FiprofError(f"there is no file {path}", REMEDY, exit_code=2)
        if not path.is_file():
            raise FiprofError(f"{path} is no regular file", REMEDY)
        head = _head(path, HEAD_BYTES)
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}") from error
    if not head.strip():
        raise FiprofError(f"{path} is empty", REMEDY)
    if head.startswith(NSYS_MAGIC):
        return "nsys-rep"
    if head.startswith(NCU_MAGIC):
        return "ncu-rep"
    if head.startswith(SQLITE_MAGIC):
        if log := unwritten(path):
            raise FiprofError(f"{path} is not whole without {log.name}, which lies beside it", LOG_REMEDY)
        if (size := path.stat().st_size) > (expected := database_bytes(path) or size):
            raise FiprofError(f"{path} has {size:,} bytes, its database {expected:,}: it is unfinished", LOG_REMEDY)
        try:
            with contextlib.closing(connect(path)) as connection:
                names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except (sqlite3.Error, UnicodeError):
            return "nsys-sqlite"  # a damaged one is left to its reader
        if "StringIds" not in names:
            some = json.dumps(", ".join(sorted(names)[:3]), ensure_ascii=True)[1:-1]
            what = f"{path} is an SQLite file of another program than nsys: it has no table StringIds"
            raise FiprofError(what + (f", but {some}" if names else ""), REMEDY)
        return "nsys-sqlite"
    text = as_utf8(head)
    for pattern, kind in _PAGES:
        if pattern.search(text):
            return kind
    for other in OTHERS:
        if any(re.search(other["pattern"].encode(), each, re.MULTILINE) for each in (head, text)):
            raise FiprofError(f"{path} is {other['what']}", other["remedy"])
    if text.lstrip()[:1] in (b"{", b"["):
        what = "a Chrome trace, as of torch.profiler" if b'"traceEvents"' in text else "JSON"
        raise FiprofError(f"{path} is {what}, which fiprof does not import", REMEDY)
    raise FiprofError(f"{path} is no file of nsys or ncu that fiprof knows", REMEDY)


def _head(path: Path, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)


def unwritten(path: Path) -> Path | None:
    """The log beside an SQLite file with changes that are to be made in it, or taken back; None for none."""
    logs = (Path(f"{path.resolve()}-{kind}") for kind in ("journal", "wal"))
    # A journal that was ended in place begins with zeros.
    return next((log for log in logs if log.exists() and _head(log, 1).strip(b"\0")), None)


def connect(path: Path) -> sqlite3.Connection:
    """An SQLite file with its log, open for reading. Raises FiprofError for a write that broke off, sqlite3.Error."""
    log = unwritten(path)
    if log and log.name.endswith("-journal"):
        raise FiprofError(f"{path} was not written to its end: {log.name} lies beside it", LOG_REMEDY)
    logs = _head(path, 20)[18:] == b"\2\2"
    # One that would begin a log cannot be opened where nothing may be written beside it.
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{'immutable=1' if logs and not log else 'mode=ro'}"
    connection = sqlite3.connect(uri, uri=True, timeout=1)
    # Nothing in it is to act.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def database_bytes(path: Path) -> int | None:
    """How large an SQLite file is by its header; None where that does not say. Raises OSError."""
    header = _head(path, 100)
    if len(header) < 100 or not header.startswith(SQLITE_MAGIC) or header[24:28] != header[92:96]:
        return None
    page_bytes = int.from_bytes(header[16:18])
    return int.from_bytes(header[28:32]) * (65536 if page_bytes == 1 else page_bytes) or None


def tool_version(path: Path, kind: FileKind) -> str | None:
    """The version of the tool that wrote a file; None where it does not say, as pages of ncu do."""
    if kind == "nsys-sqlite":
        from fiprof.parsers.nsys_export import Export

        with Export(path) as export:
            return export.about.get("EXPORT_PRODUCT_VERSION") or None
    if kind not in _VERSIONS:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        match = _VERSIONS[kind].search(data)
        # Its groups lie in the file.
        return ".".join(part.decode() for part in match.groups()) if match else None


def traced_gpus(path: Path) -> dict[int, dict[str, Any]]:
    """The GPUs that an export lists, by their number, with the fields of the environment's GPU."""
    from fiprof.parsers.nsys_export import Export

    with Export(path) as export:
        rows = export.rows("TARGET_INFO_GPU", "id", "computeMajor", "computeMinor", *_GPU.values())
    return {
        number: {
            **dict(zip(_GPU, fields, strict=True)),
            "compute_capability": None if None in (major, minor) else f"{major}.{minor}",
        }
        for number, major, minor, *fields in rows
    }


def profiled_gpu(folder: Path) -> dict[str, Any]:
    """The GPU of ncu's launches, from the tables in a folder; empty where they do not say, or differ."""
    import pyarrow.compute as pc

    metrics = tables.read(folder, "metrics", ["metric", "value", "text"])
    of = {
        name: pc.unique(metrics.filter(pc.equal(metrics["metric"], metric))[column].combine_chunks()).to_pylist()
        for name, (metric, column) in _ATTRIBUTES.items()
    }
    gpu = {name: values[0] for name, values in of.items() if len(values) == 1}
    capabilities = tables.read(folder, "launches", ["cc"])["cc"].unique().to_pylist()
    return {
        **{name: value if isinstance(value, str) else int(value) for name, value in gpu.items()},
        **({"compute_capability": capabilities[0]} if len(capabilities) == 1 and capabilities[0] else {}),
    }
