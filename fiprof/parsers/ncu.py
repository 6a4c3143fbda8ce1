"""What ncu wrote, as the tables launches, metrics, stalls, rules and hotspots."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.quantities import METRICS, Metric
from fiprof.model.redaction import mask
from fiprof.parsers import ncu_pages
from fiprof.parsers.names import FIPROF_DOMAIN, case_of, short_name
from fiprof.parsers.ncu_profile import Profile, plain_domain, sampled_metrics, spelled, to_base

MEASURE = "measure"


def parse(
    raw: Path | None,
    out: Path,
    *,
    details: Path | None = None,
    source: Path | None = None,
    report: Path | None = None,
    declared: Sequence[str] = (),
) -> tuple[str, ...]:
    """Read ncu's pages, exported as CSV, or its report, and write the five tables into the folder ``out``.

    raw: ``--page raw --print-units base``. details: ``--page details``; without a raw page the metrics are those that
    it shows, rounded. source: ``--page source --print-source sass``. report: the ``.ncu-rep`` itself, read by NVIDIA's
    package ncu-report instead of all pages. declared: NVTX ranges that are cases.
    Returns a sentence for each page, table and metric of ``metrics.csv`` that is missing; the table of a page that is
    not given, or cannot be read, is empty.
    Raises FiprofError where the page or report with the launches cannot be read, or the package is not installed; then
    no table is written.
    """
    missing: list[str] = []
    if report is not None:
        profile, rules, hotspots = read_report(report)
    else:
        if raw is None:
            assert details is not None
            profile, rules = ncu_pages.read_details(details)
            missing.append("launches: metrics are those of a details page: rounded, and only what its sections show")
        else:
            profile = ncu_pages.read_raw(raw)
            rules = _page("rules", details, ncu_pages.read_rules, profile, missing)
        hotspots = _page("hotspots", source, ncu_pages.read_hotspots, profile, missing)
    stalls = stalls_table(profile)
    out.mkdir(parents=True, exist_ok=True)
    further = {"metrics": metrics_table(profile), "stalls": stalls, "rules": rules, "hotspots": hotspots}
    for name, table in {"launches": launches_table(profile, declared), **further}.items():
        tables.write(out, name, table)
    missing += [f"launches: {sentence}" for sentence in profile.left_out]
    if not stalls.num_rows:
        missing.append("stalls: neither ratios nor samples were collected (section WarpStateStats)")
    if absent := [metric.name for metric in METRICS if metric.expected and _column(profile, metric) is None]:
        missing.append(f"launches: not collected: {', '.join(absent)}")
    return tuple(missing)


def _page(
    table: str, page: Path | None, read: Callable[[Path, Profile], pa.Table], profile: Profile, missing: list[str]
) -> pa.Table:
    """The table of a page; an empty one, with a sentence added to ``missing``, where it is missing or unreadable."""
    try:
        if page is not None:
            return read(page, profile)
        missing.append(f"{table}: ncu's {'details' if table == 'rules' else 'source'} page was not exported")
    except FiprofError as error:
        missing.append(f"{table}: {error.message}")
    return tables.schema(table).empty_table()


def launches_table(profile: Profile, declared: Sequence[str] = ()) -> pa.Table:
    """The table ``launches``: identity of each launch, and each metric of ``metrics.csv``, null where not collected."""
    names = {name: short_name(name) for name in set(profile.launches["kernel_full"])}
    # Case and iteration: by the runner's ranges inside ``measure``, or the innermost declared range. A declared range
    # has no iteration: ncu does not count its repetitions.
    scopes: list[tuple[str | None, int | None]] = []
    for ranges in profile.launches["ranges"]:
        cases = (case_of(domain, name, declared) for domain, name in reversed(ranges))
        own = [name for domain, name in ranges if domain == FIPROF_DOMAIN]
        inside = own[own.index(MEASURE) + 1 :] if MEASURE in own else []
        iterations = [int(match[1]) for name in inside[1:] if (match := re.fullmatch(r"iter (\d{1,9})", name))]
        case = next(filter(None, cases), None)
        scopes.append((case, None) if case else (next(iter(inside), None), next(reversed(iterations), None)))
    columns = {name: cells for name, cells in profile.launches.items() if name != "ranges"} | {
        "kernel": [names[name] for name in profile.launches["kernel_full"]],
        "case": [case for case, _ in scopes],
        "iteration": [iteration for _, iteration in scopes],
    }
    schema = tables.schema("launches")
    arrays = {name: pa.array(cells, schema.field(name).type) for name, cells in columns.items()}
    nothing = np.full(len(scopes), np.nan)
    for metric in METRICS:
        values = _column(profile, metric)
        arrays[metric.name] = pa.array(nothing if values is None else values, pa.float64(), from_pandas=True)
    return pa.table(arrays)


def _column(profile: Profile, metric: Metric) -> NDArray[np.float64] | None:
    """A metric's value for each launch, by the first of its names that has one; None where no launch has any."""
    merged: NDArray[np.float64] | None = None
    for name in metric.ncu:
        values = profile.of(name)
        # A time or a size whose unit is unknown would be a wrong number.
        if values is None or (name in profile.unscaled and metric.unit not in ("1", "%")):
            continue
        merged = values if merged is None else np.where(np.isnan(merged), values, merged)
    return None if merged is None or np.isnan(merged).all() else merged


