"""Raw files of a run folder -> its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError
from fiprof.orchestrator.steps import NCU_PAGES, NCU_REPORT, NSYS_SQLITE

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

    return nsys.parse(folder / NSYS_SQLITE, _tables(folder))


def parse_ncu(folder: Path) -> NcuSummary:
    """ncu/*.csv, or ncu/profile.ncu-rep where the raw page is missing -> launches, metrics, stalls, rules, hotspots."""
    from fiprof.parsers import ncu

    raw, details, source = (folder / NCU_PAGES[page] for page in ("raw", "details", "source"))
    if not raw.exists():
        return ncu.parse_report(folder / NCU_REPORT, _tables(folder))
    return ncu.parse(
        raw,
        _tables(folder),
        details=details if details.exists() else None,
        source=source if source.exists() else None,
    )


def parse_checks(folder: Path) -> None:
    """The run's checks on its own numbers -> checks."""
    from fiprof.parsers import tables
    from fiprof.parsers.run import Run
    from fiprof.reports import checks

    tables.write(_tables(folder), "checks", checks.compute(Run(folder)))


def parse_all(folder: Path) -> Parsed:
    """Everything that the run has raw files of.

    Raises FiprofError when it has none; one tool's unreadable output is a problem in the result.
    """
    missing: list[str] = []
    problems: list[FiprofError] = []
    sources = []
    if (folder / NSYS_SQLITE).exists():
        sources.append(parse_nsys)
    if (folder / NCU_PAGES["raw"]).exists() or (folder / NCU_REPORT).exists():
        sources.append(parse_ncu)
    if not sources:
        raise FiprofError(
            f"{folder} has no raw files to parse: neither {NSYS_SQLITE} nor {NCU_PAGES['raw']}",
            "its run.json says how far the run came",
        )
    for source in sources:
        try:
            missing += source(folder).missing
        except FiprofError as error:
            problems.append(error)
    parse_checks(folder)
    made = sorted(path.stem for path in _tables(folder).glob("*.parquet"))
    return Parsed(tuple(made), tuple(missing), tuple(problems))


def _tables(folder: Path) -> Path:
    tables = folder / "tables"
    tables.mkdir(exist_ok=True)
    return tables
