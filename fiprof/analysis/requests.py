"""Requests of a server, by what its ranges and marks say: when each arrived, was admitted, had its tokens, ended.

A step's range says of its batch in numbers what the scheduler decided (:func:`says`); marks (``r3 first token``) or
ranges (``request 3``) say when a request came and went. Between, its tokens follow from the steps that it was in.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fiprof.analysis.frames import Column, Narrow
from fiprof.analysis.trace import Marks
from fiprof.model.finding import Finding, Worded, finding

Row = dict[str, Any]
Said = dict[str, int | tuple[str, ...]]
"""Word -> its number, or the requests that follow it."""

_ID = re.compile(r"\b(?:r|req|request|seq|rid)[ _#-]?(\d+)\b", re.IGNORECASE)
_REQUEST = re.compile(r"(?:request|req|generate)\b", re.IGNORECASE)
"""Beginning of the name of a range that is a request."""
_PREFILL = ("prefill", "prefill_tokens", "context_tokens", "ctx_tokens", "ctx_tkns", "extend", "context", "ctx_reqs")
_DECODE = ("decode", "decode_requests", "generation", "gen_reqs", "decodes")
"""Words for the tokens of prompts, and for the requests that get their next token, in a step's range."""
_VERBS = {
    "arrived": re.compile("arriv|receiv|queued|submit", re.IGNORECASE),
    "admitted": re.compile("admit|schedul|start", re.IGNORECASE),
    "preempted": re.compile("preempt|evict", re.IGNORECASE),
    "first": re.compile("first token", re.IGNORECASE),
    "ended": re.compile("finish|done|complet|abort|end", re.IGNORECASE),
}
FOLLOWED = 0.98
"""Share of the steps in which as many requests decode as the step says, from which on their tokens are told."""
FEW_STEPS = 5
DISTURBS = 1.05
"""Times as long as a step that only decodes a step with a prefill takes at least, to be told."""

REQUESTS = (
    Column("request", "request", meaning="Its id, as the program says it."),
    Column("arrived_ms", "arrives", "ms", ",.1f", "Since the trace began."),
    Column("queued_ms", "queued", "ms", ",.3f", "From its arrival until the step begins that admits it."),
    Column("prefill_ms", "prefill", "ms", ",.3f", "From then until its first token."),
    Column("ttft_ms", "TTFT", "ms", ",.3f", "Time to first token: from arrival."),
    Column("itl_median_ms", "ITL", "ms", ",.3f", "Between two of its tokens: median."),
    Column("itl_p90_ms", "p90", "ms", ",.3f", "The same: 90th percentile."),
    Column("itl_p99_ms", "p99", "ms", ",.3f", "The same: 99th percentile."),
    Column("prompt", "prompt", spec=",d", meaning="Tokens, where the program says it."),
    Column("tokens", "tokens", spec=",d", meaning="That it got."),
    Column("tokens_per_s", "tokens/s", spec=",.0f", meaning="From its arrival to its end."),
    Column("preempted", "preempted", spec="d", meaning="How often it was.", narrow=Narrow.DROP),
    Column("admitted_ms", meaning="Begin of the step that admits it."),
    Column("admitted_in", "admitted in", meaning="The step."),
    Column("first_token_ms", unit="ms", meaning="When it got its first token, since the trace began."),
    Column("ended_ms", "ends", "ms", ",.1f", "Since the trace began.", narrow=Narrow.DROP),
    Column("token_ms", meaning="When it got each token, since the trace began."),
    Column("slowest_ms", meaning="The longest time between two of its tokens."),
    Column("slowest_in", "slowest in", meaning="The step that made the longest.", narrow=Narrow.DROP),
)
"""One request."""


class Kind(Worded):
    """What a step is for."""

    PREFILL = "prefill", "prefill"
    DECODE = "decode", "decode"
    MIXED = "mixed", "prefill and decode"
    OTHER = "other", "other"


