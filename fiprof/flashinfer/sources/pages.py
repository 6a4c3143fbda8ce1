"""Where a study's kernels live in the installed library, from ``results/sources.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fiprof.analysis.study import Study
from fiprof.flashinfer.data import kernels
from fiprof.flashinfer.jit.pages import compiled
from fiprof.flashinfer.results import SOURCES, SourcePlace, SourceResults, SourceTunable
from fiprof.flashinfer.sources.topics import TOPICS
from fiprof.model.results import RESULTS, read
from fiprof.reports.pages.page import Block, Bullets, Caution, Text, bullets
from fiprof.reports.study_pages.kernel_findings import value_word
from fiprof.text import join_words

ABSENT = (
    "Where this code lives in the installed library was not recorded (results/sources.json is missing): fiprof study "
    "maps it where the library is installed."
)


def load(study: Study) -> SourceResults | None:
    """The map; None where there is none. Raises FiprofError for a damaged one."""
    path = study.folder / RESULTS / SOURCES
    return read(path, SourceResults) if path.is_file() else None


def files(study: Study) -> list[tuple[str, str, int | None]]:
    """The file, if there is one."""
    found = load(study)
    return [(SOURCES, f"where the code lives in {found.package} {found.version}".strip(), None)] if found else []


def code(study: Study, workload: str) -> tuple[Block, ...]:
    """Modules and places of a workload's kernels; nothing for a workload that is not FlashInfer's."""
    if workload not in kernels():
        return ()
    modules = compiled(study, workload)
    lead = (bullets(modules),) if modules else ()
    packages = study.info.environment.get("packages") or {}
    version = str(packages.get("flashinfer-python") or "")
    names = list(dict.fromkeys(kernel.kernel for case in study.of(workload) for kernel in case.kernels))
    return (*lead, *blocks(load(study), workload, names, version, _ran(study, workload)))


def _ran(study: Study, workload: str) -> dict[str, dict[str, set[str]]]:
    """Full name of a kernel -> option -> its values in the cases that ran it."""
    found: dict[str, dict[str, set[str]]] = {}
    for case in study.of(workload):
        for kernel in case.kernels:
            values = found.setdefault(kernel.kernel_full, {})
            for name in study.options(workload):
                if name in case.params:
                    values.setdefault(name, set()).add(value_word(name, case.params[name], case.params))
    return found


def blocks(
    found: SourceResults | None,
    workload: str,
    kernels: Sequence[str],
    measured_version: str,
    ran: Mapping[str, Mapping[str, set[str]]],
) -> tuple[Block, ...]:
    """The places of the kernels that ran, from the Python call down, and what their templates take.

    kernels: short names. measured_version: of the library that was measured; empty where it is not known. ran: full
    name of a kernel -> option of the workload -> the values, in words, of the cases that it ran in.
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
    made += _tunables(found, ran)
    located = {place.name for place in found.places if place.part == "kernel"}
    unknown = [name for name in kernels if name not in located]
    if unknown:
        made.append(
            Caution(
                f"Not found in the installed {found.package or 'library'}: {join_words(unknown)}; "
                "torch's, or generated."
            )
        )
    gone = [f"{item.topic}: {item.part} {item.name}" for item in found.missing if item.topic in shown]
    if gone:
        made.append(Caution(f"Looked for and not there in this version: {'; '.join(gone)}."))
    return tuple(made)


def topics(found: SourceResults, workload: str, kernels: Sequence[str]) -> list[str]:
    """The topics of some kernels; of a kernel that several share, those of the workload."""
    mine = {topic.name for topic in TOPICS if topic.workload == workload}
    chosen: dict[str, None] = {}
    for kernel in kernels:
        its = [place.topic for place in found.places if place.part == "kernel" and place.name == kernel]
        own = [topic for topic in its if topic in mine]
        chosen |= dict.fromkeys(own or its)
    return list(chosen)


def _tunables(found: SourceResults, ran: Mapping[str, Mapping[str, set[str]]]) -> list[Block]:
    """A list for each template that was instantiated: its parameters, with every value that ran here."""
    templates: dict[tuple[str, str], dict[SourcePlace, list[SourceTunable]]] = {}
    for item in found.tunables:
        if item.kernel in ran:
            template = (item.declared.path, _template(found, item.declared))
            templates.setdefault(template, {}).setdefault(item.declared, []).append(item)
    made: list[Block] = []
    for (_, name), parameters in templates.items():
        made.append(Text((f"What the template {name}, {_at(next(iter(parameters)))}, takes:",)))
        made.append(Bullets(tuple(Text((_parameter(items, ran),)) for items in parameters.values())))
    return made


def _template(found: SourceResults, declared: SourcePlace) -> str:
    """The kernel or the traits that a parameter belongs to: what is defined next in its file."""
    below = [
        place
        for place in found.places
        if place.part in ("kernel", "traits") and place.path == declared.path and place.line >= declared.line
    ]
    return min(below, key=lambda place: place.line).name if below else f"of {declared.topic}"


def _parameter(items: Sequence[SourceTunable], ran: Mapping[str, Mapping[str, set[str]]]) -> str:
    """``CTA_TILE_Q = 16 (GQA 32/8) and 64: rows of a tile; chosen at line 323``."""
    first = items[0]
    by_value: dict[str, list[SourceTunable]] = {}
    for item in items:
        if item.value is not None:
            by_value.setdefault(item.value, []).append(item)
    options = {value: _options(mine, ran) for value, mine in by_value.items()}
    words = []
    for value, mine in options.items():
        others = [other for key, other in options.items() if key != value]
        told = [
            word for name, word in mine.items() if len(word) == 1 and all(other.get(name) != word for other in others)
        ]
        only = ", ".join(next(iter(word)) for word in told) if others else ""
        words.append(f"{value} ({only})" if only else value)
    says = first.meaning or first.source_says
    chosen = next((item.set_at for item in items if item.set_at is not None), None)
    text = f"{first.name}{f' = {join_words(words)}' if words else ''}{f': {says}' if says else ''}"
    if chosen is None:
        return f"{text}."
    here = chosen.path == first.declared.path
    return f"{text}; chosen at {f'line {chosen.line}' if here else _at(chosen)}."


def _options(items: Sequence[SourceTunable], ran: Mapping[str, Mapping[str, set[str]]]) -> dict[str, set[str]]:
    """Option -> its values in the cases that any of these ran in."""
    found: dict[str, set[str]] = {}
    for item in items:
        for name, values in ran[item.kernel].items():
            found.setdefault(name, set()).update(values)
    return found


def _at(place: SourcePlace) -> str:
    return f"{place.path}:{place.line}"
