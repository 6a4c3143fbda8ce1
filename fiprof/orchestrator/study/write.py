"""``results/*.json`` of a study, from its complete runs; they can be made again at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import fiprof
from fiprof.files import file_errors
from fiprof.model import results
from fiprof.model.manifest import CaseEntry, Manifest
from fiprof.model.results import Cell, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.orchestrator.study.definition import Definition
from fiprof.orchestrator.study.folder import RESULTS, StudyFolder, mixed
from fiprof.workloads.case import short_name

ENVIRONMENT = "environment_info.json"


def write_results(definition: Definition, folder: StudyFolder, entries: Mapping[str, CaseEntry]) -> EnvironmentInfo:
    """Write ``<workload>.json`` of each workload with a cell that was measured, skipped or failed, and
    ``environment_info.json``, which is returned.

    entries: case id -> the cell with its cost, of the whole matrix.
    Raises FiprofError for a run whose tables cannot be read, or files that cannot be written.
    """
    from fiprof.orchestrator.parse import parse_all

    runs = folder.runs()
    for name in runs:
        if not Run(folder.path / name).parsed:
            parse_all(folder.path / name)
    cells = _cells(folder, runs, entries)
    with file_errors(folder.path):
        (folder.path / RESULTS).mkdir(exist_ok=True)
        for workload in definition.workloads:
            found = [cells[case.id] for case in definition.cells if case.workload == workload and case.id in cells]
            if found:
                name = short_name(workload)
                content = KernelResults(name, definition.name, found, fiprof.__version__)
                results.write(folder.path / RESULTS / f"{name}.json", content)
        info = _environment(definition, folder, runs, cells)
        results.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def profiled_kernels(definition: Definition, folder: StudyFolder) -> list[str]:
    """Full names of the kernels in the results."""
    files = [folder.path / RESULTS / f"{short_name(workload)}.json" for workload in definition.workloads]
    found = [results.read(file, KernelResults) for file in files if file.exists()]
    return sorted({kernel.kernel_full for each in found for cell in each.cells for kernel in cell.kernels})


def _cells(folder: StudyFolder, runs: Mapping[str, Manifest], entries: Mapping[str, CaseEntry]) -> dict[str, Cell]:
    """Case id -> its cell, of those that were measured, skipped or failed."""
    from fiprof.analysis.cells import cells, unmeasured

    why = {**folder.manifest.skipped, **{case: f"failed: {text}" for case, text in folder.manifest.failed.items()}}
    found = {case: unmeasured(entries[case], text) for case, text in why.items() if case in entries}
    for name in runs:
        found |= {cell.case: cell for cell in cells(Run(folder.path / name)) if cell.case in entries}
    return found


def _environment(
    definition: Definition, folder: StudyFolder, runs: Mapping[str, Manifest], cells: Mapping[str, Cell]
) -> EnvironmentInfo:
    manifest = folder.manifest
    missing = Counter(short_name(case.workload) for case in definition.cells if case.id not in cells)
    status = "complete"
    if missing:
        status = "incomplete: not measured yet are " + ", ".join(f"{n} {name} cells" for name, n in missing.items())
    skipped = [cell for cell in cells.values() if cell.skipped]
    return EnvironmentInfo(
        study=definition.name,
        title=definition.title,
        started=manifest.sittings[0].started if manifest.sittings else "",
        duration_s=round(sum(sitting.duration_s - sitting.jit_s for sitting in manifest.sittings), 1),
        status=status,
        cells=len(cells) - len(skipped),
        skipped=len(skipped),
        runs=list(runs),
        settings={"quick": manifest.quick, **manifest.settings},
        environment=next((run.environment for run in runs.values()), {}),
        warnings=[
            *mixed(run.environment for run in runs.values()),
            *(f"{cell.case}: {cell.skipped}" for cell in skipped),
            *(f"{name}: {warning}" for name, run in runs.items() for warning in run.warnings),
        ],
        fiprof=fiprof.__version__,
    )
