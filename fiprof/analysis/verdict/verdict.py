"""What binds each launch and each case of a run, with the evidence, how sure it is, and what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.verdict import quoted_rules
from fiprof.analysis.verdict import steps as advice
from fiprof.analysis.verdict.model import CLOSE_POINTS, WAITING, Comparison, Judgement
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.rules import (
    BUSY_PCT,
    SATURATED_PCT,
    STALL_SHARE_PCT,
    STALL_SOURCE,
    WAITING_PCT,
    WAITING_SOURCE,
    judge,
)
from fiprof.analysis.verdict.steps import Reason, Situation, Step
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import KERNEL_TIME
from fiprof.model.expressions import Row
from fiprof.model.finding import Finding
from fiprof.model.labels import names_kernel_or_case
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, sentence
from fiprof.model.quantities import DRAM_BYTES, TENSOR_OPS, stall_provenance, work_ops
from fiprof.model.run import Run
from fiprof.text import short_kernel

Sure = Literal["high", "fair", "low"]

SHORT_US = 10.0
"""A launch below it: its start and end, some 2 µs on an H200, weigh in every counter."""
BARELY_POINTS = 2.0
"""A margin below it decides nothing: replays of one kernel differ by as much."""


@dataclass(frozen=True)
class LaunchVerdict:
    """What binds a launch."""

    launch: int
    """ncu's ID."""
    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    kernel: str
    grid: str
    iteration: int | None
    repeated: bool
    """Whether the run has this kernel of this case more than once."""
    duration_us: float | None
    """By ncu."""
    share: float | None
    """Of the time of its iteration's kernels under ncu, 0 to 1; None without a case."""
    judgement: Judgement
    """The verdict, its readings and the runner-up."""
    sure: Sure
    doubts: tuple[Finding | str, ...]
    """Why it is not surer."""
    steps: tuple[Step, ...]
    """What to do next, the largest gain first; at most three."""
    rules: tuple[QuotedRule, ...]
    """ncu's own rules with an estimate, the largest first, each with why it is no step."""

    @property
    def title(self) -> str:
        """The verdict, e.g. ``memory-bound (DRAM)``."""
        return self.judgement.title

    @property
    def reason(self) -> TracedText:
        """The verdict with the reading that decided it."""
        readings = self.judgement.readings
        return sentence("{}: {}", self.title, readings[0].said()) if readings else sentence("{}", self.title)

    @property
    def runner_up(self) -> str:
        """The runner-up and how close it was; empty where there is none."""
        found = self.judgement
        if found.runner_up is None or found.margin is None:
            return ""
        if found.margin < 0:
            return f"{found.runner_up.title}, {-found.margin:.1f} points ahead, but busy with feeding what binds"
        return f"{found.runner_up.title}, {found.margin:.1f} points away{' (close)' if found.close else ''}"


@dataclass(frozen=True)
class CaseVerdict:
    """What an iteration of a case waits for: its kernels, or the host that launches them."""

    case: str
    """Case id."""
    label: str
    kernels: float | None
    """Kernels an iteration under nsys."""
    kernel_us: float | None
    """Kernel time of an iteration: by nsys, else by ncu."""
    wall_us: float | None
    """An iteration as a loop sees it, without a profiler."""
    launch_us: float | None
    """Host time of the CUDA calls that launch an iteration's kernels, under nsys."""
    graph: bool
    """Whether its kernels were launched from a CUDA graph."""
    waiting: Comparison | None
    """Percent of an iteration in which the GPU waits; None where it cannot be told."""

    @property
    def sentence(self) -> str:
        """What the iteration waits for."""
        if self.kernel_us is None or self.wall_us is None or self.waiting is None:
            missing = "kernel times" if self.kernel_us is None else "an iteration's time without a profiler"
            return f"not enough evidence: there are no {missing}"
        if self.launch_bound:
            return f"launch-bound: the GPU waits for {self.waiting.value:.1f}% of an iteration; {self.host}"
        return f"bound by its kernels: the GPU waits for {self.waiting.value:.1f}% of an iteration"

    @property
    def host(self) -> str:
        """How the host launches an iteration: what it, the launch calls and the kernels take."""
        if self.kernel_us is None or self.wall_us is None:
            return ""
        how = " as nodes of a CUDA graph" if self.graph else ""
        calls = "" if self.launch_us is None else f", and their launch calls {self.launch_us:.1f} µs under nsys"
        return f"of {self.wall_us:.1f} µs its kernels take {self.kernel_us:.1f} µs{how}{calls}"

    @property
    def launch_bound(self) -> bool | None:
        """None where it cannot be told."""
        return None if self.waiting is None else self.waiting.value >= WAITING_PCT


