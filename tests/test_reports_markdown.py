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
    Link,
    Observation,
    Page,
    PageLink,
    Quoted,
    Section,
    Table,
    Text,
)
from fiprof.reports.view import Column, View
from fiprof.text import cell_width
from tests import pages


def written(*blocks: object) -> str:
    """The blocks as a page's only section, without the headings."""
    page = Page("Title", (Section("section", "Section", blocks),))  # type: ignore[arg-type]
    return markdown.render(page).removeprefix("# Title\n\n## Section").strip()


def outside_fences(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_the_demo_is_at_most_100_columns_wide() -> None:
    assert max(map(cell_width, markdown.render(pages.demo(), whole="report.html").splitlines())) <= 100


def test_sections_findings_and_links() -> None:
    finding = Observation(
        "f-dram", "DRAM is at 87 %.", ("dram_pct 87.0 %, above 60 % (ncu)",), "Move less.", "ncu and nsys agree."
    )
    section = Section(
        "why", "Why", (finding, Text(("See ", Link("there", "#f-dram"), " and ", PageLink("that", "other#x"), ".")))
    )
    assert markdown.render(Page("A page", (section,), facts=(("GPU", "H200"),))) == (
        "# A page\n\n- **GPU:** H200\n\n## Why\n\n"
        '<a id="f-dram"></a>\n\n**DRAM is at 87 %.**\n\n- dram_pct 87.0 %, above 60 % (ncu)\n\n→ Move less.\n\n'
        "How sure: ncu and nsys agree.\n\nSee [there](#f-dram) and [that](other.md#x).\n"
    )  # fmt: skip


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


def test_an_anchor_that_is_not_the_headings_own_stands_before_it() -> None:
    page = Page("T", (Section("story", "Execution story"), Section("how-sure", "How sure?")))
    assert markdown.render(page) == '# T\n\n<a id="story"></a>\n\n## Execution story\n\n## How sure?\n'


def test_a_table_of_many_columns_is_split_and_names_its_rows_again() -> None:
    first, second = re.findall(r"```\n(.*?)```", written(Table(pages.wide())), flags=re.DOTALL)
    assert first.splitlines()[-1].split()[0] == second.splitlines()[-1].split()[0] == "kernel_2"
    assert first.splitlines()[0].split("  ")[-1].strip() == "metric 5"
    assert "2,000,011.000" in second


def test_neither_numbers_nor_names_are_cut() -> None:
    view = View(
        (Column("kernel", "kernel"), *(Column(f"n{i}", f"n{i}", "", ",.1f") for i in range(5))),
        (("a" * 100 + "b" * 100, *[123456789.0] * 5),),
    )
    lines = written(Table(view)).splitlines()
    assert "".join(lines).count("123,456,789.0") == 5
    names = "".join(re.findall("^[ab]+", "\n".join(lines), re.MULTILINE))
    assert set(names.split("a" * 100 + "b" * 100)) == {""}


def test_an_appendix_shows_its_first_rows_and_where_the_rest_is() -> None:
    page = Page("T", (Section("s", "S", (Table(pages.many(1204), appendix=True),)),))
    text = markdown.render(page, whole="report.html")
    assert "\n9  case 2" in text and "\n10  case" not in text
    assert "The first 10 of 1,204 rows; all of them are in [report.html](report.html)." in text


def test_a_cells_link_stands_below_the_table() -> None:
    view = View(
        (Column("run", "run"),), ((Link("20261121", "../runs/2026 1121/report.md"),), (Link("20261121", "#here"),))
    )
    assert written(Table(view)) == (
        "```\nrun\n20261121\n20261121\n```\n\n[20261121](../runs/2026%201121/report.md)"
    )  # fmt: skip


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


@pytest.mark.parametrize("word", ["---", "==="])
def test_no_last_line_makes_a_heading_of_the_paragraph(word: str) -> None:
    assert written(Text(("x" * 90 + " " + "z" * 8 + f" {word}",))).splitlines()[1] == f"\\{word}"


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_whatever_a_name_is_no_line_is_too_wide_and_nothing_is_markup(names: list[str]) -> None:
    table = Table(View((Column("n", "name"),), tuple((name,) for name in names), title=names[0]))
    text = written(Bullets(tuple(Text((name,)) for name in names)), table, Code("\n".join(names), language="text"))
    assert all(cell_width(line) <= 100 for line in text.splitlines())
    assert not re.search(r"<(?!a id=)", outside_fences(text))
