"""Many traces at once. Of each a small Parquet file, its digest, has what its kernels, idle causes, steps and GPUs came
to in its steady part; what is asked across traces is asked of these files, wherever they lie.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fiprof import files
from fiprof.analysis.frames import columns
from fiprof.analysis.steady import steady
from fiprof.analysis.top import top
from fiprof.errors import FiprofError
from fiprof.model import layout
from fiprof.model.manifest import is_run
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import sums_by_key
from fiprof.text import detailed_kernel

if TYPE_CHECKING:
    import pandas as pd

WORDS = ("run", "host", "gpu", "uuid", "kind", "name", "detail")
SCHEMA = pa.schema([
    *((name, pa.string()) for name in WORDS), ("rank", pa.int32()), ("device", pa.int32()), ("count", pa.int64()),
    ("total_ns", pa.int64()), ("window_ns", pa.int64()), ("median_us", pa.float64()), ("p90_us", pa.float64()),
])  # fmt: skip
"""A row is a kernel, an idle cause, the steps, or the busy time (``kind``) of a GPU in a trace; ``window_ns``: its part
that the row's time is of, ``count``: executions, steps."""
KINDS = {"kernels": "kernel", "idle": "idle", "steps": "step", "ranks": "rank"}
"""What is asked for -> the rows that answer."""
OUTLYING, NOISES = 0.05, 5.0
"""A host is named where its median is off the hosts' by this share, and by so many median deviations of theirs."""
FEWEST_HOSTS = 3
NAMES = {"kernels": "kernel", "idle": "cause", "steps": "step", "ranks": "busy"}
COLUMNS = columns("traces")
OUTLIERS = columns("outliers")


def digest(run: Run) -> bytes:
    """A run's digest, made. Raises FiprofError where the run has no trace."""
    ranking, rows = top(run, within_steady=True), []
    ranks = {rank.device: rank for rank in reversed(ranks_of(run).all)}
    window = {each.device: each.window_ns for each in ranking.activities}
    identity = {"run": run.path.name, "host": run.environment("host", "name"), "gpu": run.environment("gpu", "name")}
    whose = ("host", "gpu", "uuid", "rank")

    def add(kind: str, device: int | None, name: str | None, detail: str | None, **numbers: Any) -> None:
        rank = ranks.get(device)
        where = {key: getattr(rank, key) for key in whose if getattr(rank, key, None) is not None}
        of = {"device": device, "kind": kind, "name": name, "detail": detail, "window_ns": window.get(device or 0)}
        rows.append(identity | where | of | numbers)

    for row in ranking.kernels:
        shown = detailed_kernel(row["kernel"], row["kernel_full"])
        numbers = {key: row[key] for key in ("count", "total_ns", "median_us", "p90_us")}
        add("kernel", row["device"], shown, row["kernel_full"], **numbers)
    idle = (((row["device"], str(row["cause"]), row["call"]), row["total_ns"]) for row in ranking.idle)
    for (device, cause, call), ns in sums_by_key(idle).items():
        add("idle", device, cause, call, total_ns=ns)
    for each in ranking.activities:
        add("rank", each.device, "kernels", None, total_ns=each.kernels_ns)
        add("rank", each.device, "only copies", None, total_ns=each.only_copies_ns)
        add("rank", each.device, "idle", None, total_ns=each.idle_ns)
    for device, at in steady(run).items():
        if len(at.steps) > 1:
            lengths = np.diff(at.steps, append=at.ends[-1]) / 1e3
            numbers = {"median_us": float(np.median(lengths)), "p90_us": float(np.percentile(lengths, 90))}
            add("step", device, at.name, None, count=len(lengths), total_ns=int(lengths.sum() * 1e3), **numbers)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), sink := pa.BufferOutputStream(), compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _kept_digest(run: Run) -> bytes:
    """The digest beside a run's tables, made where there is none, and kept where it may be written."""
    place = run.tables_path.parent
    if files.exists(place, layout.DIGEST):
        return files.read_bytes(place, layout.DIGEST)
    content = digest(run)
    with contextlib.suppress(files.Unwritable):
        files.write_whole(place / layout.DIGEST, content)
    return content


