"""``--measure`` of ``fiprof compare``: two sides from the command line, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiprof import interrupts
from fiprof.cli import options, output
from fiprof.cli.commands.collect import CollectCommand, choose_cases, conclude, print_commands

if TYPE_CHECKING:
    from pathlib import Path

    from fiprof.analysis.comparison.measured_result import MeasuredComparison
    from fiprof.analysis.comparison.runs import RunComparison
    from fiprof.model.settings import Setting
    from fiprof.orchestrator.archive import Archive
    from fiprof.orchestrator.compare.request import CompareRequest
    from fiprof.orchestrator.run_session import Result
    from fiprof.reports.pages.page import Page
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


def explain(request: CompareRequest, result: Result, archive: Archive, *, wait: bool, quiet: bool) -> None:
    """Profile both sides of what was measured. Raises as ``orchestrator.compare.explain.explain``, and where a side
    does not complete."""
    from fiprof.cli.progress import supervised
    from fiprof.orchestrator.compare.explain import explain

    with supervised(quiet=quiet) as (progress, supervisor):
        profiled = explain(request, result.path, archive, progress, supervisor, wait=wait)
    if profiled.problem is not None:
        conclude(profiled, (), to_stderr=True)


def show(result: Result, format_: Format, out: Path | None) -> None:
    """Print what was measured, and where it lies. Raises FiprofError where it is not complete."""
    interrupts.settle()
    if result.problem is None:
        show_run(result.path, format_, out)
    conclude(result, ("fiprof compare",), to_stderr=True)


def show_run(folder: Path, format_: Format, out: Path | None) -> None:
    """Print an archived comparison, and write its page. Raises FiprofError where a run is none."""
    from fiprof.analysis.comparison.measured_result import read_comparison
    from fiprof.errors import FiprofError
    from fiprof.model.manifest import read_manifest
    from fiprof.reports.compare_report import Explained
    from fiprof.reports.measured_table import chart, document

    manifest = read_manifest(folder)
    if manifest.kind != "comparison":
        raise FiprofError(
            f"{folder} is one run, and no comparison", "fiprof compare RUN_A RUN_B, or --measure A B", exit_code=2
        )
    found = read_comparison(folder)
    explained = Explained(
        found, document(found, manifest.cases), chart(found, manifest.cases), _explanation(found, folder)
    )
    if out is not None:
        write_page(explained.page(), out)
    options.show(explained.document(), format_)


def _explanation(found: MeasuredComparison, folder: Path) -> RunComparison | None:
    """What the runs beside the comparison say that profiled each side; None without them."""
    from fiprof.analysis.comparison.runs import ArchivedSide, compare
    from fiprof.orchestrator.archive import Archive

    if found.explained is None:
        return None
    beside = Archive(folder.parent)
    if missing := [name for name in found.explained if name not in beside.names()]:
        output.message(f"note: what explains it is not shown: {beside.root} has no run {', '.join(missing)}")
        return None
    runs = [options.open_run(beside.root / name)[0] for name in found.explained]
    pairs = [(case.a, case.b) for case in found.cases]
    return compare(ArchivedSide(runs[0]), ArchivedSide(runs[1]), anyway=True, pairs=pairs)


def write_page(made: Page, out: Path) -> None:
    """Write a page, whole or not at all, and say where."""
    from fiprof.cli.progress import working
    from fiprof.files import write_whole
    from fiprof.reports.pages import html

    with working("page"):
        write_whole(out, html.render(made).encode(), "--out names another")
    output.message(str(out))
