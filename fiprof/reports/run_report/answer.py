"""The first screen of a report: what limits each kernel, how far it is from that, and what to do first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.check_rules import Check
from fiprof.analysis.comm.comm import comm
from fiprof.analysis.idle import activities
from fiprof.analysis.thresholds import SOME_WAITING, WAITING
from fiprof.analysis.verdict.model import CaseBound, CaseVerdict, Kind, Part
from fiprof.analysis.verdict.steps import Step, TimeOf
from fiprof.model import packs
from fiprof.model.provenance import TracedNumber, TracedText, sentence
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.wording import say
from fiprof.reports import verdict_words as words
from fiprof.reports.comm import summary
from fiprof.reports.pages.page import Answer, AnswerRow, Block, Caution, Link, Section, Text, Use
from fiprof.reports.run_report.entries import Entry, KernelEntries
from fiprof.reports.words import phrase, worded
from fiprof.text import escape_control, join_words, short_kernel

MOST_ROWS = 5
"""Kernels on the first screen of a phone."""
MOST_FOLDED = 40
"""Kernels below them."""
MOST_NAMED = 3
"""Workloads or kernels that a title names."""

USES: dict[str, Part | Kind] = {
    "compute": Kind.COMPUTE,
    "DRAM": Part.DRAM,
    "L2": Part.L2,
    "issue": Part.ISSUE_SLOTS,
}
"""Bar of a kernel -> the resource whose use it shows, of a kind the busiest: numbers that a verdict is made from."""


# What the run is


def title(runs: Sequence[Run], kernels: Sequence[KernelEntries]) -> str:
    """``FlashInfer prefill, decode and RoPE on NVIDIA H200``: of what is known of the runs.

    Of a program, or of imported files, what it was and then the kernels.
    """
    named = _named([short_kernel(each.kernel) for each in kernels])
    programs = _named(list(dict.fromkeys(filter(None, map(_program, runs)))))
    what = _workloads(runs) or programs or named
    gpus = dict.fromkeys(str(gpu) for run in runs if (gpu := run.environment("gpu", "name")))
    what = what or ", ".join(escape_control(run.manifest.name) for run in runs)
    said = say("{what} on {gpu}", what=what, gpu=escape_control(" and ".join(gpus))) if gpus else what
    said = say("{count} runs of {what}", count=len(runs), what=said) if len(runs) > 1 else said
    return say("{what}: {kernels}", what=said, kernels=named) if what == programs and named else said


def _program(run: Run) -> str:
    """The command in short, from the program's file on; of an imported run its first file."""
    command, files = (run.environment("program", each) or () for each in ("command", "files"))
    words = [str(word) for word in command] or [file.source for file in run.manifest.imported[:1]]
    first = next((place for place, word in enumerate(words) if word in files), 0)
    return short_kernel(" ".join([PurePath(words[first]).name, *words[first + 1 :]])) if words else ""


def _workloads(runs: Sequence[Run]) -> str:
    """The families of the workloads; empty for no workload."""
    workloads = list(dict.fromkeys(case.workload for run in runs if not run.of_program for case in run.cases))
    for pack, known in packs.parts("kernels").items():
        families = dict.fromkeys(each.family for name, each in known.items() if name in workloads and each.family)
        if families and all(workload in known and known[workload].family for workload in workloads):
            libraries = list(packs.parts("packages").get(pack, {}).values())
            return say("{library} {families}", library=join_words(libraries), families=tuple(families)).strip()
    return _named([escape_control(workload.rpartition(":")[2]) for workload in workloads])


