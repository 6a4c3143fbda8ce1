"""The one door for JSON, which may be anybody's: bytes become what a schema declares, or one line names the field.

fiprof's own files are dataclasses with a ``schema_version``, written in full and read with clear errors.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from fiprof import files
from fiprof.errors import FiprofError
from fiprof.text import escape_control

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")

SCHEMA = "schema"
"""Key in a field's metadata: the type that a dict must fit, which stays a dict with what else stands in it."""


class MisfitError(Exception):
    """What does not fit, in one line that begins with the field."""


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


def convert(value: object, kind: type[T], field: str = "") -> T:
    """What was decoded already, as a type. field: where it stands. Raises MisfitError."""
    import msgspec

    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:
        raise MisfitError(in_words(str(error), field)) from error


class _Version(TypedDict, total=False):
    schema_version: int


def encode(content: DataclassInstance) -> bytes:
    """A dataclass as indented JSON, a newline at its end. A byte that is not UTF-8 stands there as ``\\xff``, a secret
    as ``***``; a field ``masked`` takes the names of those."""
    import msgspec

    from fiprof.model.redaction import masked

    plain, names = masked(msgspec.to_builtins(content))
    if "masked" in plain:
        plain["masked"] = sorted(names.union(plain["masked"] or ()))
    try:
        data = msgspec.json.encode(plain)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_as_utf8(plain))
    return msgspec.json.format(data, indent=1) + b"\n"


def write(path: Path, content: DataclassInstance, elsewhere: str = files.ANOTHER_ARCHIVE) -> None:
    """Write a file of fiprof's own, whole or not at all. Raises FiprofError, see :func:`fiprof.files.file_errors`."""
    files.write_whole(path, encode(content), elsewhere)


def _as_utf8(value: Any) -> Any:
    if isinstance(value, dict):
        return {_as_utf8(key): _as_utf8(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_utf8(each) for each in value]
    return re.sub("[\ud800-\udfff]", lambda found: escape_control(found[0]), value) if isinstance(value, str) else value


def read(path: Path, kind: type[D], remedy: str, *, makes: str = "", damaged: str = "is damaged or not fiprof's") -> D:
    """The content of a file of fiprof's own as a dataclass.

    kind: its ``schema_version`` is the newest that this fiprof reads. makes: the command that makes such a file.
    damaged: what it may be instead, to follow its path.
    remedy: where it is no such JSON.
    """
    try:
        data, newest = files.read_bytes(path.parent, path.name), kind.schema_version  # type: ignore[attr-defined]
        try:
            content = decode(data, kind)
            version = content.schema_version  # type: ignore[attr-defined]
        except MisfitError:
            if (version := decode(data, _Version).get("schema_version", 0)) <= newest:
                raise
        if version > newest:
            what = f"{path} is of schema {version}; this fiprof reads up to {newest}"
            raise FiprofError(what, "read it with the fiprof that wrote it, or a later one")
        for field in dataclasses.fields(content):
            if SCHEMA in field.metadata:
                convert(getattr(content, field.name), field.metadata[SCHEMA], field.name)
        return content
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", makes) from error
    except MisfitError as error:
        raise FiprofError(f"{path} {damaged}: {error}", remedy) from error


def in_words(problem: str, field: str = "") -> str:
    """msgspec's "Expected `int`, got `str` - at `$.a.b`" with the field first."""
    what, _, where = problem.replace("\n", " ").rpartition(" - at `$")
    path = f"{field}{where.removesuffix('`')}".lstrip(".") if what else field
    what = re.sub(r"`([^`]*)`", r"\1", what or problem)
    return f"{path}: {what[0].lower()}{what[1:]}" if path else what
