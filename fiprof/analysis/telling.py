"""A story's lines, in order of time: what comes once, steps of which something is to be said, the others folded."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np

from fiprof.analysis.comm import Delay
from fiprof.analysis.frames import Column
from fiprof.analysis.requests import Kind, Request, Step
from fiprof.analysis.surprises import late_rank, same_cause
from fiprof.model.finding import Finding, finding

Row = dict[str, Any]

MOST_SINGLE = 16
"""Steps that have a line of their own, the slowest first, then those that preempt, then those that admit."""
MOST_LINES = 90
FEWEST_TURNS, MOST_PHASES = 3, 12
"""Turns from which on phases are one line, and runs of phases in one, at most."""
OFTEN = 5
"""Pieces of one name, between steps, from which on only those are told that take so many times the median."""
NOTABLE = 1.15
"""Times the usual step from which on a step that surprises nobody is said to be slow, and what it does besides."""

TOLD = (
    Column("at_ms", "at", "ms", ",.1f", "Since the trace began."),
    Column("until_ms", unit="ms", meaning="When what the line tells ends, since the trace began."),
    Column("said", "what happened", wrap=True, meaning="What began then, what it took, and what follows from it."),
    Column("hot", meaning="The line that takes most time, of those after the first range."),
)


@dataclass
class Beat:
    """A moment to be told; ns since the trace began."""

    place: int
    name: str
    """Its group's."""
    step: Step
    repeats: bool
    kernels: int
    memory: int | None
    doing: tuple[Finding, ...]
    """What the launching thread does, with its shares."""
    inside: tuple[Finding, ...] = ()
    """What it was in most, of what comes once."""
    slow: Finding | None = None
    late: Delay | None = None
    """By the rank that others wait for most."""
    events: list[Finding] = field(default_factory=list)
    rank: float = 0.0
    """How much it wants a line of its own; 0: not at all."""

    @property
    def ms(self) -> float:
        return (self.step.end - self.step.begin) / 1e6

    @property
    def busy_ms(self) -> float:
        return self.step.busy / 1e6


def tell(beats: Sequence[Beat], requests: Sequence[Request], least_ms: float) -> list[Row]:
    """Rows of TOLD. beats: in order of time; least_ms: what comes once and takes less is left out."""
    _with_events(beats, requests)
    usual = _usual(beats)
    for beat in beats:
        if beat.slow:
            beat.rank += 1e6 + beat.slow.values["more_ms"]
        if any(each.kind in ("preempted", "readmitted") for each in beat.events):
            beat.rank += 1e3
        elif any(each.kind == "admitted" for each in beat.events):
            beat.rank += 1
    chosen = sorted((beat for beat in beats if beat.rank), key=lambda beat: -beat.rank)[:MOST_SINGLE]
    single = {beat.place for beat in chosen}
    pieces: dict[str, list[float]] = defaultdict(list)
    for beat in beats:
        if not beat.repeats:
            pieces[beat.name].append(beat.ms)
    often = {name: float(np.median(each)) for name, each in pieces.items() if len(each) > OFTEN}
    kept = [beat for beat in beats if beat.repeats or beat.ms >= max(least_ms, OFTEN * often.get(beat.name, 0.0))]
    lines, slow_before = list[Row](), dict[Any, str]()
    grouped = groupby(kept, key=lambda beat: (beat.name, beat.place if beat.place in single else None))
    for turns in _cycles([list(group) for _, group in grouped], single):
        run = turns[0]
        if len(turns) > 1:
            run = [beat for turn in turns for beat in turn]
            said = _turns(turns)
        elif run[0].place in single:
            said = _single(run[0], usual, slow_before)
        else:
            said = _folded(run) if run[0].repeats else _once(run)
        lines.append({"at_ms": run[0].step.begin / 1e6, "until_ms": run[-1].step.end / 1e6, "said": said, "hot": ""})
    while len(lines) > MOST_LINES:
        shortest = min(range(len(lines)), key=lambda place: lines[place]["until_ms"] - lines[place]["at_ms"])
        del lines[shortest]
    spans = [row for row in lines if row["said"].kind != "before"]
    if spans:
        max(spans, key=lambda row: row["until_ms"] - row["at_ms"])["hot"] = "◀ most time"
    return lines


