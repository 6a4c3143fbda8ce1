"""Two ways to do the same: which one a study's times speak for, and at which sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.model.results import Cell
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages.data import Side, Study, main_kernel, pair_label, pairs, parameter_words
from fiprof.reports.study_pages.found import StudyFinding, not_measured, slug
from fiprof.reports.study_pages.kernel_findings import merge_share
from fiprof.reports.study_pages.ratio import Ratio, of_cells, spread, times
from fiprof.text import count, join_words

MOST_EXCEPTIONS = 4
"""Cells that a recommendation excepts by name; more are counted."""

MERGE_MENTIONED = 0.25
"""Part of a cell's kernel time from which its split-K merge is named beside a ratio. fiprof's own choice."""

WORTH = 1.02
"""A ratio below it is no reason to choose, however sure it is. fiprof's own choice."""


@dataclass(frozen=True)
class Choice:
    """Two ways to do the same, and how a recommendation for one of them is said."""

    anchor: str
    what: str
    """The question, e.g. «Tensor cores for decode»."""
    old: Side
    new: Side
    old_name: str
    new_name: str
    take_new: str
    """What to do where new is faster, e.g. ``use_tensor_cores=True``."""
    keep_old: str
    by: str = ""
    """An option to tell apart, e.g. kv_heads; empty for none."""
    headline: bool = False


CHOICES = (
    Choice(
        "decode-tensor-cores", "Decode on tensor cores",
        Side("decode", (("tensor_cores", False), ("cuda_graph", False))),
        Side("decode", (("tensor_cores", True), ("cuda_graph", False))),
        "CUDA cores", "tensor cores", "pass use_tensor_cores=True", "leave use_tensor_cores=False", "kv_heads", True,
    ),
    Choice(
        "prefill-backend", "Prefill by FA3",
        Side("prefill", (("backend", "fa2"),)), Side("prefill", (("backend", "fa3"),)),
        "FA2", "FA3", 'pass backend="fa3"', 'pass backend="fa2"', "kv_heads", True,
    ),
    Choice(
        "decode-heads", "GQA for decode",
        Side("decode", (("kv_heads", 32), ("q_heads", 32))), Side("decode", (("kv_heads", 8), ("q_heads", 32))),
        "MHA 32/32", "GQA 32/8",
        "count on it when you choose a model or size a fleet (the head count is the model's: no switch of a server)",
        "expect it the other way round", "", True,
    ),
    Choice(
        "norm-fusing", "Fusing residual add and RMSNorm",
        Side("add_then_rmsnorm"), Side("fused_add_rmsnorm"),
        "the two operations", "the fused kernel", "call fused_add_rmsnorm", "keep the two operations",
    ),
    Choice(
        "rope-cache", "A cos/sin cache for RoPE",
        Side("rope", (("variant", "inplace"),)), Side("rope", (("variant", "cos_sin_cache"),)),
        "computed angles", "the cache", "pass a cos/sin cache", "let the kernel compute the angles",
    ),
    Choice(
        "rope-llama31", "Llama 3.1's frequency scaling for RoPE",
        Side("rope", (("variant", "inplace"),)), Side("rope", (("variant", "llama31"),)),
        "plain RoPE", "Llama 3.1's", "its time is no reason against it", "it costs what the numbers above say",
    ),
)  # fmt: skip


def choose(study: Study, choice: Choice) -> list[StudyFinding]:
    """What the pairs of cells that differ in a choice alone say about it; one finding for each value of ``by``."""
    found = pairs(study, choice.old, choice.new)
    ratios = [(pair, ratio) for pair in found if (ratio := of_cells(*pair)) is not None]
    if not ratios:
        why = next(
            (
                study.why_absent(side.workload, dict(side.params))
                for side in (choice.old, choice.new)
                if not any(_has(cell, side) for cell in study.of(side.workload))
            ),
            "no two measured cells differ in this alone",
        )
        return [not_measured(choice.anchor, choice.what, why, "serving")]
    groups: dict[str, list[tuple[tuple[Cell, Cell], Ratio]]] = {}
    for pair, ratio in ratios:
        word = ""
        if choice.by and choice.by in study.varied(pair[0].workload):
            word = parameter_words({choice.by: pair[0].params[choice.by]}, pair[0].params)
        groups.setdefault(word, []).append((pair, ratio))
    return [_chosen(study, choice, word, group) for word, group in groups.items()]


def _has(cell: Cell, side: Side) -> bool:
    return all(cell.params.get(name) == value for name, value in side.params)


