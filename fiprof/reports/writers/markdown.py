"""A report as the Markdown of GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fiprof.model.wording import worded
from fiprof.reports.view import Document, Sayable, View, is_number, shown_columns, word
from fiprof.text import escape_control, shorten

LONGEST_TEXT, LONGEST_CELL = 80, 400
_ESCAPES = str.maketrans({char: "\\" + char for char in "\\`*[]|~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})


_END = "</details>"


def markdown_text(text: str) -> str:
    """Text that GitHub shows as it is. An underscore inside a word is one there."""
    escaped = escape_control(text).translate(_ESCAPES)
    return re.sub(r"(?<!\w)_+|_+(?!\w)", lambda run: "\\_" * len(run[0]), escaped)


def write(document: Document) -> str:
    """The report as text."""
    blocks = _warnings(document.warnings)
    for view in document.shown:
        if not view.folded:
            blocks += view_blocks(view)
            continue
        if view.title:
            blocks += [f"<details>\n<summary>{markdown_text(escape_control(view.title))}</summary>", _END]
        blocks[-1:] = [*view_blocks(replace(view, title="")), _END]
    return "\n\n".join(blocks + _said(document.notes))


def _said(texts: Iterable[Sayable]) -> list[str]:
    return [markdown_text(worded(text)) for text in texts]


def _warnings(texts: Iterable[Sayable]) -> list[str]:
    return [f"> **Warning:** {text}" for text in _said(texts)]


def view_blocks(view: View) -> list[str]:
    """A table with its title and sentences, as paragraphs."""
    blocks = [f"### {markdown_text(shorten(escape_control(view.title), LONGEST_TEXT * 2))}"] if view.title else []
    blocks += _warnings(view.warnings) + _said(view.summary)
    shown = shown_columns(view, bars=False)
    if view.rows and shown:
        heads = [f"{column.title} ({column.unit})" if column.unit else column.title for column, _ in shown]
        rules = ["---:" if is_number(column, values) else "---" for column, values in shown]
        cells = [
            [
                markdown_text(shorten(word(value, column.spec), LONGEST_CELL if column.wrap else LONGEST_TEXT))
                for value in values
            ]
            for column, values in shown
        ]
        rows = [list(map(markdown_text, heads)), rules, *map(list, zip(*cells, strict=True))]
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return blocks + _said(view.notes)
