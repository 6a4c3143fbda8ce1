"""fiprof's own JSON files: dataclasses with a ``schema_version``, written in full and read with clear errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.model.decode import MisfitError, check_schemas, decode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclasses.dataclass(frozen=True)
class _Version:
    schema_version: int = 0


def encode(content: DataclassInstance) -> bytes:
    """The dataclass as indented JSON, a newline at its end."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(dataclasses.asdict(content)), indent=1) + b"\n"


def read(path: Path, kind: type[T], *, newest: int, makes: str, damaged: str, remedy: str) -> T:
    """The content of a file as a dataclass.

    newest: the schema version that this fiprof writes. makes: the command that makes such a file. damaged: what it
    may be instead, to follow its path.
    Raises FiprofError where it is missing, of a later schema, or no such JSON; remedy goes with the last.
    """
    try:
        data = confined.read_bytes(path.parent, path.name)
        version = decode(data, _Version).schema_version
        if version > newest:
            raise FiprofError(
                f"{path} is of schema {version}; this fiprof reads up to {newest}",
                "read it with the fiprof that wrote it, or a later one",
            )
        content = decode(data, kind)
        check_schemas(content)
        return content
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", makes) from error
    except MisfitError as error:
        raise FiprofError(f"{path} {damaged}: {error}", remedy) from error
