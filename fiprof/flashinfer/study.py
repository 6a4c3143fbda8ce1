"""What FlashInfer's pack adds to a study: claims of others, each with its source and tested as it is said; choices; and
sections of the documents: batches, host, graphs, plans, merge, sources, compilation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TypeVar

from fiprof.analysis.claims import WORTH, Choice, Claim
from fiprof.analysis.ratio import Direction
from fiprof.analysis.study import Pair, Study, axis_name, kernel_share, main_kernel, side
from fiprof.analysis.thresholds import WAITING
from fiprof.flashinfer.data import (
    JIT,
    SOURCES,
    JitResults,
    SourcePlace,
    SourceResults,
    data,
    guide_pages,
    kernels,
)
from fiprof.flashinfer.jit.measure import call_rows, sentences
from fiprof.flashinfer.source_map import JIT as JIT_TOPIC
from fiprof.flashinfer.source_map import TOPICS
from fiprof.model.finding import words_of
from fiprof.model.manifest import fact
from fiprof.model.packs import Value
from fiprof.model.results import RESULTS, CaseResult, read
from fiprof.reports.markdown_html import Markdown, bullets, caution, code_block, code_span, grid, paragraphs
from fiprof.reports.study import StudySection
from fiprof.text import count, csv_rows, duration, join_words, spread

NEAR_BEST = 0.90  # Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice.
MERGE_WORTH = 0.10  # Part of an iteration from which the merge of a split KV is worth a change. fiprof's own choice.
MERGE: str = data()["merge"]
LENGTHS = {"prefill": "seq_len", "decode": "kv_len"}  # workload -> its parameter of the tokens in the KV cache

T = TypeVar("T", JitResults, SourceResults)

# Claims and choices

CITED = {
    "NOTES": "public notes on FlashInfer 0.5.3, A100 (9 January 2026)",
    "BLOG": "FlashInfer's blog, 'Accelerating Self-Attentions for LLM Serving with FlashInfer' (2 February 2024)",
}
"""As ``claims.csv`` calls them. The notes are three documents of a public repository, whose name is not known here."""


def claims() -> list[Claim]:
    rows = csv_rows(Path(__file__).with_name("claims.csv")).values()
    return [Claim(**{**row, "source": row["source"].format(**CITED)}) for row in rows]  # type: ignore[arg-type]


def claim_notes() -> tuple[str]:
    """What to know of the claims' rules; said below them."""
    return (
        "Made after the first data from a GPU had been seen, and not before: that the claim of saved traffic leaves "
        "out what fits in L2, and the rules by which outcomes become a verdict. The limits of the numbers, such as "
        "±10%, are older than the data.",
    )


def choices() -> list[Choice]:
    """Ways to do the same in FlashInfer: ``choices`` in ``kernels.toml``."""
    return [Choice(what, side(**old), side(**new), *words) for what, old, new, *words in data()["choices"]]


# Documents


def files(study: Study) -> list[tuple[str, str, int | None]]:
    """The results files of this pack: name, what it holds, how many measurements."""
    rows: list[tuple[str, str, int | None]] = []
    if jit := _read(study.folder, JIT, JitResults):
        calls, modules = count(len(jit.calls), "first call"), count(len(jit.modules), "module")
        rows.append((JIT, f"compilation: {calls}, {modules}", len(jit.calls)))
    if sources := _read(study.folder, SOURCES, SourceResults):
        rows.append((SOURCES, f"where the code lives in {sources.package} {sources.version}".strip(), None))
    return rows


def study_sections(study: Study) -> Iterator[StudySection]:
    """All of them, in the order in which each document shows them."""
    jit, sources = (_read(study.folder, JIT, JitResults), _read(study.folder, SOURCES, SourceResults))
    if "decode" in study.by_workload:
        yield _throughput(study)
        yield _waiting(study)
        yield from _graph(study)
    if jit and jit.calls:
        yield _first_calls(jit)
    if study.by_workload.keys() & LENGTHS.keys():
        yield _merge(study)
    for workload in study.by_workload:
        yield from _plan(study, workload)
        if workload in kernels():
            yield from _guide(study, workload, sources)
    if study.by_workload.keys() & kernels().keys():
        yield _compilation(jit, sources)
        yield _problems(study)


def _read(folder: Path, name: str, kind: type[T]) -> T | None:
    path = folder / RESULTS / name
    return read(path, kind) if path.is_file() else None


