"""fiprof/reports/pages/html.py: a page as one HTML file. What a browser makes of it: test_browser.py."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import pytest

from fiprof.model.provenance import Provenance, TracedNumber, sentence
from fiprof.reports.pages import html
from fiprof.reports.pages.page import Chart, Link, Page, PageLink, Section, Table, Text
from fiprof.reports.view import Column, View
from tests import pages

pytest.importorskip("altair")


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
    return Elements(html.render(pages.demo()))


def test_nothing_is_loaded_and_the_policy_forbids_it(demo: Elements) -> None:
    assert not [a for tag in ("script", "img", "iframe") for a in demo.all(tag) if "src" in a]
    assert not demo.all("link")
    policy = next(a["content"] for a in demo.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_every_anchor_is_an_id_once_and_in_the_contents(demo: Elements) -> None:
    ids = [a["id"] for _, a in demo.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    assert set(pages.anchors(pages.demo())) <= set(ids)
    inside = [a["href"] for a in demo.all("a") if (a["href"] or "").startswith("#")]
    assert {href[1:] for href in inside if href} <= set(ids)
    assert inside.count("#story-hostile") == 3  # the contents twice, and its own heading


def test_names_are_text(demo: Elements) -> None:
    assert not demo.all("img") and not demo.all("b")
    for name in pages.HOSTILE[:4]:
        assert name in demo.text
    assert "bell\\x07escape\\x1b[31m override\\u202egnirts" in demo.text


def test_a_figures_json_does_not_end_its_script() -> None:
    import altair as alt

    def figure() -> alt.LayerChart:
        return alt.layer(alt.Chart(alt.InlineData(values=[{"x": pages.HOSTILE[1]}])).mark_bar()).properties(height=9)

    text = html.render(Page("p", (Section("s", "S", (Chart("c", "C", "", figure),)),)))
    assert len(Elements(text).all("script")) == 4
    assert not Elements(text).all("img")


def test_links_go_to_the_page_in_the_same_form_and_to_no_program() -> None:
    parts = (PageLink("that", "other#x"), Link("this", "run.json"), Link("bad", "javascript:alert(1)"))
    text = html.render(Page("p", (Section("s", "S", (Text(parts),)),)))
    found = [a["href"] for a in Elements(text).all("a") if not (a["href"] or "").startswith("#")]
    assert found == ["other.html#x", "run.json"]


def test_a_number_names_its_source_and_each_source_is_there_once() -> None:
    view = View((Column("key"), Column("n", "n", "", ".1f")), (("x", 1.0), ("y", 2.0)))
    table = Table(view, sources=(("", "launches.n"), ("", "launches.n")))
    fact = TracedNumber(52.84, Provenance("ncu", "a / b", launch=3), ".1f", "%")
    words = Text((sentence("at {} of {}", fact, "<b>"),))
    text = html.render(Page("p", (Section("s", "S", (table, words)),)))
    assert Elements(text).all("td") == [
        {"class": "n", "data-o": "1", "data-s": "0"},
        {"class": "n", "data-o": "2", "data-s": "0"},
    ]
    assert 'at <span class="fact" data-s="1">52.8%</span> of &lt;b&gt;' in text
    assert '<script type="application/json" id="sources">["launches.n","ncu, launch 3: a / b"]</script>' in text


def test_without_the_charts_library_each_chart_stands_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    text = html.render(pages.demo())
    assert text.count("pip install &#39;fiprof[report]&#39;") == 1
