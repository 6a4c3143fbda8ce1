"""Text that is shown: other people's names as text and never obeyed, shortened in the middle, joined as words."""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Self

LONGEST_KERNEL = 60  # cells of a kernel's name in running text


def csv_rows(path: Path) -> dict[str, dict[str, str]]:
    """The rows of a CSV file of this package by their first cell: heading -> cell."""
    with path.open(encoding="utf-8", newline="") as file:
        return {next(iter(row.values())): row for row in csv.DictReader(file)}


def escape_control(text: str) -> str:
    """The text with every control, format and broken character as its escape: ``\\x1b``, of a byte ``\\xff``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii").replace("\\udc", "\\x")
        for char in text
    )


def escape_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(escape_control, text.split("\n")))


_FORMULA = re.compile(r"[=@]|[-+](?![-\w.]*$)")
"""How a cell begins that a spreadsheet computes; a number with a sign and an option's name are none that does harm."""


def csv_cell(text: str) -> str:
    """Text that a spreadsheet shows and never computes: an apostrophe before what would be a formula."""
    escaped = escape_control(text)
    return f"'{escaped}" if _FORMULA.match(escaped.lstrip()) else escaped


def shorten(text: str, cells: int) -> str:
    """The text in at most so many terminal cells, its middle left out: names differ at both ends."""
    if len(text) * 2 > cells and cell_width(text) > cells:
        head = _take(text, cells // 2)
        tail = _take(text[::-1], cells - 1 - cell_width(head))[::-1]
        return f"{head}…{tail}"
    return text


_NARROW = frozenset("–…×█▏▎▍▌▋▊▉")
"""One cell each, as what stands before U+0300: rich, which knows all others, takes 10 ms to import."""


def cell_width(text: str) -> int:
    """Terminal cells of a printable text."""
    if text.isascii() or all(char < "\u0300" or char in _NARROW for char in text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


_BREAKS = re.compile(r"(\s+|(?<=,)(?=[^\s\d]))")
"""Where a line may end: at spaces, and between the parameters of a case."""
_COMMAND = ": fiprof compare --measure "
INDENT = "  "  # before the second and every further line of what is wrapped


def wrap(text: str, width: int, indent: str = INDENT) -> list[str]:
    """The text in lines of at most so many cells, those after the first indented; a command at its end is one line."""
    before, command, words = text.partition(_COMMAND)
    if words:
        return [*wrap(before + ":", width, indent), indent + command.removeprefix(": ") + words]
    if cell_width(text) == len(text):
        import textwrap

        wrapper = textwrap.TextWrapper(width, subsequent_indent=indent, break_on_hyphens=False)
        wrapper.wordsep_simple_re = _BREAKS
        return wrapper.wrap(text)
    from rich.console import Console
    from rich.text import Text

    lines = Text(text).wrap(Console(force_jupyter=False), width - len(indent))
    return [indent * bool(number) + line.plain.rstrip() for number, line in enumerate(lines)]


def _take(text: Iterable[str], cells: int) -> str:
    """As many leading characters as fit."""
    from rich.cells import cell_len

    characters = []
    for char in text:
        # A variation selector may make the one before it wider.
        cells -= 1 if char == "\ufe0f" else cell_len(char)
        if cells < 0:
            break
        characters.append(char)
    return "".join(characters)


def count(n: int, one: str, many: str = "") -> str:
    """``1 cell``, ``2 cells``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def figure(value: object, spec: str) -> str:
    """A number, or anything else, in a format; three digits of a thousand or more are all its digits."""
    thousands = spec.endswith(".3g") and abs(float(str(value))) >= 999.5
    return format(value, ("+" if "+" in spec else "") + ",.0f" if thousands else spec)


def join_words(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def short_kernel(name: str) -> str:
    """A kernel's name as text, short enough for a sentence."""
    return shorten(escape_control(name), LONGEST_KERNEL)


_FUNCTOR = re.compile(
    r"\b(?!(?:Binary|AUnary|BUnary|Unary)Functor)"
    r"(?:CUDAFunctor\w*_(\w+)|(\w+)Functor|(\w+?)_kernel(?:_cuda|_impl)?(?=\()|(\w+)Ops(?=<)|(\w+)_and_transform)"
)


def functor(kernel_full: str) -> str:
    """What a kernel of PyTorch's applies, from its template arguments: ``Mul`` of
    ``elementwise_kernel<128, 4, …BinaryFunctor<…, MulFunctor<float>>>``; empty where nothing tells.
    """
    found = _FUNCTOR.search(kernel_full.partition("<")[2])
    return next(filter(None, found.groups()), "") if found else ""


def kernel_detail(kernel_full: str) -> str:
    """What tells a kernel from others of its short name: its functor; of CUTLASS's, all of which are called
    ``Kernel2``, its name; empty where nothing tells.
    """
    found = re.search(r"<(cutlass_\w+)", kernel_full)
    return functor(kernel_full) or (found[1] if found else "")


def detailed_kernel(kernel: str, kernel_full: str) -> str:
    """A kernel's short name with what tells it from others of that name."""
    detail = kernel_detail(kernel_full)
    return f"{kernel} ({detail})" if detail else kernel


@functools.lru_cache(1 << 14)
def kernel_identity(kernel: str, kernel_full: str | None) -> str:
    """What is the same in nsys's and in ncu's name of a kernel, which abbreviate its template arguments differently:
    the short name, the functor and, where no lambda is among them, the numbers.
    """
    arguments = (kernel_full or "").partition(f"{kernel}<")[2].partition(">(")[0]
    numbers = [] if "lambda" in arguments else re.findall(r"(?<!\w)\d+", arguments)
    return f"{kernel} {functor(kernel_full or '')} {','.join(numbers)}"


# Numbers in sentences


def number(value: float) -> str:
    """Three figures, e.g. ``1.42``, ``14.2``, ``142``, ``1,420``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    value = float(f"{value:.2e}")  # 0.9998 is 1.00
    decimals = min(max(2 - math.floor(math.log10(abs(value))), 0), 4)
    return f"{value:,.{decimals}f}"


def duration(us: float) -> str:
    """``12.3 µs``, ``1.23 ms``, ``12.3 s``."""
    return _scaled(us, ((1e6, "s"), (1e3, "ms"), (0.0, "µs")))


def byte_words(count: float) -> str:
    """``1.08 GB``, decimal units."""
    return f"{count:,.0f} bytes" if count < 1e3 else _scaled(count, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")))


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    scale, unit = next(each for each in units if value >= each[0] or not each[0])
    return f"{number(value / (scale or 1.0))} {unit}"


def span(values: Iterable[float], spec: str) -> str:
    """``1.02 to 3.91``; one value alone where both ends are written alike. spec: of format()."""
    ends = sorted(values)
    return " to ".join(dict.fromkeys(format(each, spec) for each in (ends[0], ends[-1])))


def spread(values: Sequence[float], spec: str = "") -> str:
    """``1.02 to 3.91, median 3.4``; one value alone where there is one.

    spec: of format(); without one, three figures.
    """
    from statistics import median

    three = (min(values), median(values), max(values))
    low, middle, high = (format(value, spec) if spec else number(value) for value in three)
    return low if low == high else f"{low} to {high}, median {middle}"


class Wording(StrEnum):
    """An enum whose members have their words beside them: ``DRAM = "dram", "DRAM"``."""

    words: str
    also: list[str]  # names that go with it, of enums whose members have a third text

    def __new__(cls, value: str, words: str | None = None, also: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.words, member.also = value if words is None else words, also.split()
        return member
