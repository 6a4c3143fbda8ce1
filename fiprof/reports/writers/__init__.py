"""A report written down: for a terminal, as Markdown, as JSON and CSV."""

from __future__ import annotations

from fiprof.reports.view import About, Document, Format, View


def render(
    what: View | Document,
    format: Format,
    *,
    width: int = 120,
    colour: bool = False,
    bars: bool = False,
    about: About | None = None,
) -> str:
    """A report as text, without a newline at its end.

    width: cells of the terminal; names are shortened to fit, numbers never are. colour: ANSI escapes. bars: Unicode
    blocks. All three are for ``table`` only. about: for JSON.
    """
    document = what if isinstance(what, Document) else Document(programs=what, shown=(what,))
    if format in ("json", "csv"):
        from fiprof.reports.writers import data

        return data.write_json(document, about or About()) if format == "json" else data.write_csv(document.data)
    if format == "md":
        from fiprof.reports.writers import markdown

        return markdown.write(document)
    from fiprof.reports.writers import terminal

    return terminal.write(document, width=width, colour=colour, bars=bars)