def _usual(beats: Sequence[Beat]) -> Mapping[str, Beat]:
    """Of each name the step of median length, of those that only decode where there are some."""
    of_name: dict[str, list[Beat]] = defaultdict(list)
    for beat in beats:
        if beat.repeats and not beat.slow:
            of_name[beat.name].append(beat)
    found = {}
    for name, several in of_name.items():
        alone = [beat for beat in several if beat.step.kind is Kind.DECODE] or several
        found[name] = sorted(alone, key=lambda beat: beat.ms)[len(alone) // 2]
    return found


def _with_events(beats: Sequence[Beat], requests: Sequence[Request]) -> None:
    """Gives each step what happens to requests in it, or before it after the one before."""
    steps = [beat for beat in beats if beat.repeats]
    if not steps:
        return
    begins = np.array([beat.step.begin for beat in steps])

    def of(ns: int, side: Any, shift: int = 0) -> Beat:
        place = int(np.searchsorted(begins, ns, side=side)) - shift
        return steps[min(max(place, 0), len(steps) - 1)]

    for each in requests:
        row = each.row()
        queued = row["queued_ms"]
        if each.admitted is None or not each.admitted_in:
            continue
        beat = of(each.admitted, "left")
        # A step that computes this prompt alone has its length already.
        words = "r{request} admitted"
        words += " ({prompt} tokens)" if each.prompt not in (None, beat.step.prefill) else ""
        words += ", after {queued_ms:,.1f} ms in the queue" if queued and queued >= 1 else ""
        values = {"request": each.id, "prompt": each.prompt, "queued_ms": queued, "ttft_ms": row["ttft_ms"]}
        first = None
        if row["ttft_ms"] is not None:
            first = of(int(row["first_token_ms"] * 1e6) - 1, "right", 1)
            if first is beat:
                words += ", TTFT {ttft_ms:,.1f} ms"
        beat.events.append(finding("admitted", words, **values))
        if first and first is not beat:
            words = "first token of r{request}, TTFT {ttft_ms:,.1f} ms"
            first.events.append(finding("first_token", words, request=each.id, ttft_ms=row["ttft_ms"]))
        if each.arrived is not None and (before := of(each.arrived, "left")) is not beat:
            before.events.append(finding("arrived", "r{request} arrives and waits", request=each.id))
        if each.ended is not None:
            words = "r{request}" + (" ({tokens} tokens, ITL {itl_ms:,.1f} ms)" if row["itl_median_ms"] else "")
            values = {"request": each.id, "tokens": row["tokens"], "itl_ms": row["itl_median_ms"]}
            of(each.ended - 1, "right", 1).events.append(finding("ended", words, **values))
    for beat in steps:
        for word, value in beat.step.said.items():
            if isinstance(value, tuple) and word.startswith(("preempt", "evict")):
                beat.events.insert(0, finding("preempted", "preempted, to wait again: {who}", who=value))
            elif isinstance(value, tuple) and word.startswith("admit"):
                told = {f"r{each.values['request']}" for each in beat.events if each.kind == "admitted"}
                if again := tuple(who for who in value if requests and who not in told):
                    words = "admitted again, to be computed anew: {who}"
                    beat.events.insert(0, finding("readmitted", words, who=again))


def _cycles(runs: Sequence[list[Beat]], single: Collection[int]) -> Iterator[list[list[Beat]]]:
    """Runs of steps, those that follow one another in turns together: the turns. single: steps that stand alone."""
    plain = [run[0].repeats and run[0].place not in single and not run[0].step.said for run in runs]
    names = [run[0].name if each else None for run, each in zip(runs, plain, strict=True)]
    at = 0
    while at < len(runs):
        period = count = 1
        for several in range(2, MOST_PHASES + 1):
            turn, often = names[at : at + several], 1
            while None not in turn and names[at + often * several :][:several] == turn:
                often += 1
            if often >= FEWEST_TURNS and often * several > period * count:
                period, count = several, often
        until = at + period * count
        yield [[beat for run in runs[first : first + period] for beat in run] for first in range(at, until, period)]
        at = until


def _turns(turns: Sequence[Sequence[Beat]]) -> Finding:
    """Phases that come in turns."""
    of_name: dict[str, list[float]] = defaultdict(list)
    for beat in chain.from_iterable(turns):
        of_name[beat.name].append(beat.ms)
    phases = tuple(
        finding("phase", "{what} {ms:,.2f}", what=name, ms=float(np.median(each))) for name, each in of_name.items()
    )
    lengths = [(turn[-1].step.end - turn[0].step.begin) / 1e6 for turn in turns]
    values = _lengths(lengths, [*chain.from_iterable(turns)])
    head = "{count} x ({phases} ms), {each_ms:,.2f} ms each ({low_ms:,.2f} to {high_ms:,.2f}), GPU busy {busy:.0%}"
    return _joined("turns", head, phases=phases, **values)


def _lengths(lengths: Sequence[float], run: Sequence[Beat]) -> Row:
    """How many, how long, ms, and how busy the GPU is."""
    busy = sum(beat.busy_ms for beat in run) / max(sum(lengths), 1e-6)
    each = {"each_ms": float(np.median(lengths)), "low_ms": min(lengths), "high_ms": max(lengths)}
    return {"count": len(lengths), **each, "busy": busy}


def _joined(kind: str, head: str, *parts: Finding | None, **values: Any) -> Finding:
    """A line: its head, and after a colon its parts, with semicolons."""
    numbered = {f"part_{number}": part for number, part in enumerate(filter(None, parts))}
    words = head + (": " if numbered else "") + "; ".join(f"{{{name}}}" for name in numbered)
    return finding(kind, words + ".", **values, **numbered)


def _once(run: Sequence[Beat]) -> Finding:
    """What comes once, or in pieces."""
    whole = sum(beat.ms for beat in run)
    busy = sum(beat.busy_ms for beat in run) / whole if whole else 0.0
    memory = run[-1].memory
    ran = finding("ran", "{count:kernel|kernels}, GPU busy {busy:.0%}", count=sum(b.kernels for b in run), busy=busy)
    holds = finding("memory", "{gb:,.3f} GB of device memory at its end", gb=memory / 1e9) if memory else None
    doing = finding("host", "the host: {doing}", doing=run[0].doing) if run[0].doing else None
    inside = finding("inside", "of it {inside}", inside=run[0].inside) if run[0].inside else None
    parts = doing, inside, ran if ran.values["count"] else None, holds
    kind = "before" if run[0].name.startswith("before ") else "once"
    return _joined(kind, "{what}, {ms:,.1f} ms", *parts, what=run[0].name, ms=whole)


def _single(beat: Beat, usual: Mapping[str, Beat], slow_before: dict[Any, str]) -> Finding:
    """A step of which something is to be said. slow_before: causes of slow steps -> the first of each."""
    step, like = beat.step, usual.get(beat.name)
    batch = None
    if step.kind is not Kind.OTHER and (step.prefill or step.decode):
        both = {"prefill {prefill}": step.prefill, "decode {decode}": step.decode}
        about = ", ".join(words for words, count in both.items() if count)
        batch = finding("batch", about, prefill=step.prefill, decode=step.decode)
    why = None
    if beat.slow:
        values = beat.slow.values
        like_step = slow_before.setdefault(same_cause(beat.slow), step.head)
        words = "slow (usual {usual_ms:,.1f})" + (": {cause}" if like_step == step.head else " as {like}")
        words += ", {new:new kernel|new kernels}" if values["new"] else ""
        told = {key: values[key] for key in ("usual_ms", "cause", "more_ms", "new")}
        why = finding("slow", words, **told, like=like_step)
    elif like and beat.ms >= NOTABLE * like.ms:
        words = "{more_ms:,.1f} ms more than a decode step" if like.step.kind is Kind.DECODE else ""
        words = words or "{more_ms:,.1f} ms more than usual"
        busy = beat.busy_ms - like.busy_ms
        more = beat.ms - like.ms
        words += ", {busy_ms:,.1f} on the GPU" if busy >= 0.1 * more else ", host work"
        why = finding("longer", words, more_ms=more, busy_ms=min(busy, more))
    # What stands in the lines around it is said where a request has to wait.
    waits = any(each.kind == "preempted" for each in beat.events) or step.said.get("queue")
    parts = batch, *_events([beat]), why, *(_levels([beat]) if waits else ())
    return _joined("step", "{what}, {ms:,.2f} ms", *parts, what=step.head, ms=beat.ms)


def _folded(run: Sequence[Beat]) -> Finding:
    """Steps in a row of which nothing else is to be said."""
    heads = [beat.step.head for beat in run]
    values = _lengths([beat.ms for beat in run], run) | {"first": heads[0], "last": heads[-1]}
    if len(run) == 1:
        head = "{first}, {each_ms:,.2f} ms, GPU busy {busy:.0%}"
    else:
        head = "{first} to {last}" if heads[0] != heads[-1] else "{count} x {first}"
        head += ", {each_ms:,.2f} ms each ({low_ms:,.2f} to {high_ms:,.2f}), GPU busy {busy:.0%}"
    gaps = [after.step.begin - before.step.end for before, after in pairwise(run)]
    between = float(np.median(gaps)) / 1e6 if gaps else 0.0
    apart = finding("apart", "{ms:,.2f} ms between them", ms=between) if between >= 0.1 * values["each_ms"] else None
    doing = finding("host", "the host: {doing}", doing=run[0].doing) if run[0].doing else None
    late = late_rank([beat.late for beat in run], 1e6 * values["each_ms"])
    return _joined("steps", head, apart, late, doing, *_levels(run), *_events(run), **values)


def _events(run: Sequence[Beat]) -> Iterator[Finding]:
    """What happens to requests, those that end as one."""
    events = [each for beat in run for each in beat.events]
    yield from (each for each in events if each.kind != "ended")
    if ended := tuple(each for each in events if each.kind == "ended"):
        yield finding("ended", "end: {ended}", ended=ended)


def _levels(run: Sequence[Beat]) -> Iterator[Finding]:
    """What steps say of themselves beyond what their line tells: from the first to the last."""
    said = [beat.step.said for beat in run]
    for word, value in said[-1].items():
        first = said[0].get(word)
        if word == "queue" and not value and not first:
            continue
        if isinstance(value, int) and isinstance(first, int) and not word.startswith(("of_", "prefill")):
            if len(run) == 1 and word == "decode":
                continue
            words = "{word} {first}" + (" to {last}" if first != value else "")
            words += "/{of}" if f"of_{word}" in said[-1] else ""
            yield finding("level", words, word=word, first=first, last=value, of=said[-1].get(f"of_{word}"))
