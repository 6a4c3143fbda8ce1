"""Where workloads are found: this package's modules, other packages' entry points, a file of the user's."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import fiprof.workloads
from fiprof.errors import FiprofError
from fiprof.workloads.base import Workload

ENTRY_POINT_GROUP = "fiprof.workloads"


@functools.cache
def builtin() -> dict[str, type[Workload[Any]]]:
    """The workloads of this package, by name: every module here that defines one, no list to keep."""
    found: dict[str, type[Workload[Any]]] = {}
    for module in pkgutil.iter_modules(fiprof.workloads.__path__):
        if not module.name.startswith("_"):
            kinds = _subclasses(importlib.import_module(f"fiprof.workloads.{module.name}"))
            found |= {kind.name: kind for kind in kinds if not inspect.isabstract(kind)}
    return dict(sorted(found.items()))


@functools.cache
def available() -> dict[str, type[Workload[Any]]]:
    """The built-in workloads and those that other installed packages register.

    Raises FiprofError when a registered workload cannot be loaded or takes a name that is taken.
    """
    found = dict(builtin())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            workload = point.load()
        except Exception as error:
            raise FiprofError(
                f"workload {point.name!r} of {point.value} cannot be loaded: {error!r}",
                "fix or uninstall the package that registers it; torch is to be imported inside its methods",
            ) from error
        if point.name in found:
            raise FiprofError(f"two workloads are called {point.name!r}: {found[point.name]!r} and {workload!r}")
        found[point.name] = workload
    return found


@functools.cache
def find(name: str) -> type[Workload[Any]]:
    """The workload of a registered name or of ``path/to/file.py:name``.

    Raises FiprofError (exit status 2) when there is none, naming those that there are.
    """
    if ".py:" in name:
        return _from_file(name)
    everything = builtin()
    if name not in everything:
        everything = available()
    if name not in everything:
        raise FiprofError(
            f"there is no workload {name!r}",
            f"there are {', '.join(everything)}; one from a file is --workload path/to/file.py:name",
            exit_code=2,
        )
    return everything[name]


def canonical(name: str) -> str:
    """A workload's name with its file's path as short as it can be written, however it was typed."""
    path, colon, bare = name.rpartition(":")
    return f"{os.path.relpath(os.path.realpath(path))}:{bare}" if ".py:" in name else f"{path}{colon}{bare}"


def _from_file(spec: str) -> type[Workload[Any]]:
    path_text, _, name = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise FiprofError(f"{path}: there is no such file", "--workload takes path/to/file.py:name", exit_code=2)
    module_spec = importlib.util.spec_from_file_location(f"fiprof_workload_{path.stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    # Where dataclasses look when the file has its annotations as strings.
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise FiprofError(
            f"{path} cannot be imported: {error!r}",
            "a workload's file imports torch and its kernel inside its methods, so that any machine can read it",
        ) from error
    kinds = {kind.name: kind for kind in _subclasses(module)}
    kind = kinds.get(name)
    if kind is None:
        found = ", ".join(kinds) or "none: a subclass of fiprof.workloads.base.Workload with a name"
        raise FiprofError(f"{path} defines no workload {name!r}", f"it defines {found}", exit_code=2)
    if inspect.isabstract(kind):
        raise FiprofError(
            f"the workload {name!r} in {path} has no {' and no '.join(sorted(kind.__abstractmethods__))}",
            "a workload defines setup() and cost(); fiprof/workloads/rmsnorm.py is a short example",
        )
    return kind


def _subclasses(module: ModuleType) -> list[type[Workload[Any]]]:
    """The workloads that a module defines, unfinished ones too, as far as they have a name."""
    return [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, Workload)
        and kind.__module__ == module.__name__
        and hasattr(kind, "name")
    ]