def _named(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    if len(names) <= MOST_NAMED + 1:
        return join_words(names)
    return say("{names} and {count} more", names=", ".join(names[:MOST_NAMED]), count=len(names) - MOST_NAMED)


# The table


def section(kernels: Sequence[KernelEntries], found: Sequence[Entry], runs: Sequence[Analyses]) -> Section:
    """What limits each kernel, and what makes the run doubtful.

    found: the entries of one run, the one with most time first. Raises FiprofError for a table that cannot be read.
    """
    anchors = {each.kernel: each.anchor for each in kernels}
    rows = [_row(entry, anchors) for entry in found[: MOST_ROWS + MOST_FOLDED]]
    blocks: list[Block] = [Caution(text) for text in doubts(runs)]
    if rows:
        first = _first(found[: len(rows)], anchors)
        shown, more = tuple(rows[:MOST_ROWS]), tuple(rows[MOST_ROWS:])
        blocks.append(Answer("answer-kernels", shown, more, phrase("answer.more", count=len(more)), first))
    if len(rows) < len(found):
        blocks.append(Text((phrase("answer.left_out", shown=len(rows), all=len(found)),)))
    blocks += [Text((Link(checked(checks.every(measured.run)), "#sure"),)) for measured in runs]
    return Section("answer", phrase("answer.title"), tuple(blocks))


def doubts(runs: Sequence[Analyses]) -> Iterable[str]:
    """What makes a report doubtful as a whole: how its runs ended, and what they have nothing of."""
    for measured in runs:
        yield from map(worded, measured.run.status_warning())
        yield from _idle(measured.run)
        yield from _waiting(measured.run)
        yield from (phrase("summary.lacks", what=what, why=why) for what, why in _lacks(measured.run))


def _idle(run: Run) -> Iterable[str]:
    """Of a program, the GPUs that mostly had nothing to do: no faster kernel helps much there."""
    found = activities(run) if run.has("kernels") and (run.of_program or not run.cases) else ()
    shares = [(each.device, each.idle_ns / each.window_ns) for each in found if each.window_ns]
    idle = {device: share for device, share in shares if share >= WAITING.share}
    if len(idle) == 1:
        ((gpu, share),) = idle.items()
        yield phrase("summary.idle", gpu=gpu, idle=share, run=run.manifest.name)
    elif idle:
        shown = {"gpus": tuple(idle), "least": min(idle.values()), "most": max(idle.values())}
        yield phrase("summary.idle_several", **shown, run=run.manifest.name)


def _waiting(run: Run) -> Iterable[str]:
    """Of several ranks, whom the others wait for, where that takes a part of the steps worth a word."""
    found = comm(run) if run.has("kernels") and ranks_of(run).several else None
    if found and max((each.lost_share or 0.0 for each in found.ranks), default=0.0) >= SOME_WAITING.share:
        yield phrase("summary.waiting", said=summary(found), run=run.manifest.name)


def _lacks(run: Run) -> Iterable[tuple[str, str]]:
    """What the run has nothing of, and why."""
    if not run.launches:
        yield phrase("summary.counters"), worded(run.missing("ncu"))
    if not run.has("kernels"):
        yield phrase("summary.story"), worded(run.missing("nsys"))
    elif (run.cases or run.imported) and not run.trace.cases:
        why = phrase(f"summary.{'other_ranges' if run.has('ranges') else 'no_ranges'}")
        yield phrase("summary.case_times"), worded(run.missing("nsys")) if run.imported else why
    if run.cases and not run.plain and not run.imported and not run.of_program:
        yield phrase("summary.plain"), phrase("summary.no_plain")


def checked(found: Sequence[Check]) -> str:
    """``61 of 66 checks passed, 1 failed, 4 not possible``."""
    if not found:
        return phrase("answer.no_checks")
    outcomes = [check.passed for check in found]
    counts = {"passed": outcomes.count(True), "failed": outcomes.count(False), "unknown": outcomes.count(None)}
    return phrase("answer.checks", all=len(found), **counts)


def _row(entry: Entry, anchors: dict[str, str]) -> AnswerRow:
    verdict, of_case = entry.verdict, _of_case(entry)
    step = next(iter(verdict.steps), None) if verdict else None
    limit: str = phrase("answer.only_traced")
    distance = confidence = ""
    if verdict is not None:
        limit, distance, confidence = words.short_title(verdict), words.distance(verdict), worded(verdict.confidence)
        failed = sum(check.launch == verdict.launch for check in checks.failed(entry.measured.run))
        if failed:
            confidence = phrase("answer.doubted", confidence=confidence, checks=failed)
    elif of_case is not None and of_case.bound in (CaseBound.HOST, CaseBound.COPIES):
        number = of_case.waiting if of_case.bound is CaseBound.HOST else of_case.copying
        limit = words.case_kind(of_case)
        distance = phrase(f"case_distance.{of_case.bound.value}", number=number and number.number)
    return AnswerRow(
        kernel=Link(entry.name, f"#{anchors[entry.kernel]}") if entry.kernel in anchors else entry.name,
        case=entry.case_name,
        time=time_of(entry),
        limit=limit,
        distance=distance,
        step=short(step) if step else phrase("answer.no_step"),
        gain=gain(step) if step else "",
        confidence=confidence,
        uses=tuple(Use(name, use) for name, use in uses(entry)),
    )


def uses(entry: Entry) -> Iterable[tuple[str, TracedNumber | None]]:
    """The kernel's bars; none without counters."""
    if entry.verdict is not None:
        for name, what in USES.items():
            found = next((item for item in entry.verdict.resources if what in (item.part, item.kind)), None)
            yield name, found.comparison.number.as_(".0f", "%") if found and found.comparison else None


def time_of(entry: Entry) -> TracedText:
    """``300.05 µs``, ``1.20 µs x 50``."""
    time = entry.time
    if time is None:
        return sentence("–")
    return phrase("answer.count", time=time, count=entry.count) if entry.count > 1 else sentence("{}", time)


def _of_case(entry: Entry) -> CaseVerdict | None:
    return next((case for case in entry.measured.verdicts.cases if case.case == entry.case), None)


# Steps


def short(step: Step) -> TracedText:
    """The step in a few words."""
    return say(step.short, **step.action.values)


def gain(step: Step) -> TracedText:
    """``1.33x faster, measured``; ``saves at most 33%``."""
    factor = step.basis.values.get("factor")
    if step.measured_pct is not None and isinstance(factor, TracedNumber):
        return phrase("answer.faster", factor=factor)
    if step.bound is not None:
        return phrase("answer.bound", bound=step.bound)
    if step.bound_pct is not None:
        return phrase("answer.unnumbered")
    return phrase("answer.estimated" if step.estimate_pct is not None else "answer.unbound")


def _first(found: Sequence[Entry], anchors: dict[str, str]) -> Text | None:
    """What to do first: what was measured to be faster, else what may save most time of an iteration."""
    steps = [(entry, step) for entry in found if entry.verdict for step in entry.verdict.steps[:1]]
    worth = [(_saving_us(*pair), pair) for pair in steps if pair[1].id != "ncu_rule"]
    if not worth:
        return None
    _, (entry, step) = max(worth, key=lambda item: (item[1][1].measured_pct is not None, item[0]))
    named = f"{entry.name} ({entry.case_name})" if entry.case_name else entry.name
    told = phrase("answer.step", step=step.action, gain=gain(step))
    return Text((phrase("answer.first"), Link(named, f"#{anchors[entry.kernel]}"), told))


def _saving_us(entry: Entry, step: Step) -> float:
    """Of an iteration, at most."""
    pct = step.measured_pct if step.measured_pct is not None else step.size_pct
    return entry.total_us * (pct or 0.0) / 100 if step.of is TimeOf.LAUNCH else (pct or 0.0) * entry.total_us / 100
