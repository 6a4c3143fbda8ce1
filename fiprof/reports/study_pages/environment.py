"""``environment``: the machine, the versions, how it was measured, and what that means for the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from fiprof.analysis.study import Study, least_bytes
from fiprof.model import packs
from fiprof.model.manifest import read_manifest
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Caution, Page, Section, Table, Text, bullets
from fiprof.reports.study_pages.names import confidence, label, run_link
from fiprof.reports.study_pages.numbers import METHOD, bytes_, duration, half_width, number, spread
from fiprof.reports.view import Column, Narrow, View
from fiprof.reports.words import phrase
from fiprof.text import shorten

DRIFT = 0.02
"""Spread of a case's rounds, as a part of its time, from which it is named. fiprof's own choice."""


COMMAND_CELLS = 60
"""Of a command in the log; run.json has all of it."""


def value(study: Study, *path: str) -> Any:
    """A value of the environment by its path of keys; None where it is not there."""
    found: Any = study.info.environment
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def facts(study: Study) -> tuple[tuple[str, str], ...]:
    """What stands below the title of every document."""
    info = study.info
    state = value(study, "gpu_state", "before") or {}
    driver = state.get("driver") or value(study, "driver")
    wanted = (
        ("GPU", value(study, "gpu", "name")),
        *((words, value(study, "packages", name)) for name, words in packages().items()),
        ("CUDA, driver", " · ".join(str(word) for word in (value(study, "gpu", "cuda"), driver) if word)),
        ("Measured", f"{info.started.replace('T', ' ')}, {duration(info.duration_s * 1e6)} of measuring"),
        ("Cases", f"{info.cases:,} measured, {info.skipped:,} skipped; {status(study)}"),
    )
    return tuple((name, str(word)) for name, word in wanted if word)


def packages() -> dict[str, str]:
    """Package -> its name in words, of those that packs are about."""
    return {name: words for found in packs.parts("packages").values() for name, words in found.items()}


def status(study: Study) -> str:
    """Whether the study is complete, or what is not measured yet."""
    info = study.info
    if info.status == "complete":
        return phrase("study.complete")
    return phrase("study.incomplete", missing=[f"{n} {name}" for name, n in info.missing.items()])


def warnings(study: Study) -> list[str]:
    """What makes the study's numbers doubtful."""
    info = study.info
    skipped = [case for cases in study.by_workload.values() for case in cases if case.skipped]
    return [
        *(phrase("study.mixed", what=what, values=values) for what, values in info.mixed.items()),
        *(phrase("study.skipped", case=case.id, reason=case.skipped) for case in skipped),
        *(
            phrase("study.run_warning", run=run, warning=text)
            for run, texts in info.run_warnings.items()
            for text in texts
        ),
    ]


def page(study: Study) -> Page:
    """Where and how the study was made."""
    return Page(
        f"{study.info.title or study.info.study}: environment",
        (
            Section("machine", "Machine and versions", (Table(_versions(study)),)),
            Section("method", "How it was measured", (bullets(_method(study)),)),
            Section("clocks", "Clocks", _clocks(study)),
            Section("sure", "How sure the times are", (bullets(steadiness(study)),)),
            Section("means", "What that means for the reader", (bullets(_means(study)),)),
            *_actions(study),
        ),
        facts=facts(study),
    )


def _versions(study: Study) -> View:
    rows: list[tuple[str, str]] = []
    for group, name in (("gpu", "GPU"), ("packages", "package"), ("tools", "tool"), ("host", "host")):
        found = value(study, group)
        if isinstance(found, dict):
            rows += [
                (f"{name}: {_named(key)}", _shown(key, item))
                for key, item in found.items()
                if _worth_showing(key, item)
            ]
    rows.append(("fiprof", study.info.fiprof or "–"))
    return View((Column("what", "what"), Column("value", "value")), tuple(rows))


def _named(key: str) -> str:
    """A fact's name in words; a package's as it is."""
    return key.removesuffix("_bytes").replace("_", " ")


def _worth_showing(key: str, item: object) -> bool:
    """Neither what is unknown nor the interpreter's path."""
    return item is not None and not key.endswith("executable") and not (key == "python" and "/" in str(item))


def _shown(key: str, item: object) -> str:
    if key.endswith("_bytes") and isinstance(item, int | float):
        return bytes_(item)
    return f"{item:,}" if isinstance(item, int) and not isinstance(item, bool) else str(item)


def _method(study: Study) -> list[str]:
    settings = study.info.settings
    counted = [case.plain for case in study.measured if case.plain is not None]
    found: list[str] = []
    if counted:
        rounds = sorted({times.rounds for times in counted})
        each = sorted({times.count for times in counted})
        turns = (
            phrase("study_method.turns", rounds=_range(rounds)) if rounds[-1] > 1 else phrase("study_method.one_turn")
        )
        found.append(phrase("study_method.plain", each=_range(each), turns=turns, confidence=confidence(study)))
    total = len(study.measured)
    found.append(phrase("study_method.nsys", count=sum(case.nsys is not None for case in study.measured), total=total))
    found.append(phrase("study_method.ncu", count=sum(bool(case.kernels) for case in study.measured), total=total))
    checked = [case.relative_error for case in study.measured if case.relative_error is not None]
    if checked:
        found.append(phrase("study_method.checked", count=len(checked), worst=max(checked)))
    if settings:
        shown = [f"{name} {_setting(item)}" for name, item in settings.items() if _worth_showing(name, item)]
        found.append(phrase("study_method.settings", settings=", ".join(shown)))
    return found


