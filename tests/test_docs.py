"""README and documentation: listings are what the commands print, pages are complete, links lead somewhere."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests import docs
from tests.conftest import REPOSITORY, ran
from tests.transcripts import PAGES, commands, filled

DOCS = REPOSITORY / "docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_listings_are_what_the_commands_print(page: Path, tmp_path: Path) -> None:
    """``python -m tests.transcripts`` writes them anew."""
    text = page.read_text(encoding="utf-8")
    assert commands(text)
    assert filled(text, tmp_path) == text


@pytest.mark.parametrize("page", docs.PAGES)
def test_what_is_made_from_the_code_and_the_tests(page: str) -> None:
    """``python -m tests.docs`` writes the pages anew."""
    path, text = docs.made(page)
    assert path.read_text(encoding="utf-8") == text


def test_the_readmes_links_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https:") and not (REPOSITORY / link).exists()] == []


def test_python_examples_parse() -> None:
    for path in DOCS.glob("*.md"):
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            ast.parse(block)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """A link or heading that is not there is a warning."""
    pytest.importorskip("sphinx")
    words = ["-W", "-q", "-b", "html", "-d", str(tmp_path / "trees"), "docs", str(tmp_path / "site")]
    done = ran(sys.executable, "-m", "sphinx", *words, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/commands.html").exists()


def test_the_notebook_executed_again_shows_the_same(tmp_path: Path) -> None:
    """``python -m tests.docs notebook`` writes it anew."""
    nbformat = pytest.importorskip("nbformat")
    committed = nbformat.read(docs.NOTEBOOK, as_version=4)
    assert docs.outputs(docs.executed(tmp_path)) == docs.outputs(committed)
