"""A study's results as its documents read them: cells by workload, short names, pairs, and links to their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.results import Cell, EnvironmentInfo, JitResults, Kernel, KernelResults, SourceResults, read
from fiprof.reports.pages.page import Link, PageLink
from fiprof.reports.study_pages import sources as study_sources
from fiprof.text import count

Value = bool | int | float | str
Params = Mapping[str, Value]

ENVIRONMENT = "environment_info.json"
JIT = "jit_analysis.json"
NOT_CELLS = frozenset({ENVIRONMENT, JIT, study_sources.SOURCES})

FEWEST_ON_AXIS = 3
"""A number with so many values in a workload is an axis that its times are fitted along; with fewer, an option."""

DOCUMENTS = ("INDEX", "environment", "analysis", "kernel-dev-guide", "final-report")


@dataclass(frozen=True)
class Study:
    """What a study folder holds."""

    folder: Path
    info: EnvironmentInfo
    results: tuple[KernelResults, ...]
    jit: JitResults | None
    """None where compilation was not studied."""
    sources: SourceResults | None = None
    """None where the installed library was not mapped."""

    @cached_property
    def by_workload(self) -> dict[str, tuple[Cell, ...]]:
        """Workload -> its cells, those skipped too, in the study's order."""
        found: dict[str, list[Cell]] = {}
        for results in self.results:
            for cell in results.cells:
                found.setdefault(cell.workload, []).append(cell)
        return {name: tuple(cells) for name, cells in found.items()}

    @cached_property
    def measured(self) -> tuple[Cell, ...]:
        """Every cell with a plain time."""
        return tuple(cell for cells in self.by_workload.values() for cell in cells if cell.plain is not None)

    def of(self, workload: str) -> tuple[Cell, ...]:
        """A workload's measured cells."""
        return tuple(cell for cell in self.by_workload.get(workload, ()) if cell.plain is not None)

    def varied(self, workload: str) -> dict[str, tuple[Value, ...]]:
        """Parameter -> its values among all cells of a workload, numbers sorted; only those that vary."""
        found: dict[str, dict[Value, None]] = {}
        for cell in self.by_workload.get(workload, ()):
            for name, value in cell.params.items():
                found.setdefault(name, {})[value] = None
        return {name: _ordered(values) for name, values in found.items() if len(values) > 1}

    def short(self, cell: Cell, *, without: Sequence[str] = ()) -> str:
        """The same for a narrow column: ``256x8k GQA TC graph``, the axes' values and then the options."""
        axes = "x".join(
            _short_number(cell.params[name])
            for name in self.axes(cell.workload)
            if name in cell.params and name not in without
        )
        options = [
            _short_option(name, cell.params[name], cell.params)
            for name in self.options(cell.workload)
            if name in cell.params and name not in without
        ]
        return " ".join(filter(None, [axes, *options])) or cell.workload

    def short_key(self, workload: str, *, without: Sequence[str] = ()) -> str:
        """What the numbers of :meth:`short` are: ``batch x KV length``."""
        return " x ".join(AXIS_WORDS.get(name, name) for name in self.axes(workload) if name not in without)

    @property
    def l2_bytes(self) -> int | None:
        """Of the GPU; None where the environment does not tell."""
        found = (self.info.environment.get("gpu") or {}).get("l2_bytes")
        return found if isinstance(found, int) else None

    @property
    def confidence(self) -> str:
        """Of the cells' intervals, in words: ``95%``, or ``75 to 95%``."""
        found = [cell.plain.confidence for cell in self.measured if cell.plain is not None]
        low, high = min(found, default=0.0), max(found, default=0.0)
        return f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{100 * low:.0f} to {high:.0%}"

    def axes(self, workload: str) -> tuple[str, ...]:
        """The parameters that sizes vary along: numbers with FEWEST_ON_AXIS values or more."""
        return tuple(
            name
            for name, values in self.varied(workload).items()
            if len(values) >= FEWEST_ON_AXIS and all(is_number(value) for value in values)
        )

    def options(self, workload: str) -> tuple[str, ...]:
        """The other parameters that vary."""
        axes = self.axes(workload)
        return tuple(name for name in self.varied(workload) if name not in axes)

    def groups(self, workload: str) -> dict[tuple[tuple[str, Value], ...], tuple[Cell, ...]]:
        """Options' values -> the measured cells that share them, the smallest first (by least bytes and work)."""
        options = self.options(workload)
        found: dict[tuple[tuple[str, Value], ...], list[Cell]] = {}
        for cell in self.of(workload):
            found.setdefault(tuple((name, cell.params[name]) for name in options if name in cell.params), []).append(
                cell
            )
        return {key: tuple(sorted(cells, key=size)) for key, cells in found.items()}

    def label(self, cell: Cell, *, workload: bool = True, without: Sequence[str] = ()) -> str:
        """E.g. ``decode batch 32, KV 2,048, GQA 32/8, tensor cores``: what tells a cell from its workload's others."""
        varied = self.varied(cell.workload)
        words = parameter_words({k: v for k, v in cell.params.items() if k in varied and k not in without}, cell.params)
        return " ".join([cell.workload, *([words] if words else [])]) if workload else words or cell.workload

    def cite(self, cell: Cell) -> Link:
        """The cell's name, leading to the run that holds it; to the table of all cells where the run is not there."""
        return self._run_page(self.label(cell), cell.run) or PageLink(
            self.label(cell), f"analysis#cells-{cell.workload}"
        )

    def run_link(self, run: str) -> str:
        """The name of a run, a link where its folder is beside the results."""
        return self._run_page(run, run) or run

    def _run_page(self, text: str, run: str) -> Link | None:
        folder = self.folder / run
        if not run or not (folder / "run.json").is_file():
            return None
        if all((folder / f"report.{suffix}").is_file() for suffix in ("md", "html")):
            return PageLink(text, f"../{run}/report")
        return Link(text, f"../{run}/run.json")

    def why_absent(self, workload: str, params: Params | None = None) -> str:
        """Why there is no measured cell of a workload with these parameters, as the end of a sentence."""
        cells = self.by_workload.get(workload)
        if not cells:
            return f"the study has no {workload} cells"
        wanted = params or {}
        matching = [cell for cell in cells if matches(cell, wanted)]
        words = parameter_words({k: v for k, v in wanted.items() if k != "q_heads" or "kv_heads" not in wanted}, wanted)
        if not matching:
            return f"the study has no {workload} cell" + (f" with {words}" if words else "")
        reasons = list(dict.fromkeys(cell.skipped for cell in matching if cell.skipped))
        if reasons:
            more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
            return f"{_have(len(matching), workload)} no time: {reasons[0]}{more}"
        if any(cell.plain is not None for cell in matching):
            return f"what it needs of {count(len(matching), f'{workload} cell')} was not recorded"
        return f"{_have(len(matching), workload)} no plain time"


