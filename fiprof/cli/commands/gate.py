"""``fiprof gate``: fail where this tree is slower than a baseline; and ``fiprof baseline``, which names those."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof.analysis.thresholds import LEAST_CHANGE
from fiprof.cli import options, output
from fiprof.cli.commands.collect import CollectCommand, conclude, workload_option
from fiprof.cli.commands.compare import print_processes, settings_and_cases
from fiprof.cli.options import Command, FiniteRange, archive_option, format_option, run_names, supervision_options
from fiprof.cli.progress import measuring
from fiprof.errors import FiprofError
from fiprof.files import archive_folder, file_errors, write_whole
from fiprof.model import baselines

if TYPE_CHECKING:
    from fiprof.analysis.comparison.measured_result import GatedCase
    from fiprof.model.manifest import CaseEntry
    from fiprof.orchestrator.compare import CompareRequest
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.view import Format

SLOWER_EXIT = 3
ELSEWHERE = "name another file with {}"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"  # file of Markdown that GitHub shows on the page of a workflow's run


def baseline_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The baselines that a shell offers."""
    found = baselines.names(archive_folder(ctx.params.get("artifacts")))
    return [name for name in found if name.startswith(incomplete)]


@options.command("fiprof gate --against main --max-slowdown 3% --dry-run", CollectCommand, settings="CompareSettings")
@click.option(
    "--against",
    metavar="NAME",
    shell_complete=baseline_names,
    help="The baseline: its cases, and its commit as side A.",
)
@click.option(
    "--folder", metavar="DIR", default="", help="Folder of the package, whose commit is imported [default: this one]."
)
@click.option("--base", metavar="SPEC", help="Side A in place of the baseline's commit, e.g. git:origin/main.")
@click.option("--now", metavar="SPEC", default="here", show_default=True, help="Side B; SPEC is as in fiprof compare.")
@click.option(
    "--max-slowdown",
    "max_slowdown_pct",
    type=FiniteRange(LEAST_CHANGE, None, unit="%"),
    metavar="PERCENT",
    default=3.0,
    show_default=False,
    help="A case fails that is slower by this and by more than the noise; at least 1% [default: 3%].",
)
@click.option("--strict", is_flag=True, help="Fail too (exit status 1) where a case cannot be told, or is gone.")
@click.option("--kernel", "kernels", metavar="LIST", help="Only these workloads; without --against those to measure.")
@workload_option
@options.file("--junit", "FILE", "Also write JUnit XML, a test a case.")
@options.file("--comment", "FILE", "Also write Markdown for a pull request's comment.")
@click.option(
    "--github/--no-github",
    default=None,
    help="Annotations and the step's summary for GitHub [default: under GitHub Actions].",
)
@click.option("--all", "every", is_flag=True, help="Leave out nothing: every case.")
@click.option("--dry-run", is_flag=True, help="Print the processes in the order of time and start nothing.")
@supervision_options
@format_option
@archive_option
def gate_command(
    archive: Archive,
    against: str | None,
    folder: str,
    base: str | None,
    now: str,
    max_slowdown_pct: float,
    strict: bool,
    junit: Path | None,
    comment: Path | None,
    github: bool | None,
    every: bool,
    dry_run: bool,
    wait: bool,
    quiet: bool,
    format_: Format,
    **words: Any,
) -> None:
    """Measure a baseline's cases at its commit (A) and in this tree (B), in turns on this GPU, and decide.

    Exit status 3 where a case is slower than the limit and than the noise; 0 where none is, also where the noise hides
    it, which is said. The run folder's path goes to standard error.
    """
    from fiprof.analysis.comparison.measured_result import gate, read_comparison
    from fiprof.model.run import Run
    from fiprof.orchestrator.compare import compare
    from fiprof.reports import measured_table, writers

    name = against or base or ""
    request, others = _request(archive, against, folder, base, now, words)
    if dry_run:
        print_processes(request, archive)
        return
    github = os.environ.get("GITHUB_ACTIONS") == "true" if github is None else github
    for file, option in ((junit, "--junit"), (comment, "--comment")):
        if file is not None:
            # Before minutes of measuring.
            with file_errors(file.parent, ELSEWHERE.format(option)):
                file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with measuring(archive, quiet=quiet, wait=wait) as bench:
            result = compare(request, bench)
        if result.problem is not None:
            conclude(result, (), to_stderr=True)
        output.message(str(result.path))
    except FiprofError as error:
        if junit is not None:
            write_whole(junit, measured_table.junit_error(name, error.message), ELSEWHERE.format("--junit"))
        if comment is not None:
            said = measured_table.comment_error(name, error.message).encode()
            write_whole(comment, said, ELSEWHERE.format("--comment"))
        if github:
            output.message(measured_table.annotation("error", measured_table.suite_name(name), error.message))
        raise
    run = Run(result.path)
    comparison = read_comparison(result.path)
    decided = gate(name, run.manifest, comparison, max_slowdown_pct=max_slowdown_pct, strict=strict, others=others)
    shown = measured_table.gate_document(decided, every=every)
    options.show(shown, format_, run=run)
    markdown = writers.render(shown, "md") + "\n"
    if junit is not None:
        write_whole(junit, measured_table.junit(decided), ELSEWHERE.format("--junit"))
    if comment is not None:
        write_whole(comment, markdown.encode(), ELSEWHERE.format("--comment"))
    if github:
        for each in measured_table.github_lines(decided):
            output.message(each)
        if summary := os.environ.get(SUMMARY_VARIABLE):
            with file_errors(Path(summary), ELSEWHERE.format(SUMMARY_VARIABLE)), open(summary, "a") as out:
                out.write(markdown)
    if decided.failed:
        status = SLOWER_EXIT if decided.slower else 1
        raise FiprofError(measured_table.why(decided), f"the times are in {result.path}", exit_code=status)


