"""fiprof/reports/pages/markdown.py: a page as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.reports.pages import markdown
from fiprof.reports.pages.page import (
    Bullets,
    Caution,
    Code,
    Page,
    Quoted,
    Section,
    Table,
    Text,
)
from fiprof.reports.view import Column, View
from fiprof.text import cell_width


def written(*blocks: object) -> str:
    """The blocks as a page's only section, without the headings."""
    page = Page("Title", (Section("section", "Section", blocks),))  # type: ignore[arg-type]
    return markdown.render(page).removeprefix("# Title\n\n## Section").strip()


def outside_fences(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "span"),
    [
        ("LDG.E R8, desc[UR6][R12.64]", "`LDG.E R8, desc[UR6][R12.64]`"),
        ("<script>*x*", "`<script>*x*`"),
        ("a``b`", "``` a``b` ```"),
        ("a\nb\x1b", r"`a\nb\x1b`"),
    ],
)
def test_words_of_a_program_are_a_code_span(words: str, span: str) -> None:
    assert written(Text(("Waits for ", Quoted(words), "."))) == f"Waits for {span}."


def test_neither_numbers_nor_names_are_cut() -> None:
    view = View(
        (Column("kernel", "kernel"), *(Column(f"n{i}", f"n{i}", "", ",.1f") for i in range(5))),
        (("a" * 100 + "b" * 100, *[123456789.0] * 5),),
    )
    lines = written(Table(view)).splitlines()
    assert "".join(lines).count("123,456,789.0") == 5
    names = "".join(re.findall("^[ab]+", "\n".join(lines), re.MULTILINE))
    assert set(names.split("a" * 100 + "b" * 100)) == {""}


def test_a_long_command_goes_on_after_a_backslash_and_still_runs_the_same() -> None:
    import shlex

    command = "fiprof collect --kernel decode " + " ".join(f"--option-{i} 'a value {i}'" for i in range(12))
    lines = written(Code(command)).splitlines()[1:-1]
    assert len(lines) > 2 and all(len(line) <= 100 for line in lines)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_a_fence_is_longer_than_those_in_the_text() -> None:
    assert written(Code("```\nrm -rf\n```", language="text")) == "````\n```\nrm -rf\n```\n````"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("[a](http://x) *b* `c`", "\\[a\\](http://x) \\*b\\* \\`c\\`"),
        ("one\ntwo\x1b[0m", "one two\\\\x1b\\[0m"),
        ("dram__bytes.sum __init__", "dram__bytes.sum \\_\\_init\\_\\_"),
    ],
)
def test_names_are_text(name: str, shown: str) -> None:
    assert written(Caution(name)) == f"> **Caution:** {shown}"


@pytest.mark.parametrize("word", ["-", "+", "1.", "23)", "#", "###"])
def test_no_wrapped_line_begins_a_list_a_heading_or_a_rule(word: str) -> None:
    lines = written(Text(("x" * 90 + " " + "z" * 8 + f" {word} " + "y" * 90,))).splitlines()
    assert len(lines) == 2
    assert lines[1].replace("\\", "").startswith(f"{word} y")
    assert "\\" in lines[1]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_whatever_a_name_is_no_line_is_too_wide_and_nothing_is_markup(names: list[str]) -> None:
    table = Table(View((Column("n", "name"),), tuple((name,) for name in names), title=names[0]))
    text = written(Bullets(tuple(Text((name,)) for name in names)), table, Code("\n".join(names), language="text"))
    assert all(cell_width(line) <= 100 for line in text.splitlines())
    assert not re.search(r"<(?!a id=)", outside_fences(text))
