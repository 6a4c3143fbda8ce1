"""``fiprof study``: a declared matrix of cases, measured and written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import output
from fiprof.cli.options import SettingsCommand, archive_option, split, supervision_options
from fiprof.errors import FiprofError, Interrupted

if TYPE_CHECKING:
    from pathlib import Path

    from fiprof.orchestrator.run_folder import Archive
    from fiprof.orchestrator.study.definition import Definition
    from fiprof.orchestrator.study.runner import Where


@click.command(
    cls=SettingsCommand,
    settings=("gpu", "python"),
    short_help="Measure a whole matrix of cases, resumable.",
    epilog="Example: fiprof study flashinfer --quick --only decode --dry-run",
)
@click.argument("name", metavar="NAME")
@click.option("--quick", is_flag=True, help="With the study's quick settings: fewer launches, ncu's quick set.")
@click.option("--only", metavar="LIST", default="", help="Measure these workloads alone, or extras, e.g. jit.")
@click.option("--out", metavar="DIR", help="The study's folder [default: study-NAME in the archive, with -quick].")
@click.option("--results-only", is_flag=True, help="Measure nothing: write the results again from the study's runs.")
@click.option("--documents/--no-documents", default=True, show_default=True, help="Write reports/ from the results.")
@click.option("--dry-run", is_flag=True, help="List batches, cases and what does not fit, and start nothing.")
@supervision_options
@archive_option
def command(
    archive: Archive,
    name: str,
    quick: bool,
    only: str,
    out: str | None,
    gpu: int | None,
    wait: bool,
    python: str,
    results_only: bool,
    documents: bool,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Measure the cases of a study: NAME is one that fiprof brings (flashinfer), or a TOML file of yours.

    Started again after an interruption, it goes on where it was. The folder's path goes to standard output, progress
    to standard error.
    """
    from pathlib import Path

    from fiprof.cli.progress import supervised
    from fiprof.orchestrator.study import definition, runner

    study = definition.load(name, quick=quick)
    folder = Path(out) if out else archive.root / f"study-{study.name}{'-quick' if quick else ''}"
    words = split(only)
    where = runner.Where(python=python, gpu=gpu, wait=wait)
    if dry_run:
        return _dry_run(study, folder, words, where)
    if results_only:
        _write_results(name, folder)
    else:
        try:
            with supervised(quiet=quiet) as (progress, supervisor):
                runner.run_study(study, folder, where, progress, supervisor, only=words)
        except Interrupted as error:
            raise FiprofError(
                "interrupted", f"the same command goes on where it was: {folder}", exit_code=error.exit_code
            ) from error
    if documents:
        _write_documents(folder)
    return output.data(str(folder))


def _write_documents(folder: Path) -> None:
    """The documents, where this installation can make them: the results are there without."""
    from fiprof.reports import study

    try:
        study.documents(folder)
    except FiprofError as error:
        output.message(f"fiprof: no documents: {error}")


def _write_results(name: str, folder: Path) -> None:
    from fiprof.orchestrator.locks import folder_lock
    from fiprof.orchestrator.study import definition, runner
    from fiprof.orchestrator.study.folder import StudyFolder, read_study, write_results

    manifest = read_study(folder)
    study = definition.load(name, quick=manifest.quick)
    with folder_lock(folder):
        write_results(study, StudyFolder(folder, manifest), runner.entries(study))


def _dry_run(study: Definition, folder: Path, only: list[str], where: Where) -> None:
    from fiprof.orchestrator.study import runner
    from fiprof.orchestrator.study.definition import label
    from fiprof.orchestrator.study.folder import MANIFEST, open_folder
    from fiprof.orchestrator.tools import visible_gpu

    done = open_folder(folder, study).done() if (folder / MANIFEST).exists() else {}
    plan = runner.plan_session(study, only, done, visible_gpu(where.gpu))
    output.data(
        f"{study.title}: {plan.cases} cases to measure, {len(plan.done)} done, {len(plan.skipped)} do not fit; "
        f"{len(plan.batches)} batches, {3 * len(plan.batches)} processes on the GPU, into {folder}"
    )
    for number, batch in enumerate(plan.batches, 1):
        output.data(f"\nbatch {number}: {label(batch)}: one plain, one nsys, one ncu process")
        for case in batch:
            output.data(f"  {case.id}")
    for case_id, why in plan.skipped.items():
        output.data(f"\nskipped: {case_id}\n  {why}")
