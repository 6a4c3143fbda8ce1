"""What a report has below its answer: times of cases, what parameters do, checks, environment, settings, commands."""

from __future__ import annotations

import itertools
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.checks import Check, CheckName
from fiprof.analysis.comm.comm import comm
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DIFFER, PROCESSES_DRIFT, WORTH_CHANGING
from fiprof.model import case_quantities
from fiprof.model.case_quantities import KERNEL_TIME, MODEL_INTENSITY, NSYS, NSYS_SPREAD, PLAIN, WAITING, WALL
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import Provenance, TracedNumber, numbers_of
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.settings import CollectSettings, ProfileSettings, settings_of
from fiprof.model.wording import say, worded
from fiprof.reports import comm as comm_report
from fiprof.reports import top as top_report
from fiprof.reports.columns import Cells, attribute, filled
from fiprof.reports.pages.page import Caution, Section, Text
from fiprof.reports.run_report.parameters import format_switch
from fiprof.reports.run_report.rows import Row, Rows, short, titled
from fiprof.reports.view import Column, View
from fiprof.text import escape_control, shorten

LONGEST_VALUE = 160
"""Cells."""
MOST_CASES = 60
"""Rows of a table: the cases with most kernel time."""
MOST_NAMED = 4
"""Launches or cases that a row names."""
MOST_KERNELS = 20
"""That several runs are compared by: those with most time in any of them."""
ENVIRONMENT = {
    "the GPU": ("gpu", "name"),
    "the driver": ("gpu_state", "before", "driver"),
    "flashinfer": ("packages", "flashinfer-python"),
    "torch": ("packages", "torch"),
    "ncu's version": ("tools", "ncu"),
}
"""In which runs may differ."""

# Several runs


def beside(names: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], **texts: Any) -> View:
    """A row a quantity and a column a run; what differs from the first run is marked. texts: as for ``filled``."""
    columns = [Column("what", "what")]
    columns += [
        Column(f"run_{place}", f"run {place}" if len(names) > 1 else "value", name if len(names) > 1 else "", wrap=True)
        for place, name in enumerate(names, 1)
    ]
    kept = [(name, cells) for name, cells in rows if any(cell not in (None, "") for cell in cells)]
    shown = tuple((name, *(_marked(cell, cells[0], place) for place, cell in enumerate(cells))) for name, cells in kept)
    return View(tuple(columns), shown, **texts)


def _marked(cell: Any, base: Any, place: int) -> Any:
    if not place or cell is None or base is None:
        return cell
    pairs = list(zip(numbers_of(cell), numbers_of(base), strict=False))
    if not pairs:
        return cell if str(cell) == str(base) else say("≠ {cell}", cell=cell)
    changes = [said for number, other in pairs if (said := change(number, other))]
    if changes and isinstance(cell, TracedNumber):
        return say("{cell} ({change})", cell=cell, change=changes[0])
    return say("≠ {cell}", cell=cell) if changes else cell


def change(number: TracedNumber, base: TracedNumber) -> str:
    """How much a number differs: in points of a percentage, in percent of others; empty where that is negligible."""
    share = number.spec.endswith("%")
    if share or number.unit == "%":
        points = (number.value - base.value) * (100 if share else 1)
        return f"{points:+.0f} points" if abs(points) >= WORTH_CHANGING.value else ""
    change = 100 * (number.value / base.value - 1) if base.value else 0.0
    return f"{change:+.1f}%" if abs(change) >= WORTH_CHANGING.value else ""


def runs_compared(runs: Sequence[Analyses], found: Sequence[Rows]) -> Section:
    """What limits each kernel in each run, and in what the runs differ."""
    of_runs: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for place, of_run in enumerate(found):
        for row in of_run.rows:
            if row.kernel:
                of_runs[row.kernel, row.case].setdefault(place, row)
    shared = {key: rows for key, rows in of_runs.items() if len(rows) > 1} or of_runs
    order = sorted(shared.values(), key=lambda rows: -max(row.total_us for row in rows.values()))
    lines: list[tuple[str, Sequence[Any]]] = []
    for rows in order[:MOST_KERNELS]:
        first = next(iter(rows.values()))
        each = [rows.get(place) for place in range(len(runs))]
        lines += [
            (titled(first), [row and row.time for row in each]),
            ("  limited by", [row and row.limit()[0] for row in each]),
            ("  how far", [row and row.limit()[1] for row in each]),
            ("  next step", [short(row.step) if row and row.step else None for row in each]),
        ]
    differ = [Caution(text) for text in _differences([each.run for each in runs])]
    blocks: list[Any] = [*differ, beside([each.run.manifest.name for each in runs], lines)] if lines else differ
    return Section("compared", "The runs beside each other", tuple(blocks))


