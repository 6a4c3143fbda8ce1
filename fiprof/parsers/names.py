"""Kernel names as people say them, and NVTX ranges that are declared to be cases by their names."""

import codecs
import functools
import re
from collections.abc import Sequence

FIPROF_DOMAIN = "fiprof"  # the runner's own ranges lie in it
NO_NAME = "(no name)"
_TOKEN = re.compile(
    r"(?P<operator>\boperator\s*(?:\(\)|\[\]|[-+*/%^&|~!=<>,]+))"
    r"|(?P<scope>::)|(?P<arrow>->)|(?P<open>[<({\[])|(?P<close>[>)}\]])|(?P<space>\s+)|[^\s<>(){}\[\]:-]+|."
)
_EATEN = re.compile(r"(?<=\w<)unnamed>::|(?<![<\w])unnamed>::")
"""What ncu leaves of ``at::native::<unnamed>::``: without its bracket, or with that of the template before it."""


def printable(text: str) -> str:
    """The text with every control, format and broken character as a space: safe on a terminal and in UTF-8."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def as_utf8(data: bytes) -> bytes:
    """Text as valid UTF-8 (U+FFFD for what was none) with plain line ends; UTF-16 is what PowerShell's ``>`` writes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode()
    elif not data.isascii():
        data = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").encode()
    return re.sub(rb"\r+\n", b"\n", data) if b"\r\n" in data else data


def short_name(demangled: str) -> str:
    """A function's bare name: no return type, namespaces, parameters or template arguments.

    ``void ns::Kernel<(int)4, T>(float *)`` -> ``Kernel``. A lambda's body is ``operator()``, as C++ calls it; a
    lambda itself stays ``{lambda(int)#1}``. What is no C++ name (mangled, Triton's, HTML) comes out as well as it
    goes, printable; NO_NAME for a blank. Never raises; time is linear in the length.
    """
    text = _EATEN.sub("", printable(demangled).strip())
    opened: list[str] = []  # brackets not yet closed
    word: list[str] = []  # what was read of the current word
    before: list[str] = []  # the word before it, in the same scope
    naming = True  # until the parameters of the current scope
    for token in _TOKEN.finditer(text):
        kind, part = token.lastgroup, token.group()
        outermost = opened[0] if opened else ""
        if kind == "open":
            opened.append(part)
        elif kind == "close":
            # A ``>`` inside parentheses is a comparison, a ``<`` left open by them was one.
            if part != ">":
                while opened and opened.pop() == "<":
                    pass
            elif opened and opened[-1] == "<":
                opened.pop()
        if outermost:
            if naming and outermost in "{[":
                word.append(part)
        elif kind == "scope":
            word, before, naming = [], [], True
        elif naming and part == "(":
            naming = False
        elif naming and kind == "space":
            word, before = [], word or before
        elif naming and part != "<":
            word.append("".join(part.split()))
    return "".join(word or before).lstrip("*&").strip() or text or NO_NAME


def case_of(domain: str, name: str, declared: Sequence[str]) -> str | None:
    """The declared range that a range is one of; None for none.

    domain: empty for NVTX's default one. declared: each ``NAME`` or ``DOMAIN@NAME``, with ``*`` for any text.
    """
    names = (name, f"{domain}@{name}")
    return next((each for each in declared if any(map(_pattern(each).fullmatch, names))), None)


@functools.cache
def _pattern(declared: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, declared.split("*"))), re.DOTALL)