@dataclass(frozen=True)
class Verdicts:
    """A run's verdicts."""

    run: str
    launches: tuple[LaunchVerdict, ...]
    """In the order of the launches; empty without ncu."""
    cases: tuple[CaseVerdict, ...]
    warnings: tuple[Finding | str, ...] = ()
    """About the run."""

    def of(self, launch: int) -> LaunchVerdict | None:
        """The verdict of a launch by ncu's ID."""
        return next((item for item in self.launches if item.launch == launch), None)


def verdicts(run: Run, *, kernel: str = "") -> Verdicts:
    """What binds each launch of a run, in the order of the launches, and each case.

    kernel: only launches with this in the kernel's name or in their case; upper and lower case are the same.
    Raises FiprofError where the run has neither launches under ncu nor kernels under nsys, or no launch is left, or a
    table cannot be read.
    """
    measured = Analyses(run)
    launches = measured.run.launches
    if not launches and not measured.run.trace.cases:
        raise FiprofError(
            f"{run.manifest.name} has nothing to judge: {run.why_missing('ncu')}",
            "fiprof collect --tool nsys,ncu collects it; fiprof show shows what this run has",
        )
    kept = [row for row in launches if names_kernel_or_case(row, measured.run.labels(row["case"]), kernel)]
    if launches and not kept:
        names = sorted({row["kernel"] or "" for row in launches})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r}",
            f"it has the kernels {', '.join(short_kernel(name) for name in names)}",
        )
    cases = {case.case: case for case in _cases(measured)}
    failed = checks.failed(run)
    judge_ = _Judge(measured, cases, checks.by_launch(failed))
    ids = {row["case"] for row in kept}
    warnings: list[Finding | str] = [*run.status_warning(), *checks.of_run(failed)]
    if not launches:
        warnings.append(f"no launch can be judged: {run.why_missing('ncu')}")
    return Verdicts(
        run=run.manifest.name,
        launches=tuple(judge_.launch(row) for row in kept),
        cases=tuple(case for case in cases.values() if not kept or case.case in ids),
        warnings=tuple(warnings),
    )


