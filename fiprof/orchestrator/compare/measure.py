"""A measured comparison: the processes of both sides are started, kept warm and measured in turns."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from fiprof.analysis.comparison.measured_result import FailedCase, MeasuredComparison, Side, compared
from fiprof.errors import FiprofError
from fiprof.files import file_errors, scratch, write_whole
from fiprof.model import json_file, redaction
from fiprof.model.layout import COMPARISON
from fiprof.model.records import read_jsonl
from fiprof.model.settings import recorded
from fiprof.orchestrator import collect
from fiprof.orchestrator.compare.checkouts import Commands, CompareRequest, check_out
from fiprof.orchestrator.environment import collect_facts, program_facts, run_environment
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Command, Supervisor, end_orphans
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.run_folder import Archive, RunFolder
from fiprof.orchestrator.run_session import Progress, Result, RunSession, require_success
from fiprof.orchestrator.tools import gpu_state, visible_gpu
from fiprof.workloads.runner import Record
from fiprof.workloads.timing import SmClock

MOST_REPEATED = 3
"""Rounds that are measured again because the clock was not back in one."""
WALL = "wall"
"""The case that is a program's own time, from its start to its end."""
POLL_S = 0.002
"""Interval at which a file is read that a process writes while it measures: on one of the host's cores, which takes no
part in that."""


def compare(
    request: CompareRequest, archive: Archive, progress: Progress, supervisor: Supervisor, *, wait: bool = True
) -> Result:
    """Measure both sides in turns on this machine, into a run folder with ``result.json``.

    wait: wait for another fiprof on the same GPU to end, instead of failing.
    Raises FiprofError before anything is made for a side that is not there or a GPU that is taken; what goes wrong
    later stands in the result and in the manifest.
    """
    gpu = visible_gpu(request.gpu)
    with gpu_lock(gpu, wait=wait, waiting=progress.say, stopping=supervisor.stopping):
        for process in end_orphans():
            progress.say(f"ended what a killed fiprof had left running: {process}")
        with file_errors(archive.root):
            archive.root.mkdir(parents=True, exist_ok=True)
        with scratch(archive.root.resolve()) as folder:
            checkouts = {letter: check_out(request.side(letter), folder / letter) for letter in "AB"}
            run_folder = _begin(request, archive, gpu)
            commands = Commands(request, run_folder.path, folder, checkouts)
            comparison = Comparison(request, run_folder, supervisor, progress, commands)
            comparison.measure()
            return comparison.finish()


def _begin(request: CompareRequest, archive: Archive, gpu: str) -> RunFolder:
    """A run in a new folder of the archive, with nothing measured yet. Raises FiprofError where a cost model fails."""
    cases = tuple(dict.fromkeys(case for letter in "AB" for case in request.cases(letter)))
    facts = collect_facts(cases) if cases else program_facts(request.a.program)
    facts["command"] = [_masked(request, word) for word in facts["command"]]
    entries = collect.case_entries(CollectRequest(cases=cases))
    before = gpu_state(gpu)
    folder = archive.create(request.label)
    sides = {letter.lower(): _masked(request, request.side(letter).text) for letter in "AB"}
    folder.set(
        kind="comparison",
        cases=entries,
        settings={**recorded(request), **sides},
        environment={**run_environment({}, facts), "gpu_state": {"before": before}},
    )
    folder.save()
    return folder


def _masked(request: CompareRequest, text: str) -> str:
    """A text without the secrets that variables hold."""
    return redaction.mask(text, redaction.secrets({**os.environ, **dict(request.a.env), **dict(request.b.env)}))