def _report(place: str, title: str, learned: str, *body: str, absent: str = "") -> StudySection:
    """A section of the final report. learned: for its head; absent: why nothing can be said."""
    return StudySection("final-report", place, title, paragraphs(*body), learned, absent)


# Serving


def _throughput(study: Study) -> StudySection:
    """From which batch on a larger one gains little, at each KV length, for the fastest options."""
    title = "Batch of decode"
    tokens = {case.id: case.tokens_per_second for case in study.of("decode") if case.tokens_per_second}
    cases = [case for case in study.of("decode") if case.id in tokens and "batch" in case.params]
    if len({case.params["batch"] for case in cases}) < 2:
        why = "only one batch was measured" if cases else "its cases do not say how many tokens they process"
        return _report("serving", title, "", absent=why if study.of("decode") else words_of(study.absence("decode")))
    rows: list[tuple[Value, ...]] = []
    for length in dict.fromkeys(case.params.get("kv_len") for case in cases):
        best = max((case for case in cases if case.params.get("kv_len") == length), key=lambda case: tokens[case.id])
        line = [case for case in cases if {**case.params, "batch": 0} == {**best.params, "batch": 0}]
        line.sort(key=lambda case: float(case.params["batch"]))
        near = next(case for case in line if tokens[case.id] >= NEAR_BEST * tokens[best.id])
        near_us, best_us = (study.rows[case.id]["plain_us"] for case in (near, best))
        part = 100 * tokens[near.id] / tokens[best.id]
        what = study.label(best, workload=False, without=("batch",))
        rows.append((what, near.params["batch"], near_us, part, best.params["batch"], best_us))
    low, high = (choose(int(each[1]) for each in rows) for choose in (min, max))
    batch = f"{low}" if low == high else f"{low} to {high}, depending on the KV length"
    learned = f"{NEAR_BEST:.0%} of decode's best tokens/s is reached at batch {batch}."
    return _report(
        "serving",
        title,
        learned,
        learned,
        grid("for;batch|d;time (µs)|,.1f;of most (%)|.0f;most at batch|d;time (µs)|,.1f", rows),
        "A batch larger than the one named for your KV length adds to latency, and at most "
        f"{1 / NEAR_BEST - 1:.0%} to throughput: where latency matters, stop there. A model has one such call a "
        "layer, and other work beside it. From plain medians at the study's batches: the true limit lies between two.",
    )


OFF, ON = side("decode", cuda_graph=False), side("decode", cuda_graph=True)


def _waiting(study: Study) -> StudySection:
    """Where the GPU waits for the host, and what a CUDA graph does to that."""
    title = "Launching decode"
    cases = [case for case in study.of("decode") if case.waiting_pct is not None and not case.params.get("cuda_graph")]
    if not cases:
        why = "how long the GPU waits was not recorded" if study.of("decode") else words_of(study.absence("decode"))
        return _report("serving", title, "", absent=why)
    waiting = {case.id: case for case in cases if (case.waiting_pct or 0) >= WAITING}
    twins = [
        ((one, other), one.wall_us / other.wall_us)
        for one, other in study.pairs(OFF, ON)
        if one.wall_us and other.wall_us
    ]
    helped = [value for (one, _), value in twins if value >= WORTH and one.id in waiting]
    learned = (
        f"In {len(waiting)} of {len(cases)} decode cases without a CUDA graph the GPU waits for the host for "
        f"{WAITING:.0f}% of the time or longer."
    )
    if not waiting:
        advice = "The host keeps the GPU busy at all these sizes."
    elif not twins:
        advice = "No pair with and without a CUDA graph says what that gains."
    elif not helped:
        advice = "A CUDA graph made it no faster."
    else:
        advice = (
            f"Capture decode in a CUDA graph there: {count(len(helped), 'size')} gain a factor of {spread(helped)}."
        )
    longest = max((case.wall_us or 0 for case in waiting.values()), default=0.0)
    more = f" These take up to {duration(longest)} an iteration back to back." if waiting else ""
    groups = {
        "the GPU waits so": [each for each in twins if each[0][0].id in waiting],
        "the others": [each for each in twins if each[0][0].id not in waiting],
    }
    table = _factors(study, "cases;pairs|d;host time without / with a graph (median)|.2f;from|.2f;to|.2f;at", groups)
    certain = "Times as the host sees them are one figure a case, on this machine and with an idle CPU: no interval."
    return _report(
        "serving", title, f"{learned} {advice}", f"{learned}{more} {advice}", table if twins else "", certain
    )


