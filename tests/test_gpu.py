"""The whole on a real GPU: ``pytest -m gpu`` on a machine with torch, flashinfer, nsys and ncu."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fiprof.model import layout
from fiprof.model.packing import copy_out
from fiprof.model.tables import TABLES
from fiprof.orchestrator.tools import count_gpus, find_tool
from fiprof.workloads.registry import builtin
from tests.conftest import Fiprof, run_fiprof
from tests.test_analysis import agrees, launches_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not count_gpus(), reason="no NVIDIA GPU")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``fiprof collect --kernel all --set full``."""
    folder = tmp_path_factory.mktemp("gpu")
    done = run_fiprof("collect", "--kernel", "all", "--set", "full", cwd=folder, status=0)
    return folder / done.stdout.strip()


def test_a_whole_run(run: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["status"] == "complete"
    assert len(manifest["cases"]) == len(builtin())
    rows = {table: pq.read_metadata(run / f"tables/{table}.parquet").num_rows for table in TABLES}
    assert not [table for table, count in rows.items() if count == 0]
    launches = pq.read_table(run / "tables/launches.parquet").to_pylist()
    assert {launch["case"] for launch in launches} == {case["id"] for case in manifest["cases"]}


def test_every_case_was_checked(run: Path) -> None:
    records = [json.loads(line) for line in (run / "baseline.jsonl").read_text().splitlines()]
    errors = {r["case"]: r["reference"]["relative_error"] for r in records if r["kind"] == "case"}
    assert len(errors) == len(builtin())
    assert all(0 < error < 2e-3 for error in errors.values()), errors


def test_show_agrees_with_ncus_own_details_page(run: Path, fiprof: Fiprof, tmp_path: Path) -> None:
    """To the digits that ncu prints."""
    copy_out(run, layout.NCU_REPORT, tmp_path)
    argv = [str(find_tool("ncu").path), "--import", str(tmp_path / layout.NCU_REPORT), "--page", "details"]
    pages = launches_of(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    rows = json.loads(fiprof("show", str(run), "--format", "json").stdout)["rows"]
    for row, page in zip([row for row in rows if row["launch"] is not None], pages, strict=True):
        agrees(row, page)


@pytest.mark.parametrize(
    "options",
    [
        ("decode", "--tensor-cores", "false,true", "--cuda-graph", "false,true"),
        ("prefill", "--backend", "fa2,fa3", "--dtype", "fp16,bf16"),
        ("rope", "--variant", "inplace,cos_sin_cache,llama31"),
    ],
)
def test_the_variants_compute_what_they_should(options: tuple[str, ...], fiprof: Fiprof, tmp_path: Path) -> None:
    done = fiprof("collect", "--tool", "nsys", "--gpu-metrics-hz", "0", "--kernel", *options, status=0)
    records: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / done.stdout.strip() / "baseline.jsonl").read_text().splitlines()
    ]
    assert all(record["reference"]["relative_error"] > 0 for record in records if record["kind"] == "case")


def test_two_sides_measured_beside_each_other(fiprof: Fiprof) -> None:
    """Decode is 23% faster on tensor cores, and the same twice (H200)."""
    words = ("--kernel", "decode", "--batch", "32", "--format", "json")
    for side, expected in (("params:tensor_cores=true", "faster"), ("here", "same")):
        done = fiprof("compare", "--measure", "here", side, *words, status=0)
        assert [row["outcome"] for row in json.loads(done.stdout)["rows"]] == [expected], done.stdout
