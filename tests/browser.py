"""The real browser of the tests and of the README's pictures: chromium, driven by playwright."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path(os.environ.get("FIPROF_TEST_CHROMIUM", "/usr/bin/chromium"))
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
NEEDED = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no chromium at {CHROMIUM}: FIPROF_TEST_CHROMIUM names one")
Show = Callable[..., Any]


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser of playwright's, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*FLAGS.split(), "--disable-component-update", "--disable-sync"]
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield browser
        browser.close()


@contextlib.contextmanager
def showing(browser: Any, files: dict[str, Path]) -> Iterator[Show]:
    """``show(name)`` opens a file and waits until it can be used.

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
