"""What FlashInfer's pack adds to a study's documents: batches, host, graphs, plans, merge, sources, compilation."""

from __future__ import annotations

import ast
import math
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from fiprof.analysis.case_names import Value, axis_name, is_number, label, short, short_pair
from fiprof.analysis.choices import WORTH, Choice
from fiprof.analysis.frames import Column
from fiprof.analysis.ratio import Direction, of_cases
from fiprof.analysis.study import COLUMNS, Pair, Study, absence, kernel_share, main_kernel, pairs, row, side
from fiprof.analysis.thresholds import WAITING
from fiprof.flashinfer.data import data, guide, kernels
from fiprof.flashinfer.jit.report import sentences
from fiprof.flashinfer.results import JIT, SOURCES, JitResults, SourcePlace, SourceResults
from fiprof.flashinfer.source_map import JIT as JIT_TOPIC
from fiprof.flashinfer.source_map import TOPICS
from fiprof.model.results import RESULTS, CaseResult, read
from fiprof.model.wording import worded
from fiprof.reports.markdown_html import (
    Markdown,
    bullets,
    code_block,
    code_span,
    escape_markdown,
    fill,
    grid,
    markdown_table,
    paragraphs,
)
from fiprof.reports.study import StudySection
from fiprof.text import count, duration, join_words, spread

NEAR_BEST = 0.90
"""Part of the best throughput from which a larger batch is said to gain little. fiprof's own choice."""
MERGE_WORTH = 0.10
"""Part of an iteration from which the merge of a split KV is worth a change. fiprof's own choice."""
MERGE: str = data()["merge"]["kernel"]
LENGTHS = {"prefill": "seq_len", "decode": "kv_len"}
"""Workload -> its parameter of the tokens in the KV cache."""
LONG_STATEMENT = 90


def choices() -> list[Choice]:
    """Ways to do the same in FlashInfer: ``choices`` in ``kernels.toml``."""
    return [Choice(**{**table, **{key: side(**table[key]) for key in ("old", "new")}}) for table in data()["choices"]]


def files(study: Study) -> list[tuple[str, str, int | None]]:
    """The results files of this pack: name, what it holds, how many measurements."""
    rows: list[tuple[str, str, int | None]] = []
    if jit := _jit(study):
        calls, modules = count(len(jit.calls), "first call"), count(len(jit.modules), "module")
        rows.append((JIT, f"compilation: {calls}, {modules}", len(jit.calls)))
    if sources := _sources(study):
        rows.append((SOURCES, f"where the code lives in {sources.package} {sources.version}".strip(), None))
    return rows


def study_sections(study: Study) -> Iterator[StudySection]:
    """All of them, in the order in which each document shows them."""
    if "decode" in study.by_workload:
        yield _throughput(study)
        yield from _waiting(study)
        yield from _graph(study)
    yield from _first_calls(study)
    yield from _merge(study)
    yield from _beside(study)
    for workload in study.by_workload:
        yield from _plan(study, workload)
        if workload in kernels():
            yield from _guide(study, workload)
    if study.by_workload.keys() & kernels().keys():
        yield from _compilation(study)
        yield _problems(study)


def _jit(study: Study) -> JitResults | None:
    path = study.folder / RESULTS / JIT
    return read(path, JitResults) if path.is_file() else None


def _sources(study: Study) -> SourceResults | None:
    path = study.folder / RESULTS / SOURCES
    return read(path, SourceResults) if path.is_file() else None


def _absent(place: str, title: str, why: str) -> StudySection:
    """A section of the final report about which nothing can be said."""
    return StudySection("final-report", place, title, Markdown(""), absent=why)


# Serving


