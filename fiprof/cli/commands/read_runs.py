"""The commands that read a run: each opens it, asks one analysis, and prints its document; or exports it."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof.cli import options, output
from fiprof.cli.progress import working
from fiprof.errors import FiprofError
from fiprof.text import escape_control

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.comm import By
    from fiprof.reports.view import Format

TABLES = ("kernels", "ranges", "idle", "copies", "program")
ACROSS = ("kernels", "idle", "steps", "ranks", "outliers")  # those of ``top --over``
OVER = "Which as JSON and CSV; with --over which at all: kernels, idle, steps, ranks or outliers."
MOST_NAMED = 5  # runs that are left out, by name


@options.command("fiprof verdict latest")
@options.reading_options
def verdict_command(run: Run, chosen: options.ChosenLaunches, format_: Format) -> None:
    """What takes a program's time; what limits each launch, how sure that is, and what to try next."""
    from fiprof.analysis.top import program_of
    from fiprof.analysis.verdict.verdict import verdicts
    from fiprof.model.selection import EVERYTHING
    from fiprof.reports.verdict_tables import MOST_ROWS, MOST_STEPS, document

    program = program_of(run) if chosen.wanted == EVERYTHING else None
    medians = format_ in ("table", "md") and not chosen.every
    found = verdicts(run, wanted=chosen.wanted, medians=medians, program=bool(program))
    made = document(found, most=chosen.most(MOST_ROWS), detailed=chosen.detailed(MOST_STEPS), program=program)
    options.show(made, format_, run=run)


@options.command("fiprof show latest --kernel decode --occupancy")
@click.option("--times", is_flag=True, help="Time by ncu and nsys, spread, grid, block; the least work and bytes.")
@click.option("--compute", is_flag=True, help="Operations a second, share of the roof, tensor cores, threads.")
@click.option("--memory", is_flag=True, help="SM, L1, L2, DRAM; hit rates; sectors a request, bank conflicts, spills.")
@click.option("--occupancy", is_flag=True, help="Achieved and theoretical occupancy, its limits, and what lifts it.")
@click.option("--waves", is_flag=True, help="How the grid fills the GPU, and what the last wave costs.")
@options.reading_options
def show_command(run: Run, chosen: options.ChosenLaunches, format_: Format, **sections: bool) -> None:
    """The time of each kernel, how much of the hardware it uses, and what limits it."""
    from fiprof.analysis import show as figures
    from fiprof.reports.show import MOST_ROWS, SECTIONS, document

    named = [section for section in SECTIONS if chosen.every or sections[section]]
    found, overview = figures.show(run, wanted=chosen.wanted), chosen.every or not named
    made = document(found, run, limited=True, overview=overview, sections=named, most=chosen.most(MOST_ROWS))
    options.show(made, format_, run=run)


@options.command("fiprof stalls latest --kernel decode --reasons 5")
@options.count("--reasons", None, "Only the N largest reasons of each launch.")
@options.reading_options
def stalls_command(run: Run, chosen: options.ChosenLaunches, reasons: int | None, format_: Format) -> None:
    """What the warps of each launch wait for: share of each stall reason, what it means and what helps."""
    from fiprof.analysis.stalls import stalls
    from fiprof.reports.stalls import MOST_LAUNCHES, document

    found = stalls(run, wanted=chosen.wanted)
    options.show(document(found, reasons=reasons, most=chosen.most(MOST_LAUNCHES)), format_, run=run)


@options.command("fiprof hotspots latest --kernel decode --instructions 3")
@options.count("--instructions", 5, "The N hottest of each launch.")
@options.count("--context", 2, "N instructions before and after each.", least=0)
@options.reading_options
def hotspots_command(
    run: Run, chosen: options.ChosenLaunches, instructions: int, context: int, format_: Format
) -> None:
    """The SASS instructions of each launch that hold most warp samples, their stall, and what they wait for."""
    from fiprof.analysis.hotspots import hotspots
    from fiprof.reports.hotspots import MOST_LAUNCHES, document

    found = hotspots(run, wanted=chosen.wanted, top=instructions, context=context)
    options.show(document(found, most=chosen.most(MOST_LAUNCHES)), format_, run=run)


@options.command("fiprof roofline latest")
@options.reading_options
def roofline_command(run: Run, chosen: options.ChosenLaunches, format_: Format) -> None:
    """Every launch on the measured roofs: intensity, achieved and attainable FLOP/s, and the roof that limits it."""
    from fiprof.analysis import roofline
    from fiprof.reports.roofline import MOST_ROWS, chart, document

    rooflines = roofline.roofline(run, wanted=chosen.wanted)
    options.show(document(rooflines, most=chosen.most(MOST_ROWS)), format_, run=run)
    if format_ == "table" and (drawn := chart(rooflines, width=options.width())):
        output.data(f"\n{drawn}")