def _have(n: int, workload: str) -> str:
    return f"{count(n, f'{workload} cell')} {'has' if n == 1 else 'have'}"


def load(folder: Path) -> Study:
    """A study's results.

    Raises FiprofError where ``results/environment_info.json`` is missing, or a file is damaged or of a later schema.
    """
    results = folder / "results"
    info = read(results / ENVIRONMENT, EnvironmentInfo)
    files = sorted(path for path in results.glob("*.json") if path.name not in NOT_CELLS)
    if not files and not (results / JIT).is_file():
        raise FiprofError(f"{results} has no results of any kernel", "fiprof study NAME measures them")
    return Study(
        folder,
        info,
        tuple(read(path, KernelResults) for path in files),
        read(results / JIT, JitResults) if (results / JIT).is_file() else None,
        study_sources.load(results),
    )


def matches(cell: Cell, params: Params) -> bool:
    """Whether a cell has these parameters' values."""
    return all(name in cell.params and same(cell.params[name], value) for name, value in params.items())


def same(one: Value, other: Value) -> bool:
    """Whether two values of a parameter are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a workload with some parameters."""

    workload: str
    params: tuple[tuple[str, Value], ...] = ()


def pairs(study: Study, one: Side, other: Side) -> list[tuple[Cell, Cell]]:
    """Measured cells of the two sides that agree in every parameter that neither side names.

    In the order of the study.
    """
    named = {name for name, _ in (*one.params, *other.params)}
    others = {_rest(cell, named): cell for cell in study.of(other.workload) if matches(cell, dict(other.params))}
    return [
        (cell, others[_rest(cell, named)])
        for cell in study.of(one.workload)
        if matches(cell, dict(one.params)) and _rest(cell, named) in others
    ]


def pairs_of(study: Study, workload: str, name: str, one: Value, other: Value) -> list[tuple[Cell, Cell]]:
    """Measured cells of a workload that differ in one parameter alone."""
    return pairs(study, Side(workload, ((name, one),)), Side(workload, ((name, other),)))


