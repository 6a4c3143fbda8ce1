"""fiprof.orchestrator.tools: who may read the counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiprof.orchestrator.tools import counters_permitted

ROOT = "Name:\tpython3\nCapEff:\t000001ffffffffff\n"
ROOT_IN_A_CONTAINER = "Name:\tpython3\nCapEff:\t00000000a80425fb\n"
USER = "Name:\tpython3\nCapEff:\t0000000000000000\n"


@pytest.mark.parametrize(
    ("parameters", "status", "permitted"),
    [
        ("RmProfilingAdminOnly: 1\n", ROOT, True),
        ("RmProfilingAdminOnly: 1\n", ROOT_IN_A_CONTAINER, False),
        ("RmProfilingAdminOnly: 1\n", USER, False),
        ("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", USER, True),
        ("EnableMSI: 1\n", ROOT, None),
        (None, ROOT, None),
    ],
)
def test_the_counters_are_for_everybody_or_for_cap_sys_admin(
    tmp_path: Path, parameters: str | None, status: str, permitted: bool | None
) -> None:
    (tmp_path / "status").write_text(status)
    if parameters is not None:
        (tmp_path / "params").write_text(parameters)
    assert counters_permitted(tmp_path / "params", tmp_path / "status") is permitted
