"""``fiprof capture``: trace a program that goes on running."""

import click

from fiprof.cli.commands.collect import conclude
from fiprof.cli.options import Command, FiniteRange, archive_option, quiet_option
from fiprof.cli.progress import measuring
from fiprof.orchestrator.run_folder import Archive


@click.command(cls=Command, epilog="Example: fiprof capture server --duration 5")
@click.argument("name", metavar="NAME")
@click.option(
    "--duration",
    "duration_s",
    type=FiniteRange(0, None, True, unit="s"),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds that are traced.",
)
@quiet_option
@archive_option
def command(archive: Archive, name: str, duration_s: float, quiet: bool) -> None:
    """Trace some seconds of a program that ``fiprof profile --session NAME`` runs, into a run folder.

    The program goes on, and can be captured again. The folder's path goes to standard output.
    """
    from fiprof.orchestrator.capture import capture

    with measuring(archive, quiet=quiet) as bench:
        result = capture(name, duration_s, bench)
    conclude(result, ("fiprof top",))
