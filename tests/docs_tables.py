"""docs/run-folder.md: what lies in a run folder, and every table. ``python -m tests.docs_tables`` writes it anew."""

from pathlib import Path

from fiprof.model.metrics import METRICS
from fiprof.model.tables import OPEN_ENDED, TABLES

PAGE = Path(__file__).parents[1] / "docs/run-folder.md"

HEAD = """# Run folder and tables

`artifacts/20261121-101530-prefill/`: local time, then what was collected. While it is being made it is called `.partial-…`.

| file | what |
| --- | --- |
| `run.json` | the manifest: status, cases, environment, settings, every command with its exit status, files with checksums |
| `baseline.jsonl` | the plain run: each case's reference error and timings without a profiler |
| `nsys/trace.nsys-rep`, `trace.sqlite` | what nsys recorded, and its export |
| `ncu/profile.ncu-rep`, `raw.csv`, `details.csv`, `source.csv` | what ncu recorded, and its pages |
| `nsys/trace-1.sqlite`, `ncu/raw-1.csv`, … | further files of an imported run, which `imported` in `run.json` names |
| `logs/*.log` | output of each command |
| `tables/*.parquet` | made from the files above; `fiprof parse RUN` makes them again |
| `tables/summary.json` | its key quantities in short, for [the catalogue](archive.md); made with the tables |
| `annotations.json` | tags and notes, by `fiprof tag` and `fiprof note` |
| `report.md`, `report.html` | made by `fiprof report RUN` |
| `result.json`, `measurements/A1.jsonl`, … | of `fiprof compare --measure`: what was told apart, and each round of each process |

The raw files are packed with zstd when a run is made (`.zst`; not those of a large import), and read as plain ones are;
`fiprof pack RUN --undo` gives plain files back. Files packed with xz (`.xz`) are read too. `fiprof.open(RUN).frame("launches")` gives
a table as a DataFrame; any reader of Parquet will do.
"""


def page() -> str:
    """The page as the code has it."""
    parts = [HEAD]
    for name, table in TABLES.items():
        rows = [f"| `{column.name}` | {column.kind} | {column.doc.replace('|', ' ')} |" for column in table.columns]
        parts.append(
            f"## {name}\n\nA row: {table.row}.\n\n| column | type | what |\n| --- | --- | --- |\n"
            + "\n".join(rows)
            + "\n"
        )
        if name == OPEN_ENDED:
            metrics = [f"| `{metric.name}` | `{metric.ncu[0]}` |" for metric in METRICS]
            parts.append(
                "Further columns, one a metric of ncu:\n\n| column | ncu's metric |\n| --- | --- |\n"
                + "\n".join(metrics)
                + "\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
