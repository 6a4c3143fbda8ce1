"""fiprof.orchestrator.tools: who may read the counters, and which version a tool is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiprof.orchestrator.tools import counters_permitted, find_tool, parse_version

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


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0", (2025, 3, 1)),
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f", (2022, 4, 2)),
        ("Copyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36398880)", (2025, 3, 1)),
        ("command not found", ()),
    ],
)
def test_version(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


@pytest.mark.fault("an nsys or ncu whose --version prints bytes", "its version is unknown; the rest works")
def test_a_version_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\nprintf '\\377\\376Version'\n")
    program.chmod(0o755)
    monkeypatch.setenv("FIPROF_NCU", str(program))
    assert find_tool("ncu").version_text == "unknown"
