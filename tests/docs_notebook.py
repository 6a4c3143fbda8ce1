"""The notebook in docs/, executed: ``python -m tests.docs_notebook`` writes its outputs anew.

It runs over a copy of the recorded run, because opening a run makes its tables.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
NOTEBOOK = REPOSITORY / "docs/notebook.ipynb"
RUN = "20261121-120959-all"


def execute(folder: Path) -> Any:
    """The notebook with the outputs of now. folder: an empty one, for the copies."""
    import nbformat
    from nbclient import NotebookClient

    (folder / "docs").mkdir()
    recorded = Path("artifacts/recorded") / RUN
    shutil.copytree(REPOSITORY / recorded, folder / recorded, ignore=shutil.ignore_patterns("tables"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"}
    NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder / "docs")}}, record_timing=False
    ).execute(env=environment)
    return notebook


def texts(notebook: Any) -> list[str]:
    """What each cell shows as text, without what a version of a library may write differently."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return ["".join(each.get("text") or each.get("data", {}).get("text/plain", "")) for each in outputs]


def main() -> None:
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(Path(folder))
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
