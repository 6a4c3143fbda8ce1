"""Two sides measured in turns: how a side is written (``git:HEAD~1``, ``env:NAME=VALUE``, …), its files, its processes,
which are kept warm between rounds, and a profile of each side that explains the difference."""

import dataclasses
import json
import math
import os
import random
import re
import shlex
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor as Threads
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import fiprof.workloads
from fiprof.analysis.comparison.measured_result import (
    HERE,
    FailedCase,
    MeasuredComparison,
    Side,
    compared,
    read_comparison,
)
from fiprof.errors import FiprofError
from fiprof.files import file_errors, scratch
from fiprof.model import json_file, layout
from fiprof.model.manifest import VARIABLE, read_jsonl
from fiprof.model.selection import by_key
from fiprof.model.settings import CompareSettings, recorded
from fiprof.orchestrator import collect, profile
from fiprof.orchestrator.commands import CollectRequest, ExportCommands, ProfileRequest, joined
from fiprof.orchestrator.environment import collect_facts, program_facts, program_name, run_environment, run_git
from fiprof.orchestrator.process import INPUT, Supervisor, ToolCommand
from fiprof.orchestrator.run_folder import RunFolder
from fiprof.orchestrator.run_session import Bench, FinishedRun, Progress, RunSession, require_success
from fiprof.orchestrator.tools import gpu_env, visible_gpu
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name
from fiprof.workloads.nvtx import RANGES_VARIABLE
from fiprof.workloads.runner import Record
from fiprof.workloads.timing import SmClock

KINDS = ("git", "python", "env", "params", "case", "program")
NEXT_ITEM = re.compile(rf",(?=(?:{'|'.join(KINDS)}):)")
CHECKOUT_TIMEOUT_S = 120


@dataclass(frozen=True)
class SideSpec:
    """One side of a comparison, as the user wrote it."""

    text: str  # as typed
    ref: str | None = None  # commit of a checkout whose files are imported
    folder: Path = Path()  # folder of that checkout: what is imported lies in it, in the commit too
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    params: tuple[tuple[str, str], ...] = ()  # parameters of the workloads, with other values than on the other side
    case: Case | None = None  # instead of the comparison's cases
    program: tuple[str, ...] = ()  # measured instead of cases

    def cases(self, common: Sequence[Case]) -> list[Case]:
        """The common cases with this side's parameters, in their order. Raises FiprofError (exit status 2)."""
        if self.case is not None:
            return [self.case]
        values_of = {name: [value] for name, value in self.params}
        cases = []
        for case in common:
            values = {name: [format_value(value)] for name, value in case.params}
            cases += make_cases(case.workload, {**values, **values_of}) if values_of else [case]
        return cases


def parse_side(text: str) -> SideSpec:
    """The side that a text means: items with commas between them, a program last.

    Raises FiprofError (exit status 2) for a text that means none.
    """

    def wrong(what: str) -> FiprofError:
        example = "for example: fiprof compare --measure git:HEAD~1 here --kernel decode"
        return FiprofError(f"side {text!r}: {what}", example, exit_code=2)

    def pair(item: str) -> tuple[str, str]:
        name, equals, value = item.partition("=")
        if not equals or not VARIABLE.fullmatch(name := name.strip().replace("-", "_")):
            raise wrong(f"{item!r} is no NAME=VALUE")
        return name, value

    before, program, command = f",{text}".partition(",program:")
    fields: dict[str, list[str]] = {}
    for item in NEXT_ITEM.split(before.removeprefix(",")) if before or not program else ():
        if item == HERE:
            continue
        kind, colon, value = item.partition(":")
        if kind not in KINDS or not colon or not value:
            raise wrong(f"{item!r} is none of {HERE}, {', '.join(f'{kind}:…' for kind in KINDS)}")
        if kind in fields and kind != "env":
            raise wrong(f"{kind}: stands there twice")
        fields.setdefault(kind, []).append(value)
    ref, _, folder = fields.get("git", [""])[0].partition(":")
    words = tuple(shlex.split(command)) if program else ()
    if program and (not words or {"params", "case"} & fields.keys()):
        raise wrong("a program has a command, and no params: or case:")
    if "case" in fields and "params" in fields:
        raise wrong("case: has its parameters itself: case:decode[batch=8]")
    return SideSpec(
        text=text,
        ref=ref or None,
        folder=Path(folder),
        python=fields.get("python", [None])[0],
        env=tuple(map(pair, fields.get("env", ()))),
        params=tuple(pair(item) for item in fields.get("params", [""])[0].split(",") if item),
        case=parse_case(fields["case"][0]) if "case" in fields else None,
        program=words,
    )


