"""Requests of a server, by its ranges and marks: when each arrived, was admitted, had its tokens and ended.

A step's range describes its batch in numbers (:func:`says`); marks (``r3 first token``) or ranges (``request 3``) say
when a request came and went. Its tokens in between follow from the steps that it was in.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from fiprof.analysis.comm import Delay
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.trace import Marks
from fiprof.model.arrays import Floats
from fiprof.model.finding import Finding, Wording, finding
from fiprof.model.spans import split

Said = dict[str, int | tuple[str, ...]]  # word of a range's text -> its number, or the requests that follow it
Rate = tuple[float, Finding]  # GB/s, and its source
_ID = re.compile(r"\b(?:r|req|request|seq|rid)[ _#-]?(\d+)\b", re.IGNORECASE)
_REQUEST = re.compile(r"(?:request|req|generate)\b", re.IGNORECASE)
"""Beginning of the name of a range that is a request."""
_PREFILL = ("prefill", "prefill_tokens", "context_tokens", "ctx_tokens", "ctx_tkns", "extend", "context", "ctx_reqs")
_DECODE = ("decode", "decode_requests", "generation", "gen_reqs", "decodes")
"""Words in a step's range for the tokens of prompts, and for the requests that get their next token."""
_VERBS = {
    "arrived": re.compile("arriv|receiv|queued|submit", re.IGNORECASE),
    "admitted": re.compile("admit|schedul|start", re.IGNORECASE),
    "preempted": re.compile("preempt|evict", re.IGNORECASE),
    "first": re.compile("first token", re.IGNORECASE),
    "ended": re.compile("finish|done|complet|abort|end", re.IGNORECASE),
}
FOLLOWED = 0.98  # smallest share of steps in which as many requests decode as the step says, for tokens to be shown
FEW_STEPS = 5  # of one name, from which on a usual time is known
DISTURBS = 1.05  # smallest ratio of a step with a prefill to one that only decodes, to be named
TWICE, CHUNKS = 2.0, ": who decodes waits less where prompts are computed in smaller chunks."

REQUESTS = columns("requests")
"""One request."""


class StepKind(Wording):
    """What a step of a server does."""

    PREFILL = "prefill", "prefill"
    DECODE = "decode", "decode"
    MIXED = "mixed", "prefill and decode"
    OTHER = "other", "other"


_KINDS = {StepKind.PREFILL: ("prefill", "extend"), StepKind.DECODE: ("decode", "generat")}


@dataclass
class ServerStep:
    """A step of a program, of a server's among others; ns since the trace began."""

    text: str  # of its range, empty for none
    begin: int
    end: int  # when host and GPU have done it
    said: Said = field(default_factory=dict)  # numbers of its batch
    busy: float = 0.0  # time in which the GPU worked
    since: int = 0  # its begin, or the end of the step before
    place: int = 0  # position among all
    group: str = ""  # the name of steps like it
    repeats: bool = False
    pace: int = 0  # how often those like it have begun to take another time
    row: Row = field(default_factory=dict)  # of STEPS
    does: Floats | None = None  # ns of each of DOES of the launching thread, of steps that are rare
    inside: Finding | None = None  # where it spent most time, of steps that come once
    slow: Finding | None = None
    late: Delay | None = None  # of the rank that others wait for most
    events: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.text or self.group

    @property
    def head(self) -> str:
        """Its name without the details behind a colon."""
        return self.name.partition(": ")[0]

    @property
    def ms(self) -> float:
        return (self.end - self.since) / 1e6

    @cached_property
    def prefill(self) -> int:
        """Tokens of prompts in it (requests, where it says only those); 0 where it does not say."""
        return _number(self.said, _PREFILL)

    @cached_property
    def decode(self) -> int:
        """Requests that get their next token in it."""
        return _number(self.said, _DECODE)

    @cached_property
    def kind(self) -> StepKind:
        """Its kind by the numbers of its batch, else by its name."""
        if self.said and self.prefill and self.decode:
            return StepKind.MIXED
        if self.said and (self.prefill or self.decode):
            return StepKind.PREFILL if self.prefill else StepKind.DECODE
        head = self.text.partition(": ")[0].lower()
        return next((kind for kind, words in _KINDS.items() if any(word in head for word in words)), StepKind.OTHER)


