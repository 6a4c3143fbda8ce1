"""Where a run was made, what was asked of it, and what that means for its numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.model.expressions import ratio
from fiprof.model.manifest import CaseEntry, Manifest
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.run import Run
from fiprof.model.settings import CollectSettings, settings_of
from fiprof.reports.pages.page import Block, Bullets, Caution, Section, Text
from fiprof.reports.pages.traced import LONG_TABLE, Cell, TracedColumns, listed, table
from fiprof.reports.view import Column, Value
from fiprof.reports.words import phrase, templates
from fiprof.text import escape_control, shorten

Defaults = Mapping[str, Mapping[str, Value]]
"""Workload -> parameter -> what it is where nobody chooses."""

LONGEST_VALUE = 78
"""Cells."""


def environment_section(run: Run) -> Section:
    """GPU, driver, tools and packages, as the run found them."""
    rows = [(name, shorten(escape_control(value), LONGEST_VALUE)) for name, value in _environment(run) if value]
    blocks: list[Block] = []
    if rows:
        blocks.append(table((Column("what", "what"), Column("value", "found")), rows, anchor="environment-found"))
    if not run.manifest.environment:
        why = run.manifest.reason or "its run.json has none"
        blocks.append(Caution(phrase("asked.no_environment", why=why)))
    return Section("environment", "Environment", tuple(blocks))


def _environment(run: Run) -> Iterable[tuple[str, str]]:
    def of(*path: str) -> str:
        value = run.environment(*path)
        return "" if value is None else str(value)

    def giga(*path: str) -> str:
        value = run.environment(*path)
        return f"{value / 1e9:,.1f} GB" if isinstance(value, int | float) else ""

    yield "GPU", of("gpu", "name") or of("gpu_state", "before", "name")
    capability, multiprocessors = of("gpu", "compute_capability"), of("gpu", "multiprocessors")
    yield "compute capability", capability + (f", {multiprocessors} multiprocessors" if multiprocessors else "")
    l2 = run.environment("gpu", "l2_bytes")
    yield "memory", giga("gpu", "memory_bytes") + (f", L2 {l2 / 1e6:.1f} MB" if isinstance(l2, int | float) else "")
    yield "driver, CUDA", ", ".join(filter(None, (of("gpu_state", "before", "driver"), of("gpu", "cuda"))))
    for when in ("before", "after"):
        yield f"GPU {when} the run", _state(run.environment("gpu_state", when))
    for tool, name in (("nsys", "Nsight Systems"), ("ncu", "Nsight Compute")):
        yield name, of("tools", tool)
    packages = run.environment("packages")
    if isinstance(packages, dict):
        for name, version in packages.items():
            if version and not name.endswith("_executable"):
                yield name, str(version)
    host = run.environment("host")
    if isinstance(host, dict):
        yield "host", ", ".join(f"{value} {name}" if name == "cpus" else str(value) for name, value in host.items())
    git = run.environment("git")
    if isinstance(git, dict):
        yield "git", ", ".join(f"{name} {value}" for name, value in git.items() if value not in (None, ""))
    yield "fiprof", run.manifest.fiprof


def _state(state: object) -> str:
    """Clocks, temperature and company of the GPU at one moment."""
    if not isinstance(state, dict):
        return ""
    parts = []
    if "sm_clock_mhz" in state:
        parts.append(f"SM {state['sm_clock_mhz']} of {state.get('max_sm_clock_mhz', '?')} MHz")
    if "memory_clock_mhz" in state:
        parts.append(f"memory {state['memory_clock_mhz']} MHz")
    if "temperature_c" in state:
        parts.append(f"{state['temperature_c']} °C")
    others = state.get("other_processes")
    if others is not None:
        parts.append(f"{len(others)} other processes" if others else "no other process")
    return ", ".join(parts)


def asked_section(measured: Analyses, defaults: Defaults) -> Section:
    """The cases, the settings, and what they mean for the numbers.

    defaults: of the workloads that this fiprof knows.
    """
    manifest = measured.run.manifest
    blocks: list[Block] = []
    if manifest.replayed_from:
        blocks.append(Text((phrase("asked.replayed", run=escape_control(manifest.replayed_from)),)))
    if manifest.cases:
        workloads = defaultdict(list)
        for case in manifest.cases:
            workloads[case.workload].append(case)
        unknown = [escape_control(name) for name in workloads if name not in defaults]
        key = "asked.cases" + "_defaults" * (len(unknown) < len(workloads))
        blocks.append(Text((phrase(key, cases=len(manifest.cases)),)))
        blocks.append(Bullets(tuple(Text((_workload(name, cases, defaults),)) for name, cases in workloads.items())))
        if defaults and unknown:
            key = f"asked.unknown{'_all' * (len(unknown) == len(workloads))}"
            blocks.append(Text((phrase(key, workloads=", ".join(unknown)),)))
        blocks.append(_costs(measured.run))
    else:
        blocks.append(Caution(phrase("asked.no_case")))
    if manifest.settings:
        rows = list(_settings(manifest))
        columns = (Column("setting", "setting"), Column("value", "value"))
        title = phrase("asked.measured")
        blocks.append(table(columns, [row[:2] for row in rows], anchor="asked-settings", title=title))
        blocks.append(Bullets(tuple(Text((meaning,)) for _, _, meaning in rows if meaning)))
    return Section("asked", phrase("asked.title"), tuple(blocks))


def _workload(name: str, cases: Sequence[CaseEntry], defaults: Defaults) -> str:
    known = defaults.get(name)
    chosen: list[str] = []
    filled: list[str] = []
    for key in dict.fromkeys(key for case in cases for key in case.params):
        values = dict.fromkeys(str(_plain(case.params[key])) for case in cases if key in case.params)
        at_default = known is not None and [*values] == [str(_plain(known.get(key)))]
        (filled if at_default else chosen).append(f"{key} {', '.join(values)}")
    ending = "" if not filled and (chosen or known is None) else "_defaults" if chosen else "_default"
    words = {"chosen": "; ".join(chosen), "filled": "; ".join(filled)}
    return phrase(f"asked.workload{ending}", name=escape_control(name), cases=len(cases), **words)


def _plain(value: object) -> object:
    return {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value


def _least(formula: str, amount: Callable[[CaseEntry], float]) -> Callable[[CaseEntry], Cell]:
    """An amount of the cost model; None where the case has none."""

    def cell(case: CaseEntry) -> Cell:
        value = amount(case)
        return TracedNumber(value, Provenance("run.json", formula, case=case.id)) if value else None

    return cell


def _intensity(case: CaseEntry) -> float:
    return ratio(case.flops, case.bytes_read + case.bytes_written) or 0.0


def _costs(run: Run) -> Block:
    def error(case: CaseEntry) -> Cell:
        found = run.baseline.get(case.id)
        if found is None or found.relative_error is None:
            return None
        return TracedNumber(found.relative_error, Provenance("plain", "relative_error", case=case.id))

    columns: TracedColumns = (
        (Column("case", "case"), lambda case: run.labels(case.id)),
        (
            Column("flops", "least work", "GFLOP", ",.3f"),
            _least("flops / 1000000000", lambda case: case.flops / 1e9),
        ),
        (
            Column("read", "least read", "MB", ",.2f"),
            _least("bytes_read / 1000000", lambda case: case.bytes_read / 1e6),
        ),
        (
            Column("written", "least written", "MB", ",.2f"),
            _least("bytes_written / 1000000", lambda case: case.bytes_written / 1e6),
        ),
        (
            Column("intensity", "intensity", "FLOP/byte", ",.2f"),
            _least("flops / (bytes_read + bytes_written)", _intensity),
        ),
        (Column("error", "error", "to fp32", ".1e"), error),
    )
    cases = run.manifest.cases
    texts = {"title": phrase("asked.costs"), "notes": (phrase("asked.costs_note"),)}
    return listed(columns, cases, anchor="asked-cases", appendix=len(cases) > LONG_TABLE, **texts)


def _settings(manifest: Manifest) -> Iterable[tuple[str, str, str]]:
    """Name, value, and what it means for the numbers (empty where it means nothing)."""
    tools = manifest.settings.get("tools") or ()
    for each in settings_of(CollectSettings):
        value, about = manifest.settings.get(each.name), each.declared
        if not about.title or value is None or (about.tool and about.tool not in tools):
            continue
        if each.name == "tools":
            value = ["plain run", *value]
        shown = ", ".join(map(str, value)) if each.several else f"{value:,}" if about.unit else str(_plain(value))
        yield about.title, " ".join(filter(None, (shown, about.unit))), _meaning(each.name, value, "ncu" in tools)


def _meaning(name: str, value: object, with_ncu: bool) -> str:
    key = f"setting.{name}_{_plain(value)}"
    if key in templates():
        return phrase(key)
    if name == "gpu_metrics_hz" and isinstance(value, int | float):
        return phrase(f"setting.{name}{'_with_ncu' * with_ncu}", interval_us=1e6 / value)
    return ""
