"""A page as one HTML file: it needs no network, follows the reader's colour scheme, prints, and fits a phone.

jinja2 writes it, Vega-Lite draws its charts; the library is in the page where there are charts. Without it, or without
JavaScript, each chart has its form in characters and the tables stay tables.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup

from fiprof.model.provenance import TracedNumber, numbers_of
from fiprof.model.wording import say, worded
from fiprof.reports.pages.page import Chart, Link, Page, Quoted, Section, Table, target
from fiprof.reports.view import Column, Value, is_number, shown_columns, word
from fiprof.text import escape_control, escape_lines, shorten

SUFFIX = ".html"
LONGEST_CELL = 120
"""Characters of a name in a table; its title has all of them."""
LONG_TABLE = 25
"""Rows from which a table scrolls in a box of its own."""
AROUND_PX = 60
"""Height of a chart's axis and legend, about."""
CONTENTS_DEPTH = 2
"""Levels of sections in the table of contents."""
TEMPLATES = importlib.resources.files("fiprof.reports.pages").joinpath("templates")


def render(page: Page, library: str = "") -> str:
    """The page as a whole HTML file. library: path, from the page, of a file that holds ``vega_js``; empty for none."""
    environment = _environment()
    figures, missing = _figures(page)
    text: str = environment.get_template("page.html.j2").render(
        page=page,
        figures=figures,
        missing=missing,
        vega_js=vega_js() if figures and not library else "",
        library=library if figures else "",
        css=Markup("".join(each.read_text("utf-8") for each in _files(".css"))),
        js=Markup(TEMPLATES.joinpath("page.js").read_text("utf-8")),
    )
    return text


def _files(suffix: str) -> list[Any]:
    return sorted((each for each in TEMPLATES.iterdir() if each.name.endswith(suffix)), key=lambda each: each.name)


class Sources:
    """Where the numbers of a page come from, each once; an element names its source by its place here."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, source: object) -> int | None:
        """The place of a source in words; None for none."""
        text = escape_control(str(source or ""))
        return self._places.setdefault(text, len(self._places)) if text else None

    def json(self) -> Markup:
        """All of them, for a script element."""
        return _script_json(json.dumps(list(self._places), ensure_ascii=False, separators=(",", ":")))


# What the template calls


def _grid(table: Table, sources: Sources) -> dict[str, Any]:
    """A table, ready to be written: its headings, its rows of cells, and how it is shown."""
    view = table.view
    shown = shown_columns(view, bars=True)
    indices = [index for index, column in enumerate(view.columns) if column.title]
    told = [[sources(row[index]) for row in table.sources] or [None] * len(view.rows) for index in indices]
    columns = [_cells(*item, words) for item, words in zip(shown, told, strict=True)]
    return {
        "heads": [(column, is_number(column, values)) for column, values in shown],
        "rows": list(zip(*columns, strict=True)),
        "anchors": table.row_anchors or [""] * len(view.rows),
        "long": len(view.rows) > LONG_TABLE,
    }


def _cells(column: Column, values: Sequence[Value], sources: Sequence[int | None]) -> Iterable[dict[str, Any]]:
    """``title``: all of a name that is cut. ``order``: what to sort a number by, in full precision; empty for none that
    was measured, None for text."""
    number = is_number(column, values)
    for value, source in zip(values, sources, strict=True):
        text = word(value, column.spec)
        order = _order(value)
        yield {
            "text": text if column.wrap else shorten(text, LONGEST_CELL),
            "code": isinstance(value, Quoted),
            "href": _href(value),
            "title": text if len(text) > LONGEST_CELL and not column.wrap else "",
            "sentence": value if numbers_of(value) else None,
            "source": source,
            "number": number,
            "order": order if number and order != text else None,
            "bar_pct": 100 * min(max(float(order or 0), 0.0), 1.0) if column.bar else None,
        }


def _order(value: Value) -> str:
    if isinstance(value, int | float) and math.isfinite(value):
        return f"{value:.7g}"
    return ""


@dataclass(frozen=True)
class _Piece:
    """A part of a sentence."""

    text: str
    source: int | None = None
    """Place of the number's source."""
    href: str = ""
    code: bool = False


def _pieces(parts: Iterable[str | TracedNumber], sources: Sources) -> Iterator[_Piece]:
    """A sentence in pieces: links, code, numbers with their sources, and the text between."""
    for part in parts:
        at, text = 0, str(part)
        for fact in numbers_of(part):
            start = text.find(str(fact), at)
            if start >= 0:
                yield _Piece(escape_control(text[at:start]))
                at = start + len(str(fact))
                yield _Piece(escape_control(text[start:at]), sources(fact.source))
        href = _href(part) if isinstance(part, Link) else ""
        yield _Piece(escape_control(text[at:]), href=href, code=isinstance(part, Quoted))


def _href(value: Value) -> str:
    """Where a link leads; empty for other values, and for a scheme that could be a program."""
    import re

    if not isinstance(value, Link):
        return ""
    href = target(value, SUFFIX)
    scheme = re.match(r"\s*([\w+.-]+):", href)
    return "" if scheme and scheme[1].lower() not in ("http", "https") else href


def _drawing(text: str) -> Markup:
    from fiprof.reports.pages.drawing import svg

    return Markup(svg(escape_lines(text)))


def _kind(block: object) -> str:
    return type(block).__name__.lower()


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fiprof.reports.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    sources = Sources()
    environment.filters.update(
        worded=worded,
        escape_control=escape_control,
        pieces=lambda parts: list(_pieces(parts, sources)),
        source=sources,
        kind=_kind,
        drawing=_drawing,
        grid=lambda table: _grid(table, sources),
    )
    environment.globals.update(contents_depth=CONTENTS_DEPTH, sources=sources)
    return environment


# Charts


def _charts(sections: Iterable[Section]) -> Iterator[Chart]:
    for section in sections:
        yield from (block for block in section.blocks if isinstance(block, Chart))
        yield from _charts(section.sections)


def _figures(page: Page) -> tuple[dict[str, tuple[Markup, float]], str]:
    """Anchor -> the figure's JSON and its height in px, about; and what to install where a library is missing."""
    charts = list(_charts(page.sections))
    try:
        if charts:
            vega_js()
        made = {chart.anchor: chart.figure().to_dict(validate=False) for chart in charts}
    except ImportError as error:
        return {}, say(
            "The charts stand in characters: {library} is not installed. pip install 'fiprof[report]' draws them.",
            library=error.name or "altair",
        )
    written = {anchor: json.dumps(each, separators=(",", ":")) for anchor, each in made.items()}
    return {anchor: (_script_json(text), made[anchor]["height"] + AROUND_PX) for anchor, text in written.items()}, ""


def _script_json(text: str) -> Markup:
    """JSON that stays text inside a script element."""
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


@functools.cache
def vega_js() -> Markup:
    """Vega, Vega-Lite and vega-embed with their notice, for a script element."""
    import vl_convert

    notice = "/* Vega, Vega-Lite, vega-embed: Copyright University of Washington Interactive Data Lab, BSD 3-Clause. */"
    return Markup(f"{notice}\n{vl_convert.javascript_bundle()}".replace("</script", "<\\/script"))