def pairs_of(a: SideSpec, b: SideSpec, common: Sequence[Case]) -> tuple[tuple[Case, Case], ...]:
    """The cases of both sides, each pair once; none of two programs.

    common: the cases that the sides change parameters of.
    Raises FiprofError (exit status 2) where there are none, or the sides do not go together.
    """
    if bool(a.program) != bool(b.program) or bool(a.case) != bool(b.case):
        what = "program" if a.program or b.program else "case"
        raise FiprofError(f"{what}: on one side only", f"{what}:… on both, or --kernel and params:", exit_code=2)
    if a.program:
        return ()
    pairs = tuple(dict.fromkeys(zip(a.cases(common), b.cases(common), strict=True)))
    if not pairs:
        raise FiprofError("which kernel?", "--kernel decode, or case:… on both sides", exit_code=2)
    return pairs


@dataclass(frozen=True)
class CompareRequest(CompareSettings):
    """Two sides, and how to measure them."""

    a: SideSpec = field(kw_only=True)
    b: SideSpec = field(kw_only=True)
    pairs: tuple[tuple[Case, Case], ...] = field(kw_only=True)  # the cases of side A and side B; none of programs

    def side(self, letter: str) -> SideSpec:
        return self.a if letter == "A" else self.b

    def cases(self, letter: str) -> tuple[Case, ...]:
        return tuple(pair[letter == "B"] for pair in self.pairs)

    @property
    def schedule(self) -> str:
        """The processes as they start, ``BABBAABAAB`` for five a side.

        Every order is equally likely. Noise that varies with time, of whatever period, then falls on the processes as a
        permutation test assumes; a fixed order may resonate with it.
        """
        return "".join(random.Random(f"{self.order_seed}").sample("AB" * self.processes, 2 * self.processes))

    @property
    def label(self) -> str:
        names = list(dict.fromkeys(short_name(case.workload) for pair in self.pairs for case in pair))
        return f"compare-{joined(names or [program_name(self.a.program)])}"


# Commits


class Checkout(NamedTuple):
    """The files of a side's commit, in a folder of their own."""

    commit: str
    top: Path  # the user's checkout that has the commit
    files: Path  # the folder
    folder: Path  # inside it, where what is imported lies


def check_out(side: SideSpec, target: Path) -> Checkout | None:
    """The commit of a side in a folder; None for a side without one.

    It has an index of its own: the user's checkout, its index and its list of worktrees stay as they are. Submodules
    are empty, and no filter runs: files of Git LFS are their pointers.
    Raises FiprofError where the folder is in no checkout, git knows no such commit, or it cannot be written.
    """
    env = {"GIT_INDEX_FILE": str(target.with_suffix(".index"))}

    def git(folder: Path, *words: str) -> str:
        try:
            done = run_git(folder, *words, timeout_s=CHECKOUT_TIMEOUT_S, env=env)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FiprofError(f"side {side.text}: git: {error}", "git:REF:FOLDER names a checkout") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it failed"])[0]
            raise FiprofError(f"side {side.text}: {reason}", "git:REF, or git:REF:FOLDER for a checkout elsewhere")
        return done.stdout.strip()

    if side.ref is None:
        return None
    top, folder = Path(git(side.folder, "rev-parse", "--show-toplevel")).resolve(), side.folder.resolve()
    if not folder.is_relative_to(top):
        raise FiprofError(f"side {side.text}: the files of its checkout lie elsewhere, in {top}", "git:REF:FOLDER")
    commit = git(folder, "rev-parse", "--verify", "--end-of-options", f"{side.ref}^{{commit}}")
    git(top, "-c", "core.splitIndex=false", "read-tree", "--no-sparse-checkout", commit)
    target.mkdir()
    git(top, "checkout-index", "--all", f"--prefix={target}/")
    return Checkout(commit, top, target, target / folder.relative_to(top))


