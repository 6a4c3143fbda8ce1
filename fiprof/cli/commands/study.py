"""``fiprof study``: a declared matrix of cases, measured and written down."""

import click

from fiprof.cli import options, output
from fiprof.cli.progress import measuring
from fiprof.errors import FiprofError, Interrupted
from fiprof.orchestrator.run_folder import Archive


@options.command(
    "fiprof study flashinfer --quick --only decode --dry-run", options.SettingsCommand, settings=("gpu", "python")
)
@click.argument("name", metavar="NAME")
@click.option(
    "--on",
    metavar="WHERE",
    help="Who measures: local (every GPU here; local:2 takes two), slurm:partition=NAME,gpus=1,exclusive (options of "
    "sbatch; jobs=8 at a time), submitit-local, dask:tcp://HOST:PORT [default: this process, on one GPU].",
)
@click.option("--quick", is_flag=True, help="With the study's quick settings: fewer launches, ncu's quick set.")
@click.option("--only", metavar="LIST", default="", help="Measure these workloads alone, or extras, e.g. jit.")
@click.option("--out", metavar="DIR", help="The study's folder [default: study-NAME in the archive, with -quick].")
@click.option("--results-only", is_flag=True, help="Measure nothing: write the results again from the study's runs.")
@click.option("--documents/--no-documents", default=True, show_default=True, help="Write reports/ from the results.")
@click.option("--dry-run", is_flag=True, help="List batches, cases and what does not fit, and start nothing.")
@options.supervision_options
@options.archive_option
def command(
    archive: Archive,
    name: str,
    on: str | None,
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

    from fiprof.orchestrator import batches, executors, study
    from fiprof.orchestrator.locks import folder_lock
    from fiprof.orchestrator.tools import gpu_state, visible_gpu
    from fiprof.text import count

    definition = study.load(name, quick=quick)
    folder = Path(out) if out else definition.folder(archive.root)
    if on and gpu is not None:
        raise FiprofError("--on does not go with --gpu", "--on takes CUDA_VISIBLE_DEVICES", exit_code=2)
    if dry_run:
        done = study.measured(definition, folder)
        cases = definition.only(options.split(only))
        missing = [case for case in cases if case.id not in done]
        most, costs = definition.settings.batch_cases, study.entries(definition)
        workers = executors.workers_of(on)
        boards = workers.boards or max(-(-len(missing) // most), 1)
        state = gpu_state(visible_gpu(gpu)) if workers.here else {}
        skipped = batches.too_large((costs[case.id] for case in missing), state)
        dealt = batches.deal(missing, batches.groups(definition.cases, most if workers.alone else 0), boards, most)
        fitted = [fitting for batch in dealt if (fitting := [case for case in batch if case.id not in skipped])]
        output.data(
            f"{definition.title}: {count(len(missing) - len(skipped), 'case')} to measure, "
            f"{len(cases) - len(missing)} done, {len(skipped)} too large; "
            f"{count(len(fitted), 'batch', 'batches')}, {3 * len(fitted)} processes on "
            f"{'the GPU' if boards == 1 else count(boards, 'GPU')}, into {folder}"
        )
        for number, batch in enumerate(fitted, 1):
            output.data(f"\nbatch {number}: {study.label(batch)}: one plain, one nsys, one ncu process")
            for case in batch:
                output.data(f"  {case.id}")
        for case_id, why in skipped.items():
            output.data(f"\nskipped: {case_id}\n  {why}")
        return
    if results_only:
        manifest = study.read_study(folder)
        with folder_lock(folder):
            study.write_results(study.load(name, quick=manifest.quick), study.StudyFolder(folder, manifest))
    else:
        try:
            with measuring(Archive(folder), quiet=quiet, wait=wait) as bench:
                study.run_study(definition, bench, python=python, gpu=gpu, only=options.split(only), on=on)
        except Interrupted as error:
            remedy = f"the same command goes on where it was: {folder}"
            raise FiprofError("interrupted", remedy, exit_code=error.exit_code) from error
    if documents:
        from fiprof.reports.study import documents as write_documents

        try:
            write_documents(folder)
        except ModuleNotFoundError as error:
            raise FiprofError(f"no documents: {error.name} is missing", f"pip install {error.name}") from error
        except FiprofError as error:
            # The results are there without.
            output.message(f"fiprof: no documents: {error}")
    output.data(str(folder))
