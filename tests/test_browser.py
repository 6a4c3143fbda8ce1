"""Pages in a real browser: of a run (a choice moves every pane, keys, search, sources), of studies, comparisons and the site
(charts, sorting, search); schemes, a phone, print, axe."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fiprof.analysis.study import load
from fiprof.model.finding import Provenance, TracedNumber, say
from fiprof.reports import study
from fiprof.reports.markdown_html import code_block, document_html, link, report_html
from fiprof.reports.report import report
from fiprof.reports.view import Column, Document, View
from tests.browser import CHROMIUM, launched
from tests.recorded_runs import STUDY, exam, invoke, parsed, served
from tests.reports_fixture import case, execution, make_run

expect: Any = pytest.importorskip("playwright.sync_api").expect

HOSTILE = 'void <script>alert("1")</script>`rm -rf /`|[x](http://e.example)\x1b[31m{0}{}%s'
NAMES = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "<b>bold</b><a href='https://example.invalid/'>click</a>%{customdata[0]}",
    "| pipe `tick` *star* [link](https://example.invalid) # heading",
    "bell\x07escape\x1b[31m override\u202egnirts",
    "a_template<" + ", ".join(f"cute::Layout<cute::_{i}>" for i in range(60)) + ">",
)
"""Names of kernels that are no text for somebody."""

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"no chromium at {CHROMIUM}: FIPROF_TEST_CHROMIUM names one"
)
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
Show = Callable[..., Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of runs, the analysis of the study, a comparison, and a document with those names wherever one may stand,
    numbers that are missing, a command and traced numbers."""
    fact = TracedNumber(52.84, Provenance("ncu", 'a | b / "c"', launch=3), ".1f", "%")
    columns = (Column("name", "kernel"), Column("time", "time", "µs", ",.1f"), Column("", "traced"))
    times = (307.87, 94.62, None, 1093.5, 22.5, float("nan"))
    rows = tuple((name, time, say("at {} of {}", fact, "<b>")) for name, time in zip(NAMES, times, strict=True))
    view = View(columns, rows, title=NAMES[0], summary=NAMES, warnings=NAMES[:1])
    lead = (link("Analysis", "analysis.md#x"), code_block("fiprof collect --kernel prefill --batch 1,8,32"))
    names = report_html(Document(view, (view,)), "All five kernels on an H200", lead=lead)
    folder = tmp_path_factory.mktemp("pages")
    mine = f"mine[rows={HOSTILE}]"
    ran = execution(0, 10_000, HOSTILE, case=mine)
    launches = [{**ran, "launch": 0, "duration_ns": 1e4}]
    hostile = make_run(folder / "run", launches=launches, kernels=[ran], cases=[case(mine)])
    runs = {
        "all": [parsed("all")], "llama": [parsed("llama")], "ranks": [parsed("ranks")], "hostile": [hostile],
        "several": [parsed("all"), parsed("prefill-decode-rope")], "batching": [served("batching")],
        "serving": [exam("serving", "H200")],
    }  # fmt: skip
    analysis = document_html(study.pages(load(STUDY))["analysis"], "analysis")
    texts = {"names": names, "analysis": analysis, **{name: report(of).html() for name, of in runs.items()}}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    sides = (f"{parsed('decode').path}:tensor_cores={value}" for value in ("false", "true"))
    assert invoke("compare", *sides, "--out", str(folder / "compare.html"))[0] == 0
    return {path.stem: path for path in folder.glob("*.html")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def show(browser: Any, files: dict[str, Path]) -> Iterator[Show]:
    """``show(name)`` opens one of the files and waits until it can be used.

    At the end no page has written to its console, thrown an error or asked for anything but its file.
    """
    contexts: list[Any] = []
    problems: list[str] = []

    def show(
        name: str, *, scheme: str = "light", viewport: dict[str, int] = DESKTOP, at: str = "", script: bool = True
    ) -> Any:
        phone = viewport is PHONE
        context = browser.new_context(
            viewport=viewport, color_scheme=scheme, has_touch=phone, is_mobile=phone, java_script_enabled=script,
            permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        contexts.append(context)
        page, address = context.new_page(), files[name].as_uri()

        def asked(url: str) -> None:
            if url.partition("#")[0] != address and not url.startswith("data:"):
                problems.append(url)

        page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: asked(request.url))
        page.goto(address + at)
        if script:
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []


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


def test_it_opens_on_its_headline_in_which_an_estimate_goes_before_an_empty_bound(show: Show) -> None:
    """matmul_naive takes 30 % of the time and is bounded by 92 %, candidates 31 % of which 78 % are estimated."""
    page = show("serving")
    assert "Start with candidates" in page.locator("#headline").inner_text()
    assert page.locator("#rows tr.chosen").inner_text().startswith("candidates")


def test_a_program_opens_on_its_biggest_loss_and_its_rows_are_filtered_and_sorted(show: Show) -> None:
    page = show("llama")
    assert page.locator("#headline").inner_text().startswith("The GPU is idle for 86% of the steady part (24 steps).")
    assert page.locator("#pane h2").inner_text() == "idle: launching · decode"
    page.get_by_role("button", name="matmul").click()
    page.locator("#rows tbody tr").first.click()
    assert chosen(page).startswith("launch=") and page.locator("[role=tab]").count() == 6
    page = show("llama")
    page.keyboard.press("/")
    page.keyboard.type("attention")
    assert 0 < page.locator("#rows tbody tr").count() < 20
    page.locator("#search").fill("")
    expect(page.locator("#rows-note")).to_contain_text("100.0% of the time")
    page.locator("#rows th", has_text="runs").get_by_role("button").click()
    counts = [int(text.replace(",", "")) for text in page.locator("#rows td:nth-child(3)").all_inner_texts() if text]
    assert counts == sorted(counts, reverse=True)


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
    command = page.locator("#reproduce pre").first.inner_text()
    assert page.evaluate("navigator.clipboard.readText()").startswith(command[:40])


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
def test_layout_holds_and_axe_core_finds_nothing(show: Show, name: str, viewport: dict[str, int], scheme: str) -> None:
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


def test_without_decompression_it_says_what_to_do(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(files["all"].as_uri())
    expect(page.locator("#problem")).to_contain_text("read report.md")
    assert page.locator("#headline").inner_text().startswith("Start with PrefillWithKVCacheKernel")
    page.close()


def draw_all(page: Any) -> None:
    """Every chart, as for a printer."""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".plot:not([data-drawn])")).to_have_count(0)


