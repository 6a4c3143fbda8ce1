"""Importing: a run folder of files that nsys and ncu left elsewhere, read as a collected run's are."""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fiprof import clock, files
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import layout, packing, tables
from fiprof.model.layout import numbered
from fiprof.model.manifest import Action, FileKind, ImportedFile
from fiprof.orchestrator import parse
from fiprof.orchestrator.commands import ExportCommands
from fiprof.orchestrator.run_folder import file_entry
from fiprof.orchestrator.run_session import Bench, FinishedRun, RunSession
from fiprof.orchestrator.tools import Tool, find_tool
from fiprof.parsers.recognize import profiled_gpu, recognize, tool_version, traced_gpus

COPY_BYTES = 1 << 22
EXPORT_S = 4 * 3600.0  # seconds that a tool may take to export a report: gigabytes take it many minutes
PACKED_BYTES = 1 << 28  # the most that is packed: it takes a second
NAMES: dict[FileKind, str] = {
    "nsys-rep": layout.NSYS_REPORT,
    "nsys-sqlite": layout.NSYS_SQLITE,
    "ncu-rep": layout.NCU_REPORT,
    "ncu-raw": layout.NCU_PAGES["raw"],
    "ncu-details": layout.NCU_PAGES["details"],
    "ncu-source": layout.NCU_PAGES["source"],
}
"""Kind of a file -> its name in the run folder."""


class Incoming(NamedTuple):
    """A file with its place in the run."""

    source: Path
    kind: FileKind
    number: int  # traces are counted, and so are ncu's reports, with their pages

    @property
    def path(self) -> str:
        return numbered(NAMES[self.kind], self.number)


def import_files(
    given: Sequence[Path], bench: Bench, *, ranges: Sequence[str] = (), name: str = "", link: bool = False
) -> FinishedRun:
    """Make a run of files of nsys and ncu, which are left as they are.

    ranges: NVTX ranges that are cases, ``NAME`` or ``DOMAIN@NAME``; each time is an iteration. name: what the folder's
    name ends in; empty for the first file's. link: read the files where they lie, instead of copying them.
    Pages of ncu go together in the order given: the first raw page with the first details page, the second ones, ….
    Raises FiprofError before anything is made where a file is none of theirs, or cannot be read here; what goes wrong
    later stands in the result and in the manifest.
    """
    incoming: list[Incoming] = []
    for path in given:
        kind = recognize(path)
        if any(path.samefile(each.source) for each in incoming):
            raise FiprofError(f"{path} is named twice", "name each file once", exit_code=2)
        alike = ("nsys-rep", "nsys-sqlite") if kind.startswith("nsys") else (kind,)
        incoming.append(Incoming(path, kind, sum(each.kind in alike for each in incoming)))
    reports = Counter(each.number for each in incoming if each.kind.startswith("ncu"))
    for each in incoming:
        if each.kind == "ncu-source" and reports[each.number] == 1:
            what = f"{each.source} is ncu's source page, which does not say what its launches measured"
            raise FiprofError(what, "import it together with the raw or the details page of the same report")
    tools = _tools(incoming)
    existing = next(path for path in (bench.archive.root, *bench.archive.root.absolute().parents) if path.exists())
    sizes = [(each.source.stat().st_size, each.kind) for each in incoming]
    # Clearing an SQLite keeps its old pages in a journal, of one file at a time.
    journal = max((size for size, kind in sizes if kind == "nsys-sqlite"), default=0)
    needed, free = sum(size for size, _ in sizes) + journal, shutil.disk_usage(existing).free
    if needed > free and not link:
        named = ", ".join(str(path) for path in given)
        what = f"{named}: copies and clearing them take {needed / 1e9:,.1f} GB"
        raise FiprofError(f"{what}, {existing} has {free / 1e9:,.1f}", f"take --link, or {files.ANOTHER_ARCHIVE}")
    label = re.sub("[^A-Za-z0-9._]", "-", name or given[0].stem)
    folder = bench.archive.create(label.strip("-._")[:60] or "imported", ranges=list(ranges))
    importing = _Importing(folder, bench)
    with importing.ending_in_order():
        importing.read(incoming, tools, link=link)
    return importing.finish()


def _tools(incoming: Sequence[Incoming]) -> dict[str, Tool]:
    """The tools that the reports need. Raises FiprofError where nothing here reads a report."""
    import importlib.util

    kinds = {each.kind: each.source for each in incoming}
    tools = {}
    if source := kinds.get("nsys-rep"):
        try:
            tools["nsys"] = find_tool("nsys")
        except FiprofError as error:
            wrote, remedy = _written_by(source)
            what = f"{source} is a report of nsys, {wrote}, which nsys alone reads, and {error.message}"
            raise FiprofError(what, f"{error.remedy}; {remedy}") from error
    if source := kinds.get("ncu-rep"):
        try:
            tools["ncu"] = find_tool("ncu")
        except FiprofError as error:
            if importlib.util.find_spec("ncu_report") is None:
                what = f"{source} is a report of ncu; {error.message}, nor is the package ncu-report installed"
                remedy = "pip install ncu-report; or import its page: ncu --import REPORT --csv --page raw"
                raise FiprofError(what, remedy) from error
    return tools


def _written_by(report: Path) -> tuple[str, str]:
    """Which nsys wrote a report, and which reads it."""
    by = tool_version(report, "nsys-rep")
    version, reads = (
        (f"version {by}", f"nsys {by} or later") if by else ("of a version that it does not say", "a later nsys")
    )
    return version, f"{reads} reads it; or import its SQLite, made where that is: nsys export --type sqlite REPORT"


