"""What belongs to each kernel of FlashInfer: the names to look for, from the Python call down to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fiprof.flashinfer.data import data, kernels

Language = Literal["python", "c++"]


@dataclass(frozen=True)
class Part:
    """Something to look for."""

    part: str
    """What it is, e.g. ``entry`` or ``scheduler``."""
    name: str
    """A function, a class or ``Class.method``."""
    language: Language = "c++"
    optional: bool = False
    """Versions without it are nothing to speak of."""


@dataclass(frozen=True)
class Topic:
    """What belongs to a kernel, from the Python call down to the device."""

    name: str
    kernels: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    workload: str = ""


def _topic(workload: str, table: dict[str, Any]) -> Topic:
    parts = (
        *_parts(table.get("python", ()), "python"),
        *_parts(table.get("cpp", ()), "c++"),
        *_parts(table.get("python_optional", ()), "python", optional=True),
    )
    return Topic(table["name"], tuple(table["kernels"]), parts, workload)


def _parts(words: list[str], language: Language, *, optional: bool = False) -> Iterator[Part]:
    """Of ``part name`` each; ``@name`` stands for a shared list."""
    for word in words:
        if word.startswith("@"):
            yield from _parts(data()["shared"][word[1:]], language, optional=optional)
        else:
            part, _, name = word.rpartition(" ")
            yield Part(part, name, language, optional)


TOPICS = tuple(_topic(workload, topic) for workload, table in kernels().items() for topic in table.get("sources", ()))
KERNELS = tuple(dict.fromkeys(kernel for topic in TOPICS for kernel in topic.kernels))
"""The kernels that are looked for unless others are named."""

GLOSSARY: dict[str, str] = data()["glossary"]
"""In fiprof's words, for parameters that the source names without a word."""
