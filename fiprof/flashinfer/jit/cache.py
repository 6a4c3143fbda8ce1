"""FlashInfer's JIT cache on disk: the modules in it, how each was built and how long every command of it took."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.flashinfer.results import JitModule, JitPhase

BUILD_FILE = "build.ninja"
LOG_FILE = ".ninja_log"
FLASHINFER_LOG = "flashinfer_jit.log"
MODULES_FOLDER = "cached_ops"
READABLE_LOGS = range(4, 8)
"""Versions of .ninja_log whose lines are start and end (ms), time stamp, output and hash, with tabs between."""
MS = 1e-3
LIBRARY_SUFFIX = ".so"
OBJECT_SUFFIX = ".o"
PATH_FLAGS = ("-I", "-isystem", "-L", "-ccbin", "-iquote")


@dataclasses.dataclass(frozen=True)
class Build:
    """A command that ninja ran."""

    output: str
    """As the log has it; relative to the folder that ninja ran in, or absolute."""
    begin_s: float
    """From ninja's start."""
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @property
    def links(self) -> bool:
        return self.output.endswith(LIBRARY_SUFFIX)


@dataclasses.dataclass(frozen=True)
class BuildFile:
    """What a build.ninja of FlashInfer says."""

    inputs: Mapping[str, tuple[str, ...]]
    """Output -> what it is made of, variables filled in."""
    flags: tuple[str, ...]
    """Of the CUDA compiler, as written; of the C++ compiler where there is no CUDA source."""


def read_builds(log: Path) -> tuple[Build, ...]:
    """The commands of a .ninja_log, the last one of each output, in the order of their begin; none without a log.

    Raises FiprofError for a log of another format. A last line that was cut short is left out.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FiprofError(f"{log} cannot be read: {error.strerror}") from error
    found = re.fullmatch(r"# ninja log v([0-9]{1,9})", lines[0]) if lines else None
    if found is None or int(found.group(1)) not in READABLE_LOGS:
        raise FiprofError(
            f"{log} is no ninja log that fiprof reads: it begins {lines[0][:40]!r}" if lines else f"{log} is empty",
            f"versions {READABLE_LOGS.start} to {READABLE_LOGS.stop - 1} are understood",
        )
    found_builds: dict[str, Build] = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) != 5 or not all(re.fullmatch("[0-9]{1,18}", field) for field in fields[:2]):
            continue
        found_builds[fields[3]] = Build(fields[3], int(fields[0]) * MS, int(fields[1]) * MS)
    return tuple(sorted(found_builds.values(), key=lambda build: build.begin_s))


def read_build_file(path: Path) -> BuildFile:
    """Outputs, inputs and flags of a build.ninja. Raises FiprofError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}") from error
    variables: dict[str, str] = {}
    inputs: dict[str, tuple[str, ...]] = {}
    for line in re.sub(r"\$\n\s*", "", text).splitlines():
        assignment = re.fullmatch(r"(\w+) *= *(.*)", line)
        if assignment:
            variables[assignment.group(1)] = _filled(assignment.group(2), variables)
        elif line.startswith("build "):
            outputs, _, rest = line.removeprefix("build ").partition(": ")
            words = [_unescaped(_filled(word, variables)) for word in re.split(r"(?<!\$) +", rest.partition(" | ")[0])]
            inputs[_unescaped(_filled(outputs, variables))] = tuple(filter(None, words[1:]))
    has_cuda = any(path.endswith(".cu") for paths in inputs.values() for path in paths)
    text_flags = variables.get("cuda_cflags" if has_cuda else "cflags")
    return BuildFile(inputs, tuple(_split(text_flags or "")))


def modules(base: Path) -> dict[str, JitModule]:
    """The modules in a cache folder (what FLASHINFER_WORKSPACE_BASE names) by name; compile times from ninja's logs."""
    found: dict[str, JitModule] = {}
    for folder in sorted(path for path in base.glob(f".cache/flashinfer/*/*/{MODULES_FOLDER}/*") if path.is_dir()):
        if (folder / BUILD_FILE).exists():
            found[folder.name] = _module(folder, base)
        elif objects := sorted(folder.glob(f"*{OBJECT_SUFFIX}")):
            # Kernels of CuTe DSL: an object file each, no ninja.
            for path in objects:
                name = f"{folder.name}/{path.stem}"
                found[name] = JitModule(name, path.stat().st_size, [], [], None, [])
    return found


