"""The commands that keep an archive: list, trends, tags, notes, packing, tables, catalogue, checksums."""

import shlex
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from fiprof import clock
from fiprof.cli import options, output
from fiprof.cli.progress import working
from fiprof.errors import FiprofError
from fiprof.model.baselines import names_by_run
from fiprof.orchestrator.run_folder import Archive
from fiprof.reports.view import Format


@options.command("fiprof tag latest release")
@options.any_folder_argument
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take them away.")
def tag_command(folder: Path, names: tuple[str, ...], remove: bool) -> None:
    """Give a run tags, to find it by with fiprof runs --tag; they stand in annotations.json in its folder."""
    from fiprof.model import keeping
    from fiprof.orchestrator.index import share

    for name in names:
        if not name.strip() or not name.isprintable() or "," in name or len(name) > keeping.LONGEST_TAG:
            remedy = f"a tag has up to {keeping.LONGEST_TAG} characters and no comma"
            raise FiprofError(f"{name!r} is no tag", remedy, exit_code=2)
    tags = keeping.change(folder, add=() if remove else names, remove=names if remove else ()).tags
    share(folder, output.message)
    output.data(f"{folder.name}: {', '.join(tags) or 'no tags'}")


@options.command('fiprof note latest "after the split-kv change"')
@options.any_folder_argument
@click.argument("text")
def note_command(folder: Path, text: str) -> None:
    """Note a sentence about a run, with the time and your name; fiprof runs shows it."""
    import psutil

    from fiprof.model import keeping
    from fiprof.orchestrator.index import share

    if not text.strip() or len(text) > keeping.LONGEST_NOTE:
        what = "is empty" if not text.strip() else f"has {len(text):,} characters"
        raise FiprofError(f"the note {what}", f"a note has 1 to {keeping.LONGEST_NOTE:,} characters", exit_code=2)
    when = clock.now_text("seconds")
    noted = keeping.change(folder, note=keeping.Note(when, psutil.Process().username(), text)).notes[-1]
    share(folder, output.message)
    output.data(f"{folder.name}: {noted.text}")


@options.command("fiprof pack latest")
@click.option("--undo", is_flag=True, help="Give plain files back, for ncu-ui and nsys-ui.")
@options.folder_argument
def pack_command(folder: Path, undo: bool) -> None:
    """Compress a run's raw files in place; every command reads them as before.

    A new run is packed with zstd already. Each file is compared with its checksum before the other goes.
    """
    from fiprof.model import packing

    with working("pack"):
        changed = packing.unpack(folder) if undo else packing.pack(folder)
    for path in changed:
        output.data(str(path))
    if not changed:
        output.message(f"{folder} is {'plain' if undo else 'packed'} already")


@options.command("fiprof parse latest")
@options.folder_argument
def parse_command(folder: Path) -> None:
    """Make a run's tables again from its raw files.

    The tables' paths go to standard output. Raw files are never changed; a table is replaced whole or not at all.
    """
    from fiprof.orchestrator.parse import base, parse_all

    with working("parse"):
        parsed = parse_all(folder, at := base(folder))
    for name in parsed.tables:
        output.data(str(at / "tables" / f"{name}.parquet"))
    for sentence in parsed.missing:
        output.message(f"note: {sentence}")
    for problem in parsed.problems[1:]:
        output.message(f"fiprof: {problem}")
    if parsed.problems:
        raise FiprofError(parsed.problems[0].message, parsed.problems[0].remedy)


@options.command("fiprof index")
@click.option("--rebuild", is_flag=True, help="Read every run again.")
@options.catalogue_option
def index_command(archive: Archive, catalog: str | None, rebuild: bool) -> None:
    """Bring the catalogue of the archive up to date; fiprof runs and trend do so by themselves.

    It is derived from the run folders, tags and notes too, and may be deleted at any time.
    """
    from fiprof.model.finding import words_of
    from fiprof.orchestrator import index

    with working("index"):
        found = index.opened(archive, catalog, anew=rebuild)
        changes = found.refresh(rebuild=rebuild)
    output.data(f"{found.name}: {words_of(changes)}")


@options.command("fiprof verify latest --format json")
@click.argument("run", metavar="[RUN]", required=False, shell_complete=options.run_names)
@options.format_option
@options.catalogue_option
def verify_command(archive: Archive, catalog: str | None, run: str | None, format_: Format) -> None:
    """Compare every file of a run, or of all runs of the archive, with the checksums in its run.json.

    Missing, changed, damaged and planted files, and tables that can neither be read nor made again, are wrong: exit
    status 1. What was pruned or left out on purpose is said. Without RUN the catalogue is compared with the runs too.
    """
    from fiprof.orchestrator.verify import verify, verify_catalogue
    from fiprof.reports.runs import verified

    if run == "latest":
        folders = [archive.root / archive.by_time()[-1]]  # the newest, however it is
    else:
        folders = [archive.find(run)] if run else [archive.root / name for name in archive.by_time()]
    verified_runs = []
    with working("verify") as told:
        for number, folder in enumerate(folders, 1):
            told(f"{number:,} of {len(folders):,}: {folder.name}")
            verified_runs.append(verify(folder))
        differing = () if run else verify_catalogue(archive, verified_runs, catalog)
    options.show(verified(verified_runs, differing), format_)
    if wrong := [each for each in verified_runs if not each.intact]:
        names = ", ".join(each.name for each in wrong[:3]) + (f" and {len(wrong) - 3} more" if wrong[3:] else "")
        raise FiprofError(f"not as made: {names}", "restore what is wrong from a copy, if there is one")
    if differing:
        raise FiprofError("the catalogue differs from the runs", "fiprof index --rebuild makes it again")


