"""A study as declared: a TOML file -> the cases of its matrix, in batches, and what packs measure beyond them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiprof.errors import FiprofError
from fiprof.model import packs
from fiprof.model.manifest import CaseEntry
from fiprof.model.settings import StudySettings, settings_of
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name

if TYPE_CHECKING:
    from fiprof.orchestrator.process import Supervisor
    from fiprof.orchestrator.run_session import Progress

EXAMPLE = "docs/study.md says what stands in one"
KEYS = ("name", "title", "extras", "settings", "quick", "cases")
FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class Definition:
    """A study as declared."""

    name: str
    title: str
    source: str
    """The packaged study's name, or the file."""
    cases: tuple[Case, ...]
    """Every case once, in the declared order of the workloads, those of a workload in the order of its parameters."""
    settings: StudySettings
    quick: bool
    extras: Mapping[str, tuple[Case, ...]]
    """What a pack measures beyond the cases, e.g. ``jit`` -> for which cases."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names as the cases have them, in their order."""
        return tuple(dict.fromkeys(case.workload for case in self.cases))

    def only(self, words: Sequence[str]) -> tuple[Case, ...]:
        """The cases of the named workloads; all without names. Raises FiprofError (exit status 2) for one unknown."""
        names = [*(short_name(workload) for workload in self.workloads), *self.extras]
        if unknown := [word for word in words if word not in names]:
            raise FiprofError(
                f"the study {self.name} has no {', '.join(unknown)}",
                f"--only takes of {', '.join(names)}",
                exit_code=2,
            )
        return tuple(case for case in self.cases if not words or short_name(case.workload) in words)


def packaged() -> dict[str, Path | Mapping[str, Any]]:
    """The studies that the installed packs bring, by name: files, or what stands in one."""
    return dict(sorted(packs.merged("studies").items()))


def load(text: str, *, quick: bool = False) -> Definition:
    """The study that a packaged name or a path of a TOML file means.

    quick: with the settings of its table ``quick`` over the others.
    Raises FiprofError (exit status 2) where there is none, or naming what is wrong in it.
    """
    known = packaged()
    path = Path(text)
    if text not in known and not path.is_file():
        raise FiprofError(
            f"there is no study {text}",
            f"the installed packs bring {', '.join(known)}; one of your own is a TOML file: {EXAMPLE}",
            exit_code=2,
        )
    source = known.get(text, path)
    try:
        data = tomllib.loads(source.read_bytes().decode()) if isinstance(source, Path) else source
        return _definition(data, text, quick=quick)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FiprofError(f"{text} is not TOML: {error}", EXAMPLE, exit_code=2) from error
    except FiprofError as error:
        raise FiprofError(f"{text}: {error.message}", error.remedy or EXAMPLE, exit_code=2) from error


def _definition(data: Mapping[str, Any], source: str, *, quick: bool) -> Definition:
    _known(data, KEYS, "a study")
    name = data.get("name")
    if not isinstance(name, str) or not FOLDER_NAME.fullmatch(name):
        raise FiprofError("name is missing, or has other characters than a-z, 0-9, _ and -")
    title = data.get("title", name)
    if not isinstance(title, str):
        raise FiprofError("title is no text")
    blocks = data.get("cases")
    if not isinstance(blocks, list) or not blocks:
        raise FiprofError("it has no [[cases]]")
    settings = {**_table(data, "settings"), **(_table(data, "quick") if quick else {})}
    _settings(_table(data, "quick"), "quick")
    by_workload: dict[str, dict[Case, None]] = {}
    for number, block in enumerate(blocks, 1):
        for case in _cases(block, number):
            by_workload.setdefault(case.workload, {})[case] = None
    return Definition(
        name=name,
        title=title,
        source=source,
        cases=tuple(case for group in by_workload.values() for case in sorted(group, key=_values)),
        settings=_settings(settings, "settings"),
        quick=quick,
        extras=_extras(_table(data, "extras")),
    )


def _values(case: Case) -> list[Any]:
    return [value for _, value in case.params]


def _cases(block: Any, number: int) -> list[Case]:
    """Every combination of a block's lists."""
    where = f"[[cases]] {number}"
    if not isinstance(block, dict) or not isinstance(block.get("workload"), str):
        raise FiprofError(f"{where} has no workload")
    words: dict[str, list[str]] = {}
    for key, value in block.items():
        values = value if isinstance(value, list) else [value]
        if key == "workload":
            continue
        if not values or not all(isinstance(each, bool | int | float | str) for each in values):
            raise FiprofError(f"{where}: {key} is neither a value nor a list of values")
        words[key] = [format_value(each) for each in values]
    try:
        return make_cases(block["workload"], words)
    except FiprofError as error:
        raise FiprofError(f"{where}: {error.message}", error.remedy, exit_code=2) from error


def _extras(table: Mapping[str, Any]) -> dict[str, tuple[Case, ...]]:
    if table:
        _known(table, list(extras()), "extras")
    for name, texts in table.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise FiprofError(f"extras: {name} is no list of cases, each like rmsnorm[rows=32]")
    return {name: tuple(map(parse_case, texts)) for name, texts in table.items()}


