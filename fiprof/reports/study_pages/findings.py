"""What a study found for those who serve models.

Every sentence is a function of the cells: direction words follow from intervals, and what was not measured says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.model.results import Cell
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages import jit
from fiprof.reports.study_pages.choices import choices
from fiprof.reports.study_pages.data import Study
from fiprof.reports.study_pages.found import StudyFinding, not_measured
from fiprof.reports.study_pages.host import host
from fiprof.reports.study_pages.ratio import duration, times
from fiprof.text import count

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""


def serving(study: Study) -> list[StudyFinding]:
    """What follows for those who serve models; in the order in which they decide."""
    return [*choices(study), *_throughput(study), *host(study), *_compilation(study)]


# Throughput of decode


def _throughput(study: Study) -> list[StudyFinding]:
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
                f"no smaller one reaches {NEAR_BEST:.0%} of that{_next(line)}"
                if near is best
                else f"batch {near.params['batch']} is the smallest within {1 - NEAR_BEST:.0%} of that: "
                f"{_tokens(near):,.0f} tokens/s, {_time(near)}"
            )
            + _perhaps(line, near, best)
        )
        nears.append(int(near.params["batch"]))
    low, high = min(nears), max(nears)
    finding = Observation(
        "decode-batch",
        f"{NEAR_BEST:.0%} of decode's best tokens/s is reached at batch {low}"
        f"{f' to {high}, depending on the KV length' if low != high else ''}.",
        tuple(words),
        f"A batch larger than the one named for your KV length adds to latency, and at most {1 / NEAR_BEST - 1:.0%} to "
        "throughput: where latency matters, stop there. A model has one such call a layer, and other work beside it.",
        "From plain medians, of this kernel alone, at the study's batches: the true limit lies between two of them.",
    )
    figure = f"{NEAR_BEST:.0%} of the best tokens/s at batch {low}" + (f" to {high}" if low != high else "")
    short = "stop at the batch named for your KV length where latency matters."
    return [StudyFinding("Batch of decode", finding, tuple(best_cells), "serving", figure=figure, short=short)]


def _next(line: Sequence[Cell]) -> str:
    """What the second largest batch has."""
    if len(line) < 2:
        return ""
    before, last = line[-2:]
    return f": batch {before.params['batch']} has {_tokens(before) / _tokens(last):.0%}"


def _perhaps(line: Sequence[Cell], near: Cell, best: Cell) -> str:
    """A smaller batch that reaches it at the fast end of its interval: medians of two levels decide by chance."""
    for cell in line:
        if cell is near or cell.plain is None:
            break
        fast = _tokens(cell) * cell.plain.median_us / cell.plain.low_us if cell.plain.low_us else 0.0
        if fast >= NEAR_BEST * _tokens(best):
            return f"; batch {cell.params['batch']} has {fast / _tokens(best):.0%} at the fast end of its interval"
    return ""


def _tokens(cell: Cell) -> float:
    return cell.tokens_per_second or 0.0


def _time(cell: Cell) -> str:
    return "–" if cell.plain is None else times(cell.plain)


def _alike(cell: Cell, other: Cell) -> bool:
    return all(cell.params.get(name) == value for name, value in other.params.items() if name != "batch")


# Compilation


def _compilation(study: Study) -> list[StudyFinding]:
    what = "The first call of each kernel (just-in-time compilation)"
    if study.jit is None or not study.jit.calls:
        return [not_measured("jit", what, "the study has no results of fiprof jit", "serving")]
    calls = [call for call in study.jit.calls if call.cold_s is not None]
    if not calls:
        return [not_measured("jit", what, "no call with an empty cache completed", "serving")]
    slowest = max(calls, key=lambda call: call.cold_s or 0)
    evidence = [
        f"{jit.call_name(study.jit.calls, call)}: {_seconds(call.cold_s)} with an empty cache, "
        f"{_seconds(call.disk_s)} in a new process with the cache on disk, {_seconds(call.memory_s)} again in the same "
        "process"
        for call in sorted(calls, key=lambda call: -(call.cold_s or 0))
    ]
    evidence += [words for words in [jit.phases_sentence(study.jit.calls)] if words]
    took = study.jit.warm_up_s
    one_by_one = sum(call.cold_s or 0 for call in calls)
    advice = "Fill the cache before the server takes requests" + (
        f": all {count(len(study.jit.modules), 'module')} at once took {_seconds(took)} here, the calls one after the "
        f"other {_seconds(one_by_one)}. The command stands below."
        if took is not None
        else ". The command stands below."
        if study.jit.warm_up
        else "."
    )
    finding = Observation(
        "jit",
        f"The first call of a kernel waits up to {_seconds(slowest.cold_s)} for the compiler "
        f"({jit.call_name(study.jit.calls, slowest)}), {count(len(study.jit.modules), 'module')} in all.",
        tuple(evidence),
        advice,
        "One measurement each, on this machine's cores and compiler."
        + "".join(f" {warning[:1].upper()}{warning[1:]}." for warning in study.jit.warnings),
    )
    figure = f"up to {_seconds(slowest.cold_s)} of waiting for the compiler"
    short = "fill the cache before the server takes requests; the command stands there."
    command = "\n".join(map(jit.readable, study.jit.warm_up))
    return [StudyFinding("First calls", finding, (), "serving", figure=figure, short=short, command=command)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(value * 1e6)
