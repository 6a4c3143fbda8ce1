"""What a study found for those who serve models.

Every sentence is a function of the cells: direction words follow from intervals, and what was not measured says why.
"""

from __future__ import annotations

from fiprof.parsers.results import Cell
from fiprof.reports.judging.rules import WAITING_PCT
from fiprof.reports.pages.page import Finding
from fiprof.reports.study_pages import jit
from fiprof.reports.study_pages.choices import WORTH, choices
from fiprof.reports.study_pages.data import Side, Study, pair_label, pairs
from fiprof.reports.study_pages.found import Found, not_measured
from fiprof.reports.study_pages.ratio import count, duration, spread, times

MOST_COMMANDS = 2
"""Commands that a recommendation writes out."""

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""


def serving(study: Study) -> list[Found]:
    """What follows for those who serve models; in the order in which they decide."""
    return [*choices(study), *_throughput(study), *_host(study), *_compilation(study)]


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
    evidence += [words for words in [jit.phases_sentence(study.jit.calls)] if words]
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
