"""``results/*.json`` of a study, from its complete runs; they can be made again at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import fiprof
from fiprof import confined
from fiprof.files import file_errors
from fiprof.model import results
from fiprof.model.manifest import CaseEntry, Manifest
from fiprof.model.results import ENVIRONMENT, RESULTS, CaseResult, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.orchestrator.study.definition import Definition
from fiprof.orchestrator.study.folder import StudyFolder, mixed
from fiprof.workloads.case import short_name


def write_results(definition: Definition, folder: StudyFolder, entries: Mapping[str, CaseEntry]) -> EnvironmentInfo:
    """Write ``<workload>.json`` of each workload with a case that was measured, skipped or failed, and
    ``environment_info.json``, which is returned.

    entries: case id -> the case with its cost, of the whole matrix.
    Raises FiprofError for a run whose tables cannot be read, or files that cannot be written.
    """
    from fiprof.orchestrator.parse import parse_all, whole

    runs = folder.runs()
    for name in runs:
        if not whole(folder.path / name):
            parse_all(folder.path / name)
    cases = _cases(folder, runs, entries)
    with file_errors(folder.path):
        confined.make_folder(folder.path, RESULTS)
        for workload in definition.workloads:
            found = [cases[case.id] for case in definition.cases if case.workload == workload and case.id in cases]
            if found:
                name = short_name(workload)
                content = KernelResults(name, definition.name, found, fiprof.__version__)
                results.write(folder.path / RESULTS / f"{name}.json", content)
        info = _environment(definition, folder, runs, cases)
        results.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def profiled_kernels(definition: Definition, folder: StudyFolder) -> list[str]:
    """Full names of the kernels in the results."""
    files = [folder.path / RESULTS / f"{short_name(workload)}.json" for workload in definition.workloads]
    found = [results.read(file, KernelResults) for file in files if file.exists()]
    return sorted({kernel.kernel_full for each in found for case in each.cases for kernel in case.kernels})


def _cases(
    folder: StudyFolder, runs: Mapping[str, Manifest], entries: Mapping[str, CaseEntry]
) -> dict[str, CaseResult]:
    """Case id -> its case, of those that were measured, skipped or failed."""
    from fiprof.analysis.case_results import case_results, unmeasured

    why = {**folder.manifest.skipped, **{case: f"failed: {text}" for case, text in folder.manifest.failed.items()}}
    found = {case: unmeasured(entries[case], text) for case, text in why.items() if case in entries}
    for name in runs:
        found |= {case.id: case for case in case_results(Run(folder.path / name)) if case.id in entries}
    return found


def _environment(
    definition: Definition, folder: StudyFolder, runs: Mapping[str, Manifest], cases: Mapping[str, CaseResult]
) -> EnvironmentInfo:
    manifest = folder.manifest
    missing = Counter(short_name(case.workload) for case in definition.cases if case.id not in cases)
    skipped = [case for case in cases.values() if case.skipped]
    return EnvironmentInfo(
        study=definition.name,
        title=definition.title,
        started=manifest.sessions[0].started if manifest.sessions else "",
        duration_s=round(sum(session.duration_s - session.extras_s for session in manifest.sessions), 1),
        status="incomplete" if missing else "complete",
        missing=dict(missing),
        cases=len(cases) - len(skipped),
        skipped=len(skipped),
        workloads=list(dict.fromkeys(short_name(case.workload) for case in definition.cases if case.id in cases)),
        runs=list(runs),
        settings={"quick": manifest.quick, **manifest.settings},
        environment=next((run.environment for run in runs.values()), {}),
        mixed=mixed(run.environment for run in runs.values()),
        run_warnings={name: list(run.warnings) for name, run in runs.items() if run.warnings},
        fiprof=fiprof.__version__,
    )