# Processes


@dataclass(frozen=True)
class SideCommands(ExportCommands):
    """The command of each process, for one request and one run folder."""

    request: CompareRequest
    scratch: Path  # folder for what does not outlive the run
    checkouts: Mapping[str, Checkout | None]  # A and B; None for a side without a commit

    def all(self) -> list[ToolCommand]:
        """B1, A1, B2, B3, …; for programs A0 and B0 before them, which only warm caches and do not count."""
        schedule = self.request.schedule
        names = [f"{letter}{schedule[: place + 1].count(letter)}" for place, letter in enumerate(schedule)]
        return [self._command(name) for name in (*(("A0", "B0") if self.request.a.program else ()), *names)]

    def orders(self, name: str) -> Path:
        """The FIFO from which a process reads its orders."""
        return self.scratch / f"{name}.orders"

    def environment(self, letter: str) -> dict[str, str]:
        """The variables that are set for a side's processes."""
        env = {**dict(self.request.side(letter).env), **gpu_env(self.request.gpu)}
        if checkout := self.checkouts[letter]:
            paths = [str(path) for path in (checkout.folder / "src", checkout.folder) if path.is_dir()]
            before = env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (*paths, before)))
        return env

    def cases(self, letter: str) -> list[str]:
        """A side's cases as the runner's arguments; a workload file in the checkout is that of the commit."""
        checkout, words = self.checkouts[letter], []
        for case in self.request.cases(letter):
            name = case.workload
            path, colon, bare = name.rpartition(":")
            if checkout and path.endswith(".py") and (file := Path(path).resolve()).is_relative_to(checkout.top):
                name = f"{checkout.files / file.relative_to(checkout.top)}{colon}{bare}"
            words.append(f"{name}[{case.argument.partition('[')[2]}")
        return words

    def _command(self, name: str) -> ToolCommand:
        request, out, letter = self.request, self.path / layout.MEASUREMENTS / f"{name}.jsonl", name[0]
        env, argv = self.environment(letter), request.side(letter).program
        if argv:
            env[RANGES_VARIABLE] = str(out)
        else:
            checkout = self.checkouts[letter]
            argv = (
                request.side(letter).python or request.python,
                # By path: a side may import a fiprof of its own.
                str(Path(fiprof.workloads.__path__[0]) / "__main__.py"),
                "rounds",
                *(word for case in self.cases(letter) for word in ("--case", case)),
                f"--measure-iterations={request.iterations}",
                f"--budget-ms={request.budget_ms:g}",
                f"--warmup={request.warmup}",
                f"--seed={request.seed}",
                *((f"--imports-from={checkout.files}",) if checkout else ()),
                f"--orders={self.orders(name)}",
                f"--out={out}",
            )
        return self.command(name, argv, makes=(out,), env=env, reads=INPUT if request.a.program else None)


# Measuring

MOST_REPEATED = 3  # rounds that are measured again where the SM clock had not recovered in one
WALL = "wall"  # the case that is a program's own time, from its start to its end
POLL_S = 0.002
"""Interval at which the file is read that a process writes while it measures; the reading is on another core."""