def metrics_table(profile: Profile) -> pa.Table:
    """The table ``metrics``: every cell of the raw page that holds a number or a text, metric by metric."""
    ids = np.array(profile.launches["launch"], np.int32)
    metrics = pa.array(profile.metrics, pa.string())
    units = pa.array(profile.units, pa.string()).dictionary_encode()

    def rows(cells: NDArray[np.bool_], values: pa.Array, text: pa.Array) -> pa.Table:
        """cells: metrics x launches, true for those that become rows."""
        counts = np.count_nonzero(cells, axis=1)
        codes = np.repeat(np.arange(len(metrics), dtype=np.int32), counts)
        named = pa.DictionaryArray.from_arrays(codes, metrics)
        unit = pa.DictionaryArray.from_arrays(np.repeat(units.indices.to_numpy(), counts), units.dictionary)
        launch = np.broadcast_to(ids, cells.shape)[cells]
        return pa.table({"launch": launch, "metric": named, "value": values, "unit": unit, "text": text})

    numbers = ~np.isnan(profile.values)
    texts = np.zeros_like(numbers)
    for metric, name in enumerate(profile.metrics):
        if name in profile.texts:
            texts[metric] = [text is not None for text in profile.texts[name]]
    all_texts = [text for name in profile.metrics for text in profile.texts.get(name, ()) if text is not None]
    words = pa.array(all_texts, pa.string()).dictionary_encode()
    values = profile.values[numbers]
    wordless = pa.DictionaryArray.from_arrays(pa.nulls(len(values), pa.int32()), words.dictionary)
    of_numbers = rows(numbers, pa.array(values), wordless)
    return pa.concat_tables([of_numbers, rows(texts, pa.nulls(len(all_texts), pa.float64()), words)])


def stalls_table(profile: Profile) -> pa.Table:
    """The table ``stalls``: a row a launch and reason, for each reason that ncu gives in either measure.

    share is warps_per_issue over its sum; for a launch without these ratios, samples over their sum.
    """
    per_issue = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
    ratios = {spelled(match[1]): name for name in profile.metrics if (match := per_issue.fullmatch(name))}
    samples = sampled_metrics(profile.metrics)
    reasons = sorted(ratios.keys() | samples.keys())
    if not reasons:
        return tables.schema("stalls").empty_table()

    nothing = np.full(len(profile.launches["launch"]), np.nan)

    def grid(metrics: dict[str, str]) -> NDArray[np.float64]:
        """Launches x reasons; NaN for a reason that the measure does not have."""
        columns = [profile.of(metrics[reason]) if reason in metrics else None for reason in reasons]
        return np.stack([nothing if column is None else column for column in columns], axis=1)

    warps, sampled = grid(ratios), grid(samples)
    not_issued = grid(sampled_metrics(profile.metrics, not_issued=True))
    base = np.where(np.isnan(warps).all(axis=1, keepdims=True), sampled, warps)
    total = np.nansum(base, axis=1, keepdims=True)
    share = np.divide(base, total, out=np.full_like(base, np.nan), where=total > 0)
    rows, codes = (~(np.isnan(warps) & np.isnan(sampled))).nonzero()
    measured = {"warps_per_issue": warps, "share": share, "samples": sampled, "samples_not_issued": not_issued}
    types = {name: tables.schema("stalls").field(name).type for name in measured}
    cells = {name: pa.array(each[rows, codes], from_pandas=True).cast(types[name]) for name, each in measured.items()}
    named = pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(reasons, pa.string()))
    return pa.table({"launch": np.array(profile.launches["launch"], np.int32)[rows], "reason": named, **cells})


