"""Profiling any program: nsys over it, then ncu over the launches that stand for most of its GPU time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.analysis.trace import Shape, shape
from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.manifest import NCU_REPORT, NSYS_REPORT, TABLES, numbered
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run
from fiprof.model.settings import ProfileSettings, recorded
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.commands import ProfileRequest, ProgramCommands
from fiprof.orchestrator.environment import program_facts, run_environment
from fiprof.orchestrator.process import ENOUGH, PassOn, describe_exit
from fiprof.orchestrator.run_folder import Archive, RunFolder
from fiprof.orchestrator.run_session import Bench, Result, RunSession, read_log
from fiprof.orchestrator.tools import Tool, find_profilers, gpu_state, visible_gpus
from fiprof.text import count, kernel_identity, short_kernel

NCU_SLACK = 2.0
"""Times what was foretold of it that ncu may take before it is ended; what it has then is kept."""
LAUNCH_S = {"quick": 0.8, "full": 1.8}
"""Seconds that ncu takes for a launch, by its set: a Llama of 4 layers in bf16 on an H100."""
KEYS = ["kernel_mangled", "kernel", "kernel_full", "grid", "block"]
NEEDS_TERMINAL = "not a tty|not a terminal|Inappropriate ioctl|EOFError|EOF when reading"


def profile(request: ProfileRequest, bench: Bench, pass_on: PassOn) -> Profiling:
    """Profile a program on this machine. What it prints under nsys is passed on.

    Raises FiprofError before anything is made when a tool or the program is missing or a GPU is taken; what goes wrong
    later stands in the result and in the manifest.
    """
    tools = find_tools(request)
    gpus = visible_gpus()
    with bench.holding(*gpus):
        folder = new_run(request, tools, bench.archive, gpus[0], program_facts(request.program))
        profiling = Profiling(request, folder, bench, tools, pass_on)
        profiling.measure()
        return profiling


def find_tools(request: ProfileRequest) -> dict[str, Tool]:
    """The profilers that a request needs. Raises FiprofError for one that is missing, and for a missing program."""
    program = request.program[0]
    if shutil.which(program) is None:
        raise FiprofError(f"{program} was not found, or cannot be run", "fiprof profile -- COMMAND …", exit_code=2)
    return find_profilers(dict.fromkeys(("nsys", *request.tools)), "--tool nsys traces without them")


def new_run(
    request: ProfileRequest, tools: dict[str, Tool], archive: Archive, gpu: str, program: dict[str, Any]
) -> RunFolder:
    """A run in a new folder of the archive, with nothing measured yet. program: see ``program_facts``."""
    folder = archive.create(request.label)
    environment = {**run_environment(tools, program), "gpu_state": {"before": gpu_state(gpu)}}
    ranges = list(request.ranges) if request.by_range else []
    folder.set(settings=recorded(request), environment=environment, ranges=ranges)
    folder.save()
    return folder


class Profiling(RunSession):
    """A profile under way, and how it ended."""

    def __init__(
        self, request: ProfileRequest, folder: RunFolder, bench: Bench, tools: dict[str, Tool], pass_on: PassOn
    ) -> None:
        super().__init__(folder, bench)
        self.request = request
        self.commands = ProgramCommands(self.path, tools, request.timeout_s, request, pass_on)
        self.exit_status = 0
        """Of the program under nsys."""
        self.result: Result | None = None

    def measure(self) -> None:
        """nsys, choose, ncu; then the run's checks, its manifest and name."""
        traced = False
        with self.ending_in_order():
            with self.collecting():
                program_s = self._trace()
                traced = True
                if "ncu" in self.commands.tools:
                    self._profile(program_s)
            if self.request.by_range:
                self.declare_cases()
            self.note_gpu()
            self.check(started=traced)
        self.result = self.finish()

    def _trace(self) -> float:
        """nsys over the program, and its tables. Returns how long the program took, in seconds."""
        with self.run(self.commands.trace()) as (finished, log):
            nsys.check_report(self.path / NSYS_REPORT, log)
        # As a shell says it, which is how nsys does.
        self.exit_status = finished.exit_status or 0
        ended = {"exit_status": finished.exit_status, "seconds": round(finished.duration_s, 3)}
        self.folder.note_environment({"program": {**self.folder.manifest.environment["program"], **ended}})
        if finished.exit_status:
            self.warn(f"the program {describe_exit(finished.exit_status)} under nsys")
        if not self.trace_tables(self.commands.trace_export()).rows["kernels"]:
            raise no_kernels(self.path, self.exit_status)
        return finished.duration_s

    def _profile(self, program_s: float) -> None:
        """ncu over what is chosen, for each range by itself where that was asked, and its tables."""
        done: list[Choice] = []
        for request in self.request.parts:
            with self.collecting():
                choice = self._choose(request, program_s)
                self._run_ncu(request, choice, program_s, len(done))
                done.append(choice)
        if done:
            pages = ncu.pages(self.request.ncu_set)
            self.profile_tables(self.commands.page(page, number) for number in range(len(done)) for page in pages)
        for number, choice in enumerate(done):
            met = profiled(self.path, number)
            found = [group for group in choice.groups if group.shape in met]
            for group in choice.groups:
                if group not in found:
                    self.warn(f"ncu did not meet {group.kernel} (grid {group.grid}, block {group.block}) again")
            share = sum(group.total_ns for group in found) / sum(group.total_ns for group in choice.groups)
            launches = count(len(met), "launch", "launches")
            self.progress.say(f"profiled {launches}: {choice.cover * share:.1%} of the kernels' time")

    def _choose(self, request: ProfileRequest, program_s: float) -> Choice:
        """What ncu is to profile. Raises FiprofError where there is nothing to choose from."""
        groups, total_ns = traced_groups(self.path, request.ranges)
        choice = choose(groups, request, total_ns)
        for sentence in _foretell(choice, program_s, request):
            self.progress.say(sentence)
        if choice.collectives:
            self.warn(
                f"{', '.join(choice.collectives)} ({choice.collectives_share:.0%} of the kernels' time) not profiled: "
                "they wait for another GPU's, and hang when ncu repeats them"
            )
        if not choice.launches:
            where = f" in {' and '.join(request.ranges)}" if request.ranges else ""
            raise FiprofError(
                f"ncu has nothing to profile: no kernel that was launched{where} fits what was asked for",
                "see --kernel, --range, --skip, --launches and --ncu-budget; fiprof top shows the trace",
            )
        return choice

    def _run_ncu(self, request: ProfileRequest, choice: Choice, program_s: float, number: int) -> None:
        counter, report = ncu.Counter(), self.path / numbered(NCU_REPORT, number)

        def watch(_: str) -> bool:
            at = f"launch {counter.begun} of {choice.launches} {short_kernel(counter.kernel)}"
            self.progress.detail("ncu", at)
            # A program whose trace was ended by the clock may not end by itself.
            return self.request.duration_s is not None and counter.done >= choice.launches

        limit_s = min(NCU_SLACK * (program_s + max(choice.foretold_s, request.ncu_budget_s)), request.timeout_s)
        command = self.commands.profile(request, choice.names, choice.skip, number, counter, limit_s)
        with self.run(command, watch) as (finished, log):
            try:
                ncu.check_log(log, report, exit_status=finished.exit_status)
            except FiprofError as error:
                if not ncu.kept(log, report):
                    raise
                # That it fails, nsys's run has told; and fiprof itself ends one that does not end.
                if finished.message != ENOUGH and finished.exit_status != self.exit_status:
                    self.warn(error.message)


