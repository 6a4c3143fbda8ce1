"""A story's lines, in order of time: what comes once, steps of which something is to be said, the others folded."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np

from fiprof.analysis.frames import Row, columns
from fiprof.analysis.moments import BEFORE, DOES
from fiprof.analysis.requests import Request, ServerStep, StepKind
from fiprof.analysis.surprises import late_rank, same_cause
from fiprof.model.arrays import Floats
from fiprof.model.finding import Finding, finding
from fiprof.model.selection import by_key, sums_by_key

MOST_LINES, MOST_SINGLE = 90, 16
"""Lines, and steps that have one of their own: the slowest first, then those that preempt, then those that admit."""
FEWEST_TURNS, MOST_PHASES = 3, 12  # turns from which on phases are one line, and runs of phases in one, at most
OFTEN = 5  # pieces of one name, between steps, from which on only those are told that take so many times the median
PLACES = re.compile("page|block|kv|cache|slot", re.IGNORECASE)  # words for the memory of tokens, in what a step says
NOTABLE = 1.15  # times the usual step from which a step that surprises nobody is said to be slow, and what it does
TOLD = columns("told")


def tell(steps: Sequence[ServerStep], requests: Sequence[Request], least_ms: float) -> list[Row]:
    """Rows of TOLD. steps: in order of time; least_ms: what comes once and takes less is left out."""
    _with_events(steps, requests)
    of_name = by_key((step.group, step) for step in steps if step.repeats and not step.slow)
    pieces = by_key((step.group, step.ms) for step in steps if not step.repeats)
    # Of each name the step of median length, of those that only decode where there are some.
    alone = {name: [step for step in of if step.kind is StepKind.DECODE] or of for name, of in of_name.items()}
    usual = {name: sorted(of, key=lambda step: step.ms)[len(of) // 2] for name, of in alone.items()}
    single = {step.place for step in sorted(filter(_rank, steps), key=lambda step: -_rank(step))[:MOST_SINGLE]}
    often = {name: float(np.median(each)) for name, each in pieces.items() if len(each) > OFTEN}
    whole = sums_by_key((step.group, step.ms) for step in steps)
    # What comes seldom between steps, and takes as long as one of them, is told too: a second prompt between tokens.
    others = [step for step in steps if step.repeats or len(pieces[step.group]) <= OFTEN]
    between = {
        step.place
        for before, step, after in zip(others, others[1:], others[2:], strict=False)
        if not step.repeats and before.repeats and after.repeats and step.ms >= min(before.ms, after.ms)
    }
    shown = [
        step
        for step in steps
        if step.place in single | between
        or (whole[step.group] if step.repeats else step.ms) >= max(least_ms, OFTEN * often.get(step.group, 0.0))
    ]
    lines, slow_before = list[Row](), dict[Any, str]()
    grouped = groupby(shown, key=lambda step: (step.group, step.pace, step.place if step.place in single else None))
    for turns in _cycles([list(group) for _, group in grouped], single):
        run = [*chain.from_iterable(turns)]
        if len(turns) > 1:
            turns_text = _turns(turns, run)
        elif run[0].place in single:
            turns_text = _single(run[0], usual, slow_before)
        else:
            turns_text = _folded(run) if run[0].repeats else _once(run)
        lines.append({"at_ms": run[0].since / 1e6, "until_ms": run[-1].end / 1e6, "said": turns_text, "hot": ""})
    while len(lines) > MOST_LINES:
        lines.remove(min(lines, key=lambda row: row["until_ms"] - row["at_ms"]))
    if spans := [row for row in lines if row["said"].kind != "before"]:
        max(spans, key=lambda row: row["until_ms"] - row["at_ms"])["hot"] = "◀ most time"
    return lines


def _rank(step: ServerStep) -> float:
    """How much it wants a line of its own; 0: not at all."""
    kinds = {each.kind for each in step.events}
    of_events = 1e3 if kinds & {"preempted", "readmitted"} else float("admitted" in kinds)
    return of_events + (1e6 + step.slow.values["more_ms"] if step.slow else 0.0)


def _with_events(every: Sequence[ServerStep], requests: Sequence[Request]) -> None:
    """Gives each step what happens to requests in it, or before it after the one before."""
    steps = [step for step in every if step.repeats]
    begins = np.array([step.since for step in steps])

    def of(ns: int, side: Any, shift: int = 0) -> ServerStep:
        place = int(np.searchsorted(begins, ns, side=side)) - shift
        return steps[min(max(place, 0), len(steps) - 1)]

    for each in requests if steps else ():
        if each.admitted is None or not each.admitted_in:
            continue
        row, step, who = each.row, of(each.admitted, "left"), {"request": each.id}
        first = None if row["ttft_ms"] is None else of(int(row["first_token_ms"] * 1e6) - 1, "right", 1)
        # A step that computes this prompt alone has its length already.
        words = "r{request} admitted" + (" ({prompt} tokens)" if each.prompt not in (None, step.prefill) else "")
        words += ", after {queued_ms:,.1f} ms in the queue" if (row["queued_ms"] or 0.0) >= 1 else ""
        words += ", TTFT {ttft_ms:,.1f} ms" if first is step else ""
        waited = {key: row[key] for key in ("prompt", "queued_ms", "ttft_ms")}
        step.events.append(finding("admitted", words, **who, **waited))
        if first and first is not step:
            words = "first token of r{request}, TTFT {ttft_ms:,.1f} ms"
            first.events.append(finding("first_token", words, **who, ttft_ms=row["ttft_ms"]))
        if each.arrived is not None and (before := of(each.arrived, "left")) is not step:
            before.events.append(finding("arrived", "r{request} arrives and waits", **who))
        if each.ended is not None:
            words = "r{request}" + (" ({tokens} tokens, ITL {itl_ms:,.1f} ms)" if row["itl_median_ms"] else "")
            got = {"tokens": row["tokens"], "itl_ms": row["itl_median_ms"]}
            of(each.ended - 1, "right", 1).events.append(finding("ended", words, **who, **got))
    for before, step in pairwise([*steps[:1], *steps]):
        for word, value in step.said.items():
            if isinstance(value, tuple) and word.startswith(("preempt", "evict")):
                # What of memory has no place left for one token more of each that decodes.
                used = {level: n for level, n in before.said.items() if PLACES.search(level) and isinstance(n, int)}
                whole = {level: n for level in used if isinstance(n := before.said.get(f"of_{level}"), int)}
                out = (level for level, n in whole.items() if n - used[level] < max(before.decode, 1))
                full = next(({"level": level, "used": used[level], "of": whole[level]} for level in out), {})
                words = "preempted, to wait again: {who}" + (" ({level} ran out: {used}/{of} before)" if full else "")
                step.events.insert(0, finding("preempted", words, who=value, **full))
            elif isinstance(value, tuple) and word.startswith("admit"):
                told = {f"r{each.values['request']}" for each in step.events if each.kind == "admitted"}
                if again := tuple(who for who in value if requests and who not in told):
                    words = "admitted again, to be computed anew: {who}"
                    step.events.insert(0, finding("readmitted", words, who=again))


def _cycles(runs: Sequence[list[ServerStep]], single: Collection[int]) -> Iterator[list[list[ServerStep]]]:
    """Runs of steps, those that follow one another in turns together: the turns. single: steps that stand alone."""
    plain = [run[0].repeats and run[0].place not in single and not run[0].said for run in runs]
    names = [run[0].group if each else None for run, each in zip(runs, plain, strict=True)]
    at = 0
    while at < len(runs):
        period = count = 1
        for several in range(2, MOST_PHASES + 1):
            turn, often = names[at : at + several], 1
            while None not in turn and names[at + often * several :][:several] == turn:
                often += 1
            if often >= FEWEST_TURNS and often * several > period * count:
                period, count = several, often
        stop = at + period * count
        yield [[*chain.from_iterable(runs[first : first + period])] for first in range(at, stop, period)]
        at = stop


def _turns(turns: Sequence[Sequence[ServerStep]], run: Sequence[ServerStep]) -> Finding:
    """Phases that come in turns. run: the steps of all."""
    medians = {name: float(np.median(each)) for name, each in by_key((step.group, step.ms) for step in run).items()}
    phases = tuple(finding("phase", "{what} {ms:,.2f}", what=name, ms=ms) for name, ms in medians.items())
    lengths = [(turn[-1].end - turn[0].since) / 1e6 for turn in turns]
    head = "{count} x ({phases} ms), {each_ms:,.2f} ms each ({low_ms:,.2f} to {high_ms:,.2f}), GPU busy {busy:.0%}"
    return _joined("turns", head, phases=phases, **_lengths(lengths, run))


def _lengths(lengths: Sequence[float], run: Sequence[ServerStep]) -> Row:
    """How many, how long, ms, and how busy the GPU is."""
    busy = sum(step.busy / 1e6 for step in run) / max(sum(lengths), 1e-6)
    each = {"each_ms": float(np.median(lengths)), "low_ms": min(lengths), "high_ms": max(lengths)}
    return {"count": len(lengths), **each, "busy": busy}


def doing(host: Floats) -> tuple[Finding, ...]:
    """What the launching thread does most, with its share. host: ns of each of DOES."""
    shares = sorted(zip((host / max(host.sum(), 1.0)).tolist(), DOES, strict=True), reverse=True)
    most = ((share, each) for share, each in shares[:2] if share >= 0.1)
    return tuple(finding("doing", "{share:.0%} {does}", share=share, does=each) for share, each in most)


def _host(run: Sequence[ServerStep]) -> Finding | None:
    """What it does in all of a run."""
    known = [step.does for step in run if step.does is not None]
    does = doing(np.sum(known, axis=0)) if known else ()
    return finding("host", "the host: {doing}", doing=does) if does else None


def _joined(kind: str, head: str, *parts: Finding | None, **values: Any) -> Finding:
    """A line: its head, and after a colon its parts, with semicolons."""
    numbered = {f"part_{number}": part for number, part in enumerate(filter(None, parts))}
    words = head + (": " if numbered else "") + "; ".join(f"{{{name}}}" for name in numbered)
    return finding(kind, words + ".", **values, **numbered)


def _once(run: Sequence[ServerStep]) -> Finding:
    """What comes once, or in pieces."""
    whole, memory = sum(step.ms for step in run), run[-1].row["memory_bytes"]
    count, busy = sum(step.row["kernels"] for step in run), _lengths([whole], run)["busy"] if whole else 0.0
    ran = finding("ran", "{count:kernel|kernels}, GPU busy {busy:.0%}", count=count, busy=busy) if count else None
    holds = finding("memory", "{gb:,.3f} GB of device memory at its end", gb=memory / 1e9) if memory else None
    kind = "before" if run[0].group == BEFORE else "once"
    return _joined(kind, "{what}, {ms:,.1f} ms", _host(run), run[0].inside, ran, holds, what=run[0].group, ms=whole)


def _single(step: ServerStep, usual: Mapping[str, ServerStep], slow_before: dict[Any, str]) -> Finding:
    """A step of which something is to be said. slow_before: causes of slow steps -> the first of each."""
    like, batch, why = usual.get(step.group), None, None
    both = {"prefill": step.prefill, "decode": step.decode}
    if about := ", ".join(f"{word} {{{word}}}" for word, count in both.items() if count):
        batch = finding("batch", about, **both)
    if step.slow:
        values = {key: step.slow.values[key] for key in ("usual_ms", "cause", "more_ms", "new")}
        like_step = slow_before.setdefault(same_cause(step.slow), step.head)
        words = "slow (usual {usual_ms:,.3g}): " + ("{cause}" if like_step == step.head else "same cause as {like}")
        words += ", first to run {new:kernel|kernels}" if values["new"] else ""
        why = finding("slow", words, **values, like=like_step)
    elif like and step.ms >= NOTABLE * like.ms:
        more, busy = step.ms - like.ms, (step.busy - like.busy) / 1e6
        words = "{more_ms:,.1f} ms more than " + ("a decode step" if like.kind is StepKind.DECODE else "usual")
        words += ", {busy_ms:,.1f} on the GPU" if busy >= 0.1 * more else ", host work"
        why = finding("longer", words, more_ms=more, busy_ms=min(busy, more))
    # What stands in the lines around it is said where a request has to wait.
    waits = any(each.kind == "preempted" for each in step.events) or step.said.get("queue")
    parts = batch, *_events([step]), why, *(_levels([step]) if waits else ())
    return _joined("step", "{what}, {ms:,.2f} ms", *parts, what=step.head, ms=step.ms)


def _folded(run: Sequence[ServerStep]) -> Finding:
    """Steps in a row of which nothing else is to be said."""
    values = _lengths([step.ms for step in run], run) | {"first": run[0].head, "last": run[-1].head}
    head = "{first} to {last}" if run[0].head != run[-1].head else "{count:,d} x {first}"
    head += ", {each_ms:,.2f} ms each ({low_ms:,.2f} to {high_ms:,.2f}), GPU busy {busy:.0%}"
    if len(run) == 1:
        head = "{first}, {each_ms:,.2f} ms, GPU busy {busy:.0%}"
    gap = float(np.median([after.since - before.end for before, after in pairwise(run)] or [0])) / 1e6
    apart = finding("apart", "{ms:,.2f} ms between them", ms=gap) if gap and gap >= 0.1 * values["each_ms"] else None
    late = late_rank([step.late for step in run], 1e6 * values["each_ms"])
    inside = run[0].inside if len(run) == 1 else None
    return _joined("steps", head, apart, late, _host(run), inside, *_levels(run), *_events(run), **values)


def _events(run: Sequence[ServerStep]) -> Iterator[Finding]:
    """What happens to requests, those that end as one."""
    events = [each for step in run for each in step.events]
    yield from (each for each in events if each.kind != "ended")
    if ended := tuple(each for each in events if each.kind == "ended"):
        yield finding("ended", "end: {ended}", ended=ended)


def _levels(run: Sequence[ServerStep]) -> Iterator[Finding]:
    """What steps say of themselves beyond what their line tells: from the first to the last."""
    first, last = run[0].said, run[-1].said
    for word, value in last.items():
        before = first.get(word)
        untold = word.startswith(("of_", "prefill")) or (word == "decode" and len(run) == 1)
        if isinstance(value, int) and isinstance(before, int) and not untold and (before or value or word != "queue"):
            words = "{word} {first}" + (" to {last}" if before != value else "")
            words += "/{of}" if f"of_{word}" in last else ""
            yield finding("level", words, word=word, first=before, last=value, of=last.get(f"of_{word}"))
