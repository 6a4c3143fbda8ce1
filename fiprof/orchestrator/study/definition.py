"""A study's definition: a TOML file -> the cases of its matrix and how they are to be measured."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.errors import FiprofError
from fiprof.model import packs
from fiprof.model.settings import StudySettings, settings_of
from fiprof.workloads.case import Case

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
        from fiprof.workloads.case import short_name

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
    return Definition(
        name=name,
        title=title,
        source=source,
        cases=_ordered(case for number, block in enumerate(blocks, 1) for case in _cases(block, number)),
        settings=_settings(settings, "settings"),
        quick=quick,
        extras=_extras(_table(data, "extras")),
    )


def _cases(block: Any, number: int) -> list[Case]:
    """Every combination of a block's lists."""
    from fiprof.workloads.base import format_value
    from fiprof.workloads.case import make_cases

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


def _ordered(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Each case once; workloads in the order of their first case, a workload's cases in that of their values."""
    by_workload: dict[str, dict[Case, None]] = {}
    for case in cases:
        by_workload.setdefault(case.workload, {})[case] = None
    return tuple(
        case for group in by_workload.values() for case in sorted(group, key=lambda case: [v for _, v in case.params])
    )


def _extras(table: Mapping[str, Any]) -> dict[str, tuple[Case, ...]]:
    from fiprof.orchestrator.study.extras import extras
    from fiprof.workloads.case import parse_case

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
