"""fiprof/reports/kernels.py: the workloads and their parameters."""

from __future__ import annotations

import csv
import io

from fiprof.reports.kernels import Kernel, Parameter, kernels
from fiprof.reports.writers import render

FOUND = [
    Kernel(
        "rope",
        "rotary embedding",
        (
            Parameter("--tokens", "16384", "at least 1", "tokens in all"),
            Parameter("--dtype", "fp16", "fp16|bf16", "element type"),
        ),
    ),
    Kernel("noop", "nothing", ()),
]


def test_a_table_a_workload() -> None:
    assert render(kernels(FOUND), "table") == "\n".join(
        [
            "rope: rotary embedding",
            "option          default  valid                          meaning",
            "--tokens        16384    at least 1                     tokens in all",
            "--dtype         fp16     fp16|bf16                      element type",
            "",
            "noop: nothing",
        ]
    )


def test_a_row_a_parameter_for_programs() -> None:
    rows = list(csv.reader(io.StringIO(render(kernels(FOUND), "csv"))))
    assert rows == [
        ["workload", "summary", "option", "default", "valid", "help"],
        ["rope", "rotary embedding", "--tokens", "16384", "at least 1", "tokens in all"],
        ["rope", "rotary embedding", "--dtype", "fp16", "fp16|bf16", "element type"],
        ["noop", "nothing", "", "", "", ""],
    ]
