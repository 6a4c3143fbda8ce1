"""A page as Markdown that reads well as it is: in a terminal, in an issue, in an e-mail; at most 100 columns.

Tables and charts stand in fenced blocks, in aligned characters. Only a word of a command, a link's target and an
anchor may be longer than a line: cut, they would be wrong.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from fiprof.model.wording import worded
from fiprof.reports.pages.page import (
    Block,
    Bullets,
    Caution,
    Chart,
    Code,
    Diagram,
    Link,
    Observation,
    Page,
    PageLink,
    Quoted,
    RowLink,
    Section,
    Table,
    Text,
    target,
)
from fiprof.reports.view import View, shown_columns
from fiprof.reports.writers.markdown import markdown_text
from fiprof.reports.writers.terminal import table_lines
from fiprof.text import cell_width, escape_control, shorten

WIDTH = 100
"""Columns."""
APPENDIX_ROWS = 10
"""Of a table in the appendix."""
LONGEST_WORD = 90
"""Cells of a word in running text; longer ones are kernels' names, whose middle is left out."""
BAR_CELLS = 8
"""Of a small bar."""
SUFFIX = ".md"


def render(page: Page, *, whole: str = "") -> str:
    """The page as text, with a newline at its end.

    whole: a relative path to where tables are in full, e.g. ``report.html``; named below tables that are cut.
    """
    blocks = [f"# {_heading(page.title)}"]
    blocks += [_paragraph(_words(page.subtitle))] if page.subtitle else []
    blocks += ["\n".join(_facts(page.facts))] if page.facts else []
    blocks += [_paragraph(" · ".join(map(_inline, page.links)))] if page.links else []
    writer = _Writer(whole)
    for section in page.sections:
        blocks += writer.section(section, level=2)
    return "\n\n".join(blocks) + "\n"


@dataclasses.dataclass(frozen=True)
class _Writer:
    whole: str

    def section(self, section: Section, level: int) -> list[str]:
        title = _heading(section.title)
        blocks = [] if slug(section.title) == section.anchor else _anchor(section.anchor)
        blocks.append(f"{'#' * level} {title}")
        for block in section.blocks:
            blocks += self.block(block, level + 1)
        for part in section.sections:
            blocks += self.section(part, min(level + 1, 6))
        return blocks

    def block(self, block: Block, level: int) -> list[str]:
        match block:
            case Text():
                return [_paragraph(_joined(block))]
            case Bullets():
                return ["\n".join(_wrapped(_joined(item), "- ", "  ") for item in block.items)]
            case Caution():
                return [_wrapped(f"**Caution:** {_words(block.text)}", "> ", "> ")]
            case Table():
                return self.table(block, level)
            case Chart() | Diagram():
                return _chart(block, level)
            case Code():
                return [_fenced(_code_lines(block), block.language)]
            case Observation():
                return _finding(block)

    def table(self, table: Table, level: int) -> list[str]:
        view = table.view
        blocks = _anchor(table.anchor)
        blocks += [f"{'#' * min(level, 6)} {_heading(view.title)}"] if view.title else []
        blocks += [_wrapped(f"**Caution:** {_words(worded(text))}", "> ", "> ") for text in view.warnings]
        blocks += [_paragraph(_words(worded(text))) for text in view.summary]
        rows = view.rows[:APPENDIX_ROWS] if table.appendix and not table.uncut else view.rows
        cut = dataclasses.replace(view, rows=rows)
        blocks += [_fenced(lines) for lines in table_lines(cut, width=WIDTH) if rows]
        if links := list(dict.fromkeys(_inline(link) for link in _links(cut))):
            blocks.append(_paragraph(" · ".join(links)))
        if len(rows) < len(view.rows):
            rest = f"The first {len(rows)} of {len(view.rows):,} rows"
            where = f"; all of them are in {_link(self.whole, self.whole)}." if self.whole else "."
            blocks.append(_paragraph(rest + where))
        return blocks + [_paragraph(_words(worded(text))) for text in view.notes]


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading, where no other has the same."""
    return re.sub(r"[^\w\- ]", "", escape_control(title).lower()).replace(" ", "-")


# Blocks


def _facts(facts: Sequence[tuple[str, str]]) -> Iterable[str]:
    for name, value in facts:
        yield _wrapped(f"**{_words(name)}:** {_words(value)}", "- ", "  ")


def _chart(chart: Chart | Diagram, level: int) -> list[str]:
    blocks = [*_anchor(chart.anchor), f"{'#' * min(level, 6)} {_heading(chart.title)}"]
    if chart.text:
        blocks.append(_fenced([escape_control(line) for line in chart.text.splitlines()]))
    return blocks + ([_paragraph(_words(chart.caption))] if chart.caption else [])


def _finding(finding: Observation) -> list[str]:
    blocks = [*_anchor(finding.anchor), _paragraph(f"**{_words(finding.observation)}**")]
    if finding.evidence:
        blocks.append("\n".join(_wrapped(_words(text), "- ", "  ") for text in finding.evidence))
    blocks.append(_paragraph(f"→ {_words(finding.implication)}"))
    return blocks + ([_paragraph(f"How sure: {_words(finding.sure)}")] if finding.sure else [])


def _links(view: View) -> Iterable[Link]:
    """Those in a table's cells that lead out of the page; fenced text has none. To rows: the tables that have them."""
    for _, values in shown_columns(view, bars=False):
        for value in values:
            if isinstance(value, RowLink):
                yield PageLink(value.href.rpartition("#")[2], value.href)
            elif isinstance(value, Link) and not value.href.startswith("#"):
                yield value


