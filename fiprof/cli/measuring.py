"""``--measure`` of ``fiprof compare``: two sides from the command line, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiprof.cli.commands.collect import CollectCommand, choose_cases, print_commands
from fiprof.cli.options import split

if TYPE_CHECKING:
    from fiprof.model.settings import Setting
    from fiprof.orchestrator.archive import Archive
    from fiprof.orchestrator.compare.request import CompareRequest
    from fiprof.orchestrator.under_way import Result


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
    from fiprof.model.settings import CompareSettings, settings_of
    from fiprof.orchestrator.compare.request import CompareRequest, pairs_of
    from fiprof.orchestrator.compare.sides import parse_side

    own = {each.name: words.pop(each.name) for each in settings_of(CompareSettings)}
    names, params = (
        [*split(kernels or ""), *workloads],
        {name: word for name, word in words.items() if word is not None},
    )
    sides = parse_side(a), parse_side(b)
    pairs = pairs_of(*sides, choose_cases(names, params) if names or params else [])
    return CompareRequest(a=sides[0], b=sides[1], pairs=pairs, **own)


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
