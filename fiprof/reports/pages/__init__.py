"""A page as data, and how it is written: Markdown, HTML, charts."""
