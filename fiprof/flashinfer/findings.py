"""What a study found for those who serve models with FlashInfer: throughput, first calls."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.study import Study, absence
from fiprof.flashinfer.host import host
from fiprof.flashinfer.jit import pages as jit
from fiprof.flashinfer.jit.report import cold_seconds, labels, measured, seconds, times, where_it_goes
from fiprof.flashinfer.merge import merge
from fiprof.model.results import CaseResult
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured
from fiprof.reports.study_pages.names import absence_words, label
from fiprof.reports.study_pages.numbers import plain_time
from fiprof.reports.words import phrase

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""


def findings(study: Study) -> list[StudyFinding]:
    """Those for serving in the order in which one decides, then those for kernels."""
    return [*_throughput(study), *host(study), *_compilation(study), *merge(study)]


# Throughput of decode


def _throughput(study: Study) -> list[StudyFinding]:
    """From which batch on a larger one gains little, at each KV length, for the fastest options."""
    if "decode" not in study.by_workload:
        return []
    cases = [case for case in study.of("decode") if case.tokens_per_second and "batch" in case.params]
    if len({case.params["batch"] for case in cases}) < 2:
        why: str = phrase(f"decode_batch.{'one' if cases else 'no_tokens'}")
        why = why if study.of("decode") else absence_words(absence(study, "decode"))
        return [not_measured("decode-batch", "Throughput of decode against batch", why, Audience.SERVING)]
    lengths: dict[object, list[CaseResult]] = {}
    for case in cases:
        lengths.setdefault(case.params.get("kv_len"), []).append(case)
    best_cases: list[CaseResult] = []
    words: list[str] = []
    nears: list[int] = []
    for group in lengths.values():
        best = max(group, key=_tokens)
        line = sorted((case for case in group if _alike(case, best)), key=lambda case: float(case.params["batch"]))
        near = next(case for case in line if _tokens(case) >= NEAR_BEST * _tokens(best))
        best_cases += [best] if near is best else [best, near]
        words.append(
            phrase(
                f"decode_batch.{'smallest' if near is best else 'near'}",
                name=label(study, best, workload=False, without=("batch",)),
                best=best.params["batch"],
                tokens=_tokens(best),
                time=plain_time(best),
                part=NEAR_BEST,
                batch=near.params["batch"],
                near_tokens=_tokens(near),
                near_time=plain_time(near),
                next=_next(line),
            )
            + _perhaps(line, near, best)
        )
        nears.append(int(near.params["batch"]))
    low, high = min(nears), max(nears)
    return [
        found(
            "decode_batch",
            "decode-batch",
            Audience.SERVING,
            evidence=words,
            cases=best_cases,
            part=NEAR_BEST,
            gain=1 / NEAR_BEST - 1,
            batch=f"{low}" if low == high else f"{low} to {high}",
            depends="" if low == high else phrase("decode_batch.depends"),
        )
    ]


def _next(line: Sequence[CaseResult]) -> str:
    """What the second largest batch has."""
    if len(line) < 2:
        return ""
    before, last = line[-2:]
    return phrase("decode_batch.next", batch=before.params["batch"], part=_tokens(before) / _tokens(last))


def _perhaps(line: Sequence[CaseResult], near: CaseResult, best: CaseResult) -> str:
    """A smaller batch that reaches it at the fast end of its interval."""
    for case in line:
        if case is near or case.plain is None:
            break
        fast = _tokens(case) * case.plain.median_us / case.plain.low_us if case.plain.low_us else 0.0
        if fast >= NEAR_BEST * _tokens(best):
            return phrase("decode_batch.perhaps", batch=case.params["batch"], part=fast / _tokens(best))
    return ""


def _tokens(case: CaseResult) -> float:
    return case.tokens_per_second or 0.0


def _alike(case: CaseResult, other: CaseResult) -> bool:
    return all(case.params.get(name) == value for name, value in other.params.items() if name != "batch")


# Compilation


def _compilation(study: Study) -> list[StudyFinding]:
    what = "The first call of each kernel (just-in-time compilation)"
    results = jit.load(study)
    if results is None or not results.calls:
        return []
    calls, name = measured(results), labels(results)
    if not calls:
        return [not_measured("jit", what, "no call with an empty cache completed", Audience.SERVING)]
    evidence = [f"{name(call.case)}: {times(call)}" for call in calls]
    evidence += [words for words in [where_it_goes(results)] if words]
    took = results.warm_up_s
    alone, modules = seconds(cold_seconds(results)), len(results.modules)
    return [
        found(
            "first_call",
            "jit",
            Audience.SERVING,
            evidence=evidence,
            command="\n".join(map(jit.readable, results.warm_up)),
            longest=seconds(calls[0].cold_s),
            case=name(calls[0].case),
            modules=modules,
            all_at_once=phrase("jit.all_at_once", modules=modules, took=seconds(took), alone=alone) if took else "",
            command_below=phrase("jit.below") if results.warm_up else "",
            warnings="".join(f" {warning[:1].upper()}{warning[1:]}." for warning in results.warnings),
        )
    ]