class _Importing(RunSession):
    """An import under way: what goes wrong with one file is noted, and the others are read all the same."""

    def read(self, incoming: Sequence[Incoming], tools: Mapping[str, Tool], *, link: bool) -> None:
        with self.collecting():
            for each in incoming:
                with self.progress.step(f"{'reading' if link else 'copying'} {each.source.name}"):
                    self.folder.add(self._bring(each, link=link))
            commands = ExportCommands(self.path, tools, EXPORT_S)
            for each in incoming:
                report = each.source.absolute() if link else self.path / each.path
                with self.collecting():
                    if each.kind == "nsys-rep":
                        try:
                            self.export(commands.trace_export(each.number, report))
                        except Interrupted:
                            raise
                        except FiprofError as error:
                            wrote, remedy = _written_by(each.source)
                            nsys = f"nsys {tools['nsys'].version_text}"
                            what = f"{nsys} cannot export {each.source}, {wrote}: {error.message}"
                            raise FiprofError(what, remedy) from error
                    elif each.kind == "ncu-rep" and "ncu" in tools:
                        self._export_pages(
                            commands, each, report, {one.kind for one in incoming if one.number == each.number}
                        )
            if parse.numbers(self.path, layout.NSYS_SQLITE):
                with self.collecting():
                    self.trace_tables()
                    rows = tables.read(self.tables, "diagnostics", ["severity", "text"]).to_pylist()
                    for text in dict.fromkeys(row["text"] for row in rows if row["severity"] in ("Warning", "Error")):
                        self.folder.warn(f"nsys: {text}")
            if parse.profiles(self.path) and not self.interrupted:
                with self.collecting():
                    self.profile_tables()
                    gpu = profiled_gpu(self.tables)
                    if gpu and "gpu" not in self.folder.manifest.environment:
                        self.folder.note(environment={"gpu": gpu})
            self.declare_cases()
            written = {each.tool_name: each.tool for each in self.folder.manifest.imported if each.tool}
            self.folder.note(environment={"tools": written})
        self.check()

    def traced_gpu(self) -> dict[str, Any]:
        """What the GPUs have in common that ran kernels: a trace of elsewhere is all that tells of them."""
        used = tables.read(self.tables, "kernels", ["device"])["device"].unique().to_pylist()
        gpus: dict[int, dict[str, Any]] = {}
        for number in parse.numbers(self.path, layout.NSYS_SQLITE):
            with packing.unpacked(self.path, numbered(layout.NSYS_SQLITE, number)) as sqlite:
                gpus |= traced_gpus(sqlite)
        ran = [gpus[each] for each in sorted(gpus.keys() & used)] or (list(gpus.values()) if len(gpus) == 1 else [])
        first = ran[0] if ran else {}
        return {name: value for name, value in first.items() if all(gpu[name] == value for gpu in ran)}

    def pack(self) -> None:
        """Leave large files plain: a trace takes as long to pack as to read. ``fiprof pack`` does it."""
        if sum(file.bytes for file in self.folder.manifest.files.values()) <= PACKED_BYTES:
            super().pack()

    def _bring(self, each: Incoming, *, link: bool) -> Action:
        """Copy a file into the run, or note where it lies; and clear a copied SQLite of environments.

        Raises Interrupted.
        """
        begin, started, copy = time.monotonic(), clock.now_text(), self.path / each.path
        with contextlib.ExitStack() as held:
            try:
                source = held.enter_context(open(each.source, "rb", buffering=0))
            except OSError as error:
                raise FiprofError(f"{each.source} cannot be read: {error.strerror}") from error
            with files.file_errors(copy):
                out = None if link else held.enter_context(files.replacing(self.path, each.path))
                size, whole, digest = 0, os.fstat(source.fileno()).st_size, hashlib.sha256()
                while block := source.read(COPY_BYTES):
                    if self.executor.stopping.is_set():
                        raise Interrupted
                    if out:
                        out.write(block)
                    digest.update(block)
                    size += len(block)
                    self.progress.detail(each.source.name, f"{size / 1e6:,.0f} of {whole / 1e6:,.0f} MB")
        if not link:
            self.scrub(copy)
        tool = tool_version(each.source, each.kind)
        imported = ImportedFile(each.path, each.kind, str(each.source.absolute()), size, digest.hexdigest(), link, tool)
        self.folder.note(imported=[imported])
        argv = ["fiprof", "import", *(["--link"] if link else []), str(each.source)]
        entries, duration_s = [] if link else [file_entry(self.path, copy)], round(time.monotonic() - begin, 3)
        return Action("import", argv, {}, started, duration_s, 0, "ok", None, files=entries)

    def _export_pages(self, commands: ExportCommands, each: Incoming, report: Path, given: set[FileKind]) -> None:
        """The pages that were not imported beside it. Where ncu cannot, the package ncu-report reads the report."""
        for page, name in layout.NCU_PAGES.items():
            if f"ncu-{page}" in given:
                continue
            try:
                self.export(commands.page(page, each.number, report))
            except Interrupted:
                raise
            except FiprofError as error:
                (self.path / numbered(name, each.number)).unlink(missing_ok=True)
                ncu = f"ncu {commands.tools['ncu'].version_text}"
                self.folder.warn(f"{ncu} exported no {page} page of {each.source}: {error.message}")
                if page == "raw":
                    return
