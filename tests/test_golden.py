"""The golden net: what every reading command says of every recorded run is what it said before, number by number; and what
programs get: every JSON key is documented, and nothing in JSON, exit statuses or results depends on a wording.

``pytest tests/test_golden.py -k "show or stalls"`` asks some of it; ``python -m tests.golden`` writes it anew.
"""

import json
from typing import Any

import pytest

from fiprof.analysis.story import SAYS
from fiprof.reports.measured_table import baselines as baselines_document
from fiprof.reports.measured_table import document as measured_document
from fiprof.reports.measured_table import gate_document
from fiprof.reports.writers import render
from tests import docs, golden
from tests.recorded_runs import copied, invoke, parsed, served
from tests.test_gate import MAIN, STEADY, gated

KNOWN = golden.read()


@pytest.mark.parametrize("name", KNOWN)
def test_the_answer_is_what_it_was(name: str) -> None:
    found = golden.plain(golden.questions()[name]())
    assert list(golden.differences(KNOWN[name], found))[:20] == []


def test_nothing_is_asked_that_is_not_held() -> None:
    assert list(golden.questions()) and set(golden.questions()) == set(KNOWN)


MEASURED = gated(STEADY, STEADY)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One run, with what the golden answers leave out of runs."""
    folder = tmp_path_factory.mktemp("contract")
    copied("decode", folder)
    return str(folder)


def printed_rows(archive: str) -> list[dict[str, Any]]:
    """What the golden net holds of every reading command and run, and what it does not ask."""
    answers = ((name, each) for name, each in golden.read().items() if not name.startswith(("top ", "study ")))
    found = [row for _, each in answers for row in each.get("rows", ())]
    story = [("batching", table) for table in ("steps", "requests", "told", "memory")]
    for words in (
        ("env",),
        ("runs", "--artifacts", archive),
        ("verify", "--artifacts", archive),
        ("prune", "--older-than", "90d", "--dry-run", "--artifacts", archive),
        *(("story", served(name).path, "--table", table) for name, table in story),
        *(("story", parsed("ranks").path, "--table", table) for table in ("steps", "layers")),
    ):
        # Whatever the exit status: env has one where a tool is missing.
        found += json.loads(invoke(*map(str, words), "--format", "json")[1])["rows"]
    baselines = baselines_document([(MAIN, MEASURED.run.cases)])
    for document in (measured_document(MEASURED.comparison), gate_document(MEASURED), baselines):
        found += json.loads(render(document, "json"))["rows"]
    return found


def test_every_key_is_documented_and_every_documented_key_is_printed(
    archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIPROF_PYTHON", "/bin/false")  # torch's import says no key more
    found = printed_rows(archive)
    keys = {key for row in found for key in row if not key.startswith(SAYS)}  # a program's own words
    keys |= {"traces", "others_us", "lost_ms"}  # of top --over: test_across.py prints them
    documented = set(docs.documented())
    assert keys - documented == set()
    named = {row["quantity"] for row in found if "quantity" in row}
    named |= {each["quantity"] for row in found for each in row.get("evidence", ())}
    assert documented - keys - named == set()