@dataclass(frozen=True)
class Step:
    """A step of a server; ns since the trace began."""

    name: str
    begin: int
    end: int
    """When the host and the GPU are done with it."""
    said: Said
    busy: float = 0.0

    @property
    def head(self) -> str:
        """Its name without what it says of itself."""
        return self.name.partition(": ")[0]

    @property
    def prefill(self) -> int:
        """Tokens of prompts in it (requests, where it says only those); 0 where it does not say."""
        return _number(self.said, _PREFILL)

    @property
    def decode(self) -> int:
        """Requests that get their next token in it."""
        return _number(self.said, _DECODE)

    @property
    def kind(self) -> Kind:
        """By what it says, or by its name."""
        if self.prefill or self.decode:
            return Kind.MIXED if self.prefill and self.decode else Kind.PREFILL if self.prefill else Kind.DECODE
        of_name = {Kind.PREFILL: "prefill|extend", Kind.DECODE: "decode|generat"}
        return next((kind for kind, words in of_name.items() if re.search(words, self.head, re.IGNORECASE)), Kind.OTHER)


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
    preempted: list[int] = field(default_factory=list)
    """How many tokens it had, each time."""
    tokens: list[tuple[int, str]] = field(default_factory=list)
    """When it got each, and the step's name."""

    def row(self) -> Row:
        """A row of REQUESTS."""
        times = [ns for ns, _ in self.tokens]
        gaps = np.diff(times) / 1e6
        percentiles = np.percentile(gaps, (50, 90, 99)).tolist() if len(gaps) else [None] * 3
        longest = int(np.argmax(gaps)) if len(gaps) else None
        first = self.first if self.first is not None else (times[0] if times else None)
        ended = self.ended if self.ended is not None else (times[-1] if times else None)
        took = _apart(self.arrived, ended)
        return {
            "request": self.id,
            "arrived_ms": _apart(0, self.arrived),
            "admitted_ms": _apart(0, self.admitted),
            "admitted_in": self.admitted_in,
            "queued_ms": _apart(self.arrived, self.admitted),
            "prefill_ms": _apart(self.admitted, first),
            "ttft_ms": _apart(self.arrived, first),
            "first_token_ms": _apart(0, first),
            "ended_ms": _apart(0, ended),
            **dict(zip(("itl_median_ms", "itl_p90_ms", "itl_p99_ms"), percentiles, strict=True)),
            "prompt": self.prompt,
            "tokens": len(times) or None,
            "tokens_per_s": 1e3 * len(times) / took if times and took else None,
            "preempted": len(self.preempted),
            "token_ms": [ns / 1e6 for ns in times],
            "slowest_ms": None if longest is None else float(gaps[longest]),
            "slowest_in": None if longest is None else self.tokens[longest + 1][1],
        }


