"""Profiling any program: nsys over it, then ncu over the launches that stand for most of its GPU time."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Literal

from fiprof.errors import FiprofError
from fiprof.model import layout, tables
from fiprof.model.arrays import numbers
from fiprof.model.layout import numbered
from fiprof.model.run import Run, shape
from fiprof.model.settings import recorded
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.choosing import Cost, LaunchChoice, Names, choose, launch_orders, traced_groups
from fiprof.orchestrator.commands import ProfileRequest, ProgramCommands
from fiprof.orchestrator.environment import program_facts, run_environment
from fiprof.orchestrator.process import ENOUGH, PassOn, describe_exit
from fiprof.orchestrator.run_folder import Archive, RunFolder
from fiprof.orchestrator.run_session import Bench, FinishedRun, RunSession, read_log
from fiprof.orchestrator.tools import Tool, find_profilers, help_of, visible_gpus
from fiprof.parsers.nsys import started_alone
from fiprof.text import count, short_kernel

TIMES = 4.0  # what a profile may take, times the program's own time under nsys, where nobody says what ncu may take
LEAST_S = 20.0  # seconds that ncu may take for its launches however short the program is
PLANNED = 0.8  # of them are planned for: the estimate for ncu is up to a quarter too low
NCU_SLACK = 2.0  # times a budget that was asked for, and the program's time, that ncu may take before it is ended
START_S = 2.0
"""Seconds that ncu takes beside launches and the program: to start, and for the first launch (H100: 1.4 to 2 s)."""
LAUNCHES = {"quick": (1.2, 26), "full": (1.9, 38)}
"""Seconds and passes that ncu takes for a launch of no length, by its set (2025.3): 0.95 to 1.28 s and 1.6 to 1.8 s in
programs of PyTorch on an H100 and an H200; 0.4 and 1.6 s in a CUDA binary."""
SAVE_S_PER_GB = 0.005  # seconds more a launch takes for each GB that the program has allocated (H100, 0 to 24 GB)
NEEDS_TERMINAL = "not a tty|not a terminal|Inappropriate ioctl|EOFError|EOF when reading"


def profile(request: ProfileRequest, bench: Bench, pass_on: PassOn) -> tuple[FinishedRun, int]:
    """Profile a program on this machine. What it prints under nsys is passed on. Returns its exit status there too.

    Raises FiprofError before anything is made when a tool or the program is missing or a GPU is taken; what goes wrong
    later stands in the result and in the manifest.
    """
    tools = find_tools(request)
    gpus = visible_gpus()
    with bench.holding(*gpus):
        folder = new_run(request, tools, bench.archive, gpus[0], program_facts(request.program))
        profiling = Profiling(request, folder, bench, tools, pass_on)
        return profiling.measure(), profiling.exit_status


def find_tools(request: ProfileRequest) -> dict[str, Tool]:
    """The profilers that a request needs. Raises FiprofError for one that is missing, and for a missing program."""
    program = request.program[0]
    if shutil.which(program) is None:
        raise FiprofError(f"{program} was not found, or cannot be run", "fiprof profile -- COMMAND …", exit_code=2)
    tools = find_profilers(dict.fromkeys(("nsys", *request.tools)), "--tool nsys traces without them")
    option, _, value = nsys.MODULES.partition("=")
    if request.torch_modules and not re.search(f"{option}\\b.*\\b{value}", help_of(tools["nsys"]), re.DOTALL):
        remedy = "name a newer one with FIPROF_NSYS, or mark them in the program: with fiprof.range(NAME): …"
        raise FiprofError(f"nsys {tools['nsys'].version_text} cannot mark PyTorch's modules", remedy)
    return tools


def new_run(
    request: ProfileRequest, tools: dict[str, Tool], archive: Archive, gpu: str, program: dict[str, Any]
) -> RunFolder:
    """A run in a new folder of the archive, with nothing measured yet. program: see ``program_facts``."""
    ranges, environment = list(request.ranges) if request.by_range else [], run_environment(tools, program, gpu)
    return archive.create(request.label, settings=recorded(request), environment=environment, ranges=ranges)


class Profiling(RunSession):
    """A profile under way."""

    def __init__(
        self, request: ProfileRequest, folder: RunFolder, bench: Bench, tools: dict[str, Tool], pass_on: PassOn
    ) -> None:
        super().__init__(folder, bench)
        self.request = request
        self.commands = ProgramCommands(self.path, tools, request.timeout_s, request, pass_on)
        self.exit_status = 0  # of the program under nsys

    def measure(self) -> FinishedRun:
        """nsys, choose, ncu; then the run's checks, its manifest and name."""
        with self.ending_in_order():
            with self.collecting():
                program_s = self._trace()
                if "ncu" in self.commands.tools:
                    self._profile(program_s)
            if self.request.by_range:
                self.declare_cases()
            self.note_gpu()
            self.check()
        return self.finish()

    def _trace(self) -> float:
        """nsys over the program, and its tables. Returns how long the program took, in seconds."""
        with self.run(self.commands.trace()) as (finished, log):
            nsys.check_report(self.path / layout.NSYS_REPORT, log)
        if lost := nsys.lost_events(log):
            self.warn(f"nsys could not read some of its own events ({lost}): the trace may lack more than these")
        # As a shell says it, which is how nsys does.
        self.exit_status = finished.exit_status or 0
        ended = {"exit_status": finished.exit_status, "seconds": round(finished.duration_s, 3)}
        self.folder.note(environment={"program": {**self.folder.manifest.environment["program"], **ended}})
        if finished.exit_status:
            self.warn(f"the program {describe_exit(finished.exit_status)} under nsys")
        if self.request.torch_memory and not (self.path / layout.TORCH_MEMORY).exists():
            why = "the program did not use torch's CUDA, or did not end by itself"
            self.warn(f"torch's allocator left no history: {why}")
        if not self.trace_tables(self.commands.trace_export()).rows["kernels"]:
            raise no_kernels(self.path, self.exit_status)
        return finished.duration_s

    def _profile(self, program_s: float) -> None:
        """ncu over what is chosen, for each range by itself where that was asked, and its tables."""
        done: list[tuple[LaunchChoice, str]] = []
        for request in self.request.parts:
            with self.collecting():
                choice = self._choose(request, program_s)
                done.append((choice, self._run_ncu(request, choice, program_s, len(done))))
        if done:
            pages = ncu.pages(self.request.ncu_set)
            self.profile_tables(self.commands.page(page, number) for number in range(len(done)) for page in pages)
        for number, (choice, ended) in enumerate(done):
            columns = ["kernel", "kernel_full", "grid", "block", "file"]
            rows = tables.read(self.tables, "launches", columns).to_pylist()
            met = [shape(row) for row in rows if (row["file"] or 0) == number]
            met_groups = [group for group in choice.groups if group.shape in met]
            if missing := [
                f"{group.kernel} (grid {group.grid}, block {group.block})"
                for group in choice.groups
                if group not in met_groups
            ]:
                self.warn(f"ncu did not meet {', '.join(missing)} {ended}")
            share = sum(group.total_ns for group in met_groups) / sum(group.total_ns for group in choice.groups)
            launches = count(len(met), "launch", "launches")
            self.progress.say(f"profiled {launches}: {choice.cover * share:.1%} of the kernels' time")

    def _choose(self, request: ProfileRequest, program_s: float) -> LaunchChoice:
        """What ncu is to profile. Raises FiprofError where there is nothing to choose from."""
        run, (budget_s, _) = Run(self.path), ncu_limits_s(request, program_s, len(self.request.parts))
        groups, total_ns = traced_groups(run, request.ranges)

        def orders() -> Names | None:
            # ncu counts from the program's start, and a colon ends a name.
            part = request.ranges or request.capture or request.delay_s or request.duration_s
            return None if part or any(":" in each.name for each in groups) else launch_orders(run, groups)

        cost = launch_cost(run, request.ncu_set)
        choice = choose(groups, request, total_ns, budget_s=budget_s, cost_s=cost, orders=orders)
        where = f" in {request.ranges[0]}" if request.by_range else ""
        what = f"{count(choice.launches, 'launch', 'launches')} of {count(len(choice.filter.names), 'kernel')}"
        what += f", which represent {choice.grids} grids" if choice.grids > len(choice.groups) else ""
        program = (
            "the program for each pass" if request.replay_mode == "application" else f"{program_s:.0f} s the program"
        )
        every = f"{choice.all_s / 3600:.1f} hours" if choice.all_s >= 3600 else f"{choice.all_s / 60:.0f} minutes"
        every = f"{choice.all_s:.0f} s" if choice.all_s < 120 else every
        self.progress.say(
            f"ncu{where}: {what}, {choice.cover:.1%} of the kernels' time; "
            f"about {program_s + START_S + choice.estimated_s:.0f} s "
            f"({program}, {choice.estimated_s:.0f} s the launches); all launches would take {every}"
        )
        if choice.too_long:
            limits = f"--launches or --ncu-budget {budget_s:.3g}s"
            self.progress.say(f"fewer than --cover {request.cover_pct:g}% for {limits}")
        if choice.collectives:
            self.warn(
                f"{', '.join(choice.collectives)} ({choice.collectives_share:.0%} of the kernels' time) not profiled: "
                "they wait for another GPU's, and hang when ncu repeats them"
            )
        if not choice.launches:
            where = f" in {' and '.join(request.ranges)}" if request.ranges else ""
            what = f"ncu has nothing to profile: no kernel that was launched{where} fits what was asked for"
            remedy = "see --kernel, --range, --skip, --launches and --ncu-budget; fiprof top shows the trace"
            raise FiprofError(what, remedy)
        return choice

    def _run_ncu(self, request: ProfileRequest, choice: LaunchChoice, program_s: float, number: int) -> str:
        """Returns why it may not have met all of them, in words."""
        counter, report = ncu.Counter(), self.path / numbered(layout.NCU_REPORT, number)

        def watch(_: str) -> bool:
            at = f"launch {counter.begun} of {choice.launches} {short_kernel(counter.kernel)}"
            self.progress.detail("ncu", at)
            # A program whose trace was ended by the clock may not end by itself.
            return self.request.duration_s is not None and counter.done >= choice.launches

        _, limit_s = ncu_limits_s(request, program_s, len(self.request.parts))
        chosen = choice.filter._replace(alone=started_alone(self.path / layout.NSYS_SQLITE))
        command = self.commands.profile(request, chosen, number, counter, limit_s)
        with self.run(command, watch) as (finished, log):
            try:
                ncu.check_log(log, report, exit_status=finished.exit_status)
            except FiprofError as error:
                if '==PROF== Profiling "' not in log or not report.exists() or not report.stat().st_size:
                    raise
                # That it fails, nsys's run has told; and fiprof itself ends one that does not end.
                own = finished.outcome == "timeout" or finished.message == ENOUGH
                if not own and finished.exit_status != self.exit_status:
                    self.warn(error.message)
        allows = "--timeout" if limit_s == request.timeout_s else "--ncu-budget"
        return f"in {limit_s:.0f} s: {allows} allows more" if finished.outcome == "timeout" else "again"