def builds(base: Path) -> dict[str, tuple[Build, ...]]:
    """Module -> its commands in ninja's logs."""
    folders = base.glob(f".cache/flashinfer/*/*/{MODULES_FOLDER}/*/{BUILD_FILE}")
    return {path.parent.name: _builds_of(path.parent) for path in sorted(folders)}


def layout(base: Path) -> tuple[list[str], int]:
    """What lies in a cache folder: relative paths, folders ending in /; and the bytes of all files."""
    paths = sorted(base.rglob("*"))
    lines = [f"{path.relative_to(base)}/" if path.is_dir() else str(path.relative_to(base)) for path in paths]
    return lines, sum(path.stat().st_size for path in paths if path.is_file())


def said(base: Path) -> list[str]:
    """The lines of FlashInfer's own logs in a cache folder, this machine's paths shortened."""
    return [
        line.replace(f"{base}/", "")
        for path in sorted(base.glob(f".cache/flashinfer/*/*/{FLASHINFER_LOG}"))
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]


def _module(folder: Path, base: Path) -> JitModule:
    build_file = read_build_file(folder / BUILD_FILE)
    commands = _builds_of(folder)
    sources = {Path(output).name: inputs[0] for output, inputs in build_file.inputs.items() if inputs}
    begin = min((build.begin_s for build in commands), default=0.0)
    phases = [
        JitPhase(
            "link" if build.links else "compile",
            build.seconds,
            "" if build.links else relative(sources.get(Path(build.output).name, build.output), base),
            start_s=build.begin_s - begin,
        )
        for build in commands
    ]
    library = folder / f"{folder.name}{LIBRARY_SUFFIX}"
    inputs = [path for output, made_of in build_file.inputs.items() if _is_object(output) for path in made_of]
    return JitModule(
        name=folder.name,
        bytes=library.stat().st_size if library.exists() else 0,
        sources=[relative(path, base) for path in inputs if not _is_object(path)],
        flags=without_paths(build_file.flags),
        compile_s=max(build.end_s for build in commands) - begin if commands else None,
        phases=phases,
    )


def _builds_of(folder: Path) -> tuple[Build, ...]:
    """The commands of the module in a folder: their log lies there, or one for all modules beside it (0.5)."""
    own = read_builds(folder / LOG_FILE)
    shared = () if own else read_builds(folder.parent / LOG_FILE)
    return own or tuple(build for build in shared if Path(build.output).parent.name == folder.name)


def relative(path: str, base: Path) -> str:
    """A source's path without this machine's folders: from ``flashinfer/`` or from ``generated/`` on."""
    if Path(path).is_relative_to(base):
        parts = Path(path).relative_to(base).parts
        # .cache/flashinfer/VERSION/ARCH/generated/…
        return str(Path(*parts[4:])) if len(parts) > 4 else str(Path(*parts))
    _, marker, rest = path.rpartition("/flashinfer/data/")
    return f"flashinfer/data/{rest}" if marker else Path(path).name


def without_paths(flags: Iterable[str]) -> list[str]:
    """Compiler flags that say nothing of this machine: folders to look for headers in are left out."""
    kept: list[str] = []
    skip = False
    for flag in flags:
        if skip:
            skip = False
        elif flag in PATH_FLAGS:
            skip = True
        elif not flag.startswith(PATH_FLAGS) and not re.search(r"(^|=)/", flag):
            kept.append(flag)
    return kept


def _is_object(path: str) -> bool:
    return path.endswith(OBJECT_SUFFIX)


def _filled(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found.group(1) or found.group(2), ""), text)


def _unescaped(text: str) -> str:
    return re.sub(r"\$(.)", r"\1", text)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