class Comparison(RunSession):
    """A comparison under way: call :meth:`measure`, then :meth:`finish`."""

    def __init__(
        self,
        request: CompareRequest,
        folder: RunFolder,
        supervisor: Supervisor,
        progress: Progress,
        commands: Commands,
    ) -> None:
        super().__init__(folder, supervisor, progress)
        self.request = request
        self.commands = commands

    def measure(self) -> None:
        """Everything: the processes, their rounds, what they decide, ``result.json``."""
        with self.ending_in_order(), self.collecting():
            result = self._programs() if self.request.a.program else self._cases()
            write_whole(self.path / COMPARISON, json_file.encode(result))
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
                environments = [_one(records, "environment") for _, records in answers]
                _require_one("gpu", [str(each["gpu"].get("uuid")) for each in environments])
                self.folder.note_environment({key: environments[0][key] for key in ("packages", "gpu")})
                rounds = Rounds(request, processes, self.progress)
                for process, records in answers:
                    rounds.note_failures(process, records)
                clocks = [_one(each.ask("clock"), "clock")["idle_mhz"] for each in processes]
                if max(clocks) * (1 - SmClock.TOLERANCE) > min(clocks):
                    _require_one("clocks", [f"{mhz:.0f} MHz" for mhz in clocks])
                with self.progress.step("rounds"):
                    rounds.measure()
                self._end(processes, rounds)
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
        cases = compared(names, rounds.times("A"), rounds.times("B"))
        return MeasuredComparison(
            a=self._side("A", environments[request.schedule.index("A")]),
            b=self._side("B", environments[request.schedule.index("B")]),
            cases=tuple(
                dataclasses.replace(case, slow_clock_rounds=rounds.slow(place))
                for case, place in zip(cases, rounds.measured, strict=True)
            ),
            schedule=request.schedule,
            rounds=request.rounds,
            repeated_rounds=rounds.repeated,
            kept_warm=True,
            failed=tuple(rounds.failed.values()),
        )

    def _end(self, processes: Sequence[WarmProcess], rounds: Rounds) -> None:
        """End the processes; before, the first of each side compares its cases with their references."""
        checking = [processes[self.request.schedule.index(letter)] for letter in "AB"] if self.request.check else []
        for each in processes:
            if each not in checking:
                each.end()
        with self.progress.step("check"):
            for each in checking:
                rounds.note_failures(each, each.ask("check", cases=rounds.measured))
                each.end()

    def _programs(self) -> MeasuredComparison:
        """Each program from its start to its end, one after the other."""
        found: dict[str, list[dict[str, float]]] = {"A": [], "B": []}
        for command in (*self.commands.first(), *self.commands.all()):
            results = command.makes[0]
            with self.run(command) as (finished, log):
                require_success(f"process {command.step}", finished, log)
                with file_errors(results), open(results, "a") as out:
                    out.write(json.dumps({"kind": "range", "name": WALL, "us": finished.duration_s * 1e6}) + "\n")
            if command.step not in ("A0", "B0"):
                found[command.step[0]].append(_ranges(results))
        names = [name for name in found["A"][0] if all(name in each for side in found.values() for each in side)]
        times = {letter: [[each[name] for name in names] for each in side] for letter, side in found.items()}
        return MeasuredComparison(
            a=self._side("A", {}),
            b=self._side("B", {}),
            cases=compared([(name, name) for name in names], times["A"], times["B"]),
            schedule=self.request.schedule,
            rounds=1,
            repeated_rounds=0,
            kept_warm=False,
        )

    def _side(self, letter: str, environment: Record) -> Side:
        checkout = self.commands.checkouts[letter]
        facts: dict[str, Any] = {key: environment[key] for key in ("packages", "gpu") if key in environment}
        spec = _masked(self.request, self.request.side(letter).text)
        return Side(spec, checkout.commit if checkout else None, facts)