def _apart(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else (end - begin) / 1e6


def _number(said: Said, words: Sequence[str]) -> int:
    return next((value for word in words if isinstance(value := said.get(word), int)), 0)


def says(text: str) -> Said:
    """What a range's or a mark's text says in numbers, by word.

    ``step 20: admit r3, prefill 512 tokens, pages 31/112, queue 2``: admit, prefill, pages, of_pages, queue;
    ``execute_context_1(120)_generation_3(3)`` (vLLM): context, context_tokens, generation, generation_tokens;
    ``_forward_step 7: 1 ctx reqs, 120 ctx tokens`` (TensorRT-LLM): ctx_reqs, ctx_tokens; ``[bs=3 toks=120]``: bs, toks.
    """
    found: Said = {}
    for word, count, tokens in re.findall(r"([A-Za-z]+)_(\d{1,18})\((?:sq)?(\d{1,18})", text):
        found |= {word: int(count), f"{word}_tokens": int(tokens)}
    found |= {word: int(value) for word, value in re.findall(r"(\w+)=(\d{1,18})\b", text)}
    for piece in text.partition(": ")[2].split(", "):
        if ids := re.fullmatch(r"([A-Za-z_]+)((?: \w*\d+)+)", piece) if _ID.search(piece) else None:
            found[ids[1]] = tuple(ids[2].split())
        elif one := re.match(r"([A-Za-z_]+) (\d{1,18})(?:/(\d{1,18}))?\b(?!\.)", piece):
            found[one[1]] = int(one[2])
            if one[3]:
                found[f"of_{one[1]}"] = int(one[3])
        elif counted := re.fullmatch(r"(\d{1,18}) ([A-Za-z][A-Za-z_ ]*)", piece):
            found["_".join(counted[2].split())] = int(counted[1])
    return found


def short_name(name: str) -> str:
    """A step's name, without what it says of its batch."""
    return name.partition(": ")[0] if says(name) else name


def requests(found: Marks, steps: Sequence[Step]) -> list[Request]:
    """The requests in the order of their arrival: of marks and steps that name them, or of ranges that are requests.

    steps: those of the thread that launches, by begin.
    """
    return _of_marks(found, steps) or list(_of_ranges(found))


def _of_ranges(found: Marks) -> Iterator[Request]:
    """Each range that is a request, with the ranges right inside it as its steps."""
    named = np.array([bool(_REQUEST.match(text or "")) for text in found.texts] or [False])[found.name]
    chosen = np.flatnonzero(named & found.own & (found.ends >= 0) & (found.ends > found.starts))
    children: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.isin(found.parents, chosen) & found.own).tolist():
        children[int(found.parents[row])].append(row)
    for number, row in enumerate(chosen.tolist()):
        text = found.texts[found.name[row]] or ""
        mark = _ID.search(text)
        begin = int(found.starts[row])
        made = Request(mark[1] if mark else str(number), begin, begin, ended=int(found.ends[row]))
        inner = [
            Step(found.texts[found.name[each]] or "", int(found.starts[each]), int(found.ends[each]), {})
            for each in children[row]
        ]
        inner = [each for each in inner if each.kind is not Kind.OTHER]
        prefills = [each for each in inner if each.kind is Kind.PREFILL]
        decodes = [each for each in inner if each.kind is Kind.DECODE]
        made.tokens = [(each.end, each.name) for each in (*prefills[-1:], *decodes)]
        made.prompt = next((n for n in [says(text).get("prompt")] if isinstance(n, int)), None)
        yield made


def _events(found: Marks) -> Iterator[tuple[int, str, str, Said]]:
    """When a mark says what of which request, with its numbers."""
    for row in np.flatnonzero(found.mark).tolist():
        text = found.texts[found.name[row]] or ""
        head = text.partition(": ")[0]
        verb = next((verb for verb, words in _VERBS.items() if words.search(head)), None)
        if verb and (mark := _ID.search(head)):
            yield int(found.starts[row]), verb, mark[1], says(text)


def _of_marks(found: Marks, steps: Sequence[Step]) -> list[Request]:
    """Requests that marks, or steps, name: from step to step who decodes and whose prompt is computed, first come,
    first served."""
    events = sorted(_events(found), key=lambda event: event[0])
    known: dict[str, Request] = {}
    for ns, verb, name, numbers in events:
        made = known.setdefault(name, Request(name))
        if verb != "preempted" and getattr(made, verb) is None:
            setattr(made, verb, ns)
        for word in ("prompt", "output"):
            if isinstance(value := numbers.get(word), int):
                setattr(made, word, value)
    missing: dict[str, int] = {}
    """Of those whose prompt is being computed the tokens that are left, in the order of their admission."""
    decoding: dict[str, Request] = {}
    agree = told = 0
    begins = [*(step.begin for step in steps[1:]), np.iinfo(np.int64).max]
    for step, until in zip(steps, begins, strict=False):
        for name in _ids(step.said, "preempted"):
            made = known.setdefault(name, Request(name))
            made.preempted.append(len(made.tokens))
            decoding.pop(name, None)
            missing.pop(name, None)
        for made in decoding.values():
            made.tokens.append((step.end, step.name))
        if step.said.keys() & set(_DECODE):
            told, agree = told + 1, agree + (len(decoding) == step.decode)
        for name in _ids(step.said, "admitted"):
            made = known.setdefault(name, Request(name))
            if made.admitted is None:
                made.admitted, made.admitted_in = step.begin, step.head
            missing[name] = (made.prompt or 0) + len(made.tokens)
        left = step.prefill
        for name, needed in list(missing.items()):
            made, taken = known[name], min(left, needed)
            left, missing[name] = left - taken, needed - taken
            has_first = made.first is not None and made.first < until
            if (missing[name] == 0) if made.prompt is not None else has_first:
                made.tokens.append((step.end, step.name))
                decoding[name] = made
                del missing[name]
        ended = [
            each.id
            for each in decoding.values()
            if (each.ended is not None and each.ended < until) or len(each.tokens) == each.output
        ]
        for name in ended:
            del decoding[name]
    if agree < FOLLOWED * told or not told:
        for made in known.values():
            made.tokens.clear()
    return sorted(known.values(), key=lambda made: (made.arrived or made.admitted or 0, made.id))