def compare(request: CompareRequest, bench: Bench) -> FinishedRun:
    """Measure both sides in turns on this machine, into a run folder with ``result.json``.

    Raises FiprofError for a side that does not exist or a GPU that is taken, before anything is made; the result and
    the manifest name what goes wrong later.
    """
    gpu, root = visible_gpu(request.gpu), bench.archive.root
    with bench.holding(gpu):
        with file_errors(root):
            root.mkdir(parents=True, exist_ok=True)
        with scratch(root.resolve()) as files:
            checkouts = {letter: check_out(request.side(letter), files / letter) for letter in "AB"}
            cases = tuple(dict.fromkeys(case for letter in "AB" for case in request.cases(letter)))
            facts = collect_facts(cases) if cases else program_facts(request.a.program)
            entries = collect.case_entries(CollectRequest(cases=cases))
            sides = {letter.lower(): request.side(letter).text for letter in "AB"}
            settings, environment = {**recorded(request), **sides}, run_environment({}, facts, gpu)
            fields = {"kind": "comparison", "cases": entries, "settings": settings, "environment": environment}
            folder = bench.archive.create(request.label, **fields)
            commands = SideCommands(folder.path, {}, request.timeout_s, request, files, checkouts)
            comparison = ComparisonSession(request, commands, folder, bench)
            comparison.measure()
            return comparison.finish()


