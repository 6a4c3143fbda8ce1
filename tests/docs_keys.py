"""docs/keys.md: every key of the JSON output, made from the quantities. ``python -m tests.docs_keys`` writes it anew."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import fiprof
from fiprof.analysis.frames import Column
from fiprof.model.case_quantities import KEYS
from fiprof.model.metrics import METRICS
from fiprof.model.quantities import Key, Quantity

PAGE = Path(__file__).parents[1] / "docs/keys.md"

HEAD = """# JSON

`--format json` of every command prints one object:

```json
{"schema": "verdict/1", "fiprof": "0.1.0", "run": "20261121-120959-all", "gpu": "NVIDIA H200", "warnings": [], "rows": []}
```

`schema` names the rows and their version, which rises when a key goes away or changes its meaning. `warnings` are
findings: an `id` and the numbers that belong to it. Numbers have full precision; what was not collected is null. A
quantity has the same key and unit in every command. Shares are 0 to 1, `_pct` is percent.

| key | unit | meaning | computed from ncu's metrics as |
| --- | --- | --- | --- |
"""

_NAMES = {metric.name: metric.ncu[0] for metric in METRICS}


ELSEWHERE = tuple(
    f"fiprof.{name}"
    for name in (
        "workloads.",
        "__main__",
        "model.",
        "flashinfer",
        "analysis.study",
        "reports.study",
        "reports.run_report",
    )
)
"""Modules without columns, and those whose tables are documents that no command prints as JSON."""


def columns(value: object) -> Iterator[Column]:
    """The columns in a value of a module: itself, or those in its items."""
    if isinstance(value, Column):
        yield value
    elif isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from columns(each)


def documented() -> dict[str, Key]:
    """Every key that is documented: KEYS, and the columns that a module declares with a meaning."""
    found = dict(KEYS)
    for module in pkgutil.walk_packages(fiprof.__path__, "fiprof."):
        if not module.name.startswith(ELSEWHERE):
            for value in vars(importlib.import_module(module.name)).values():
                for each in columns(value):
                    if each.key and each.meaning:
                        found.setdefault(each.key, Key(each.key, each.unit, each.meaning))
    return found


def page() -> str:
    """The page as the code has it."""
    rows = []
    for key in documented().values():
        formula = key.formula.written({}, _NAMES.__getitem__) if isinstance(key, Quantity) else ""
        rows.append(f"| `{key.key}` | {key.unit} | {key.meaning} | {f'`{formula}`' if formula else ''} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
