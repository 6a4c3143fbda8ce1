"""What each parameter of a workload does to the time, where cases of a run differ in it alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fiprof.analysis import alternatives
from fiprof.analysis.alternatives import Difference, Measure
from fiprof.analysis.analyses import Analyses, Group
from fiprof.model import knowledge
from fiprof.model.case_quantities import KERNEL_TIME, iterations
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, join, sentence
from fiprof.model.quantities import DRAM_SHARE, MILLION_INSTRUCTIONS, metric
from fiprof.model.work import work_share
from fiprof.reports.pages.page import Observation
from fiprof.reports.words import phrase

MOST_PLACES = 4
"""That a choice of a parameter is recommended for by name; lines come with the largest difference first."""
FEWER_INSTRUCTIONS = 1.2
"""Ratio of executed instructions from which it is named beside a faster time."""
CLOSER_TO_ROOF = 0.05
"""Difference of DRAM's share of its roof, likewise."""
MOST_LINES = 8
"""Of evidence in a finding."""


def findings(measured: Analyses) -> Iterable[Observation]:
    """A finding for each parameter in which alone some cases differ.

    Raises FiprofError for a table that cannot be read.
    """
    for (workload, key), groups in _groups(measured).items():
        value = groups[0][0].params[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        scaling = number and not _is_option(workload, key)
        yield (_scaling if scaling else _choice)(measured, workload, key, groups)


def _time(measured: Analyses, case: CaseEntry) -> TracedNumber:
    time = KERNEL_TIME.traced(measured.run, case.id)
    assert time is not None
    return time


def _groups(measured: Analyses) -> dict[tuple[str, str], list[list[CaseEntry]]]:
    """Workload and parameter -> the cases that differ in it alone, those with the same rest together."""
    series: dict[tuple[str, str, tuple[object, ...]], list[CaseEntry]] = defaultdict(list)
    for case in measured.run.manifest.cases:
        for key in case.params:
            same = alternatives.problem(case.workload, case.params) if _is_option(case.workload, key) else None
            rest = tuple((name, value) for name, value in case.params.items() if name != key)
            series[case.workload, key, (same, *rest)].append(case)
    of_parameter: dict[tuple[str, str], list[list[CaseEntry]]] = defaultdict(list)
    for (workload, key, _), members in series.items():
        timed = [case for case in members if KERNEL_TIME.traced(measured.run, case.id) is not None]
        if len(timed) > 1:
            of_parameter[workload, key].append(timed)
    return of_parameter


@dataclass(frozen=True)
class _Line:
    """The slowest and the fastest value of a parameter, the rest being equal."""

    where: str
    slow: CaseEntry
    fast: CaseEntry
    ratio: TracedNumber
    """Time of the slow one over that of the fast one."""
    times: TracedText
    certain: Difference | None


def _line(measured: Analyses, key: str, members: Sequence[CaseEntry]) -> _Line:
    timed = {each.id: each for each in measured.run.once(alternatives.timed)}
    plain = {case.id: time for case in members if (time := alternatives.plain_time(timed[case.id])) is not None}
    times = {case.id: plain[case.id] if len(plain) == len(members) else _time(measured, case) for case in members}
    ordered = sorted(members, key=lambda case: times[case.id].value)
    fast, slow = ordered[0], ordered[-1]
    return _Line(
        _where(measured, members, key),
        slow,
        fast,
        times[slow.id] / times[fast.id],
        join(", ", [sentence("{} {}", _value(case, key), times[case.id]) for case in ordered]),
        alternatives.difference(timed[slow.id], timed[fast.id]),
    )


def _choice(measured: Analyses, workload: str, key: str, groups: Sequence[Sequence[CaseEntry]]) -> Observation:
    """Which value of an option, a switch or a word is faster, at each setting of the rest."""
    lines = sorted(
        (_line(measured, key, members) for members in groups),
        key=lambda line: (line.certain is None, -line.ratio.value),
    )
    first = lines[0]
    fast, slow = _value(first.fast, key), _value(first.slow, key)
    evidence = [
        phrase(
            f"finding_choice.{'line' if line.certain else 'uncertain'}", times=line.times, ratio=line.ratio,
            where=f"{line.where}: " if line.where else "",
        )
        for line in lines[:MOST_LINES]
    ]  # fmt: skip
    if states := _states(measured, first.fast, first.slow):
        where = f"{first.where}: " if first.where else ""
        evidence.append(phrase("finding_choice.states", where=where, fast=fast, slow=slow, states=states))
    said = phrase(
        f"finding_choice.{'faster' if first.certain else 'same'}", workload=workload, key=key, fast=fast, slow=slow,
        ratio=max((line.ratio for line in lines), key=lambda ratio: ratio.value) if not first.certain else first.ratio,
        at=f" at {first.where}" if first.where else "", why=_why(measured, first.fast, first.slow),
    )  # fmt: skip
    return Observation(
        anchor=f"finding-{slug(workload)}-{slug(key)}",
        observation=said,
        evidence=tuple(evidence),
        implication=_advice(measured, workload, key),
        sure=_certain(first.certain),
    )


def _certain(found: Difference | None) -> str:
    if found is None:
        return phrase("finding_choice.sure_none")
    return phrase(
        f"finding_choice.sure_{found.observed}", count=found.count, low=found.factor.low, high=found.factor.high
    )


def _advice(measured: Analyses, workload: str, key: str) -> str:
    """Which value to prefer where, as far as that is a choice."""
    if not _is_option(workload, key):
        return phrase("finding_choice.not_an_option", key=key)
    places: dict[tuple[str, Measure], list[str]] = defaultdict(list)
    for case in measured.run.cases:
        found = alternatives.of_run(measured.run).get(case.id)
        if case.workload == workload and found and [change.name for change in found.changes] == [key]:
            value = format_switch(found.changes[0].instead)
            places[value, found.measure].append(_where(measured, [case], key))
    if not places:
        return phrase("finding_choice.no_gain", key=key)
    preferred = tuple(
        phrase(f"finding_choice.{measure}{'_at' if any(found) else ''}", key=key, value=value, places=_places(found))
        for (value, measure), found in places.items()
    )
    return phrase("finding_choice.prefer", values=join("; ", preferred))


def _is_option(workload: str, key: str) -> bool:
    known = knowledge.of_workload(workload)
    return known is not None and key in known.options


def _places(places: Sequence[str]) -> str:
    """The first places, those of several values each in parentheses, and how many more there are."""
    named = [f"({place})" if ", " in place else place for place in places[:MOST_PLACES]]
    rest = len(places) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _scaling(measured: Analyses, workload: str, key: str, groups: Sequence[Sequence[CaseEntry]]) -> Observation:
    """How the time grows with a number."""
    evidence, growths, starved = [], [], []
    for members in groups:
        ordered = sorted(members, key=lambda case: float(case.params[key]))
        where = _where(measured, members, key)
        growths.append((_time(measured, ordered[-1]) / _time(measured, ordered[0]), ordered))
        moved = [_rate(measured, case) for case in ordered]
        rates = [rate for rate in moved if rate is not None]
        steps = [
            sentence("{} {}{}", _value(case, key), _time(measured, case), sentence(" ({})", rate) if rate else "")
            for case, rate in zip(ordered, moved, strict=True)
        ]
        evidence.append(sentence("{}{} {}", f"{where}: " if where else "", key, join("; ", steps)))
        if len(rates) > 1 and rates[0].value < max(rate.value for rate in rates) / 2:
            starved.append((where, ordered[0], rates[0], max(rates, key=lambda rate: rate.value)))
    (growth, ordered) = max(growths, key=lambda pair: pair[0].value)
    least = _least(ordered[-1]) / _least(ordered[0]) if _least(ordered[0]) else None
    work = f" for {least:.4g} times the least {'bytes' if ordered[0].bytes_read else 'work'}" if least else ""
    lowest = min((pair[0] for pair in growths), key=lambda fact: fact.value)
    grows = sentence("{}", growth) if len(growths) == 1 else sentence("{} to {}", lowest, growth)
    means = sentence("It tells what a larger case costs; no case wastes more than half of another's rate.")
    if starved:
        where, case, rate, best = starved[0]
        means = sentence(
            "The small cases do not fill the GPU: at {} {}{} the least bytes move at {}, at best at {}. There more "
            "work in a launch costs less time than its share.",
            key, _value(case, key), f" ({where})" if where else "", rate, best,
        )  # fmt: skip
    return Observation(
        anchor=f"finding-{slug(workload)}-{slug(key)}",
        observation=sentence(
            "{}: from {} {} to {} the time grows {} times{}.",
            workload, key, _value(ordered[0], key), _value(ordered[-1], key), grows, work,
        ),
        evidence=tuple(evidence[:MOST_LINES]),
        implication=means,
        sure=sentence("{} Rates are of the bytes that the algorithm needs.", _how_sure(measured, ordered[0])),
    )  # fmt: skip


def slug(name: str) -> str:
    """A name as a part of an anchor; of a workload from a file its last part."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name.rpartition(":")[2])


def _value(case: CaseEntry, key: str) -> str:
    return format_switch(case.params.get(key))


def format_switch(value: object) -> str:
    """A value of a parameter as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _where(measured: Analyses, members: Sequence[CaseEntry], key: str) -> str:
    """``batch 32``: the other parameters in which the workload's cases differ."""
    cases = [case for case in measured.run.manifest.cases if case.workload == members[0].workload]
    words = [
        f"{name} {_value(members[0], name)}"
        for name in members[0].params
        if name != key and len({_value(case, name) for case in cases}) > 1
    ]
    return ", ".join(words)


def _least(case: CaseEntry) -> float:
    return float(case.bytes_read + case.bytes_written or case.flops)


def _rate(measured: Analyses, case: CaseEntry) -> TracedNumber | None:
    """The least bytes over the time."""
    moved, time = case.bytes_read + case.bytes_written, _time(measured, case)
    if not moved or not time.value:
        return None
    least = Provenance("run.json", "bytes_read + bytes_written", case=case.id)
    return TracedNumber(
        moved / time.value / 1e3, Provenance("facts", "a / b / 1000", parts=(least, time.source)), ",.0f", " GB/s"
    )


def _how_sure(measured: Analyses, case: CaseEntry) -> str:
    count = iterations(measured.run, case.id)
    if count is not None:
        return sentence("kernel time by nsys, the median of {} iterations each.", count)
    return "kernel time by ncu, one launch each: differences of a few percent mean nothing."


def _why(measured: Analyses, fast: CaseEntry, slow: CaseEntry) -> TracedText:
    """What the hardware did differently in the main kernel, where it is much; begins with a colon, or is empty."""
    quick, other = _main(measured, fast.id), _main(measured, slow.id)
    if quick is None or other is None:
        return sentence("")
    told = []
    first, second = (group.median.traced(metric("instructions")) for group in (quick, other))
    if first is not None and second is not None and second.value >= FEWER_INSTRUCTIONS * first.value > 0:
        told.append(sentence("it executes {} times fewer instructions", second / first))
    first, second = (group.median.traced(DRAM_SHARE) for group in (quick, other))
    if first is not None and second is not None and abs(first.value - second.value) >= CLOSER_TO_ROOF:
        told.append(sentence("DRAM is at {} of its roof instead of {}", first, second))
    first, second = (group.median.traced(metric("tensor_active_pct"), spec=".1f") for group in (quick, other))
    if first is not None and second is not None and abs(first.value - second.value) >= CLOSER_TO_ROOF * 100:
        told.append(sentence("the tensor cores are active in {} instead of {}", first, second))
    return (
        sentence(": {}", join(" and ", [join(", ", told[:-1]), told[-1]] if told[1:] else told))
        if told
        else sentence("")
    )


def _states(measured: Analyses, fast: CaseEntry, slow: CaseEntry) -> TracedText | None:
    """The state of the hardware in the kernel of each that took most time."""
    quick, other = _main(measured, fast.id), _main(measured, slow.id)
    if quick is None or other is None:
        return None
    told = []
    works = [_work(measured, group) for group in (quick, other)]
    if works[0] is not None and works[1] is not None:
        told.append(sentence("{} against {}", works[0], works[1]))
    pairs: tuple[tuple[str, Callable[[Group], TracedNumber | None]], ...] = (
        ("DRAM", lambda group: group.median.traced(DRAM_SHARE)),
        ("tensor cores", lambda group: group.median.traced(metric("tensor_active_pct"), spec=".1f")),
        ("issue", lambda group: group.median.traced(metric("issue_active_pct"), spec=".1f")),
        ("warps", lambda group: group.median.traced(metric("achieved_occupancy_pct"), spec=".1f")),
        ("million instructions", lambda group: group.median.traced(MILLION_INSTRUCTIONS)),
    )
    for name, of in pairs:
        first, second = of(quick), of(other)
        if first is not None and second is not None:
            told.append(sentence("{} {} against {}", name, first, second))
    stalls = [_first_stall(measured, group) for group in (quick, other)]
    if stalls[0] is not None and stalls[1] is not None:
        told.append(sentence("first stall {} against {}", stalls[0], stalls[1]))
    return join(", ", told) if told else None


def _work(measured: Analyses, group: Group) -> TracedText | None:
    """``tensor fp16 mma 49.9%``: the launch's main work, of its roof."""
    item = measured.rooflines.get(group.launch)
    share = group.median.traced(work_share(item.work.kind)) if item is not None and item.work is not None else None
    return sentence("{} {}", item.work.kind, share) if item is not None and item.work is not None and share else None


def _main(measured: Analyses, case: str) -> Group | None:
    return next((group for group in measured.longest if group.case == case), None)


def _first_stall(measured: Analyses, group: Group) -> TracedText | None:
    mix = measured.stall_mixes.get(group.launch)
    top = next(iter(mix.waiting), None) if mix is not None else None
    if mix is None or top is None or (share := mix.traced(top)) is None:
        return None
    return sentence("{} {}", top.reason, share)
