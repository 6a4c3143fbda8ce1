"""Two archived runs compared: their conditions, the pairs of cases, what changed, and the answer in sentences."""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fiprof.analysis.comparison import kernels
from fiprof.analysis.comparison.kernels import Change, FactorKind, KernelChange, Match
from fiprof.analysis.comparison.programs import LEADS, ProgramComparison, compare_programs, program_summary
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.stalls import state
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DRIFT, PROGRAMS_DRIFT, WORTH_CHANGING
from fiprof.analysis.verdict.model import titled
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import BUSY, KERNELS, NCU, NSYS, PEAK_MEMORY, PLAIN, WAITING, WALL
from fiprof.model.finding import Finding, Label, Wording, finding, say, words_of
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Run
from fiprof.model.selection import Labels, by_key, written
from fiprof.model.settings import CollectSettings, ProfileSettings, settings_of
from fiprof.text import csv_rows, escape_control, join_words, short_kernel

MOST_EXPLAINED = 3  # kernels of a case whose counters are compared: those that account for most of its change
TIMES = (PLAIN, NSYS, NCU)
"""What a case's change is measured by, the first that both sides have; none is mixed with another."""
GROWS = (
    (KERNELS, 1, "an iteration runs {b:,g} kernels instead of {a:,g}"),
    (PEAK_MEMORY, 1e6, "it takes {b:,.1f} MB of device memory instead of {a:,.1f}"),
)
"""What a change may make more of beside the time, the unit in which it is told, and how."""
MORE = (WALL, BUSY, WAITING, KERNELS, PEAK_MEMORY)
TIMED_BY = {PLAIN.key: "without a profiler", NSYS.key: "under nsys", NCU.key: "under ncu"}


class Weight(Wording):
    """What a difference in conditions does to a comparison, the worst first; the id of its finding, with its words."""

    REFUSED = "refused", "{what} differs ({a} · {b}): the numbers say nothing about each other"
    COUNTERS = "counters", "{what} differs ({a} · {b}): what ncu measured is not compared; --anyway compares it"
    DOUBTFUL = "doubtful", "{what} differs: {a} · {b}"  # it may cause some of the difference in time
    CHANGED = "changed", "changed: {what} {a} → {b}"  # it may be what the user compares


BOARD = "board"
CONDITIONS = [
    (of, row["title"], row["path"].split("."), Weight(row["weight"]))
    for of, row in csv_rows(Path(__file__).with_name("conditions.csv")).items()
]
"""Conditions of a run: id, title, path in its environment, and what a difference does."""


def conditions(a: Run, b: Run) -> tuple[Finding, ...]:
    """The conditions and settings that both runs record, and that differ, the worst first."""
    findings: list[Finding] = []

    def note(weight: Weight, of: str, values: tuple[Any, Any], title: str = "") -> None:
        """of: an id of CONDITIONS, or the name of a setting, with its title, or of a package."""
        as_words: list[str] = []
        for value in values:
            if isinstance(value, dict):
                value = ", ".join(f"{name} {str(each)[:12]}" for name, each in value.items())
            elif isinstance(value, list | tuple):
                value = " ".join(map(str, value))
            as_words.append(Label("not_installed", "not installed") if value is None else str(value))
        findings.append(finding(weight, weight.words, of=of, what=title or of, a=as_words[0], b=as_words[1]))

    for of, title, path, weight in CONDITIONS:
        x, y = a.environment(*path), b.environment(*path)
        if x != y and None not in (x, y):
            note(weight, of, (x, y), title)
    packages = a.environment("packages"), b.environment("packages")
    for name in ("torch", "flashinfer-python", "triton") if all(packages) else ():
        x, y = (each.get(name) for each in packages)
        if x != y:
            note(Weight.CHANGED, name, (x, y))
    both_ncu = bool(a.launches and b.launches)
    declared = {each.name: each for kind in (CollectSettings, ProfileSettings) for each in settings_of(kind)}
    for name, about in declared.items():
        x, y = (run.manifest.settings.get(name) for run in (a, b))
        if x != y and None not in (x, y) and about.measuring and (both_ncu or about.tool != "ncu"):
            # With another control of clocks and caches ncu measures something else.
            counters = name in ("clock_control", "cache_control", "replay_mode")
            note(Weight.COUNTERS if counters else Weight.DOUBTFUL, name, (x, y), about.title)
    return tuple(sorted(findings, key=lambda each: list(Weight).index(Weight(each.kind))))


