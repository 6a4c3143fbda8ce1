"""Documents in Markdown whose data stays text, and the same documents as one HTML file.

A template of ``templates/`` writes the document; every value in it is escaped unless it is :class:`Markdown` already. A
chart is a fenced block ``vega-lite``: :func:`document_html` draws it, :func:`plain_markdown` leaves its title.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from fiprof.analysis.frames import Column
from fiprof.reports.view import Value, is_number, word
from fiprof.text import cell_width, escape_control, escape_lines, join_words

if TYPE_CHECKING:
    import jinja2
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

WIDEST_CELL = 40
"""Cells to which a column of a table is padded in plain text."""
CHART = "vega-lite"
CHARTS = re.compile(rf"^```{CHART} (.*)\n.*\n```$", re.MULTILINE)
PAGE_ONLY = re.compile(r"^\[//\]: # \"page\"\n.*?^\[//\]: # \"end\"\n", re.MULTILINE | re.DOTALL)
"""What stands on the page alone, between two comments: long tables to look things up in."""
CONTENTS_LEVEL = 3
"""Headings up to this level stand in the table of contents."""


class Markdown(str):
    """Text that is Markdown already."""


def escape_markdown(value: object) -> Markdown:
    """A value as text on one line: nothing in it is obeyed as markup; Markdown as it is."""
    if isinstance(value, Markdown):
        return value
    text = re.sub(r"([\\`*\[\]<>|~&])|(?<!\w)_|_(?!\w)", r"\\\g<0>", escape_control(str(value)))
    return Markdown(re.sub(r"^(#|[-+=](?=\s|$|[-=])|\d+(?=[.)]\s))", _at_line_start, text))


def _at_line_start(found: re.Match[str]) -> str:
    """What would begin a heading or a list."""
    return f"{found[1]}\\" if found[1].isdigit() else f"\\{found[1]}"


def code_span(value: object) -> Markdown:
    """A name or a command in running text, letter by letter."""
    text = escape_control(str(value))
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Markdown(f"{fence}{space}{text}{space}{fence}")


def code_block(text: str, language: str = "") -> Markdown:
    """Lines to copy, or a drawing in characters."""
    shown = escape_lines(text.strip("\n"))
    fence = "`" * max(3, max(map(len, re.findall("`+", shown)), default=0) + 1)
    return Markdown(f"{fence}{language}\n{shown}\n{fence}")


def link(text: object, href: str) -> Markdown:
    """A link; href is this package's own, never data."""
    return Markdown(f"[{escape_markdown(text)}]({href})")


def bold(text: object) -> Markdown:
    return Markdown(f"**{escape_markdown(text)}**")


def fill(template: str, /, **values: object) -> Markdown:
    """A sentence of this package with values in it, each escaped; numbers by their format."""
    return Markdown(
        template.format(**{k: v if isinstance(v, int | float) else escape_markdown(v) for k, v in values.items()})
    )


def paragraphs(*parts: str) -> Markdown:
    """Paragraphs, tables and code below each other; empty ones are left out."""
    return Markdown("\n\n".join(filter(None, parts)))


def bullets(lines: Iterable[object]) -> Markdown:
    return Markdown("\n".join(f"- {escape_markdown(line)}" for line in lines))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def markdown_table(columns: Sequence[Column], rows: Iterable[Sequence[Value]]) -> Markdown:
    """A table; without rows, a dash. Units stand with the headings, numbers to the right."""
    rows = list(rows)
    if not rows:
        return Markdown("–")
    cells: list[list[str]] = []
    for index, column in enumerate(columns):
        values = [row[index] for row in rows]
        shown: list[str] = [re.sub(r"(?<!\\)\|", r"\|", _cell(each, column)) for each in values]
        head = escape_markdown(" ".join(filter(None, (column.title, column.unit and f"({column.unit})"))))
        width = min(max(map(cell_width, (head, *shown, "---:"))), WIDEST_CELL)
        right = is_number(column, values)
        rule = "-" * (width - 1) + (":" if right else "-")
        padded = ((" " * (width - cell_width(each)), each) for each in (head, *shown))
        filled = [space + each if right else each + space for space, each in padded]
        cells.append([filled[0], rule, *filled[1:]])
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in zip(*cells, strict=True)))


def grid(heads: str, rows: Iterable[Sequence[Value]]) -> Markdown:
    """A table of any rows. heads: separated by ``;``, each with the format of its numbers after ``|``."""
    parts = (head.partition("|") for head in heads.split(";"))
    return markdown_table([Column("", head, "", spec) for head, _, spec in parts], rows)


def _cell(value: Value, column: Column) -> str:
    return value if isinstance(value, Markdown) else escape_markdown(word(value, column.spec))


def vega_block(title: str, spec: Mapping[str, Any]) -> Markdown:
    """A chart by its Vega-Lite specification."""
    text = json.dumps(spec, separators=(",", ":")).replace("`", "\\u0060")
    return Markdown(f"```{CHART} {escape_control(title).replace('`', '')}\n{text}\n```")


def plain_markdown(markdown: str, page: str) -> str:
    """The document as plain text: of a chart its title and which page draws it; without what is for the page alone."""
    markdown = PAGE_ONLY.sub("", markdown)
    return CHARTS.sub(lambda found: f"*Chart, drawn in {page}: {escape_markdown(found[1])}*", markdown)


