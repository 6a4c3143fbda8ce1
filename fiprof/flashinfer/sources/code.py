"""Finding definitions and templates in C++ text, by its brackets alone."""

from __future__ import annotations

import re
from collections.abc import Iterator


def definitions(code: str, name: str) -> list[int]:
    """Positions of a name where a function or a class of it is defined, not called or declared.

    code: C++ without comments and strings, see :func:`blanked`.
    """
    found = [
        match.start(1)
        for match in re.finditer(rf"\b(?:struct|class)\s+({re.escape(name)})\b(?=\s*(?:final\s*)?[:{{])", code)
    ]
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", code):
        before = code[: match.start()].rstrip()
        last_word = re.search(r"(\w+)$", before[-80:])
        if not before or (before[-1] not in ")>&*" and last_word is None):
            continue
        if last_word is not None and last_word.group(1) in _NO_TYPES:
            continue
        end = closing(code, match.end() - 1, "()")
        if end is not None and re.match(r"\s*(?:const|noexcept|override|final|\s)*\{", code[end + 1 :][:200]):
            found.append(match.start())
    return sorted(found)


_NO_TYPES = frozenset({"return", "new", "else", "case", "throw", "do", "delete", "co_return", "and", "or", "not"})


def template_parameters(code: str, position: int) -> list[tuple[str, str, int]]:
    """Kind, name and position of each parameter of the template that a definition at a position has; none without."""
    start = code.rfind("template", 0, position)
    opening = code.find("<", start) if start >= 0 else -1
    end = closing(code, opening, "<>") if 0 <= opening < position else None
    if end is None or end > position or re.search(r"[;{}]", code[end + 1 : position]):
        return []
    found = []
    for begin, stop in split_positions(code, opening + 1, end):
        declaration = re.sub(r"=.*", "", code[begin:stop], flags=re.DOTALL)
        match = re.search(r"(\w+)\s*$", declaration)
        if match is not None:
            found.append((" ".join(declaration[: match.start()].split()), match.group(1), begin + match.start(1)))
    return found


def template_arguments(full: str, name: str) -> list[str]:
    """The template arguments that a kernel's full name gives to ``name``, without casts as in ``(unsigned int)8``."""
    match = re.search(rf"\b{re.escape(name)}\s*<", full)
    end = closing(full, match.end() - 1, "<>") if match else None
    if match is None or end is None:
        return []
    return [
        re.sub(r"^\([\w: ]+\)\s*(?=[\w-])", "", full[begin:stop].strip())
        for begin, stop in split_positions(full, match.end(), end)
    ]


def closing(text: str, opening: int, pair: str) -> int | None:
    """Where the bracket at a position closes; inside angle brackets, round ones are skipped."""
    depth, round_depth = 0, 0
    for position in range(opening, len(text)):
        char = text[position]
        if pair == "<>" and char in "()":
            round_depth += 1 if char == "(" else -1
        elif round_depth:
            continue
        elif char == pair[0]:
            depth += 1
        elif char == pair[1]:
            depth -= 1
            if depth == 0:
                return position
    return None


def split_positions(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part between commas that stand in no bracket."""
    depth, start = 0, begin
    for position in range(begin, end):
        char = text[position]
        if char in "<([{":
            depth += 1
        elif char in ">)]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield start, position
            start = position + 1
    if text[start:end].strip():
        yield start, end


_BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)


def blanked(text: str) -> str:
    """C++ with spaces for comments, strings and preprocessor lines; positions and lines stay."""
    return _BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