def _graph(study: Study) -> Iterator[StudySection]:
    """What a graph costs on the GPU: pads of the plan, and a split that would not have been."""
    ratios = [(pair, ratio) for pair in study.pairs(ON, OFF) if (ratio := study.ratio(*pair)) is not None]
    if not ratios:
        return
    faster, slower, same = (
        sum(ratio.direction is each for _, ratio in ratios) for each in (Direction.LESS, Direction.MORE, Direction.SAME)
    )
    learned = (
        f"On the GPU, decode from a CUDA graph is faster in {faster}, slower in {slower} and no different in "
        f"{same} of {len(ratios)} pairs."
    )
    advice = " Where the GPU does not wait for the host, measure with and without." if slower else ""
    if not any(pair[0].params.get("tensor_cores") for pair, _ in ratios):
        advice += " Decode on tensor cores was not measured with a graph."
    groups: dict[str, list[tuple[Pair, float]]] = {}
    for (one, other), ratio in ratios:
        items, without = one.plan.get("work_items"), other.plan.get("work_items")
        what = "as many work items with and without"
        if one.plan.get("split_kv") and not other.plan.get("split_kv"):
            what = "it splits KV for the graph alone, which adds a merge"
        elif isinstance(items, int) and isinstance(without, int) and items > without:
            what = "the plan pads the work items for the graph"
        groups.setdefault(what, []).append(((one, other), ratio.value))
    table = _factors(study, "plan;pairs|d;time with / without a graph (median)|.2f;from|.2f;to|.2f;at", groups)
    certain = "A graph's launch on the GPU is between the events too, some microseconds that count in small cases."
    yield _report("serving", "What a CUDA graph costs on the GPU", learned, f"{learned}{advice}", table, certain)


def _factors(study: Study, heads: str, groups: dict[str, list[tuple[Pair, float]]]) -> Markdown:
    """A row for each group of pairs: its factors, and where the largest is."""
    rows = []
    for name, items in groups.items():
        if items:
            values = [value for _, value in items]
            largest, _ = max(items, key=lambda item: item[1])
            rows.append((name, len(items), median(values), min(values), max(values), study.short_pair(*largest)))
    return grid(heads, rows)


def _first_calls(jit: JitResults) -> StudySection:
    """What the first call of each kernel waits for."""
    longest = max((call.cold_s for call in jit.calls if call.cold_s), default=0.0)
    if not longest:
        return _report("serving", "First calls", "", absent="no call with an empty cache completed")
    learned = (
        f"The first call of a kernel waits up to {duration(longest * 1e6)} for the compiler, "
        f"{count(len(jit.modules), 'module')} in all: fill the cache before the server takes requests."
    )
    # A statement or a call a line, for people.
    script = "\n".join(jit.warm_up).replace("; ", "\n").replace("), ", "),\n    ")
    warm_up = ("Fill the cache with:", code_block(script, "sh")) if script else ()
    rows = [(code_span(each["label"]), each["cold_s"], each["disk_s"], each["memory_ms"]) for each in call_rows(jit)]
    table = grid("kernel;empty cache (s)|.2f;on disk (s)|.3f;in memory (ms)|.3f", rows)
    built = [(code_span(each.name), each.compile_s, each.bytes / 2**20) for each in jit.modules]
    modules = grid("module;compile + link (s)|.1f;library (MiB)|.1f", built) if built else ""
    body = (learned, table, *sentences(jit)[1:], modules, *warm_up, *map(caution, jit.warnings))
    return _report("serving", "First calls", learned, *body)


# Kernels


