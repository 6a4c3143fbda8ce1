"""The README's pictures: ``make pictures`` takes them anew, in a real browser, from the pages that ``make docs`` builds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.browser import launched

REPOSITORY = Path(__file__).parents[1]
PAGES = REPOSITORY / "docs/reports"
PICTURES = REPOSITORY / "docs/pictures"
ALL = "20261121-120959-all/report.html"
MARGIN = 16
"""Around a part, pixels."""
STUDY = "study-flashinfer-quick/reports"


@dataclass(frozen=True)
class Picture:
    """A part of a page, photographed."""

    name: str
    """Of the PNG file."""
    page: str
    """Below docs/reports."""
    anchor: str = ""
    """Of the element; the top of the page without."""
    scheme: Literal["light", "dark"] = "light"
    width: int = 1180
    """Of the window, pixels."""
    height: int = 900


TAKEN = (
    Picture("report", ALL, height=640),
    Picture("timeline", ALL, "chart-timeline"),
    Picture("roofline", ALL, "chart-roofline", "dark"),
    Picture("stalls", ALL, "chart-stalls"),
    Picture("occupancy", ALL, "chart-occupancy"),
    Picture("memory", ALL, "chart-memory"),
    Picture("scaling", f"{STUDY}/analysis.html", "chart-decode-kv_len"),
)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with launched() as browser:
        for picture in TAKEN:
            window = {"width": picture.width, "height": picture.height}
            page = browser.new_page(viewport=window, color_scheme=picture.scheme)
            page.goto((PAGES / picture.page).as_uri())
            target = PICTURES / f"{picture.name}.png"
            if picture.anchor:
                element = page.locator(f"#{picture.anchor}")
                element.scroll_into_view_if_needed()
                element.locator("[data-drawn]").first.wait_for()
                box = element.bounding_box()
                clip = {"x": box["x"] - MARGIN, "y": box["y"] + page.evaluate("scrollY") - MARGIN}
                size = {"width": box["width"] + 2 * MARGIN, "height": box["height"] + 2 * MARGIN}
                page.screenshot(path=target, clip={**clip, **size}, full_page=True)
            else:
                page.screenshot(path=target)
            page.close()
            sys.stdout.write(f"{target.relative_to(REPOSITORY)}\n")


if __name__ == "__main__":
    main()