@options.command("fiprof top latest --table idle --format csv")
@click.option("--range", "range_", default="", metavar="TEXT", help="Only kernels launched in NVTX ranges with this.")
@click.option("--kernel", default="", metavar="TEXT", help="Only kernels with this in their full name.")
@click.option("--rank", type=click.IntRange(0), help="Only kernels of this rank.")
@click.option(
    "--by",
    type=click.Choice(["range", "host", "run", "rank", "gpu"]),
    help="Split each kernel by the NVTX range that launched it; with --over by one of the others.",
)
@click.option("--over", metavar="GLOB", help="Ask across the traces of an archive, a glob of run folders, or a URL.")
@click.option("--whole", is_flag=True, help="The whole trace, with start-up, not its steady part.")
@click.option("--top", "most", type=click.IntRange(1), default=15, show_default=True, help="Rows of each table.")
@click.option("--all", "every", is_flag=True, help="All rows.")
@options.choice("--table", (*TABLES, *(table for table in ACROSS if table not in TABLES)), OVER)
@options.format_option
@functools.partial(options.run_argument, unless="over")
def top_command(
    run: Run | None, over: str | None, by: str | None, whole: bool, table: str, format_: Format, **wanted: Any
) -> None:
    """What takes a program's time and what to do about it; its kernels, ranges, and why the GPU was idle.

    With --over in place of RUN the same of many traces, and which hosts are unlike the others.
    """
    from fiprof.reports import top as reports

    rows, every = wanted.pop("most"), wanted.pop("every")
    rows = None if every else rows
    if over:
        from fiprof.analysis.across import scan

        if table not in ACROSS or by == "range" or wanted["range_"] or wanted["rank"] is not None or whole:
            raise click.UsageError("--over takes --kernel, --by host, run, rank or gpu, and a table that it has")
        with working("digests"):
            traces = scan(over, lambda folder: options.open_run(folder)[0])
        for sentence in traces.missing[:MOST_NAMED]:
            output.message(f"fiprof: {escape_control(sentence)}")
        if more := len(traces.missing[MOST_NAMED:]):
            output.message(f"fiprof: {more:,} more runs have no digest")
        options.show(reports.across(traces, table, by, wanted["kernel"], rows), format_)
    elif run:
        from fiprof.analysis.top import top

        if table not in TABLES or by not in (None, "range"):
            raise click.UsageError(f"--table {table} and --by host, run, rank or gpu are for --over")
        found = top(run, by_range=by is not None, within_steady=not whole, **wanted)
        options.show(reports.document(found, table=table, most=rows), format_, run=run)


@options.command("fiprof story latest --format md")
@click.option("--step", type=click.IntRange(0), metavar="N", help="Only this step and its neighbours, each by itself.")
@click.option("--request", metavar="ID", help="Only this request, and the steps from its arrival to its end.")
@click.option("--around", type=float, metavar="MS", help="Only the steps around this time of the trace, in ms.")
@click.option("--rank", type=click.IntRange(0), help="What happened on the GPU of this rank.")
@click.option("--kv-bytes", type=click.IntRange(1), metavar="N", help="A token's bytes in the KV cache [as it says].")
@click.option("--all", "every", is_flag=True, help="Every phase, however short.")
@options.choice("--table", ("happened", "told", "steps", "requests", "layers", "memory"), "Which as JSON and CSV.")
@options.format_option
@options.run_argument
def story_command(run: Run, every: bool, table: str, format_: Format, **only: Any) -> None:
    """What happened, in order of time: phases, steps, layers; what surprised, and what to change first."""
    from fiprof.analysis.planning import plans
    from fiprof.analysis.story import story
    from fiprof.analysis.top import top
    from fiprof.reports.story import MOST_ROWS, document, one_request, steps

    program = top(run, within_steady=True).program
    whole_story = story(run, program, rank=only["rank"], kv_bytes=only["kv_bytes"])
    if only["request"] is not None:
        shown = one_request(run.given, whole_story, only["request"])
    elif only["step"] is not None or only["around"] is not None:
        shown = steps(whole_story, number=only["step"], around_ms=only["around"])
    else:
        shown = document(whole_story, program, planned=plans(run), table=table, most=None if every else MOST_ROWS)
    options.show(shown, format_, run=run)


@options.command("fiprof timeline latest --perfetto trace.json.gz")
@click.option(
    "--phase",
    type=click.Choice(("measure", "setup", "warmup", "all")),
    help="Only kernels launched in it [default: measure; all without cases].",
)
@options.file("--perfetto", "FILE", "Also write the whole trace, every phase, for ui.perfetto.dev.")
@options.reading_options
def timeline_command(
    run: Run, chosen: options.ChosenLaunches, phase: str | None, perfetto: Path | None, format_: Format
) -> None:
    """Kernels in order of time, and what the SMs, the tensor cores, DRAM and device memory did at that time."""
    from fiprof.analysis.timeline import timeline
    from fiprof.reports.timeline_text import PLAIN_WIDTH, chart_cells, document

    if perfetto:
        from fiprof.reports.trace_json import write

        output.message(write(run, perfetto))
    phase = phase or ("measure" if run.cases else "all")
    what = timeline(run, wanted=chosen.wanted, phase=phase, cells=chart_cells(options.width(PLAIN_WIDTH)))
    options.show(document(what, most=not (chosen.every or chosen.wanted)), format_, run=run, plain_width=PLAIN_WIDTH)