CROWDED = """() => [...document.querySelectorAll(".plot svg")].map((svg) => {
  const labels = [...svg.querySelectorAll("text, .points_marks path")].filter((label) => {
    const look = getComputedStyle(label);
    return label.matches("path") || (label.textContent.trim() && look.opacity !== "0" && look.fillOpacity !== "0");
  });
  const boxes = labels.map((label) => [label.textContent, label.getBoundingClientRect()]);
  const found = boxes.filter(([, box]) => box.right > innerWidth + 1).map(([words]) => `${words} is outside`);
  for (const [a, one] of boxes) for (const [b, other] of boxes) {
    const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (a && one !== other && across > 1 && down > 3) found.push(`${a} | ${b}`);
  }
  return [labels.length, found];
})"""
"""How many labels a chart has, and which lie outside or on others, but for the space above and below the letters. A
roofline's points are labels without words, which may lie on each other."""


@pytest.mark.parametrize(("name", "viewport", "scheme"), [("compare", PHONE, "dark"), ("analysis", DESKTOP, "light")])
def test_labels_are_apart_and_axe_finds_nothing(show: Show, name: str, viewport: dict[str, int], scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(name, viewport=viewport, scheme=scheme)
    draw_all(page)
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in axe.Axe().run(page).response["violations"]] == []
    counts, crowded = zip(*page.evaluate(CROWDED), strict=True)
    assert sum(counts) > 10 and [*crowded] == [[]] * len(counts)


def test_tables_are_sorted_by_the_number_and_searched_and_folds_open(show: Show) -> None:
    page = show("names")
    heading, times = page.get_by_role("button", name="time"), page.locator("tbody td:nth-child(2)")
    for order in (["1,093.5", "307.9", "94.6", "22.5", "–", "–"], ["22.5", "94.6", "307.9", "1,093.5", "–", "–"]):
        heading.click()
        expect(times).to_have_text(order)
    page = show("compare")
    table = page.locator("#decode-batch8-where-the-change-is table").first
    assert not table.is_visible()
    page.evaluate("location.hash = '#decode-batch8-where-the-change-is'")
    expect(table).to_be_visible()
    page = show("analysis")
    page.keyboard.press("/")
    page.keyboard.type("cos_sin_cache")
    expect(page.locator("#found")).to_have_text("12 found")
    expect(page.locator("#every-rope-case tbody tr:visible")).to_have_count(4)
    assert page.locator("main > section:visible").count() == 3
    page.locator("#search").fill("inplace")
    expect(page.locator("#every-rope-case tbody td:nth-child(1):visible")).to_contain_text(["inplace"] * 4)


def test_the_colour_scheme_is_the_systems_until_the_reader_chooses_one(show: Show) -> None:
    page = show("analysis", scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 24, 30)"
    page.get_by_label("Colour scheme").select_option("light")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"