def _differences(runs: Sequence[Run]) -> Iterator[str]:
    """What makes the runs hard to compare."""
    found: dict[str, set[str]] = {}
    for each in settings_of(CollectSettings):
        if each.title and each.measuring:
            given = [run.manifest.settings.get(each.name) for run in runs]
            found[each.title] = {"not recorded" if one is None else str(one) for one in given}
    for what, path in ENVIRONMENT.items():
        found[what] = {str(run.environment(*path) or "not recorded") for run in runs}
    for name, values in found.items():
        if len(values) > 1:
            yield f"the runs differ in {name}: {escape_control(', '.join(sorted(values)))}"


# Times


def times(runs: Sequence[Analyses]) -> Section:
    """How long an iteration of each case takes, by each tool. Raises FiprofError for a table that cannot be read."""
    blocks: list[Any] = []
    cases = {case.id: case for measured in runs for case in measured.run.cases}

    def time(case: CaseEntry) -> float:
        found = [KERNEL_TIME.of(each.run, case.id) or PLAIN.of(each.run, case.id) or 0.0 for each in runs]
        return max(found) if sum(each > 0 for each in found) >= min(len(runs), 2) else 0.0

    timed = [case for case in cases.values() if time(case) > 0]
    longest = sorted(timed, key=lambda case: -time(case))[:MOST_CASES]
    shown = [case for case in timed if case in longest]
    if shown:
        blocks.append(_times_alone(runs[0].run, shown) if len(runs) == 1 else _times_beside(runs, shown))
    elif len(runs) > 1 and cases:
        blocks.append(Caution("no case was timed in more than one of these runs: there is nothing to compare"))
    if len(shown) < len(timed):
        blocks.append(Text((f"The {len(shown)} of {len(timed)} cases with most time are shown.",)))
    return Section("times", "Time of an iteration", tuple(blocks))


def _times_alone(run: Run, cases: Sequence[CaseEntry]) -> View:
    def of(quantity: Any, title: str, spec: str, unit: str = "") -> Any:
        column = Column(quantity.key, title, unit, spec, quantity.meaning)
        return column, lambda case: quantity.traced(run, case.id)

    cells: Cells = (
        (Column("case", "case"), lambda case: run.labels(case.id)),
        (Column("kernels", "kernels", spec=",d"), lambda case: case_quantities.kernels(run, case.id)),
        of(PLAIN, "no profiler", ",.1f", "µs"),
        of(NSYS, "nsys", ",.1f", "µs"),
        of(NSYS_SPREAD, "spread", ".1%"),
        of(case_quantities.NCU, "ncu", ",.1f", "µs"),
        of(WALL, "host loop", ",.1f", "µs"),
        of(WAITING, "GPU waits", ".0f", "%"),
    )
    note = (
        "Medians. no profiler: between CUDA events; nsys, ncu: kernels alone; spread: (p90 - p10) / median; GPU waits: "
        "of the host's loop."
    )
    return filled(cells, cases, notes=(note,))


def _times_beside(runs: Sequence[Analyses], cases: Sequence[CaseEntry]) -> View:
    labels = Labels(list({case.id: case for measured in runs for case in measured.run.cases}.values()))
    rows = [
        (f"{labels(case.id)} · {title}", [quantity.traced(measured.run, case.id) for measured in runs])
        for case in cases
        for quantity, title in ((KERNEL_TIME, "kernels"), (PLAIN, "no profiler"))
    ]
    note = (
        f"Differences of {WORTH_CHANGING.value:g}% and more from the first run are marked. One process a side cannot "
        f"tell a change from noise: the same code differs by up to {PROCESSES_DIFFER.value:g}% between processes, by "
        f"about {BOARDS_DIFFER.value:g}% between boards of a kind, and drifts by up to {PROCESSES_DRIFT.value:g}% over "
        "ten processes in a row."
    )
    return beside([each.run.manifest.name for each in runs], rows, notes=(note,))


