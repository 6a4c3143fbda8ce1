"""What a command reads of a run: each table is opened once, and no column of it twice, but in pieces that are not kept."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fiprof.cli.main import cli
from fiprof.model import tables
from tests.recorded_runs import parsed


@pytest.mark.parametrize(
    "command", ["report", "show", "verdict", "stalls", "roofline", "expected", "hotspots", "timeline"]
)
def test_each_table_is_opened_once_and_no_column_is_read_twice(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = parsed("all")
    opened: Counter[str] = Counter()
    read: Counter[tuple[str, str]] = Counter()

    class Counted(tables.Reader):
        def __init__(self, folder: Path, name: str, **options: Any) -> None:
            super().__init__(folder, name, **options)
            opened[name] += 1
            whole: Any = self._file

            class File:
                metadata = whole.metadata

                def read(self, columns: Sequence[str], **options: Any) -> Any:
                    read.update((name, column) for column in columns)
                    return whole.read(columns=columns, **options)

                def iter_batches(self, rows: int, columns: Sequence[str]) -> Any:
                    return whole.iter_batches(rows, columns=columns)

            self._file = File()

    monkeypatch.setattr(tables, "Reader", Counted)
    monkeypatch.setattr(tables, "read", lambda *_: pytest.fail("read past the Run"))
    out = ["--out", str(tmp_path)] if command == "report" else []
    done = CliRunner().invoke(cli, [command, str(run.path), *out])
    assert done.exit_code == 0, done.output
    assert opened and set(opened.values()) == {1}
    assert set(read.values()) == {1}
