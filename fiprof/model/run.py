"""A run folder, opened for reading: each table is read once, whoever asks for it."""

from __future__ import annotations

import functools
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from fiprof.errors import FiprofError
from fiprof.model import layout, tables
from fiprof.model import manifest as manifests
from fiprof.model.arrays import ByLaunch, Columns, Kinds, Quantiles, finite_rows, numbers
from fiprof.model.finding import Finding, TracedNumber, finding
from fiprof.model.json_file import decode
from fiprof.model.manifest import Baseline, CaseEntry, Manifest
from fiprof.model.quantities import COLUMNS, DURATION, METRICS, Formula, Quantity, Row
from fiprof.model.selection import Labels, Selection, Weights, by_key
from fiprof.model.settings import CollectSettings, from_manifest
from fiprof.model.times import COLUMNS as TIMED
from fiprof.model.times import Times, TraceTimes, measured, summarize, trace_times
from fiprof.text import escape_control, kernel_identity

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
P = ParamSpec("P")
Shape = tuple[str, str, str]  # kernel, grid and block

IDENTITY = ("launch", "case", "iteration", "kernel", "kernel_full", "grid", "block")
"""Columns of ``launches`` that say which launch a row is."""
SECTIONS = {
    "SpeedOfLight": "sm_throughput_pct",
    "Occupancy": "achieved_occupancy_pct",
    "MemoryWorkloadAnalysis": "dram_bytes_per_second",
    "SourceCounters": "uniform_branches_pct",
}
"""Section of ncu -> a column of ``launches`` that no other section fills. WarpStateStats fills the table ``stalls``."""


def shape(row: Mapping[str, Any]) -> Shape:
    """Kernel, grid and block of a row of ``kernels`` (nsys) or ``launches`` (ncu), spelled the same for both."""
    return kernel_identity(row["kernel"] or "", row["kernel_full"]), row["grid"], row["block"]


class StallReason(NamedTuple):
    """A reason's row of the table ``stalls``."""

    reason: str
    warps_per_issue: float | None  # warps in this state per issued instruction
    share: float | None  # of the sum over the reasons, 0 to 1
    samples: int | None  # warp samples in this state; None where warps were not sampled
    samples_not_issued: int | None  # those in cycles in which the scheduler issued nothing
    sampled_share: float | None  # share of all warp samples of the launch, 0 to 1

    @property
    def weight(self) -> float:
        """The share to sort by: by the counters, else of the samples."""
        return (self.sampled_share or 0.0) if self.share is None else self.share


class Launch(Mapping[str, Any]):
    """A kernel launch under ncu: its identity as attributes, and as a mapping its row of ``launches``."""

    def __init__(self, run: Run, columns: Mapping[str, Sequence[Any]], place: int) -> None:
        """columns: the whole table, which all launches share. place: position of this launch's row."""
        self._run, self._columns, self._place = run, columns, place
        self.launch = int(self["launch"])
        """ncu's ID."""
        self.case: str | None = self["case"]
        """Case id; None outside the cases' ranges."""
        self.label = run.labels(self.case)
        """The case in short."""
        self.iteration: int | None = self["iteration"]
        self.kernel: str = self["kernel"] or ""
        """Name without namespaces, parameters and template arguments."""
        self.kernel_full: str = self["kernel_full"] or self.kernel
        self.grid: str = self["grid"] or ""
        """Blocks, e.g. ``132x1x1``."""
        self.block: str = self["block"] or ""
        """Threads of a block, e.g. ``384x1x1``."""
        self.repeated = False
        """Whether the run has this kernel of this case more than once."""

    def __getitem__(self, column: str) -> Any:
        return self._columns[column][self._place]

    def get(self, column: str, default: Any = None) -> Any:
        try:
            return self._columns[column][self._place]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter((*IDENTITY, *COLUMNS))

    def __len__(self) -> int:
        return len(IDENTITY) + len(COLUMNS)

    @functools.cached_property
    def duration_us(self) -> float | None:
        """Duration under ncu."""
        return DURATION.of(self)

    @functools.cached_property
    def nsys(self) -> Times | None:
        """Times under nsys of its kernel with its grid and block, in its case. Of several ranks, those of the slowest:
        which rank ncu saw is not known."""
        if by_rank := self._run.shape_times.get((self.case, shape(self))):
            return max(by_rank.values(), key=lambda times: times.median_us)
        return self._run.trace.kernels.get((self.case or "", self.kernel))

    @property
    def nsys_duration_us(self) -> float | None:
        """Median duration under nsys."""
        return self.nsys.median_us if self.nsys else None

    def traced(self, quantity: Quantity, *, spec: str = "", unit: str | None = None) -> TracedNumber | None:
        """A quantity with its provenance in this run's metric names; None where it was not collected."""
        return quantity.traced(self, self._run.metric_name, spec=spec, unit=unit)

    def written(self, formula: Formula) -> str:
        """A formula in this run's metric names; empty where a metric was not collected."""
        evaluated = formula.evaluate(self, self._run.metric_name)
        return evaluated[1] if evaluated else ""


