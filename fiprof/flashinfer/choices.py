"""Ways to do the same in FlashInfer, between which a study's times can choose: ``choices`` in ``kernels.toml``."""

from __future__ import annotations

from fiprof.analysis.study import side
from fiprof.flashinfer.data import data
from fiprof.flashinfer.merge import MERGE
from fiprof.reports.study_pages.choices import Choice


def choices() -> list[Choice]:
    """In the file's order; where attention is compared, the merge of a split KV is named beside a ratio."""
    found = []
    for table in data()["choices"]:
        old, new = (side(**table[key]) for key in ("old", "new"))
        aside = (MERGE, data()["merge"]["name"]) if old.workload in ("decode", "prefill") else ("", "")
        found.append(Choice(**{**table, "old": old, "new": new, "aside": aside}))
    return found