class _Judge:
    """Judges the launches of a run."""

    def __init__(
        self, measured: Analyses, cases: dict[str, CaseVerdict], doubts: dict[int, tuple[Finding, ...]]
    ) -> None:
        self.measured = measured
        self.cases = cases
        self.doubts = doubts
        self.rules = quoted_rules.by_launch(measured.run)
        self.reasons = _reasons(measured)
        self.counts: dict[tuple[str | None, str | None], int] = defaultdict(int)
        self.together: dict[tuple[str | None, int | None], float] = defaultdict(float)
        """Case and iteration -> the time of all its launches, ns."""
        self.longest: dict[str | None, float] = defaultdict(float)
        """Case -> its longest launch, ns."""
        for row in measured.run.launches:
            duration = row["duration_ns"] or 0.0
            self.counts[row["case"], row["kernel"]] += 1
            self.together[row["case"], row["iteration"]] += duration
            self.longest[row["case"]] = max(self.longest[row["case"]], duration)
        self.excess = {case.id: _excess(measured, case) for case in measured.run.manifest.cases}

    def launch(self, row: Row) -> LaunchVerdict:
        launch = int(row["launch"])
        case = self.cases.get(row["case"])
        reasons = self.reasons.get(launch, ())
        judgement = judge(
            row,
            launch=launch,
            stall=reasons[0].reading if reasons else None,
            waiting=case.waiting if case else None,
            names=self.measured.run.metric_name,
        )
        excess_ops, excess_bytes = self._excess(row)
        rules = quoted_rules.weighed(self.rules.get(launch, ()), judgement, row, excess_bytes)
        steps = advice.steps(
            Situation(
                row=row,
                judgement=judgement,
                reasons=reasons,
                rules=rules,
                excess_ops=excess_ops,
                excess_bytes=excess_bytes,
                waiting_pct=case.waiting.value if case and case.waiting else None,
                host=case.host if case else "",
                graph=case is not None and case.graph,
            )
        )
        duration_ns = row["duration_ns"]
        duration_us = None if duration_ns is None else duration_ns / 1e3
        doubts = tuple(_doubts(judgement, duration_us, self.doubts.get(launch, ())))
        return LaunchVerdict(
            launch=launch,
            case=row["case"],
            label=self.measured.run.labels(row["case"]),
            kernel=row["kernel"] or "",
            grid=row["grid"] or "",
            iteration=row["iteration"],
            repeated=self.counts[row["case"], row["kernel"]] > 1,
            duration_us=duration_us,
            share=self._share(row),
            judgement=judgement,
            sure=_sure(judgement, doubts),
            doubts=doubts,
            steps=steps,
            rules=advice.with_rules(steps, rules),
        )

    def _share(self, row: Row) -> float | None:
        if row["case"] is None or row["duration_ns"] is None:
            return None
        together = self.together[row["case"], row["iteration"]]
        return row["duration_ns"] / together if together else None

    def _excess(self, row: Row) -> tuple[float | None, float | None]:
        """The excess of its case, where it is the kernel that takes most of its time: the cost model is about that."""
        duration = row["duration_ns"]
        if not duration or duration < self.longest[row["case"]] / 2:
            return None, None
        return self.excess.get(row["case"], (None, None))


def _excess(measured: Analyses, case: CaseEntry) -> tuple[float | None, float | None]:
    """Operations and DRAM bytes that ncu counted in an iteration over those that the case needs; None where unknown."""
    run = measured.run
    counted = run.per_iteration(case.id, TENSOR_OPS.value) or run.per_iteration(case.id, work_ops)
    moved, least = run.per_iteration(case.id, DRAM_BYTES.value), case.bytes_read + case.bytes_written
    return (
        counted / case.flops if counted and case.flops else None,
        moved / least if moved is not None and least else None,
    )


def _reasons(measured: Analyses) -> dict[int, tuple[Reason, ...]]:
    """Launch -> the reasons of its warps' stalls, the largest share first; ready and issuing warps are none."""
    from fiprof.analysis.reasons import reason_of

    found: dict[int, list[Reason]] = defaultdict(list)
    rows = {row["launch"]: row for row in measured.run.launches}
    for row in measured.run.rows("stalls", ("launch", "reason", "share")):
        if row["share"] is None or row["launch"] not in rows or reason_of(row["reason"]).kind != "stall":
            continue
        fact = TracedNumber(row["share"], stall_provenance(rows[row["launch"]], row["reason"]), ".0%")
        percent = TracedNumber(100 * fact.value, _times_100(fact.source), ".0f", "%")
        dominates = percent.value >= STALL_SHARE_PCT
        reading = Comparison(
            f"warps in {row['reason']}",
            "",
            percent,
            "at least" if dominates else "below",
            STALL_SHARE_PCT,
            STALL_SOURCE,
        )
        found[row["launch"]].append(Reason(row["reason"], percent.value, reading))
    return {
        launch: tuple(sorted(reasons, key=lambda reason: (-reason.share_pct, reason.name)))
        for launch, reasons in found.items()
    }


