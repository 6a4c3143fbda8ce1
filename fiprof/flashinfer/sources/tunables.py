"""The template parameters of a kernel, their values as profiled, and where the host code chooses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.flashinfer.results import SourceTunable
from fiprof.flashinfer.sources.code import closing, split_positions, template_arguments, template_parameters
from fiprof.flashinfer.sources.topics import GLOSSARY, Topic
from fiprof.flashinfer.sources.tree import Definition, Tree, code_of, text_of


@dataclass(frozen=True)
class _Body:
    """A function's body on the host, where template parameters are chosen."""

    definition: Definition
    begin: int
    end: int


def _bodies(tree: Tree, topic: Topic, kernel: Definition) -> list[_Body]:
    """Of the topic's dispatching functions, then of its bindings."""
    found = []
    for wanted in ("dispatch", "binding"):
        for part in topic.parts:
            definition = tree.find(part, near=kernel) if part.part == wanted else None
            if definition is not None:
                code = code_of(definition.file)
                opening = code.find("{", definition.position)
                found.append(_Body(definition, opening, closing(code, opening, "{}") or len(code)))
    return found


def tunables(tree: Tree, topic: Topic, kernel: Definition, full: str) -> Iterator[SourceTunable]:
    """The parameters of a kernel's template, and of the traits that it is given, with their values in ``full``."""
    bodies = _bodies(tree, topic, kernel)
    values = template_arguments(full, kernel.name) if fits(kernel, full) else []
    for index, (kind, name, position) in enumerate(_parameters_of(kernel)):
        value = values[index] if index < len(values) else None
        struct = _traits(tree, topic, kernel, kind, name, value)
        if struct is not None:
            inside = template_arguments(value or "", struct.name)
            chosen = _arguments_at(bodies, struct.name, inside)
            for number, (its_kind, its_name, its_position) in enumerate(_parameters_of(struct)):
                if _is_value(its_kind):
                    its_value = inside[number] if number < len(inside) else None
                    set_at = _written(tree, chosen, number, its_name) or _chosen(tree, bodies, its_name)
                    yield _tunable(tree, topic, full, struct, its_kind, its_name, its_position, its_value, set_at)
        elif _is_value(kind):
            set_at = _chosen(tree, bodies, name)
            yield _tunable(tree, topic, full, kernel, kind, name, position, value, set_at)


def fits(kernel: Definition, full: str) -> bool:
    """Whether the template arguments of a kernel's full name can be those of its definition here."""
    values, parameters = template_arguments(full, kernel.name), _parameters_of(kernel)
    return len(values) <= len(parameters) and all(
        _is_value(kind) == bool(re.fullmatch(r"-?\d+|true|false", value))
        for value, (kind, _, _) in zip(values, parameters, strict=False)
    )


def _traits(tree: Tree, topic: Topic, kernel: Definition, kind: str, name: str, value: str | None) -> Definition | None:
    """The class of constants that a template parameter stands for, if it does; the topic's where no value tells."""
    if _is_value(kind):
        return None
    given = re.match(r"(?:\w+::)*(\w*KernelTraits)<", value or "")
    named = [part.name for part in topic.parts if part.part == "traits"] if name.endswith("raits") else []
    wanted = given.group(1) if given else next(iter(named), None) if value is None else None
    return tree.cpp(wanted, near=kernel) if wanted else None


def _parameters_of(definition: Definition) -> list[tuple[str, str, int]]:
    return template_parameters(code_of(definition.file), definition.position)


def _tunable(
    tree: Tree,
    topic: Topic,
    full: str,
    owner: Definition,
    kind: str,
    name: str,
    position: int,
    value: str | None,
    set_at: Definition | None,
) -> SourceTunable:
    plain = name.rstrip("_")
    part = "traits" if owner.name.endswith("Traits") else "kernel"
    return SourceTunable(
        kernel=full,
        name=plain,
        kind=kind,
        value=value,
        meaning=GLOSSARY.get(plain, ""),
        source_says=_said(text_of(owner.file), plain, owner.position),
        declared=tree.at(owner.file, plain, position).place(topic.name, part),
        set_at=set_at.place(topic.name, "set") if set_at else None,
    )


def _chosen(tree: Tree, bodies: Sequence[_Body], name: str) -> Definition | None:
    """Where a body assigns a constant of this name, or one of FlashInfer's DISPATCH_… macros makes it."""
    plain = re.escape(name.rstrip("_"))
    patterns = (
        rf"\b(?:constexpr|const)\s+[\w:]+\s+({plain})\s*=",
        # The macro's name for it may be in capitals where the kernel's is not.
        rf"\bDISPATCH_\w+\([^;{{]*?\b((?i:{plain}))\s*,\s*\{{",
    )
    for body in bodies:
        code = code_of(body.definition.file)
        for pattern in patterns:
            found = re.compile(pattern).search(code, body.begin, body.end)
            if found is not None:
                return tree.at(body.definition.file, found.group(1), found.start(1))
    return None


@dataclass(frozen=True)
class _Arguments:
    """Template arguments as a body writes them."""

    file: Path
    spans: tuple[tuple[int, int], ...]


def _arguments_at(bodies: Sequence[_Body], name: str, values: Sequence[str]) -> _Arguments | None:
    """The arguments that a body gives to a class; of several, those whose literals are the profiled values."""
    best: tuple[int, _Arguments] | None = None
    for body in bodies:
        code = code_of(body.definition.file)
        for match in re.compile(rf"\b{re.escape(name)}\s*<").finditer(code, body.begin, body.end):
            end = closing(code, match.end() - 1, "<>")
            spans = tuple(split_positions(code, match.end(), end)) if end else ()
            literals = [(code[a:b].strip(), value) for (a, b), value in zip(spans, values, strict=False)]
            numbers = [(word, value) for word, value in literals if word.isdigit()]
            if any(word != value for word, value in numbers):
                continue
            if best is None or len(numbers) > best[0]:
                best = (len(numbers), _Arguments(body.definition.file, spans))
    return best[1] if best else None


def _written(tree: Tree, arguments: _Arguments | None, number: int, name: str) -> Definition | None:
    """Where an argument is a literal with its parameter's name beside it: ``/*CTA_KV_=*/96``."""
    if arguments is None or number >= len(arguments.spans):
        return None
    begin, end = arguments.spans[number]
    plain = name.rstrip("_")
    found = re.compile(rf"/\*\s*({plain})_?\s*=\s*\*/").search(text_of(arguments.file), begin, end)
    return tree.at(arguments.file, plain, found.start(1)) if found else None


def _said(text: str, name: str, before: int) -> str:
    """What the last ``\\tparam name …`` comment above a position says."""
    pattern = rf"[\\@]tparam\s+{re.escape(name)}_?\s+((?:(?!\*/|[\\@]\w|\n\s*\n).)+)"
    found = list(re.finditer(pattern, text[:before], re.DOTALL))
    return " ".join(re.sub(r"\n\s*(?:\*|//+)?", " ", found[-1].group(1)).split()) if found else ""


def _is_value(kind: str) -> bool:
    return not re.search(r"\b(?:typename|class|template)\b", kind)