# Programs and ranks


def ranges(found: Rows) -> Section:
    """A program's NVTX ranges by the time of the kernels launched in them."""
    if found.top is None or not any(each["range"] for each in found.top.ranges):
        return Section("ranges", "", ())
    return Section("ranges", "Time by range", (top_report.document(found.top, most=20).shown[-1],))


def ranks(runs: Sequence[Analyses]) -> Section:
    """Which rank the others wait for. Raises FiprofError for a table that cannot be read."""
    blocks = [
        view
        for measured in runs
        if measured.run.has("kernels") and ranks_of(measured.run).several
        for view in comm_report.document(comm(measured.run)).shown[:3]
    ]
    return Section("ranks", "Ranks and collectives", tuple(blocks))


# Checks


def checked(found: Sequence[Check]) -> str:
    """``61 checks passed, 1 failed; 4 were not possible``."""
    if not found:
        return "The run has nothing to check itself by."
    outcomes = [check.passed for check in found]
    return (
        f"{outcomes.count(True):,} of {len(found):,} checks passed, {outcomes.count(False):,} failed, "
        f"{outcomes.count(None):,} were not possible."
    )


def sure(runs: Sequence[Analyses]) -> Section:
    """The checks that failed and those that were not possible. Raises FiprofError for a table that cannot be read."""
    blocks: list[Any] = []
    rows = []
    for number, measured in enumerate(runs, 1):
        found = checks.every(measured.run)
        blocks.append(Text((checked(found),)) if found else Caution(checked(found)))
        for outcome in (False, None):
            alike: dict[tuple[CheckName, object], list[Check]] = defaultdict(list)
            for check in found:
                if check.passed is outcome:
                    alike[check.check, check.values.get("why")].append(check)
            for (name, _), of_kind in alike.items():
                about = list(dict.fromkeys(_subject(measured.run, check) for check in of_kind))
                more = f" and {len(about) - MOST_NAMED} more" if len(about) > MOST_NAMED else ""
                holds = checks.words()[name]["holds"]
                said = "failed" if outcome is False else "not possible"
                rows.append(
                    (str(number), said, holds, ", ".join(about[:MOST_NAMED]) + more, worded(of_kind[0].finding))
                )
    columns = (
        Column("run", "run"), Column("outcome", "outcome"), Column("what", "what should hold", wrap=True),
        Column("about", "about", wrap=True), Column("finding", "finding", wrap=True),
    )  # fmt: skip
    start = int(len(runs) == 1)
    if rows:
        blocks.append(View(columns[start:], tuple(row[start:] for row in rows)))
    return Section("sure", "Checks", tuple(blocks), folded=True)


def _subject(run: Run, check: Check) -> str:
    if check.launch is not None:
        return f"launch {check.launch} ({checks.subject(run, check)})"
    return "the run" if check.case is None else run.labels(check.case)


# Environment


def environment(runs: Sequence[Analyses]) -> Section:
    """GPU, driver, tools and packages, as the runs found them."""
    found = [dict(_environment(measured.run)) for measured in runs]
    names = dict.fromkeys(name for each in found for name in each)
    rows = [
        (name, [shorten(escape_control(each[name]), LONGEST_VALUE) if each.get(name) else None for each in found])
        for name in names
    ]
    blocks: list[Any] = [
        Caution(f"the run's environment is not known: {measured.run.manifest.reason or 'its run.json has none'}")
        for measured in runs
        if not measured.run.manifest.environment
    ]
    blocks.append(beside([each.run.manifest.name for each in runs], rows))
    return Section("environment", "Environment", tuple(blocks), folded=True)


