"""What a study found: for those who serve, and for those who write kernels.

Every sentence is a function of the cells: direction words follow from intervals, and what was not measured says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fiprof.parsers.results import Cell, Kernel, Times
from fiprof.reports import study_jit
from fiprof.reports.page import Finding
from fiprof.reports.reasons import reason_of
from fiprof.reports.study_data import (
    Side,
    Study,
    kernel_shares,
    main_kernel,
    pair_label,
    pairs,
    parameter_words,
)
from fiprof.reports.study_ratio import Ratio, count, duration, listed, of_cells, spread, times
from fiprof.reports.verdict_rules import WAITING_PCT

MOST_EXCEPTIONS = 4
"""Cells that a recommendation excepts by name; more are counted."""

WORTH = 1.02
"""A ratio below it is no reason to choose, however sure it is. fiprof's own choice."""

MOST_COMMANDS = 2
"""Commands that a recommendation writes out."""

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""

Audience = Literal["serving", "kernels"]


@dataclass(frozen=True)
class Found:
    """A finding with the cells that show it."""

    subject: str
    """What it is about, as a heading."""
    finding: Finding
    cells: tuple[Cell, ...]
    """The few that the evidence names; the reader can open their runs."""
    audience: Audience
    headline: bool = False
    """Whether it belongs at the top of the study."""
    absent: bool = False
    """Whether nothing was found: the observation says why."""


def serving(study: Study) -> list[Found]:
    """What follows for those who serve models; in the order in which they decide."""
    return [found for make in _SERVING for found in make(study)]


def kernels(study: Study) -> list[Found]:
    """What follows for those who write kernels."""
    return [found for make in _KERNELS for found in make(study)]


def not_measured(anchor: str, what: str, why: str, audience: Audience) -> Found:
    """A finding that could not be made."""
    finding = Finding(anchor, f"{what}: not measured, because {why}.", (), "No recommendation follows.")
    return Found(what, finding, (), audience, absent=True)


# One option against another


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
        "MHA 32/32", "GQA 32/8", "prefer models with grouped queries", "the number of KV heads is no reason to choose",
        "", True,
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


def choose(study: Study, choice: Choice) -> list[Found]:
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


def _chosen(study: Study, choice: Choice, word: str, group: Sequence[tuple[tuple[Cell, Cell], Ratio]]) -> Found:
    """ratios are old over new: above 1, the new one is faster."""
    faster = [item for item in group if item[1].direction == "more"]
    slower = [item for item in group if item[1].direction == "less"]
    alike = len(group) - len(faster) - len(slower)
    kinds = ((len(faster), "faster"), (len(slower), "slower"), (alike, "with no difference seen"))
    counted = listed([f"{words} in {n}" for n, words in kinds if n])
    without = (choice.by,) if word else ()
    where = f" ({word})" if word else ""
    values = [ratio.value for _, ratio in group]
    observation = (
        f"{choice.what}{where}: {counted} of {count(len(group), 'pair')} of cells. Time with {choice.old_name} over "
        f"time with {choice.new_name}: {spread(values)}."
    )
    extremes = {id(item): item for item in (max(group, key=_value), min(group, key=_value))}
    evidence = tuple(_pair_words(study, choice, *item, without) for item in extremes.values())
    finding = Finding(
        f"{choice.anchor}{'-' + _slug(word) if word else ''}",
        observation,
        evidence,
        _advice(study, choice, faster, slower, len(group), without),
        f"Plain times, intervals of {study.confidence} for each pair on its own: by chance alone, about "
        f"{sum(1 - (ratio.confidence or 0) for _, ratio in group):.1f} of {count(len(group), 'pair')} would seem to "
        "differ.",
    )
    cells = tuple(cell for item in extremes.values() for cell in item[0])
    return Found(f"{choice.what}{where}", finding, cells, "serving", choice.headline)


def _value(item: tuple[tuple[Cell, Cell], Ratio]) -> float:
    return item[1].value


