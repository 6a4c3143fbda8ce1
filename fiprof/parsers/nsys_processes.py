"""The table ``processes``: who ran kernels on which GPU, and which rank of a job it is by its environment."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from fiprof.model import schemas, tables
from fiprof.parsers.nsys_columns import ID_BITS, ID_MASK, Devices, process_id
from fiprof.parsers.nsys_export import Export

NOTED = "FIPROF_PROCESSES"
"""Keeps in a scrubbed export what this table needs of those that go."""
CONTEXTS, STREAMS = "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM"
WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""The rank as torchrun, Open MPI, PMIx and MPICH give it to a process."""
VM_BITS, HARDWARE_BITS = 48, 56
"""Where vmId and hwId begin in a globalPid."""


@dataclass(frozen=True)
class Process:
    """What an export says of a process that used CUDA."""

    pid: int
    name: str | None
    host: str | None
    rank: int | None
    """By its environment; None where that is not known."""


def read_processes(export: Export) -> list[Process]:
    """The processes that used CUDA, by their ids."""
    if export.has(NOTED):
        return [Process(*row) for row in export.rows(NOTED, "pid", "name", "value", "rank") if row[0] is not None]
    names = {process_id(each or 0): name for each, name in export.rows("PROCESSES", "globalPid", "name")}
    target = dict(export.rows("TARGET_INFO_SYSTEM_ENV", "name", "value"))
    used = {pid for table in (CONTEXTS, STREAMS) for (pid,) in export.rows(table, "processId") if pid}
    ranks = _ranks(export)
    return [
        Process(pid, Path(names.get(pid) or "").name or None, target.get("Hostname"), ranks.get(pid))
        for pid in sorted(used)
    ]


def note(connection: sqlite3.Connection, found: list[Process]) -> None:
    """Keep the processes in the export."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {NOTED} (pid INTEGER, name TEXT, value TEXT, rank INTEGER)")
    connection.execute(f"DELETE FROM {NOTED}")
    connection.executemany(f"INSERT INTO {NOTED} VALUES (?, ?, ?, ?)", map(astuple, found))


def _ranks(export: Export) -> dict[int, int]:
    """Process -> its rank, where nsys wrote down the environments that tell.

    Of the program that nsys started it knows whose environment it is. Of its children's it does not: those of one
    job are given to the processes in the order of their GPUs, as launchers do.
    """
    workers = sorted((ordinal or 0, pid) for pid, ordinal in _workers(export))
    started = " ".join(
        value or "" for name, value in export.rows("META_DATA_CAPTURE", "name", "value") if "ENV" in name
    )
    if len(workers) == 1 and (rank := _variable(started, *VARIABLES)) is not None:
        return {workers[0][1]: rank}
    jobs = [(_variable(text, "LOCAL_RANK"), _variable(text, *VARIABLES)) for text in export.strings_with("LOCAL_RANK=")]
    ranks = sorted({(local, rank) for local, rank in jobs if local is not None and rank is not None})
    pids = [pid for _, pid in workers]
    if len(ranks) != len(pids) or len(set(pids)) != len(pids):
        return {}
    return {pid: rank for pid, (_, rank) in zip(pids, ranks, strict=True)}


def _variable(environment: str, *names: str) -> int | None:
    """The first of these variables that an environment has."""
    for name in names:
        if found := re.search(rf'(?:^|\s){name}="?(\d{{1,6}})(?:"|\s|$)', environment):
            return int(found[1])
    return None


def _workers(export: Export) -> Iterator[tuple[int, int | None]]:
    """(Process, CUDA device as it counts) of each that ran kernels. To look for all in millions of rows takes long."""
    contexts = set(export.rows(CONTEXTS, "hwId", "vmId", "processId", "deviceId"))
    if not contexts:
        pairs = {row for table in WORK for row in export.distinct(table, "globalPid", "deviceId")}
        yield from ((process_id(process), ordinal) for process, ordinal in sorted(pairs) if process is not None)
    for hardware, machine, pid, ordinal in sorted(each for each in contexts if None not in each):
        process = hardware << HARDWARE_BITS | machine << VM_BITS | (pid & ID_MASK) << ID_BITS
        if any(export.occurs(table, globalPid=process, deviceId=ordinal) for table in WORK):
            yield pid, ordinal


def write_processes(export: Export, folder: Path, session_start_ns: int | None) -> int:
    """Write the table ``processes``. Returns its rows."""
    import pyarrow as pa

    known = {process.pid: process for process in read_processes(export)}
    devices = Devices(export)
    gpus = {gpu: (name, uuid) for gpu, name, uuid in export.rows("TARGET_INFO_GPU", "id", "name", "uuid")}
    rows = []
    for pid, ordinal in sorted(_workers(export)):
        process, device = known.get(pid), devices.gpu(pid, ordinal)
        name, uuid = gpus.get(device, (None, None))
        rows.append(
            {
                "pid": pid,
                "process": process and process.name,
                "host": process and process.host,
                "device": device,
                "gpu": name,
                "uuid": uuid,
                "rank": process and process.rank,
                "session_start_ns": session_start_ns,
            }
        )
    tables.write(folder, "processes", pa.Table.from_pylist(rows, schemas.schema("processes")))
    return len(rows)
