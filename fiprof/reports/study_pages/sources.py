"""Where a study's kernels live in the installed library, from ``results/sources.json``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fiprof.parsers.results import SourcePlace, SourceResults, SourceTunable, read
from fiprof.reports.pages.page import Block, Bullets, Caution, Text
from fiprof.reports.study_pages.ratio import listed

SOURCES = "sources.json"

ABSENT = (
    "Where this code lives in the installed library was not recorded (results/sources.json is missing): fiprof study "
    "maps it where the library is installed."
)


def load(results: Path) -> SourceResults | None:
    """The map of a study's ``results`` folder; None where it has none.

    Raises FiprofError for a damaged one.
    """
    path = results / SOURCES
    return read(path, SourceResults) if path.is_file() else None


def blocks(
    found: SourceResults | None, workload: str, kernels: Sequence[str], measured_version: str
) -> tuple[Block, ...]:
    """The places of the kernels that ran, from the Python call down, and what their templates take.

    kernels: short names. measured_version: of the library that was measured; empty where it is not known.
    """
    if found is None:
        return (Caution(ABSENT),)
    made: list[Block] = []
    if found.version and measured_version and found.version != measured_version:
        made.append(
            Caution(f"These lines are those of {found.package} {found.version}; measured was {measured_version}.")
        )
    shown = topics(found, workload, kernels)
    for topic in shown:
        places = [place for place in found.places if place.topic == topic]
        made.append(Text((f"{topic}, from the call down ({found.package} {found.version}):",)))
        made.append(Bullets(tuple(Text((f"{place.part}: {place.name}, {_at(place)}",)) for place in places)))
    if tunables := _tunables(found, shown, kernels):
        made += [Text(("What their templates take, and where the host chooses it:",)), Bullets(tunables)]
    located = {place.name for place in found.places if place.part == "kernel"}
    unknown = [name for name in kernels if name not in located]
    if unknown:
        made.append(
            Caution(
                f"Not found in the installed {found.package or 'library'}: {listed(unknown)}; torch's, or generated."
            )
        )
    gone = [text for text in found.missing if text.partition(":")[0] in shown]
    if gone:
        made.append(Caution(f"Looked for and not there in this version: {'; '.join(gone)}."))
    return tuple(made)


def topics(found: SourceResults, workload: str, kernels: Sequence[str]) -> list[str]:
    """The topics of some kernels; of a kernel that several share, those that the workload is named in."""
    chosen: dict[str, None] = {}
    for kernel in kernels:
        its = [place.topic for place in found.places if place.part == "kernel" and place.name == kernel]
        own = [topic for topic in its if topic.split()[0] == workload]
        chosen |= dict.fromkeys(own or its)
    return list(chosen)


def _tunables(found: SourceResults, shown: Sequence[str], kernels: Sequence[str]) -> tuple[Text, ...]:
    """One line for each parameter, with every value that it had in the kernels that ran."""
    groups: dict[SourcePlace, list[SourceTunable]] = {}
    for item in found.tunables:
        if item.declared.topic in shown or any(re.search(rf"\b{re.escape(name)}\b", item.kernel) for name in kernels):
            groups.setdefault(item.declared, []).append(item)
    lines = []
    for declared, items in groups.items():
        values = list(dict.fromkeys(item.value for item in items if item.value is not None))
        first = items[0]
        says = first.meaning or first.source_says
        chosen = next((item.set_at for item in items if item.set_at is not None), None)
        words = f"{first.name}{f' = {listed(values)} here' if values else ''}{f': {says}' if says else ''}"
        where = f"declared at {_at(declared)}" + (f", chosen at {_at(chosen)}" if chosen else "")
        lines.append(Text((f"{words}; {where}",)))
    return tuple(lines)


def _at(place: SourcePlace) -> str:
    return f"{place.path}:{place.line}"