class ComparisonSession(RunSession):
    """A comparison under way: call :meth:`measure`, then :meth:`finish`."""

    def __init__(self, request: CompareRequest, commands: SideCommands, folder: RunFolder, bench: Bench) -> None:
        super().__init__(folder, bench)
        self.request, self.commands = request, commands

    def measure(self) -> None:
        """Start the processes, measure their rounds, and write ``result.json``."""
        with self.ending_in_order(), self.collecting():
            result = self._programs() if self.request.a.program else self._cases()
            json_file.write(self.path / layout.COMPARISON, result)
            self.note_gpu()

    def _cases(self) -> MeasuredComparison:
        request = self.request
        with ThreadPoolExecutor(len(request.schedule)) as threads:
            processes: list[WarmProcess] = []
            try:
                with self.progress.step("setup"):
                    for command in self.commands.all():
                        orders = self.commands.orders(command.step)
                        processes.append(WarmProcess(self, command, orders, threads))
                    answers = [(each, each.answer()) for each in processes]

                def of_kind(records: Sequence[Record], kind: str) -> Record:
                    return next(record for record in records if record["kind"] == kind)

                environments = [of_kind(records, "environment") for _, records in answers]
                _require_one("gpu", [str(each["gpu"].get("uuid")) for each in environments])
                self.folder.note(environment={key: environments[0][key] for key in ("packages", "gpu")})
                rounds = Rounds(request, processes, self.progress)
                for process, records in answers:
                    rounds.note_failures(process, records)
                clocks = [of_kind(each.ask("clock"), "clock")["idle_mhz"] for each in processes]
                if max(clocks) * (1 - SmClock.TOLERANCE) > min(clocks):
                    _require_one("clocks", [f"{mhz:.0f} MHz" for mhz in clocks])
                with self.progress.step("rounds"):
                    rounds.measure()
                # Before they end the first of each side compares its cases with their references.
                checking = [processes[request.schedule.index(letter)] for letter in "AB"] if request.check else []
                others = [each for each in processes if each not in checking]
                for each in others:
                    each.close()
                for each in others:
                    each.end()
                with self.progress.step("check"):
                    for each in checking:
                        rounds.note_failures(each, each.ask("check", cases=rounds.measured))
                        each.end()
            except BaseException:
                for each in processes:
                    each.close(now=True)
                raise
        for failed in rounds.failed.values():
            self.folder.warn(f"{failed.b if failed.side == 'b' else failed.a}: {failed.reason}")
        if not rounds.measured:
            first = next(iter(rounds.failed.values()))
            raise FiprofError(f"every case failed, the first on side {first.side.upper()}: {first.reason}")
        names = [(a.id, b.id) for a, b in (request.pairs[case] for case in rounds.measured)]
        gpus, hosts = ((rounds.times("A", of), rounds.times("B", of)) for of in ("gpu_us", "host_us"))
        results = zip(compared(names, *gpus, hosts), rounds.measured, strict=True)
        peaks: dict[int, dict[str, Any]] = defaultdict(dict)
        for process, records in answers:
            for record in (each for each in records if each["kind"] == "memory"):
                peaks[record["place"]][f"{process.name[0].lower()}_peak_bytes"] = record["peak_bytes"]
        cases = tuple(dataclasses.replace(case, slow_clock_rounds=rounds.slow(n), **peaks[n]) for case, n in results)
        a, b = (self._side(letter, environments[request.schedule.index(letter)]) for letter in "AB")
        measured = MeasuredComparison(a, b, cases, request.schedule, request.rounds, rounds.repeated, kept_warm=True)
        return dataclasses.replace(measured, failed=tuple(rounds.failed.values()))

    def _programs(self) -> MeasuredComparison:
        """Run each program from its start to its end, one after the other."""
        times_of: dict[str, list[dict[str, float]]] = {"A": [], "B": []}
        for command in self.commands.all():
            results = command.makes[0]
            with self.run(command) as (finished, log):
                require_success(f"process {command.step}", finished, log)
                with file_errors(results), open(results, "a") as out:
                    out.write(json.dumps({"kind": "range", "name": WALL, "us": finished.duration_s * 1e6}) + "\n")
            if command.step not in ("A0", "B0"):
                timed = (each for each in read_jsonl(results) if each.get("kind") == "range" and each["us"] > 0)
                times = by_key((each["name"], each["us"]) for each in timed)
                times_of[command.step[0]].append({name: statistics.median(each) for name, each in times.items()})
        names = [name for name in times_of["A"][0] if all(name in each for side in times_of.values() for each in side)]
        a_us, b_us = ([[each[name] for name in names] for each in times_of[letter]] for letter in "AB")
        cases, (a, b) = compared([(name, name) for name in names], a_us, b_us), (self._side(of, {}) for of in "AB")
        return MeasuredComparison(a, b, cases, self.request.schedule, rounds=1, repeated_rounds=0, kept_warm=False)

    def _side(self, letter: str, environment: Record) -> Side:
        checkout = self.commands.checkouts[letter]
        facts: dict[str, Any] = {key: environment[key] for key in ("packages", "gpu") if key in environment}
        return Side(self.request.side(letter).text, checkout.commit if checkout else None, facts)


