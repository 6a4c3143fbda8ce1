"""Raw files of a run folder -> its tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import file_errors
from fiprof.model import packing
from fiprof.model.layout import NCU_PAGES, NCU_REPORT, NSYS_SQLITE
from fiprof.workloads.nvtx import DOMAIN, MEASURE

if TYPE_CHECKING:
    from fiprof.parsers.ncu import NcuSummary
    from fiprof.parsers.nsys import NsysSummary


@dataclass(frozen=True)
class Parsed:
    """What :func:`parse_all` made."""

    tables: tuple[str, ...]
    """Names of the tables."""
    missing: tuple[str, ...]
    """What the tools' output did not have, a sentence each."""
    problems: tuple[FiprofError, ...] = field(default=())
    """A tool whose output could not be read; the other's tables are made all the same."""


def parse_nsys(folder: Path) -> NsysSummary:
    """nsys/trace.sqlite -> kernels, ranges, api, copies, memory, gpu_metrics, diagnostics."""
    from fiprof.parsers import nsys

    with packing.unpacked(folder, NSYS_SQLITE) as sqlite:
        return nsys.parse(sqlite, _tables(folder))


@dataclass(frozen=True)
class TraceContents:
    """What a trace holds of what a run is about, in rows."""

    kernels: int
    kernels_once: int
    """Those launched in the first iteration of the cases' measure ranges."""
    fiprof_ranges: int
    """NVTX ranges of the domain fiprof."""


def trace_contents(folder: Path) -> TraceContents:
    """Count in the tables that :func:`parse_nsys` made."""
    import pyarrow.compute as pc

    from fiprof.model import tables

    kernels = tables.read(_tables(folder), "kernels", ["phase", "iteration"])
    phases = kernels["phase"].cast("string")
    first = pc.and_(pc.equal(phases, MEASURE), pc.equal(kernels["iteration"], 0))
    domains = tables.read(_tables(folder), "ranges", ["domain"])["domain"].cast("string")
    return TraceContents(
        kernels=len(phases),
        kernels_once=pc.sum(first).as_py() or 0,
        fiprof_ranges=pc.sum(pc.equal(domains, DOMAIN)).as_py() or 0,
    )


def parse_ncu(folder: Path) -> NcuSummary:
    """ncu/*.csv, or ncu/profile.ncu-rep where the raw page is missing -> launches, metrics, stalls, rules, hotspots."""
    from fiprof.parsers import ncu

    if not packing.exists(folder, NCU_PAGES["raw"]):
        with packing.unpacked(folder, NCU_REPORT) as report:
            return ncu.parse_report(report, _tables(folder))
    with contextlib.ExitStack() as files:
        pages = {page: files.enter_context(packing.unpacked(folder, path)) for page, path in NCU_PAGES.items()}
        optional = {page: pages[page] if pages[page].exists() else None for page in ("details", "source")}
        return ncu.parse(pages["raw"], _tables(folder), **optional)


def parse_checks(folder: Path) -> None:
    """The run's checks on its own numbers -> checks."""
    from fiprof.analysis import checks
    from fiprof.model import tables
    from fiprof.model.run import Run

    tables.write(_tables(folder), "checks", checks.compute(Run(folder)))


def parse_all(folder: Path) -> Parsed:
    """Everything that the run has raw files of.

    Raises FiprofError when it has none; one tool's unreadable output is a problem in the result.
    """
    missing: list[str] = []
    problems: list[FiprofError] = []
    sources: list[Callable[[Path], NsysSummary | NcuSummary]] = []
    if packing.exists(folder, NSYS_SQLITE):
        sources.append(parse_nsys)
    if packing.exists(folder, NCU_PAGES["raw"]) or packing.exists(folder, NCU_REPORT):
        sources.append(parse_ncu)
    if not has_raw_files(folder):
        raise FiprofError(
            f"{folder} has no raw files to parse: neither {NSYS_SQLITE} nor {NCU_PAGES['raw']}",
            "its run.json says how far the run came",
        )
    for source in sources:
        try:
            missing += source(folder).missing
        except FiprofError as error:
            problems.append(error)
    try:
        parse_checks(folder)
    except FiprofError as error:
        problems.append(error)
    made = sorted(path.stem for path in _tables(folder).glob("*.parquet"))
    return Parsed(tuple(made), tuple(missing), tuple(problems))


def has_raw_files(folder: Path) -> bool:
    """Whether the run has anything to parse."""
    return any(packing.exists(folder, path) for path in (NSYS_SQLITE, NCU_PAGES["raw"], NCU_REPORT))


def _tables(folder: Path) -> Path:
    with file_errors(folder / "tables"):
        return confined.make_folder(folder, "tables")