def _ids(said: Said, verb: str) -> list[str]:
    """The requests that a step says it admits, or preempts."""
    listed = (value for word, value in said.items() if isinstance(value, tuple) and _VERBS[verb].search(word))
    return [mark[1] for value in listed for each in value if (mark := _ID.search(each))]


def token_gaps(made: Sequence[Request]) -> list[tuple[float, Request, int]]:
    """Between two tokens of a request, of all requests: ms, the request, and the number of the later token."""
    return [
        ((after[0] - before[0]) / 1e6, each, number)
        for each in made
        for number, (before, after) in enumerate(pairwise(each.tokens), 1)
    ]


def served(made: Sequence[Request], steps: Sequence[Step], slow: Collection[str]) -> list[Finding]:
    """What the requests came to, what made the longest waits for a token, and how a prefill disturbs who decodes.

    slow: names of the steps that surprise.
    """
    found = []
    rows = [each.row() for each in made]
    firsts = [row["ttft_ms"] for row in rows if row["ttft_ms"] is not None]
    gaps = sorted(token_gaps(made), key=lambda gap: -gap[0])
    begins = [each.arrived for each in made if each.arrived is not None]
    ends = [row["ended_ms"] for row in rows if row["ended_ms"] is not None]
    if firsts:
        queued = [row["queued_ms"] for row in rows if row["queued_ms"] is not None]
        words = "{count:request|requests}: TTFT {ttft_ms:,.1f} ms (median; p90 {ttft_p90_ms:,.1f}), "
        words += "queued {queued_ms:,.1f} ms (median; at most {queued_most_ms:,.1f})"
        values: Row = {
            "count": len(made),
            "ttft_ms": float(np.median(firsts)),
            "ttft_p90_ms": float(np.percentile(firsts, 90)),
            "queued_ms": float(np.median(queued)) if queued else 0.0,
            "queued_most_ms": max(queued, default=0.0),
        }
        if gaps:
            words += "; ITL {itl_ms:,.2f} ms (median; p90 {itl_p90_ms:,.2f}, p99 {itl_p99_ms:,.2f})"
            words += "; {tokens_per_s:,.0f} tokens/s"
            percentiles = np.percentile([ms for ms, _, _ in gaps], (50, 90, 99)).tolist()
            values |= dict(zip(("itl_ms", "itl_p90_ms", "itl_p99_ms"), percentiles, strict=True))
            tokens, took = sum(len(each.tokens) for each in made), max(ends) - min(begins) / 1e6
            values["tokens_per_s"] = 1e3 * tokens / took if took else 0.0
        found.append(finding("served", words + ".", **values))
    by_name = {step.name: step for step in steps}
    late: dict[str, Finding] = {}
    for ms, who, number in gaps[: max(len(gaps) // 100, 1)] if len(gaps) >= FEW_STEPS else ():
        name = who.tokens[number][1]
        kind = by_name[name].kind if name in by_name else Kind.OTHER
        why = "a slow step" if name in slow else "with a prefill" if kind is Kind.MIXED else ""
        why = "preempted before" if number in who.preempted else why
        words = "{ms:,.1f} ms until {step} (r{request}" + (", {why})" if why else ")")
        values = {"ms": ms, "step": name.partition(": ")[0], "request": who.id, "why": why}
        late.setdefault(name, finding("late_token", words, **values))
    if late:
        found.append(finding("slowest_tokens", "The longest waits for a token: {late}.", late=tuple(late.values())))
    usual = [each for each in steps if each.name not in slow]
    lengths = {kind: [(each.end - each.begin) / 1e6 for each in usual if each.kind is kind] for kind in Kind}
    alone, mixed = lengths[Kind.DECODE], lengths[Kind.MIXED]
    if min(len(alone), len(mixed)) >= FEW_STEPS and np.median(mixed) >= DISTURBS * np.median(alone):
        found.append(
            finding(
                "disturbed",
                "Without slow steps, a decode step takes {alone_ms:,.2f} ms ({alone}; median), one with a prefill "
                "{mixed_ms:,.2f} ms ({mixed}), {more:+.0%}.",
                mixed_ms=float(np.median(mixed)),
                mixed=len(mixed),
                alone_ms=float(np.median(alone)),
                alone=len(alone),
                more=float(np.median(mixed) / np.median(alone)) - 1,
            )
        )
    return found + _law(made, steps)


def kv_tokens(made: Sequence[Request]) -> dict[str, int]:
    """Step -> tokens in the KV cache of the requests that get a token in it, as far as their prompts are known."""
    lengths: dict[str, int] = defaultdict(int)
    for each in made:
        for number, (_, name) in enumerate(each.tokens):
            lengths[name] += (each.prompt or 0) + number
    return lengths


def _law(made: Sequence[Request], steps: Sequence[Step]) -> list[Finding]:
    """How the GPU's time of a step that only decodes grows with the tokens in the KV cache and with the requests.

    Least squares without the slowest tenth; a slope is told where its interval (two standard errors) leaves out 0.
    """
    lengths = kv_tokens(made)
    known = any(each.prompt is not None for each in made)
    chosen = [each for each in steps if each.kind is Kind.DECODE and each.name in lengths and each.busy > 0]
    if len(chosen) < 4 * FEW_STEPS:
        return []
    limit = np.percentile([each.busy for each in chosen], 90)
    chosen = [each for each in chosen if each.busy <= limit]
    kv = np.array([lengths[each.name] for each in chosen], float)
    batch = np.array([max(each.decode, 1) for each in chosen], float)
    busy = np.array([each.busy for each in chosen]) / 1e3
    columns = [np.ones(len(kv)), kv, *([batch] if len(np.unique(batch)) > 1 else [])]
    terms = np.column_stack(columns)
    if np.linalg.matrix_rank(terms) < terms.shape[1]:
        return []
    values, *_ = np.linalg.lstsq(terms, busy, rcond=None)
    rest = busy - terms @ values
    variance = float(rest @ rest) / (len(kv) - terms.shape[1])
    errors = 2 * np.sqrt(np.diag(np.linalg.inv(terms.T @ terms)) * variance)
    if abs(values[1]) <= errors[1]:
        return []
    words = "GPU time of a step that only decodes = {base_us:,.0f} µs {kv_ns:+,.2f} ns (95%: ± {kv_error_ns:,.2f}) a "
    words += "token in the KV cache" if known else "token since its first"
    found: Row = {"base_us": float(values[0]), "kv_ns": 1e3 * values[1], "kv_error_ns": 1e3 * errors[1]}
    if len(values) > 2 and abs(values[2]) > errors[2]:
        words += " {batch_us:+,.1f} µs (± {batch_error_us:,.1f}) a request"
        found |= {"batch_us": float(values[2]), "batch_error_us": float(errors[2])}
    found |= {"from_kv": int(kv.min()), "to_kv": int(kv.max()), "count": len(kv)}
    words += ", from {from_kv:,d} to {to_kv:,d} tokens in {count} steps; the rest is within {rest_us:,.0f} µs."
    return [finding("kv_law", words, **found, rest_us=float(np.sqrt(variance)))]
