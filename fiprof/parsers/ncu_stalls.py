"""Why warps did not issue: one spelling for ncu's three."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fiprof.model import tables

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from fiprof.parsers.ncu_profile import Profile

_PER_ISSUE = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)")
_NOT_ISSUED = re.compile(_SAMPLED.pattern + "_not_issued")
_SOURCE_COLUMN = re.compile(r"stall_(\w+)")

_SPELLINGS = {
    # The samples' own.
    "no_instructions": "no_instruction",
    "warpgroup_arrive": "gmma",
    # The source page's columns.
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instruction",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
"""ncu's other spellings of a reason -> the one of its per-issue ratios, which the tables use."""


def spell(reason: str) -> str:
    """The one spelling of a stall reason."""
    return _SPELLINGS.get(reason, reason)


def sampled_metrics(names: tuple[str, ...]) -> dict[str, str]:
    """Of ncu's metrics those with the samples of a stall reason: reason -> metric."""
    return {
        spell(match[1]): name
        for name in names
        if not _NOT_ISSUED.fullmatch(name) and (match := _SAMPLED.fullmatch(name))
    }


def not_issued_metrics(names: tuple[str, ...]) -> dict[str, str]:
    """Those with the samples in cycles in which the scheduler issued nothing: reason -> metric."""
    return _named(names, _NOT_ISSUED)


def source_reason(column: str) -> str | None:
    """The reason whose samples a column of the source page has: ``stall_long_sb`` -> ``long_scoreboard``."""
    match = _SOURCE_COLUMN.fullmatch(column)
    return spell(match[1]) if match else None


def stalls_table(profile: Profile) -> pa.Table:
    """The table ``stalls``: a row a launch and reason, for each reason that ncu gives in either measure.

    share is warps_per_issue over its sum; for a launch without these ratios, samples over their sum.
    """
    import numpy as np
    import pyarrow as pa

    ratios = _named(profile.metrics, _PER_ISSUE)
    samples = sampled_metrics(profile.metrics)
    idle = not_issued_metrics(profile.metrics)
    reasons = sorted(ratios.keys() | samples.keys())
    if not reasons:
        return tables.empty("stalls")

    warps, sampled, not_issued = (_grid(profile, reasons, named) for named in (ratios, samples, idle))
    base = np.where(np.isnan(warps).all(axis=1, keepdims=True), sampled, warps)
    total = np.nansum(base, axis=1, keepdims=True)
    share = np.divide(base, total, out=np.full_like(base, np.nan), where=total > 0)
    rows, codes = (~(np.isnan(warps) & np.isnan(sampled))).nonzero()
    ids = np.array([launch.id for launch in profile.launches], np.int32)

    def column(values: NDArray[np.float64], kind: pa.DataType) -> pa.Array:
        return pa.array(values[rows, codes], from_pandas=True).cast(kind)

    return pa.table(
        {
            "launch": ids[rows],
            "reason": pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(reasons, pa.string())),
            "warps_per_issue": column(warps, pa.float64()),
            "share": column(share, pa.float64()),
            "samples": column(sampled, pa.int64()),
            "samples_not_issued": column(not_issued, pa.int64()),
        }
    )


def _named(names: tuple[str, ...], pattern: re.Pattern[str]) -> dict[str, str]:
    return {spell(match[1]): name for name in names if (match := pattern.fullmatch(name))}


def _grid(profile: Profile, reasons: list[str], named: dict[str, str]) -> NDArray[np.float64]:
    """Launches x reasons; NaN for a reason that the measure does not have."""
    import numpy as np

    nothing = np.full(len(profile.launches), np.nan)
    columns = [profile.of(named[reason]) if reason in named else None for reason in reasons]
    return np.stack([nothing if column is None else column for column in columns], axis=1)