def _chosen(study: Study, choice: Choice, word: str, group: Sequence[tuple[tuple[Cell, Cell], Ratio]]) -> StudyFinding:
    """ratios are old over new: above 1, the new one is faster."""
    faster = [item for item in group if item[1].direction == "more"]
    slower = [item for item in group if item[1].direction == "less"]
    alike = len(group) - len(faster) - len(slower)
    kinds = ((len(faster), "faster"), (len(slower), "slower"), (alike, "with no difference seen"))
    counted = join_words([f"{words} in {n}" for n, words in kinds if n])
    without = (choice.by,) if word else ()
    where = f" ({word})" if word else ""
    values = [ratio.value for _, ratio in group]
    observation = (
        f"{choice.what}{where}: {counted} of {count(len(group), 'pair')} of cells. Time with {choice.old_name} over "
        f"time with {choice.new_name}: {spread(values)}."
    )
    extremes = {id(item): item for item in (max(group, key=_value), min(group, key=_value))}
    evidence = (
        *(_pair_words(study, choice, *item, without) for item in extremes.values()),
        *_by_bound(choice, group),
    )
    finding = Observation(
        f"{choice.anchor}{'-' + slug(word) if word else ''}",
        observation,
        evidence,
        _advice(study, choice, faster, slower, len(group), without),
        f"Plain times; each pair's interval has {study.confidence}, so that about "
        f"{sum(1 - (ratio.confidence or 0) for _, ratio in group):.1f} of {count(len(group), 'pair')} would seem to "
        "differ by chance.",
    )
    cells = tuple(cell for item in extremes.values() for cell in item[0])
    figure = f"{spread(values)} times as fast as {choice.old_name}"
    return StudyFinding(f"{choice.what}{where}", finding, cells, "serving", choice.headline, figure=figure)


def _by_bound(choice: Choice, group: Sequence[tuple[tuple[Cell, Cell], Ratio]]) -> list[str]:
    """The ratios apart, by what bounds the old way; nothing where all are bound alike, or it is not known."""
    found: dict[str, list[float]] = {}
    for (old, _), ratio in group:
        kernel = main_kernel(old)
        if kernel is None or not kernel.verdict:
            return []
        found.setdefault(kernel.verdict, []).append(ratio.value)
    if len(found) < 2:
        return []
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    words = [f"{verdict} {spread(values)} ({count(len(values), 'pair')})" for verdict, values in ordered]
    return [f"by what bounds {choice.old_name}: {'; '.join(words)}"]


def _value(item: tuple[tuple[Cell, Cell], Ratio]) -> float:
    return item[1].value


def _pair_words(study: Study, choice: Choice, pair: tuple[Cell, Cell], ratio: Ratio, without: Sequence[str]) -> str:
    old, new = pair
    assert old.plain is not None and new.plain is not None
    where = pair_label(study, old, new, without=without)
    words = f"{where}: {choice.old_name} {times(old.plain)}, {choice.new_name} {times(new.plain)}: {ratio}"
    merged = [
        f"{share:.0%} of the kernel time of {name}"
        for cell, name in ((old, choice.old_name), (new, choice.new_name))
        if (share := merge_share(cell) or 0.0) >= MERGE_MENTIONED
    ]
    return words + (f"; the merge of the split KV is {join_words(merged)}" if merged else "")


def _advice(
    study: Study,
    choice: Choice,
    faster: Sequence[tuple[tuple[Cell, Cell], Ratio]],
    slower: Sequence[tuple[tuple[Cell, Cell], Ratio]],
    total: int,
    without: Sequence[str],
) -> str:
    if not faster and not slower:
        return "No difference was seen: choose by something else."
    most = max(max(ratio.value, 1 / ratio.value) for _, ratio in (*faster, *slower))
    if most < WORTH:
        return f"Differences were seen, and the largest is {most - 1:.1%}: choose by something else."
    if not slower:
        rest = "" if len(faster) == total else f"; in {total - len(faster)} of {total} no difference was seen"
        return f"{_sentence(choice.take_new)}{rest}."
    if not faster:
        return f"{_sentence(choice.keep_old)}: nothing was faster with {choice.new_name}."
    many, few = (choice.take_new, slower) if len(faster) >= len(slower) else (choice.keep_old, faster)
    other = choice.keep_old if few is slower else choice.take_new
    worth = [item for item in few if max(item[1].value, 1 / item[1].value) >= WORTH]
    if not worth:
        loss = max(max(ratio.value, 1 / ratio.value) for _, ratio in few) - 1
        where = "; ".join(pair_label(study, *pair, without=without) for pair, _ in few[:MOST_EXCEPTIONS])
        return f"{_sentence(many)}; what that loses at {where} is at most {loss:.1%}."
    few = worth
    names = [pair_label(study, *pair, without=without) for pair, _ in few[:MOST_EXCEPTIONS]]
    more = f" and {len(few) - len(names)} more" if len(few) > len(names) else ""
    return f"{_sentence(many)}; but {other} at {'; '.join(names)}{more}."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def choices(study: Study) -> list[StudyFinding]:
    """Every choice's findings."""
    return [found for choice in CHOICES for found in choose(study, choice)]