# The ``.ncu-rep`` itself, read by NVIDIA's package ncu-report: what the exported pages hold, without ncu
#
# It differs from the pages in this: metrics have all their digits, kernel names all their namespaces, hotspots their
# source lines where the build has them; and it does not know the process.

SASS_BYTES = 16  # of an instruction, on every GPU that ncu profiles
_SAMPLES = "smsp__pcsamp_sample_count"
_EXECUTED = "inst_executed"
_COUNTS = {
    "executed": _EXECUTED,
    "sectors": "memory_l2_theoretical_sectors_global",
    "ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
}
"""Field of an instruction -> ncu's metric by address."""
# @section:SchedulerStats:Scheduler Statistics@ and @url:text:https://…@ are links in a rule's message.
_LINK = re.compile(r"@(?:section:\w+|source:[^:@]*:\d+|sass:\w+):([^@]*)@|@url:([^@]*?):(\w+://[^@]*)@")

Action = Any  # an ``ncu_report.IAction``: a profiled launch


def read_report(report: Path) -> tuple[Profile, pa.Table, pa.Table]:
    """The launches with their metrics, and the tables ``rules`` and ``hotspots``."""
    try:
        import ncu_report
    except ImportError as error:
        raise FiprofError("the package ncu-report is not installed", "pip install ncu-report") from error
    if not report.is_file():
        raise FiprofError(f"{report} cannot be read: there is no such file", "check the path")
    try:
        context = ncu_report.load_report(str(report))
        ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    # The package raises different errors in different versions.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        what = f"{report} is damaged, no report of ncu, or newer than the package ncu-report: {reason}"
        raise FiprofError(what, "pip install --upgrade ncu-report") from error
    actions = [one.action_by_idx(i) for one in ranges for i in range(one.num_actions())]
    if not actions:
        what = f"{report} holds no launch that can be read: it is no report of ncu, a damaged or an empty one"
        raise FiprofError(what, "ncu --import FILE says what ncu makes of it")
    rules = [rule for launch, action in enumerate(actions) for rule in _rules(launch, action)]
    hotspots = {launch: _instructions(action) for launch, action in enumerate(actions)}
    rules_table = pa.Table.from_pylist(rules, tables.schema("rules"))
    return _profile(actions), rules_table, ncu_pages.hotspots_table(hotspots)


