"""A page in a real browser: charts, sorting, hover, both colour schemes, a phone, print, hostile names, many launches.

Needs chromium: FIPROF_TEST_CHROMIUM names it, else /usr/bin/chromium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fiprof.reports.pages import html
from tests import pages
from tests.browser import CHROMIUM, launched

expect: Any = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("plotly")
pytest.importorskip("jinja2")
pytest.importorskip("itables")

LEAST_CONTRAST = 4.5
"""WCAG 2 AA, for text."""
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"no chromium at {CHROMIUM}: FIPROF_TEST_CHROMIUM names one"
)


@dataclass
class Opened:
    """A page in the browser, and what went wrong in it."""

    page: Any
    ready: float
    """Seconds from navigation until what is on the screen can be used: tables sorted, charts hovered."""
    complete: float
    """The same of all that is not folded."""
    problems: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and requests other than for the file."""


Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {"demo": pages.demo(), "thousand": pages.thousand()}
    for name, page in written.items():
        (folder / f"{name}.html").write_text(html.render(page), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in written}


@pytest.fixture
def show(browser: Any, files: dict[str, Path]) -> Iterator[Open]:
    contexts = []

    def show(name: str, *, scheme: str = "light", viewport: dict[str, int] = DESKTOP, script: bool = True) -> Opened:
        context = browser.new_context(
            viewport=viewport, color_scheme=scheme, has_touch=viewport is PHONE, is_mobile=viewport is PHONE,
            java_script_enabled=script,
        )  # fmt: skip
        contexts.append(context)
        page = context.new_page()
        problems: list[str] = []
        page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        address = files[name].as_uri()
        page.on("request", lambda r: None if r.url == address or r.url.startswith("data:") else problems.append(r.url))
        page.goto(address)
        seconds = {"ready": 0.0, "complete": 0.0}
        for mark in seconds if script else ():
            page.wait_for_selector(f"html[data-{mark}]", state="attached")
            seconds[mark] = page.evaluate(f"performance.getEntriesByName('{mark}')[0].startTime") / 1e3
        return Opened(page, seconds["ready"], seconds["complete"], problems)

    yield show
    for context in contexts:
        context.close()


def test_charts_are_drawn_without_an_error_and_without_a_network(show: Open) -> None:
    opened = show("demo")
    assert opened.page.locator("#chart-gpu-time .barlayer .point path").count() == 1 + len(pages.HOSTILE)
    assert opened.page.locator("#chart-scaling .scatterlayer .js-line").count() == 4
    assert opened.page.locator("[data-title*=Share], [data-title*=loud]").count() == 0  # plotly's upload
    assert opened.problems == []


def test_a_click_on_a_heading_sorts_by_the_number(show: Open) -> None:
    page = show("demo").page
    table = page.locator("#table-launches table")

    def column(index: int) -> Any:
        return table.locator(f"tbody td:nth-child({index})")

    heading = table.locator("th", has_text="ncu")
    heading.click()
    expect(column(4)).to_have_text(["22.50", "94.62", "307.87", "1093.50"])
    expect(column(1)).to_have_text(["2", "1", "0", "10"])
    heading.click()
    expect(column(4)).to_have_text(["1093.50", "307.87", "94.62", "22.50"])
    table.locator("th", has_text="DRAM").click()
    expect(column(7)).to_have_text(["–", "487.3", "1,490.2", "2,957.0"])


def test_a_folded_table_opens_by_its_anchor_and_can_be_searched_and_sorted(show: Open) -> None:
    page = show("demo").page
    assert not page.locator("#table-all table").is_visible()
    page.evaluate("location.hash = '#table-all'")
    page.locator("#table-all input[type=search]").fill("kernel_12")
    assert set(page.locator("#table-all tbody td:nth-child(3)").all_inner_texts()) == {"kernel_12"}
    heading = page.locator("#table-all th", has_text="#")
    for first in ("12", "1195"):
        heading.click()
        expect(page.locator("#table-all tbody td").first).to_have_text(first)


