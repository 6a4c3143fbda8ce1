"""Packs: what somebody knows of a family of kernels, found by entry point and never imported by name.

A pack is a module, registered under the entry-point group ``fiprof.packs``::

    [project.entry-points."fiprof.packs"]
    mine = "my_package.fiprof_pack"

It has any of the functions that docs/packs.md lists, e.g. ``studies()``, ``kernels()`` or ``claims()``; each is called
when it is wanted and only then.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from fiprof.errors import FiprofError

GROUP = "fiprof.packs"


@functools.cache
def packs() -> dict[str, ModuleType]:
    """Name -> module of every pack that is installed, in the order of their names.

    Raises FiprofError for a pack that cannot be imported.
    """
    # Commands that need no pack do not pay for looking through what is installed.
    from importlib.metadata import entry_points

    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found[point.name] = point.load()
        except Exception as error:
            raise FiprofError(
                f"the pack {point.name} ({point.value}) cannot be imported: {error}",
                "mend or uninstall the package that brings it",
            ) from error
    return found


def parts(kind: str, *arguments: Any) -> dict[str, Any]:
    """Pack -> what its function of this name returns, of the packs that have one."""
    return {name: getattr(pack, kind)(*arguments) for name, pack in packs().items() if hasattr(pack, kind)}


def merged(kind: str) -> dict[str, Any]:
    """The same as one mapping, of functions that return one each."""
    return {name: item for found in parts(kind).values() for name, item in found.items()}


def joined(kind: str, *arguments: Any) -> list[Any]:
    """The same as one list, of functions that return several of something."""
    return [item for found in parts(kind, *arguments).values() for item in found]
