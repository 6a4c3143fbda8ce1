"""Documents in Markdown whose data stays text, and the same documents as one HTML file.

A template of ``templates/`` writes the document; every value in it is escaped unless it is :class:`Markdown` already. A
chart is a fenced block ``vega-lite``: :func:`document_html` draws it, :func:`plain_markdown` leaves its title.
"""

from __future__ import annotations

import html
import importlib.resources
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from fiprof import files
from fiprof.analysis.frames import Column
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding, numbers_of, words_of
from fiprof.reports.view import Document, Sayable, Value, View, is_number, shown_columns, word
from fiprof.text import cell_width, escape_control, escape_lines, join_words, shorten

if TYPE_CHECKING:
    import jinja2
    from jinja2.nodes import EvalContext
    from markdown_it.token import Token
    from markupsafe import Markup

SUFFIX = ".html"
CHART = "vega-lite"
CHARTS = re.compile(rf"^```{CHART} (.*)\n.*\n```$", re.MULTILINE)
PAGE_ONLY = re.compile(r"^\[//\]: # \"page\"\n.*?^\[//\]: # \"end\"\n", re.MULTILINE | re.DOTALL)
"""What stands on the page alone, between two comments: long tables to look things up in."""
CONTENTS_LEVEL = 3  # headings up to this level stand in the table of contents
FOLD_TARGET = "fold:"
FOLD = f"[]({FOLD_TARGET})"  # in a heading whose section is folded on the page; the first ones are open
OPEN_FOLDS = 2
SOURCE = "source:"  # target of a link that is no link but a number, whose title says where it comes from
LONG_TABLE = 25  # rows from which a table scrolls in a box of its own
LONGEST_TEXT, LONGEST_PROSE = 80, 400  # cells of a name, and of prose, in the Markdown of a report
WIDEST_CELL = 40  # cells to which a column of a table is padded
AROUND_PX = 60  # height of a chart's axis and legend, about


class Markdown(str):
    """Text that is Markdown already."""


def escape_markdown(value: object) -> Markdown:
    """A value as text on one line: nothing in it is obeyed as markup; Markdown as it is."""
    if isinstance(value, Markdown):
        return value
    text = html.escape(escape_control(str(value)), quote=False)
    text = re.sub(r"([\\`*\[\]|~])|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
    # What would begin a heading or a list.
    text = re.sub(r"^(#|[-+=](?=\s|$|[-=]))", r"\\\1", text)
    return Markdown(re.sub(r"^(\d+)(?=[.)]\s)", r"\1\\", text))


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


def caution(text: object) -> Markdown:
    """A sentence that makes what stands around it doubtful, in a box of its own on a page."""
    return Markdown(f"> {escape_markdown(text)}")


def paragraphs(*parts: str) -> Markdown:
    """Paragraphs, tables and code below each other, each escaped; empty ones are left out."""
    return Markdown("\n\n".join(map(escape_markdown, filter(None, parts))))


def bullets(lines: Iterable[object]) -> Markdown:
    return Markdown("\n".join(f"- {escape_markdown(line)}" for line in lines))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def markdown_table(columns: Sequence[Column], rows: Iterable[Sequence[Value]], *, whole: bool = True) -> Markdown:
    """A table; without rows, a dash. Units stand with the headings, numbers to the right. whole: shorten no text."""
    rows = list(rows)
    if not rows:
        return Markdown("–")
    cells: list[list[str]] = []
    for index, column in enumerate(columns):
        values = [row[index] for row in rows]
        texts = [each if isinstance(each, Markdown) else word(each, column.spec) for each in values]
        if not whole:
            texts = [shorten(each, LONGEST_PROSE if column.wrap else LONGEST_TEXT) for each in texts]
        shown = [re.sub(r"(?<!\\)\|", r"\|", escape_markdown(each)) for each in texts]
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


def vega_block(title: str, spec: Mapping[str, Any]) -> Markdown:
    """A chart by its Vega-Lite specification."""
    text = json.dumps(spec, separators=(",", ":")).replace("`", "\\u0060")
    return Markdown(f"```{CHART} {escape_control(title).replace('`', '')}\n{text}\n```")


def plain_markdown(markdown: str, page: str) -> str:
    """The document as plain text: of a chart its title and which page draws it; without what is for the page alone."""
    markdown = PAGE_ONLY.sub("", markdown)
    return CHARTS.sub(lambda found: f"*Chart, drawn in {page}: {escape_markdown(found[1])}*", markdown)


# Reports


def document_markdown(document: Document) -> str:
    """A report as ``--format md`` prints it."""
    parts = _warnings(document.warnings)
    for view in document.shown:
        if not view.folded:
            parts.append(view_markdown(view))
            continue
        if view.title:
            parts += [f"<details>\n<summary>{html.escape(escape_control(view.title))}</summary>", "</details>"]
        parts[-1:] = [view_markdown(replace(view, title="")), "</details>"]
    return "\n\n".join(filter(None, parts + _sentences(document.notes)))


def view_markdown(view: View) -> Markdown:
    """A table with its title and sentences, and commands."""
    title = [f"### {escape_markdown(shorten(escape_control(view.title), LONGEST_TEXT * 2))}"] if view.title else []
    table = []
    if view.rows and (shown := shown_columns(view, bars=False)):
        rows = zip(*(values for _, values in shown), strict=True)
        table.append(markdown_table([column for column, _ in shown], rows, whole=False))
    code = [code_block(view.code, "sh")] if view.code else []
    sentences = _warnings(view.warnings), _sentences(view.summary), table, _sentences(view.notes)
    return Markdown("\n\n".join([*title, *chain(*sentences), *code]))


def _sentences(texts: Iterable[Sayable]) -> list[str]:
    return [escape_markdown(words_of(text)) for text in texts]


def _warnings(texts: Iterable[Sayable]) -> list[str]:
    return [f"> **Warning:** {text}" for text in _sentences(texts)]


# Templates


@cache
def templates() -> jinja2.Environment:
    """The templates: what those of Markdown print is escaped unless it is Markdown, and in those of HTML it is text."""
    import jinja2
    from markupsafe import Markup

    @cache
    def file(*names: str) -> Markup:
        folder = importlib.resources.files("fiprof.reports").joinpath("templates")
        return Markup("".join(folder.joinpath(name).read_text("utf-8") for name in names))

    @jinja2.pass_eval_context
    def printed(context: EvalContext, value: object) -> object:
        if context.autoescape:
            return value if isinstance(value, Markup) else escape_control(str(value))
        return escape_markdown(value)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fiprof.reports"), trim_blocks=True, lstrip_blocks=True, finalize=printed,
        undefined=jinja2.StrictUndefined, autoescape=lambda name: bool(name and ".html" in name),
    )  # fmt: skip
    environment.filters.update(
        code=code_span,
        words=lambda items: Markdown(join_words([escape_markdown(item) for item in items])),
        verbatim=lambda text: Markdown(escape_control(str(text))),
    )
    environment.globals.update(
        file=file, code_block=code_block, blocks=lambda all_: paragraphs(*map(view_markdown, all_))
    )
    return environment


