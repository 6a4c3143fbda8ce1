"""The README's picture: ``make pictures`` takes it anew, in a real browser, from the page that ``make reports`` builds."""

import sys
from pathlib import Path

from tests.browser import launched

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/reports/20261121-120959-all/report.html"
PICTURE = REPOSITORY / "docs/pictures/report.png"
WIDTH = 1280
"""Of the window, pixels."""


def main() -> None:
    """From the headline to the end of the timeline."""
    PICTURE.parent.mkdir(exist_ok=True)
    with launched() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 800}, device_scale_factor=1.5)
        page.goto(PAGE.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.add_style_tag(content=".tools { display: none !important; }")
        page.wait_for_timeout(300)  # the timeline is drawn again at its width
        box = page.locator("#timeline").bounding_box()
        height = box["y"] + box["height"] + 16
        page.screenshot(path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": height}, full_page=True)
    sys.stdout.write(f"{PICTURE.relative_to(REPOSITORY)}\n")


if __name__ == "__main__":
    main()