def _foretell(choice: Choice, program_s: float, request: ProfileRequest) -> Iterator[str]:
    """What ncu is to do and how long it takes, before it starts."""
    where = f" in {request.ranges[0]}" if request.by_range else ""
    what = f"{count(choice.launches, 'launch', 'launches')} of {count(len(choice.names), 'kernel')}"
    program = "the program for each pass" if request.replay_mode == "application" else f"{program_s:.0f} s the program"
    every = f"{choice.all_s / 3600:.1f} hours" if choice.all_s >= 3600 else f"{choice.all_s / 60:.0f} minutes"
    every = f"{choice.all_s:.0f} s" if choice.all_s < 120 else every
    yield (
        f"ncu{where}: {what}, {choice.cover:.1%} of the kernels' time; about {program_s + choice.foretold_s:.0f} s "
        f"({program}, {choice.foretold_s:.0f} s the launches); all launches would take {every}"
    )
    if choice.too_long:
        yield f"fewer than --cover {request.cover_pct:g}% for --launches or --ncu-budget {request.ncu_budget_s:g}s"


def no_kernels(folder: Path, exit_status: int) -> FiprofError:
    """Why a trace has no kernel. exit_status: of the program."""
    if not exit_status:
        return FiprofError(
            "the program started nothing on the GPU while it was traced",
            "see --delay, --duration and --capture; a driver newer than nsys knows is another cause",
        )
    log = read_log(folder / "logs/nsys.log")
    return FiprofError(
        f"the program {describe_exit(exit_status)} before it used the GPU: {nsys.last_own_line(log)}",
        "it may need a terminal or input: fiprof gives it neither, for it is started twice"
        if re.search(NEEDS_TERMINAL, log)
        else "its output stands in logs/nsys.log",
    )


# Choosing: few launches that stand for most of the GPU's time


@dataclass(frozen=True)
class Group:
    """The launches of one kernel with one grid and block, as a trace has them. name: mangled."""

    name: str
    kernel: str
    kernel_full: str
    grid: str
    block: str
    count: int
    total_ns: int

    @property
    def shape(self) -> Shape:
        """What makes a launch one of the group's: ``kernel_identity``, grid and block."""
        return kernel_identity(self.kernel, self.kernel_full), self.grid, self.block


