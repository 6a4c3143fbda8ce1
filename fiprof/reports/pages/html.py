"""A page as one HTML file: it needs no network, follows the reader's colour scheme, prints, and fits a phone.

jinja2 writes it, plotly draws its charts, DataTables (as itables packages it) sorts its tables; the libraries' own
files are in the page. Without JavaScript the tables stay tables, and each chart has its form in characters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fiprof.errors import FiprofError
from fiprof.model.provenance import numbers_of
from fiprof.reports.pages.page import Chart, Link, Page, Quoted, Section, Table, target
from fiprof.reports.view import Column, Value, is_number, shown_columns, word
from fiprof.reports.words import worded
from fiprof.text import escape_control, escape_lines, shorten

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIX = ".html"
LONGEST_CELL = 120
"""Characters of a name in a table; its title has all of them."""
LONG_TABLE = 25
"""Rows from which a table scrolls in a box of its own and can be searched."""
PAGED_TABLE = 300
"""Rows from which a table is shown in pages."""
CONTENTS_DEPTH = 2
"""Levels of sections in the table of contents."""

LIBRARIES = ("jinja2", "plotly", "itables")
"""Of the extra ``fiprof[report]``."""


def render(page: Page) -> str:
    """The page as a whole HTML file.

    Raises FiprofError where a library of the extra ``fiprof[report]`` is missing.
    """
    environment = _environment()
    figures = _figures(page)
    text: str = environment.get_template("page.html.j2").render(
        page=page,
        figures=figures,
        plotly_js=_plotly_js() if figures else "",
        tables_js=_data_tables_js(),
        **{name: _template_text(f"page.{name}") for name in ("css", "js")},
    )
    return text


# What the template calls


def _grid(table: Table) -> dict[str, Any]:
    """A table, ready to be written: its headings, its rows of cells, and how it is shown."""
    view = table.view
    shown = shown_columns(view, bars=True)
    indices = [index for index, column in enumerate(view.columns) if column.title]
    sources = [[row[index] for row in table.sources] or [""] * len(view.rows) for index in indices]
    columns = [_cells(*item, words) for item, words in zip(shown, sources, strict=True)]
    return {
        "heads": [(column, is_number(column, values)) for column, values in shown],
        "rows": list(zip(*columns, strict=True)),
        "anchors": table.row_anchors or [""] * len(view.rows),
        "long": len(view.rows) > LONG_TABLE,
        "paged": len(view.rows) > PAGED_TABLE,
    }


def _cells(column: Column, values: Sequence[Value], sources: Sequence[str]) -> Iterable[dict[str, Any]]:
    """``title``: where the value comes from, or all of a name that is cut. ``order``: what to sort a number by, in full
    precision; empty for none that was measured, None for text."""
    number = is_number(column, values)
    for value, source in zip(values, sources, strict=True):
        text = word(value, column.spec)
        yield {
            "text": text if column.wrap else shorten(text, LONGEST_CELL),
            "code": isinstance(value, Quoted),
            "href": _href(value),
            "title": escape_control(source) or (text if len(text) > LONGEST_CELL and not column.wrap else ""),
            "order": _order(value) if number else None,
            "bar_pct": 100 * min(max(float(_order(value) or 0), 0.0), 1.0) if column.bar else None,
        }


def _order(value: Value) -> str:
    if isinstance(value, int | float) and math.isfinite(value):
        return repr(float(value))
    return ""


def _parts(parts: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Text, where it leads (empty for nowhere), and whether it is code."""
    return [(escape_control(part), _href(part), isinstance(part, Quoted)) for part in parts]


def _href(value: Value) -> str:
    """Where a link leads; empty for other values, and for a scheme that could be a program."""
    import re

    if not isinstance(value, Link):
        return ""
    href = target(value, SUFFIX)
    scheme = re.match(r"\s*([\w+.-]+):", href)
    return "" if scheme and scheme[1].lower() not in ("http", "https") else href


def _drawing(text: str) -> Any:
    from markupsafe import Markup

    from fiprof.reports.pages.drawing import svg

    return Markup(svg(escape_lines(text)))


def _sources(words: object) -> str:
    """Where the numbers in it come from, a line each."""
    return "\n".join(f"{number}: {escape_control(str(number.source))}" for number in numbers_of(words))


def _kind(block: object) -> str:
    return type(block).__name__.lower()


# The libraries


def _environment() -> Environment:
    try:
        import jinja2
    except ImportError as error:
        raise _missing("jinja2") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fiprof.reports.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        worded=worded,
        escape_control=escape_control,
        parts=_parts,
        kind=_kind,
        grid=_grid,
        drawing=_drawing,
        sources=_sources,
    )
    environment.globals["contents_depth"] = CONTENTS_DEPTH
    return environment


def _figures(page: Page) -> dict[str, Any]:
    """Anchor -> the figure's JSON, safe inside a script element."""
    from markupsafe import Markup

    def charts(section: Section) -> Iterable[Chart]:
        yield from (block for block in section.blocks if isinstance(block, Chart))
        for part in section.sections:
            yield from charts(part)

    try:
        made = {chart.anchor: chart.figure() for section in page.sections for chart in charts(section)}
    except ImportError as error:
        raise _missing(error.name or "plotly") from error
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
    return {anchor: Markup(figure.to_json().translate(str.maketrans(escapes))) for anchor, figure in made.items()}


@functools.cache
def _plotly_js() -> Any:
    """plotly.js with its notice, for a script element."""
    from markupsafe import Markup

    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise _missing("plotly") from error
    return Markup(get_plotlyjs().replace("</script", "<\\/script"))


@functools.cache
def _data_tables_js() -> str:
    """DataTables with jQuery and their notices, as the address of a module."""
    import base64
    import importlib.resources

    try:
        source = importlib.resources.files("itables").joinpath("html/dt_bundle.js").read_bytes()
    except ImportError as error:
        raise _missing("itables") from error
    return f"data:text/javascript;base64,{base64.b64encode(source).decode('ascii')}"


def _template_text(name: str) -> Any:
    import importlib.resources

    from markupsafe import Markup

    return Markup(importlib.resources.files("fiprof.reports.pages").joinpath("templates", name).read_text("utf-8"))


def missing() -> FiprofError | None:
    """What :func:`render` would raise for a library that is not installed; None where it has them all."""
    import importlib.util

    for library in LIBRARIES:
        if importlib.util.find_spec(library) is None:
            return _missing(library)
    return None


def _missing(library: str) -> FiprofError:
    return FiprofError(f"an HTML page needs {library}, which is not installed", "pip install 'fiprof[report]'")
