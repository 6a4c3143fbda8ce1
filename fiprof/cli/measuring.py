"""``--measure`` of ``fiprof compare``: two sides from the command line, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiprof.cli import options
from fiprof.cli.commands.collect import CollectCommand, choose_cases, conclude, print_commands

if TYPE_CHECKING:
    from pathlib import Path

    from fiprof.model.settings import Setting
    from fiprof.orchestrator.archive import Archive
    from fiprof.orchestrator.compare.request import CompareRequest
    from fiprof.orchestrator.under_way import Result
    from fiprof.reports.view import Format
    from fiprof.workloads.case import Case


class CompareCommand(CollectCommand):
    """The settings of a comparison, and the parameters of the workloads, as options."""

    @property
    def measurement(self) -> tuple[Setting, ...]:
        from fiprof.model.settings import CompareSettings, settings_of

        return settings_of(CompareSettings)


def request_of(
    a: str, b: str, kernels: str | None, workloads: tuple[str, ...], words: dict[str, Any]
) -> CompareRequest:
    """What the command line asks for. words: the settings, and the parameters of the workloads.

    Raises FiprofError (exit status 2) for sides that are none or do not go together.
    """
    from fiprof.orchestrator.compare.request import CompareRequest, pairs_of
    from fiprof.orchestrator.compare.sides import parse_side

    sides = parse_side(a), parse_side(b)
    own, cases = settings_and_cases(kernels, workloads, words)
    return CompareRequest(a=sides[0], b=sides[1], pairs=pairs_of(*sides, cases), **own)


def settings_and_cases(
    kernels: str | None, workloads: tuple[str, ...], words: dict[str, Any]
) -> tuple[dict[str, Any], list[Case]]:
    """The settings of a comparison by name, and the cases that are named. words: as for :func:`request_of`."""
    from fiprof.model.settings import CompareSettings, settings_of

    own = {each.name: words.pop(each.name) for each in settings_of(CompareSettings)}
    names = [*options.split(kernels or ""), *workloads]
    params = {name: word for name, word in words.items() if word is not None}
    return own, choose_cases(names, params) if names or params else []


def dry_run(request: CompareRequest, archive: Archive) -> None:
    """Print the processes in the order of time; nothing is started."""
    from pathlib import Path

    from fiprof.orchestrator.compare.commands import Commands

    path = archive.root / f"DATE-{request.label}"
    print_commands(Commands(request, path, Path("SCRATCH"), {"A": None, "B": None}).all())


def measure(request: CompareRequest, archive: Archive, *, wait: bool, quiet: bool) -> Result:
    """Measure; the progress goes to standard error. Raises as ``orchestrator.compare.run.compare``."""
    from fiprof.cli.progress import supervised
    from fiprof.orchestrator.compare.run import compare

    with supervised(quiet=quiet) as (progress, supervisor):
        return compare(request, archive, progress, supervisor, wait=wait)


def show(result: Result, format_: Format) -> None:
    """Print what was measured, and where it lies. Raises FiprofError where it is not complete."""
    if result.problem is None:
        show_run(result.path, format_)
    conclude(result, ("fiprof compare",), to_stderr=True)


def show_run(folder: Path, format_: Format) -> None:
    """Print an archived comparison. Raises FiprofError where a run is none."""
    from fiprof.analysis.comparison.measured import read_comparison
    from fiprof.errors import FiprofError
    from fiprof.model.manifest import read_manifest
    from fiprof.reports.measured import document

    manifest = read_manifest(folder)
    if manifest.kind != "comparison":
        raise FiprofError(
            f"{folder} is one run, and no comparison", "fiprof compare RUN_A RUN_B, or --measure A B", exit_code=2
        )
    options.show(document(read_comparison(folder), manifest.cases), format_)