class WarmProcess:
    """A process of ``fiprof.workloads rounds``: :meth:`ask` it one thing after the other, then :meth:`end` it."""

    def __init__(self, session: RunSession, command: Command, orders: Path, threads: Executor) -> None:
        """orders: the FIFO that the command reads. Raises FiprofError where it cannot be started."""
        self.name = command.step
        self._results = command.makes[0]
        self._over = threading.Event()
        self._read, self._tail = 0, b""
        os.mkfifo(orders, 0o600)
        # For reading too: it can be opened before the process does, which sees its end when fiprof ends.
        self._orders = os.open(orders, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        started = session.executor.start(command)

        def follow() -> None:
            with session.ended(started, lambda _: self._over.is_set()) as (finished, log):
                require_success(f"process {command.step}", finished, log)

        self.ended: Future[None] = threads.submit(follow)

    def ask(self, do: str, **order: object) -> list[Record]:
        """What the process answers to an order. Raises FiprofError where it ends instead, Interrupted."""
        line = json.dumps({"do": do, **order}).encode() + b"\n"
        while line and not self.ended.done():
            try:
                line = line[os.write(self._orders, line) :]
            except BlockingIOError:
                # A longer line than a pipe holds, of thousands of cases.
                time.sleep(POLL_S)
        return self.answer()

    def answer(self) -> list[Record]:
        """The records up to the next ``done``."""
        found: list[Record] = []
        while True:
            ended = self.ended.done()
            for record in self._records():
                if record["kind"] == "done":
                    return found
                found.append(record)
            if ended:
                self.ended.result()
                raise FiprofError(f"{self.name} ended before it was asked to", f"see logs/{self.name}.log")
            time.sleep(POLL_S)

    def end(self) -> None:
        """Have no more orders, and wait for its end. Raises FiprofError where it fails in that."""
        self.close()
        self.ended.result()

    def close(self, *, now: bool = False) -> None:
        """Have no more orders. now: end it in the middle of one."""
        if now:
            self._over.set()
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def _records(self) -> Iterable[Record]:
        if not self._results.exists():
            return
        with open(self._results, "rb") as results:
            results.seek(self._read)
            new = results.read()
        self._read += len(new)
        *lines, self._tail = (self._tail + new).split(b"\n")
        yield from map(json.loads, lines)


class Rounds:
    """The rounds of warm processes."""

    def __init__(self, request: CompareRequest, processes: Sequence[WarmProcess], progress: Progress) -> None:
        self._request = request
        self._processes = processes
        self._progress = progress
        self._found: dict[int, list[dict[str, Record]]] = defaultdict(list)
        """Case -> each of its rounds, by process."""
        self.failed: dict[int, FailedCase] = {}
        self.repeated = 0

    @property
    def measured(self) -> list[int]:
        """The cases that did not fail."""
        return [case for case in range(len(self._request.pairs)) if case not in self.failed]

    def note_failures(self, process: WarmProcess, records: Iterable[Record]) -> None:
        """Leave the cases out that failed in a process."""
        for record in records:
            if record["kind"] == "error":
                a, b = self._request.pairs[record["place"]]
                side: Literal["a", "b"] = "a" if process.name[0] == "A" else "b"
                self.failed.setdefault(record["place"], FailedCase(a.id, b.id, side, record["error"]))

    def measure(self) -> None:
        """Every case in every process, until each has as many rounds as wanted in which the clock was back."""
        wanted, first = self._request.rounds, self._processes[0]
        chosen = first.ask("plan", cases=self.measured)
        self.note_failures(first, chosen)
        plan = {
            each["place"]: (each["iterations"], each["launches_per_time"]) for each in chosen if "iterations" in each
        }
        for number in range(wanted + MOST_REPEATED):
            cases = [case for case in self.measured if sum(map(_has_clock, self._found[case])) < wanted]
            if not cases:
                break
            self.repeated += number >= wanted
            self._round(number, cases, plan)

    def _round(self, number: int, cases: Sequence[int], plan: Mapping[int, tuple[int, int]]) -> None:
        """One round, its cases in another order each time, the same in all processes; every second round backwards
        through these, so that a drift falls on both sides alike."""
        shuffled = random.Random(f"{self._request.seed} {number}").sample(cases, len(cases))
        order = [(case, *plan[case]) for case in shuffled]
        again = " again" if number >= self._request.rounds else ""
        records: dict[int, dict[str, Record]] = defaultdict(dict)
        for process in self._processes[:: -1 if number % 2 else 1]:
            self._progress.detail("rounds", f"{number + 1} of {self._request.rounds}{again}, {process.name}")
            answer = process.ask("measure", round=number, cases=order)
            self.note_failures(process, answer)
            for record in answer:
                records[record["place"]][process.name] = record
        for case, by_process in records.items():
            if case not in self.failed:
                self._found[case].append(by_process)

    def times(self, letter: str) -> list[list[float]]:
        """Each process of a side: its time of each measured case, µs, the geometric median of its rounds' medians."""

        def time_us(process: str, case: int) -> float:
            rounds = (math.log(statistics.median(each[process]["gpu_us"])) for each in self._chosen(case))
            return math.exp(statistics.median(rounds))

        names = [process.name for process in self._processes if process.name[0] == letter]
        return [[time_us(name, case) for case in self.measured] for name in names]

    def slow(self, case: int) -> int:
        """Process rounds of a case that count although the clock was not back."""
        return sum(not record["clock_recovered"] for each in self._chosen(case) for record in each.values())

    def _chosen(self, case: int) -> list[dict[str, Record]]:
        """As many rounds as wanted: those without the clock only where others lack."""
        return sorted(self._found[case], key=_has_clock, reverse=True)[: self._request.rounds]


def _has_clock(by_process: dict[str, Record]) -> bool:
    return all(record["clock_recovered"] for record in by_process.values())


def _one(records: Sequence[Record], kind: str) -> Record:
    return next(record for record in records if record["kind"] == kind)


def _require_one(what: str, values: Iterable[str]) -> None:
    """Raise FiprofError where the processes do not have this in common. what: gpu (boards of a kind differ by about
    1%), or clocks (of the multiprocessors of the idle GPU)."""
    if len(unique := list(dict.fromkeys(values))) > 1:
        raise FiprofError(
            f"the processes have different {what}: {', '.join(unique)}",
            "only times of one GPU at one clock are compared: --gpu N names it; fiprof env shows who else uses it",
        )


def _ranges(results: Path) -> dict[str, float]:
    """Range -> its median time in a process, µs; above zero."""
    times: dict[str, list[float]] = defaultdict(list)
    for record in read_jsonl(results):
        if record.get("kind") == "range" and record["us"] > 0:
            times[record["name"]].append(record["us"])
    return {name: statistics.median(each) for name, each in times.items()}
