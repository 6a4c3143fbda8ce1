"""A report for programs: JSON and CSV, every column in full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import fiprof
from fiprof.model.finding import Finding, plain
from fiprof.reports.view import About, Document, Value, View
from fiprof.text import csv_cell


def write_json(document: Document, about: About) -> str:
    """One object: what the rows are, of which run and GPU, what makes them doubtful, and the rows."""
    view = document.data
    found = [*document.warnings, *(each for shown in document.shown for each in shown.warnings)]
    content = {
        "schema": about.schema,
        "fiprof": fiprof.__version__,
        "run": about.run,
        "gpu": about.gpu,
        "warnings": [each.fields() for each in found if isinstance(each, Finding)],
        "rows": [{column.key: value for column, value in zip(view.columns, row, strict=True)} for row in view.rows],
    }
    return json.dumps(_json_value(content), indent=1, allow_nan=False)


def _json_value(value: Any) -> Any:
    """Without what JSON does not have: findings as their fields, enums as their values, no infinities."""
    if isinstance(value, dict):
        return {key: _json_value(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_json_value(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)


def write_csv(view: View) -> str:
    """The rows under their keys."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in view.columns])
    writer.writerows([_csv_value(value) for value in row] for row in view.rows)
    return out.getvalue().removesuffix("\n")


def _csv_value(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Finding):
        value = str(value.kind)
    if isinstance(value, dict) or (isinstance(value, tuple) and any(isinstance(each, dict) for each in value)):
        value = json.dumps(_json_value(value))
    if isinstance(value, tuple):
        value = "; ".join(str(str(each.kind) if isinstance(each, Finding) else each) for each in value)
    return csv_cell(value) if isinstance(value, str) else repr(value)
