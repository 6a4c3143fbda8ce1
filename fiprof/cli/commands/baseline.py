"""``fiprof baseline``: name runs that later trees are compared with."""

import click

from fiprof.cli import options, output
from fiprof.cli.options import Command, archive_option, format_option, run_names
from fiprof.model.baselines import NamedBaseline
from fiprof.model.manifest import CaseEntry
from fiprof.orchestrator.run_folder import Archive
from fiprof.reports.view import Format


def baseline_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The baselines that a shell offers."""
    from pathlib import Path

    from fiprof.model.baselines import names

    return [name for name in names(Path(options.archive_folder(ctx))) if name.startswith(incomplete)]


@click.group(epilog="Example: fiprof baseline set main latest")
def command() -> None:
    """Name runs that later trees are compared with: fiprof gate measures their cases again."""


@command.command("set", cls=Command, epilog="Example: fiprof baseline set main latest")
@click.argument("name", metavar="NAME", shell_complete=baseline_names)
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option("--commit", metavar="REV", help="The commit that the run stands for [default: that it was made of].")
@archive_option
def set_(archive: Archive, name: str, run: str, commit: str | None) -> None:
    """Make a run the baseline NAME, in the place of another.

    The gate measures its cases, at its commit and in the present tree. The baseline's file goes to standard output.
    """
    from fiprof.orchestrator.baselines import set_baseline

    path, baseline = set_baseline(archive, name, archive.find(run, lambda manifest: bool(manifest.cases)), commit)
    output.data(str(path))
    if baseline.commit is None:
        output.message("note: the run names no commit; fiprof gate needs --base, or set it with --commit REV")


@command.command("list", cls=Command, epilog="Example: fiprof baseline list --format csv")
@format_option
@archive_option
def list_(archive: Archive, format_: Format) -> None:
    """List the baselines of the archive."""
    from fiprof.model.baselines import names
    from fiprof.reports.measured_table import baselines

    options.show(baselines([_found(archive, name) for name in names(archive.root)]), format_)


@command.command("show", cls=Command, epilog="Example: fiprof baseline show main")
@click.argument("name", metavar="NAME", shell_complete=baseline_names)
@format_option
@archive_option
def show_(archive: Archive, name: str, format_: Format) -> None:
    """Show a baseline and its cases."""
    from fiprof.reports.measured_table import baselines

    options.show(baselines([_found(archive, name)], with_cases=True), format_)


@command.command("remove", cls=Command, epilog="Example: fiprof baseline remove main")
@click.argument("name", metavar="NAME", shell_complete=baseline_names)
@archive_option
def remove_(archive: Archive, name: str) -> None:
    """Remove a baseline. Its run stays in the archive."""
    from fiprof.model.baselines import remove_baseline

    remove_baseline(archive.root, name)


def _found(archive: Archive, name: str) -> tuple[NamedBaseline, list[CaseEntry] | None]:
    from fiprof.model.baselines import read_baseline
    from fiprof.model.manifest import FILE_NAME, read_manifest

    baseline = read_baseline(archive.root, name)
    run = archive.root / baseline.run
    return baseline, read_manifest(run).cases if (run / FILE_NAME).exists() else None
