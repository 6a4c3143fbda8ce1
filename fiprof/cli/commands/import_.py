"""``fiprof import``: a run of files that nsys and ncu left elsewhere."""

from pathlib import Path

import click

from fiprof.cli.commands.collect import conclude
from fiprof.cli.options import Command, archive_option, quiet_option
from fiprof.cli.progress import measuring
from fiprof.model.manifest import read_manifest
from fiprof.orchestrator.run_folder import Archive

NEXT = {"ncu": "fiprof verdict", "nsys": "fiprof top"}
"""Tool -> the command that reads what it left."""


@click.command("import", cls=Command, epilog="Example: fiprof import trace.sqlite raw.csv --range decode")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="NAME",
    help="An NVTX range that is a case, each time an iteration; DOMAIN@NAME, * for any text.",
)
@click.option("--name", default="", metavar="TEXT", help="What the folder's name ends in [default: the first file's].")
@click.option("--link", is_flag=True, help="Read the files where they lie instead of copying them.")
@quiet_option
@archive_option
def command(
    archive: Archive, files: tuple[Path, ...], ranges: tuple[str, ...], name: str, link: bool, quiet: bool
) -> None:
    """Make a run of files of nsys and ncu, for all commands that read runs; the files are left as they are.

    A FILE is a .nsys-rep (read by nsys), the SQLite that nsys makes of it, a .ncu-rep, or a CSV page of ncu: raw,
    details, source, or the viewer's export. What it is is told by its content. Several go into one run: a trace beside
    a profile, a trace a rank, the pages of a report.

    The copy of an SQLite is cleared of environments, and secrets in it are masked. With --link nothing is.
    """
    from fiprof.orchestrator.importing import ImportRequest, import_files

    with measuring(archive, quiet=quiet) as bench:
        result = import_files(ImportRequest(files, ranges, name, link), bench)
    tools = {file.tool_name for file in read_manifest(result.path).imported}
    conclude(result, [command for tool, command in NEXT.items() if tool in tools])