CasePair = tuple[CaseEntry, CaseEntry]  # a case of either side; they differ only in what the sides differ in


def different(pair: CasePair) -> dict[str, tuple[object, object]]:
    """Parameter that both cases have with different values -> these values."""
    a, b = (case.params for case in pair)
    return {key: (a[key], b[key]) for key in a if key in b and None not in (a[key], b[key]) and a[key] != b[key]}


def pair_cases(
    a: Sequence[CaseEntry], b: Sequence[CaseEntry]
) -> tuple[list[CasePair], list[CaseEntry], list[CaseEntry]]:
    """The pairs in the order of A, and the cases that are on one side alone.

    Cases with the same parameters are pairs. In the rest of a workload, parameters with one value on each side (the
    backend, of a run with FA2 and one with FA3), or that one side lacks (a newer option), are what the sides differ in:
    cases that agree in all others are a pair, where no third one agrees.
    """
    same = {case.id: case for case in b}
    paired = {case.id: same[case.id] for case in a if case.id in same}
    unpaired = [by_key((case.id.partition("[")[0], case) for case in side if case.id not in paired) for side in (a, b)]
    for workload in unpaired[0].keys() & unpaired[1].keys():
        params = [[written(case.id) for case in side[workload]] for side in unpaired]
        differing = set()
        for name in {name for side in params for each in side for name in each}:
            x, y = ({each.get(name) for each in side} for side in params)
            if {None} in (x, y) or (len(x) == len(y) == 1 and x != y):
                differing.add(name)
        keyed: list[dict[object, CaseEntry]] = []
        for cases, values in zip(unpaired, params, strict=True):
            keys = [frozenset(item for item in each.items() if item[0] not in differing) for each in values]
            count = Counter(keys)
            keyed.append({key: case for key, case in zip(keys, cases[workload], strict=True) if count[key] == 1})
        paired |= {case.id: keyed[1][key] for key, case in keyed[0].items() if key in keyed[1]}
    pairs = [(case, paired[case.id]) for case in a if case.id in paired]
    done = {case.id for _, case in pairs}
    return pairs, [case for case in a if case.id not in paired], [case for case in b if case.id not in done]


@dataclass(frozen=True)
class ArchivedSide:
    """One side of a comparison: a run, or its cases with some parameters."""

    run: Run
    params: Mapping[str, str] = field(default_factory=dict)  # as the cases' ids write them

    def cases(self) -> list[CaseEntry]:
        """Its cases. Raises FiprofError (exit status 2) where it has none with these parameters."""
        params = {case.id: written(case.id) for case in self.run.cases}
        matching = [case for case in self.run.cases if self.params.items() <= params[case.id].items()]
        if self.params and not matching:
            values_of = {name: sorted({each[name] for each in params.values() if name in each}) for name in self.params}
            values = [f"{name}={', '.join(each) or 'in no case'}" for name, each in values_of.items()]
            params_text = ",".join(f"{name}={value}" for name, value in self.params.items())
            name = self.run.manifest.name
            raise FiprofError(f"{name} has no case with {params_text}", f"it has {join_words(values)}", exit_code=2)
        return matching


@dataclass(frozen=True)
class CaseChange:
    """What changed in a pair of cases."""

    pair: CasePair
    label: str  # the case in short
    times: tuple[Change, ...]  # by each tool
    kernels: tuple[KernelChange, ...]  # the largest change first; MOST_EXPLAINED of them with explanations

    @property
    def time(self) -> Change | None:
        """The time by which the change is measured (see TIMES); None where no tool timed both sides."""
        by_key = {each.item: each for each in self.times if each.change is not None}
        return next((by_key[quantity.key] for quantity in TIMES if quantity.key in by_key), None)

    @property
    def us(self) -> float:
        """How much longer side B takes; 0 where that is not known."""
        return (self.time and self.time.change) or 0.0

    @property
    def share(self) -> float | None:
        """How much longer side B takes, as a share of side A's time; None where that is not known or 0."""
        return self.us / self.time.a.value if self.time and self.time.a.value else None

    @property
    def outside_us(self) -> float | None:
        """How much longer side B takes outside its kernels; None where the times are those of the kernels alone."""
        if self.time is None or self.time.item != PLAIN.key or not self.kernels:
            return None
        return self.us - sum(each.us for each in self.kernels)

    @property
    def notable(self) -> bool:
        """Whether its time differs by WORTH_CHANGING percent or more."""
        return abs(self.share or 0.0) >= WORTH_CHANGING / 100


