"""fiprof: GPU kernels under Nsight Systems and Nsight Compute, archived and read."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fiprof.reports.notebook import OpenedRun
    from fiprof.workloads.nvtx import Range

__version__ = "0.1.0"


def open(run: str) -> OpenedRun:  # noqa: A001
    """A run of the archive, for Python: ``fiprof.open("latest").frame("launches")`` is a DataFrame, and
    ``fiprof.open("latest").roofline()`` a chart.

    run: a path, a name, the beginning of one, or ``latest``. Its tables are made if it has none yet.
    Raises FiprofError where there is no such run or its raw files cannot be read.
    """
    import os
    from pathlib import Path

    from fiprof.files import ARCHIVE_FOLDER, ARCHIVE_VARIABLE
    from fiprof.orchestrator.archive import Archive
    from fiprof.orchestrator.parse import has_raw_files, parse_all, whole
    from fiprof.reports.notebook import OpenedRun

    found = OpenedRun(Archive(Path(os.environ.get(ARCHIVE_VARIABLE) or ARCHIVE_FOLDER)).find(run))
    if not whole(found.path) and has_raw_files(found.path):
        for problem in parse_all(found.path).problems:
            raise problem
    return found


def range(name: str) -> Range:  # noqa: A001
    """Marks a phase of your own program: ``with fiprof.range("decode"):`` or ``@fiprof.range("prefill")``.

    An NVTX range in the domain ``fiprof`` on the calling thread; does nothing where the package nvtx is not installed.
    """
    from fiprof.workloads.nvtx import Range

    return Range(name)