def _throughput(study: Study) -> StudySection:
    """From which batch on a larger one gains little, at each KV length, for the fastest options."""
    title = "Batch of decode"
    cases = [case for case in study.of("decode") if case.tokens_per_second and "batch" in case.params]
    if len({case.params["batch"] for case in cases}) < 2:
        why = "only one batch was measured" if cases else "its cases do not say how many tokens they process"
        why = why if study.of("decode") else worded(absence(study, "decode"))
        return _absent("serving", title, why)
    lengths: dict[object, list[CaseResult]] = {}
    for case in cases:
        lengths.setdefault(case.params.get("kv_len"), []).append(case)
    rows: list[tuple[Value, ...]] = []
    nears = []
    for group in lengths.values():
        best = max(group, key=_tokens)
        options = {name: value for name, value in best.params.items() if name != "batch"}
        line = [case for case in group if options.items() <= case.params.items()]
        line.sort(key=lambda case: float(case.params["batch"]))
        near = next(case for case in line if _tokens(case) >= NEAR_BEST * _tokens(best))
        nears.append(int(near.params["batch"]))
        times = (case.plain.median_us if case.plain else 0.0 for case in (near, best))
        near_us, best_us = times
        what = label(study, best, workload=False, without=("batch",))
        part = 100 * _tokens(near) / _tokens(best)
        rows.append((what, near.params["batch"], near_us, part, best.params["batch"], best_us))
    low, high = min(nears), max(nears)
    batch = f"{low}" if low == high else f"{low} to {high}, depending on the KV length"
    learned = f"{NEAR_BEST:.0%} of decode's best tokens/s is reached at batch {batch}."
    advice = (
        "A batch larger than the one named for your KV length adds to latency, and at most "
        f"{1 / NEAR_BEST - 1:.0%} to throughput: where latency matters, stop there. A model has one such call a "
        "layer, and other work beside it. From plain medians at the study's batches: the true limit lies between two."
    )
    table = grid("for;batch|d;time (µs)|,.1f;of most (%)|.0f;most at batch|d;time (µs)|,.1f", rows)
    return StudySection("final-report", "serving", title, paragraphs(learned, table, advice), learned)


def _tokens(case: CaseResult) -> float:
    return case.tokens_per_second or 0.0


OFF, ON = side("decode", cuda_graph=False), side("decode", cuda_graph=True)


