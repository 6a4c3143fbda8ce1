"""fiprof: GPU kernels under Nsight Systems and Nsight Compute, archived and read."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from fiprof.analysis.across import Traces
    from fiprof.orchestrator.study import Definition
    from fiprof.reports.notebook import OpenedRun
    from fiprof.workloads.nvtx import Range

__version__ = "0.1.0"


def open(run: str) -> OpenedRun:  # noqa: A001
    """A run of the archive, for Python: ``fiprof.open("latest").frame("launches")`` is a DataFrame, and
    ``fiprof.open("latest").roofline()`` a chart.

    run: a path, a name, the beginning of one, or ``latest``. Its tables are made if it has none yet.
    """
    from fiprof.files import archive_folder
    from fiprof.orchestrator.parse import with_tables
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.notebook import OpenedRun

    folder = Archive(archive_folder()).find(run)
    at, problems = with_tables(folder)
    for problem in problems:
        raise problem
    return OpenedRun.of(folder, at)


def runs(
    kernel: str = "",
    *,
    where: str | Sequence[str] = (),
    gpu: str = "",
    since: str = "",
    metric: str | Sequence[str] = (),
    tag: str | Sequence[str] = (),
    status: str | None = None,
    sort: str = "",
    limit: int | None = None,
    everywhere: bool = False,
    artifacts: str | None = None,
    catalog: str | None = None,
) -> pd.DataFrame:
    """The runs of the archive as a DataFrame, a row a run; with ``metric`` a row a kernel or case.

    ``fiprof.runs("decode", where="batch=128", since="30d", metric="dram_share")``: each argument is what the option of
    its name takes in ``fiprof runs``, several as a list. Raises FiprofError.
    """
    from fiprof.files import archive_folder
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.runs import document

    def as_list(words: str | Sequence[str]) -> Sequence[str]:
        return (words,) if isinstance(words, str) else words

    query = question(
        kernel=kernel,
        where=as_list(where),
        gpu=gpu,
        since_=since,
        metrics=as_list(metric),
        tags=as_list(tag),
        status=status,
        sort=sort,
        limit=limit,
        everywhere=everywhere,
    )
    return document(index.answer(Archive(archive_folder(artifacts)), query, catalog), query).data.frame()


def scan(where: str) -> Traces:
    """The traces of an archive, a glob of run folders or archives, or a URL, to ask across them:
    ``fiprof.scan("artifacts").kernels("host")`` is a DataFrame, and so are ``idle``, ``steps``, ``ranks`` and
    ``outliers``.

    Raises FiprofError where there is no run.
    """
    from fiprof.analysis.across import scan

    return scan(where, lambda folder: open(str(folder)))


def study(name: str, *, quick: bool = False) -> Definition:
    """A study, for Python: ``fiprof.study("flashinfer").run(on=executor)`` measures it by any executor as
    ``concurrent.futures`` has them, a batch a call, and returns its results.

    name, quick: as ``fiprof study`` takes them. Raises FiprofError.
    """
    from fiprof.orchestrator.study import load

    return load(name, quick=quick)


def range(name: str) -> Range:  # noqa: A001
    """Marks a phase of your own program: ``with fiprof.range("decode"):`` or ``@fiprof.range("prefill")``.

    An NVTX range in the domain ``fiprof`` on the calling thread; does nothing where the package nvtx is not installed.
    """
    from fiprof.workloads.nvtx import Range

    return Range(name)