def _launch(number: int, action: Action) -> dict[str, Any]:
    def integer(metric: str) -> int | None:
        read_metric = action.metric_by_name(metric)
        value = read_metric.value() if read_metric is not None and read_metric.has_value() else None
        return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 31 else None

    def dimensions(prefix: str) -> str:
        sizes = [integer(f"launch__{prefix}_dim_{axis}") for axis in "xyz"]
        return "x".join(map(str, sizes)) if None not in sizes else ""

    state = action.nvtx_state()
    domains = [state.domain_by_id(domain) for domain in state.domains()] if state else []
    capability = [integer(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    return {
        "launch": number,
        "kernel_full": mask(action.name(action.NameBase_DEMANGLED)),
        "grid": dimensions("grid"),
        "block": dimensions("block"),
        "ranges": tuple(
            (plain_domain(domain.name()), mask(name)) for domain in domains for name in domain.push_pop_ranges()
        ),
        "pid": None,
        "context": integer("launch__context_id"),
        "stream": integer("launch__stream_id"),
        "device": integer("launch__device_id"),
        "cc": None if None in capability else ".".join(map(str, capability)),
    }


def _profile(actions: list[Action]) -> Profile:
    # Names with a colon are lists of other metrics.
    names = tuple(dict.fromkeys(name for action in actions for name in action.metric_names() if ":" not in name))
    launches = [_launch(number, action) for number, action in enumerate(actions)]
    values = np.full((len(names), len(launches)), np.nan)
    units = [""] * len(names)
    unscaled = set()
    texts: dict[str, list[str | None]] = {}
    for launch, action in enumerate(actions):
        for row, name in enumerate(names):
            metric = action.metric_by_name(name)
            if metric is None or not metric.has_value():
                continue
            base = to_base(metric.unit())
            units[row], factor = base or (metric.unit(), 1.0)
            if base is None:
                unscaled.add(name)
            value = metric.value()
            if not isinstance(value, str):
                values[row, launch] = value * factor
            elif value:
                texts.setdefault(name, [None] * len(launches))[launch] = value
    return Profile.sound(
        launches={name: [launch[name] for launch in launches] for name in launches[0]},
        metrics=names,
        units=tuple(units),
        values=values,
        texts=texts,
        unscaled=frozenset(unscaled),
    )


def _rules(launch: int, action: Action) -> Iterator[dict[str, Any]]:
    import ncu_report

    kinds = {
        ncu_report.MsgType_OK: "INF",
        ncu_report.MsgType_OPTIMIZATION: "OPT",
        ncu_report.MsgType_WARNING: "WRN",
        ncu_report.MsgType_ERR: "ERR",
    }
    speedups = {ncu_report.SpeedupType_GLOBAL: "global", ncu_report.SpeedupType_LOCAL: "local"}
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message")
        if not message or not message["message"]:
            continue
        speedup = result.get("speedup_estimation", {})
        yield {
            "launch": launch,
            "section": result["section_identifier"],
            "rule": result["rule_identifier"],
            "kind": kinds.get(message["type"], "INF"),
            "message": _LINK.sub(lambda link: link[1] or f"{link[2]} ({link[3]})", message["message"]),
            "speedup_kind": speedups.get(speedup.get("type")),
            "speedup_pct": speedup.get("speedup"),
        }


def _instructions(action: Action) -> list[ncu_pages.Instruction]:
    """Every instruction of the kernel; none where neither samples nor executions were collected by instruction."""
    samples = _by_address(action, [_SAMPLES])
    addresses = samples.keys() | _by_address(action, [_EXECUTED]).keys()
    if not addresses:
        return []
    names = tuple(action.metric_names())
    idle = _by_address(action, sampled_metrics(names, not_issued=True).values())
    reasons = {reason: _by_address(action, [metric]) for reason, metric in sampled_metrics(names).items()}
    counts = {name: _by_address(action, [metric]) for name, metric in _COUNTS.items() if metric in names}
    instructions, address, last = [], min(addresses), max(addresses)
    # Beyond the last instruction executed there can be more.
    while address <= last or action.sass_by_pc(address):
        line = action.source_info(address)
        instructions.append(
            {
                "address": address,
                "sass": action.sass_by_pc(address).strip(),
                "source_file": line.file_name() if line else None,
                "source_line": line.line() if line else None,
                "samples": samples.get(address, 0) if samples else None,
                "samples_not_issued": idle.get(address, 0) if idle else None,
                "reasons": {reason: of.get(address, 0) for reason, of in reasons.items() if samples.get(address)},
                **{name: of.get(address, 0) for name, of in counts.items()},
            }
        )
        address += SASS_BYTES
    return instructions


def _by_address(action: Action, metrics: Iterable[str]) -> dict[int, int]:
    """The sum of the metrics at each address that they have a value for."""
    totals: dict[int, int] = {}
    for name in metrics:
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids():
            continue
        addresses = metric.correlation_ids()
        for i in range(metric.num_instances()):
            address = addresses.as_uint64(i)
            totals[address] = totals.get(address, 0) + metric.as_uint64(i)
    return totals