@dataclass
class Request:
    """A request; ns since the trace began, None where the trace does not say."""

    id: str
    arrived: int | None = None
    admitted: int | None = None
    admitted_in: str = ""
    first: int | None = None
    ended: int | None = None
    prompt: int | None = None
    output: int | None = None
    preempted: list[int] = field(default_factory=list)  # how many tokens it had, each time
    tokens: list[tuple[int, str]] = field(default_factory=list)  # when it got each, and the step's name

    @cached_property
    def row(self) -> Row:
        """A row of REQUESTS, once it has all of its tokens."""
        times, steps = [ns for ns, _ in self.tokens], [name for _, name in self.tokens]
        first = times[0] if self.first is None and times and self.admitted is not None else self.first
        whole = times and (self.output is None or len(times) >= self.output)
        ended = times[-1] if self.ended is None and whole else self.ended
        apart: dict[str, tuple[Any, Any]] = {
            "arrived_ms": (0, self.arrived), "admitted_ms": (0, self.admitted), "first_token_ms": (0, first),
            "queued_ms": (self.arrived, self.admitted), "prefill_ms": (self.admitted, first),
            "ttft_ms": (self.arrived, first), "ended_ms": (0, ended), "took_ms": (self.arrived, ended),
        }  # fmt: skip
        row: Row = {key: None if None in each else (each[1] - each[0]) / 1e6 for key, each in apart.items()}
        gaps = (np.diff(times) / 1e6).tolist()
        slowest = max(zip(gaps, steps[1:], strict=False), key=itemgetter(0), default=(None, None))
        return row | {
            "request": self.id, "admitted_in": self.admitted_in, "prompt": self.prompt, "tokens": len(times) or None,
            "tokens_per_s": 1e3 * len(times) / row["took_ms"] if times and row["took_ms"] else None,
            "preempted": len(self.preempted), "token_ms": [ns / 1e6 for ns in times],
            "slowest_ms": slowest[0], "slowest_in": slowest[1],
            **percentiles(gaps, itl_median_ms=50, itl_p90_ms=90, itl_p99_ms=99),
        }  # fmt: skip


def percentiles(of: Any, **names: int) -> Row:
    """Percentiles of some values. names: name -> which percentile. None for each where there are no values."""
    return {name: float(np.percentile(of, each)) if len(of) else None for name, each in names.items()}


def _number(said: Said, words: Sequence[str]) -> int:
    present = () if said.keys().isdisjoint(words) else words
    return next((value for word in present if isinstance(value := said.get(word), int)), 0)


@lru_cache(1 << 14)
def says(text: str) -> Said:
    """The numbers in the text of a range or mark, by word.

    ``step 20: admit r3, prefill 512 tokens, pages 31/112, queue 2``: admit, prefill, pages, of_pages, queue;
    ``execute_context_1(120)_generation_3(3)`` (vLLM): context, context_tokens, generation, generation_tokens;
    ``_forward_step 7: 1 ctx reqs, 120 ctx tokens`` (TensorRT-LLM): ctx_reqs, ctx_tokens; ``[bs=3 toks=120]``: bs, toks.
    """
    counts: Said = {}
    for word, count, tokens in re.findall(r"([A-Za-z]+)_(\d{1,18})\((?:sq)?(\d{1,18})", text):
        counts |= {word: int(count), f"{word}_tokens": int(tokens)}
    counts |= {word: int(value) for word, value in re.findall(r"(\w+)=(\d{1,18})\b", text)}
    for piece in text.partition(": ")[2].split(", "):
        if ids := re.fullmatch(r"([A-Za-z_]+)((?: \w*\d+)+)", piece) if _ID.search(piece) else None:
            counts[ids[1]] = tuple(ids[2].split())
        elif one := re.match(r"([A-Za-z_]+) (\d{1,18})(?:/(\d{1,18}))?\b(?!\.)", piece):
            counts[one[1]] = int(one[2])
            if one[3]:
                counts[f"of_{one[1]}"] = int(one[3])
        elif counted := re.fullmatch(r"(\d{1,18}) ([A-Za-z][A-Za-z_ ]*)", piece):
            counts["_".join(counted[2].split())] = int(counted[1])
    return counts


def short_name(name: str) -> str:
    """A step's name without the numbers of its batch."""
    return name.partition(": ")[0] if says(name) else name


