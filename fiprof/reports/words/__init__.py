"""The wording of every finding, once: templates in the TOML files of this folder, a table an enum.

A finding of ``Doubt.CLOSE`` is worded by ``close`` in the table ``[doubt]``; a bare enum in a sentence likewise. A
template is a ``str.format`` string over the finding's values::

    [doubt]
    close = "borderline: {margin:.0f} points from {runner_up}"

A traced number without a format is written in its own way, with its unit; a switch is ``true`` or ``false``.
``{count:launch|launches}`` is ``1 launch`` or ``3 launches``, and of several values ``launch 4`` or ``launches 4 and
8``. Several values are joined as ``a, b and c``, of many the first and how many more there are.
``{reason:@stall_meaning}`` is what the table says of a value, or its entry ``other``.

Where the wording depends on how something ended, the finding has an enum ``outcome`` among its values, and the entry
of its kind is a table with a template an outcome; ``{measured}`` in it is the entry ``measured`` of the same table.
Nothing reads a sentence back.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from fiprof.analysis.reasons import state
from fiprof.model import packs, wording
from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedText
from fiprof.model.wording import say, worded

__all__ = ["entry", "known", "phrase", "templates", "templates_of", "worded"]

FOLDER = Path(__file__).parent


@functools.cache
def templates() -> dict[str, str]:
    """``table.key`` or ``table.key.outcome`` -> template, of all files."""
    found: dict[str, str] = {}
    for path, text in _texts().items():
        for key, template in _in_file(text).items():
            assert key not in found, f"{path.name}: {key} is worded twice"
            found[key] = template
    return found


@functools.cache
def templates_of(table: str) -> dict[str, str]:
    """The templates of the files that have a table, fiprof's own or a pack's: to parse them all takes time."""
    head = re.compile(rf"^\[{table}[\].]", re.MULTILINE)
    texts = [text for text in _texts().values() if head.search(text)] or [
        text for path in packs.joined("words") if head.search(text := Path(path).read_text(encoding="utf-8"))
    ]
    return {key: each for text in texts for key, each in _in_file(text).items()}


@functools.cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.toml"))}


@functools.cache
def _in_file(text: str) -> dict[str, str]:
    return {
        f"{table}.{key}": template for table, entries in tomllib.loads(text).items() for key, template in _flat(entries)
    }


def _flat(entries: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, entry in entries.items():
        if isinstance(entry, str):
            yield key, entry
            continue
        for outcome, template in entry.items():
            yield f"{key}.{outcome}", template.replace("{measured}", entry.get("measured", "{measured}"))


def table_of(kind: type[StrEnum]) -> str:
    """The table that words an enum: ``RunWarning`` -> ``run_warning``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def phrase(key: str, /, **values: Any) -> TracedText:
    """The template ``table.key`` with these values in it; the traced numbers in them are kept."""
    return say(templates_of(key.partition(".")[0])[key], **values)


def known(key: str, /, **values: Any) -> TracedText | None:
    """The same; None where a value is."""
    return None if any(value is None for value in values.values()) else phrase(key, **values)


def entry(table: str, key: str) -> str:
    """What a table says of a name from the tools, or of any other."""
    if table in ("stall_meaning", "stall_helps"):
        return state(key).meaning if table == "stall_meaning" else state(key).helps
    return templates_of(table).get(f"{table}.{key}") or templates_of(table)[f"{table}.other"]


def _from_tables(what: Finding | StrEnum) -> str:
    """A finding or an enum whose words stand in a table."""
    if isinstance(what, StrEnum):
        return phrase(f"{table_of(type(what))}.{what.name.lower()}")
    assert isinstance(what.kind, StrEnum), what
    key = f"{table_of(type(what.kind))}.{what.kind.name.lower()}"
    if key not in templates_of(key.partition(".")[0]) and isinstance(outcome := what.values.get("outcome"), StrEnum):
        key = f"{key}.{outcome.name.lower()}"
    return phrase(key, **what.values)


wording.fallback = _from_tables
wording.entry_of = entry
