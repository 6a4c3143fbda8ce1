"""The ``.ncu-rep`` itself, read by NVIDIA's package ncu-report: what the exported pages hold, without ncu.

It differs from the pages in this: metrics have all their digits, kernel names all their namespaces, hotspots their
source lines where the build has them; and it does not know the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fiprof.errors import FiprofError
from fiprof.parsers.ncu_pages import Instruction, hotspots_table, rules_table
from fiprof.parsers.ncu_profile import Profile, plain_domain, sampled_metrics, to_base

SASS_BYTES = 16
"""Of an instruction, on every GPU that ncu profiles."""
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

Action = Any
"""An ``ncu_report.IAction``: a profiled launch."""


def read_report(report: Path) -> tuple[Profile, pa.Table, pa.Table]:
    """The launches with their metrics, and the tables ``rules`` and ``hotspots``.

    Raises FiprofError where ncu-report is not installed, or the file is missing, no report of ncu, newer than the
    package, or holds no launches.
    """
    try:
        import ncu_report
    except ImportError as error:
        raise FiprofError("the package ncu-report is not installed", "pip install 'fiprof[ncu-rep]'") from error
    if not report.is_file():
        raise FiprofError(f"{report} cannot be read: there is no such file", "check the path")
    try:
        context = ncu_report.load_report(str(report))
        ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    # The package raises different errors in different versions.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise FiprofError(
            f"{report} is damaged, no report of ncu, or newer than the package ncu-report: {reason}",
            "pip install --upgrade ncu-report",
        ) from error
    actions = [one.action_by_idx(i) for one in ranges for i in range(one.num_actions())]
    if not actions:
        raise FiprofError(
            f"{report} holds no launch that can be read: it is no report of ncu, a damaged or an empty one",
            "ncu --import FILE says what ncu makes of it",
        )
    rules = [rule for launch, action in enumerate(actions) for rule in _rules(launch, action)]
    hotspots = {launch: _instructions(action) for launch, action in enumerate(actions)}
    return _profile(actions), rules_table(rules), hotspots_table(hotspots)


def _launch(number: int, action: Action) -> dict[str, Any]:
    """A launch, with the columns of ``Profile.launches``."""

    def integer(metric: str) -> int | None:
        found = action.metric_by_name(metric)
        value = found.value() if found is not None and found.has_value() else None
        return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 31 else None

    def dimensions(prefix: str) -> str:
        found = [integer(f"launch__{prefix}_dim_{axis}") for axis in "xyz"]
        return "x".join(map(str, found)) if None not in found else ""

    state = action.nvtx_state()
    domains = [state.domain_by_id(domain) for domain in state.domains()] if state else []
    capability = [integer(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    return {
        "launch": number,
        "kernel_full": action.name(action.NameBase_DEMANGLED),
        "grid": dimensions("grid"),
        "block": dimensions("block"),
        "ranges": tuple((plain_domain(domain.name()), name) for domain in domains for name in domain.push_pop_ranges()),
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


def _instructions(action: Action) -> list[Instruction]:
    """Every instruction of the kernel; none where neither samples nor executions were collected by instruction."""
    samples = _by_address(action, [_SAMPLES])
    addresses = samples.keys() | _by_address(action, [_EXECUTED]).keys()
    if not addresses:
        return []
    names = tuple(action.metric_names())
    idle = _by_address(action, sampled_metrics(names, not_issued=True).values())
    reasons = {reason: _by_address(action, [metric]) for reason, metric in sampled_metrics(names).items()}
    counts = {name: _by_address(action, [metric]) for name, metric in _COUNTS.items() if metric in names}
    found, address, last = [], min(addresses), max(addresses)
    # Beyond the last instruction executed there can be more.
    while address <= last or action.sass_by_pc(address):
        line = action.source_info(address)
        found.append(
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
    return found


def _by_address(action: Action, metrics: Iterable[str]) -> dict[int, int]:
    """The sum of the metrics at each address that they have a value for."""
    found: dict[int, int] = {}
    for name in metrics:
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids():
            continue
        addresses = metric.correlation_ids()
        for i in range(metric.num_instances()):
            address = addresses.as_uint64(i)
            found[address] = found.get(address, 0) + metric.as_uint64(i)
    return found