def _pair_words(study: Study, choice: Choice, pair: tuple[Cell, Cell], ratio: Ratio, without: Sequence[str]) -> str:
    old, new = pair
    assert old.plain is not None and new.plain is not None
    where = pair_label(study, old, new, without=without)
    return f"{where}: {choice.old_name} {times(old.plain)}, {choice.new_name} {times(new.plain)}: {ratio}"


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
        return f"{_sentence(choice.keep_old)}: {choice.new_name} was faster nowhere here."
    many, few = (choice.take_new, slower) if len(faster) >= len(slower) else (choice.keep_old, faster)
    names = [pair_label(study, *pair, without=without) for pair, _ in few[:MOST_EXCEPTIONS]]
    more = f" and {len(few) - len(names)} more" if len(few) > len(names) else ""
    other = choice.keep_old if few is slower else choice.take_new
    return f"{_sentence(many)}; but {other} at {'; '.join(names)}{more}."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _slug(words: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in words.lower()).strip("-")


def _choices(study: Study) -> list[Found]:
    return [found for choice in CHOICES for found in choose(study, choice)]


# Throughput of decode


def _throughput(study: Study) -> list[Found]:
    """From which batch on a larger one gains little, at each KV length, for the fastest options."""
    cells = [cell for cell in study.of("decode") if cell.tokens_per_second and "batch" in cell.params]
    if len({cell.params["batch"] for cell in cells}) < 2:
        why = "only one batch was measured" if cells else "its cells do not say how many tokens they process"
        why = why if study.of("decode") else study.why_absent("decode")
        return [not_measured("decode-batch", "Throughput of decode against batch", why, "serving")]
    lengths: dict[object, list[Cell]] = {}
    for cell in cells:
        lengths.setdefault(cell.params.get("kv_len"), []).append(cell)
    best_cells: list[Cell] = []
    words: list[str] = []
    nears: list[int] = []
    for group in lengths.values():
        best = max(group, key=_tokens)
        line = sorted((cell for cell in group if _alike(cell, best)), key=lambda cell: float(cell.params["batch"]))
        near = next(cell for cell in line if _tokens(cell) >= NEAR_BEST * _tokens(best))
        best_cells += [best] if near is best else [best, near]
        label = study.label(best, workload=False, without=("batch",))
        words.append(
            f"{label}: most at batch {best.params['batch']}, {_tokens(best):,.0f} tokens/s, {_time(best)}; "
            + (
                "no smaller one comes near"
                if near is best
                else f"batch {near.params['batch']} is the smallest within {1 - NEAR_BEST:.0%} of that: "
                f"{_tokens(near):,.0f} tokens/s, {_time(near)}"
            )
        )
        nears.append(int(near.params["batch"]))
    low, high = min(nears), max(nears)
    finding = Finding(
        "decode-batch",
        f"{NEAR_BEST:.0%} of decode's best tokens/s is reached at batch {low}"
        f"{f' to {high}, depending on the KV length' if low != high else ''}.",
        tuple(words),
        f"A batch larger than the one named for your KV length adds to latency, and at most {1 / NEAR_BEST - 1:.0%} to "
        "throughput: where latency matters, stop there. A model has one such call a layer, and other work beside it.",
        "From plain medians, of this kernel alone, at the study's batches: the true limit lies between two of them.",
    )
    return [Found("Batch of decode", finding, tuple(best_cells), "serving")]


def _tokens(cell: Cell) -> float:
    return cell.tokens_per_second or 0.0


def _time(cell: Cell) -> str:
    return "–" if cell.plain is None else times(cell.plain)


def _alike(cell: Cell, other: Cell) -> bool:
    return all(cell.params.get(name) == value for name, value in other.params.items() if name != "batch")


# The host


