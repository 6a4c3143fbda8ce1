"""fiprof/reports/view.py: one table as text for terminals, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.reports.view import FORMATS, Column, Narrow, Value, View
from fiprof.reports.writers import render
from fiprof.text import cell_width, csv_cell, escape_control, shorten

COLUMNS = (
    Column("kernel", "kernel"),
    Column("duration_us", "time", "µs", ".1f"),
    Column("share", "bar", bar=True),
    Column("full"),
)
VIEW = View(
    COLUMNS,
    (("RMSNormKernel", 23.456, 0.5, "void RMSNormKernel<8>()"), ("merge", None, 0.01, "void merge()")),
    title="Kernels",
    warnings=("measured beside another process",),
    summary=("One is slow.",),
    notes=("time: by ncu.",),
)
HOSTILE = "<b onclick='x()'>|[red]`_*\n\x1b[31m\r\x9b2J\u202e&amp;"


def test_table_has_titles_units_rows_and_sentences() -> None:
    assert render(VIEW, "table", width=60) == "\n".join(
        [
            "Kernels",
            "! measured beside another process",
            "One is slow.",
            "kernel         time",
            "                 µs",
            "RMSNormKernel  23.5",
            "merge             –",
            "time: by ncu.",
        ]
    )


@pytest.mark.parametrize(
    ("value", "table", "json_", "csv_"),
    [
        (True, "yes", True, "true"),
        (False, "no", False, "false"),
        (("registers", "warps"), "registers, warps", ["registers", "warps"], "registers; warps"),
        ((), "–", [], ""),
        (float("nan"), "–", None, ""),
        (float("inf"), "–", None, ""),
        (0.1 + 0.2, "0.30000000000000004", 0.30000000000000004, "0.30000000000000004"),
        (12345678901234, "12345678901234", 12345678901234, "12345678901234"),
        ("", "", "", ""),
    ],
)
def test_values(value: Value, table: str, json_: object, csv_: str) -> None:
    view = View((Column("a", "a"), Column("b", "b")), ((value, "end"),))
    assert render(view, "table").splitlines()[1].rpartition("end")[0].strip() == table
    assert json.loads(render(view, "json"))["rows"][0]["a"] == json_
    assert next(csv.DictReader(io.StringIO(render(view, "csv"))))["a"] == csv_


NARROW = (
    Column("launch", "#"),
    Column("case", "case", narrow=Narrow.ABOVE),
    Column("kernel", "kernel", narrow=Narrow.ABOVE),
    Column("time", "time", "µs", ",.2f"),
    Column("limit", "limit"),
    Column("step", "next step", narrow=Narrow.BELOW),
    Column("note", "note", narrow=Narrow.DROP),
)
ROW = (3, "decode batch=1", "BatchDecodeWithPagedKVCacheKernel", 1234.5, "memory-bound (DRAM)", "more bytes", "cold")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (120, [
            "#  case            kernel                                 time  limit                next step   note",
            "                                                            µs",
            "3  decode batch=1  BatchDecodeWithPagedKVCacheKernel  1,234.50  memory-bound (DRAM)  more bytes  cold",
        ]),
        (60, [
            "#      time  limit                next step   note",
            "         µs",
            "decode batch=1 · BatchDecodeWithPagedKVCacheKernel",
            "3  1,234.50  memory-bound (DRAM)  more bytes  cold",
        ]),
        (40, [
            "#      time  limit                note",
            "         µs",
            "decode batch=1 ·",
            "  BatchDecodeWithPagedKVCacheKernel",
            "3  1,234.50  memory-bound (DRAM)  cold",
            "  next step: more bytes",
        ]),
        (30, [
            "#      time  limit",
            "         µs",
            "decode batch=1 · BatchDecodeWi",
            "  thPagedKVCacheKernel",
            "3  1,234.50  memory-bound",
            "             (DRAM)",
            "  next step: more bytes",
        ]),
    ],
)  # fmt: skip
def test_a_table_gives_way_in_order(width: int, lines: list[str]) -> None:
    assert render(View(NARROW, (ROW,)), "table", width=width).splitlines() == lines


def test_long_names_are_whole_in_json_and_csv_and_bounded_elsewhere() -> None:
    name = "a" * 5_000 + "b" * 5_000
    view = View((Column("kernel", "kernel"),), ((name,),), title=name)
    assert json.loads(render(view, "json"))["rows"] == [{"kernel": name}]
    assert name in render(view, "csv")
    lines = render(view, "table", width=100).splitlines()
    assert max(map(len, lines)) == 100 and len(lines) < 30
    assert re.search(r"^\| a+…b+ \|$", render(view, "md"), re.MULTILINE)


def test_hostile_names_are_text_everywhere() -> None:
    view = View(
        (Column("kernel", "kernel"), Column("n", "n")),
        ((HOSTILE, 1),),
        title=HOSTILE,
        warnings=(HOSTILE,),
        notes=(HOSTILE,),
    )
    for format_ in FORMATS:
        text = render(view, format_, width=200)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), format_
    assert r"[red]`_*\n\x1b[31m\r\x9b2J\u202e&amp;" in render(view, "table", width=200)
    assert json.loads(render(view, "json"))["rows"][0]["kernel"] == HOSTILE
    markdown = render(view, "md")
    assert "<" not in markdown
    assert r"&lt;b onclick='x()'&gt;\|\[red\]\`\_\*\\n" in markdown
    assert "&amp;amp;" in markdown


@given(st.lists(st.tuples(st.text(), st.floats() | st.none()), min_size=1), st.integers(20, 200))
def test_any_text_stays_in_its_cell(rows: list[tuple[str, float | None]], width: int) -> None:
    columns = (Column("kernel", "kernel"), Column("n", "n", spec=".2e"))
    view = View(columns, tuple(rows))
    table = render(view, "table", width=width, colour=False)
    assert table.replace("\n", "").isprintable()
    markdown = render(view, "md").splitlines()
    assert len(markdown) == len(rows) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in markdown} == {3}
    back = list(csv.reader(io.StringIO(render(view, "csv"))))
    assert [row[0] for row in back[1:]] == [csv_cell(name) for name, _ in rows]
    assert [item["kernel"] for item in json.loads(render(view, "json"))["rows"]] == [name for name, _ in rows]


@given(st.lists(st.text(max_size=60), min_size=1), st.integers(20, 100))
def test_lines_fit_the_terminal(names: list[str], width: int) -> None:
    view = View((Column("a", "a"), Column("n", "n")), tuple((name, 1) for name in names))
    assert max(map(cell_width, render(view, "table", width=width).splitlines())) <= width


@given(st.text(), st.integers(1, 30))
def test_shortened_text_keeps_both_ends(text: str, cells: int) -> None:
    text = escape_control(text)
    short = shorten(text, cells)
    assert cell_width(short) <= cells
    if short != text:
        head, _, tail = short.partition("…") if text.count("…") == 0 else ("", "", "")
        assert text.startswith(head) and text.endswith(tail)
