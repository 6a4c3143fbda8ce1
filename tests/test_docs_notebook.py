"""The notebook in docs/ runs, and says what it says in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("vl_convert")

from fiprof.reports.notebook import VEGALITE
from tests import docs_notebook


def test_executed_again_it_shows_the_same(tmp_path: Path) -> None:
    import nbformat

    committed = nbformat.read(docs_notebook.NOTEBOOK, as_version=4)
    assert docs_notebook.texts(docs_notebook.execute(tmp_path)) == docs_notebook.texts(committed)


def test_each_chart_is_a_figure_with_its_characters_and_without_a_library_and_an_address() -> None:
    import nbformat

    notebook = nbformat.read(docs_notebook.NOTEBOOK, as_version=4)
    charts = [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if VEGALITE in output.get("data", {})
    ]
    assert len(charts) == 3
    assert all(chart["text/plain"].count("\n") >= 5 for chart in charts)
    assert all(chart["image/svg+xml"].startswith("<svg") for chart in charts)
    assert docs_notebook.NOTEBOOK.stat().st_size < 600_000
    assert "https://cdn" not in docs_notebook.NOTEBOOK.read_text()
