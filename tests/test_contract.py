"""What programs get: every JSON key is documented, and nothing in JSON, exit statuses or results depends on a wording."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fiprof.reports.measured import baselines as baselines_document
from fiprof.reports.measured import document as measured_document
from fiprof.reports.measured import gate_document
from fiprof.reports.view import About
from fiprof.reports.writers import render
from tests import docs_faults, docs_keys
from tests.recorded_runs import RUNS, invoke, parsed, session_folder, two_ranks
from tests.test_gate import MAIN, STEADY, gated

READERS = ("show", "stalls", "roofline", "verdict", "expected", "hotspots", "timeline")

MEASURED = gated(STEADY, STEADY)

Outputs = dict[tuple[str, str], tuple[int, str]]


def read_all() -> Outputs:
    """(Command, run) -> what each reading command prints of each recorded run as JSON."""
    found = {
        (command, name): invoke(command, str(parsed(name).path), "--format", "json")
        for name in RUNS
        for command in READERS
    }
    for by in ("collective", "rank", "cause"):
        found["comm", by] = invoke("comm", str(two_ranks().path), "--by", by, "--format", "json")
    sides = [f"{parsed('decode').path}:tensor_cores={value}" for value in ("false", "true")]
    found["compare", ""] = invoke("compare", *sides, "--format", "json")
    archive = str(session_folder())
    others = {(command, ""): invoke(command, "--format", "json") for command in ("env", "kernels")}
    kept = {
        (command, ""): invoke(command, "--artifacts", archive, "--format", "json")
        for command in ("runs", "trend", "verify")
    }
    pruned = invoke("prune", "--older-than", "90d", "--dry-run", "--artifacts", archive, "--format", "json")
    measured = {
        "compare": measured_document(MEASURED.comparison, MEASURED.run.cases),
        "gate": gate_document(MEASURED),
        "baseline": baselines_document([(MAIN, MEASURED.run.cases)]),
    }
    made = {(name, "made-up"): (0, render(what, "json", about=About(f"{name}/1"))) for name, what in measured.items()}
    return {**found, **others, **kept, **made, ("prune", ""): pruned}


@pytest.fixture(scope="module")
def outputs() -> Outputs:
    return read_all()


def test_one_envelope(outputs: Outputs) -> None:
    for (command, name), (_, text) in outputs.items():
        if text:
            found = json.loads(text)
            assert list(found) == ["schema", "fiprof", "run", "gpu", "warnings", "rows"]
            assert found["schema"].startswith(f"{command}/")
            run = two_ranks().path if command == "comm" else RUNS.get(name)
            assert found["run"] == (run and run.name)
            assert all("id" in warning for warning in found["warnings"])


def test_every_key_is_documented_and_every_documented_key_is_printed(outputs: Outputs) -> None:
    rows = [row for _, text in outputs.values() if text for row in json.loads(text)["rows"]]
    printed = {key for row in rows for key in row}
    documented = set(docs_keys.documented())
    assert printed - documented == set()
    named = {row["quantity"] for row in rows if "quantity" in row}
    named |= {each["quantity"] for row in rows for each in row.get("evidence", ())}
    assert documented - printed - named == set()


def test_the_page_of_keys_is_made_from_the_code() -> None:
    assert docs_keys.PAGE.read_text(encoding="utf-8") == docs_keys.page(), "python -m tests.docs_keys writes it anew"


def test_the_page_of_faults_is_made_from_the_tests() -> None:
    assert docs_faults.PAGE.read_text(encoding="utf-8") == docs_faults.page(), "python -m tests.docs_faults writes it"


# The word test


def _strings(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {text for each in value.values() for text in _strings(each)}
    if isinstance(value, list):
        return {text for each in value for text in _strings(each)}
    return {value} if isinstance(value, str) else set()