@dataclass(frozen=True)
class Traces:
    """The digests of many traces; each question gives a DataFrame, the most time first."""

    rows: pd.DataFrame  # as SCHEMA has them
    missing: tuple[str, ...]  # runs without a digest, of which none could be made, and why

    def asked(self, table: str, *by: str) -> pd.DataFrame:
        """Time, share of the GPUs' time and medians of what KINDS has, or ``outliers``. by: host, run, rank or gpu, to
        split it by; ranks stand by host and rank where nothing else is asked for."""
        if table == "outliers":
            return self.outliers()
        by = by or (("host", "rank") if table == "ranks" else ())
        rows = self.rows[self.rows["kind"] == KINDS[table]]
        grouped = rows.groupby([*by, "name"], dropna=False, sort=False, observed=True)
        answer = grouped.agg(
            traces=("run", "nunique"), count=("count", "sum"), total_ms=("total_ns", "sum"),
            median_us=("median_us", "median"), p90_us=("p90_us", "median"),
        ).reset_index()  # fmt: skip
        # Each GPU of a trace once, whatever rows it has.
        gpus = self.rows.drop_duplicates(["run", "rank", "device"])
        if by:
            window = gpus.groupby(list(by), dropna=False, observed=True)["window_ns"].sum().rename("window")
            answer = answer.merge(window, left_on=list(by), right_index=True)
        else:
            answer["window"] = gpus["window_ns"].sum()
        answer["share"] = answer["total_ms"] / answer.pop("window")
        answer["total_ms"] /= 1e6
        order = [*by, "name", *(column.key for column in COLUMNS if answer[column.key].fillna(0).any())]
        return answer.sort_values("total_ms", ascending=False, kind="stable", ignore_index=True)[order]

    kernels, idle = partialmethod(asked, "kernels"), partialmethod(asked, "idle")
    steps, ranks = partialmethod(asked, "steps"), partialmethod(asked, "ranks")

    def outliers(self) -> pd.DataFrame:
        """Hosts on which a kernel or a step takes longer or shorter than on the others: rows of OUTLIERS."""
        timed = self.rows[self.rows["kind"].isin(("kernel", "step"))]
        each = timed.groupby(["kind", "name", "host"], dropna=False, observed=True).agg(
            median_us=("median_us", "median"), total_ns=("total_ns", "sum")
        )
        alike = each.groupby(level=["kind", "name"], dropna=False, observed=True)["median_us"]
        each["others_us"], each["hosts"] = alike.transform("median"), alike.transform("size")
        each["ratio"] = each["median_us"] / each["others_us"]
        off = (each["ratio"] - 1).abs()
        noise = off.groupby(level=["kind", "name"], dropna=False, observed=True).transform("median")
        each["lost_ms"] = each["total_ns"] * (1 - 1 / each["ratio"]) / 1e6
        outlying = each[(each["hosts"] >= FEWEST_HOSTS) & (off >= OUTLYING) & (off >= NOISES * noise)].reset_index()
        outlying = outlying.rename(columns={"kind": "what"}).sort_values("lost_ms", ascending=False, ignore_index=True)
        return outlying[[column.key for column in OUTLIERS]]


def scan(where: str, opened: Callable[[Path], Run]) -> Traces:
    """The digests of the runs in an archive, a folder, or a glob of run folders or archives, here or at a URL of
    fsspec's. Of runs here without one it is made now.

    opened: gives the run of a folder, with its tables. Raises FiprofError (exit status 2) where there is no run.
    """
    system, path = files.remote(where) if "://" in where else (None, where)
    pick = system.glob if system else glob.glob
    folders = sorted(
        os.path.dirname(name) for level in ("", "/*") for name in pick(f"{path}{level}/{layout.FILE_NAME}")
        if not os.path.basename(os.path.dirname(name)).startswith(".") and (system or is_run(os.path.dirname(name)))
    )  # fmt: skip
    if not folders:
        raise FiprofError(f"{where} holds no run", "fiprof import makes runs of traces", exit_code=2)
    contents = system.cat([f"{each}/{layout.DIGEST}" for each in folders], on_error="return") if system else {}
    tables, missing = [SCHEMA.empty_table()], []
    for folder in folders:
        try:
            of_run, content = Path(folder), contents.get(f"{folder}/{layout.DIGEST}")
            if not system:
                has_digest = files.exists(of_run, layout.DIGEST)
                content = files.read_bytes(of_run, layout.DIGEST) if has_digest else _kept_digest(opened(of_run))
            if not isinstance(content, bytes):
                raise FiprofError("it has no digest")
            # Not by a dataset: the files are so small that it takes twice as long to open them.
            table = pq.ParquetFile(pa.BufferReader(content)).read(SCHEMA.names, use_threads=False)
            tables.append(table.select(SCHEMA.names).cast(SCHEMA))
        except (FiprofError, OSError, KeyError, pa.ArrowException) as error:
            missing.append(f"{folder}: {error.message if isinstance(error, FiprofError) else error}")
    import pandas as pd

    whole = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
    return Traces(pa.concat_tables(tables).to_pandas(types_mapper=whole.get), tuple(missing))
