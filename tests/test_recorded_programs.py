"""What ``fiprof top`` and ``comm`` say of the programs in tests/programs, recorded on H200s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.recorded_runs import invoke, profiled


def rows(*arguments: str) -> list[dict[str, Any]]:
    status, text = invoke(*arguments, "--format", "json")
    assert status == 0
    found: list[dict[str, Any]] = json.loads(text)["rows"]
    return found


def test_a_report_is_of_a_program(tmp_path: Path) -> None:
    for program, title, again in (
        ("vectors", "# vectors 50 on NVIDIA H200", "fiprof profile --set full -- ./vectors 50"),
        (
            "ranks",
            "# ranks.py 30 on NVIDIA H200",
            "fiprof profile -- python3 -m torch.distributed.run --standalone --nproc-per-node 2 ranks.py 30",
        ),
        ("server", None, "fiprof capture NAME --duration 0.4"),
    ):
        assert invoke("report", str(profiled(program).path), "--format", "md", "--out", str(tmp_path))[0] == 0
        lines = (tmp_path / "report.md").read_text().splitlines()
        assert title in (None, lines[0]) and again in lines
        assert (program == "ranks") == any(
            "Rank 1 makes the others wait most: 367.285 ms" in line for line in lines[:20]
        )
        assert not [
            line for line in lines if "plain run" in line or "names no case" in line or "collect --replay" in line
        ]