def _settings(given: Mapping[str, Any], where: str) -> StudySettings:
    import msgspec

    declared = settings_of(StudySettings)
    _known(given, [each.name for each in declared], where)
    for each in declared:
        if each.name in given and each.choices and (problem := each.problem(given[each.name])):
            raise FiprofError(f"[{where}]: {each.name} {problem}")
    try:
        settings = msgspec.convert(dict(given), StudySettings)
    except msgspec.ValidationError as error:
        raise FiprofError(f"[{where}]: {error}") from error
    for each in declared:
        if problem := each.problem(getattr(settings, each.name)):
            raise FiprofError(f"[{where}]: {each.name} {problem}")
    return settings


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise FiprofError(f"{key} is no table")
    return table


def _known(data: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    if unknown := [key for key in data if key not in keys]:
        raise FiprofError(f"{where} has no {', '.join(unknown)}; it has {', '.join(keys)}")


# Batches

FIXED_BYTES = 2 << 30
"""CUDA's context, the kernels' code, a library's workspaces of 128 MiB, fragments."""

CHECK_COPIES = 7
"""Times that an output takes while it is compared: itself, the float32 reference and its parts, their difference."""


@dataclass(frozen=True)
class Plan:
    """A session."""

    batches: tuple[tuple[Case, ...], ...]
    skipped: Mapping[str, str]
    """Case id -> why it is not measured on this GPU."""
    done: Mapping[str, str]
    """Case id -> the run that holds it, or why it failed."""

    @property
    def cases(self) -> int:
        """Still to be measured."""
        return sum(map(len, self.batches))


def make_plan(
    cases: Sequence[Case],
    entries: Mapping[str, CaseEntry],
    *,
    done: Mapping[str, str],
    free_bytes: int | None,
    batch_cases: int,
) -> Plan:
    """entries: case id -> its cost. free_bytes: of the GPU's memory; None where the driver does not say."""
    skipped = {}
    for case in cases:
        needed = needed_bytes(entries[case.id])
        if case.id not in done and free_bytes is not None and needed > free_bytes:
            skipped[case.id] = (
                f"does not fit: it needs some {needed / 2**30:.1f} GiB of device memory, "
                f"{free_bytes / 2**30:.1f} GiB are free"
            )
    left = [case for case in cases if case.id not in done and case.id not in skipped]
    return Plan(
        tuple(batches(left, batch_cases)),
        skipped,
        {case.id: done[case.id] for case in cases if case.id in done},
    )


def needed_bytes(entry: CaseEntry) -> int:
    """Device memory that a case takes, roughly: inputs, outputs, the comparison with the reference, FIXED_BYTES."""
    return entry.bytes_read + CHECK_COPIES * entry.bytes_written + FIXED_BYTES


def batches(cases: Iterable[Case], size: int) -> list[tuple[Case, ...]]:
    """The cases in groups that share processes, each of at most ``size``, in their order.

    A workload's cases stay together where they fit, and are split evenly where not; small workloads share a group up
    to half of that number.
    """
    by_workload: dict[str, list[Case]] = {}
    for case in cases:
        by_workload.setdefault(case.workload, []).append(case)
    found: list[tuple[Case, ...]] = []
    for group in by_workload.values():
        parts = -(-len(group) // size)
        for part in range(parts):
            piece = tuple(group[part * len(group) // parts : (part + 1) * len(group) // parts])
            if found and len(found[-1]) + len(piece) <= size // 2:
                found[-1] += piece
            else:
                found.append(piece)
    return found


def label(batch: Sequence[Case]) -> str:
    """``prefill (64)``; of several workloads ``rmsnorm (10), rope (12)``."""
    counts = Counter(short_name(case.workload) for case in batch)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


# Beyond the cases


@dataclass(frozen=True)
class ExtraRequest:
    """What a pack is to measure for a study."""

    study: str
    cases: tuple[Case, ...]
    """As the study's table ``extras`` names them."""
    results: Path
    """The folder for its results file; it may not exist yet."""
    python: str
    """The workloads' interpreter."""
    gpu: int | None
    """As nvidia-smi counts; None for the first that is visible."""
    wait: bool
    """Wait while another fiprof profiles on the GPU."""
    progress: Progress
    supervisor: Supervisor


Extra = Callable[[ExtraRequest], None]
"""Measures, and writes its results file; does nothing where that is there."""


@dataclass(frozen=True)
class Measured:
    """A session's end: the results are written."""

    study: str
    results: Path
    """The folder of the results."""
    kernels: tuple[str, ...]
    """Full names of the kernels that ran, those of earlier sessions too."""
    python: str
    progress: Progress


def extras() -> dict[str, Extra]:
    """Name -> what measures it, of all packs."""
    return packs.merged("extras")


def after_measuring(measured: Measured) -> None:
    """Let every pack do its part."""
    packs.parts("after_measuring", measured)