def _anchor(anchor: str) -> list[str]:
    return [f'<a id="{_attribute(anchor)}"></a>'] if anchor else []


def _fenced(lines: Sequence[str], language: str = "") -> str:
    text = "\n".join(lines)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language if language != 'text' else ''}\n{text}\n{fence}"


def _code_lines(code: Code) -> list[str]:
    """Long commands go on after a backslash, between words; other text is cut at the width."""
    lines = []
    for line in (escape_control(line) for line in code.text.splitlines()):
        if cell_width(line) <= WIDTH:
            lines.append(line)
        elif code.language == "sh":
            lines += _command_lines(line)
        else:
            lines += _pieces(line)
    return lines


def _pieces(line: str) -> list[str]:
    """A line of a tool's output, cut where it must be."""
    pieces, used = [""], 0
    for char in line:
        width = cell_width(char)
        if used + width > WIDTH:
            pieces.append("")
            used = 0
        pieces[-1] += char
        used += width
    return pieces


def _command_lines(line: str) -> list[str]:
    words = re.findall(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+|["']\S*""", line)
    if line.lstrip().startswith("#"):
        first, *rest = _lines(line.split(), WIDTH - len("# "))
        return [first, *(f"# {part}" for part in rest)]
    if " ".join(words) != line.strip():
        return [line]
    lines, current = [], words[0]
    for word in words[1:]:
        if cell_width(current) + cell_width(word) + len("  \\") > WIDTH:
            lines.append(f"{current} \\")
            current = f"    {word}"
        else:
            current += f" {word}"
    return [*lines, current]


# Words


def _joined(text: Text) -> str:
    return "".join(map(_inline, text.parts))


def _inline(part: str) -> str:
    if isinstance(part, Link):
        return _link(part, target(part, SUFFIX))
    return _code(part) if isinstance(part, Quoted) else _words(part)


def _code(text: str) -> str:
    """A code span, whose marks are longer than any run of them inside."""
    shown = shorten(" ".join(escape_control(text).split()), LONGEST_WORD)
    mark = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{mark}{space}{shown}{space}{mark}" if shown else ""


def _link(text: str, href: str) -> str:
    from urllib.parse import quote

    return f"[{_words(text)}]({quote(escape_control(href), safe='/#:?&=%._-~+,@')})"


def _words(text: str) -> str:
    """Text as GitHub shows it as it is; words that are too long for a line have their middle left out."""
    shown = escape_control(" ".join(text.splitlines()) if not text.isprintable() else text)
    return "".join(_word(part) for part in re.split(r"( +)", shown))


def _word(text: str) -> str:
    return _cut(text, LONGEST_WORD)


def _heading(title: str) -> str:
    """On one line."""
    return _cut(escape_control(title), WIDTH - len("###### "))


def _cut(text: str, cells: int) -> str:
    """The text as Markdown of at most so many cells."""
    if len(text) <= cells and text.isascii() and text.isalnum():
        return text
    kept = cells
    while cell_width(escaped := markdown_text(shorten(text, kept))) > cells:
        kept -= 1
    return escaped


def _paragraph(text: str) -> str:
    return _wrapped(text, "", "")


_STARTS = re.compile(r"^(\d{0,9})(?=([.)]|[-+]|#{1,6})(?: |$)|[-=]+$)")
"""What would make a wrapped line a list, a heading or a rule."""


def _wrapped(text: str, first: str, following: str) -> str:
    """Lines of at most WIDTH; text is Markdown already."""
    lines = _lines(text.split(), WIDTH - len(following) - 1)
    safe = [_STARTS.sub(r"\1\\", line) for line in lines]
    return "\n".join((following if number else first) + line for number, line in enumerate(safe))


def _lines(words: Sequence[str], cells: int) -> list[str]:
    """The words in lines of at most so many terminal cells; a word that is wider has its own."""
    lines, used = [""], 0
    for word in words:
        width = cell_width(word)
        if used and used + 1 + width > cells:
            lines.append("")
            used = 0
        lines[-1] += f" {word}" if used else word
        used += width + bool(used)
    return lines


def _attribute(text: str) -> str:
    import html

    return html.escape(escape_control(text))
