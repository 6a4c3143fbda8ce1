"""What programs get: every JSON key is documented, and nothing in JSON, exit statuses or results depends on a wording."""

import json
from typing import Any

from fiprof.analysis.story import SAYS
from fiprof.reports.measured_table import baselines as baselines_document
from fiprof.reports.measured_table import document as measured_document
from fiprof.reports.measured_table import gate_document
from fiprof.reports.writers import render
from tests import docs, golden
from tests.recorded_runs import RUNS, invoke, parsed, profiled, served, session_folder
from tests.test_gate import MAIN, STEADY, gated

MEASURED = gated(STEADY, STEADY)


def test_one_envelope() -> None:
    archive = str(session_folder())
    for command in ("show", "stalls", "top", "runs", "env", "kernels"):
        of_run = command in ("show", "stalls", "top")
        words = [str(parsed("all").path)] if of_run else ["--artifacts", archive] if command == "runs" else []
        found = json.loads(invoke(command, *words, "--format", "json")[1])
        assert list(found)[:6] == ["schema", "fiprof", "run", "gpu", "warnings", "rows"]
        assert found["schema"].startswith(f"{command}/") and found["run"] == (RUNS["all"].name if of_run else None)
        assert all("id" in warning for warning in found["warnings"])


def printed_rows() -> list[dict[str, Any]]:
    """What the golden net holds of every reading command and run, and what it does not ask."""
    answers = ((name, answer) for name, answer in golden.read().items() if not name.startswith(("top ", "study ")))
    held = [row for _, answer in answers for row in answer.get("rows", ())]
    archive = ("--artifacts", str(session_folder()))
    parsed("all")
    asked = (
        ("env",),
        ("runs", *archive),
        ("verify", *archive),
        ("prune", "--older-than", "90d", "--dry-run", *archive),
        *(
            ("story", str(served("batching").path), "--table", table)
            for table in ("steps", "requests", "told", "memory")
        ),
        ("story", str(profiled("ranks").path), "--table", "steps"),
        ("story", str(profiled("ranks").path), "--table", "layers"),
    )
    measured = {
        "compare": measured_document(MEASURED.comparison, MEASURED.run.cases),
        "gate": gate_document(MEASURED),
        "baseline": baselines_document([(MAIN, MEASURED.run.cases)]),
    }
    texts = [invoke(*words, "--format", "json")[1] for words in asked]
    texts += [render(what, "json", about={"schema": f"{name}/1"}) for name, what in measured.items()]
    return held + [row for text in texts for row in json.loads(text)["rows"]]


def test_every_key_is_documented_and_every_documented_key_is_printed() -> None:
    rows = printed_rows()
    printed = {key for row in rows for key in row if not key.startswith(SAYS)}  # a program's own words
    printed |= {"traces", "others_us", "lost_ms"}  # of top --over: test_across.py prints them
    documented = set(docs.documented())
    assert printed - documented == set()
    named = {row["quantity"] for row in rows if "quantity" in row}
    named |= {each["quantity"] for row in rows for each in row.get("evidence", ())}
    assert documented - printed - named == set()