class WarmProcess:
    """A process of ``fiprof.workloads rounds``: give it orders one by one (:meth:`ask`), then :meth:`end` it."""

    def __init__(self, session: RunSession, command: ToolCommand, orders: Path, threads: Threads) -> None:
        """orders: the FIFO that the command reads."""
        self.name = command.step
        self._results = command.makes[0]
        self._over = threading.Event()
        self._read, self._tail = 0, b""
        os.mkfifo(orders, 0o600)
        # For reading too: so it opens before the process has opened it, which still sees its end when fiprof ends.
        self._orders = os.open(orders, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        started = session.executor.start(command)

        def follow() -> None:
            with session.ended(started, lambda _: self._over.is_set()) as (finished, log):
                require_success(f"process {command.step}", finished, log)

        self.ended: Future[None] = threads.submit(follow)

    def ask(self, do: str, **order: object) -> list[Record]:
        """The process's answer to an order. Raises FiprofError where it ends instead, and Interrupted."""
        line = json.dumps({"do": do, **order}).encode() + b"\n"
        while line and not self.ended.done():
            try:
                line = line[os.write(self._orders, line) :]
            except BlockingIOError:
                # The pipe is full: a line with thousands of cases is longer than it.
                time.sleep(POLL_S)
        return self.answer()

    def answer(self) -> list[Record]:
        """The records up to the next ``done``."""
        records: list[Record] = []
        while True:
            ended = self.ended.done()
            if self._results.exists():
                with open(self._results, "rb") as results:
                    results.seek(self._read)
                    new = results.read()
                self._read += len(new)
                *lines, self._tail = (self._tail + new).split(b"\n")
                for record in map(json.loads, lines):
                    if record["kind"] == "done":
                        return records
                    records.append(record)
            if ended:
                self.ended.result()
                raise FiprofError(f"{self.name} ended before it was asked to", f"see logs/{self.name}.log")
            time.sleep(POLL_S)

    def end(self) -> None:
        """Close its orders, and wait for its end."""
        self.close()
        self.ended.result()

    def close(self, *, now: bool = False) -> None:
        """Close its orders. now: end it in the middle of one."""
        if now:
            self._over.set()
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1


class Rounds:
    """The rounds of warm processes."""

    def __init__(self, request: CompareRequest, processes: Sequence[WarmProcess], progress: Progress) -> None:
        self._request = request
        self._processes = processes
        self._progress = progress
        self._records: dict[int, list[dict[str, Record]]] = defaultdict(list)  # case -> round -> process -> record
        self.failed: dict[int, FailedCase] = {}
        self.repeated = 0

    @property
    def measured(self) -> list[int]:
        return [case for case in range(len(self._request.pairs)) if case not in self.failed]

    def note_failures(self, process: WarmProcess, records: Iterable[Record]) -> None:
        for record in records:
            if record["kind"] == "error":
                a, b = self._request.pairs[record["place"]]
                side: Literal["a", "b"] = "a" if process.name[0] == "A" else "b"
                self.failed.setdefault(record["place"], FailedCase(a.id, b.id, side, record["error"]))

    def measure(self) -> None:
        """Measure every case in every process, until each has the requested rounds in which the clock had recovered."""
        rounds, first = self._request.rounds, self._processes[0]
        chosen = first.ask("plan", cases=self.measured)
        self.note_failures(first, chosen)
        fits = [each for each in chosen if "iterations" in each]
        plan = {each["place"]: (each["iterations"], each["launches_per_time"]) for each in fits}
        for number in range(rounds + MOST_REPEATED):
            cases = [case for case in self.measured if sum(map(_clock_recovered, self._records[case])) < rounds]
            if not cases:
                break
            self.repeated += number >= rounds
            # Each round has its cases in another order, which is the same in all processes.
            shuffled = random.Random(f"{self._request.seed} {number}").sample(cases, len(cases))
            order = [(case, *plan[case]) for case in shuffled]
            repeated = " again" if number >= rounds else ""
            records: dict[int, dict[str, Record]] = defaultdict(dict)
            turns = random.Random(f"{self._request.order_seed} {number}")
            for process in turns.sample(self._processes, len(self._processes)):
                self._progress.detail("rounds", f"{number + 1} of {rounds}{repeated}, {process.name}")
                answer = process.ask("measure", round=number, cases=order)
                self.note_failures(process, answer)
                for record in answer:
                    records[record["place"]][process.name] = record
            for case, by_process in records.items():
                if case not in self.failed:
                    self._records[case].append(by_process)

    def times(self, letter: str, of: str) -> list[list[float]]:
        """Times, µs, of a side: process x measured case, the geometric median of the rounds. of: gpu_us or host_us."""

        def time_us(process: str, case: int) -> float:
            rounds = (each[process] for each in self._chosen(case))
            values = (each[of] if of == "host_us" else statistics.median(each[of]) for each in rounds)
            return math.exp(statistics.median(map(math.log, values)))

        names = [process.name for process in self._processes if process.name[0] == letter]
        return [[time_us(name, case) for case in self.measured] for name in names]

    def slow(self, case: int) -> int:
        """Rounds of processes that count for a case although the clock had not recovered."""
        return sum(not record["clock_recovered"] for each in self._chosen(case) for record in each.values())

    def _chosen(self, case: int) -> list[dict[str, Record]]:
        """As many rounds of a case as requested; those in which the clock had not recovered only where others lack."""
        return sorted(self._records[case], key=_clock_recovered, reverse=True)[: self._request.rounds]


def _clock_recovered(by_process: dict[str, Record]) -> bool:
    return all(record["clock_recovered"] for record in by_process.values())


def _require_one(what: str, values: Iterable[str]) -> None:
    """Raise FiprofError unless all processes have one value. what: gpu (boards of a kind differ by about 1%), or clocks
    (of the multiprocessors of the idle GPU)."""
    if len(unique := list(dict.fromkeys(values))) > 1:
        remedy = "only times of one GPU at one clock are compared: --gpu N names it; fiprof env shows who else uses it"
        raise FiprofError(f"the processes have different {what}: {', '.join(unique)}", remedy)


# Explaining


def require_tools(request: CompareRequest) -> None:
    """Raises FiprofError where the sides cannot be profiled; to call before they are measured."""
    if request.a.program:
        for letter in "AB":
            profile.find_tools(_profile_request(request, letter))
    else:
        collect.require_tools(_collect_request(request))


def explain(request: CompareRequest, folder: Path, bench: Bench) -> FinishedRun:
    """Profile both sides of a measured comparison, and note their runs in its result. folder: of the comparison.

    Returns the first run that did not complete, else the second side's. Raises as ``collect`` and ``profile``.
    """
    comparison = read_comparison(folder)
    names = []
    gpu = visible_gpu(request.gpu)
    with bench.holding(gpu), scratch(bench.archive.root) as files:
        for letter in "AB":
            checkout = check_out(request.side(letter), files / letter)
            checkouts = {"A": None, "B": None, letter: checkout}
            commands = SideCommands(folder, {}, request.timeout_s, request, files, checkouts)
            executor = Supervisor(commands.environment(letter), bench.executor.stopping)
            of_side = dataclasses.replace(bench, executor=executor)
            git = {"git": checkout.commit} if checkout else {}
            if request.a.program:
                program = _profile_request(request, letter)
                tools = profile.find_tools(program)
                run = profile.new_run(program, tools, bench.archive, gpu, program_facts(program.program))
                run.note(environment=git)
                result = profile.Profiling(program, run, of_side, tools, lambda _piece, _of_stderr: None).measure()
            else:
                both = {getattr(case, letter.lower()) for case in comparison.cases}
                cases = zip(commands.cases(letter), request.cases(letter), strict=True)
                wanted = _collect_request(request, letter, [text for text, case in cases if case.id in both])
                collection = collect.start(wanted, collect.require_tools(wanted), gpu, of_side)
                collection.folder.note(environment=git)
                collection.measure()
                result = collection.conclude()
            if result.problem is not None:
                return result
            names.append(result.path.name)
    json_file.write(folder / layout.COMPARISON, dataclasses.replace(comparison, explained=(names[0], names[1])))
    return result


def _profile_request(request: CompareRequest, letter: str) -> ProfileRequest:
    return ProfileRequest(program=request.side(letter).program, timeout_s=request.timeout_s)


def _collect_request(request: CompareRequest, letter: str = "A", cases: Sequence[str] = ()) -> CollectRequest:
    """How to profile a side's cases. cases: those that both sides could run, as the runner takes them."""
    return CollectRequest(
        cases=tuple(map(parse_case, cases)),
        iterations=request.iterations,
        warmup=request.warmup,
        seed=request.seed,
        check=False,
        timeout_s=request.timeout_s,
        gpu=request.gpu,
        gpu_metrics_hz=0,
        keep_going=True,
        python=request.side(letter).python or request.python,
    )