def test_contents_mark_the_section_and_folds_are_closed_but_the_first(show: Show) -> None:
    page = show("compare")
    assert page.locator("main details").evaluate_all("all => all.map(each => each.open)") == [True] * 2 + [False] * 8
    page = show("analysis")
    page.locator("nav.side").get_by_text("decode: growth along batch").click()
    expect(page.locator("nav.side a[aria-current]")).to_have_text("decode: growth along batch")
    draw_all(page)
    assert page.locator("#chart-decode-time-against-batch-kv-2048 .mark-line path").count() == 6
    ids, hrefs = (
        page.eval_on_selector_all(f"[{name}]", f"all => all.map(each => each.getAttribute('{name}'))")
        for name in ("id", "href")
    )
    elsewhere = {href.partition("#")[0] for href in hrefs if href[1:] not in ids}
    others = {f"{name}.html" for name in ("INDEX", "environment", "kernel-dev-guide", "final-report")}
    assert len(ids) == len({*ids}) and elsewhere - others == {"cases.csv"}


def test_names_are_text(show: Show) -> None:
    """Without a network or eval; on a run's page too."""
    page = show("hostile")
    assert '<script>alert("1")</scrip…' in page.locator("#pane h2").inner_text()
    assert page.locator("main a[href^=http]").count() == 0
    page = show("names")
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "unsafe-eval" not in policy and "http" not in policy
    assert page.title() == "All five kernels on an H200"
    assert page.locator("main img, main a[href^=https], #vg-tooltip-element b").count() == 0
    text = page.locator("body").text_content()
    assert all(name in text for name in (*NAMES[:4], "bell\\x07escape\\x1b[31m override\\u202egnirts"))
    facts = page.locator("span.fact").evaluate_all("all => all.map(each => each.dataset.tip)")
    assert facts == ['ncu, launch 3: a | b / "c"'] * len(NAMES) and text.count("at 52.8% of <b>") == len(facts)


def test_on_a_phone_tables_scroll_with_their_first_column_kept_and_the_page_does_not(show: Show) -> None:
    page = show("analysis", viewport=PHONE)
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    box = page.locator("#every-rope-case .scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.evaluate("box => box.scrollLeft = 600")
    assert box.locator("tbody td").first.evaluate("cell => cell.getBoundingClientRect().left") < 40
    assert page.locator("details.contents").is_visible() and not page.locator("nav.side").is_visible()
    charts = page.locator(".plot svg").evaluate_all("all => all.map(svg => svg.getBoundingClientRect().right)")
    assert max(charts) <= PHONE["width"]


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [("all", "#environment table", "#chips"), ("analysis", "#chart-rope-time-against-tokens svg", "nav.side")],
)
def test_it_is_printed_dark_on_white_with_all_that_folds(show: Show, name: str, shown: str, hidden: str) -> None:
    page = show(name, scheme="dark")
    draw_all(page)
    page.emulate_media(media="print", color_scheme="dark")
    colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert page.locator(shown).is_visible() and not page.locator(hidden).is_visible()
    assert page.locator(".scroll").first.evaluate("box => getComputedStyle(box).overflowX") == "visible"
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_javascript_tables_are_there(show: Show) -> None:
    assert show("names", script=False).locator("td", has_text="*star*").is_visible()


def test_a_published_archive(browser: Any, tmp_path: Path) -> None:
    """From a disk, without a network: filtered, followed to a report, trends drawn by the library beside them."""
    hostile = "20261122-<img src=x onerror=alert(1)>&#%41"
    for name, run in (("cases", parsed("prefill-decode-rope")), (hostile, parsed("graph"))):
        shutil.copytree(run.path, tmp_path / "archive" / name)
    invoke("tag", str(tmp_path / "archive" / hostile), "release")
    words = ("publish", str(tmp_path / "site"), "--artifacts", str(tmp_path / "archive"))
    assert invoke(*words) == (0, f"{tmp_path / 'site/index.html'}\n")
    page = browser.new_page(viewport=DESKTOP)
    asked: list[str] = []
    page.on("console", lambda message: asked.append(message.text))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "site/index.html").as_uri())
    rows = page.locator("#runs tbody tr")
    page.fill("#search", "onerror RELEASE")
    expect(rows.filter(visible=True)).to_have_count(1)
    page.fill("#search", "")
    expect(rows.filter(visible=True)).to_have_count(2)
    page.get_by_role("link", name=hostile).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("graph.py 200 on NVIDIA H200")
    expect(page.locator("#timeline canvas")).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="Trends of kernels").click()
    expect(page.locator(".plot").first.locator("svg .mark-symbol path")).to_have_count(1)
    assert {url.rpartition("/")[2] for url in asked} == {
        "index.html", "vega.js", "trend-kernels.html", f"{quote(hostile)}.html",
    }  # fmt: skip
    page.close()