def _host(study: Study) -> list[Found]:
    """Where the GPU waits for the host, and what a CUDA graph does to that."""
    cells = [cell for cell in study.of("decode") if cell.waiting_pct is not None and not cell.params.get("cuda_graph")]
    if not cells:
        why = "how long the GPU waits was not recorded" if study.of("decode") else study.why_absent("decode")
        return [not_measured("decode-host", "Launching decode", why, "serving")]
    bound = [cell for cell in cells if (cell.waiting_pct or 0) >= WAITING_PCT]
    off, on = Side("decode", (("cuda_graph", False),)), Side("decode", (("cuda_graph", True),))
    twins = [pair for pair in pairs(study, off, on) if pair[0].wall_us and pair[1].wall_us]
    gains = [(one.wall_us or 0) / (two.wall_us or 1) for one, two in twins]
    evidence: list[str] = []
    shown: list[Cell] = []
    if bound:
        worst = max(bound, key=lambda cell: cell.waiting_pct or 0)
        shown.append(worst)
        evidence.append(
            f"{study.label(worst, workload=False)}: the GPU waits {worst.waiting_pct:.0f} % of the time, "
            f"{duration(worst.wall_us or 0)} an iteration back to back, {_time(worst)} of it between the GPU's events"
        )
    if twins:
        best = max(range(len(twins)), key=gains.__getitem__)
        shown += twins[best]
        before, after = (duration(cell.wall_us or 0) for cell in twins[best])
        evidence.append(
            f"time an iteration without over with a CUDA graph, as the host sees it: {spread(gains)} over "
            f"{count(len(twins), 'pair')}; most at {pair_label(study, *twins[best])}: {before} to {after}"
        )
    largest = max((cell.wall_us or 0 for cell in bound), default=0)
    if not bound:
        advice = "The host keeps the GPU busy at all these sizes."
    elif not twins:
        advice = (
            "Launching costs more than computing there; no pair with and without a CUDA graph says what that gains."
        )
    elif max(gains) >= WORTH:
        advice = f"Where an iteration takes up to about {duration(largest)}, capture decode in a CUDA graph."
    else:
        advice = "Launching costs more than computing there, and a CUDA graph made it no faster."
    finding = Finding(
        "decode-host",
        f"In {len(bound)} of {count(len(cells), 'decode cell')} without a CUDA graph the GPU waits for the host for "
        f"{WAITING_PCT:.0f} % of the time or longer.",
        tuple(evidence),
        advice,
        "Times as the host sees them are one figure a cell, on this machine and with an idle CPU: no interval.",
    )
    return [Found("Launching decode", finding, tuple(shown), "serving")]


# Compilation


def _compilation(study: Study) -> list[Found]:
    what = "The first call of each kernel (just-in-time compilation)"
    if study.jit is None or not study.jit.calls:
        return [not_measured("jit", what, "the study has no results of fiprof jit", "serving")]
    calls = [call for call in study.jit.calls if call.cold_s is not None]
    if not calls:
        return [not_measured("jit", what, "no call with an empty cache completed", "serving")]
    slowest = max(calls, key=lambda call: call.cold_s or 0)
    evidence = [
        f"{call.case}: {_seconds(call.cold_s)} with an empty cache, {_seconds(call.disk_s)} in a new process with the "
        f"cache on disk, {_seconds(call.memory_s)} again in the same process"
        for call in sorted(calls, key=lambda call: -(call.cold_s or 0))[:3]
    ]
    evidence += [words for words in [study_jit.phases_sentence(study.jit.calls)] if words]
    commands = "; ".join(study.jit.warm_up[:MOST_COMMANDS])
    finding = Finding(
        "jit",
        f"The first call of a kernel waits up to {_seconds(slowest.cold_s)} for the compiler ({slowest.case}), "
        f"{count(len(study.jit.modules), 'module')} in all.",
        tuple(evidence),
        f"Fill the cache before the server takes requests: {commands}"
        if commands and len(study.jit.warm_up) <= MOST_COMMANDS
        else "Fill the cache before the server takes requests, with the commands in the analysis.",
        "One measurement each, on this machine's cores and compiler.",
    )
    return [Found("First calls", finding, (), "serving")]


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(value * 1e6)


# For those who write kernels


