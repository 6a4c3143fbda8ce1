"""The files of an installed FlashInfer, and where in them something is defined."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.flashinfer.results import SourcePlace
from fiprof.flashinfer.sources.code import blanked, closing, definitions
from fiprof.flashinfer.sources.topics import Part

MODULE = "flashinfer"
CPP_GLOBS = (
    "data/include/flashinfer/*.*h",
    "data/include/flashinfer/attention/**/*.*h",
    "data/include/flashinfer/norm/*.*h",
    "data/csrc/*.cu",
    "data/csrc/*.*h",
)
PYTHON_GLOBS = ("*.py", "norm/**/*.py", "rope/**/*.py", "jit/*.py", "jit/attention/**/*.py")
LONGEST_SNIPPET = 200


@dataclass(frozen=True)
class Definition:
    """A definition in a file."""

    file: Path
    path: str
    name: str
    line: int
    text: str
    """The line."""
    position: int
    """Of the name in the file's text; -1 in Python."""

    def place(self, topic: str, part: str) -> SourcePlace:
        return SourcePlace(topic, part, self.name, self.path, self.line, self.text.strip()[:LONGEST_SNIPPET])


class Tree:
    """The files of an installed package, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpp_files = _globbed(root, CPP_GLOBS)
        self.python_files = _globbed(root, PYTHON_GLOBS)
        self._found: dict[tuple[str, Path | None], Definition | None] = {}

    def find(self, part: Part, *, near: Definition | None) -> Definition | None:
        if part.within:
            return self._words(part)
        if part.part == "variable":
            quoted = rf"""["']{part.name}["']"""
            return next(filter(None, (self._first(file, quoted, part.name) for file in self._build_files)), None)
        return self.python(part.name) if part.language == "python" else self.cpp(part.name, near=near)

    @property
    def _build_files(self) -> list[Path]:
        """The Python files that read variables of the environment, the builder's first."""
        named = [file for file in self.python_files if not file.name.startswith("__main")]
        return sorted(named, key=lambda file: (file.parent != self.root / "jit", len(file.parts), str(file)))

    def _words(self, part: Part) -> Definition | None:
        """Where a function says something: the first of those of its name that does."""
        if part.language == "python":
            found = self.python(part.within)
            return self._first(found.file, re.escape(part.name), part.name, found.line) if found else None
        for file in self.cpp_files:
            code = code_of(file) if part.within in text_of(file) else ""
            for position in definitions(code, part.within) if code else ():
                opening = code.find("{", position)
                at = text_of(file).find(part.name, opening, closing(code, opening, "{}") or len(code))
                if at >= 0:
                    return self.at(file, part.name, at)
        return None

    def _first(self, file: Path, pattern: str, name: str, line: int = 1) -> Definition | None:
        """The first line that a pattern is in, from a line on."""
        for number, content in enumerate(text_of(file).splitlines()[line - 1 :], line):
            if re.search(pattern, content):
                return Definition(file, self.relative(file), name, number, content, -1)
        return None

    def cpp(self, name: str, *, near: Definition | None = None) -> Definition | None:
        """The definition of a function or class template; among several the one in the kernel's file, or nearest."""
        key = (name, near.file if near else None)
        if key not in self._found:
            found = [each for file in self.cpp_files for each in self._cpp_in(file, name)]
            self._found[key] = min(found, key=lambda each: _distance(each.file, near), default=None)
        return self._found[key]

    def _cpp_in(self, file: Path, name: str) -> Iterator[Definition]:
        text = text_of(file)
        if name not in text:
            return
        code = code_of(file)
        for position in definitions(code, name):
            yield self.at(file, name, position)

    def at(self, file: Path, name: str, position: int) -> Definition:
        """What stands at a position of a file's text."""
        text = text_of(file)
        line = text.count("\n", 0, position) + 1
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        return Definition(file, self.relative(file), name, line, text[start : end if end >= 0 else None], position)

    def python(self, name: str) -> Definition | None:
        """The class, function or ``Class.method``; the one that the package exports comes first."""
        outer, _, inner = name.partition(".")
        exported = _exporter(self.root, outer)
        for file in ([exported] if exported else []) + self.python_files:
            if not re.search(rf"^\s*(?:class|def|async def) {re.escape(outer)}\b", text_of(file), re.MULTILINE):
                continue
            node = _last_definition(_parsed(file).body, outer)
            if node is not None and inner:
                node = _last_definition(getattr(node, "body", []), inner)
            if node is not None:
                text = text_of(file).splitlines()[node.lineno - 1]
                return Definition(file, self.relative(file), inner or outer, node.lineno, text, -1)
        return None

    def relative(self, file: Path) -> str:
        return str(Path(MODULE) / file.relative_to(self.root))


@functools.lru_cache(maxsize=512)
def code_of(file: Path) -> str:
    return blanked(text_of(file))


@functools.lru_cache(maxsize=4096)
def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _globbed(root: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in root.glob(pattern) if file.is_file()})


def _distance(file: Path, near: Definition | None) -> tuple[int, int, str]:
    """How far a definition is from the kernel's file: 0 in the same, more for every folder between.

    Among equals those for quantized elements come last, and those in headers before others.
    """
    quantized = int("fp8" in file.name or "quantization" in file.parts)
    if near is None:
        return ("csrc" in file.parts, quantized, str(file))
    common = len([None for a, b in zip(file.parts, near.file.parts, strict=False) if a == b])
    return (0 if file == near.file else 1 + len(near.file.parts) - common, quantized, str(file))


@functools.lru_cache(maxsize=256)
def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(text_of(file))
    except SyntaxError:
        # Of a later Python than this one; what it defines is then missing.
        return ast.Module([], [])


def _last_definition(body: Sequence[ast.stmt], name: str) -> ast.stmt | None:
    """The last definition of a name that is no overload; those behind an if or a try count too."""
    found: ast.stmt | None = None
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            found = _last_definition([*node.body, *node.orelse], name) or found
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
            and not any("overload" in ast.dump(decorator) for decorator in node.decorator_list)
        ):
            found = node
    return found


def _exporter(root: Path, name: str) -> Path | None:
    """The file that the package's ``__init__`` takes a name from."""
    for node in ast.walk(_parsed(root / "__init__.py") if (root / "__init__.py").exists() else ast.Module([], [])):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in [alias.name for alias in node.names]:
            base = root.joinpath(*(node.module or "").split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file():
                    return file
    return None
