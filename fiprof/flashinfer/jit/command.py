"""``fiprof jit``: what FlashInfer's just-in-time compilation costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiprof.cli import options, output
from fiprof.cli.commands.collect import print_commands
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    from fiprof.reports.view import Format


@options.command(
    "fiprof jit --kernel decode,rmsnorm --dry-run",
    options.SettingsCommand,
    settings=("gpu", "python"),
    short_help="What just-in-time compilation costs.",
)
@click.option("--kernel", "kernels", metavar="LIST", help="Workloads to measure [default: one case of each module].")
@click.option("--case", "cases", multiple=True, metavar="CASE", help="A case, e.g. 'decode[dtype=bf16]'; repeatable.")
@options.file("--out", "FILE", "Also write the results as JSON.")
@click.option(
    "--read",
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Show results that --out wrote, and stop.",
)
@click.option(
    "--cache-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True),
    help="Where the folder of the cold caches is made [default: the temporary folder].",
)
@click.option("--keep", is_flag=True, help="Leave that folder, with the logs; it is removed otherwise.")
@options.seconds("--timeout", 900.0, "Seconds that each process may take.")
@click.option("--dry-run", is_flag=True, help="Print the exact commands and start nothing.")
@options.supervision_options
@options.format_option
def command(
    kernels: str | None,
    cases: tuple[str, ...],
    out: Path | None,
    source: str | None,
    wait: bool,
    cache_dir: str | None,
    dry_run: bool,
    quiet: bool,
    format_: Format,
    **how: Any,
) -> None:
    """First calls with an empty cache, with the cache on disk, in memory; each module's compile time; how to warm up.

    Every cold call has a new cache folder: your own cache is neither read nor written. It compiles for a minute or
    two, needs a GPU and nvcc, and should be alone on the machine.
    """
    import tempfile

    from fiprof.flashinfer.data import JitResults
    from fiprof.flashinfer.jit import measure as jit
    from fiprof.model import json_file, results

    if source is not None:
        options.show(jit.document(results.read(Path(source), JitResults)), format_)
        return
    wanted = jit.choose_cases(options.split(kernels or ""), cases)
    request = jit.JitRequest(wanted, cache_dir=Path(cache_dir or tempfile.gettempdir()), **how)
    if dry_run:
        print_commands(jit.commands(request, request.cache_dir / "fiprof-jit-DATE"))
        return
    if out is not None and not out.resolve().parent.is_dir():
        raise FiprofError(f"{out}: there is no such folder", "make it first, or name another", exit_code=2)
    from fiprof.cli.progress import measuring
    from fiprof.orchestrator.run_folder import Archive

    with measuring(Archive(request.cache_dir), quiet=quiet, wait=wait) as bench:
        result = jit.measure(request, bench)
    if out is not None:
        json_file.write(out, result, "name another")
        output.message(f"written: {out}")
    options.show(jit.document(result), format_)