def _distance(study: Study) -> list[Found]:
    """For each workload, the option whose largest cell is farthest from its roof, and what its warps wait for."""
    found = []
    for workload in study.by_workload:
        largest = [
            (cell, kernel)
            for group in study.groups(workload).values()
            for cell in group[-1:]
            if (kernel := main_kernel(cell)) is not None
        ]
        known = [(cell, kernel, kernel.roof_share) for cell, kernel in largest if kernel.roof_share is not None]
        anchor, what = f"roof-{_slug(workload)}", f"Distance of {workload} from its roof"
        if not known:
            why = study.why_absent(workload) if not study.of(workload) else "ncu gave no roof of its largest cells"
            found.append(not_measured(anchor, what, why, "kernels"))
            continue
        cell, kernel, share = min(known, key=lambda item: item[2])
        best, best_kernel, best_share = max(known, key=lambda item: item[2])
        top = top_stalls(kernel)
        other = (
            f"; the best of {len(known)} options, {_option(study, best)}, {best_share:.0%} of the {best_kernel.roof} "
            "roof"
            if best is not cell
            else ""
        )
        evidence = [f"{study.label(cell)}: {_time(cell)}; {kernel.kernel}"]
        evidence += kernel.verdict_evidence[:2]
        evidence += [f"warps: {listed([f'{name} {part:.0%}' for name, part in top])}"] if top else []
        evidence += [occupancy(kernel)] if occupancy(kernel) else []
        finding = Finding(
            anchor,
            f"At its largest size {workload} reaches {share:.0%} of the {kernel.roof} roof with {_option(study, cell)}"
            f"{f', {kernel.verdict}' if kernel.verdict else ''}{other}.",
            tuple(evidence),
            _stall_advice(kernel),
            "Counted by ncu in one launch. The roof is the lowest at the kernel's intensity; the verdict also weighs "
            "what no roof shows: issue slots, idle multiprocessors, the host.",
        )
        cells = (cell,) if best is cell else (cell, best)
        found.append(
            Found(f"{workload} and its roof", finding, cells, "kernels", headline=workload in ("prefill", "decode"))
        )
    return found


def _option(study: Study, cell: Cell) -> str:
    """The cell's options in words; its whole name where the workload has none."""
    options = study.options(cell.workload)
    words = parameter_words({name: cell.params[name] for name in options if name in cell.params}, cell.params)
    return words or study.label(cell, workload=False)


def top_stalls(kernel: Kernel, most: int = 3) -> list[tuple[str, float]]:
    """The largest warp states with their shares."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def occupancy(kernel: Kernel) -> str:
    """``occupancy 37 % of 56 % that registers allow``; empty where it was not collected."""
    if kernel.achieved_occupancy_pct is None or kernel.theoretical_occupancy_pct is None:
        return ""
    by = listed(kernel.occupancy_limiters)
    return (
        f"occupancy {kernel.achieved_occupancy_pct:.0f} % of {kernel.theoretical_occupancy_pct:.0f} %"
        f"{f' that {by} allow' if by else ''}"
    )


_BY_VERDICT = (
    (
        "launch-bound",
        "The GPU waits for the host there: fewer launches or a CUDA graph help, a faster kernel does not.",
    ),
    (
        "imbalanced",
        "Multiprocessors idle while others work: more and smaller work items, or a schedule that evens them out.",
    ),
    (
        "compute-bound (issue slots)",
        "Its schedulers issue in most cycles: fewer instructions for the same work (wider loads, less index "
        "arithmetic, tensor cores for what they can do).",
    ),
)
"""Where a verdict's first words say more than the stalls."""


def _stall_advice(kernel: Kernel) -> str:
    """What follows from the verdict, the roof and the warps' states, in this order."""
    for verdict, advice in _BY_VERDICT:
        if kernel.verdict.startswith(verdict):
            return advice
    if kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        return f"At {kernel.roof_share:.0%} of the {kernel.roof} roof there is little left but to need less of it."
    waiting = [
        (name, share) for name, share in top_stalls(kernel, len(kernel.stalls)) if reason_of(name).kind == "stall"
    ]
    if not waiting:
        return "Its stalls were not collected: fiprof collect --set full, then fiprof stalls, says what to change."
    name, share = waiting[0]
    return (
        f"What its warps wait for most is {name} ({share:.0%}). What usually makes that less: {reason_of(name).helps}."
    )


