"""Where runs were made, what was asked of them, and what that means for their numbers: a column a run."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.model.case_quantities import MODEL_INTENSITY
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.run import Run
from fiprof.model.settings import CollectSettings, ProfileSettings, settings_of
from fiprof.reports.pages.page import Block, Caution, Section, Table, Text
from fiprof.reports.pages.traced import Cell, TracedColumns, listed, table
from fiprof.reports.run_report import sides
from fiprof.reports.run_report.sides import Row
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, templates
from fiprof.text import escape_control, shorten

LONGEST_VALUE = 160
"""Cells."""
MOST_CASES = 60
"""Rows of the table of cases."""


def environment(runs: Sequence[Analyses]) -> Section:
    """GPU, driver, tools and packages, as the runs found them; where they differ is marked."""
    found = [dict(_environment(measured.run)) for measured in runs]
    names = dict.fromkeys(name for each in found for name in each)
    shown = [{name: shorten(escape_control(value), LONGEST_VALUE) for name, value in each.items()} for each in found]
    rows = [Row(name, tuple(each.get(name) or None for each in shown)) for name in names]
    blocks: list[Block] = [
        Caution(phrase("setup.no_environment", why=measured.run.manifest.reason or phrase("setup.none_in_json")))
        for measured in runs
        if not measured.run.manifest.environment
    ]
    if found:
        blocks.append(_beside(runs, rows, "environment-found"))
    return Section("environment", phrase("setup.environment"), tuple(blocks), folded=True)


def _beside(runs: Sequence[Analyses], rows: Iterable[Row], anchor: str) -> Table:
    heads = [(phrase("sides.run", number=number), "") for number in range(1, len(runs) + 1)]
    return sides.table(heads if len(runs) > 1 else [("", "")], rows, [0] * len(runs), anchor=anchor)


def _environment(run: Run) -> Iterable[tuple[str, str]]:
    def of(*path: str) -> str:
        value = run.environment(*path)
        return "" if value is None else str(value)

    def size(*path: str, unit: str, scale: float) -> str:
        value = run.environment(*path)
        return f"{value / scale:,.1f} {unit}" if isinstance(value, int | float) else ""

    yield "run", run.manifest.name
    began = run.manifest.started[:19].replace("T", " ")
    done = "imported" if run.imported else "collected"
    yield done, phrase("setup.collected", when=began, seconds=run.manifest.duration_s)
    for name in ("command", "cwd", "git"):
        if value := run.environment("program", name):
            yield (
                phrase(f"setup.program_{name}"),
                shlex.join(map(str, value)) if isinstance(value, list) else str(value),
            )
    for name, digest in (run.environment("program", "files") or {}).items():
        yield str(name), f"sha256 {digest[:16]}…"
    for file in run.manifest.imported:
        by = f"{file.tool_name} {file.tool}" if file.tool else file.tool_name
        yield file.path, f"{file.source} ({by}, {file.bytes:,} bytes, sha256 {file.sha256[:16]}…)"
    yield "GPU", of("gpu", "name") or of("gpu_state", "before", "name")
    multiprocessors = of("gpu", "multiprocessors")
    parts = (of("gpu", "compute_capability"), multiprocessors and f"{multiprocessors} multiprocessors")
    yield "compute capability", ", ".join(filter(None, parts))
    l2 = size("gpu", "l2_bytes", unit="MB L2", scale=1e6)
    yield "memory", ", ".join(filter(None, (size("gpu", "memory_bytes", unit="GB", scale=1e9), l2)))
    yield "driver, CUDA", ", ".join(filter(None, (of("gpu_state", "before", "driver"), of("gpu", "cuda"))))
    for when in ("before", "after"):
        yield f"GPU {when} the run", _state(run.environment("gpu_state", when))
    yield "Nsight Systems, Compute", ", ".join(filter(None, (of("tools", "nsys"), of("tools", "ncu"))))
    packages = run.environment("packages")
    if isinstance(packages, dict):
        kept = {name: version for name, version in packages.items() if version and not name.endswith("_executable")}
        yield "packages", ", ".join(f"{name} {version}" for name, version in kept.items())
    for name in ("host", "git"):
        found = run.environment(name)
        if isinstance(found, dict):
            words = (f"{value} {key}" if key == "cpus" else str(value) for key, value in found.items() if value)
            yield name, ", ".join(words)
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


# Cases and settings


def asked(runs: Sequence[Analyses]) -> Section:
    """The cases and settings."""
    blocks: list[Block] = []
    for measured in runs:
        if measured.run.manifest.replayed_from:
            replayed = escape_control(measured.run.manifest.replayed_from)
            blocks.append(Text((phrase("setup.replayed", run=replayed),)))
    cases = {case.id: (measured.run, case) for measured in reversed(runs) for case in measured.run.cases}
    if cases:
        blocks += [
            _parameters([case for _, case in cases.values()], [measured.run for measured in runs]),
            _costs(list(cases.values())),
        ]
    elif not all(measured.run.of_program or measured.run.imported for measured in runs):
        blocks.append(Caution(phrase("setup.no_case")))
    settings = [dict(_settings(measured.run)) for measured in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    rows = [Row(name, tuple(each.get(name) for each in settings)) for name in names]
    if rows:
        blocks.append(_beside(runs, rows, "asked-settings"))
    return Section("asked", phrase("setup.asked"), tuple(blocks), folded=True)


def _parameters(cases: Sequence[CaseEntry], runs: Sequence[Run]) -> Table:
    """What was chosen of each workload, and what is its default: what nobody typed."""
    commands = [list(run.manifest.argv or run.environment("program", "command") or ()) for run in runs]
    typed = None
    if all(command[:2] == ["fiprof", "collect"] for command in commands):
        typed = {word.partition("=")[0] for command in commands for word in command}
    workloads: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in cases:
        workloads[case.workload].append(case)
    rows = [(escape_control(name), len(of), *_chosen(of, typed)) for name, of in workloads.items()]
    columns = (
        Column("workload", phrase("setup.workload")),
        Column("cases", phrase("setup.cases"), spec=",d"),
        Column("chosen", phrase("setup.chosen"), wrap=True),
        Column("default", phrase("setup.default"), wrap=True),
    )
    return table(columns, rows, anchor="asked-workloads")


def _chosen(cases: Sequence[CaseEntry], typed: Collection[str] | None) -> tuple[str, str]:
    chosen: list[str] = []
    filled: list[str] = []
    for key in dict.fromkeys(key for case in cases for key in case.params):
        values = dict.fromkeys(str(_plain(case.params[key])) for case in cases if key in case.params)
        at_default = typed is not None and f"--{key.replace('_', '-')}" not in typed
        (filled if at_default else chosen).append(f"{key} {', '.join(values)}")
    return "; ".join(chosen), "; ".join(filled) if typed is not None else phrase("setup.unknown_default")


def _plain(value: object) -> object:
    return {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value


def _costs(cases: Sequence[tuple[Run, CaseEntry]]) -> Table:
    """The least that each case has to do, and how far its result is from the reference."""

    def least(formula: str, amount: Callable[[CaseEntry], float]) -> Callable[[tuple[Run, CaseEntry]], Cell]:
        def cell(pair: tuple[Run, CaseEntry]) -> Cell:
            value = amount(pair[1])
            return TracedNumber(value, Provenance("run.json", formula, case=pair[1].id)) if value else None

        return cell

    def error(pair: tuple[Run, CaseEntry]) -> Cell:
        found = pair[0].baseline.get(pair[1].id)
        if found is None or found.relative_error is None:
            return None
        return TracedNumber(found.relative_error, Provenance("plain", "relative_error", case=pair[1].id))

    columns: TracedColumns = (
        (Column("case", phrase("setup.case")), lambda pair: pair[0].labels(pair[1].id)),
        (Column("flops", phrase("setup.work"), "GFLOP", ",.3f"), least("flops / 1000000000", lambda c: c.flops / 1e9)),
        (
            Column("read", phrase("setup.read"), "MB", ",.2f"),
            least("bytes_read / 1000000", lambda c: c.bytes_read / 1e6),
        ),
        (
            Column("written", phrase("setup.written"), "MB", ",.2f"),
            least("bytes_written / 1000000", lambda c: c.bytes_written / 1e6),
        ),
        (
            Column("intensity", phrase("setup.intensity"), "FLOP/byte", ",.2f"),
            lambda pair: MODEL_INTENSITY.traced(pair[0], pair[1].id),
        ),
        (Column("error", phrase("setup.error"), "to fp32", ".1e"), error),
    )
    notes = [phrase("setup.costs_note")]
    if len(cases) > MOST_CASES:
        notes.append(phrase("setup.most", shown=MOST_CASES, all=len(cases)))
    return listed(columns, cases[:MOST_CASES], anchor="asked-cases", title=phrase("setup.costs"), notes=tuple(notes))


def _settings(run: Run) -> Iterable[tuple[str, str]]:
    """Name, and value with what it means for the numbers."""
    settings = run.manifest.settings
    tools = settings.get("tools") or ()
    for each in settings_of(ProfileSettings if run.of_program else CollectSettings):
        value, about = settings.get(each.name), each
        if not about.title or value in (None, []) or (about.tool and about.tool not in tools):
            continue
        if each.name == "tools" and not run.of_program:
            value = ["plain run", *value]
        shown = ", ".join(map(str, value)) if each.several else f"{value:,}" if about.unit else str(_plain(value))
        meaning = _meaning(each.name, value)
        yield about.title, ": ".join(filter(None, (" ".join(filter(None, (shown, about.unit))), meaning)))


def _meaning(name: str, value: object) -> str:
    key = f"setting.{name}_{_plain(value)}"
    if key in templates():
        return phrase(key)
    if name == "gpu_metrics_hz" and isinstance(value, int | float):
        return phrase(f"setting.{name}", interval_us=1e6 / value)
    return ""
