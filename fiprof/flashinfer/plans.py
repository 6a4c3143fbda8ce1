"""What FlashInfer's planners decided for the cases of a study: split of KV, tiles, balance."""

from __future__ import annotations

import math

from fiprof.analysis.study import Study
from fiprof.model.results import CaseResult
from fiprof.reports.study_pages.names import label
from fiprof.reports.study_pages.numbers import spread
from fiprof.reports.words import phrase


def split_factor(case: CaseResult) -> int | None:
    """Parts that a request's KV was split into, by the plan; 1 where it was not split; None where that is not told."""
    split, chunk = case.plan.get("split_kv"), case.plan.get("kv_chunk_tokens")
    tokens = case.params.get("kv_len", case.params.get("seq_len"))
    if split is False:
        return 1
    if split and isinstance(chunk, int) and chunk > 0 and isinstance(tokens, int):
        return math.ceil(tokens / chunk)
    return None


def plan_facts(case: CaseResult) -> list[tuple[str, int]]:
    """What follows from a case's plan."""
    factor = split_factor(case) if "kv_chunk_tokens" in case.plan or "split_kv" in case.plan else None
    return [] if factor is None else [("split_factor", factor)]


def imbalance(case: CaseResult) -> float | None:
    """Work items of the block that has most over the mean of all blocks; None where the plan does not tell."""
    most, items, blocks = (case.plan.get(name) for name in ("most_work_items_of_a_block", "work_items", "blocks"))
    if isinstance(most, int) and isinstance(items, int) and isinstance(blocks, int) and items > 0 and blocks > 0:
        return most / (items / blocks)
    return None


def plan_sentences(study: Study, workload: str) -> list[str]:
    """What was planned for a workload's cases, in sentences."""
    planned = [case for case in study.of(workload) if case.plan]
    if not planned:
        return []
    lines: list[str] = []
    factors = [(case, factor) for case in planned if (factor := split_factor(case)) is not None]
    split = [(case, factor) for case, factor in factors if factor > 1]
    if split:
        most = max(split, key=lambda item: item[1])
        lines.append(
            phrase(
                "plan.split",
                split=len(split),
                cases=len(factors),
                parts=spread([factor for _, factor in split], ".0f"),
                case=label(study, most[0], workload=False),
            )
        )
        batches = [float(case.params["batch"]) for case, _ in split if "batch" in case.params]
        whole = [float(case.params["batch"]) for case, factor in factors if factor == 1 and "batch" in case.params]
        if batches and whole and max(batches) < min(whole):
            lines.append(phrase("plan.up_to", most=max(batches), least=min(whole)))
    elif factors:
        lines.append(phrase("plan.none", cases=len(factors)))
    tiles = {case.plan["cta_tile_q"] for case in planned if isinstance(case.plan.get("cta_tile_q"), int)}
    if tiles:
        lines.append(phrase("plan.tiles", tiles=sorted(tiles, key=int)))
    uneven = [found for case in planned if (found := imbalance(case)) is not None]
    if uneven:
        lines.append(phrase("plan.uneven", spread=spread(uneven), cases=len(uneven)))
    return lines