def _of_ranges(ranges: Marks) -> Iterator[Request]:
    """Each range that is a request, with the ranges directly inside it as its steps."""
    named = np.array([bool(_REQUEST.match(text or "")) for text in ranges.texts], bool)[ranges.name]
    chosen = named & ranges.own & (ranges.ends >= 0) & (ranges.ends > ranges.starts)
    inside = np.flatnonzero(np.append(chosen, False)[ranges.parents] & ranges.own)
    steps = {row: inside[rows].tolist() for row, rows in split(ranges.parents[inside])}
    for number, row in enumerate(np.flatnonzero(chosen).tolist()):
        text, begin = ranges.texts[ranges.name[row]] or "", int(ranges.starts[row])
        inner = [
            ServerStep(ranges.texts[ranges.name[each]] or "", int(ranges.starts[each]), int(ranges.ends[each]))
            for each in steps.get(row, ())
        ]
        prefills, decodes = ([each for each in inner if each.kind is kind] for kind in _KINDS)
        mark = _ID.search(text)
        request = Request(mark[1] if mark else str(number), begin, begin, ended=int(ranges.ends[row]))
        request.tokens = [(each.end, each.name) for each in (*prefills[-1:], *decodes)]
        request.prompt = _number(says(text), ("prompt",)) or None
        yield request


def requests(ranges: Marks, steps: Sequence[ServerStep]) -> list[Request]:
    """The requests by arrival: those that marks or steps name, with their tokens by following from step to step which
    requests decode and which prompts are computed, first come, first served; else the ranges that are requests.

    steps: those of the thread that launches, by begin.
    """
    by_id: dict[str, Request] = {}
    mark_rows = np.flatnonzero(ranges.mark)
    for row in mark_rows[np.argsort(ranges.starts[mark_rows], kind="stable")].tolist():
        text = ranges.texts[ranges.name[row]] or ""
        head = text.partition(": ")[0]
        verb, mark = next((verb for verb, words in _VERBS.items() if words.search(head)), None), _ID.search(head)
        if verb and mark:
            request = by_id.setdefault(mark[1], Request(mark[1]))
            if verb != "preempted" and getattr(request, verb) is None:
                setattr(request, verb, int(ranges.starts[row]))
            for word in says(text).keys() & {"prompt", "output"}:
                setattr(request, word, says(text)[word])
    missing: dict[str, int] = {}  # request whose prompt is computed -> its tokens that are left, by admission
    # Requests from before the trace decode from the start: those that end in it, and others that do not (unseen).
    listed = {name for step in steps for name in _ids(step.said, "admitted")}
    decoding = {
        each.id: each
        for each in by_id.values()
        if each.ended is not None and each.arrived is each.first is each.admitted is None and each.id not in listed
    }
    first_told = next((step for step in steps if step.said.keys() & set(_DECODE)), None)
    unseen = max(first_told.decode - len(decoding), 0) if first_told and first_told is steps[0] else 0
    agree = compared = 0
    begins = [*(step.begin for step in steps[1:]), np.iinfo(np.int64).max]
    for step, until in zip(steps, begins, strict=False):
        for name in _ids(step.said, "preempted"):
            request = by_id.setdefault(name, Request(name))
            request.preempted.append(len(request.tokens))
            decoding.pop(name, None)
            missing.pop(name, None)
        for request in decoding.values():
            request.tokens.append((step.end, step.name))
        if step.said.keys() & set(_DECODE):
            compared, agree = compared + 1, agree + (len(decoding) + unseen == step.decode)
        for name in _ids(step.said, "admitted"):
            request = by_id.setdefault(name, Request(name))
            if request.admitted is None:
                request.admitted, request.admitted_in = step.begin, step.head
            missing[name] = (request.prompt or 0) + len(request.tokens)
        unassigned = step.prefill
        for name, needed in list(missing.items()):
            request, taken = by_id[name], min(unassigned, needed)
            unassigned, missing[name] = unassigned - taken, needed - taken
            has_first = request.first is not None and request.first < until
            if (missing[name] == 0) if request.prompt is not None else has_first:
                request.tokens.append((step.end, step.name))
                decoding[name] = request
                del missing[name]
        for each in list(decoding.values()):
            if (each.ended is not None and each.ended < until) or len(each.tokens) == each.output:
                del decoding[each.id]
    if agree < FOLLOWED * compared or not compared:
        for request in by_id.values():
            request.tokens.clear()
    return sorted(by_id.values(), key=lambda of: (of.arrived or of.admitted or 0, of.id)) or [*_of_ranges(ranges)]