@dataclass(frozen=True)
class Choice:
    """What ncu is to profile, and what is known of it beforehand.

    groups: those of the names chosen: ncu takes each grid and block of a name. launches: that ncu will profile; cover:
    the share of the time of all kernels that they stand for; foretold_s: seconds that they take under ncu, beyond the
    program's own; all_s: those that all launches would take.
    collectives: kernels left out, for under kernel replay, which runs one at a time again and again, they hang;
    collectives_share: of the kernels' time. too_long: the limits ended it before the wanted share was reached.
    """

    groups: tuple[Group, ...]
    skip: int
    launches: int
    cover: float
    foretold_s: float
    all_s: float
    collectives: tuple[str, ...]
    collectives_share: float
    too_long: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Mangled, those with most time first."""
        return tuple(dict.fromkeys(group.name for group in self.groups))


def choose(groups: Sequence[Group], wanted: ProfileSettings, total_ns: int) -> Choice:
    """The kernels whose launches stand for the wanted share of the GPU's time at the least cost.

    ncu's filter takes a kernel's name, and then a launch of each of its grids and blocks: so names are chosen, those
    with most time a launch first, and afterwards those dropped that the share does not need.
    groups: that may be chosen from. total_ns: of all kernels of the trace.
    """
    collectives = [group for group in groups if COLLECTIVE.search(group.name)]
    fitting = [group for group in groups if group not in collectives]
    if (pattern := wanted.kernel) is not None:
        fitting = [each for each in fitting if re.search(pattern, each.kernel) or re.search(pattern, each.name)]
    goal_ns = wanted.cover_pct / 100 * _time(fitting)
    once_ns = _time(group for group in fitting if group.count == 1)
    skip = wanted.skip if wanted.skip is not None else int(once_ns <= _time(fitting) - goal_ns)
    launch_s = LAUNCH_S[wanted.ncu_set]
    by_name: dict[str, list[Group]] = {}
    for group in fitting:
        if group.count > skip:
            by_name.setdefault(group.name, []).append(group)
    cost = {name: sum(min(wanted.count, group.count - skip) for group in members) for name, members in by_name.items()}
    time_ns = {name: _time(members) for name, members in by_name.items()}
    chosen: list[str] = []
    too_long = False
    for name in sorted(by_name, key=lambda name: -time_ns[name] / cost[name]):
        if sum(map(time_ns.__getitem__, chosen)) >= goal_ns:
            break
        launches = sum(map(cost.__getitem__, (*chosen, name)))
        if launches > (wanted.launches or launches) or launches * launch_s > wanted.ncu_budget_s:
            too_long = True
        else:
            chosen.append(name)
    for name in sorted(chosen, key=time_ns.__getitem__):
        if sum(time_ns[other] for other in chosen if other != name) >= goal_ns:
            chosen.remove(name)
    taken = [group for name in chosen for group in by_name[name]]
    launches = sum(map(cost.__getitem__, chosen))
    return Choice(
        groups=tuple(sorted(taken, key=lambda group: -group.total_ns)),
        skip=skip,
        launches=launches,
        cover=_time(taken) / max(total_ns, 1),
        foretold_s=launches * launch_s,
        all_s=sum(group.count for group in groups) * launch_s,
        collectives=tuple(dict.fromkeys(group.kernel for group in collectives)),
        collectives_share=_time(collectives) / max(total_ns, 1),
        too_long=too_long and _time(taken) < goal_ns,
    )


def _time(groups: Iterable[Group]) -> int:
    return sum(group.total_ns for group in groups)


def traced_groups(folder: Path, ranges: Sequence[str]) -> tuple[list[Group], int]:
    """The groups of a run's trace, and the time of all its kernels in ns.

    ranges: only kernels launched in one of these NVTX ranges, NAME or DOMAIN@NAME; all of them without.
    """
    import numpy as np
    import pyarrow.compute as pc

    from fiprof.analysis.trace import SEPARATOR, kernel_phases, phases, sums

    run = Run(folder)
    kernels = run.table("kernels", [*KEYS, "duration_ns"])
    total_ns = pc.sum(kernels["duration_ns"]).as_py() or 0
    if ranges:
        names = {name.rpartition("@")[2] for name in ranges}
        inside = [bool(names.intersection(path.split(SEPARATOR))) for path in phases(run).paths]
        kernels = kernels.filter(np.append(inside, False)[kernel_phases(run)])
    found = sums(kernels.unify_dictionaries(), KEYS).to_pylist()
    return [Group(*row.values()) for row in found if row["kernel_mangled"]], total_ns


def profiled(folder: Path, report: int) -> list[Shape]:
    """What each launch of one of ncu's reports is: ``kernel_identity``, grid and block."""
    found = tables.read(folder / TABLES, "launches", ["kernel", "kernel_full", "grid", "block", "file"])
    return [shape(row) for row in found.to_pylist() if (row["file"] or 0) == report]
