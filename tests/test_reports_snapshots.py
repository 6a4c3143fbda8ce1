"""What commands and reports print of recorded runs, as whole documents (tests/data/reports)."""

from __future__ import annotations

from fiprof.model.run import Run
from tests.reports_fixture import SNAPSHOTS, snapshots


def test_documents_are_those_of_the_repository(five_kernels: Run) -> None:
    made = snapshots(five_kernels)
    differ = [name for name, text in made.items() if text != (SNAPSHOTS / name).read_text(encoding="utf-8")]
    assert not differ, "python -m tests.reports_fixture writes them anew"
    assert {path.name for path in SNAPSHOTS.iterdir()} == {*made, "baseline.jsonl"}
