"""``fiprof publish``: the archive as a static site, of which only what is new or changed is made, side by side."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fiprof import files, interrupts
from fiprof.cli import options, output
from fiprof.cli.progress import working
from fiprof.errors import FiprofError
from fiprof.orchestrator import parse
from fiprof.orchestrator.run_folder import Archive
from fiprof.text import count, escape_control

if TYPE_CHECKING:
    from fiprof.reports.site import Published

PAGES_OF_A_PROCESS = 8  # new pages for which another process is worth its start
MOST_PROCESSES = 8  # each takes some 300 MB


@options.command("fiprof publish site")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only-new/--all", default=True, help="Make reports of new and changed runs only (default), or of all.")
@options.catalogue_option
def command(archive: Archive, catalog: str | None, folder: Path, only_new: bool) -> None:
    """Write the archive into DIR as a static site: an index to filter, trends, and every run's report.

    It needs no server and no network. The index's path goes to standard output.
    """
    from fiprof.analysis.trend import trend
    from fiprof.model.catalogue.queries import question
    from fiprof.orchestrator import index
    from fiprof.reports import markdown_html, site

    names = archive.by_time()[::-1]  # before a site is begun: it is refused where there is no run
    before = site.begin(folder)
    now = {}
    for name in names if only_new else ():
        with contextlib.suppress(FiprofError, OSError):
            page = f"{site.REPORTS}/{name}{markdown_html.SUFFIX}"
            if name in before and before[name].state == parse.state(archive.root / name) and files.exists(folder, page):
                now[name] = before[name]
    new, failed = [name for name in names if name not in now], []
    with _made(folder, [archive.root / name for name in new]) as pages, working("publish") as tell:
        try:
            for number, name in enumerate(new, 1):
                tell(f"{number:,} of {len(new):,}: {name}")
                published, messages = next(pages)
                if messages:
                    output.message(messages)
                if isinstance(published, FiprofError):
                    failed.append(name)
                    output.message(f"fiprof: {escape_control(name)} is left out: {published}")
                else:
                    now[name] = published
            for page, metric in site.TRENDS.items():
                tell(page)
                try:
                    rows = index.answer(archive, question(metrics=(metric,)), catalog).rows
                    site.write_trend(folder, page, trend(rows, metric))
                except FiprofError as error:
                    output.message(f"fiprof: {page} is left as it was: {error}")
        finally:
            # What is made counts, also where this is interrupted: the next one goes on from there.
            kept = {**before, **now} if len(now) + len(failed) < len(names) else now
            front = site.finish(folder, archive.root, [kept[name] for name in names if name in kept], before)
    unchanged = f", {len(names) - len(new):,} unchanged" if len(names) > len(new) else ""
    output.message(f"{count(len(new) - len(failed), 'report')} made{unchanged}")
    output.data(str(front))
    if failed:
        raise FiprofError(f"{len(failed)} of {len(names)} runs could not be read", "fiprof verify says what is wrong")


@contextlib.contextmanager
def _made(folder: Path, runs: Sequence[Path]) -> Iterator[Iterator[tuple[Published | FiprofError, str]]]:
    """The pages of runs, written into a site one after the other, or many by several processes; in the runs' order:
    what each is, or why there is none, and what was said meanwhile. Raises Unwritable while they are asked for."""
    processes = min(len(os.sched_getaffinity(0)), len(runs) // PAGES_OF_A_PROCESS, MOST_PROCESSES)
    if not processes:
        yield ((_page(folder, run), "") for run in runs)
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    # This process alone answers signals; the others, which begin with the first page, inherit that.
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
    try:
        pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (os.getpid(),))
        futures = [pool.submit(_page_elsewhere, folder, run) for run in runs]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.SIGNALS)
    try:
        yield (future.result() for future in futures)
    except BrokenProcessPool as error:
        remedy = "what was made is kept: publish again, with more memory if that was short"
        raise FiprofError("a process that made reports was ended", remedy) from error
    except BaseException:
        for process in active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    """What a process that makes pages begins with. parent: with which it ends."""
    from fiprof.orchestrator import guard

    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    gc.disable()  # each page's garbage is collected after it, which takes half of the memory


def _page_elsewhere(folder: Path, run: Path) -> tuple[Published | FiprofError, str]:
    with contextlib.redirect_stderr(io.StringIO()) as messages:
        page = _page(folder, run)
    gc.collect()
    gc.freeze()  # what is left are modules and caches: not to be looked through again after each page
    return page, messages.getvalue().rstrip("\n")


def _page(folder: Path, run: Path) -> Published | FiprofError:
    """Write a run's page into a site: what it is, or why it has none. Raises Unwritable."""
    from fiprof.model.manifest import read_manifest
    from fiprof.model.run import Run
    from fiprof.reports import site

    try:
        opened = Run(run) if read_manifest(run).kind == "comparison" else options.open_run(run)[0]
        return site.write(folder, opened, parse.state(run))
    except files.Unwritable:
        raise
    except FiprofError as error:
        return error
    finally:
        parse.in_memory.close()
