"""Tables on the terminal and in other formats, pages of HTML, colours and charts."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.reports import charts, colours, markdown_html
from fiprof.reports.markdown_html import document_html, report_html
from fiprof.reports.notebook import VEGALITE, OpenedRun
from fiprof.reports.view import Chart, Column, Document, Narrow, Value, View
from fiprof.reports.writers import render
from fiprof.text import cell_width, csv_cell
from tests import pages
from tests.recorded_runs import parsed
from tests.reports_fixture import make_run


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


def test_a_table_gives_way_in_order() -> None:
    assert render(View(NARROW, (ROW,)), "table", width=30).splitlines() == [
        "#      time  limit",
        "         µs",
        "decode batch=1 · BatchDecodeWi",
        "  thPagedKVCacheKernel",
        "3  1,234.50  memory-bound",
        "             (DRAM)",
        "  next step: more bytes",
    ]
    assert render(View(NARROW, (ROW,)), "table", width=40).splitlines()[0].split() == ["#", "time", "limit", "note"]


def test_long_names_are_whole_in_json_and_csv_and_bounded_elsewhere() -> None:
    name = "a" * 5_000 + "b" * 5_000
    view = View((Column("kernel", "kernel"),), ((name,),), title=name)
    assert json.loads(render(view, "json"))["rows"] == [{"kernel": name}]
    assert name in render(view, "csv")
    lines = render(view, "table", width=100).splitlines()
    assert max(map(len, lines)) == 100 and len(lines) < 30
    assert re.search(r"^\| a+…b+ \|$", render(view, "md"), re.MULTILINE)


@given(st.lists(st.tuples(st.text(), st.floats() | st.none()), min_size=1), st.integers(20, 200))
def test_any_text_stays_in_its_cell(rows: list[tuple[str, float | None]], width: int) -> None:
    columns = (Column("kernel", "kernel"), Column("n", "n", spec=".2e"))
    view = View(columns, tuple(rows))
    table = render(view, "table", width=width, colour=False)
    assert table.replace("\n", "").isprintable() and max(map(cell_width, table.splitlines())) <= width
    markdown = render(view, "md").splitlines()
    assert len(markdown) == len(rows) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in markdown} == {3}
    back = list(csv.reader(io.StringIO(render(view, "csv"))))
    assert [row[0] for row in back[1:]] == [csv_cell(name) for name, _ in rows]
    assert [item["kernel"] for item in json.loads(render(view, "json"))["rows"]] == [name for name, _ in rows]


def test_the_charts_library_is_there_once_with_its_notice_where_charts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else a page is: test_browser.py."""
    text = pages.demo()
    assert text.count("window.vegaEmbed=") == 1 and text.count("BSD 3-Clause") == 1
    assert "vegaEmbed=" not in document_html("# no charts\n\n## A\n", "no charts")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    markdown_html.vega_js.cache_clear()
    assert pages.demo().count("pip install vl-convert-python") == 1


def test_a_charts_json_does_not_end_its_script() -> None:
    chart = Chart("C", lambda: charts.figure([], 9, {"a": [{"x": pages.HOSTILE[1]}]}), "")
    text = report_html(Document(View((), ()), (View((), (), charts=(chart,)),)), "p")
    assert text.count("</script>") == 3


def test_colours_are_seen_on_both_papers() -> None:
    for colour in (*colours.COLOURS, *colours.STALLS.values(), *(each[2] for each in colours.FAMILIES), colours.GREY):
        assert min(contrast(colour, paper) for paper in ("#ffffff", "#14181e")) >= 3.0, colour
        assert contrast(colour, colours.ink(colour)) >= 4.5, colour


def test_an_opened_run_shows_the_same_charts_and_says_what_is_missing(tmp_path: Path) -> None:
    opened = OpenedRun(parsed("all").path)
    shown, metadata = opened.roofline("prefill")._repr_mimebundle_()
    assert shown.keys() == {VEGALITE, "image/svg+xml", "text/plain"} and metadata
    assert len(str(shown[VEGALITE])) < len(str(opened.roofline()))
    for chart in (opened.stalls(), opened.timeline()):
        assert chart._repr_mimebundle_()[0]["image/svg+xml"].startswith("<svg")
    assert opened.show().set_index("launch").loc[3, "duration_us"] == pytest.approx(307.872)
    assert "NVIDIA H200" in opened._repr_html_()
    other = OpenedRun(make_run(tmp_path / "run", name="<script>x</script>").path)
    assert "<script>" not in other._repr_html_()
    with pytest.raises(FiprofError, match="has no timeline"):
        other.timeline()


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    high, low = sorted(map(luminance, (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
