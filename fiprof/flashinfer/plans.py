"""What FlashInfer's planners decided for the cases of a study; prefill beside decode."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fiprof.analysis.shapes import fastest_cases
from fiprof.analysis.study import Study, is_number
from fiprof.flashinfer.data import data
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Block, Table, bullets
from fiprof.reports.study_pages.choices import aside_share
from fiprof.reports.study_pages.names import axis_name, short
from fiprof.reports.study_pages.numbers import spread
from fiprof.reports.study_pages.tables import side_by_side
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

LENGTHS = {"prefill": "seq_len", "decode": "kv_len"}
"""Workload -> its parameter of the tokens in the KV cache."""


def split_factor(case: CaseResult) -> int | None:
    """Parts that a request's KV was split into, by the plan; 1 where it was not split; None where that is not told."""
    split, chunk = case.plan.get("split_kv"), case.plan.get("kv_chunk_tokens")
    tokens = case.params.get(LENGTHS.get(case.workload, ""))
    if split is False:
        return 1
    if split and isinstance(chunk, int) and chunk > 0 and isinstance(tokens, int):
        return math.ceil(tokens / chunk)
    return None


def imbalance(case: CaseResult) -> float | None:
    """Work items of the block that has most over the mean of all blocks; None where the plan does not tell."""
    most, items, blocks = (case.plan.get(name) for name in ("most_work_items_of_a_block", "work_items", "blocks"))
    if isinstance(most, int) and isinstance(items, int) and isinstance(blocks, int) and items > 0 and blocks > 0:
        return most / (items / blocks)
    return None


def plans(study: Study, workload: str) -> list[Block]:
    """Split-K as planned, over batch and length; then tiles and balance."""
    planned = [case for case in study.of(workload) if case.plan]
    length = LENGTHS.get(workload, "")
    if not planned or not length:
        return []
    blocks: list[Block] = []
    view = _splits(study, planned, length)
    if view.rows:
        blocks.append(Table(view, f"plan-{workload}"))
    lines = []
    never = {_options(study, case) for case in planned} - {
        _options(study, case) for case in planned if (split_factor(case) or 1) > 1
    }
    if never:
        lines.append(phrase("plan.never", options=sorted(never)))
    if tiles := {case.plan["cta_tile_q"] for case in planned if isinstance(case.plan.get("cta_tile_q"), int)}:
        lines.append(phrase("plan.tiles", tiles=sorted(tiles, key=int)))
    if uneven := [found for case in planned if (found := imbalance(case)) is not None]:
        lines.append(phrase("plan.uneven", spread=spread(uneven), cases=len(uneven)))
    return [*blocks, *([bullets(lines)] if lines else [])]


def _splits(study: Study, planned: Sequence[CaseResult], length: str) -> View:
    """Rows of options and batch, columns of lengths: parts x tokens, work items, and the merge's part of the time."""
    lengths = sorted({int(case.params[length]) for case in planned})
    rows: dict[tuple[str, object], dict[int, CaseResult]] = {}
    for case in planned:
        rows.setdefault((_options(study, case), case.params.get("batch")), {})[int(case.params[length])] = case
    shown = {key: row for key, row in rows.items() if any((split_factor(case) or 1) > 1 for case in row.values())}
    columns = (
        Column("options", "options"),
        Column("batch", "batch"),
        *(Column(f"at_{each}", f"{axis_name(length)} {each:,}") for each in lengths),
    )
    table = tuple((*key, *(_split(row.get(each)) for each in lengths)) for key, row in shown.items())
    return View(columns, table, title="Split-K as planned", notes=(phrase("plan.note"),) if table else ())  # type: ignore[arg-type]


def _options(study: Study, case: CaseResult) -> str:
    return short(study, case, without=("batch", LENGTHS.get(case.workload, "")))


def _split(case: CaseResult | None) -> str:
    if case is None or (parts := split_factor(case)) is None:
        return "–"
    items = case.plan.get("work_items", "–")
    if parts <= 1:
        return f"whole, {items} items"
    merge = aside_share(case, data()["merge"]["kernel"])
    return f"{parts} x {case.plan['kv_chunk_tokens']:,}, {items} items, {merge:.0%}"


# Prefill beside decode


def beside(study: Study) -> list[Block]:
    """Both at the same batch, length and heads, each solved the fastest way: the least and the most work they share."""
    sides: dict[tuple[object, ...], dict[str, CaseResult]] = {}
    for case in fastest_cases(study):
        if (length := LENGTHS.get(case.workload)) and is_number(case.params.get(length)):
            key = (case.params.get("batch"), case.params[length], case.params.get("kv_heads"))
            sides.setdefault(key, {})[case.workload] = case
    both = [found for found in sides.values() if found.keys() >= LENGTHS.keys()]
    if not both:
        return []
    both.sort(key=lambda found: sum(case.flops for case in found.values()))
    ends = [both[0], both[-1]] if len(both) > 1 else both
    view = side_by_side(study, [found[name] for found in ends for name in LENGTHS])
    return [Table(View(view.columns, view.rows, title=phrase("plan.beside")), "prefill-beside-decode")]
