"""Launching decode: where the GPU waits for the host, what a CUDA graph saves there, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import Pair, Study, absence, pairs, side
from fiprof.analysis.thresholds import WAITING
from fiprof.model.results import CaseResult
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages.page import Table
from fiprof.reports.study_pages.choices import WORTH
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured
from fiprof.reports.study_pages.names import absence_words, cite, short_pair
from fiprof.reports.study_pages.numbers import duration, faster_slower, spread
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

OFF, ON = side("decode", cuda_graph=False), side("decode", cuda_graph=True)
Factors = Sequence[tuple[Pair, float]]
"""Pairs of cases, each with a factor between their times."""


def host(study: Study) -> list[StudyFinding]:
    """Two findings: the waiting, and the graph's cost on the GPU."""
    return [*_waiting(study), *_graph(study)] if "decode" in study.by_workload else []


def _waiting(study: Study) -> list[StudyFinding]:
    """Where the GPU waits for the host, and what a CUDA graph does to that."""
    cases = [case for case in study.of("decode") if case.waiting_pct is not None and not case.params.get("cuda_graph")]
    if not cases:
        words = absence_words(absence(study, "decode"))
        why = phrase("decode_host.no_record") if study.of("decode") else words
        return [not_measured("decode-host", "Launching decode", why, Audience.SERVING)]
    bound = [case for case in cases if (case.waiting_pct or 0) >= WAITING.value]
    twins = [
        (pair, (pair[0].wall_us or 0) / (pair[1].wall_us or 1))
        for pair in pairs(study, OFF, ON)
        if pair[0].wall_us and pair[1].wall_us
    ]
    groups = {
        "of_these": [item for item in twins if item[0][0] in bound],
        "of_others": [item for item in twins if item[0][0] not in bound],
    }
    view = _groups(study, "decode_host", groups)
    worst = max(bound, key=lambda case: case.waiting_pct or 0) if bound else None
    return [
        found(
            "decode_host",
            "decode-host",
            Audience.SERVING,
            blocks=[Table(view, "decode-host-graph")] if twins else [],
            cases=[worst] if worst else [],
            advice=_advice(bound, twins),
            bound=len(bound),
            cases_=len(cases),
            percent=WAITING.value,
            longest=phrase("decode_host.longest", time=duration(max(case.wall_us or 0 for case in bound)))
            if bound
            else "",
        )
    ]


def _advice(bound: Sequence[CaseResult], twins: Factors) -> str:
    if not bound:
        return phrase("decode_host.busy")
    if not twins:
        return phrase("decode_host.no_pair")
    if max(value for _, value in twins) < WORTH:
        return phrase("decode_host.no_faster")
    helped = [value for (one, _), value in twins if value >= WORTH and one in bound]
    gains = phrase("decode_host.helped", count=len(helped), spread=spread(helped)) if helped else ""
    return phrase("decode_host.capture", helped=gains)


def _graph(study: Study) -> list[StudyFinding]:
    """What a graph costs on the GPU: pads of the plan, and a split that would not have been."""
    ratios = [(pair, ratio) for pair in pairs(study, ON, OFF) if (ratio := of_cases(*pair)) is not None]
    if not ratios:
        return []
    slower = any(ratio.direction is Direction.MORE for _, ratio in ratios)
    groups: dict[str, list[tuple[Pair, Ratio]]] = {"splits": [], "pads": [], "alike": []}
    for pair, ratio in ratios:
        groups[_padded(*pair)].append((pair, ratio))
    view = _groups(study, "decode_graph", {k: [(pair, r.value) for pair, r in items] for k, items in groups.items()})
    advice: str = phrase(f"decode_graph.{'slower' if slower else 'free'}")
    if not any(pair[0].params.get("tensor_cores") for pair, _ in ratios):
        advice += phrase("decode_graph.no_tensor_cores")
    return [
        found(
            "decode_graph",
            "decode-graph",
            Audience.SERVING,
            blocks=[Table(view, "decode-graph-plans")],
            advice=advice,
            seen=faster_slower(ratio for _, ratio in ratios),
            pairs=len(ratios),
        )
    ]


def _padded(one: CaseResult, other: CaseResult) -> str:
    """What the plan does for the graph, a key of ``decode_graph``."""
    if one.plan.get("split_kv") and not other.plan.get("split_kv"):
        return "splits"
    items, without = one.plan.get("work_items"), other.plan.get("work_items")
    return "pads" if isinstance(items, int) and isinstance(without, int) and items > without else "alike"


def _groups(study: Study, table: str, groups: Mapping[str, Factors]) -> View:
    """A row for each group of pairs: its factors, and where the largest is."""
    columns: list[Cell] = [
        (Column("group", "cases"), lambda item: phrase(f"{table}.{item[0]}")),
        (Column("pairs", "pairs"), lambda item: len(item[1])),
        (Column("median", phrase(f"{table}.factor"), "x, median", ".2f"), lambda item: median(v for _, v in item[1])),
        (Column("least", "from", "x", ".2f"), lambda item: min(v for _, v in item[1])),
        (Column("most", "to", "x", ".2f"), lambda item: max(v for _, v in item[1])),
        (Column("at", "at"), lambda item: _largest(study, item[1])),
    ]
    return filled(columns, [item for item in groups.items() if item[1]])


def _largest(study: Study, items: Factors) -> str:
    (one, other), _ = max(items, key=lambda item: item[1])
    return cite(study, one, short_pair(study, one, other))