def render(template: str, **context: Any) -> str:
    """A document; never more than one empty line in a row."""
    text = templates().get_template(template).render(**context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


# HTML


def report_html(report: Document, title: str, *, lead: Iterable[Markdown] = (), library: str = "") -> str:
    """The tables and charts of a report as one HTML file; its numbers say where they come from. lead: paragraphs below
    the title. library: as of ``document_html``."""
    parts = [f"# {escape_markdown(title)}", *lead, *_cautions(report.warnings)]
    for view in report.shown:
        if view.title:
            heading = escape_markdown(view.title)
            parts.append(f"### {heading} {FOLD}" if view.folded else f"## {heading}")
        parts += [*_cautions(view.warnings), *map(_traced, view.summary)]
        for chart in view.charts:
            caption = f"*{escape_markdown(chart.caption)}*" if chart.caption else ""
            parts += [vega_block(chart.title, chart.spec()), caption]
        if view.rows and (shown := shown_columns(view, bars=False)):
            cells = [[_traced(value) if numbers_of(value) else value for value in values] for _, values in shown]
            parts.append(markdown_table([column for column, _ in shown], list(zip(*cells, strict=True))))
        parts += [*(f"*{_traced(note)}*" for note in view.notes), view.code and code_block(view.code, "sh")]
    parts += [f"*{_traced(note)}*" for note in report.notes]
    return document_html("\n\n".join(filter(None, parts)), title, library=library)


def _cautions(texts: Iterable[Sayable]) -> list[str]:
    return [caution(_traced(text)) for text in texts]


def _traced(what: Any) -> Markdown:
    """A sentence, or a cell, whose numbers carry their sources."""
    text = words_of(what) if isinstance(what, str | Finding) else what
    whole, done = str(text), Markdown("")
    for fact in numbers_of(text):
        before, found, whole = whole.partition(str(fact))
        source = re.sub(r'([\\"&<])', r"\\\1", escape_control(str(fact.source)))
        linked = f'[{escape_markdown(found)}]({SOURCE} "{source}")' if found else ""
        done = Markdown(f"{done}{escape_markdown(before)}{linked}")
    return Markdown(done + escape_markdown(whole))


@cache
def vega_js() -> Markup:
    """Vega, Vega-Lite and vega-embed with their notice, for a script element. Raises ImportError without vl-convert."""
    import vl_convert
    from markupsafe import Markup

    notice = "/* Vega, Vega-Lite, vega-embed: Copyright University of Washington Interactive Data Lab, BSD 3-Clause. */"
    try:
        # Making it takes two seconds.
        cached = files.cache_folder() / f"vega-{vl_convert.__version__}.js"
        if not cached.exists():
            cached.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(cached, vl_convert.javascript_bundle().encode())
        bundle = cached.read_text("utf-8")
    except (FiprofError, OSError):
        bundle = vl_convert.javascript_bundle()
    return Markup(f"{notice}\n{bundle}".replace("</script", "<\\/script"))


def document_html(markdown: str, title: str, *, library: str = "") -> str:
    """The document as one HTML file with this project's page around it: contents, search, charts, sorted tables.

    It needs no network. Links to ``*.md`` lead to ``*.html``. Markup in the text is shown, never obeyed. library: path,
    from the page, of a file that holds ``vega_js``; without it the page has the library itself, where there are charts.
    """
    body, headings = _body(markdown)
    script, missing = "", ""
    if CHARTS.search(markdown):
        try:
            script = vega_js()
        except ImportError:
            missing = "Charts are left out: vl-convert is not installed. pip install vl-convert-python draws them."
    contents = [each for each in headings if each[0] <= CONTENTS_LEVEL]
    vega = {"vega_js": script if script and not library else "", "library": library if script else ""}
    page = {"title": escape_control(title), "contents": contents, "body": body, "missing": missing}
    return templates().get_template("document.html.j2").render(**page, **vega)


def _body(markdown: str) -> tuple[Markup, list[tuple[int, str, str]]]:
    """The document's HTML, and level, anchor and text of each heading below its title. Each heading begins a section.
    Links get the pages' suffix, cells the numbers that they are sorted by."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    headings: list[tuple[int, str, str]] = []
    anchors: dict[str, int] = {}
    opened: list[tuple[int, str]] = []  # level and end of each section that is not closed yet
    folds, number, after = 0, False, ""
    for index, token in enumerate(tokens):
        shown = None
        for each in token.children or ():
            href = str(each.attrGet("href") or "")
            if href == SOURCE:
                each.tag, each.attrs, number = "span", {"class": "fact", "data-tip": str(each.attrGet("title"))}, True
            elif each.type == "link_close" and number:
                each.tag, number = "span", False
            elif each.type == "link_open" and not re.match(r"[\w+.-]+:", href):
                each.attrSet("href", re.sub(r"\.md(?=#|$)", SUFFIX, href))
        match token.type:
            case "heading_open":
                level, children = int(token.tag[1]), tokens[index + 1].children or []
                if level == 1:
                    continue
                fold = any(each.attrGet("href") == FOLD_TARGET for each in children)
                if fold:
                    tokens[index + 1].children = children = children[:-2]
                    folds += 1
                words = "".join(each.content for each in children).strip()
                anchor = slug(words)
                anchors[anchor] = anchors.get(anchor, -1) + 1
                anchor += f"-{anchors[anchor]}" if anchors[anchor] else ""
                headings.append((level, anchor, words))
                pilcrow = f'<a class="pilcrow" href="#{anchor}" aria-label="Link to this place">¶</a>'
                shown, after = f'<{token.tag} id="{anchor}">', f"{'' if fold else pilcrow}</{token.tag}>\n"
                if level <= CONTENTS_LEVEL:
                    ends = ""
                    while opened and opened[-1][0] >= level:
                        ends += opened.pop()[1]
                    opened.append((level, "</details></section>" if fold else "</section>"))
                    folded = f"<details{' open' * (folds <= OPEN_FOLDS)}><summary>" if fold else ""
                    shown = f'{ends}<section id="{anchor}">\n{folded}<{token.tag}>'
                    after += "</summary>\n" if fold else ""
            case "heading_close" if after:
                shown, after = after, ""
            case "table_open":
                rows = [each.type for each in tokens[index:]]
                long = " long" if rows[: rows.index("table_close")].count("tr_open") > LONG_TABLE else ""
                shown = f'<div class="scroll{long}" tabindex="0" role="group" aria-label="Table"><table>\n'
            case "table_close":
                shown = "</table></div>\n"
            case "blockquote_open":
                shown = '<div class="caution" role="note">\n'
            case "blockquote_close":
                shown = "</div>\n"
            case "th_open" | "td_open" if token.attrs.pop("style", ""):
                token.attrSet("class", "n")
                if token.type == "td_open":
                    found = re.fullmatch(r"([-+]?\d+(\.\d+)?)%?", tokens[index + 1].content.replace(",", ""))
                    token.attrSet("data-o", found[1] if found else "")
            case "fence":
                shown = _fence(token)
        if shown is not None:
            token.type, token.content = "html_block", shown
    ends = "".join(end for _, end in reversed(opened))
    return Markup(parser.renderer.render(tokens, parser.options, {}) + ends), headings


def _fence(token: Token) -> str:
    from markupsafe import Markup, escape

    kind, _space, title = token.info.partition(" ")
    if kind != CHART:
        return Markup('<div class="code"><pre tabindex="0"><code>{}</code></pre></div>\n').format(token.content)
    spec = json.loads(token.content)
    text = token.content.strip().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    height = int(spec.get("height", 300)) + AROUND_PX
    plot = f'<div class="plot" data-title="{escape(title)}" style="min-height: {height}px"></div>'
    caption = f"<figcaption>{escape(title)}</figcaption>"
    return f'<figure id="chart-{slug(title)}">{caption}{plot}<script type="application/json">{text}</script></figure>\n'