def _waiting(study: Study) -> Iterator[StudySection]:
    """Where the GPU waits for the host, and what a CUDA graph does to that."""
    title = "Launching decode"
    cases = [case for case in study.of("decode") if case.waiting_pct is not None and not case.params.get("cuda_graph")]
    if not cases:
        recorded = "how long the GPU waits was not recorded"
        why = recorded if study.of("decode") else worded(absence(study, "decode"))
        yield _absent("serving", title, why)
        return
    waiting = [case for case in cases if (case.waiting_pct or 0) >= WAITING.value]
    twins = [
        (pair, pair[0].wall_us / pair[1].wall_us)
        for pair in pairs(study, OFF, ON)
        if pair[0].wall_us and pair[1].wall_us
    ]
    ids = {case.id for case in waiting}
    helped = [value for (one, _), value in twins if value >= WORTH and one.id in ids]
    learned = (
        f"In {len(waiting)} of {len(cases)} decode cases without a CUDA graph the GPU waits for the host for "
        f"{WAITING.value:.0f}% of the time or longer."
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
    groups = [
        ("the GPU waits so", [each for each in twins if each[0][0].id in ids]),
        ("the others", [each for each in twins if each[0][0].id not in ids]),
    ]
    table = _factors(study, "cases;pairs|d;host time without / with a graph (median)|.2f;from|.2f;to|.2f;at", groups)
    longest = max((case.wall_us or 0 for case in waiting), default=0.0)
    more = f" These take up to {duration(longest)} an iteration back to back." if waiting else ""
    sure = "Times as the host sees them are one figure a case, on this machine and with an idle CPU: no interval."
    body = paragraphs(f"{learned}{more} {advice}", table if twins else "", sure)
    yield StudySection("final-report", "serving", title, body, f"{learned} {advice}")


def _graph(study: Study) -> Iterator[StudySection]:
    """What a graph costs on the GPU: pads of the plan, and a split that would not have been."""
    ratios = [(pair, ratio) for pair in pairs(study, ON, OFF) if (ratio := of_cases(*pair)) is not None]
    if not ratios:
        return
    counted = [
        sum(ratio.direction is each for _, ratio in ratios) for each in (Direction.LESS, Direction.MORE, Direction.SAME)
    ]
    learned = (
        f"On the GPU, decode from a CUDA graph is faster in {counted[0]}, slower in {counted[1]} and no different in "
        f"{counted[2]} of {len(ratios)} pairs."
    )
    advice = "Where the GPU does not wait for the host, measure with and without." if counted[1] else ""
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
    table = _factors(study, "plan;pairs|d;time with / without a graph (median)|.2f;from|.2f;to|.2f;at", groups.items())
    sure = "A graph's launch on the GPU is between the events too, some microseconds that count in small cases."
    body = paragraphs(f"{learned} {advice}", table, sure)
    yield StudySection("final-report", "serving", "What a CUDA graph costs on the GPU", body, learned)


def _factors(study: Study, heads: str, groups: Iterable[tuple[str, list[tuple[Pair, float]]]]) -> Markdown:
    """A row for each group of pairs: its factors, and where the largest is."""
    rows = []
    for name, items in groups:
        if items:
            values = [value for _, value in items]
            largest, _ = max(items, key=lambda item: item[1])
            figures = (len(items), median(values), min(values), max(values))
            rows.append((name, *figures, short_pair(study, *largest)))
    return grid(heads, rows)


def _first_calls(study: Study) -> Iterator[StudySection]:
    """What the first call of each kernel waits for."""
    results = _jit(study)
    if results is None or not results.calls:
        return
    calls = sorted((call for call in results.calls if call.cold_s), key=lambda call: -(call.cold_s or 0))
    if not calls:
        why = "no call with an empty cache completed"
        yield _absent("serving", "First calls", why)
        return
    learned = (
        f"The first call of a kernel waits up to {duration((calls[0].cold_s or 0) * 1e6)} for the compiler, "
        f"{count(len(results.modules), 'module')} in all: fill the cache before the server takes requests."
    )
    body = paragraphs(
        learned,
        _calls_table(results),
        *map(escape_markdown, sentences(results)[1:]),
        _warm_up(results),
        *_warnings(results),
    )
    yield StudySection("final-report", "serving", "First calls", body, learned)


def _warnings(results: JitResults) -> list[Markdown]:
    return [Markdown(f"> {escape_markdown(each)}") for each in results.warnings]


def _calls_table(results: JitResults) -> Markdown:
    rows = [
        (code_span(call.case.partition("[")[0]), _differing(call.case, results), call.cold_s, call.disk_s,
         None if call.memory_s is None else call.memory_s * 1e3)
        for call in results.calls
    ]  # fmt: skip
    return grid("kernel;built for;empty cache (s)|.2f;on disk (s)|.3f;in memory (ms)|.3f", rows)


def _differing(case: str, results: JitResults) -> str:
    """The parameters that tell a call from the others of its workload."""
    name, _, inside = case.rstrip("]").partition("[")
    others = [set(each.case.rstrip("]").partition("[")[2].split(",")) for each in results.calls if each.case != case
              and each.case.startswith(f"{name}[")]  # fmt: skip
    return ", ".join(each for each in inside.split(",") if others and not any(each in other for other in others))


def _warm_up(results: JitResults) -> Markdown:
    """The commands that fill the cache, as a script that people can read."""
    if not results.warm_up:
        return Markdown("")
    return paragraphs("Fill the cache with:", code_block("\n".join(map(readable, results.warm_up)), "sh"))


def readable(command: str) -> str:
    """A ``python -c`` with a statement a line, and an element a line where a list is long; others as they are."""
    words = shlex.split(command)
    try:
        statements = ast.parse(words[2]).body if len(words) == 3 and words[1] == "-c" else []
    except SyntaxError:
        statements = []
    if not statements:
        return command
    lines = []
    for statement in statements:
        text = ast.unparse(statement)
        if len(text) > LONG_STATEMENT:
            for found in (node for node in ast.walk(statement) if isinstance(node, ast.List)):
                items = [ast.unparse(item) for item in found.elts]
                lists = ("\n".join(textwrap.wrap(item, LONG_STATEMENT, subsequent_indent="        ")) for item in items)
                text = text.replace(", ".join(items), "\n" + "".join(f"    {item},\n" for item in lists))
        lines.append(text)
    return "\n".join([f"{shlex.quote(words[0])} - <<'END'", *lines, "END"])


# Kernels


def _merge(study: Study) -> Iterator[StudySection]:
    """What the kernel that merges the parts of a split KV costs, in cases that nothing solves faster."""
    title = "Split-K's merge"
    attention = [name for name in LENGTHS if name in study.by_workload]
    seen = [case for case in study.unbeaten if case.workload in attention and case.kernels]
    if not attention:
        return
    names = join_words(attention)
    if not seen:
        why = f"ncu saw no case of {names}"
        yield _absent("kernels", title, why)
        return
    merged = [(case, share) for case in seen if (share := kernel_share(case, MERGE)) > 0]
    merged.sort(key=lambda item: -item[1])
    cases = f"{len(seen)} cases of {names} that no other option solves faster"
    if not merged:
        learned = f"None of {cases} ran a merge kernel: KV was split nowhere."
        yield StudySection("final-report", "kernels", title, Markdown(learned), learned)
        return
    most, least = merged[0][1], merged[-1][1]
    learned = (
        f"In {len(merged)} of {cases} split-K adds a merge kernel, which takes {least:.0%} to {most:.0%} of an "
        f"iteration's kernel time (median {median(share for _, share in merged):.0%})."
    )
    advice = (
        "Split less, merge inside the last block to finish (a counter in the workspace), or launch it programmatically "
        "early."
        if most >= MERGE_WORTH
        else "It is small everywhere: not the place to begin."
    )
    shown = []
    for case, share in (merged[i] for i in sorted({0, len(merged) - 1})):
        times = ", ".join(f"{each.kernel} {duration(each.duration_us or 0)}" for each in case.kernels)
        shown.append(f"{label(study, case)}: {share:.0%} ({times})")
    sure = "By ncu's times, which for kernels of a few microseconds are longer than those in a running stream."
    body = paragraphs(f"{learned} {advice}", bullets(shown), sure)
    yield StudySection("final-report", "kernels", title, body, learned)


def split_factor(case: CaseResult) -> int | None:
    """Parts that a request's KV was split into, by the plan; 1 where it was not split; None where that is not told."""
    split, chunk = case.plan.get("split_kv"), case.plan.get("kv_chunk_tokens")
    tokens = case.params.get(LENGTHS.get(case.workload, ""))
    if split is False:
        return 1
    known = split and isinstance(chunk, int) and chunk > 0 and isinstance(tokens, int)
    return math.ceil(tokens / chunk) if known else None  # type: ignore[operator]


def imbalance(case: CaseResult) -> float | None:
    """Work items of the block that has most over the mean of all blocks; None where the plan does not tell."""
    most, items, blocks = (case.plan.get(name) for name in ("most_work_items_of_a_block", "work_items", "blocks"))
    known = all(isinstance(each, int) and each > 0 for each in (most, items, blocks))
    return most / (items / blocks) if known else None  # type: ignore[operator]


def _plan(study: Study, workload: str) -> Iterator[StudySection]:
    """Split-K as planned, over batch and length; then tiles and balance."""
    length = LENGTHS.get(workload, "")
    planned = [case for case in study.of(workload) if case.plan and length in case.params]
    if not planned:
        return

    def options(case: CaseResult) -> str:
        return short(study, case, without=("batch", length))

    lengths = sorted({case.params[length] for case in planned}, key=float)
    table: dict[tuple[str, Value], dict[Value, CaseResult]] = {}
    for case in planned:
        table.setdefault((options(case), case.params.get("batch", "–")), {})[case.params[length]] = case
    rows = [
        (*key, *(_split(of[each]) if each in of else "–" for each in lengths))
        for key, of in table.items()
        if any((split_factor(case) or 1) > 1 for case in of.values())
    ]
    heads = ";".join(["options", "batch|d", *(f"{axis_name(length)} {each:,}" for each in lengths)])
    note = (
        "Parts x tokens each, work items a KV head (padded for a CUDA graph), and the merge's part of the kernel time."
    )
    lines = []
    split = {options(case) for case in planned if (split_factor(case) or 1) > 1}
    if never := sorted({options(case) for case in planned} - split):
        lines.append(f"Never split here: {join_words(never)}.")
    if tiles := sorted({case.plan["cta_tile_q"] for case in planned if "cta_tile_q" in case.plan}, key=str):
        lines.append(
            f"Query tiles of a block: {join_words(list(map(str, tiles)))} rows, the query heads of a group packed in."
        )
    if uneven := [found for case in planned if (found := imbalance(case)) is not None]:
        words = f"FA3's busiest block has {spread(uneven)} times the mean number of work items ({len(uneven)} cases):"
        lines.append(f"{words} the plan balances length, and tiles of a causal mask differ in it.")
    body = paragraphs(*((note, grid(heads, rows)) if rows else ()), bullets(lines))
    yield StudySection("analysis", workload, f"{workload}: split-K as planned", body)


def _split(case: CaseResult) -> str:
    parts, items = split_factor(case), case.plan.get("work_items", "–")
    if parts is None or parts <= 1:
        return "–" if parts is None else f"whole, {items} items"
    return f"{parts} x {case.plan['kv_chunk_tokens']:,}, {items} items, {kernel_share(case, MERGE):.0%}"


def _beside(study: Study) -> Iterator[StudySection]:
    """Prefill and decode at the same batch, length and heads, each solved the fastest way: the least and most work."""
    sides: dict[tuple[Value | None, ...], dict[str, CaseResult]] = {}
    for case in study.fastest:
        if (length := LENGTHS.get(case.workload)) and is_number(case.params.get(length)):
            key = (case.params.get("batch"), case.params[length], case.params.get("kv_heads"))
            sides.setdefault(key, {})[case.workload] = case
    both = sorted((each for each in sides.values() if len(each) == 2), key=lambda e: sum(c.flops for c in e.values()))
    if both:
        keys = ("workload", "case", "intensity", "tensor_pct", "dram_pct", "roof_pct", "bound")
        cases = [both[i][name] for i in sorted({0, len(both) - 1}) for name in LENGTHS]
        columns = [column for key in keys for column in COLUMNS if column.key == key]
        columns.append(Column("operation", "operation"))
        rows = [[*(row(study, case)[key] for key in keys), _operation(case)] for case in cases]
        table = markdown_table(columns, rows)
        body = paragraphs("Prefill beside decode, same batch and length, the least and the most work:", table)
        yield StudySection("analysis", "beside", "Prefill beside decode", body)


def _operation(case: CaseResult) -> str:
    """``1 query a head by 8,192 keys: vector x matrix``."""
    return str(kernels()[case.workload]["operation"]).format(**case.params)


# The developers' guide


def _guide(study: Study, workload: str) -> Iterator[StudySection]:
    """How a kernel is called and drawn, what runs when, and where its code lives."""
    found = _sources(study)
    names = list(dict.fromkeys(kernel.kernel for case in study.of(workload) for kernel in case.kernels))
    places = {each.name: each for each in found.places if each.part == "choice"} if found else {}
    choices = [
        (each["when"], each["runs"], _at(places[each["says"]]))
        for each in guide("choices").get(workload, ())
        if each["says"] in places
    ]
    drawings = [
        part
        for each in guide("diagrams").get(workload, ())
        for part in (f"**{each['title']}**", code_block(each["text"], "text"), each["caption"])
    ]
    call = guide("calls").get(workload)
    parts = {
        "how it is called": code_block(call, "python") if call else "",
        "drawn": paragraphs(*drawings),
        "which kernel and template run when": grid("when;what runs;decided at", choices) if choices else "",
        "where its code lives": _code(study, workload, found, names),
    }
    for title, body in parts.items():
        if body:
            yield StudySection("kernel-dev-guide", workload, f"{workload}: {title}", Markdown(body))


def _at(place: SourcePlace) -> Markdown:
    return code_span(f"{place.path.rpartition('/')[2]}:{place.line}")


def _code(study: Study, workload: str, found: SourceResults | None, names: Sequence[str]) -> Markdown:
    """The definitions that the kernels of a workload come from, by file, from the Python call down."""
    if found is None:
        return Markdown(
            "> Where this code lives in the installed library was not recorded (results/sources.json is missing): "
            "fiprof study maps it where the library is installed."
        )
    cautions, version = [], f"{found.package} {found.version}".strip()
    measured = str((study.info.environment.get("packages") or {}).get("flashinfer-python") or "")
    if found.version and measured and found.version != measured:
        words = "> These lines are those of {package} {version}; measured was {measured}."
        cautions.append(fill(words, package=found.package, version=found.version, measured=measured))
    mine = {topic for topic, (owner, _) in TOPICS.items() if owner == workload}
    topics: set[str] = set()
    for name in names:
        its = {place.topic for place in found.places if place.part == "kernel" and place.name == name}
        topics |= its & mine or its
    by_file: dict[str, dict[tuple[int, str], str]] = {}
    for place in found.places:
        if place.topic in topics and place.part != "choice":
            by_file.setdefault(place.path, {})[place.line, place.name] = place.part
    located = {place.name for place in found.places if place.part == "kernel"}
    if unknown := [name for name in names if name not in located]:
        words = "> Not found in the installed {package}: {names}; torch's, or generated."
        cautions.append(fill(words, package=found.package or "library", names=join_words(unknown)))
    if gone := [f"{item.topic}: {item.part} {item.name}" for item in found.missing if item.topic in topics]:
        cautions.append(fill("> Looked for and not there in this version: {what}.", what="; ".join(gone)))
    rows = [
        (code_span(path), Markdown(", ".join(f"{line} {code_span(name)}" for line, name in sorted(parts))))
        for path, parts in by_file.items()
    ]
    lead = fill("In {what}, from the Python call down; the line, and what is there:", what=version)
    return paragraphs(lead, grid("file;lines", rows), *cautions)


def _compilation(study: Study) -> Iterator[StudySection]:
    """How a module comes about, where it lies, what changes that, and what that costs here."""
    results, found = _jit(study), _sources(study)
    places = {each.name: each for each in found.places if each.topic == JIT_TOPIC} if found else {}
    steps = [
        (each["step"], each["what"], _at(place) if (place := places.get(each["at"].rpartition(".")[2])) else "–")
        for each in guide("jit")["steps"]
    ]
    variables = [(code_span(name), what) for name, what in guide("jit")["variables"].items()]
    warm_up = "The final report has the command that fills the cache before serving." if results else ""
    body = paragraphs(grid("step;what happens;at", steps), grid("variable;what it does", variables), warm_up)
    yield StudySection("kernel-dev-guide", "all", "Just-in-time compilation", body)
    if results is not None:
        modules = [(code_span(each.name), each.compile_s, each.bytes / 2**20) for each in results.modules]
        table = grid("module;compile + link (s)|.1f;library (MiB)|.1f", modules) if modules else ""
        body = paragraphs(_calls_table(results), bullets(sentences(results)), table, *_warnings(results))
        yield StudySection("analysis", "all", "Just-in-time compilation", body)


def _problems(study: Study) -> StudySection:
    """Each problem, how it shows, what fixes it, and the cases of the study that have it."""
    rows = []
    for each in guide("problems"):
        cases = [case for case in study.measured if _has(case, each)]
        worst = max(cases, key=lambda case: case.plain.median_us if case.plain else 0.0, default=None)
        here = f"{len(cases)}: {worst.workload} {short(study, worst)}" if worst else "–"
        rows.append((each["problem"], each["shows"], each["fix"], here))
    note = f"The longest case stands with the count; of the merge, cases where it takes {MERGE_WORTH:.0%} or more."
    body = paragraphs(grid("problem;how it shows;fix;cases here", rows), note)
    return StudySection("kernel-dev-guide", "all", "Common problems", body)


def _has(case: CaseResult, problem: dict[str, str]) -> bool:
    if "kernel" in problem:
        return kernel_share(case, problem["kernel"]) >= MERGE_WORTH
    kernel = main_kernel(case)
    verdict = kernel.verdict if kernel else None
    part = problem.get("part", "")
    return verdict is not None and verdict.kind == problem.get("verdict") and (not part or verdict.part == part)
