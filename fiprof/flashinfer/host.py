"""Launching decode: where the GPU waits for the host, what a CUDA graph saves there, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import Pair, Study, absence, pairs, side
from fiprof.analysis.thresholds import WAITING
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages.choices import WORTH
from fiprof.reports.study_pages.found import Audience, StudyFinding, not_measured
from fiprof.reports.study_pages.names import absence_words, label, pair_label
from fiprof.reports.study_pages.numbers import duration, plain_time, ratio_words, spread
from fiprof.text import count, join_words

OFF, ON = side("decode", cuda_graph=False), side("decode", cuda_graph=True)


def host(study: Study) -> list[StudyFinding]:
    """Two findings: the waiting, and the graph's cost on the GPU."""
    return [*_waiting(study), *_graph(study)] if "decode" in study.by_workload else []


def _waiting(study: Study) -> list[StudyFinding]:
    """Where the GPU waits for the host, and what a CUDA graph does to that."""
    cases = [case for case in study.of("decode") if case.waiting_pct is not None and not case.params.get("cuda_graph")]
    if not cases:
        why = (
            "how long the GPU waits was not recorded" if study.of("decode") else absence_words(absence(study, "decode"))
        )
        return [not_measured("decode-host", "Launching decode", why, Audience.SERVING)]
    bound = [case for case in cases if (case.waiting_pct or 0) >= WAITING.value]
    twins = [(pair, _gain(pair)) for pair in pairs(study, OFF, ON) if pair[0].wall_us and pair[1].wall_us]
    evidence: list[str] = []
    shown: list[CaseResult] = []
    if bound:
        worst = max(bound, key=lambda case: case.waiting_pct or 0)
        shown.append(worst)
        evidence.append(
            f"{label(study, worst, workload=False)}: the GPU waits {worst.waiting_pct:.0f}% of the time, "
            f"{duration(worst.wall_us or 0)} an iteration back to back, {plain_time(worst)} of it between the "
            "GPU's events"
        )
    if twins:
        best, _ = max(twins, key=lambda item: item[1])
        shown += best
        before, after = (duration(case.wall_us or 0) for case in best)
        waiting = [value for (one, _), value in twins if one in bound]
        rest = [value for (one, _), value in twins if one not in bound]
        parts = [
            f"{spread(values)} over {count(len(values), 'pair')} {where}"
            for values, where in ((waiting, "of these cases"), (rest, "of the others"))
            if values
        ]
        evidence.append(
            f"time an iteration as the host sees it, without over with a CUDA graph: {'; '.join(parts)}; most at "
            f"{pair_label(study, *best)}: {before} to {after}"
        )
    if not bound:
        advice = "The host keeps the GPU busy at all these sizes."
    elif not twins:
        advice = (
            "Launching costs more than computing there; no pair with and without a CUDA graph says what that gains."
        )
    elif max(value for _, value in twins) >= WORTH:
        helped = [(one, value) for (one, _), value in twins if value >= WORTH and one in bound]
        advice = (
            "Capture decode in a CUDA graph where the GPU waits so"
            + (f": {join_words([label(study, one, workload=False) for one, _ in helped])} gain" if helped else "")
            + (f" {spread([value for _, value in helped])}x" if helped else "")
            + "."
        )
    else:
        advice = "Launching costs more than computing there, and a CUDA graph made it no faster."
    longest = max((case.wall_us or 0 for case in bound), default=0.0)
    finding = Observation(
        "decode-host",
        f"In {len(bound)} of {count(len(cases), 'decode case')} without a CUDA graph the GPU waits for the host for "
        f"{WAITING.value:.0f}% of the time or longer"
        + (f"; they take up to {duration(longest)} an iteration back to back." if bound else "."),
        tuple(evidence),
        advice,
        "Times as the host sees them are one figure a case, on this machine and with an idle CPU: no interval.",
    )
    figure = f"the GPU waits in {len(bound)} of {count(len(cases), 'case')}"
    return [StudyFinding("Launching decode", finding, tuple(shown), Audience.SERVING, figure=figure)]


