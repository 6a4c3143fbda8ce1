"""Ways to do the same in FlashInfer, between which a study's times can choose: ``choices`` in ``kernels.toml``."""

from __future__ import annotations

from fiprof.analysis.study import side
from fiprof.flashinfer.data import data
from fiprof.reports.study_pages.choices import Choice


def choices() -> list[Choice]:
    """In the file's order."""
    return [Choice(**{**table, **{key: side(**table[key]) for key in ("old", "new")}}) for table in data()["choices"]]
