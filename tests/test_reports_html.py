"""A report as one HTML file. What a browser makes of it: test_browser.py."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest

from fiprof.reports import charts, markdown_html
from fiprof.reports.markdown_html import document_html, report_html
from fiprof.reports.view import Chart, Document, View
from tests import pages

pytest.importorskip("vl_convert")


class Elements(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def demo() -> Elements:
    return Elements(pages.demo())


def test_nothing_is_loaded_and_the_policy_forbids_it(demo: Elements) -> None:
    assert not [a for tag in ("script", "img", "iframe") for a in demo.all(tag) if "src" in a]
    assert not demo.all("link")
    policy = next(a["content"] for a in demo.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_the_library_is_there_once_with_its_notice_where_there_are_charts() -> None:
    text = pages.demo()
    assert text.count("window.vegaEmbed=") == 1 and text.count("BSD 3-Clause") == 1
    without = document_html("# no charts\n\n## A\n", "no charts")
    assert "vegaEmbed=" not in without
    assert len(without.encode()) < 50_000


def test_every_anchor_is_an_id_once_and_in_the_contents(demo: Elements) -> None:
    ids = [a["id"] for _, a in demo.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    inside = [a["href"] for a in demo.all("a") if (a["href"] or "").startswith("#")]
    assert {href[1:] for href in inside if href} <= set(ids)
    assert inside.count("#every-launch") == 2  # the contents twice; a folded heading has no link
    # The first folded sections are open.
    assert ["open" in each for each in demo.all("details")[1:]] == [True, True, False]


def test_names_are_text(demo: Elements) -> None:
    assert not demo.all("img") and not demo.all("b")
    for name in pages.HOSTILE[:4]:
        assert name in demo.text
    assert "bell\\x07escape\\x1b[31m override\\u202egnirts" in demo.text


def test_a_charts_json_does_not_end_its_script() -> None:
    chart = Chart("C", lambda: charts.figure([], 9, {"a": [{"x": pages.HOSTILE[1]}]}), "")
    text = report_html(Document(View((), ()), (View((), (), charts=(chart,)),)), "p")
    assert len(Elements(text).all("script")) == 3
    assert not Elements(text).all("img")


def test_numbers_sort_by_their_value_and_a_missing_one_by_nothing(demo: Elements) -> None:
    orders = [a.get("data-o") for a in demo.all("td")]
    assert {"2957.0", "46.5", ""} <= set(orders)


def test_links_go_to_the_page_in_the_same_form_and_a_number_to_its_source(demo: Elements) -> None:
    assert [a["href"] for a in demo.all("a") if not (a["href"] or "").startswith("#")] == ["analysis.html#x"]
    facts = [each for each in demo.all("span") if each.get("class") == "fact"]
    assert facts == [{"class": "fact", "data-s": 'ncu, launch 3: a | b / "c"'}] * len(pages.HOSTILE)
    assert demo.text.count("at 52.8% of <b>") == len(pages.HOSTILE)


def test_without_the_charts_library_a_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    markdown_html.vega_js.cache_clear()
    assert pages.demo().count("pip install &#39;fiprof[report]&#39;") == 1


def test_the_stylesheet_has_both_schemes_and_print() -> None:
    text = document_html("# p", "p")
    assert text.startswith("<!DOCTYPE html>")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style and "light-dark(" in style[1] and "@media print" in style[1]
    assert "&#" not in style[1] and "&gt;" not in style[1]
