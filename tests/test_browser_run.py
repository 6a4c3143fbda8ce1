"""The page of a run in a real browser: a choice moves every pane, keys, search, sources, schemes, a phone, print, axe."""

from pathlib import Path
from typing import Any

import pytest

from fiprof.reports.report import report
from tests.browser import DESKTOP, NEEDED, PHONE, Show
from tests.recorded_runs import parsed, profiled, served
from tests.reports_fixture import case, execution, make_run

expect: Any = pytest.importorskip("playwright.sync_api").expect

HOSTILE = 'void <script>alert("1")</script>`rm -rf /`|[x](http://e.example)\x1b[31m{0}{}%s'

pytestmark = NEEDED


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    mine = f"mine[rows={HOSTILE}]"
    ran = execution(0, 10_000, HOSTILE, case=mine)
    hostile = make_run(
        folder / "run", launches=[{**ran, "launch": 0, "duration_ns": 1e4}], kernels=[ran], cases=[case(mine)]
    )
    runs = {
        "all": [parsed("all")], "llama": [profiled("llama")], "ranks": [profiled("ranks")], "hostile": [hostile],
        "several": [parsed("all"), parsed("prefill-decode-rope")], "batching": [served("batching")],
    }  # fmt: skip
    for name, of in runs.items():
        (folder / f"{name}.html").write_text(report(of).html(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in runs}


def chosen(page: Any) -> str:
    return str(page.locator("#rows tr.chosen").get_attribute("data-id"))


def test_a_choice_moves_every_pane_the_address_and_the_timeline(show: Show) -> None:
    """By a click on a row or in the timeline, a key or the address."""
    page = show("all")
    assert chosen(page) == "launch=3"
    for key, launch in (("ArrowDown", "launch=5"), ("j", "launch=0"), ("k", "launch=5")):
        page.keyboard.press(key)
        assert chosen(page) == launch
    page.locator("#tab-why").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-source")).to_be_focused()
    expect(page.locator("#tab-source")).to_have_attribute("aria-selected", "true")
    page.locator("#rows tr", has_text="RMSNormKernel").first.click()
    assert page.url.endswith(f"#{chosen(page)}")
    canvas = page.locator("#timeline canvas")
    seen: dict[str, list[str]] = {}
    for launch in ("launch=0", "launch=5"):
        page.evaluate(f"location.hash = '#{launch}'")
        expect(page.locator("#pane")).to_have_attribute("data-id", launch)
        assert chosen(page) == launch
        seen[launch] = []
        for key in "123456":
            page.keyboard.press(key)
            seen[launch].append(page.locator("#panel").inner_text())
    assert all(one != other for one, other in zip(*seen.values(), strict=True))
    assert "compute-bound (issue slots)" in seen["launch=0"][0] and "memory-bound (DRAM)" in seen["launch=5"][0]
    page.evaluate("location.hash = '#launch=0'")
    page.get_by_label("Part of the trace").select_option(index=0)
    expect(canvas).to_have_attribute("data-lit", "launch=0")


def test_a_program_opens_on_its_biggest_loss(show: Show) -> None:
    page = show("llama")
    assert page.locator("#headline").inner_text().startswith("The GPU is idle for 86% of the steady part (24 steps).")
    assert page.locator("#pane h2").inner_text() == "idle: launching · decode"
    page.get_by_role("button", name="matmul").click()
    page.locator("#rows tbody tr").first.click()
    assert chosen(page).startswith("launch=") and page.locator("[role=tab]").count() == 6


def test_source_counters_and_timeline_of_a_launch(show: Show) -> None:
    """The source is folded around what is hot, and unfolds; each counter is found by typing, and names where it is from;
    a click in the timeline chooses, and it is zoomed."""
    page = show("all", at="#launch=3")
    page.keyboard.press("2")
    here = page.locator(".source tr.here .heat")
    first = here.inner_text()
    page.keyboard.press("n")
    assert float(here.inner_text()[:-1]) <= float(first[:-1])
    shown = page.locator(".source tbody tr").count()
    page.locator(".source tr.fold button").first.click()
    assert page.locator(".source tbody tr").count() > shown
    page.get_by_label("Heat by").select_option("barrier")
    assert page.locator(".source tr.hot").count() > 0
    page.get_by_role("tab").last.click()
    page.get_by_label("Filter the counters").fill("duration_us")
    row = page.locator("#panel tbody tr").first
    expect(row).to_contain_text("307.87")
    row.locator("td.n").hover()
    expect(page.locator("#tip")).to_have_text("ncu, launch 3: gpu__time_duration.sum / 1000")
    page.get_by_label("Filter the counters").fill("sm__warps_active.avg.pct")
    assert page.locator("#panel tbody tr").count() >= 1
    canvas = page.locator("#timeline canvas")
    canvas.scroll_into_view_if_needed()
    canvas.click(position={"x": 160, "y": 34})
    assert chosen(page) == "launch=0"
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    page.get_by_role("button", name="Zoom in").click()
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before


def test_rows_are_filtered_sorted_and_their_shares_said(show: Show) -> None:
    page = show("llama")
    page.keyboard.press("/")
    page.keyboard.type("attention")
    rows = page.locator("#rows tbody tr")
    assert 0 < rows.count() < 20
    page.locator("#search").fill("")
    expect(page.locator("#rows-note")).to_contain_text("100.0% of the time")
    page.locator("#rows th", has_text="runs").get_by_role("button").click()
    counts = [int(text.replace(",", "")) for text in page.locator("#rows td:nth-child(3)").all_inner_texts() if text]
    assert counts == sorted(counts, reverse=True)


def test_several_runs_are_one_table_with_a_column_and_a_chip_each(show: Show) -> None:
    page = show("several")
    assert {*page.locator("#rows td:first-child").all_inner_texts()} == {"1", "2"}
    page.get_by_role("button", name="run 2: ").click()
    assert {*page.locator("#rows td:first-child").all_inner_texts()} == {"2"}
    expect(page.locator("#compared")).to_contain_text("the runs differ in ncu set")


def test_the_appendix_unfolds_and_a_command_is_copied(show: Show) -> None:
    page = show("all")
    for anchor in ("sure", "asked", "environment", "actions", "reproduce"):
        page.locator(f"#{anchor} summary").click()
    expect(page.locator("#environment")).to_contain_text("NVIDIA H200")
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith(
        page.locator("#reproduce pre").first.inner_text()[:40]
    )


def test_names_of_the_program_are_text(show: Show) -> None:
    page = show("hostile")
    assert '<script>alert("1")</scrip…' in page.locator("#pane h2").inner_text()
    assert page.locator("main a[href^=http]").count() == 0


OVERLAPS = """() => {
  const seen = [...document.querySelectorAll("h1, .headline, .chips > *, #story td, #story th, #story p, figcaption, figure text, #rows td, #rows th, [role=tab], #panel p, #panel li, .legend li")]
    .filter((part) => part.checkVisibility() && part.getBoundingClientRect().width);
  const found = [];
  const boxes = seen.map((part) => [part, part.getBoundingClientRect()]);
  for (const [a, one] of boxes) for (const [b, other] of boxes) {
    if (a === b || a.contains(b) || b.contains(a) || a.matches("th") !== b.matches("th")) continue;
    if (a.closest(".scroll") !== b.closest(".scroll") || a.closest("#pane") !== b.closest("#pane")) continue;
    if (Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2)
      found.push(`${a.textContent.slice(0, 30)} | ${b.textContent.slice(0, 30)}`);
  }
  return found;
}"""


@pytest.mark.parametrize(
    ("name", "viewport", "scheme"),
    [
        ("all", DESKTOP, "light"), ("all", PHONE, "dark"), ("llama", DESKTOP, "dark"), ("llama", PHONE, "light"),
        ("ranks", PHONE, "light"), ("several", DESKTOP, "dark"), ("batching", DESKTOP, "light"), ("batching", PHONE, "dark"),
    ],
)  # fmt: skip
def test_nothing_lies_on_anything_the_page_is_as_wide_as_the_screen_and_axe_core_finds_nothing(
    show: Show, name: str, viewport: dict[str, int], scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(name, scheme=scheme, viewport=viewport)
    for key in "123456":
        page.keyboard.press(key)
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        # The panes of a launch differ; their look does not.
        if key == "1" or (name, scheme) == ("all", "light"):
            found = axe.Axe().run(page)
            assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found.response["violations"]] == []


def test_printed_it_is_dark_on_white_with_its_appendix(show: Show) -> None:
    page = show("all", scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#environment table").is_visible() and not page.locator("#chips").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_decompression_it_says_what_to_do(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(files["all"].as_uri())
    expect(page.locator("#problem")).to_contain_text("read report.md")
    assert page.locator("#headline").inner_text().startswith("Start with PrefillWithKVCacheKernel")
    page.close()