def _request(
    archive: Archive, against: str | None, folder: str, base: str | None, now: str, words: dict[str, Any]
) -> tuple[CompareRequest, list[GatedCase]]:
    """What is to be measured, and the cases that only one side has. words: settings and cases."""
    from fiprof.orchestrator.baselines import pairs_against
    from fiprof.orchestrator.compare import CompareRequest, pairs_of, parse_side

    settings, cases = settings_and_cases(words)
    baseline = baselines.read_baseline(archive.root, against) if against else None
    if base is None:
        if baseline is None:
            raise FiprofError("against what?", "--against NAME, or --base git:REF with --kernel", exit_code=2)
        if baseline.commit is None:
            keep = f"fiprof baseline set {against} {baseline.run} --commit REV keeps it"
            remedy = f"--base SPEC says what to measure; {keep}"
            raise FiprofError(f"the baseline {against} names no commit", remedy, exit_code=2)
        base = f"git:{baseline.commit}:{folder}" if folder else f"git:{baseline.commit}"
    a, b = parse_side(base), parse_side(now)
    pairs, others = pairs_against(archive, baseline, a, b, cases) if baseline else (pairs_of(a, b, cases), [])
    return CompareRequest(a=a, b=b, pairs=pairs, **settings), others


@click.group("baseline", epilog="Example: fiprof baseline set main latest")
def baseline_command() -> None:
    """Name runs that later trees are compared with: fiprof gate measures their cases again."""


@baseline_command.command("set", cls=Command, epilog="Example: fiprof baseline set main latest")
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


@baseline_command.command("list", cls=Command, epilog="Example: fiprof baseline list --format csv")
@format_option
@archive_option
def list_(archive: Archive, format_: Format) -> None:
    """List the baselines of the archive."""
    from fiprof.reports import measured_table

    found = [_baseline(archive, name) for name in baselines.names(archive.root)]
    options.show(measured_table.baselines(found), format_)


@baseline_command.command("show", cls=Command, epilog="Example: fiprof baseline show main")
@click.argument("name", metavar="NAME", shell_complete=baseline_names)
@format_option
@archive_option
def show_(archive: Archive, name: str, format_: Format) -> None:
    """Show a baseline and its cases."""
    from fiprof.reports import measured_table

    options.show(measured_table.baselines([_baseline(archive, name)], with_cases=True), format_)


@baseline_command.command("remove", cls=Command, epilog="Example: fiprof baseline remove main")
@click.argument("name", metavar="NAME", shell_complete=baseline_names)
@archive_option
def remove_(archive: Archive, name: str) -> None:
    """Remove a baseline. Its run stays in the archive."""
    baselines.remove_baseline(archive.root, name)


def _baseline(archive: Archive, name: str) -> tuple[baselines.NamedBaseline, list[CaseEntry] | None]:
    from fiprof.model import layout
    from fiprof.model.manifest import read_manifest

    baseline = baselines.read_baseline(archive.root, name)
    run = archive.root / baseline.run
    return baseline, read_manifest(run).cases if (run / layout.FILE_NAME).exists() else None
