"""fiprof/model/labels.py: short names of cases."""

from __future__ import annotations

import pytest

from fiprof.model.labels import Labels
from tests.reports_fixture import case, recorded_cases


@pytest.mark.parametrize(
    "named",
    [
        {each.id: each.workload for each in recorded_cases()},
        {
            "decode[batch=1,kv_len=2048,dtype=fp16]": "decode batch=1 kv_len=2048",
            "decode[batch=32,kv_len=2048,dtype=fp16]": "decode batch=32 kv_len=2048",
            "decode[batch=32,kv_len=64,dtype=fp16]": "decode batch=32 kv_len=64",
            "rmsnorm[rows=1]": "rmsnorm",
        },
        {
            "decode[batch=1,tensor_cores=false,cuda_graph=false]": "decode",
            "decode[batch=1,tensor_cores=false,cuda_graph=true]": "decode cuda_graph",
            "decode[batch=1,tensor_cores=true,cuda_graph=false]": "decode tensor_cores",
            "decode[batch=1,tensor_cores=true,cuda_graph=true]": "decode tensor_cores cuda_graph",
        },
    ],
    ids=["alone in its workload", "what differs", "switches that are on"],
)
def test_cases_are_named_by_what_tells_them_apart(named: dict[str, str]) -> None:
    labels = Labels(list(map(case, named)))
    assert {each: labels(each) for each in named} == named


def test_what_the_run_does_not_know_keeps_its_name() -> None:
    labels = Labels([])
    assert labels("decode[batch=1]") == "decode[batch=1]"
    assert labels(None) == "–"
