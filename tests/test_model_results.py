"""The results' schema: every field is described, and bad files are named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.model.results import (
    CaseResult,
    EnvironmentInfo,
    Kernel,
    KernelResults,
    KernelVerdict,
    Times,
    read,
)
from tests.conftest import REPOSITORY

DOCUMENT = (REPOSITORY / "docs/results.md").read_text()


@pytest.mark.parametrize("kind", [CaseResult, Times, Kernel, KernelVerdict, EnvironmentInfo, KernelResults])
def test_every_field_is_described(kind: type) -> None:
    described = set(re.findall(r"`(\w+)`", DOCUMENT))
    assert {field.name for field in dataclasses.fields(kind)} <= described


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged or no study's result"),
        ('{"workload": "rope"}', "is damaged or no study's result"),
        ('{"schema_version": 9}', "is of schema 9; this fiprof reads up to 2"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rope.json").write_text(text)
    with pytest.raises(FiprofError, match=re.escape(message)):
        read(tmp_path / "rope.json", KernelResults)
