"""The one door for JSON, which may be anybody's: bytes become what a schema declares, or one line names the field."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

SCHEMA = "schema"
"""Key in a field's metadata: the dataclass that a dict must fit, which stays a dict with what else stands in it."""


class MisfitError(Exception):
    """What does not fit, in one line that begins with the field.

    line: of JSON lines, from 1; 0 elsewhere.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def decode(data: bytes, kind: type[T]) -> T:
    """JSON as a type. Raises MisfitError."""
    import msgspec

    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise MisfitError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise MisfitError("it is not UTF-8") from error
    except msgspec.MsgspecError as error:
        raise MisfitError(in_words(str(error))) from error


def convert(value: object, kind: type[T], field: str = "", line: int = 0) -> T:
    """What was decoded already, as a type. field, line: where it stands. Raises MisfitError."""
    import msgspec

    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:
        raise MisfitError(in_words(str(error), field), line) from error


def check_schemas(content: DataclassInstance) -> None:
    """Hold the dicts of a dataclass against the schemas of their fields. Raises MisfitError."""
    for field in fields(content):
        if SCHEMA in field.metadata:
            convert(getattr(content, field.name), field.metadata[SCHEMA], field.name)


def objects(data: bytes) -> list[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines with their line numbers from 1; a last line cut short is left out.

    NaN and infinities are read, which Python's writer of the records has. Raises MisfitError.
    """
    import json

    lines = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise MisfitError("no JSON object", number) from error
        if isinstance(record, dict):
            found.append((number, record))
        elif record is not None:
            raise MisfitError("no JSON object", number)
    return found


def in_words(problem: str, field: str = "") -> str:
    """msgspec's «Expected `int`, got `str` - at `$.a.b`» with the field first."""
    what, _, where = problem.replace("\n", " ").rpartition(" - at `$")
    path = f"{field}{where.removesuffix('`')}".lstrip(".") if what else field
    what = re.sub(r"`([^`]*)`", r"\1", what or problem)
    return f"{path}: {what[0].lower()}{what[1:]}" if path else what
