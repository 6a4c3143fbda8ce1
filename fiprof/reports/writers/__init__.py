"""A report written down: for a terminal, as Markdown, as JSON and CSV."""
