"""What a report has below its answer: what parameters do, times of cases, checks, environment, settings, commands."""

import contextlib
import itertools
import shlex
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from fiprof.analysis import alternatives, checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.checks import Check
from fiprof.analysis.comm import comm
from fiprof.analysis.comparison.runs import conditions
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DIFFER, PROCESSES_DRIFT, WORTH_CHANGING
from fiprof.errors import FiprofError
from fiprof.model import layout, packing, packs
from fiprof.model.case_quantities import KERNEL_TIME, MODEL_INTENSITY, PLAIN
from fiprof.model.finding import Provenance, TracedNumber, numbers_of, say, words_of
from fiprof.model.manifest import CaseEntry
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import Labels, by_key
from fiprof.model.settings import CollectSettings, ProfileSettings, option_words, settings_of
from fiprof.reports import comm as comm_report
from fiprof.reports import show as show_report
from fiprof.reports.columns import change_words
from fiprof.reports.environment import environment_words
from fiprof.reports.run_report.ink import Section, Shaded, caution, text_block
from fiprof.reports.run_report.rows import Row, Rows, short
from fiprof.reports.view import Column, Value, View
from fiprof.text import escape_control, shorten

LONGEST_VALUE = 160  # cells
MOST_CASES = 60  # rows of a table: the cases with most kernel time
MOST_NAMED = 4  # launches or cases that a row names
MOST_KERNELS = 20  # that several runs are compared by: those with most time in any of them


def run_columns(runs: Sequence[Run], rows: Iterable[tuple[str, Sequence[Any]]], **texts: Any) -> View:
    """A row a quantity and a column a run; what differs from the first run is marked. texts: as for ``View``."""
    names = [run.manifest.name for run in runs]
    columns = [Column("what", "what")]
    columns += [
        Column(f"run_{place}", f"run {place}" if len(runs) > 1 else "value", name if len(runs) > 1 else "", wrap=True)
        for place, name in enumerate(names, 1)
    ]
    shown = tuple(
        (name, cells[0], *(_marked(cell, cells[0]) for cell in cells[1:]))
        for name, cells in rows
        if any(cell not in (None, "") for cell in cells)
    )
    return View(tuple(columns), shown, **texts)


def _marked(cell: Any, base: Any) -> Any:
    """A cell with how much its number differs, where that matters."""
    pairs = list(zip(numbers_of(cell), numbers_of(base), strict=False))
    if cell is None or base is None or (not pairs and str(cell) == str(base)):
        return cell
    changes = [words for number, other in pairs if (words := change_words(other, number))]
    if changes and isinstance(cell, TracedNumber):
        return say("{cell} ({change})", cell=cell, change=changes[0])
    return say("≠ {cell}", cell=cell) if changes or not pairs else cell


def compared(measured: Sequence[Analyses], tables: Sequence[Rows]) -> Section:
    """What limits each kernel in each run, and in what the runs differ."""
    first, *others = runs = [each.run for each in measured]
    blocks: list[Any] = [
        caution(say("the runs differ in {what}: {a} (run 1), {b} (run {number})", number=number, **each.values))
        for number, run in enumerate(others, 2)
        for each in conditions(first, run)
    ]
    of_runs: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for place, of_run in enumerate(tables):
        for row in of_run.rows:
            if row.kernel:
                of_runs[row.kernel, row.case].setdefault(place, row)
    shared = {key: rows for key, rows in of_runs.items() if len(rows) > 1} or of_runs
    lines: list[tuple[str, Sequence[Any]]] = []
    for rows in sorted(shared.values(), key=lambda rows: -max(row.total_us for row in rows.values()))[:MOST_KERNELS]:
        each = [rows.get(place) for place in range(len(runs))]
        lines += [
            (next(iter(rows.values())).title, [row and row.time for row in each]),
            ("  limited by", [row and row.limit()[0] for row in each]),
            ("  how far", [row and row.limit()[1] for row in each]),
            ("  next step", [short(row.step) if row and row.step else None for row in each]),
        ]
    if lines:
        blocks.append(run_columns(runs, lines))
    return Section("compared", "The runs beside each other", tuple(blocks))