@dataclass(frozen=True)
class RunComparison:
    """Side B against side A."""

    a: ArchivedSide
    b: ArchivedSide
    conditions: tuple[Finding, ...]
    cases: tuple[CaseChange, ...]  # by relative change of time, the largest first; empty where a side has no cases
    program: ProgramComparison | None  # of two traces, where a side has no cases
    launches: tuple[KernelChange, ...]  # of two profiles of ncu without cases and traces
    only_a: tuple[CaseEntry, ...]
    only_b: tuple[CaseEntry, ...]
    has_commit: Callable[[str], bool]  # whether the checkout here has a commit, so that it can be measured

    @property
    def same_run(self) -> bool:
        """Whether both sides are the same cases of one run."""
        return self.a.run.path.resolve() == self.b.run.path.resolve() and self.a.params == self.b.params

    @property
    def confidence(self) -> Finding:
        if self.same_run:
            return finding("same_run", "Both sides are the same run.")
        drift = "One run each: their own noise is not known; processes of the same code have differed by up to "
        drift += "{processes_pct:g}%"
        numbers = {"processes_pct": PROCESSES_DRIFT, "boards_pct": BOARDS_DIFFER}
        if self.program and self.program.held_up:
            drift += ", of programs that wait for the host by up to {programs_pct:g}%"
            numbers["programs_pct"] = PROGRAMS_DRIFT
        if any(each.values["of"] == BOARD for each in self.conditions):
            words = f"{drift}, boards of a kind by about {{boards_pct:g}}%: these are two boards."
            return finding("one_process_two_boards", words, **numbers)
        return finding("one_process", f"{drift}.", **numbers)

    def changes(self) -> Iterator[Change]:
        """The rows of the comparison, case by case; explanations follow what they explain."""
        outcome = Outcome.SAME if self.same_run else Outcome.CANNOT_TELL
        yield Change("side", "run", self.a.run.manifest.name, self.b.run.manifest.name)
        yield Change("outcome", outcome, by=self.confidence.kind)
        for case in self.cases:
            yield from case.times
            if case.outside_us is not None:
                yield Change("outside_kernels", accounts_us=case.outside_us, by="plain", case=case.pair[1].id)
            for kernel in case.kernels:
                yield from kernel.changes(case.pair[1].id)
        if self.program:
            yield from self.program.changes()
        for kernel in self.launches:
            yield from kernel.changes()


def compare(
    a: ArchivedSide,
    b: ArchivedSide,
    *,
    anyway: bool = False,
    entire: bool = False,
    pairs: Sequence[tuple[str, str]] | None = None,
    has_commit: Callable[[str], bool] = lambda _: False,
) -> RunComparison:
    """What changed from side A to side B.

    anyway: compare also what a difference in conditions forbids. entire: compare whole traces of programs. pairs: ids
    of the cases to compare, where the caller knows them. has_commit: whether a commit can be measured here.
    Raises FiprofError where the conditions forbid it, or where the sides have nothing in common.
    """
    names = a.run.manifest.name, b.run.manifest.name
    differing = conditions(a.run, b.run)
    refused = next((each.values for each in differing if each.kind == Weight.REFUSED), None)
    if refused and not anyway:
        what = f"{names[0]} ran on {refused['a']}, {names[1]} on {refused['b']}: their times cannot be compared"
        raise FiprofError(what, "--anyway shows them all the same")
    counters = anyway or not any(each.kind == Weight.COUNTERS for each in differing)
    if pairs is None:
        paired, only_a, only_b = pair_cases(a.cases(), b.cases())
    else:
        entries = ((a.run.case(one), b.run.case(other)) for one, other in pairs)
        paired, only_a, only_b = [(x, y) for x, y in entries if x and y], [], []
    labels = Labels(case.id for _, case in paired)
    cases = []
    for one, other in paired:
        times = []
        for quantity in (*TIMES, *MORE):
            x, y = quantity.traced(a.run, one.id), quantity.traced(b.run, other.id)
            if (x or y) and (counters or quantity is not NCU):
                times.append(Change("case", quantity.key, x, y, unit=quantity.unit, case=other.id))
        of_case = (kernels.kernels_of_case(side.run, case.id) for side, case in ((a, one), (b, other)))
        changes = kernels.kernel_changes(*of_case)
        changes = kernels.explained(changes, a.run, b.run, MOST_EXPLAINED) if counters else changes
        cases.append(CaseChange((one, other), labels(other.id), tuple(times), tuple(changes)))
    if pairs is None:
        cases.sort(key=lambda case: -abs(case.share or 0.0))
    program, launches = None, []
    if not (a.run.cases and b.run.cases):
        if a.run.has("kernels") and b.run.has("kernels"):
            program = compare_programs(a.run, b.run, counters=counters, entire="" if entire else None)
        elif counters and a.run.launches and b.run.launches:
            changes = kernels.kernel_changes(*(kernels.kernels_of_program(side.run) for side in (a, b)))
            launches = kernels.explained(changes, a.run, b.run, MOST_EXPLAINED)
    if not cases and all(each.match in (Match.NEW, Match.GONE) for each in (program.kernels if program else launches)):
        what = f"{names[0]} and {names[1]} have no case and no kernel in common"
        remedy = "fiprof show shows what each has; RUN:PARAM=VALUE chooses some of its cases"
        raise FiprofError(what, "fiprof top shows what each runs" if program else remedy)
    only = tuple(only_a), tuple(only_b)
    return RunComparison(a, b, differing, tuple(cases), program, tuple(launches), *only, has_commit)