def pair_label(study: Study, one: Cell, other: Cell, *, without: Sequence[str] = ()) -> str:
    """What two cells have in common, and along which axis they differ: ``batch 1, KV 512 to 2,048``.

    Options that differ are left out, because whoever shows the pair has named them; and so are those in ``without``.
    """
    differ = [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]
    axes = [name for name in differ if name in study.axes(one.workload)]
    common = study.label(one, workload=False, without=(*differ, *without))
    moves = [f"{parameter_word(name, other.params[name], other.params)} to {one.params[name]:,}" for name in axes]
    return ", ".join(filter(None, ["" if common == one.workload else common, *moves])) or one.workload


def short_pair(study: Study, one: Cell, other: Cell) -> str:
    """The same for a narrow column: ``1x512 graph`` in common, or ``1x512 GQA to 1x2k GQA`` along an axis."""
    differ = [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]
    if any(name in study.axes(one.workload) for name in differ):
        return f"{study.short(other)} to {study.short(one)}"
    return study.short(one, without=differ)


def _rest(cell: Cell, named: set[str]) -> frozenset[tuple[str, Value, bool]]:
    return frozenset((k, v, isinstance(v, bool)) for k, v in cell.params.items() if k not in named)


def size(cell: Cell) -> tuple[int, int]:
    """To sort cells by."""
    return (cell.bytes_read + cell.bytes_written, cell.flops)


def main_kernel(cell: Cell) -> Kernel | None:
    """The kernel that took most of the iteration's time under ncu; None where ncu did not see the cell."""
    return max(cell.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)


def kernel_shares(cell: Cell) -> list[float] | None:
    """Each kernel's part of the iteration's time under ncu; None where one has no time."""
    durations = [kernel.duration_us for kernel in cell.kernels]
    known = [duration for duration in durations if duration is not None]
    total = sum(known)
    return [duration / total for duration in known] if total and len(known) == len(durations) else None


def dram_bytes(cell: Cell) -> float | None:
    """Counted DRAM bytes of an iteration; None where a kernel's were not counted."""
    counted = [kernel.dram_bytes for kernel in cell.kernels]
    known = [value for value in counted if value is not None]
    return sum(known) if counted and len(known) == len(counted) else None


# Parameters in words


def parameter_words(params: Params, everything: Params) -> str:
    """E.g. ``batch 32, KV 2,048, GQA 32/8``. everything: all parameters, to name a head count by."""
    return ", ".join(filter(None, (parameter_word(name, value, everything) for name, value in params.items())))


def parameter_word(name: str, value: Value, everything: Params) -> str:
    """One parameter's value, as an engineer says it; nothing for a switch that is off and has no other name."""
    if name == "kv_heads" and is_number(queries := everything.get("q_heads")):
        kind = "MHA" if queries == value else "MQA" if value == 1 else "GQA"
        return f"{kind} {queries}/{value}"
    if isinstance(value, bool):
        on, off = _SWITCHES.get(name, (name, ""))
        return on if value else off
    if name in _WORDS:
        return _WORDS[name].format(f"{value:,}" if isinstance(value, int) else value)
    if name in ("backend", "variant"):
        return str(value)
    return f"{name}={value}"


def _short_number(value: Value) -> str:
    """``8k`` for 8,192: powers of two are read so."""
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value // 1024}k"
    return str(value)


def _short_option(name: str, value: Value, everything: Params) -> str:
    if isinstance(value, bool):
        return _SHORT_SWITCHES.get(name, (name, ""))[not value]
    if name == "kv_heads":
        return parameter_word(name, value, everything).partition(" ")[0]
    if name in ("backend", "variant"):
        return str(value)
    return f"{name}={_short_number(value)}"


_SHORT_SWITCHES = {"tensor_cores": ("TC", ""), "cuda_graph": ("graph", ""), "causal": ("causal", "full")}
_SWITCHES = {
    "tensor_cores": ("tensor cores", "CUDA cores"),
    "cuda_graph": ("CUDA graph", ""),
    "causal": ("causal", "not causal"),
}
_WORDS = {
    "batch": "batch {}",
    "kv_len": "KV {}",
    "seq_len": "sequence {}",
    "rows": "rows {}",
    "hidden": "hidden {}",
    "tokens": "tokens {}",
}
AXIS_WORDS = {
    "batch": "batch",
    "kv_len": "KV length",
    "seq_len": "sequence length",
    "rows": "rows",
    "hidden": "hidden size",
    "tokens": "tokens",
}
"""How an axis is called."""


def is_number(value: Value | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(values: Mapping[Value, None]) -> tuple[Value, ...]:
    if all(is_number(value) for value in values):
        return tuple(sorted(values, key=float))
    return tuple(values)