MOST_PAIRS = 16  # of a table: the largest differences
FEWEST_CASES = 4  # of a workload, for which a map says more than a list
MOST_MAPS = 4  # of a workload: one for each combination of the parameters that are no axis and no option
OPTIONS = (
    Column("parameter", "parameter"), Column("where", "at"), Column("low", "slower"), Column("high", "faster"),
    Column("time", "time", "µs", ",.1f"),
    Column("factor", "x faster", spec=".2f"), Column("certain", "certain"),
)  # fmt: skip
SIZES = (
    Column("parameter", "parameter"), Column("where", "at"), Column("low", "from"), Column("high", "to"),
    Column("time", "time", "µs", ",.1f"),
    Column("factor", "time, times", spec=".2f"), Column("work", "work, times", spec=".3g"),
)  # fmt: skip


def parameters(measured: Analyses) -> Section:
    """The maps; and of cases that differ in one parameter alone, a table each of options and of sizes."""
    run = measured.run
    times = {case.id: time for case in run.cases if (time := KERNEL_TIME.traced(run, case.id)) is not None}
    series: dict[tuple[str, str, tuple[object, ...]], list[CaseEntry]] = defaultdict(list)
    for case in (case for case in run.cases if case.id in times):
        options = _options(case.workload)
        for key in case.params:
            same = alternatives.problem(case.workload, case.params) if key in options else None
            rest = tuple((name, value) for name, value in case.params.items() if name != key)
            series[case.workload, key, (same, *rest)].append(case)
    of_options: list[tuple[bool, float, tuple[Value, ...]]] = []
    of_sizes: list[tuple[bool, float, tuple[Value, ...]]] = []
    for (workload, key, _), members in series.items():
        value = members[0].params[key]
        if len(members) < 2:
            continue
        others = [case.params for case in run.cases if case.workload == workload]
        differing = [name for name in members[0].params if len({str(params.get(name)) for params in others}) > 1]
        where = ", ".join(f"{name} {format_switch(members[0].params[name])}" for name in differing if name != key)
        if isinstance(value, bool | str) or key in _options(workload):
            timed = {each.id: each for each in alternatives.timed(run)}
            plain = {case.id: time for case in members if (time := alternatives.plain_time(timed[case.id])) is not None}
            of = plain if len(plain) == len(members) else times
            fast, *_, slow = sorted(members, key=lambda case: of[case.id].value)
            factor, certain = of[slow.id] / of[fast.id], alternatives.difference(timed[slow.id], timed[fast.id])
            answer: Value = "no: within noise"
            if certain is not None:
                ratio, observed = certain
                answer = f"yes: {ratio.low:.2f} to {ratio.high:.2f} {words_of(observed)}"
            into, ends, time = of_options, (slow, fast), of[fast.id]
        else:
            small, *_, large = sorted(members, key=lambda case: float(case.params[key]))
            factor, certain = times[large.id] / times[small.id], None
            least, most = (float(each.bytes_read + each.bytes_written or each.flops) for each in (small, large))
            answer = most / least if least else None
            into, ends, time = of_sizes, (small, large), times[large.id]
        parameter = f"{workload.rpartition(':')[2]} {key}"
        named = (parameter, where or None, *(format_switch(case.params[key]) for case in ends))
        into.append((certain is None, -factor.value, (*named, time, factor, answer)))
    blocks: list[Any] = [*maps(measured)]
    tables = (
        ("Options of the same problem", OPTIONS, of_options,
         "Times without a profiler where all cases have one, else of the kernels."),
        ("Sizes", SIZES, of_sizes,
         "work: the least bytes that the cost model gives, or operations where it moves none. Less time than work: the "
         "small case does not fill the GPU."),
    )  # fmt: skip
    for title, columns, pairs, note in tables:
        if pairs:
            rows = tuple(cells for *_, cells in sorted(pairs, key=lambda pair: pair[:2])[:MOST_PAIRS])
            blocks.append(View(columns, rows, title=title, notes=(note,)))
        if len(pairs) > MOST_PAIRS:
            blocks.append(text_block(f"The {MOST_PAIRS} largest of {len(pairs)} differences are shown."))
    return Section("parameters", "What parameters do", tuple(blocks))