@options.command("fiprof comm latest --top 20")
@options.count("--top", None, "Only the N collectives with the longest waits.")
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every collective, every cause.")
@options.choice("--by", ("collective", "rank", "cause"), "Of what JSON and CSV have a row.")
@options.format_option
@options.run_argument
def comm_command(run: Run, top: int | None, every: bool, by: By, format_: Format) -> None:
    """Collectives of several ranks: who waits for whom and how long, what the late rank was doing, bandwidth."""
    from fiprof.analysis.comm import comm
    from fiprof.reports.comm import MOST_COLLECTIVES, chart_cells, document

    found = comm(run, cells=chart_cells(options.width()))
    most = None if every else top or MOST_COLLECTIVES
    options.show(document(found, by=by, most=most), format_, run=run)


@options.command("fiprof expected latest --kernel prefill")
@click.option(
    "--expectations",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your own expectations (TOML), in place of fiprof's for the same workloads.",
)
@options.reading_options
def expected_command(run: Run, chosen: options.ChosenLaunches, expectations: Path | None, format_: Format) -> None:
    """Stall mix, share of the roof and bandwidth of each case compared with what is expected of its kernel family."""
    from fiprof.analysis.expected import check_workloads, combined, expected, read_expectations
    from fiprof.reports.expected import MOST_CASES, document
    from fiprof.workloads import registry

    own = read_expectations(expectations) if expectations else None
    if own is not None:
        check_workloads(own, {*registry.available(), *(case.workload for case in run.manifest.cases)})
    report = expected(run, families=combined(own), wanted=chosen.wanted)
    options.show(document(report, most=chosen.most(MOST_CASES)), format_, run=run)


@options.command("fiprof export latest --to sqlite")
@click.option(
    "--to",
    "target",
    type=click.Choice(("parquet", "csv", "json", "sqlite", "perfetto", "zip")),
    required=True,
    help="parquet and csv: a folder with a file a table; json: manifest and tables; sqlite: a database; perfetto: the "
    "trace for ui.perfetto.dev; zip: report, tables and raw reports, to hand over.",
)
@click.option(
    "--out",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Where to write it [default: the run's name here, e.g. 20261121-120959-all.sqlite].",
)
@click.option("--force", is_flag=True, help="Replace what an earlier export wrote there.")
@click.option(
    "--with-private",
    is_flag=True,
    help="Into a zip, put raw reports that hold an environment too: nsys writes your shell's, with its tokens.",
)
@options.run_argument
def export_command(run: Run, target: str, out: Path | None, **how: bool) -> None:
    """Write a run for other programs; it appears whole or not at all. The path goes to standard output."""
    from fiprof.reports.export import SUFFIXES, export

    if how["with_private"] and target != "zip":
        raise FiprofError("only a zip has raw reports", "--with-private goes with --to zip", exit_code=2)
    path = out or Path(run.path.resolve().name + SUFFIXES[target])
    with working("export") as tell:
        made = export(run, target, path, tell=tell, **how)
    output.data(str(made))


@options.command("fiprof report latest")
@click.argument("runs", metavar="RUN [RUN …]", nargs=-1, required=True)
@click.option(
    "--format",
    "format_",
    type=click.Choice(("both", "md", "html")),
    help="report.md for terminals, issues and e-mail, report.html for browsers [default: both].",
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write it [default: the run folder; of several runs ./report].",
)
@options.file(
    "--bundle",
    "FILE.zip",
    "Also pack it with the tables as CSV and Parquet, the raw reports for ncu-ui and nsys-ui, and the guide.",
)
@click.option(
    "--with-private",
    is_flag=True,
    help="Put raw reports that hold an environment into the bundle too: nsys writes your shell's, with its tokens.",
)
@options.archive_option
def report_command(
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
    opened = [dataclasses.replace(options.open_run(each)[0], leaving=True) for each in folders]
    folder = out or (opened[0].path if len(opened) == 1 else Path("report"))
    suffixes = (format_,) if format_ in ("md", "html") else ("md", "html")
    with working("report"):
        page = report(opened)
    for text in page.warnings:
        output.message(f"warning: {text}")
    with working("pages"):
        written = write_report(page, folder, suffixes)
    if bundle is not None:
        written.append(write_bundle(page, opened, bundle, suffixes, with_private=with_private))
    for path in written:
        output.data(str(path))
