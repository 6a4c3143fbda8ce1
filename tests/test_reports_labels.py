"""fiprof/reports/labels.py: short names of cases."""

from __future__ import annotations

from fiprof.model.labels import Labels
from tests.reports_fixture import case, recorded_cases


def test_a_case_alone_in_its_workload_is_named_by_it() -> None:
    labels = Labels(recorded_cases())
    assert [labels(each.id) for each in recorded_cases()] == [
        "prefill",
        "decode",
        "rmsnorm",
        "fused_add_rmsnorm",
        "rope",
    ]


def test_cases_of_one_workload_show_what_differs() -> None:
    ids = [
        "decode[batch=1,kv_len=2048,dtype=fp16]",
        "decode[batch=32,kv_len=2048,dtype=fp16]",
        "decode[batch=32,kv_len=64,dtype=fp16]",
        "rmsnorm[rows=1]",
    ]
    labels = Labels([case(each) for each in ids])
    assert [labels(each) for each in ids] == [
        "decode batch=1 kv_len=2048",
        "decode batch=32 kv_len=2048",
        "decode batch=32 kv_len=64",
        "rmsnorm",
    ]


def test_a_switch_is_named_when_it_is_on() -> None:
    ids = [
        f"decode[batch=1,tensor_cores={one},cuda_graph={other}]"
        for one in ("false", "true")
        for other in ("false", "true")
    ]
    labels = Labels([case(each) for each in ids])
    assert [labels(each) for each in ids] == [
        "decode",
        "decode cuda_graph",
        "decode tensor_cores",
        "decode tensor_cores cuda_graph",
    ]


def test_what_the_run_does_not_know_keeps_its_name() -> None:
    labels = Labels([])
    assert labels("decode[batch=1]") == "decode[batch=1]"
    assert labels(None) == "–"
