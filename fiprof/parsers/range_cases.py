"""NVTX ranges that were declared to be cases: ``NAME`` or ``DOMAIN@NAME``, with ``*`` for any text."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

FIPROF_DOMAIN = "fiprof"
"""The runner's own ranges lie in it."""


def case_of(domain: str, name: str, declared: Sequence[str]) -> str | None:
    """The declared range that a range is one of; None for none. domain: empty for NVTX's default one."""
    return next(
        (each for each in declared if _pattern(each).fullmatch(name) or _pattern(each).fullmatch(f"{domain}@{name}")),
        None,
    )


@functools.cache
def _pattern(declared: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, declared.split("*"))), re.DOTALL)