def _times_100(of: Provenance) -> Provenance:
    return Provenance(of.origin, f"100 * ({of.formula})", launch=of.launch, case=of.case)


def _doubts(judgement: Judgement, duration_us: float | None, failed: Sequence[Finding]) -> list[Finding | str]:
    """Why a verdict is not surer."""
    # Counters are no evidence of what happens between kernels.
    found: list[Finding | str] = [] if judgement.kind == "launch" else list(failed)
    if judgement.kind == "unknown":
        found.append("what was collected does not tell the verdicts apart")
    if judgement.margin is not None and 0 <= judgement.margin < CLOSE_POINTS and judgement.runner_up is not None:
        found.append(f"{judgement.margin:.1f} points more or less, and it would be {judgement.runner_up.title}")
    decided = judgement.readings[0].value if judgement.readings else 0.0
    if judgement.kind in ("compute", "memory") and BUSY_PCT <= decided < SATURATED_PCT:
        found.append(f"{decided:.1f}% is busy, yet not at the limit: waiting has a part in it too")
    if duration_us is not None and duration_us < SHORT_US and judgement.kind != "launch":
        found.append(f"the launch is short, {duration_us:.1f} µs: its start and end weigh in every counter")
    if judgement.missing and judgement.kind != "launch":
        found.append(f"not collected: {', '.join(judgement.missing)}")
    return found


def _sure(judgement: Judgement, doubts: Sequence[Finding | str]) -> Sure:
    """low: it might as well be another; fair: something speaks against it or is missing; high: nothing does."""
    if judgement.kind == "unknown" or (judgement.margin is not None and 0 <= judgement.margin < BARELY_POINTS):
        return "low"
    return "fair" if doubts else "high"


# Cases


def _cases(measured: Analyses) -> list[CaseVerdict]:
    """Every case of the run that was measured."""
    from fiprof.analysis.verdict.cases import launches_of

    traced = launches_of(measured.run)
    found = []
    for case in measured.run.manifest.cases:
        baseline = measured.run.baseline.get(case.id)
        kernel_time = KERNEL_TIME.traced(measured.run, case.id)
        trace = traced.get(case.id)
        if kernel_time is None and baseline is None:
            continue
        wall = baseline.wall_us if baseline and baseline.wall_us == baseline.wall_us else None
        executions = measured.run.trace.cases.get(case.id)
        found.append(
            CaseVerdict(
                case=case.id,
                label=measured.run.labels(case.id),
                kernels=executions.executions if executions else None,
                kernel_us=kernel_time.value if kernel_time else None,
                wall_us=wall,
                launch_us=trace.call_us if trace else None,
                graph=trace.graph if trace else False,
                waiting=_waiting(case.id, kernel_time, wall),
            )
        )
    return found


def _waiting(case: str, kernel_time: TracedNumber | None, wall_us: float | None) -> Comparison | None:
    """Percent of an iteration in which no kernel ran, as a loop without a profiler sees it.

    The kernels' time is nsys's: their sum, so with kernels side by side the true figure is larger, and with a kernel
    that starts before the last has ended it may come out below zero, which is taken for none.
    """
    if kernel_time is None or not wall_us or wall_us <= 0:
        return None
    wall = Provenance("plain", "wall_us", case=case)
    share = Provenance("facts", "max(100 * (1 - a / b), 0)", parts=(kernel_time.source, wall))
    fact = TracedNumber(min(max(100 * (1 - kernel_time.value / wall_us), 0.0), 100.0), share, ".1f", "%")
    test: Literal["at least", "below"] = "at least" if fact.value >= WAITING_PCT else "below"
    return Comparison(WAITING, "", fact, test, WAITING_PCT, WAITING_SOURCE)
