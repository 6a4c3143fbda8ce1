"""``fiprof publish``: the archive as a static site."""

from pathlib import Path

import click

from fiprof.cli import output
from fiprof.cli.options import Command, catalogue_option, open_run
from fiprof.cli.progress import working
from fiprof.errors import FiprofError
from fiprof.model.manifest import read_manifest
from fiprof.orchestrator.run_folder import Archive
from fiprof.text import escape_control


@click.command(cls=Command, epilog="Example: fiprof publish site --only-new")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only-new", is_flag=True, help="Make only reports of runs that are new or have changed.")
@catalogue_option
def command(archive: Archive, catalog: str | None, folder: Path, only_new: bool) -> None:
    """Write the archive into DIR as a static site: an index to filter, trends, and every run's report.

    It needs no server and no network. The index's path goes to standard output.
    """
    from fiprof.model.run import Run
    from fiprof.orchestrator.parse import state
    from fiprof.reports import site

    before, names = site.begin(folder), archive.by_time()[::-1]
    now, failed, made = {}, [], 0
    with working("publish") as tell:
        try:
            for number, name in enumerate(names, 1):
                tell(f"{number:,} of {len(names):,}: {name}")
                try:
                    run = archive.root / name
                    old = before.get(name) if only_new else None
                    if old and old.state == state(run):
                        now[name] = old
                        continue
                    opened = Run(run) if read_manifest(run).kind == "comparison" else open_run(run)[0]
                    published, text = site.rendered(opened, state(run))
                except FiprofError as error:
                    failed.append(name)
                    output.message(f"fiprof: {escape_control(name)} is left out: {error}")
                    continue
                site.add(folder, published, text)
                now[name] = published
                made += 1
            for page, metric in site.TRENDS.items():
                tell(page)
                _trend(archive, catalog, folder, page, metric)
        finally:
            # What is made counts, also where this is interrupted: the next --only-new goes on from there.
            kept = {**before, **now} if len(now) + len(failed) < len(names) else now
            index = site.finish(folder, archive.root, [kept[name] for name in names if name in kept], before)
    output.message(f"{made} of {len(names)} reports made")
    output.data(str(index))
    if failed:
        raise FiprofError(f"{len(failed)} of {len(names)} runs could not be read", "fiprof verify says what is wrong")


def _trend(archive: Archive, catalog: str | None, folder: Path, page: str, metric: str) -> None:
    """A page of a quantity over the runs; without a catalogue or the library for changes it says so."""
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.reports import site

    try:
        found = index.trend(archive, question(metrics=(metric,)), catalog)
        site.publish_trend(folder, page, found)
    except FiprofError as error:
        output.message(f"fiprof: {page} is left as it was: {error}")