def _ids(said: Said, verb: str) -> list[str]:
    """The requests that a step says it admits or preempts. verb: of _VERBS."""
    listed = (value for word, value in said.items() if isinstance(value, tuple) and _VERBS[verb].search(word))
    return [mark[1] for value in listed for each in value if (mark := _ID.search(each))]


def kv_lengths(served_requests: Sequence[Request], steps: Sequence[ServerStep]) -> dict[str, int]:
    """Step -> tokens in the KV cache of the requests that get a token in it; only steps in which all of these are known
    (those from before the trace are not)."""
    lengths, decoding = Counter[str](), Counter[str]()
    for one in served_requests:
        for number, (_, step) in enumerate(one.tokens):
            lengths[step] += (one.prompt or 0) + number
            decoding[step] += number > 0 and one.admitted is not None
    unknown = {step.name for step in steps if decoding[step.name] < step.decode}
    return {step: tokens for step, tokens in lengths.items() if step not in unknown}


def served(
    served_requests: Sequence[Request],
    steps: Sequence[ServerStep],
    lengths: Mapping[str, int],
    kv_bytes: int,
    rate: Rate | None,
) -> list[Finding]:
    """Findings about the requests: their latencies, the longest waits for a token, how much longer a step takes with a
    prefill, and what a token in the KV cache costs. lengths: :func:`kv_lengths`. kv_bytes: of a token in the cache, 0
    where that is not known. rate: of DRAM."""
    findings = list[Finding]()
    rows = [each.row for each in served_requests]
    firsts, queued, arrived, ended = (
        [row[key] for row in rows if row[key] is not None] for key in ("ttft_ms", "queued_ms", "arrived_ms", "ended_ms")
    )
    # Between two tokens: ms, the request, and the number of the later one.
    pairs = ((each, n, pair) for each in served_requests for n, pair in enumerate(pairwise(each.tokens), 1))
    gaps = [((after - before) / 1e6, each, n) for each, n, ((before, _), (after, _)) in pairs]
    gaps.sort(key=lambda gap: -gap[0])
    if firsts:
        words = "{count:request|requests}: TTFT {ttft_ms:,.1f} ms (median; p90 {ttft_p90_ms:,.1f}), "
        words += "queued {queued_ms:,.1f} ms (median; at most {queued_most_ms:,.1f})"
        values: Row = {"count": len(served_requests)} | percentiles(firsts, ttft_ms=50, ttft_p90_ms=90)
        values |= percentiles(queued or [0.0], queued_ms=50, queued_most_ms=100)
        if gaps:
            words += "; ITL {itl_ms:,.2f} ms (median; p90 {itl_p90_ms:,.2f}, p99 {itl_p99_ms:,.2f})"
            values |= percentiles([ms for ms, _, _ in gaps], itl_ms=50, itl_p90_ms=90, itl_p99_ms=99)
            tokens, took = sum(len(each.tokens) for each in served_requests), max(ended) - min(arrived)
            if len(arrived) == len(served_requests):  # of those from before the trace not all tokens are known
                words += "; {tokens_per_s:,.0f} tokens/s"
                values["tokens_per_s"] = 1e3 * tokens / took if took else 0.0
        findings.append(finding("served", words + ".", **values))
    by_name = {step.name: step for step in steps}
    late: dict[str, Finding] = {}
    for ms, who, number in gaps[: max(len(gaps) // 100, 1)] if len(gaps) >= FEW_STEPS else ():
        step = by_name.get(name := who.tokens[number][1])
        why = "preempted before" if number in who.preempted else ""
        if step and not why:
            why = "a slow step" if step.slow else "with a prefill" if step.kind is StepKind.MIXED else ""
        words = "{ms:,.1f} ms until {step} (r{request}" + (", {why})" if why else ")")
        values = {"ms": ms, "step": name.partition(": ")[0], "request": who.id, "why": why}
        late.setdefault(name, finding("late_token", words, **values))
    if late:
        findings.append(finding("slowest_tokens", "The longest waits for a token: {late}.", late=tuple(late.values())))
    alone, mixed = (
        [(each.end - each.begin) / 1e6 for each in steps if each.kind is kind and not each.slow]
        for kind in (StepKind.DECODE, StepKind.MIXED)
    )
    alone_ms, mixed_ms = (float(np.median(each)) if len(each) >= FEW_STEPS else 0.0 for each in (alone, mixed))
    if alone_ms and mixed_ms >= DISTURBS * alone_ms:
        words = "Without slow steps, a decode step takes {alone_ms:,.2f} ms ({alone}; median), one with a prefill "
        words += "{mixed_ms:,.2f} ms ({mixed}), {more:+.0%}" + (CHUNKS if mixed_ms >= TWICE * alone_ms else ".")
        values = {"mixed_ms": mixed_ms, "mixed": len(mixed), "alone_ms": alone_ms, "alone": len(alone)}
        findings.append(finding("disturbed", words, **values, more=mixed_ms / alone_ms - 1))
    laws = _law(steps, lengths, any(each.prompt is not None for each in served_requests))
    if laws and kv_bytes and rate:
        (gb_per_s, basis), law = rate, laws[0].values
        words = "The {kv_bytes:,d} bytes of a token in the KV cache take {least_ns:,.2f} ns at {gb_per_s:,.0f} GB/s "
        words += "({basis}): it costs {times:,.1f} (± {error:,.1f}) times that."
        values = {"kv_bytes": kv_bytes, "gb_per_s": gb_per_s, "basis": basis, "least_ns": kv_bytes / gb_per_s}
        times, error = (law[key] * gb_per_s / kv_bytes for key in ("kv_ns", "kv_error_ns"))
        laws.append(finding("kv_cost", words, **values, times=times, error=error))
    return findings + laws


def _law(steps: Sequence[ServerStep], lengths: Mapping[str, int], all_known: bool) -> list[Finding]:
    """How the GPU's time of a step that only decodes grows with the tokens in the KV cache and with the requests.

    Least squares without the slowest tenth; a slope is shown where 0 is outside its interval (two standard errors).
    all_known: whether the lengths of prompts are known.
    """
    chosen = [each for each in steps if each.kind is StepKind.DECODE and each.name in lengths and each.busy > 0]
    if len(chosen) < 4 * FEW_STEPS:
        return []
    limit = np.percentile([each.busy for each in chosen], 90)
    chosen = [each for each in chosen if each.busy <= limit]
    kv, batch, busy = np.array([(lengths[each.name], max(each.decode, 1), each.busy / 1e3) for each in chosen], float).T
    if (fit := line([kv, batch] if len(np.unique(batch)) > 1 else [kv], busy)) is None:
        return []
    (base, each, *batch_us), (_, error, *batch_error), rest = fit
    if abs(each) <= 2 * error:
        return []
    words = "GPU time of a step that only decodes = {base_us:,.0f} µs {kv_ns:+,.2f} ns (95%: ± {kv_error_ns:,.2f}) a "
    words += "token in the KV cache" if all_known else "token since its first"
    figures: Row = {"base_us": float(base), "kv_ns": 1e3 * each, "kv_error_ns": 2e3 * error}
    for us, error_us in zip(batch_us, batch_error, strict=True):
        if abs(us) > 2 * error_us:
            words += " {batch_us:+,.1f} µs (± {batch_error_us:,.1f}) a request"
            figures |= {"batch_us": float(us), "batch_error_us": float(2 * error_us)}
    figures |= {"from_kv": int(kv.min()), "to_kv": int(kv.max()), "count": len(kv), "rest_us": rest}
    words += ", from {from_kv:,d} to {to_kv:,d} tokens in {count} steps; the rest is within {rest_us:,.0f} µs."
    return [finding("kv_law", words, **figures)]


def line(of: Sequence[Any], values: Floats) -> tuple[Floats, Floats, float] | None:
    """Least squares of values over a constant and some series: the coefficients, their standard errors, and that of a
    value; None where the series are not independent."""
    terms = np.column_stack([np.ones(len(values)), *of])
    fitted, _, rank, _ = np.linalg.lstsq(terms, values, rcond=None)
    if rank < terms.shape[1]:
        return None
    rest = values - terms @ fitted
    variance = float(rest @ rest) / (len(values) - terms.shape[1])
    return fitted, np.sqrt(np.diag(np.linalg.inv(terms.T @ terms)) * variance), float(np.sqrt(variance))