@dataclass(frozen=True)
class Run:
    """A run folder. Nothing is read before it is asked for, and no column of a table twice."""

    path: Path
    new_tables: Path | None = field(default=None, repr=False)
    """The folder of its tables while they are being made; None for its folder ``tables``."""
    leaving: bool = field(default=False, repr=False)
    """Whether it is read to be handed on: secrets in what an older fiprof wrote without masking are masked."""
    _tables: dict[str, tables.Reader] = field(default_factory=dict, init=False, repr=False, compare=False)
    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, path: Path, at: Path) -> Self:
        """A run whose tables lie in the folder ``at``, which may be the run folder."""
        return cls(path, None if at == path else at / layout.TABLES)

    @functools.cached_property
    def manifest(self) -> Manifest:
        """With the folder's name, by which commands find it, where somebody renamed that."""
        manifest, name = manifests.read_manifest(self.path), self.path.resolve().name
        manifest = manifest if name.startswith(".") else replace(manifest, name=name)
        return decode(manifest.to_json(), Manifest) if self.leaving else manifest

    @functools.cached_property
    def tables_path(self) -> Path:
        return self.new_tables or self.path / layout.TABLES

    # Tables

    def has(self, table: str) -> bool:
        return table in self._tables or os.path.exists(f"{self.tables_path}/{table}.parquet")

    def _reader(self, name: str) -> tables.Reader:
        if name not in self._tables:
            from fiprof.model.redaction import masking

            hide = masking() if self.leaving else None
            self._tables[name] = tables.Reader(self.tables_path, name, hide=hide)
        return self._tables[name]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, or some of its columns, as Arrow."""
        return self._reader(name).read(columns)

    def pieces(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of a table, some rows at a time and not cached; nothing where the run has no such table."""
        if self.has(name):
            yield from self._reader(name).pieces(columns)

    def row_count(self, name: str) -> int:
        """Rows of a table; 0 where the run has no such table."""
        return self._reader(name).rows if self.has(name) else 0

    def columns(self, table: str) -> frozenset[str]:
        """The columns that a table has; none where the run has no such table."""
        return self._reader(table).columns if self.has(table) else frozenset()

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """A table, or some of its columns, as a DataFrame."""
        frame: pd.DataFrame = self.table(name, columns).to_pandas()
        return frame

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """A table's rows, every column present; none where the run has no such table.

        None stands for a column that the table lacks, a null, a NaN and an infinity.
        """
        if not self.has(table):
            return []
        present = [column for column in columns if column in self._reader(table).columns]
        absent = dict.fromkeys(column for column in columns if column not in present)
        rows = finite_rows(self.table(table, present))
        for row in rows if absent else ():
            row.update(absent)
        return rows

    def by_launch(
        self, table: str, columns: Sequence[str], make: Callable[[list[dict[str, Any]]], T]
    ) -> Mapping[int, T]:
        """Launch -> what ``make`` gives for its rows of a table; empty where the run has no such table."""
        return ByLaunch(make, self.table(table, ["launch", *columns])) if self.has(table) else {}

    def once(self, make: Callable[Concatenate[Run, P], T], *of: P.args, **named: P.kwargs) -> T:
        """What a function gives for this run and these arguments, computed on the first call."""
        key = (make, *of, *named.items())
        if key not in self._made:
            self._made[key] = make(self, *of, **named)
        result: T = self._made[key]
        return result

    # Cases

    @property
    def cases(self) -> list[CaseEntry]:
        return self.manifest.cases

    def case(self, case_id: str | None) -> CaseEntry | None:
        return next((case for case in self.manifest.cases if case.id == case_id), None)

    @functools.cached_property
    def labels(self) -> Labels:
        return Labels(case.id for case in self.manifest.cases)

    # Without a profiler

    @functools.cached_property
    def baseline(self) -> dict[str, Baseline]:
        """Case id -> the runner's timings; empty where the run has none."""
        return manifests.baselines(self.path / layout.BASELINE)

    @functools.cached_property
    def plain(self) -> dict[str, Times]:
        """Case id -> times of an iteration without a profiler, between CUDA events.

        They include the events' overhead and the gaps between kernels: 1 to 3 µs an iteration.
        """
        times_of = {case: summarize(baseline.gpu_us) for case, baseline in self.baseline.items()}
        return {case: times for case, times in times_of.items() if times is not None}

    @functools.cached_property
    def case_errors(self) -> dict[str, str]:
        """Case id -> why it failed, for the cases that failed in the plain run."""
        return manifests.case_errors(self.path / layout.BASELINE)

    # Under nsys

    @functools.cached_property
    def trace(self) -> TraceTimes:
        """Times under nsys; empty without."""
        from fiprof.model.ranks import ranks_of

        if not self.has("kernels"):
            return TraceTimes({}, {})
        ranks = ranks_of(self)
        reader, who = self._reader("kernels"), ("pid", "device") if ranks.several else ()
        rank_of = (lambda piece: ranks.of_rows(piece.select(who))) if who else None
        return trace_times(reader.pieces((*TIMED, *who)), reader.rows, rank_of)

    @functools.cached_property
    def shape_times(self) -> dict[tuple[str | None, Shape], dict[int, Times]]:
        """(Case, shape) -> rank -> times under nsys, in the phase ``measure``; of a run without cases, in all of it."""
        from fiprof.model.ranks import ranks_of

        ranks, kinds, durations = ranks_of(self), Kinds(), Quantiles(self.row_count("kernels"))
        keys, who = ["case", "kernel", "kernel_full", "grid", "block"], ("pid", "device") if ranks.several else ()
        for piece in self.pieces("kernels", (*keys, "phase", "duration_ns", *who)):
            in_measure = measured(piece) if self.cases else slice(None)
            rank = ranks.of_rows(piece) if ranks.several else np.zeros(piece.num_rows, np.int64)
            durations.add(
                kinds.of(piece.select(keys), in_measure, rank=rank[in_measure]),
                numbers(piece["duration_ns"])[in_measure],
            )
        times = durations.spreads()
        by_shape: dict[tuple[str | None, Shape], dict[int, Times]] = defaultdict(dict)
        for (*values, number), each in kinds.numbers.items():
            row = dict(zip(keys, values, strict=True))
            by_shape[row["case"], shape(row)][number] = Times.of_ns(*times[each])
        return by_shape

    # Under ncu

    @functools.cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Kernel launches with every metric of ``metrics.csv``, in the order of the table; none without ncu."""
        if not self.has("launches"):
            return ()
        present = [name for name in (*IDENTITY, *COLUMNS) if name in self.columns("launches")]
        table = self.table("launches", present)
        columns = Columns(table, {*IDENTITY, *COLUMNS} - {*present})
        launches = tuple(Launch(self, columns, place) for place in range(table.num_rows))
        counts = Counter((launch.case, launch.kernel) for launch in launches)
        for launch in launches:
            launch.repeated = counts[launch.case, launch.kernel] > 1
        return launches

    @functools.cached_property
    def launches_of(self) -> Mapping[str | None, list[Launch]]:
        """Case id -> its launches; empty for a case without any."""
        return defaultdict(list, by_key((launch.case, launch) for launch in self.launches))

    def selected(
        self, wanted: Selection, weights: Weights | None = None, *, among: Container[int] | None = None
    ) -> list[Launch]:
        """The launches that a user asked for, in their order. among: only launches with these IDs.

        Raises FiprofError where the run has no launches, or none of these.
        """
        self.require_launches()
        candidates = [each for each in self.launches if among is None or each.launch in among]
        return wanted.of(candidates, self.manifest.name, weights=weights)

    def require_launches(self, what: str = "counters", *, there: bool | None = None, section: str = "") -> None:
        """Raise FiprofError where the run has no launches under ncu.

        what: what the error says that the run lacks. there: whether it has that, where launches alone are not enough.
        section: the section of ncu that collects it.
        """
        if not (self.launches if there is None else there):
            why = next(iter(self.uncollected(section)), None) if section else None
            remedy = self.remedy("--set full" if why else "--tool nsys,ncu")
            raise FiprofError(f"{self.manifest.name} has no {what}", remedy, why=why or self.missing("ncu"))

    def uncollected(self, *sections: str) -> tuple[Finding, ...]:
        """A finding that names which of these sections of ncu were not collected, and the options that collect them."""
        present = {each for each, of in SECTIONS.items() if any(launch[of] is not None for launch in self.launches)}
        present |= {"WarpStateStats"} if self.stall_reasons else set()
        uncollected = tuple(each for each in sections if self.launches and each not in present)
        kinds = {file.kind for file in self.manifest.imported}
        words = "ncu ran without its {sections:section|sections}; {options} collects that"
        if "ncu-details" in kinds and kinds.isdisjoint(("ncu-raw", "ncu-rep")):
            words = "ncu's details page lacks {sections}; its raw page, or the report itself, has what was collected"
        options = " ".join(["ncu", *(f"--section {each}" for each in uncollected)])
        return (finding("uncollected", words, sections=uncollected, options=options),) if uncollected else ()

    @functools.cached_property
    def stall_reasons(self) -> Mapping[int, tuple[StallReason, ...]]:
        """Launch -> its stall reasons, in the order of the table; empty where they were not collected."""

        def reasons(rows: list[dict[str, Any]]) -> tuple[StallReason, ...]:
            total = sum(row["samples"] or 0 for row in rows)
            shares = [None if row["samples"] is None or not total else row["samples"] / total for row in rows]
            return tuple(StallReason(**row, sampled_share=each) for row, each in zip(rows, shares, strict=True))

        columns = ("reason", "warps_per_issue", "share", "samples", "samples_not_issued")
        return self.by_launch("stalls", columns, reasons)

    def per_iteration(self, case: str, quantity: Callable[[Row], float | None]) -> float | None:
        """A quantity of ncu's launches summed over the kernels of an iteration, the median of the iterations.

        None where ncu did not see the case, or not all kernels of an iteration, as in a program; and where one of its
        launches lacks the quantity or belongs to no iteration.
        """
        traced = self.trace.cases.get(case) if self.imported else None
        launches = () if self.of_program else self.launches_of[case]
        totals = by_key((launch.iteration, quantity(launch)) for launch in launches)
        if not totals or None in totals or any(value is None for values in totals.values() for value in values):
            return None
        if traced and any(len(values) < traced.executions for values in totals.values()):
            return None
        return float(np.median([sum(value for value in values if value is not None) for values in totals.values()]))

    @functools.cached_property
    def metric_name(self) -> Callable[[str], str]:
        """Column of ``launches`` -> ncu's name of the metric in this run."""
        chunks = self.table("metrics", ["metric"])["metric"].chunks if self.has("metrics") else ()
        collected = {name for chunk in chunks for name in chunk.dictionary.to_pylist()}
        names = {each.name: next((name for name in each.ncu if name in collected), each.ncu[0]) for each in METRICS}
        return names.__getitem__

    # By the manifest

    def status_warning(self) -> tuple[Finding, ...]:
        """A warning for a run that did not complete; empty for one that did."""
        manifest = self.manifest
        if manifest.status == "complete":
            return ()
        return (manifests.run_warning(manifest.status, manifest.name, manifest.reason),)

    @functools.cached_property
    def settings(self) -> CollectSettings:
        """How it was measured; defaults for what the manifest does not say."""
        return from_manifest(self.manifest.settings)

    def environment(self, *path: str) -> Any:
        """A value of the manifest's environment, as :func:`fiprof.model.manifest.fact` finds it."""
        return manifests.fact(self.manifest.environment, *path)

    @property
    def given(self) -> str:
        """RUN in a command that is printed: the run's path, quoted for a shell."""
        return shlex.quote(escape_control(str(self.path)))

    @property
    def folder(self) -> str:
        """RUN in a document, whose reader has the run in another place: the folder's name, quoted for a shell."""
        return shlex.quote(escape_control(self.path.name))

    @property
    def imported(self) -> bool:
        """Whether ``fiprof import`` made it."""
        return bool(self.manifest.imported)

    @property
    def of_program(self) -> bool:
        """Whether ``fiprof profile`` or ``capture`` measured it."""
        return not self.imported and "cover_pct" in self.manifest.settings

    def remedy(self, options: str) -> str:
        """How to measure what the run lacks, and which command shows what it has. options: those that measure it."""
        traced = self.row_count("kernels") and not self.launches
        command = "fiprof profile {} -- COMMAND" if self.of_program else "fiprof collect {}"
        how = f"{command.format(options)} collects that"
        if self.imported and self.launches and "--set" in options:
            how = "import that, or a report that ncu --set full made"
        elif self.imported:
            tool, report = ("ncu", "ncu --set full") if self.has("kernels") else ("nsys", "nsys profile")
            how = f"import a report of {tool} of the same program beside this file: {report} -o REPORT COMMAND"
        return f"{how}; fiprof {'top' if traced else 'show'} shows what this run has"

    def missing(self, tool: str) -> Finding:
        """Why the run has nothing of nsys or ncu."""
        manifest, first = self.manifest, {"nsys": "kernels", "ncu": "launches"}.get(tool, "")
        if self.imported and tool not in {file.tool_name for file in manifest.imported}:
            return finding("not_imported", "no file of {tool} was imported", tool=tool)
        if tool not in manifest.settings.get("tools", (tool,)):
            return finding("not_asked", "{tool} was not asked for", tool=tool)
        steps = [action for action in manifest.actions if action.step.startswith(tool)]
        for action in steps:
            if action.outcome != "ok":
                kind, words = "step_ended", "{step} {outcome}"
                if action.message not in ("", action.outcome):
                    kind, words = "step_said", "{step} {outcome}: {message}"
                return finding(kind, words, step=action.step, outcome=action.outcome, message=action.message)
        # The step whose output the tables are made of.
        exported = {"nsys": "nsys-export", "ncu": "ncu-raw"}.get(tool)
        if manifest.status == "interrupted" and not any(action.step == exported for action in manifest.actions):
            return finding("not_ended", "{tool} did not come to its end: {reason}", tool=tool, reason=manifest.reason)
        if not self.imported and not steps:
            kind, words = "not_started", "{tool} was not started"
            if manifest.reason:
                kind, words = "not_started_because", "{tool} was not started: {reason}"
            return finding(kind, words, tool=tool, reason=manifest.reason)
        if self.has(first):
            if self.row_count(first):
                words = "{tool}'s kernels belong to no case"
                words += "; fiprof import --range NAME makes cases of NVTX ranges" if self.imported else ""
                return finding("no_cases", words, tool=tool)
            if manifest.status == "failed":
                return finding("failed", "the run failed: {reason}", reason=manifest.reason)
            diagnostics = self.rows("diagnostics", ("severity", "text"))
            texts = {row["text"] or "" for row in diagnostics if row["severity"] in ("Warning", "Error")}
            if messages := tuple(sorted(text.rstrip(".") for text in texts if "CUDA" in text or "CUPTI" in text)):
                words = (
                    "CUDA was not traced: nsys said {said}. Trace with --trace=cuda and an nsys as new as the driver"
                )
                return finding("not_traced", words, said=messages)
            words = "{tool} saw no kernel; fiprof export {run} --to perfetto shows what it saw"
            return finding("no_kernels", words, tool=tool, run=self.given)
        words = "{tool} ran, but its tables are not there; fiprof parse {run} makes them, or says why it cannot"
        return finding("no_tables", words, tool=tool, run=self.given)


def once(make: Callable[[Run], T]) -> Callable[[Run], T]:
    """Decorate a function of a run: it is computed on the first call for each run."""

    @functools.wraps(make)
    def cached(run: Run) -> T:
        return run.once(make)

    return cached