def summary(comparison: RunComparison) -> Iterator[str]:
    """The answer in sentences: what changed, why, how sure that is, and what to measure."""
    if comparison.cases:
        first = comparison.cases[0]
        yield case_change(first)
        if first.notable and (why := tuple(reasons(first))):
            yield say("Most of it: {reasons}.", reasons="; ".join(why))
        if len(comparison.cases) > 1:
            times = [case.us if case.notable else 0.0 for case in comparison.cases]
            words = "{count:case|cases} compared: B took longer in {longer}, less time in {shorter}, and within "
            words += "{marked:g}% of A in {within}."
            signs = {"longer": sum(us > 0 for us in times), "shorter": sum(us < 0 for us in times)}
            yield say(words, count=len(times), **signs, within=times.count(0.0), marked=WORTH_CHANGING)
        yield from grown(comparison)
    elif comparison.program:
        yield from program_summary(comparison.program)
    else:
        sides = [[each.a for each in comparison.launches], [each.b for each in comparison.launches]]
        a, b = (sum(each.total_us for each in side if each) for side in sides)
        words = "{count:kernel|kernels} under ncu: B took {b:,.2f} µs instead of {a:,.2f} µs "
        words += "({us:+,.2f} µs, {pct:+.1f}%)."
        yield say(words, count=len(comparison.launches), a=a, b=b, us=b - a, pct=100 * (b / a - 1) if a else math.nan)
    yield words_of(comparison.confidence)
    if not comparison.same_run and (command := suggest_measure(comparison)):
        yield say("To be sure: {command}", command=command)


def grown(comparison: RunComparison) -> Iterator[str]:
    """Of what may grow beside the time, the case in which it grew most, and in how many others it did."""
    sides = comparison.a.run, comparison.b.run
    for quantity, unit, words in GROWS:
        grew = list[tuple[float, float, float, str]]()
        for case in comparison.cases:
            a, b = (quantity.of(run, each.id) for run, each in zip(sides, case.pair, strict=True))
            if a and b and b > a * (1 + WORTH_CHANGING / 100):
                grew.append((b / a, a / unit, b / unit, case.label))
        if grew:
            _, a, b, label = max(grew)
            words += " ({pct:+.1f}%)" + ("; more in {count:other case|other cases} too." if len(grew) > 1 else ".")
            yield say("{case}: " + words, case=label, a=a, b=b, pct=100 * (b / a - 1), count=len(grew) - 1)


def case_change(case: CaseChange) -> str:
    if case.time is None:
        return say("{case}: no tool timed it on both sides.", case=case.label)
    values = {"case": case.label, "a": case.time.a, "b": case.time.b, "by": TIMED_BY[str(case.time.item)]}
    if not case.us:
        return say("{case}: the same numbers, {a} {by}.", **values)
    pct = math.nan if case.share is None else 100 * case.share
    words = "{case}: B took {b} instead of {a} {by} ({us:+,.2f} µs, {pct:+.1f}%)."
    return say(words, us=case.us, pct=pct, **values)