@cache
def environment() -> jinja2.Environment:
    """The templates of documents; whatever they print is escaped."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fiprof.reports"),
        finalize=escape_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
    )
    made.filters.update(
        code=code_span,
        words=lambda items: Markdown(join_words([escape_markdown(item) for item in items])),
        verbatim=lambda text: Markdown(escape_control(str(text))),
    )
    made.globals.update(bold=bold, link=link, block=code_block)
    return made


def render(template: str, **context: Any) -> str:
    """A document; never more than one empty line in a row."""
    text = environment().get_template(template).render(**context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


# HTML


def document_html(markdown: str, title: str) -> str:
    """The document as one HTML file with this project's page around it: contents, search, charts, sorted tables.

    It needs no network. Links to ``*.md`` lead to ``*.html``. Markup in the text is shown, never obeyed.
    """
    import jinja2
    from markupsafe import Markup

    from fiprof.reports.pages import html

    parser = _parser()
    tokens = parser.parse(markdown)
    headings = list(_anchored(tokens))
    body = parser.renderer.render(tokens, parser.options, {})
    folder = resources.files("fiprof.reports").joinpath("pages/templates")
    styles = sorted(each.name for each in folder.iterdir() if each.name.endswith(".css"))
    template = jinja2.Environment(loader=jinja2.PackageLoader("fiprof.reports"), autoescape=True).get_template(
        "document.html.j2"
    )
    return template.render(
        title=escape_control(title),
        contents=[each for each in headings if each[0] <= CONTENTS_LEVEL],
        body=Markup(f"{body}{'</section>' * sum(_open_sections(headings))}"),
        css=Markup("".join(folder.joinpath(name).read_text("utf-8") for name in styles)),
        js=Markup(folder.joinpath("page.js").read_text("utf-8")),
        vega_js=html.vega_js() if CHARTS.search(markdown) else "",
    )


def _open_sections(headings: Sequence[tuple[int, str, str]]) -> list[bool]:
    """Whether a section of level 2, and one of level 3, is open at the end."""
    levels = [level for level, _, _ in headings if level in (2, 3)]
    return [bool(levels), bool(levels) and levels[-1] == 3]


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    rules: dict[str, Any] = {
        "fence": _fence,
        "heading_open": _heading_open,
        "heading_close": lambda _, tokens, i, *__: f"{tokens[i].meta['pilcrow']}</{tokens[i].tag}>\n",
        "table_open": lambda *_: '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>\n',
        "table_close": lambda *_: "</table></div>\n",
        "blockquote_open": lambda *_: '<div class="caution" role="note">\n',
        "blockquote_close": lambda *_: "</div>\n",
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


def _anchored(tokens: Sequence[Token]) -> Iterator[tuple[int, str, str]]:
    """Level, anchor and text of each heading below the title. Headings get anchors, links the pages' suffix, cells the
    numbers that they are sorted by."""
    taken: dict[str, int] = {}
    level = 0
    for index, token in enumerate(tokens):
        inner = tokens[index + 1].content if token.nesting == 1 and index + 1 < len(tokens) else ""
        for each in token.children or ():
            href = str(each.attrGet("href") or "")
            if each.type == "link_open" and not re.match(r"[\w+.-]+:", href):
                each.attrSet("href", re.sub(r"\.md(?=#|$)", ".html", href))
        if token.type == "heading_open" and token.tag != "h1":
            words = "".join(each.content for each in tokens[index + 1].children or ())
            anchor = slug(words)
            taken[anchor] = taken.get(anchor, -1) + 1
            anchor += f"-{taken[anchor]}" if taken[anchor] else ""
            now = int(token.tag[1])
            ends = (level >= now) * (1 + (level == 3 and now == 2)) if now <= CONTENTS_LEVEL else 0
            token.meta = {"anchor": anchor, "ends": ends}
            level = now if now <= CONTENTS_LEVEL else level
            yield now, anchor, words
        if token.type == "heading_close":
            anchor = tokens[index - 2].meta.get("anchor", "")
            pilcrow = f'<a class="pilcrow" href="#{anchor}" aria-label="Link to this place">¶</a>' if anchor else ""
            token.meta = {"pilcrow": pilcrow}
        if token.type in ("th_open", "td_open") and token.attrs.pop("style", ""):
            token.attrSet("class", "n")
            if token.type == "td_open":
                number = inner.replace(",", "")
                token.attrSet("data-o", number if re.fullmatch(r"[-+]?\d+(\.\d+)?", number) else "")


def _heading_open(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    if "anchor" not in token.meta:
        return f"<{token.tag}>"
    if int(token.tag[1]) > CONTENTS_LEVEL:
        return f'<{token.tag} id="{token.meta["anchor"]}">'
    return f'{"</section>" * token.meta["ends"]}<section id="{token.meta["anchor"]}">\n<{token.tag}>'


def _fence(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    from markupsafe import Markup, escape

    from fiprof.reports.pages.html import AROUND_PX

    token = tokens[index]
    kind, _space, title = token.info.partition(" ")
    if kind != CHART:
        return Markup('<div class="code"><pre tabindex="0"><code>{}</code></pre></div>\n').format(token.content)
    spec = json.loads(token.content)
    text = token.content.strip().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    height = int(spec.get("height", 300)) + AROUND_PX
    plot = f'<div class="plot" data-title="{escape(title)}" style="min-height: {height}px"></div>'
    caption = f"<figcaption>{escape(title)}</figcaption>"
    return f'<figure id="chart-{slug(title)}">{caption}{plot}<script type="application/json">{text}</script></figure>\n'
