"""``fiprof report``: everything about one run or several, to hand over."""

from pathlib import Path

import click

from fiprof.cli import output
from fiprof.cli.options import Command, archive_option, open_run
from fiprof.cli.progress import working
from fiprof.errors import FiprofError
from fiprof.orchestrator.run_folder import Archive

FORMATS = ("both", "md", "html")
FOLDER = "report"
"""Of a report of several runs, where --out names none."""


@click.command(cls=Command, epilog="Example: fiprof report latest")
@click.argument("runs", metavar="RUN [RUN …]", nargs=-1, required=True)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    help="report.md for terminals, issues and e-mail, report.html for browsers [default: both].",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write it [default: the run folder; of several runs ./report].",
)
@click.option(
    "--bundle",
    metavar="FILE.zip",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also pack it with the tables as CSV and Parquet, the raw reports for ncu-ui and nsys-ui, and the guide.",
)
@click.option(
    "--with-private",
    is_flag=True,
    help="Put raw reports that hold an environment into the bundle too: nsys writes your shell's, with its tokens.",
)
@archive_option
def command(
    archive: Archive,
    runs: tuple[str, ...],
    format_: str | None,
    out: Path | None,
    bundle: Path | None,
    with_private: bool,
) -> None:
    """Write the report of a run, or of several beside each other: what happened, why, what to try, how sure that is.

    The paths go to standard output.
    """
    from fiprof.reports.export import write_bundle, write_report
    from fiprof.reports.report import report

    folders = [archive.find(run) for run in runs]
    if len({each.resolve() for each in folders}) < len(folders):
        raise FiprofError("a run is named twice", "a report compares different runs", exit_code=2)
    opened = [open_run(each)[0] for each in folders]
    folder = out or (opened[0].path if len(opened) == 1 else Path(FOLDER))
    suffixes = (format_,) if format_ in ("md", "html") else ("md", "html")
    with working("report"):
        made = report(opened)
    for text in made.warnings:
        output.message(f"warning: {text}")
    with working("pages"):
        written = write_report(made, folder, suffixes)
    if bundle is not None:
        written.append(write_bundle(made, opened, bundle, suffixes, with_private=with_private))
    for path in written:
        output.data(str(path))
