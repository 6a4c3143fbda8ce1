"""Where workloads are found: this package's modules, other packages' entry points, a file of the user's."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fiprof.workloads
from fiprof.errors import FiprofError
from fiprof.workloads.base import Workload

ENTRY_POINT_GROUP = "fiprof.workloads"
_FILE = re.compile(r"(.+\.py)(?::([^:]*))?")


@functools.cache
def builtin() -> dict[str, type[Workload[Any]]]:
    """The workloads of this package, by name: every module here that defines one, no list to keep."""
    workloads: dict[str, type[Workload[Any]]] = {}
    for module in pkgutil.iter_modules(fiprof.workloads.__path__):
        if not module.name.startswith("_"):
            kinds = _subclasses(importlib.import_module(f"fiprof.workloads.{module.name}"))
            workloads |= {kind.name: kind for kind in kinds if not inspect.isabstract(kind)}
    return dict(sorted(workloads.items()))


@functools.cache
def available() -> dict[str, type[Workload[Any]]]:
    """The built-in workloads and those that other installed packages register.

    Raises FiprofError when a registered workload cannot be loaded or takes a name that is taken.
    """
    from importlib.metadata import entry_points  # here: it takes as long as all else of a workload's start

    workloads = dict(builtin())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            workload = point.load()
        except Exception as error:
            what = f"workload {point.name!r} of {point.value} cannot be loaded: {error!r}"
            remedy = "fix or uninstall the package that registers it; torch is to be imported inside its methods"
            raise FiprofError(what, remedy) from error
        if point.name in workloads:
            raise FiprofError(f"two workloads are called {point.name!r}: {workloads[point.name]!r} and {workload!r}")
        workloads[point.name] = workload
    return workloads


@functools.cache
def find(name: str) -> type[Workload[Any]]:
    """The workload of a registered name, of ``path/to/file.py:name``, or of a file that has one workload.

    Raises FiprofError (exit status 2) when there is none, naming those that there are.
    """
    if file := _FILE.fullmatch(name):
        return _from_file(Path(file[1]), file[2] or "")
    everything = builtin()
    if name not in everything:
        everything = available()
    if name not in everything:
        remedy = f"there are {', '.join(everything)}; one from a file is --workload path/to/file.py"
        raise FiprofError(f"there is no workload {name!r}", remedy, exit_code=2)
    return everything[name]


def canonical(name: str) -> str:
    """A workload's name with its file's path as short as it can be written, however it was typed."""
    file = _FILE.fullmatch(name)
    return f"{os.path.relpath(os.path.realpath(file[1]))}:{find(name).name}" if file else name


class _Missing(ModuleType):
    """Stands for a module that this interpreter lacks, and for what a file takes from it at its top.

    It can be called, decorate, be a base class and an annotation; to count with it is a TypeError.
    """

    __path__: Any = ()

    def __getattr__(self, name: str) -> _Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if args and (inspect.isroutine(args[0]) or inspect.isclass(args[0])) else self

    def __or__(self, _: object) -> _Missing:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return ()


def _from_file(path: Path, name: str) -> type[Workload[Any]]:
    """The workload that a file defines; what it imports may be missing here, where it is not run."""
    if not path.is_file():
        raise FiprofError(f"{path}: there is no such file", "--workload takes path/to/file.py:name", exit_code=2)
    if (folder := os.path.realpath(path.parent)) not in sys.path:
        sys.path.append(folder)
    missing: dict[str, ModuleType] = {}
    try:
        module = _imported(path, missing)
    except Exception as error:
        raise FiprofError(
            f"{path} cannot be imported: {error!r}",
            "import it in Python to see where; what needs a GPU, or a module that is not here, goes into its methods",
        ) from error
    finally:
        for each in missing:
            del sys.modules[each]
    kinds = {kind.name: kind for kind in _subclasses(module)}
    kinds_words = ", ".join(kinds) or "none: a subclass of fiprof.workloads.base.Workload with a name"
    if not name and len(kinds) == 1:
        (name,) = kinds
    kind = kinds.get(name)
    if kind is None:
        what = f"no workload {name!r}" if name else f"{len(kinds)} workloads"
        raise FiprofError(f"{path} defines {what}", f"it defines {kinds_words}; {path}:NAME is one", exit_code=2)
    if inspect.isabstract(kind):
        what = f"the workload {kind.name!r} in {path} has no {' and no '.join(sorted(kind.__abstractmethods__))}"
        raise FiprofError(what, "a workload defines setup(); fiprof/workloads/rmsnorm.py is a short example")
    # Where it is run, they are imported before anything else, or said to be missing.
    kind.imports = (*kind.imports, *missing)
    return kind


def _imported(path: Path, missing: dict[str, ModuleType]) -> ModuleType:
    """A file as a module, with each module that is not found put into ``missing`` and stood in for."""
    module_spec = importlib.util.spec_from_file_location(f"fiprof_workload_{path.stem}", os.path.abspath(path))
    assert module_spec is not None and module_spec.loader is not None
    while True:
        module = importlib.util.module_from_spec(module_spec)
        # Where dataclasses look when the file has its annotations as strings.
        sys.modules[module_spec.name] = module
        try:
            module_spec.loader.exec_module(module)
            return module
        except ModuleNotFoundError as error:
            if not error.name or error.name in missing or error.name.startswith("fiprof"):
                raise
            sys.modules[error.name] = missing[error.name] = _Missing(error.name)


def _subclasses(module: ModuleType) -> list[type[Workload[Any]]]:
    """The workloads that a module defines, unfinished ones too, as far as they have a name."""
    own = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
    return [each for each in own if issubclass(each, Workload) and hasattr(each, "name")]
