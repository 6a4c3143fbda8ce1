"""What torch's caching allocator did, and PyTorch's modules: recorded by ``profile --torch-memory`` and
``--torch-modules`` (tests/data/torch)."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.run import Run
from fiprof.orchestrator.parse import parse_all
from fiprof.parsers import torch_memory
from tests.recorded_runs import answer
from tests.reports_fixture import write_manifest

DATA = Path(__file__).parent / "data/torch"


def unpacked(name: str, into: Path) -> Path:
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return into


def told(folder: Path, name: str, *, history: bool = False) -> dict[str, Any]:
    """The story of a recording."""
    unpacked(f"{name}.sqlite", folder / name / "nsys/trace.sqlite")
    if history:
        unpacked(f"{name}.jsonl", folder / name / "nsys/torch_memory.jsonl")
    write_manifest(folder / name, environment={"program": {"command": ["python3", name]}})
    assert not parse_all(folder / name).problems
    return answer("story", folder / name)


@pytest.mark.parametrize(("name", "events"), [("request", 2624), ("graphs", 555), ("leak", 3117)])
def test_the_peaks_are_torchs_own(name: str, events: int, tmp_path: Path) -> None:
    """Recomputed of the table: what was asked for, and what was reserved, to the byte; torch counts what it gave for
    that in blocks of 512 bytes."""
    file = unpacked(f"{name}.jsonl", tmp_path / "history.jsonl")
    own = json.loads(file.read_text())["torch"]
    torch_memory.parse(file, tmp_path, session_start_ns=0)
    rows = tables.read(tmp_path, "torch_memory").to_pylist()
    sizes = {
        plus: max(np.cumsum([row["bytes"] * {plus: 1, minus: -1}.get(row["action"], 0) for row in rows]))
        for plus, minus in (("allocate", "free"), ("reserve", "release"))
    }
    assert len(rows) == events + 3
    assert sizes == {"allocate": own["requested"], "reserve": own["reserved"]}
    assert sizes["allocate"] == pytest.approx(own["allocated"], rel=1e-5)


def test_a_leak_has_its_function_and_begins_where_it_began(tmp_path: Path) -> None:
    """CUDA gave memory for it a step later: torch had some left."""
    found = told(tmp_path, "leak", history=True)
    (leak,) = (each for each in found["surprises"] if each["id"] == "leak")
    assert (leak["what"], leak["count"], leak["more_mb"]) == ("step 29", 11, 738.197504)
    (owner,) = leak["owners"]
    assert owner["function"] == "leak (surprises.py:63) < main (surprises.py:113)"
    _, peak = found["peak"]
    assert (peak["allocated_gb"], peak["most_gb"]) == (0.910688256, 0.962592768)
    assert [each["function"].partition(" <")[0] for each in peak["owners"]] == [
        "leak (surprises.py:63)", "main (surprises.py:88)", "layer (surprises.py:96)",
    ]  # fmt: skip


@pytest.mark.fault("a history of torch's allocator that is cut short, or none", "the trace's tables are made")
def test_a_damaged_history(tmp_path: Path) -> None:
    history = unpacked("leak.jsonl", tmp_path / "run/nsys/torch_memory.jsonl")
    unpacked("leak.sqlite", tmp_path / "run/nsys/trace.sqlite")
    write_manifest(tmp_path / "run")
    whole = history.read_bytes()
    for damage in (slice(0, 20), slice(5, None), slice(0, -100)):
        history.write_bytes(whole[damage])
        with pytest.raises(FiprofError, match=r"torch_memory\.jsonl is damaged"):
            torch_memory.parse(history, tmp_path, session_start_ns=0)
    (problem,) = parse_all(tmp_path / "run").problems
    assert isinstance(problem, FiprofError) and "torch_memory.jsonl is damaged" in problem.message
    assert Run(tmp_path / "run").row_count("kernels") == 1156


@pytest.mark.parametrize(
    ("name", "more", "layers"),
    [
        ("modules", "", [(6, 5)]),
        ("train", "nn.functional.cross_entropy autograd.backward optim.SGD.step", [(6, 5), (6, 11)]),
    ],
)
def test_modules_that_nsys_marked_are_steps_and_layers(name: str, more: str, layers: list[Any], tmp_path: Path) -> None:
    """Every module's range is called ``torch.nn.modules.Module.__call__``: layers follow from the kernels. The backward
    pass is launched by a thread of autograd's, and is one of the steps' parts all the same."""
    found = told(tmp_path, name)
    repeating = [(row["what"], row["count"]) for row in found["rows"] if row["count"] > 1 and row["kernels"]]
    assert repeating == [(f"torch.{each}", 8) for each in ("nn.modules.Module.__call__", *more.split())]
    assert [(each["count"], each["period"]) for each in found["layers"]] == layers