def test_hover_says_value_unit_and_name(show: Open) -> None:
    page = show("demo").page
    page.locator("#chart-gpu-time .barlayer .point").first.hover(force=True)
    text = page.locator("#chart-gpu-time .hovertext").text_content()
    assert "RMSNormKernel" in text
    assert "time: 10.0 µs" in text
    page.locator("#chart-scaling .scatterlayer .point").first.hover(force=True)
    text = page.locator("#chart-scaling .hovertext").text_content()
    assert "KV length: 512 tokens" in text
    assert "confidence interval: 69.2 to 86 µs" in text


CONTRASTS = """() => {
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const colour = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const paper = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("main *, nav *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    const style = getComputedStyle(element);
    // A text inside a bar stands on the bar, and one that is not there yet on nothing.
    if (!own || !element.getClientRects().length || style.opacity === "0" || element.closest(".bartext-inside, script")) continue;
    const ink = colour(element instanceof SVGElement ? style.fill : style.color);
    const [high, low] = [luminance(ink), luminance(paper(element))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), element.tagName, element.textContent.slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_both_schemes(show: Open, scheme: str) -> None:
    opened = show("demo", scheme=scheme)
    contrasts = opened.page.evaluate(CONTRASTS)
    assert len([tag for _, tag, _ in contrasts if tag == "text"]) > 20
    assert [item for item in contrasts if item[0] < LEAST_CONTRAST] == []
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}[scheme]


def test_on_a_phone_tables_scroll_and_the_page_does_not(show: Open) -> None:
    opened = show("demo", viewport=PHONE)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    box = page.locator(".scroll", has_text="metric 11")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.locator("details.contents").is_visible() and not page.locator("nav.side").is_visible()
    charts = page.locator(".plot .main-svg").evaluate_all("all => all.map(svg => svg.getBoundingClientRect().right)")
    assert max(charts) <= PHONE["width"]
    assert opened.problems == []


def test_printed_it_is_dark_on_white_with_its_charts_and_no_folded_rows(show: Open) -> None:
    page = show("demo", scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.locator("#chart-gpu-time .main-svg").first.is_visible()
    assert not page.locator("nav.side").is_visible()
    assert page.locator(".scroll", has_text="metric 11").evaluate("box => getComputedStyle(box).overflowX") == "visible"
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_charts_are_there_when_it_is_printed_before_they_were_drawn(browser: Any, files: dict[str, Path]) -> None:
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    # A screen that is never drawn.
    page.add_init_script("window.IntersectionObserver = class { observe() {} }")
    page.goto(files["demo"].as_uri())
    assert page.locator("#chart-scaling .main-svg").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#chart-scaling .main-svg").count() > 0
    context.close()


def test_names_from_the_profiled_program_are_text(show: Open) -> None:
    opened = show("demo")
    page = opened.page
    assert page.title() == "All five kernels on an H200"
    ticks = page.locator("#chart-gpu-time .ytick text").all_text_contents()
    assert ticks[1:3] == ["<script>document.…'owned'</script>", "</script><img src….title='owned'\">"]
    page.locator("#chart-gpu-time .barlayer .point").nth(3).hover(force=True)
    assert (
        "<b>bold</b><a href='https://example.invalid/'>click</a>%{customdata[0]}"
        in page.locator("#chart-gpu-time .hovertext").text_content()
    )
    assert page.locator("main img, main a[href^=https]").count() == 0
    assert opened.problems == []


def test_without_javascript_tables_and_charts_in_characters_are_there(show: Open) -> None:
    page = show("demo", script=False).page
    assert page.locator("#table-launches td", has_text="PrefillWithKVCacheKernel").is_visible()
    page.locator("#chart-gpu-time summary").click()
    assert "████" in page.locator("#chart-gpu-time pre").inner_text()


def test_a_page_of_1000_launches_is_usable(show: Open) -> None:
    opened = show("thousand")
    print(f"1,000 launches: usable after {opened.ready:.2f} s, all charts and tables after {opened.complete:.2f} s")
    page = opened.page
    assert page.locator("#table-0 tbody tr").count() in (100, 1000)
    for first in ("0", "999"):
        page.locator("#table-0 th", has_text="achieved").click()
        expect(page.locator("#table-0 tbody td").first).to_have_text(first)
    assert page.locator("#chart-roofline .scatterlayer .point").count() >= 1000
    assert opened.problems == []
    # Machines are noisy.
    assert opened.ready < 20
