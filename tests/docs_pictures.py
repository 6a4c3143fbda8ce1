"""The documentation's pictures: ``make pictures`` takes them anew, in a real browser: of the page that ``make reports``
builds, and of the report of the recorded batching."""

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fiprof.reports.report import report
from tests.browser import launched
from tests.recorded_runs import served, session_folder

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/reports/20261121-120959-all/report.html"
PICTURES = REPOSITORY / "docs/pictures"
WIDTH = 1280
"""Of the window, pixels."""


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
