"""The real browser of the tests, chromium driven by playwright; and the documentation's pictures: ``make pictures`` takes them
anew, of the page that ``make reports`` builds and of the report of the recorded batching."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fiprof.reports.report import report
from tests.recorded_runs import served, session_folder

CHROMIUM = Path(os.environ.get("FIPROF_TEST_CHROMIUM", "/usr/bin/chromium"))
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/reports/20261121-120959-all/report.html"
PICTURES = REPOSITORY / "docs/pictures"
WIDTH = 1280
"""Of the window, pixels."""


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser of playwright's, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*FLAGS.split(), "--disable-component-update", "--disable-sync"]
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield browser
        browser.close()


def main() -> None:
    """All, or those that are named: ``story`` needs no ``make reports``."""
    PICTURES.mkdir(exist_ok=True)
    with launched() as browser, TemporaryDirectory() as folder:
        story = Path(folder) / "story.html"
        # Each page, and the parts of it that its picture begins and ends with.
        pages = {"report": (PAGE, "body", "#timeline"), "story": (story, "#timeline", "#pictures")}
        for name in sys.argv[1:] or pages:
            if name == "story":
                os.environ["FIPROF_TEST_SESSION"] = Path(folder).name
                story.write_text(report([served("batching")]).html(), encoding="utf-8")
                shutil.rmtree(session_folder())
            address, *parts = pages[name]
            page = browser.new_page(viewport={"width": WIDTH, "height": 800}, device_scale_factor=1.5)
            page.goto(address.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            page.add_style_tag(content=".tools { display: none !important; }")
            page.wait_for_timeout(300)  # the timeline is drawn again at its width
            first, last = (page.locator(each).bounding_box() for each in parts)
            clip = {"x": 0, "y": first["y"], "width": WIDTH, "height": last["y"] + last["height"] + 16 - first["y"]}
            page.screenshot(path=PICTURES / f"{name}.png", clip=clip, full_page=True)
            sys.stdout.write(f"docs/pictures/{name}.png\n")


if __name__ == "__main__":
    main()