def _options(workload: str) -> Container[str]:
    """Parameters of a workload that are options of solving its problem."""
    known = packs.of_workload(workload)
    return known.options if known else ()


def format_switch(value: object) -> str:
    """A value of a parameter as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def maps(measured: Analyses) -> Iterator[View]:
    """The maps of a run: kernel time over the two parameters of most values, those that define the problem first."""
    timed = (case for case in measured.run.cases if KERNEL_TIME.of(measured.run, case.id))
    for workload, cases in by_key((case.workload, case) for case in timed).items():
        options = [name for name in cases[0].params if name in _options(workload)]
        values = {name: {str(case.params.get(name)) for case in cases} for name in cases[0].params}
        differing = [name for name in values if len(values[name]) > 1]
        axes = sorted(differing, key=lambda name: (name in options, -len(values[name])))[:2]
        if len(axes) > 1 and len(cases) >= FEWEST_CASES:
            yield from _maps(measured, cases, axes, [name for name in options if name not in axes])


def _maps(
    measured: Analyses, cases: Sequence[CaseEntry], axes: Sequence[str], options: Sequence[str]
) -> Iterable[View]:
    fixed: dict[tuple[tuple[str, str], ...], list[CaseEntry]] = defaultdict(list)
    for case in cases:
        rest = {name: format_switch(value) for name, value in case.params.items() if name not in (*axes, *options)}
        fixed[tuple(rest.items())].append(case)
    differing = {name for one in fixed for name, value in one if any((name, value) not in other for other in fixed)}
    x, y = (packs.of_parameter(name).axis or name for name in axes)

    def order(case: CaseEntry) -> list[tuple[float, str]]:
        values = [case.params.get(name) for name in axes]
        return [(float(value) if isinstance(value, int | float) else 0.0, str(value)) for value in values]

    for others, members in list(fixed.items())[:MOST_MAPS]:
        where = "".join(f", {name} {value}" for name, value in others if name in differing)
        best = [name for name in options if len({str(case.params.get(name)) for case in members}) > 1]
        placed = sorted(members, key=order)
        cells = by_key((tuple(format_switch(case.params.get(name)) for name in axes), case) for case in placed)
        across, down = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
        rows = tuple(
            (row, *(_cell(measured, cells[place, row], best) if (place, row) in cells else None for place in across))
            for row in down
        )
        fastest = say(" of the fastest {options}", options=tuple(best)) if best else ""
        columns = (Column("y", f"{y} \\ {x}"), *(Column(f"x{place}", name) for place, name in enumerate(across)))
        note = f"Kernel time of an iteration{fastest}; colour: its main kernel's share of its roof."
        yield View(columns, rows, title=f"{cases[0].workload} over {x} and {y}{where}", notes=(note,))


def _cell(measured: Analyses, cases: Sequence[CaseEntry], options: Sequence[str]) -> Shaded:
    """The fastest of the cases: its options, time, and share of the roof."""
    best = min(cases, key=lambda case: KERNEL_TIME.of(measured.run, case.id) or 0.0)
    parts = []
    for name in options:
        value, known = best.params.get(name), packs.of_parameter(name)
        words = (known.on if value else known.off) if isinstance(value, bool) else format_switch(value)
        parts.append(words or f"{name} {format_switch(value)}")
    main = next((group for group in measured.longest if group.shown.case == best.id), None)
    roofline = measured.rooflines.get(main.shown.launch) if main else None
    text, tip = ", ".join([*parts, f"{KERNEL_TIME.of(measured.run, best.id) or 0.0:,.3g} µs"]), ""
    share = roofline.share if roofline else None
    if roofline is not None and share is not None:
        text, tip = f"{text} · {share:.0%}", f", {share:.0%} of the {roofline.roof} roof"
    cell = Shaded(text)
    cell.share, cell.tip = share, measured.run.labels(best.id) + tip
    return cell


def times(runs: Sequence[Run]) -> Section:
    """How long an iteration of each case takes, by each tool."""
    cases = {case.id: case for run in runs for case in run.cases}

    def time(case: CaseEntry) -> float:
        found = [KERNEL_TIME.of(run, case.id) or PLAIN.of(run, case.id) or 0.0 for run in runs]
        return max(found) if sum(each > 0 for each in found) >= min(len(runs), 2) else 0.0

    timed = [case for case in cases.values() if time(case) > 0]
    longest = sorted(timed, key=lambda case: -time(case))[:MOST_CASES]
    shown = [case for case in timed if case in longest]
    blocks: list[Any] = []
    if shown and len(runs) == 1:
        blocks.append(show_report.case_times(runs[0], shown))
    elif shown:
        labels = Labels(cases)
        rows = [
            (f"{labels(case.id)} · {title}", [quantity.traced(run, case.id) for run in runs])
            for case in shown
            for quantity, title in ((KERNEL_TIME, "kernels"), (PLAIN, "no profiler"))
        ]
        note = f"Differences of {WORTH_CHANGING:g}% and more from the first run are marked. One process a side "
        note += f"cannot tell a change from noise: the same code differs by up to {PROCESSES_DIFFER:g}% between "
        note += f"processes, by about {BOARDS_DIFFER:g}% between boards of a kind, and drifts by up to "
        note += f"{PROCESSES_DRIFT:g}% over ten processes in a row."
        blocks.append(run_columns(runs, rows, notes=(note,)))
    elif len(runs) > 1 and cases:
        blocks.append(caution("no case was timed in more than one of these runs: there is nothing to compare"))
    if len(shown) < len(timed):
        blocks.append(text_block(f"The {len(shown)} of {len(timed)} cases with most time are shown."))
    return Section("times", "Time of an iteration", tuple(blocks))


def ranks(runs: Sequence[Run]) -> Section:
    """Which rank the others wait for."""
    blocks = [
        view
        for run in runs
        if run.has("kernels") and ranks_of(run).several
        for view in comm_report.document(run.once(comm)).shown[:3]
    ]
    return Section("ranks", "Ranks and collectives", tuple(blocks))


def checked(every: Sequence[Check]) -> str:
    if not every:
        return "The run has nothing to check itself by."
    passed, failed, neither = (sum(check.passed is each for check in every) for each in (True, False, None))
    return f"{passed:,} of {len(every):,} checks passed, {failed:,} failed, {neither:,} not possible."


def confidence(runs: Sequence[Run]) -> Section:
    """The checks that failed and those that were not possible."""
    blocks: list[Any] = []
    rows = []
    for number, run in enumerate(runs, 1):
        every = checks.every(run)
        blocks.append(text_block(checked(every)) if every else caution(checked(every)))
        for outcome, word in ((False, "failed"), (None, "not possible")):
            alike = by_key(((each.check, each.values.get("why")), each) for each in every if each.passed is outcome)
            for (name, _), of_kind in alike.items():
                about: dict[str, None] = {}
                for check in of_kind:
                    subject = "the run" if check.case is None else run.labels(check.case)
                    launch = check.launch
                    about[subject if launch is None else f"launch {launch} ({checks.subject(run, check)})"] = None
                more = f" and {len(about) - MOST_NAMED} more" if len(about) > MOST_NAMED else ""
                what = ", ".join(list(about)[:MOST_NAMED]) + more
                rows.append((str(number), word, checks.CHECKS[name]["holds"], what, words_of(of_kind[0].finding)))
    columns = (
        Column("run", "run"), Column("outcome", "outcome"), Column("what", "what should hold", wrap=True),
        Column("about", "about", wrap=True), Column("finding", "finding", wrap=True),
    )  # fmt: skip
    start = int(len(runs) == 1)
    if rows:
        blocks.append(View(columns[start:], tuple(row[start:] for row in rows)))
    return Section("sure", "Checks", tuple(blocks), folded=True)


def environment(runs: Sequence[Run]) -> Section:
    """GPU, driver, tools and packages, as the runs found them."""
    blocks: list[Any] = [
        caution(f"the run's environment is not known: {run.manifest.reason or 'its run.json has none'}")
        for run in runs
        if not run.manifest.environment
    ]
    blocks.append(_named(runs, _environment))
    return Section("environment", "Environment", tuple(blocks), folded=True)


def _named(runs: Sequence[Run], facts: Any, **texts: Any) -> View:
    """What a function says of each run as pairs of name and value, the runs beside each other."""
    facts_of = [dict(facts(run)) for run in runs]
    names = dict.fromkeys(name for each in facts_of for name in each)
    rows = [
        (name, [shorten(escape_control(each[name]), LONGEST_VALUE) if each.get(name) else None for each in facts_of])
        for name in names
    ]
    return run_columns(runs, rows, **texts)


def _environment(run: Run) -> Iterator[tuple[str, str]]:
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
    yield from environment_words(manifest.environment).items()
    yield "fiprof", manifest.fiprof


def asked(runs: Sequence[Run]) -> Section:
    blocks: list[Any] = [
        text_block(f"This run measured nothing: it reads the raw files of {run.manifest.replayed_from}.")
        for run in runs
        if run.manifest.replayed_from
    ]
    if cases := {case.id: (run, case) for run in reversed(runs) for case in run.cases}:
        costs = _costs(list(cases.values()))
        blocks += [_parameters([case for _, case in cases.values()], runs), *([costs] if costs.rows else [])]
    elif not all(run.of_program or run.imported for run in runs):
        blocks.append(caution("the run names no case: kernels are shown as the tools saw them"))
    if (settings := _named(runs, _settings, title="Settings")).rows:
        blocks.append(settings)
    return Section("asked", "Cases and settings", tuple(blocks), folded=True)


def _parameters(cases: Sequence[CaseEntry], runs: Sequence[Run]) -> View:
    """What was chosen of each workload, and what is its default: what nobody typed."""
    commands = [list(run.manifest.argv or run.environment("program", "command") or ()) for run in runs]
    all_collects = all(command[:2] == ["fiprof", "collect"] for command in commands)
    typed = {word.partition("=")[0] for command in commands for word in command}
    rows = []
    for name, of in by_key((case.workload, case) for case in cases).items():
        chosen: list[str] = []
        at_default: list[str] = []
        for key in dict.fromkeys(key for case in of for key in case.params):
            values = dict.fromkeys(format_switch(case.params[key]) for case in of if key in case.params)
            left = all_collects and f"--{key.replace('_', '-')}" not in typed
            (at_default if left else chosen).append(f"{key} {', '.join(values)}")
        rows.append((name, len(of), "; ".join(chosen), "; ".join(at_default) if all_collects else "not known here"))
    columns = (
        Column("workload", "workload"), Column("cases", "cases", spec=",d"), Column("chosen", "chosen", wrap=True),
        Column("default", "by default", wrap=True),
    )  # fmt: skip
    return View(columns, tuple(rows))


def _costs(cases: Sequence[tuple[Run, CaseEntry]]) -> View:
    """The least that each case has to do, and how far its result is from the reference; a case without either has no
    row."""
    columns = (
        Column("case", "case"), Column("flops", "work", "GFLOP", ",.3f"), Column("read", "read", "MB", ",.2f"),
        Column("written", "written", "MB", ",.2f"), Column("intensity", "intensity", "FLOP/byte", ",.2f"),
        Column("error", "error", "to fp32", ".1e"),
    )  # fmt: skip
    rows = []
    for run, case in cases[:MOST_CASES]:

        def traced(value: float | None, origin: Any, formula: str, case: str = case.id) -> TracedNumber | None:
            return None if value is None else TracedNumber(value, Provenance(origin, formula, case=case))

        baseline = run.baseline.get(case.id)
        costs = (
            traced(case.flops / 1e9 or None, "run.json", "flops / 1000000000"),
            traced(case.bytes_read / 1e6 or None, "run.json", "bytes_read / 1000000"),
            traced(case.bytes_written / 1e6 or None, "run.json", "bytes_written / 1000000"),
            MODEL_INTENSITY.traced(run, case.id),
            traced(baseline.reference.get("relative_error") if baseline else None, "plain", "relative_error"),
        )
        if any(each is not None for each in costs):
            rows.append((run.labels(case.id), *costs))
    notes = (
        "By the cost model: each operand read once, each result written once. error: relative, checked before "
        "measuring.",
        *([f"The first {MOST_CASES} of {len(cases)} cases."] if len(cases) > MOST_CASES else []),
    )
    return View(columns, tuple(rows), title="The least that each case has to do", notes=notes)


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
        value = settings.get(each.name)
        if not each.title or value in (None, []) or (each.tool and each.tool not in tools):
            continue
        if each.name == "tools" and not run.of_program:
            value = ["plain run", *value]
        shown = ", ".join(map(str, value)) if each.several else f"{value:,}" if each.unit else format_switch(value)
        meaning = SETTING_MEANS.get(f"{each.name}={format_switch(value)}", "")
        if not meaning and each.name == "gpu_metrics_hz" and isinstance(value, int | float):
            meaning = f"a sample every {1e6 / value:,.0f} µs"
        yield each.title, ": ".join(filter(None, (f"{shown} {each.unit}".strip(), meaning)))


def actions(runs: Sequence[Run]) -> Section:
    """Every command of the runs with duration, exit status and what it made; and the raw files with their checksums."""
    blocks: list[Any] = []
    for manifest in (run.manifest for run in runs):
        if not manifest.actions:
            blocks.append(caution(f"no command was started: {manifest.reason or 'run.json has none'}"))
        template = "pruned on {when}: {files}; what was made of them stays, and cannot be made again"
        for when, gone in itertools.groupby(manifest.pruned, lambda each: each.when[:10]):
            blocks.append(caution(say(template, when=when, files=[each.path for each in gone])))
        blocks += [
            caution(f"{each.step}: {each.message}" + (f" ({each.remedy})" if each.remedy else ""))
            for each in manifest.actions
            if each.message
        ]
    columns = (
        Column("run", "run"), Column("step", "step"), Column("started", "started"),
        Column("duration_s", "took", "s", ",.1f"), Column("exit", "exit", spec="d"), Column("outcome", "outcome"),
        Column("made", "made", wrap=True),
    )  # fmt: skip
    done = [(run.manifest.name, action) for run in runs for action in run.manifest.actions]
    start = int(len(runs) == 1)
    rows = [
        (
            name, each.step, each.started[11:19], each.duration_s, each.exit_status, each.outcome,
            ", ".join(file.path for file in each.files) or None,
        )[start:]
        for name, each in done
    ]  # fmt: skip
    if rows:
        note = "run.json has every command in full. ncu imports while nsys has the GPU: durations overlap."
        blocks.append(View(columns[start:], tuple(rows), notes=(note,)))
    raw = [(file, file.path in run.once(_stored)) for run in runs for file in run.manifest.files.values()]
    if stored_files := tuple((file.path, file.bytes, file.sha256) for file, stored in raw if stored):
        of_files = (Column("path", "file"), Column("bytes", "bytes", spec=",d"), Column("sha256", "sha256", least=64))
        note = "As the tools wrote them; a packed one (.zst, .xz) has this sum when it is unpacked."
        blocks.append(View(of_files, stored_files, title="Raw files", notes=(note,)))
    if left_out := [file.path for file, stored in raw if not stored]:
        blocks.append(text_block(say("Left out of the run folder: {files}.", files=left_out)))
    return Section("actions", "Actions and files", tuple(blocks), folded=True)


def _stored(run: Run) -> set[str]:
    """The raw files that lie in a run folder, packed or not."""
    stored = set()
    for path in run.manifest.files:
        with contextlib.suppress(FiprofError):
            stored |= {path} if packing.stored(run.path, path) else set()
    return stored


CODE_WIDTH = 96  # columns of a command that is broken between its words
TYPED = ("argv: ", "command: ")  # begin of what a manifest says that was masked in a command line
BY_HAND = "by-hand"  # folder of the commands to type oneself
VIEWERS = {"ncu-ui": layout.NCU_REPORT, "nsys-ui": layout.NSYS_REPORT}  # viewer -> the raw report that it opens


def reproduction(runs: Sequence[Run]) -> Section:
    """What to copy, paste and run: the command that collects it, the commands by hand, and what opens its files."""
    blocks: list[Any] = []
    for run in runs:
        manifest = run.manifest
        name = escape_control(manifest.name)
        commands = "\n".join(map(shell, reproduce(run)))
        packages = run.environment("packages")
        stored = run.once(_stored)
        if len(runs) > 1:
            blocks.append(text_block(f"Run {name}:"))
        if manifest.imported:
            blocks.append(View(summary=("From the same files, whose checksums run.json has:",), code=commands))
        elif commands:
            found = packages if isinstance(packages, dict) and not run.of_program else {}
            kernels = ", ".join(f"{each} {found[each]}" for each in ("flashinfer-python", "torch") if found.get(each))
            fiprof = f"fiprof {manifest.fiprof}".strip()
            blocks.append(View(summary=(f"With {' and '.join(filter(None, (fiprof, kernels)))}:",), code=commands))
            if run.settings.rounds != 1 and not run.of_program:
                rounds = run.settings.rounds
                told = f"This run is part of a study and took its cases in {rounds} rounds, as fiprof study does."
                blocks.append(text_block(told))
        if masked := sorted({name.partition(": ")[2] for name in manifest.masked or () if name.startswith(TYPED)}):
            blocks.append(text_block(say("Masked, to be given anew: {masked}.", masked=", ".join(masked))))
        if stored & {layout.NCU_PAGES["raw"], layout.NSYS_SQLITE} and not run.of_program and not manifest.imported:
            replay = f"fiprof collect --replay {run.folder}\nfiprof report latest"
            blocks.append(View(summary=("Without a GPU, from the raw files in this run's folder:",), code=replay))
        by_hand = []
        for action in manifest.actions:
            if action.argv and action.step in ("nsys", "nsys-export", "ncu", "ncu-raw"):
                words = [_moved(word, manifest.name) for word in action.argv]
                to = f" > {BY_HAND}/ncu/raw.csv" if action.step == "ncu-raw" else ""
                by_hand.append(shell([words[0].rpartition("/")[2], *words[1:]]) + to)
        if by_hand:
            folders = f"mkdir -p {BY_HAND}/nsys {BY_HAND}/ncu {BY_HAND}/logs"
            blocks.append(View(summary=("By hand, in bash:",), code="\n".join([folders, *by_hand])))
        if opened := tuple(f"{viewer} {report}" for viewer, report in VIEWERS.items() if report in stored):
            sentence = "The raw reports open in {opened}; fiprof pack RUN --undo unpacks them."
            blocks.append(text_block(say(sentence, opened=opened)))
    return Section("reproduce", "How to do it again", tuple(blocks), folded=True)


def reproduce(run: Run) -> list[list[str]]:
    """The words of the commands to type, in order: fiprof's own command line, as ``run.json`` has it.

    Runs of before it was recorded: of a program the command line that its settings make, of a collect the plain
    workload's; of an import the files; none where nothing was started.
    """
    manifest = run.manifest
    program = [str(word) for word in run.environment("program", "command") or ("COMMAND",)]
    if any(action.step == "nsys-start" for action in manifest.actions):
        capture = ["fiprof", "capture", "NAME", "--duration", str(manifest.settings.get("duration_s"))]
        return [["fiprof", "profile", "--session", "NAME", "--", *program], capture]
    if manifest.argv:
        return [manifest.argv]
    if manifest.imported:
        ranges = [word for name in manifest.ranges for word in ("--range", name)]
        return [["fiprof", "import", *ranges, *(file.source for file in manifest.imported)]]
    if run.of_program:
        return [["fiprof", "profile", *option_words(manifest.settings, ProfileSettings), "--", *program]]
    if program[:2] == ["fiprof", "collect"]:
        return [program]
    return [action.argv for action in manifest.actions if action.step == "plain"][:1]


def _moved(word: str, name: str) -> str:
    """A path in the run folder as one in BY_HAND."""
    head, found, tail = word.partition(f".partial-{name}/")
    before, equals, _ = head.rpartition("=")
    return f"{before}{equals}{BY_HAND}/{tail}" if found else word


def shell(words: Sequence[str]) -> str:
    """A command, what cannot be printed as its escape, in lines that end between its words."""
    first, *rest = (shlex.quote(escape_control(word)) for word in words)
    lines = [first]
    for word in rest:
        if len(lines[-1]) + len(word) + len("  \\") > CODE_WIDTH:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)