def _merge(study: Study) -> StudySection:
    """What the kernel that merges the parts of a split KV costs, in cases that nothing solves faster."""
    title = "Split-K's merge"
    attention = [name for name in LENGTHS if name in study.by_workload]
    seen = [case for case in study.unbeaten if case.workload in attention and case.kernels]
    if not seen:
        return _report("kernels", title, "", absent=f"ncu saw no case of {join_words(attention)}")
    merged = [(share, case) for case in seen if (share := kernel_share(case, MERGE)) > 0]
    merged.sort(key=lambda item: -item[0])
    cases = f"{len(seen)} cases of {join_words(attention)} that no other option solves faster"
    if not merged:
        learned = f"None of {cases} ran a merge kernel: KV was split nowhere."
        return _report("kernels", title, learned, learned)
    most, least = merged[0][0], merged[-1][0]
    learned = (
        f"In {len(merged)} of {cases} split-K adds a merge kernel, which takes {least:.0%} to {most:.0%} of an "
        f"iteration's kernel time (median {median(share for share, _ in merged):.0%})."
    )
    advice = (
        "Split less, merge inside the last block to finish (a counter in the workspace), or launch it programmatically "
        "early."
        if most >= MERGE_WORTH
        else "It is small everywhere: not the place to begin."
    )
    shown = []
    for share, case in (merged[index] for index in sorted({0, len(merged) - 1})):
        times = ", ".join(f"{each.kernel} {duration(each.duration_us or 0)}" for each in case.kernels)
        shown.append(f"{study.label(case)}: {share:.0%} ({times})")
    certain = "By ncu's times, which for kernels of a few microseconds are longer than those in a running stream."
    return _report("kernels", title, learned, f"{learned} {advice}", bullets(shown), certain)


def split_factor(case: CaseResult) -> int | None:
    """Parts that a request's KV was split into, by the plan; 1 where it was not split; None where that is not told."""
    chunk, tokens = case.plan.get("kv_chunk_tokens"), case.params.get(LENGTHS.get(case.workload, ""))
    if case.plan.get("split_kv") and isinstance(chunk, int) and chunk > 0 and isinstance(tokens, int):
        return math.ceil(tokens / chunk)
    return 1 if case.plan.get("split_kv") is False else None


def _plan(study: Study, workload: str) -> Iterator[StudySection]:
    """Split-K as planned, over batch and length; then tiles and balance."""
    length = LENGTHS.get(workload, "")
    planned = [case for case in study.of(workload) if case.plan and length in case.params]
    if not planned:
        return
    lengths = sorted({case.params[length] for case in planned}, key=float)
    table: dict[tuple[str, Value], dict[Value, CaseResult]] = {}
    uneven, split = [], set()
    for case in planned:
        options = study.short(case, without=("batch", length))
        table.setdefault((options, case.params.get("batch", "–")), {})[case.params[length]] = case
        if (split_factor(case) or 1) > 1:
            split.add(options)
        figures = [case.plan.get(name) for name in ("most_work_items_of_a_block", "work_items", "blocks")]
        most, items, blocks = (each if isinstance(each, int) else 0 for each in figures)
        if min(most, items, blocks) > 0:
            uneven.append(most / (items / blocks))

    def shown(case: CaseResult | None) -> str:
        parts, items = (split_factor(case), case.plan.get("work_items", "–")) if case else (None, "")
        if case is None or parts is None or parts <= 1:
            return "–" if parts is None else f"whole, {items} items"
        return f"{parts} x {case.plan['kv_chunk_tokens']:,}, {items} items, {kernel_share(case, MERGE):.0%}"

    rows = [
        (*key, *(shown(of.get(each)) for each in lengths))
        for key, of in table.items()
        if any((split_factor(case) or 1) > 1 for case in of.values())
    ]
    lines = []
    if never := sorted({options for options, _ in table} - split):
        lines.append(f"Never split here: {join_words(never)}.")
    if tiles := sorted({str(case.plan["cta_tile_q"]) for case in planned if "cta_tile_q" in case.plan}):
        lines.append(f"Query tiles of a block: {join_words(tiles)} rows, the query heads of a group packed in.")
    if uneven:
        words = f"FA3's busiest block has {spread(uneven)} times the mean number of work items ({len(uneven)} cases):"
        lines.append(f"{words} the plan balances length, and tiles of a causal mask differ in it.")
    note = (
        "Parts x tokens each, work items a KV head (padded for a CUDA graph), and the merge's part of the kernel time."
    )
    heads = ";".join(["options", "batch|d", *(f"{axis_name(length)} {each:,}" for each in lengths)])
    body = paragraphs(*((note, grid(heads, rows)) if rows else ()), bullets(lines))
    yield StudySection("analysis", workload, f"{workload}: split-K as planned", body)


# The developers' guide


def _guide(study: Study, workload: str, sources: SourceResults | None) -> Iterator[StudySection]:
    """How a kernel is called and drawn, as ``guide.md`` has it, what runs when, and where its code lives."""
    places = {each.name: each for each in sources.places if each.part == "choice"} if sources else {}
    choices = [
        (when, runs, _at(places[says]))
        for when, runs, _, says, *_ in data("guide")["choices"].get(workload, ())
        if says in places
    ]
    parts = {
        **{title: body for (name, title), body in guide_pages().items() if name == workload},
        "which kernel and template run when": grid("when;what runs;decided at", choices) if choices else "",
        "where its code lives": _code(study, workload, sources),
    }
    for title, body in parts.items():
        if body:
            yield StudySection("kernel-dev-guide", workload, f"{workload}: {title}", Markdown(body))


