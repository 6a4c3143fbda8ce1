"""The short answer of a comparison: what changed, what accounts for most of it, and what to measure to be sure."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fiprof.analysis.comparison.factors import FactorKind
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.pairing import CasePair, Match, written
from fiprof.analysis.comparison.programs import LITTLE_IN_COMMON, PartKind, ProgramComparison
from fiprof.analysis.comparison.runs import CaseChange, RunComparison
from fiprof.analysis.reasons import state
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.analysis.verdict.model import named
from fiprof.model.case_quantities import NCU, NSYS, PLAIN
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run
from fiprof.model.wording import say, worded
from fiprof.text import escape_control, short_kernel

LEADS = 0.1
"""Share of a change, from which a part of it is worth a word."""

TIMED_BY = {PLAIN.key: "without a profiler", NSYS.key: "under nsys", NCU.key: "under ncu"}


def summary(found: RunComparison) -> Iterator[str]:
    """The answer: what changed, why, how sure that is, and what to measure."""
    if found.cases:
        yield from _cases(found)
    elif found.program:
        yield from program_summary(found.program)
    yield worded(found.confidence)
    if not found.same_run:
        yield say("To decide: {command}", command=suggest_measure(found))


# Cases


def _cases(found: RunComparison) -> Iterator[str]:
    first = found.cases[0]
    yield case_change(first)
    if first.notable and (why := tuple(reasons(first))):
        yield say("Most of it: {reasons}.", reasons="; ".join(why))
    if len(found.cases) > 1:
        times = [case.us if case.notable else 0.0 for case in found.cases]
        yield say(
            "{count:case|cases} compared: B took longer in {longer}, less time in {shorter}, and within {marked:g}% of "
            "A in {within}.",
            count=len(times),
            longer=sum(us > 0 for us in times),
            shorter=sum(us < 0 for us in times),
            within=times.count(0.0),
            marked=WORTH_CHANGING.value,
        )


def case_change(case: CaseChange) -> str:
    """How its time changed, with the times."""
    if case.time is None:
        return say("{case}: no tool timed it on both sides.", case=case.label)
    values = {
        "case": case.label,
        "a": case.time.a,
        "b": case.time.b,
        "us": case.us,
        "by": TIMED_BY[str(case.time.item)],
    }
    if not case.us:
        return say("{case}: the same numbers, {a} {by}.", **values)
    pct = math.nan if case.share is None else 100 * case.share
    return say("{case}: B took {b} instead of {a} {by} ({us:+,.2f} µs, {pct:+.1f}%).", pct=pct, **values)


_MATCHED = {
    Match.SAME: "{kernel} accounts for {us:+,.2f} µs",
    Match.RENAMED: "{kernel}, with other template arguments, accounts for {us:+,.2f} µs",
    Match.REPLACED: "{kernel} in place of {before} accounts for {us:+,.2f} µs",
    Match.NEW: "{kernel} is new: {us:+,.2f} µs",
    Match.GONE: "{kernel} is gone: {us:+,.2f} µs",
}


def reasons(case: CaseChange) -> Iterator[str]:
    """What accounts for most of the change: a kernel, with why its launch differs, or the time outside the kernels."""
    if not case.us:
        return
    outside = case.outside_us or 0.0
    kernel = next((each for each in case.kernels if each.us * case.us > 0), None)
    if kernel and abs(kernel.us) >= max(outside * math.copysign(1.0, case.us), LEADS * abs(case.us)):
        before = short_kernel(kernel.a.kernel) if kernel.a else ""
        yield say(_MATCHED[kernel.match], kernel=short_kernel(kernel.shown.kernel), us=kernel.us, before=before)
        yield from _launch_reasons(kernel)
    elif outside * case.us > 0 and abs(outside) >= LEADS * abs(case.us):
        yield say("the time outside the kernels accounts for {us:+,.2f} µs", us=outside)


_FACTORS = {
    FactorKind.INSTRUCTIONS: "{pct:.0f}% {more} instructions",
    FactorKind.STALL: "{reason.short} ({reason}): {a:.2f} → {b:.2f} cycles an instruction",
    FactorKind.WARPS: "{a:.1f} → {b:.1f} warps in flight a scheduler",
    FactorKind.ACTIVE: "multiprocessors busy {a:.0%} → {b:.0%} of the launch",
    FactorKind.CLOCK: "clock {a:.2f} → {b:.2f} GHz",
}


def _launch_reasons(kernel: KernelChange) -> Iterator[str]:
    """Why the launch that stands for a kernel takes longer or shorter: its largest factor in that direction, and what
    limits it where that changed."""
    # Of another sign than the kernel's change the counters explain something else.
    if kernel.launch_us * kernel.us > 0:
        factor = next((each for each in kernel.because("factor") if each.us * kernel.launch_us > 0), None)
        if factor and factor.detail is not FactorKind.REST:
            pct = 100 * abs(factor.b / factor.a - 1) if factor.detail is FactorKind.INSTRUCTIONS else 0.0
            more = "more" if factor.us > 0 else "fewer"
            yield say(
                _FACTORS[factor.detail], reason=state(factor.item or ""), a=factor.a, b=factor.b, pct=pct, more=more
            )
    a, b = (each and named(each.kind, each.part) for each in kernel.verdicts)
    if a and b and a != b:
        yield say("was {a}, is {b}", a=a, b=b)


# Programs


def program_summary(of: ProgramComparison) -> Iterator[str]:
    """How the time of the GPUs changed, and what accounts for it."""
    a_ms, b_ms, ms = (value / 1e3 for value in (of.window.a, of.window.b, of.window.us))
    values = {"a_ms": a_ms, "b_ms": b_ms, "ms": ms, "pct": 100 * of.share, "gpus": len(of.ranks)}
    if of.work != 1.0:
        yield say(
            "B's trace holds {work_pct:.0f}% {more} work in {b_ms:,.1f} ms than A's in {a_ms:,.1f} ms; at equal work B "
            "takes {ms:+,.1f} ms ({pct:+.1f}%).",
            work_pct=100 * abs(of.work - 1),
            more="more" if of.work > 1 else "less",
            **values,
        )
    elif not ms and not any(each.us for each in of.kernels):
        yield say("The same numbers: {a_ms:,.1f} ms on {gpus:GPU|GPUs}.", **values)
    else:
        yield say(
            "From the first work to the last on {gpus:GPU|GPUs}: {a_ms:,.1f} → {b_ms:,.1f} ms ({ms:+,.1f} ms, "
            "{pct:+.1f}%).",
            **values,
        )
    if why := program_reasons(of):
        yield say("Most of it: {reasons}.", reasons="; ".join(why))


def program_warnings(of: ProgramComparison) -> tuple[Finding, ...]:
    """What makes it doubtful."""
    if of.common >= LITTLE_IN_COMMON:
        return ()
    words = "only {share:.0%} of the kernels' time is in kernels that both sides have: these are different programs"
    return (finding("other_program", words, share=of.common),)


def program_reasons(of: ProgramComparison) -> list[str]:
    """What accounts for most of the change, the most first: parts in its direction that are at least LEADS of it."""
    matched = {Match.NEW: "{kernel} is new, {ms:+,.1f} ms", Match.GONE: "{kernel} is gone, {ms:+,.1f} ms"}
    found: list[tuple[float, str, dict[str, Any]]] = [
        (each.us, matched.get(each.match, "{kernel} {ms:+,.1f} ms"), {"kernel": short_kernel(each.shown.kernel)})
        for each in of.kernels
        # Waiting for other ranks is no kernel's own.
        if not (of.waits and COLLECTIVE.search(each.shown.kernel))
    ]
    found.append((of.parts[PartKind.COPIES].us, "copies alone {ms:+,.1f} ms", {}))
    if of.waits:
        found.append((of.waits.us, "ranks wait for each other {ms:+,.1f} ms", {}))
    idle_us = of.parts[PartKind.IDLE].us
    causes: dict[Any, float] = defaultdict(float)
    for each in of.idle:
        causes[each.item] += each.us
    if causes:
        cause = max(causes, key=lambda each: causes[each] * math.copysign(1.0, idle_us))
        words = "idle GPUs {ms:+,.1f} ms, of it {cause} {cause_ms:+,.1f} ms"
        found.append((idle_us, words, {"cause": cause, "cause_ms": causes[cause] / 1e3}))
    leading = [each for each in found if each[0] * of.window.us > 0 and abs(each[0]) >= LEADS * abs(of.window.us)]
    return [say(words, ms=us / 1e3, **values) for us, words, values in sorted(leading, key=lambda each: -abs(each[0]))]


# What to measure

UNKNOWN = ["A", "B"]
"""Sides in place of those that the runs do not tell."""


def suggest_measure(found: RunComparison) -> str:
    """``fiprof compare --measure …`` of the case that changed most, or of the program: it tells noise from change where
    one process a side cannot."""
    runs = found.a.run, found.b.run
    options: list[str] = []
    if found.cases:
        pair = found.cases[0].pair
        sides = _sides(runs, pair)
        # Of an import the cases are ranges that nobody can measure by their names.
        if not any(run.imported for run in runs):
            options = _options(pair)
    else:
        commands = [run.environment("program", "command") for run in runs]
        sides = [f"program:{shlex.join(map(escape_control, command))}" for command in commands if command]
    distinct = len(sides) == 2 and len({*sides}) > 1
    return shlex.join(["fiprof", "compare", "--measure", *(sides if distinct else UNKNOWN), *options])


def _sides(runs: tuple[Run, Run], pair: CasePair) -> list[str]:
    """What differs between the sides, as ``--measure`` takes it; nothing where the runs do not tell."""
    items: list[list[str]] = [[], []]
    commits, pythons = ([run.environment("git") for run in runs], [run.manifest.settings.get("python") for run in runs])
    for kind, values in (("git", commits), ("python", pythons)):
        if values[0] != values[1] and all(isinstance(each, str) and not each.endswith("-dirty") for each in values):
            for side, value in zip(items, values, strict=True):
                side.append(f"{kind}:{escape_control(value)}")
    if pair.different:
        for side, params in zip(items, (written(pair.a), written(pair.b)), strict=True):
            side.append("params:" + ",".join(f"{name}={params[name]}" for name in pair.different))
    return [",".join(side) for side in items]


def _options(pair: CasePair) -> list[str]:
    """The workload, and the parameters that both sides have."""
    name = pair.b.workload
    words = ["--workload" if ".py:" in name else "--kernel", escape_control(name)]
    for key, value in written(pair.b).items():
        if key not in pair.different:
            words += [f"--{key.replace('_', '-')}", escape_control(value)]
    return words
