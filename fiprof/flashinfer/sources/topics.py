"""What belongs to each kernel of FlashInfer: the names to look for, from the Python call down to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fiprof.flashinfer.data import data, guide, kernels

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
    within: str = ""
    """The function whose body has ``name`` as its own words; empty where ``name`` is what is defined."""


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
        *(
            _choice(choice)
            for choice in guide("choices").get(workload, ())
            if table is kernels()[workload]["sources"][0]
        ),
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


def _choice(table: dict[str, Any]) -> Part:
    language: Language = "python" if table.get("python") else "c++"
    return Part("choice", table["says"], language, table.get("optional", False), table["at"])


TOPICS = tuple(_topic(workload, topic) for workload, table in kernels().items() for topic in table.get("sources", ()))
JIT = Topic(
    "just-in-time compilation",
    (),
    (
        *(Part("step", step["at"], "python", True) for step in guide("jit")["steps"]),
        *(Part("variable", name, "python", True) for name in guide("jit")["variables"]),
    ),
)
"""Of no kernel, and looked for always."""

KERNELS = tuple(dict.fromkeys(kernel for topic in TOPICS for kernel in topic.kernels))
"""The kernels that are looked for unless others are named."""

GLOSSARY: dict[str, str] = data()["glossary"]
"""In fiprof's words, for parameters that the source names without a word."""