def _gain(pair: Pair) -> float:
    """Host time without a graph over that with one."""
    return (pair[0].wall_us or 0) / (pair[1].wall_us or 1)


def _graph(study: Study) -> list[StudyFinding]:
    """What a graph costs on the GPU: pads of the plan, and a split that would not have been."""
    what = "What a CUDA graph costs on the GPU"
    ratios = [(pair, found) for pair in pairs(study, ON, OFF) if (found := of_cases(*pair)) is not None]
    if not ratios:
        return []
    slower = [item for item in ratios if item[1].direction is Direction.MORE]
    faster = [item for item in ratios if item[1].direction is Direction.LESS]
    same = len(ratios) - len(slower) - len(faster)
    kinds = ((slower, "slower in {}"), (faster, "faster in {}"))
    words = [text.format(len(items)) for items, text in kinds if items]
    words += [f"with no difference seen in {same}"] if same else []
    padded = [item for item in ratios if _padded(item[0])]
    whole = [item for item in ratios if item not in padded and item[0][0].plan and item[0][1].plan]
    worst = max(ratios, key=lambda item: item[1].value)
    evidence = [_words(study, *worst)]
    if padded and whole:
        evidence.append(
            f"where the plan pads the work items for the graph: {_spread(padded)} ({count(len(padded), 'pair')}); "
            f"where both have as many: {_spread(whole)} ({count(len(whole), 'pair')})"
        )
    large = [
        item for item in padded if (item[0][1].waiting_pct or 0) < WAITING.value and item[1].direction is Direction.MORE
    ]
    if large:
        last = max(large, key=lambda item: item[0][1].plain.median_us if item[0][1].plain else 0.0)
        evidence.append(_plan_words(study, *last))
    split = [item for item in padded if item[0][0].plan.get("split_kv") and not item[0][1].plan.get("split_kv")]
    if split:
        evidence.append(
            f"in {count(len(split), 'pair')} the graph's plan splits KV, and so adds a merge kernel, where the other "
            "does not"
        )
    advice = (
        "Outside the cases where the GPU waits for the host a graph is no gain by itself: measure with and without."
        if slower
        else "On the GPU a graph costs nothing at these sizes."
    )
    options = (
        ""
        if any(pair[0].params.get("tensor_cores") for pair, _ in ratios)
        else " Decode on tensor cores was not measured with a graph."
    )
    finding = Observation(
        "decode-graph",
        f"Between the GPU's events decode from a CUDA graph is {join_words(words)} of {count(len(ratios), 'pair')}; "
        f"time with a graph over time without: {_spread(ratios)}.",
        tuple(evidence),
        advice + options,
        "Plain times; a graph's launch on the GPU is between the events too, some microseconds that count in small "
        "cases.",
    )
    return [StudyFinding(what, finding, worst[0], Audience.SERVING, figure=f"{_spread(ratios)} times the time without")]


def _padded(pair: Pair) -> bool:
    one, other = (case.plan.get("work_items") for case in pair)
    return isinstance(one, int) and isinstance(other, int) and one > other


def _spread(items: Sequence[tuple[Pair, Ratio]]) -> str:
    return spread([found.value for _, found in items])


def _words(study: Study, pair: Pair, found: Ratio) -> str:
    on, off = pair
    return f"{pair_label(study, on, off)}: with {plain_time(on)}, without {plain_time(off)}: {ratio_words(found)}"


def _plan_words(study: Study, pair: Pair, found: Ratio) -> str:
    on, off = pair
    words = (
        f"{pair_label(study, on, off)}: {off.plan['work_items']} work items a KV head become "
        f"{on.plan['work_items']}, and the time {ratio_words(found)}"
    )
    kernels = [case.kernels[0] for case in pair if case.kernels]
    if len(kernels) == 2 and all(kernel.duration_us for kernel in kernels):
        words += (
            f"; {kernels[0].kernel} alone, by ncu, {duration(kernels[1].duration_us or 0)} to "
            f"{duration(kernels[0].duration_us or 0)}"
        )
    return words