def _merge(study: Study) -> list[Found]:
    """What the second kernel of an iteration costs."""
    split = [(cell, shares) for cell in study.of("decode") if len(cell.kernels) > 1 and (shares := kernel_shares(cell))]
    if not study.of("decode") or not any(cell.kernels for cell in study.of("decode")):
        return [not_measured("decode-merge", "Cost of split-K's merge", study.why_absent("decode"), "kernels")]
    seen = [cell for cell in study.of("decode") if cell.kernels]
    if not split:
        words = f"None of {count(len(seen), 'decode cell')} ran a merge kernel: KV was split nowhere."
        return [Found("Split-K's merge", Finding("decode-merge", words, (), "Nothing to gain."), (), "kernels")]
    rest = [(cell, 1 - max(shares)) for cell, shares in split]
    worst, least = max(rest, key=lambda item: item[1]), min(rest, key=lambda item: item[1])
    evidence = tuple(
        f"{study.label(cell)}: {share:.0%} of the kernel time, {listed(list(map(_kernel_time, cell.kernels)))}"
        for cell, share in ({id(worst): worst, id(least): least}).values()
    )
    half = median(share for _, share in rest)
    finding = Finding(
        "decode-merge",
        f"In {len(split)} of {count(len(seen), 'decode cell')} split-K adds a merge kernel, which takes "
        f"{least[1]:.0%} to {worst[1]:.0%} of an iteration's kernel time (median {half:.0%}).",
        evidence,
        "A merge inside the last block to finish (a counter in the workspace), or launching it programmatically early, "
        "would save most of that where it is large."
        if worst[1] >= 0.10
        else "It is small everywhere: not the place to begin.",
        "ncu's times, which for kernels of a few microseconds are longer than those in a running stream.",
    )
    return [Found("Split-K's merge", finding, (worst[0],) if worst is least else (worst[0], least[0]), "kernels")]


def _kernel_time(kernel: Kernel) -> str:
    return f"{kernel.kernel} {'–' if kernel.duration_us is None else duration(kernel.duration_us)}"


def _tails(study: Study) -> list[Found]:
    """Grids whose last wave is nearly empty."""
    seen = [(cell, kernel) for cell in study.measured for kernel in [main_kernel(cell)] if kernel and kernel.waves]
    if not seen:
        return [not_measured("tail", "Waves of the grids", "ncu gave no waves of any cell", "kernels")]
    tails = [(cell, kernel, tail) for cell, kernel in seen if (tail := wave_efficiency(kernel.waves)) < TAIL_EFFICIENCY]
    under = [(cell, kernel) for cell, kernel in seen if kernel.waves is not None and kernel.waves < 1]
    evidence = [
        f"{study.label(cell)}: {kernel.waves:.2f} waves of {kernel.kernel}: {tail:.0%} of the block slots of those "
        f"waves are used"
        for cell, kernel, tail in sorted(tails, key=lambda item: -(item[0].plain or _NEVER).median_us)[:3]
    ]
    finding = Finding(
        "tail",
        f"Of {count(len(seen), 'cell')} the main kernel of {len(under)} has less than a wave, and of {len(tails)} more "
        f"than one with a last wave that leaves over {1 - TAIL_EFFICIENCY:.0%} of all block slots empty.",
        tuple(evidence),
        "Sizes whose grids end just above a whole number of waves gain from smaller tiles or a persistent grid."
        if tails
        else "Tails are no problem at these sizes.",
        "Waves count block slots, not work: with unequal blocks (a causal mask) the tail can be shorter or longer.",
    )
    return [Found("Waves and tails", finding, tuple(item[0] for item in tails[:3]), "kernels")]


_NEVER = Times(0.0, 0.0, 0.0, 0.0, 0, 0, [])


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    import math

    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0


_SERVING: tuple[Callable[[Study], list[Found]], ...] = (_choices, _throughput, _host, _compilation)
_KERNELS: tuple[Callable[[Study], list[Found]], ...] = (_distance, _merge, _tails)