def ncu_limits_s(request: ProfileRequest, program_s: float, parts: int = 1) -> tuple[float, float]:
    """Seconds that a part's launches are to take under ncu, and after which ncu is ended; what it has then is kept.

    Where nothing was asked for, all that is done takes TIMES the program's own time. parts: that ncu is run for.
    """
    if request.ncu_budget_s is not None:
        return request.ncu_budget_s, min(NCU_SLACK * (program_s + START_S + request.ncu_budget_s), request.timeout_s)
    left_s = max((TIMES - 1) * program_s - parts * (program_s + START_S), LEAST_S) / parts
    return PLANNED * left_s, min(program_s + START_S + left_s, request.timeout_s)


def launch_cost(run: Run, ncu_set: Literal["full", "quick"]) -> Cost:
    """What a launch takes under ncu: each pass its time, and more where there is more memory to save and restore."""
    totals = numbers(run.table("memory", ["total_bytes"])["total_bytes"]) if run.row_count("memory") else ()
    launch_s, passes = LAUNCHES[ncu_set]
    fixed_s = launch_s + SAVE_S_PER_GB * max(totals, default=0) / 1e9
    return lambda group: fixed_s + passes * group.mean_ns / 1e9


def no_kernels(folder: Path, exit_status: int) -> FiprofError:
    """Why a trace has no kernel. exit_status: of the program."""
    log = read_log(folder / "logs/nsys.log")
    if not exit_status and (lost := nsys.lost_events(log)):
        return FiprofError(
            f"nsys could not read its own events, and kept no kernel: {lost}",
            "NVTX ranges, as XLA's, can be the reason: --nsys-arg=--trace=cuda,python-gil traces without; or another "
            "nsys, which FIPROF_NSYS names, reads them; all that it said stands in logs/nsys.log",
        )
    if not exit_status:
        what = "the program started nothing on the GPU while it was traced"
        remedy = (
            "nothing was asked of it meanwhile, or a window missed the work; or processes do it that were forked and "
            f"started no other program, which nsys follows with --nsys-arg={nsys.FOLLOW_FORKS} alone; or the driver "
            "is newer than nsys knows"
        )
        return FiprofError(what, remedy)
    own = nsys.OWN_LINES.sub(b"", log.encode()).decode()
    what = f"the program {describe_exit(exit_status)} before it used the GPU: {nsys.last_line(own)}"
    if re.search(NEEDS_TERMINAL, log):
        return FiprofError(what, "it may need a terminal or input: fiprof hands on a file or a pipe, never a terminal")
    return FiprofError(what, "its output stands in logs/nsys.log")