def _at(place: SourcePlace | None) -> Markdown | str:
    return code_span(f"{place.path.rpartition('/')[2]}:{place.line}") if place else "–"


def _code(study: Study, workload: str, sources: SourceResults | None) -> Markdown:
    """The definitions that the kernels of a workload come from, by file, from the Python call down."""
    if sources is None:
        return caution(
            "Where this code lives in the installed library was not recorded (results/sources.json is missing): "
            "fiprof study maps it where the library is installed."
        )
    cautions = []
    measured = str(fact(study.info.environment, "packages", "flashinfer-python") or "")
    if sources.version and measured and sources.version != measured:
        cautions.append(f"These lines are those of {sources.package} {sources.version}; measured was {measured}.")
    names = dict.fromkeys(kernel.kernel for case in study.of(workload) for kernel in case.kernels)
    located = [place for place in sources.places if place.part == "kernel"]
    topics: set[str] = set()
    for name in names:
        its = {place.topic for place in located if place.name == name}
        topics |= {topic for topic in its if TOPICS.get(topic) == workload} or its
    by_file: dict[str, dict[tuple[int, str], str]] = {}
    for place in sources.places:
        if place.topic in topics and place.part != "choice":
            by_file.setdefault(place.path, {})[place.line, place.name] = place.part
    if unknown := [name for name in names if name not in {place.name for place in located}]:
        package = sources.package or "library"
        cautions.append(f"Not found in the installed {package}: {join_words(unknown)}; torch's, or generated.")
    if gone := [f"{item.topic}: {item.part} {item.name}" for item in sources.missing if item.topic in topics]:
        cautions.append(f"Looked for and not there in this version: {'; '.join(gone)}.")
    rows = [
        (code_span(path), Markdown(", ".join(f"{line} {code_span(name)}" for line, name in sorted(parts))))
        for path, parts in by_file.items()
    ]
    library = f"{sources.package} {sources.version}".strip()
    head = f"In {library}, from the Python call down; the line, and what is there:"
    return paragraphs(head, grid("file;lines", rows), *map(caution, cautions))


def _compilation(jit: JitResults | None, sources: SourceResults | None) -> StudySection:
    """How a module comes about, where it lies, and what changes that."""
    places = {each.name: each for each in sources.places if each.topic == JIT_TOPIC} if sources else {}
    jit_guide = data("guide")["jit"]
    found = ((step, what, places.get(at.split()[1].rpartition(".")[2])) for step, what, at in jit_guide["steps"])
    steps = [(step, what, _at(place)) for step, what, place in found]
    variables = [(code_span(name), what) for name, what in jit_guide["variables"].items()]
    first = "The final report has the first calls, and the command that fills the cache before serving." if jit else ""
    body = paragraphs(grid("step;what happens;at", steps), grid("variable;what it does", variables), first)
    return StudySection("kernel-dev-guide", "all", "Just-in-time compilation", body)


def _problems(study: Study) -> StudySection:
    """Each problem, how it shows, what fixes it, and the cases of the study that have it."""

    def has(case: CaseResult, sign: dict[str, str]) -> bool:
        if "kernel" in sign:
            return kernel_share(case, sign["kernel"]) >= MERGE_WORTH
        kernel = main_kernel(case)
        verdict = kernel.verdict if kernel else None
        return verdict is not None and verdict.kind == sign.get("verdict") and sign.get("part") in (None, verdict.part)

    rows = []
    for problem, shows, fix, sign in data("guide")["problems"]:
        cases = [case for case in study.measured if has(case, sign)]
        worst = max(cases, key=lambda case: case.plain.median_us if case.plain else 0.0, default=None)
        here = f"{len(cases)}: {worst.workload} {study.short(worst)}" if worst else "–"
        rows.append((problem, shows, fix, here))
    note = f"The longest case stands with the count; of the merge, cases where it takes {MERGE_WORTH:.0%} or more."
    body = paragraphs(grid("problem;how it shows;fix;cases here", rows), note)
    return StudySection("kernel-dev-guide", "all", "Common problems", body)