def _actions(study: Study) -> list[Section]:
    """Every command of the study's runs; nothing where the runs are not beside the results."""
    rows: list[tuple[str, str, str, float, str, str]] = []
    for run in study.info.runs:
        if not (study.folder / run / "run.json").is_file():
            continue
        for action in read_manifest(study.folder / run).actions:
            command = re.sub(r"/\S*/", "", " ".join(action.argv))
            started = action.started.partition("T")[2][:8]
            rows.append(
                (
                    run_link(study, run),
                    action.step,
                    started,
                    action.duration_s,
                    action.outcome,
                    shorten(command, COMMAND_CELLS),
                )
            )
    columns = (
        Column("run", "run"),
        Column("step", "step"),
        Column("started", "started"),
        Column("seconds", "took", "s", ".1f"),
        Column("outcome", "outcome"),
        Column("command", "command", narrow=Narrow.DROP),
    )
    return [Section("actions", "Actions log", (Table(View(columns, tuple(rows)), "actions-table"),))] if rows else []


def _setting(item: object) -> str:
    if isinstance(item, list | tuple):
        return " and ".join(map(str, item))
    return ("yes" if item else "no") if isinstance(item, bool) else str(item)


def _range(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def _clocks(study: Study) -> tuple[Text | Table | Caution, ...]:
    states = {when: value(study, "gpu_state", when) for when in ("before", "after")}
    rows = tuple(
        (name.replace("_", " "), *(_state(states[when], name) for when in states))
        for name in ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "temperature_c")
        if any(_state(state, name) is not None for state in states.values())
    )
    if not rows:
        return (Text((phrase("study_method.no_clocks"),)),)
    columns = (Column("what", "what"), Column("before", "before"), Column("after", "after"))
    blocks: list[Text | Table | Caution] = [Table(View(columns, rows))]
    control = study.info.settings.get("clock_control")
    if control is not None:
        blocks.append(Text((phrase("study_method.clock_control", control=control),)))
    counted = [case.slow_clock_rounds for case in study.measured if case.slow_clock_rounds is not None]
    if counted:
        total = sum(case.plain.rounds for case in study.measured if case.plain)
        values = {"rounds": sum(counted), "total": total, "cases": sum(map(bool, counted))}
        blocks.append(Text((phrase(f"study_method.{'slow_clock' if any(counted) else 'clock_back'}", **values),)))
    if any(state.get("other_processes") for state in states.values() if isinstance(state, dict)):
        blocks.append(Caution(phrase("study_method.others")))
    return tuple(blocks)


def _state(state: object, name: str) -> float | int | None:
    found = state.get(name) if isinstance(state, dict) else None
    return found if isinstance(found, int | float) else None


def steadiness(study: Study) -> list[str]:
    """How wide the intervals are, and how far a case's rounds lie apart."""
    widths = [half_width(case) for case in study.measured]
    if not widths:
        return [phrase("study_method.no_times")]
    widest = max(study.measured, key=half_width)
    drifts = [(case, drift(case)) for case in study.measured if case.plain and len(case.plain.round_medians_us) > 1]
    lines: list[str] = [phrase("study_method.widths", spread=spread(widths, ".1%"), case=label(study, widest))]
    if drifts:
        worst = max(drifts, key=lambda item: item[1])
        lines.append(
            phrase(
                "study_method.drift",
                spread=spread([part for _, part in drifts], ".1%"),
                drift=DRIFT,
                moved=sum(part >= DRIFT for _, part in drifts),
                cases=len(drifts),
                case=label(study, worst[0]),
                most=worst[1],
            )
        )
        lines.append(_trend(drifts))
    return lines


def drift(case: CaseResult) -> float:
    """How far a case's rounds are apart, as a part of its time."""
    assert case.plain is not None
    return (max(case.plain.round_medians_us) - min(case.plain.round_medians_us)) / case.plain.median_us


def _trend(drifts: Sequence[tuple[CaseResult, float]]) -> str:
    """Whether the last round was slower or faster than the first in most cases."""
    moves = [
        case.plain.round_medians_us[-1] / case.plain.round_medians_us[0] - 1
        for case, _ in drifts
        if case.plain is not None and case.plain.round_medians_us[0] > 0
    ]
    if not moves:
        return phrase("study_method.no_trend")
    slower = sum(move > 0 for move in moves)
    return phrase("study_method.trend", median=median(moves), slower=slower, cases=len(moves))


def _means(study: Study) -> list[str]:
    found: list[str] = [METHOD]
    both = [(case, case.plain.median_us, case.nsys.median_us) for case in study.measured if case.nsys and case.plain]
    if both:
        gaps = [(plain - nsys, label(study, case)) for case, plain, nsys in both]
        (least, short), (most, long) = (choose(gaps, key=lambda item: item[0]) for choose in (min, max))
        found.append(
            phrase(
                "study_method.gaps",
                gap=number(median(us for us, _ in gaps)),
                part=median(1 - nsys / plain for _, plain, nsys in both),
                least=number(least),
                least_case=short,
                most=number(most),
                most_case=long,
            )
        )
    ratios = [case.ncu_us / case.nsys.median_us for case in study.measured if case.nsys and case.ncu_us]
    if ratios:
        control = study.info.settings.get("cache_control", "not recorded")
        found.append(phrase("study_method.flushed", spread=spread(ratios), control=control))
    if l2 := study.l2_bytes:
        warm = sum(0 < least_bytes(case) <= l2 for case in study.measured)
        above = sum((case.gb_per_s_roof_share or 0) > 1 for case in study.measured)
        found.append(phrase("study_method.warm", warm=warm, l2=bytes_(l2), above=above))
    return found