_MATCHED = {
    Match.SAME: "{kernel} accounts for {us:+,.2f} µs",
    Match.RENAMED: "{kernel}, with other template arguments, accounts for {us:+,.2f} µs",
    Match.REPLACED: "{kernel} in place of {before} accounts for {us:+,.2f} µs",
    Match.NEW: "{kernel} is new: {us:+,.2f} µs",
    Match.GONE: "{kernel} is gone: {us:+,.2f} µs",
}
_FACTORS = {
    FactorKind.INSTRUCTIONS: "{pct:.0f}% {more} instructions",
    FactorKind.STALL: "{reason.short} ({reason}): {a:.2f} → {b:.2f} cycles an instruction",
    FactorKind.WARPS: "{a:.1f} → {b:.1f} warps in flight a scheduler",
    FactorKind.ACTIVE: "multiprocessors busy {a:.0%} → {b:.0%} of the launch",
    FactorKind.CLOCK: "clock {a:.3f} → {b:.3f} GHz",
}


def reasons(case: CaseChange) -> Iterator[str]:
    """What accounts for most of a case's change: a kernel, with why its launch differs, or the time outside kernels."""
    if not case.us:
        return
    outside = case.outside_us or 0.0
    kernel = next((each for each in case.kernels if each.us * case.us > 0), None)
    if not kernel or abs(kernel.us) < max(outside * math.copysign(1.0, case.us), LEADS * abs(case.us)):
        if outside * case.us > 0 and abs(outside) >= LEADS * abs(case.us):
            yield say("the time outside the kernels accounts for {us:+,.2f} µs", us=outside)
        return
    before = short_kernel(kernel.a.kernel) if kernel.a else ""
    yield say(_MATCHED[kernel.match], kernel=short_kernel(kernel.shown.kernel), us=kernel.us, before=before)
    # The largest factor of its launch in that direction; a launch that changed in the other direction explains nothing.
    if kernel.launch_us * kernel.us > 0:
        factor = next((each for each in kernel.because("factor") if each.us * kernel.launch_us > 0), None)
        if factor and factor.detail is not FactorKind.REST:
            pct = 100 * abs(factor.b / factor.a - 1) if factor.detail is FactorKind.INSTRUCTIONS else 0.0
            more = "more" if factor.us > 0 else "fewer"
            reason = state(factor.item or "")
            yield say(_FACTORS[factor.detail], reason=reason, a=factor.a, b=factor.b, pct=pct, more=more)
    a, b = (each and titled(each.names) for each in kernel.verdicts)
    if a and b and a != b:
        yield say("was {a}, is {b}", a=a, b=b)


def suggest_measure(comparison: RunComparison) -> str:
    """``fiprof compare --measure …`` of the case that changed most, or of the program, which tells noise from change as
    one process a side cannot. Each side is what the runs differ in; empty where they do not record that, or cannot be
    measured again, as a server that was traced for some seconds."""
    runs = comparison.a.run, comparison.b.run
    options: list[str] = []
    items: list[list[str]] = [[], []]
    for kind, values in (
        ("git", [run.environment("git") for run in runs]),
        ("python", [run.manifest.settings.get("python") for run in runs]),
    ):
        if values[0] != values[1] and all(isinstance(each, str) for each in values):
            if kind == "git" and not all(
                each.endswith("-dirty") or comparison.has_commit(each) for each in map(str, values)
            ):
                continue
            for side, value in zip(items, values, strict=True):
                # What was in no commit is, at best, what is here.
                side += [] if value.endswith("-dirty") else [f"{kind}:{escape_control(value)}"]
    commands = [run.environment("program", "command") for run in runs]
    if comparison.cases and not any(run.imported for run in runs):
        pair = comparison.cases[0].pair
        differing = different(pair)
        for side, case in zip(items, pair, strict=True):
            params = ",".join(f"{name}={written(case.id)[name]}" for name in differing)
            side += [f"params:{params}"] if params else []
        options = ["--workload" if ".py:" in pair[1].workload else "--kernel", escape_control(pair[1].workload)]
        for key, value in written(pair[1].id).items():
            if key not in differing:
                options += [f"--{key.replace('_', '-')}", escape_control(value)]
    elif not comparison.cases and all(commands) and not any(run.manifest.settings.get("duration_s") for run in runs):
        for side, command in zip(items, commands, strict=True):
            side.append(f"program:{shlex.join(map(escape_control, command))}")
    else:
        return ""
    sides = [",".join(side) or "here" for side in items]
    if sides[0] == sides[1] or sides[0] == "here":
        return ""
    return shlex.join(["fiprof", "compare", "--measure", *sides, *options])
