"""Launching decode: where the GPU waits for the host, what a CUDA graph saves there, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import Pair, Study, absence, pairs, side
from fiprof.analysis.thresholds import WAITING
from fiprof.model.results import CaseResult
from fiprof.reports.study_pages.choices import WORTH
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured
from fiprof.reports.study_pages.names import absence_words, label, pair_label
from fiprof.reports.study_pages.numbers import duration, faster_slower, plain_time, ratio_words, spread
from fiprof.reports.words import phrase

OFF, ON = side("decode", cuda_graph=False), side("decode", cuda_graph=True)


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
    twins = [(pair, _gain(pair)) for pair in pairs(study, OFF, ON) if pair[0].wall_us and pair[1].wall_us]
    evidence: list[str] = []
    shown: list[CaseResult] = []
    if bound:
        worst = max(bound, key=lambda case: case.waiting_pct or 0)
        shown.append(worst)
        name, wall = label(study, worst, workload=False), duration(worst.wall_us or 0)
        percent, plain = worst.waiting_pct, plain_time(worst)
        evidence.append(phrase("decode_host.worst", case=name, percent=percent, wall=wall, plain=plain))
    if twins:
        best, _ = max(twins, key=lambda item: item[1])
        shown += best
        before, after = (duration(case.wall_us or 0) for case in best)
        groups = {
            "of_these": [value for (one, _), value in twins if one in bound],
            "of_others": [value for (one, _), value in twins if one not in bound],
        }
        parts = [
            phrase(f"decode_host.{key}", spread=spread(values), pairs=len(values))
            for key, values in groups.items()
            if values
        ]
        case = pair_label(study, *best)
        evidence.append(phrase("decode_host.gain", parts="; ".join(parts), case=case, before=before, after=after))
    longest = max((case.wall_us or 0 for case in bound), default=0.0)
    return [
        found(
            "decode_host",
            "decode-host",
            Audience.SERVING,
            evidence=evidence,
            cases=shown,
            advice=_advice(bound, twins),
            bound=len(bound),
            cases_=len(cases),
            percent=WAITING.value,
            longest=phrase("decode_host.longest", time=duration(longest)) if bound else "",
        )
    ]


def _advice(bound: Sequence[CaseResult], twins: Sequence[tuple[Pair, float]]) -> str:
    if not bound:
        return phrase("decode_host.busy")
    if not twins:
        return phrase("decode_host.no_pair")
    if max(value for _, value in twins) < WORTH:
        return phrase("decode_host.no_faster")
    helped = [value for (one, _), value in twins if value >= WORTH and one in bound]
    if not helped:
        return phrase("decode_host.capture", helped="")
    gains = phrase("decode_host.helped", count=len(helped), spread=spread(helped))
    return phrase("decode_host.capture", helped=gains)


def _gain(pair: Pair) -> float:
    """Host time without a graph over that with one."""
    return (pair[0].wall_us or 0) / (pair[1].wall_us or 1)


def _graph(study: Study) -> list[StudyFinding]:
    """What a graph costs on the GPU: pads of the plan, and a split that would not have been."""
    ratios = [(pair, ratio) for pair in pairs(study, ON, OFF) if (ratio := of_cases(*pair)) is not None]
    if not ratios:
        return []
    slower = [item for item in ratios if item[1].direction is Direction.MORE]
    padded = [item for item in ratios if _padded(item[0])]
    alike = [item for item in ratios if item not in padded and item[0][0].plan and item[0][1].plan]
    worst = max(ratios, key=lambda item: item[1].value)
    evidence = [_words(study, *worst)]
    if padded and alike:
        values = {"padded": _spread(padded), "pads": len(padded), "alike": _spread(alike), "others": len(alike)}
        evidence.append(phrase("decode_graph.pads", **values))
    large = [item for item in padded if item in slower and (item[0][1].waiting_pct or 0) < WAITING.value]
    if large:
        last = max(large, key=lambda item: item[0][1].plain.median_us if item[0][1].plain else 0.0)
        evidence.append(_plan_words(study, *last))
    split = [item for item in padded if item[0][0].plan.get("split_kv") and not item[0][1].plan.get("split_kv")]
    if split:
        evidence.append(phrase("decode_graph.splits", pairs=len(split)))
    advice: str = phrase(f"decode_graph.{'slower' if slower else 'free'}")
    if not any(pair[0].params.get("tensor_cores") for pair, _ in ratios):
        advice += phrase("decode_graph.no_tensor_cores")
    return [
        found(
            "decode_graph",
            "decode-graph",
            Audience.SERVING,
            evidence=evidence,
            cases=worst[0],
            advice=advice,
            seen=faster_slower(ratio for _, ratio in ratios),
            pairs=len(ratios),
            spread=_spread(ratios),
        )
    ]


def _padded(pair: Pair) -> bool:
    one, other = (case.plan.get("work_items") for case in pair)
    return isinstance(one, int) and isinstance(other, int) and one > other


def _spread(items: Sequence[tuple[Pair, Ratio]]) -> str:
    return spread([ratio.value for _, ratio in items])


def _words(study: Study, pair: Pair, ratio: Ratio) -> str:
    on, off = map(plain_time, pair)
    return phrase("decode_graph.pair", case=pair_label(study, *pair), on=on, off=off, ratio=ratio_words(ratio))


def _plan_words(study: Study, pair: Pair, ratio: Ratio) -> str:
    on, off = (case.plan["work_items"] for case in pair)
    words = phrase("decode_graph.plan", case=pair_label(study, *pair), off=off, on=on, ratio=ratio_words(ratio))
    times = [case.kernels[0].duration_us for case in pair if case.kernels]
    if len(times) < 2 or not all(times):
        return words
    with_graph, without = (duration(us or 0) for us in times)
    return words + phrase("decode_graph.kernel", kernel=pair[0].kernels[0].kernel, before=without, after=with_graph)