def _environment(run: Run) -> Iterator[tuple[str, str]]:
    def of(*path: str) -> str:
        value = run.environment(*path)
        return "" if value is None else str(value)

    def size(*path: str, unit: str, scale: float) -> str:
        value = run.environment(*path)
        return f"{value / scale:,.1f} {unit}" if isinstance(value, int | float) else ""

    manifest = run.manifest
    yield "run", manifest.name
    began = manifest.started[:19].replace("T", " ")
    yield ("imported" if run.imported else "collected"), f"{began}, in {manifest.duration_s:.0f} s"
    for name, title in (("command", "command"), ("cwd", "in"), ("git", "commit")):
        if value := run.environment("program", name):
            yield title, shlex.join(map(str, value)) if isinstance(value, list) else str(value)
    for name, digest in (run.environment("program", "files") or {}).items():
        yield str(name), f"sha256 {digest[:16]}…"
    for file in manifest.imported:
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
            said = (f"{value} {key}" if key == "cpus" else str(value) for key, value in found.items() if value)
            yield name, ", ".join(said)
    yield "fiprof", manifest.fiprof


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
    blocks: list[Any] = [
        Text((f"This run measured nothing: it reads the raw files of {escape_control(of)}.",))
        for of in (each.run.manifest.replayed_from for each in runs)
        if of
    ]
    cases = {case.id: (measured.run, case) for measured in reversed(runs) for case in measured.run.cases}
    if cases:
        blocks += [
            _parameters([case for _, case in cases.values()], [each.run for each in runs]),
            _costs(list(cases.values())),
        ]
    elif not all(measured.run.of_program or measured.run.imported for measured in runs):
        blocks.append(Caution("the run names no case: kernels are shown as the tools saw them"))
    settings = [dict(_settings(measured.run)) for measured in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    if names:
        rows = [(name, [each.get(name) for each in settings]) for name in names]
        blocks.append(beside([each.run.manifest.name for each in runs], rows, title="Settings"))
    return Section("asked", "Cases and settings", tuple(blocks), folded=True)


def _parameters(cases: Sequence[CaseEntry], runs: Sequence[Run]) -> View:
    """What was chosen of each workload, and what is its default: what nobody typed."""
    commands = [list(run.manifest.argv or run.environment("program", "command") or ()) for run in runs]
    typed = None
    if all(command[:2] == ["fiprof", "collect"] for command in commands):
        typed = {word.partition("=")[0] for command in commands for word in command}
    workloads: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in cases:
        workloads[case.workload].append(case)
    rows = []
    for name, of in workloads.items():
        chosen: list[str] = []
        at_default: list[str] = []
        for key in dict.fromkeys(key for case in of for key in case.params):
            values = dict.fromkeys(format_switch(case.params[key]) for case in of if key in case.params)
            left = typed is not None and f"--{key.replace('_', '-')}" not in typed
            (at_default if left else chosen).append(f"{key} {', '.join(values)}")
        defaults = "; ".join(at_default) if typed is not None else "not known here"
        rows.append((escape_control(name), len(of), "; ".join(chosen), defaults))
    columns = (
        Column("workload", "workload"), Column("cases", "cases", spec=",d"), Column("chosen", "chosen", wrap=True),
        Column("default", "by default", wrap=True),
    )  # fmt: skip
    return View(columns, tuple(rows))


def _costs(cases: Sequence[tuple[Run, CaseEntry]]) -> View:
    """The least that each case has to do, and how far its result is from the reference."""

    def least(key: str, title: str, unit: str, spec: str, formula: str, amount: Any) -> Any:
        def cell(pair: tuple[Run, CaseEntry]) -> TracedNumber | None:
            value = amount(pair[1])
            return TracedNumber(value, Provenance("run.json", formula, case=pair[1].id)) if value else None

        return Column(key, title, unit, spec), cell

    def error(pair: tuple[Run, CaseEntry]) -> TracedNumber | None:
        found = pair[0].baseline.get(pair[1].id)
        if found is None or found.reference.relative_error is None:
            return None
        return TracedNumber(found.reference.relative_error, Provenance("plain", "relative_error", case=pair[1].id))

    cells: Cells = (
        (Column("case", "case"), lambda pair: pair[0].labels(pair[1].id)),
        least("flops", "work", "GFLOP", ",.3f", "flops / 1000000000", lambda case: case.flops / 1e9),
        least("read", "read", "MB", ",.2f", "bytes_read / 1000000", lambda case: case.bytes_read / 1e6),
        least("written", "written", "MB", ",.2f", "bytes_written / 1000000", lambda case: case.bytes_written / 1e6),
        (
            Column("intensity", "intensity", "FLOP/byte", ",.2f"),
            lambda pair: MODEL_INTENSITY.traced(pair[0], pair[1].id),
        ),
        (Column("error", "error", "to fp32", ".1e"), error),
    )
    notes = [
        "By the cost model: each operand read once, each result written once. error: relative, checked before "
        "measuring."
    ]
    if len(cases) > MOST_CASES:
        notes.append(f"The first {MOST_CASES} of {len(cases)} cases.")
    return filled(cells, cases[:MOST_CASES], title="The least that each case has to do", notes=tuple(notes))


SETTING_MEANS = {
    "gpu_metrics_hz=0": "no hardware samples",
    "ncu_set=quick": "no hot spots, sampled stalls and operations outside the tensor cores",
    "clock_control=none": "ncu's times compare with the others; each roof is at the measured clock",
    "clock_control=base": "longer, steadier times under ncu; roofs are at the locked clock",
    "clock_control=boost": "times under ncu may differ; roofs are at the locked clock",
    "cache_control=all": "ncu flushes caches first: rates and hit rates are of the cold case",
    "cache_control=none": "ncu keeps the caches: hit rates are of the warm case",
}
"""What a setting means for a run's numbers, by its name and value."""


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    """Name, and value with what it means for the numbers."""
    settings = run.manifest.settings
    tools = settings.get("tools") or ()
    for each in settings_of(ProfileSettings if run.of_program else CollectSettings):
        value, about = settings.get(each.name), each
        if not about.title or value in (None, []) or (about.tool and about.tool not in tools):
            continue
        if each.name == "tools" and not run.of_program:
            value = ["plain run", *value]
        shown = ", ".join(map(str, value)) if each.several else f"{value:,}" if about.unit else format_switch(value)
        meaning = SETTING_MEANS.get(f"{each.name}={format_switch(value)}", "")
        if not meaning and each.name == "gpu_metrics_hz" and isinstance(value, int | float):
            meaning = f"a sample every {1e6 / value:,.0f} µs"
        yield about.title, ": ".join(filter(None, (" ".join(filter(None, (shown, about.unit))), meaning)))


# What was done


def actions(runs: Sequence[Run]) -> Section:
    """Every command of the runs with duration, exit status and what it made; and the raw files with their checksums."""
    blocks: list[Any] = []
    for run in runs:
        manifest = run.manifest
        if not manifest.actions:
            why = manifest.reason or "run.json has none"
            blocks.append(Caution(say("no command was started: {why}", why=why)))
        for when, gone in itertools.groupby(manifest.pruned, lambda each: each.when[:10]):
            blocks.append(
                Caution(
                    say(
                        "pruned on {when}: {files}; what was made of them stays, and cannot be made again",
                        when=when,
                        files=[each.path for each in gone],
                    )
                )
            )
        blocks += [
            Caution(f"{each.step}: {each.message}" + (f" ({each.remedy})" if each.remedy else ""))
            for each in manifest.actions
            if each.message
        ]
    cells: Cells = (
        (Column("run", "run"), lambda pair: pair[0]),
        attribute("step", "step", of="step"),
        (Column("started", "started"), lambda pair: pair[1].started[11:19]),
        (Column("duration_s", "took", "s", ",.1f"), lambda pair: pair[1].duration_s),
        (Column("exit", "exit", spec="d"), lambda pair: pair[1].exit_status),
        (Column("outcome", "outcome"), lambda pair: pair[1].outcome),
        (
            Column("made", "made", wrap=True),
            lambda pair: ", ".join(file.path for file in pair[1].files) or None,
        ),
    )
    cells = (cells[0], (cells[1][0], lambda pair: pair[1].step), *cells[2:])
    done = [(run.manifest.name, action) for run in runs for action in run.manifest.actions]
    if done:
        blocks.append(
            filled(
                cells[int(len(runs) == 1) :],
                done,
                notes=(
                    say("run.json has every command in full. ncu imports while nsys has the GPU: durations overlap."),
                ),
            )
        )
    files = [file for _, action in done for file in action.files]
    if files:
        of_files: Cells = (
            attribute("path", "file"),
            attribute("bytes", "bytes", "", ",d"),
            attribute("sha256", "sha256", least=64),
        )
        blocks.append(
            filled(
                of_files,
                files,
                title="Raw files",
                notes=("As the tools wrote them; a packed one (.zst, .xz) has this sum when it is unpacked.",),
            )
        )
    return Section("actions", "Actions and files", tuple(blocks), folded=True)
