"""Where a study's kernels live in the installed library, from ``results/sources.json``."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.study import Study
from fiprof.flashinfer.data import guide
from fiprof.flashinfer.results import SOURCES, SourcePlace, SourceResults
from fiprof.flashinfer.source_map import JIT, TOPICS
from fiprof.model.results import RESULTS, read
from fiprof.reports.pages.page import Block, Caution, Code, Table
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase


def load(study: Study) -> SourceResults | None:
    """The map; None where there is none. Raises FiprofError for a damaged one."""
    path = study.folder / RESULTS / SOURCES
    return read(path, SourceResults) if path.is_file() else None


def files(study: Study) -> list[tuple[str, str, int | None]]:
    """The file, if there is one."""
    found = load(study)
    return [(SOURCES, f"where the code lives in {found.package} {found.version}".strip(), None)] if found else []


def at(place: SourcePlace) -> str:
    """``scheduler.cuh:694``; the tree of the code has the folders."""
    return f"{place.path.rpartition('/')[2]}:{place.line}"


# Choices


def choices(found: SourceResults | None, workload: str) -> list[Block]:
    """Which kernel or template runs when, as far as the installed version has the words that decide it."""
    places = {place.name: place for place in found.places if place.part == "choice"} if found else {}
    rows = [
        (each["when"], each["runs"], at(places[each["says"]]))
        for each in guide("choices").get(workload, ())
        if each["says"] in places
    ]
    columns = (Column("when", "when", wrap=True), Column("runs", "what runs", wrap=True), Column("at", "decided at"))
    return [Table(View(columns, tuple(rows)), f"choices-{workload}-table")] if rows else []


# Code


def code(study: Study, workload: str, found: SourceResults | None) -> list[Block]:
    """The tree of the files that the kernels of a workload come from, with the lines of their definitions."""
    if found is None:
        return [Caution(phrase("source.absent"))]
    made: list[Block] = []
    packages = study.info.environment.get("packages") or {}
    measured = str(packages.get("flashinfer-python") or "")
    if found.version and measured and found.version != measured:
        made.append(Caution(phrase("source.other", package=found.package, version=found.version, measured=measured)))
    names = list(dict.fromkeys(kernel.kernel for case in study.of(workload) for kernel in case.kernels))
    shown = topics(found, workload, names)
    made.append(Code(tree(found, shown, workload), "text"))
    located = {place.name for place in found.places if place.part == "kernel"}
    if unknown := [name for name in names if name not in located]:
        made.append(Caution(phrase("source.unknown", package=found.package or "library", names=unknown)))
    if gone := [f"{item.topic}: {item.part} {item.name}" for item in found.missing if item.topic in shown]:
        made.append(Caution(phrase("source.missing", what="; ".join(gone))))
    return made


def tree(found: SourceResults, shown: Sequence[str], workload: str = "") -> str:
    """Files, from the Python call down, and in each line, part and name; with the topic where one alone has it."""
    files: dict[str, dict[tuple[int, str, str], list[str]]] = {}
    for place in found.places:
        if place.topic in shown:
            files.setdefault(place.path, {}).setdefault((place.line, place.part, place.name), []).append(place.topic)
    lines = [f"{found.package} {found.version}".strip()]
    for number, (path, parts) in enumerate(files.items(), 1):
        last = number == len(files)
        lines.append(f"{'└─' if last else '├─'} {path}")
        for (line, part, name), of in sorted(parts.items()):
            topic = of[0].removeprefix(workload).strip() if len(of) == 1 < len(shown) and part != "choice" else ""
            only = f"  ({topic})" if topic else ""
            lines.append(f"{'  ' if last else '│ '} {line:>4}  {part:<9}  {name}{only}")
    return "\n".join(lines)


def topics(found: SourceResults, workload: str, kernels: Sequence[str]) -> list[str]:
    """The topics of some kernels; of a kernel that several share, those of the workload."""
    mine = {topic for topic, (owner, _) in TOPICS.items() if owner == workload}
    chosen: dict[str, None] = {}
    for kernel in kernels:
        its = [place.topic for place in found.places if place.part == "kernel" and place.name == kernel]
        own = [topic for topic in its if topic in mine]
        chosen |= dict.fromkeys(own or its)
    return list(chosen)


def jit_places(found: SourceResults | None, part: str) -> dict[str, SourcePlace]:
    """Name -> place of the steps, or of the variables, of building a module."""
    return {place.name: place for place in found.places if (place.topic, place.part) == (JIT, part)} if found else {}
