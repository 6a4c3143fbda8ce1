"""What a study found for those who serve models with FlashInfer: throughput, first calls."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.analysis.study import Study, absence
from fiprof.flashinfer.host import host
from fiprof.flashinfer.jit import pages as jit
from fiprof.flashinfer.jit.report import calls_view, labels, measured, seconds, where_it_goes
from fiprof.flashinfer.merge import merge
from fiprof.model.results import CaseResult
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages.page import Table
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured
from fiprof.reports.study_pages.names import absence_words, cite, label
from fiprof.reports.view import Column
from fiprof.reports.words import phrase

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""


def findings(study: Study) -> list[StudyFinding]:
    """Those for serving in the order in which one decides, then those for kernels."""
    return [*_throughput(study), *host(study), *_compilation(study), *merge(study)]


# Throughput of decode


@dataclass(frozen=True)
class Throughput:
    """Of a KV length: the case with most tokens a second, and the smallest batch of its options that is near it."""

    best: CaseResult
    near: CaseResult

    @property
    def share(self) -> float:
        """Of the best's tokens a second that the near one has."""
        return _tokens(self.near) / _tokens(self.best)


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
    rows = []
    for group in lengths.values():
        best = max(group, key=_tokens)
        line = sorted((case for case in group if _alike(case, best)), key=lambda case: float(case.params["batch"]))
        rows.append(Throughput(best, next(case for case in line if _tokens(case) >= NEAR_BEST * _tokens(best))))
    nears = [int(row.near.params["batch"]) for row in rows]
    low, high = min(nears), max(nears)
    columns: list[Cell] = [
        (Column("case", "for"), lambda row: label(study, row.best, workload=False, without=("batch",))),
        (Column("batch", "batch"), lambda row: cite(study, row.near, f"{row.near.params['batch']}")),
        (Column("time", "time", "µs", ",.1f"), lambda row: row.near.plain.median_us),
        (Column("share", "of most", "%", ".0f"), lambda row: 100 * row.share),
        (Column("best", "most at batch"), lambda row: cite(study, row.best, f"{row.best.params['batch']}")),
        (Column("best_time", "time", "µs", ",.1f"), lambda row: row.best.plain.median_us),
    ]
    return [
        found(
            "decode_batch",
            "decode-batch",
            Audience.SERVING,
            blocks=(Table(filled(columns, rows), "decode-batches"),),
            part=NEAR_BEST,
            gain=1 / NEAR_BEST - 1,
            batch=f"{low}" if low == high else f"{low} to {high}",
            depends="" if low == high else phrase("decode_batch.depends"),
        )
    ]


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
    return [
        found(
            "first_call",
            "jit",
            Audience.SERVING,
            evidence=[words for words in [where_it_goes(results)] if words],
            blocks=(
                Table(calls_view(results), "first-calls"),
                *([jit.warm_up(results)] if results.warm_up else []),
            ),
            longest=seconds(calls[0].cold_s),
            case=name(calls[0].case),
            modules=len(results.modules),
            command_below=phrase("jit.below") if results.warm_up else "",
            warnings="".join(f" {warning[:1].upper()}{warning[1:]}." for warning in results.warnings),
        )
    ]