def age(_: click.Context, __: click.Parameter, text: str) -> timedelta:
    if (found := clock.age(text)) is None:
        raise click.BadParameter(f"{text} is no age: 90d, 12h or 8w")
    return found


@options.command("fiprof prune --older-than 90d --keep-baselines --dry-run")
@click.option(
    "--older-than", metavar="AGE", required=True, callback=age, help="Of runs that began before: 90d, 12h, 8w."
)
@click.option(
    "--keep-baselines/--no-keep-baselines", default=True, show_default=True, help="Leave the runs of baselines whole."
)
@click.option(
    "--keep-tag", "keep_tags", metavar="NAME", multiple=True, help="Leave runs with this tag whole; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@options.format_option
@options.archive_option
def prune_command(archive: Archive, dry_run: bool, format_: Format, **which: Any) -> None:
    """Remove the raw files of old runs, nine tenths of an archive.

    Tables, report, logs and run.json stay, so that every command reads such a run as before; run.json says what went
    and when. Its tables cannot be made again. Runs whose tables are not made, runs under way and those in
    artifacts/recorded keep their raw files.
    """
    from fiprof.orchestrator.verify import prune
    from fiprof.reports.runs import pruned

    pruned_runs = []
    with working("prune") as tell:
        for run in prune(archive, dry_run=dry_run, **which):
            tell(run["name"])
            pruned_runs.append(run)
    options.show(pruned(pruned_runs, dry_run=dry_run), format_)


@options.command("fiprof runs --kernel decode --where batch=128 --metric dram_share --sort -dram_share")
@options.question_options
@click.option(
    "--metric",
    "metrics",
    metavar="KEY",
    multiple=True,
    help="Show this quantity of each kernel or case, a row each; may be repeated. duration is an iteration without a "
    "profiler; docs/archive.md has the others.",
)
@click.option(
    "--sort",
    metavar="KEY",
    default="",
    help="started (default), name, duration_s, bytes or a metric; -KEY: largest first.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N rows, the newest or the first.")
@click.option("--all", "every", is_flag=True, help="Every row, not the newest 50 only; JSON and CSV have every row.")
@click.option("--everywhere", is_flag=True, help="Also runs of other archives that share the catalogue.")
@options.format_option
@options.catalogue_option
def runs_command(archive: Archive, catalog: str | None, every: bool, format_: Format, **words: Any) -> None:
    """List the runs of the archive, the newest last; with filters those that fit, with --metric what was measured.

    Run folders are the truth: new, changed and removed ones are noticed first.
    """
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.reports import runs

    if words["limit"] is None and format_ in ("table", "md") and not every:
        words["limit"] = runs.MOST_ROWS
    query = question(**words)
    with working("index"):
        answer = index.answer(archive, query, catalog)
    named = {str(archive.root.resolve() / run): names for run, names in names_by_run(archive.root).items()}
    options.show(runs.document(answer, query, named), format_)
    for path in archive.unfinished():
        output.message(f"note: {path} is still being collected")


@options.command("fiprof trend --kernel decode --where batch=32 --metric duration")
@options.question_options
@click.option(
    "--metric", metavar="KEY", default="duration", show_default=True, help="The quantity, as in fiprof runs --metric."
)
@options.file("--out", "FILE.html", "Also write a page with charts.")
@click.option("--all", "every", is_flag=True, help="Every line, not those alone that changed most.")
@click.option("--everywhere", is_flag=True, help="Also runs of other archives that share the catalogue.")
@options.format_option
@options.catalogue_option
def trend_command(
    archive: Archive, catalog: str | None, metric: str, out: Path | None, every: bool, format_: Format, **words: Any
) -> None:
    """Show a quantity of each case or kernel over time, and where its level changed, with commit and packages.

    GPUs, drivers and ways of measuring are never compared with each other: each has a line of its own.
    """
    from fiprof.analysis.trend import trend as lines
    from fiprof.model.catalogue.queries import question
    from fiprof.model.redaction import mask_words
    from fiprof.orchestrator import index
    from fiprof.reports import trend

    query = question(**words, metrics=(metric,))
    with working("index"):
        trends = lines(index.answer(archive, query, catalog).rows, query.metrics[0])
    if out is not None:
        typed = mask_words(["fiprof", *sys.argv[1:]])
        options.write_page(out, lambda: trend.page(trends, query.metrics[0], shlex.join(typed)))
    options.show(trend.document(trends, query.metrics[0], most=None if every else trend.MOST_ROWS), format_)
