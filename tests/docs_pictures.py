"""The README's picture: ``make pictures`` takes it anew, in a real browser, from the page that ``make reports`` builds."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser import launched

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/reports/20261121-120959-all/report.html"
PICTURE = REPOSITORY / "docs/pictures/report.png"
WIDTH = 1180
"""Of the window, pixels."""
BESIDE = """
.tools, #charts > h2, #charts figcaption, #charts details, #charts > figure:not(#chart-timeline, #chart-roofline),
.pilcrow, #answer ~ p, #answer > p:last-child { display: none !important; }
#charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 2rem; align-items: start; }
#charts h3 { margin-top: 0; }
main { padding-bottom: 1rem; }
"""
"""The answer, and below it timeline and roofline beside each other."""


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    with launched() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=1.5)
        page.goto(PAGE.as_uri())
        page.add_style_tag(content=BESIDE)
        page.evaluate("for (const what of ['beforeprint', 'resize']) dispatchEvent(new Event(what))")
        page.locator("#chart-roofline [data-drawn]").wait_for()
        page.locator("#chart-timeline [data-drawn]").wait_for()
        page.wait_for_timeout(500)  # charts of another width are laid out again
        box = page.locator("#charts").bounding_box()
        height = box["y"] + box["height"] + page.evaluate("scrollY") + 40
        page.screenshot(path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": height}, full_page=True)
    sys.stdout.write(f"{PICTURE.relative_to(REPOSITORY)}\n")


if __name__ == "__main__":
    main()
