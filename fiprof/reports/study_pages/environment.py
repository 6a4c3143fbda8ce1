"""``environment``: the machine, the versions, how it was measured, and what that means for the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from fiprof.analysis.study import Study
from fiprof.model import packs
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Caution, Page, Section, Table, Text, bullets
from fiprof.reports.study_pages import levels
from fiprof.reports.study_pages.names import confidence, label
from fiprof.reports.study_pages.numbers import METHOD, bytes_, duration, number, spread
from fiprof.reports.study_pages.tables import half_width
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import count

DRIFT = 0.02
"""Spread of a case's rounds, as a part of its time, from which it is named. fiprof's own choice."""

CLOCK_APART = 0.02
"""Difference of the clock before and after, as a part, that gets a caution. fiprof's own choice."""


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
    found = []
    if counted:
        rounds = sorted({times.rounds for times in counted})
        each = sorted({times.count for times in counted})
        turns = (
            f"{_range(rounds)} rounds; between two rounds of a case every other case had its turn, so that a drift of "
            "the clocks does not look like a trend"
            if rounds[-1] > 1
            else "one round, so that a drift of the clocks between cases would look like a difference"
        )
        found.append(
            f"plain: each case between CUDA events without a profiler, {_range(each)} measurements in {turns}. The "
            f"interval of the median has a confidence of {confidence(study)}."
        )
    under = [
        ("nsys", sum(case.nsys is not None for case in study.measured), "kernel times of the same iterations, traced"),
        ("ncu", sum(bool(case.kernels) for case in study.measured), "counters of one launch of each kernel, replayed"),
    ]
    found += [f"{tool}: {what}; {n} of {count(len(study.measured), 'case')}." for tool, n, what in under]
    checked = [case.relative_error for case in study.measured if case.relative_error is not None]
    if checked:
        found.append(
            f"Results: {count(len(checked), 'case')} compared with a float32 reference, the largest relative error "
            f"{max(checked):.1e}."
        )
    if settings:
        found.append(
            "Settings: "
            + ", ".join(f"{name} {_setting(item)}" for name, item in settings.items() if _worth_showing(name, item))
            + "."
        )
    return found


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
        return (Text(("The driver's clocks were not recorded.",)),)
    blocks: list[Text | Table | Caution] = [
        Table(View((Column("what", "what"), Column("before", "before"), Column("after", "after")), rows))
    ]
    control = study.info.settings.get("clock_control")
    if control is not None:
        blocks.append(Text((f"ncu's clock control: {control}; the plain times ran at whatever the GPU chose.",)))
    others = [state.get("other_processes") for state in states.values() if isinstance(state, dict)]
    if any(others):
        blocks.append(Caution("Something else was on the GPU before or after: times may have been disturbed."))
    return tuple(blocks)


def _state(state: object, name: str) -> float | int | None:
    found = state.get(name) if isinstance(state, dict) else None
    return found if isinstance(found, int | float) else None


def steadiness(study: Study) -> list[str]:
    """How wide the intervals are, and how far a case's rounds lie apart."""
    widths = [half_width(case) for case in study.measured]
    if not widths:
        return ["No case has a time."]
    widest = max(study.measured, key=half_width)
    drifts = [(case, drift(case)) for case in study.measured if case.plain and len(case.plain.round_medians_us) > 1]
    lines = [
        f"Half of the interval of a case's median is {spread(widths, '.1%')} of it; the widest is at "
        f"{label(study, widest)}."
    ]
    if drifts:
        moved = [item for item in drifts if item[1] >= DRIFT]
        worst = max(drifts, key=lambda item: item[1])
        lines.append(
            f"The slowest and the fastest round of a case are {spread([part for _, part in drifts], '.1%')} of its "
            f"time apart; {DRIFT:.0%} or more in {len(moved)} of {len(drifts)} cases, most at {label(study, worst[0])} "
            f"({worst[1]:.1%})."
        )
        lines += [words for words in [levels.sentence(study)] if words]
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
        return "Whether the GPU drifted cannot be told."
    slower = sum(move > 0 for move in moves)
    return (
        f"From the first round to the last the median case moved by {median(moves):+.2%}; {slower} of {len(moves)} "
        "became slower (half of them would by chance)."
    )


def _means(study: Study) -> list[str]:
    found = [METHOD]
    pairs = [(case, case.plain, case.nsys) for case in study.measured if case.nsys]
    gaps = [(plain.median_us - nsys.median_us, case) for case, plain, nsys in pairs if plain and nsys]
    parts = [1 - nsys.median_us / plain.median_us for _, plain, nsys in pairs if plain and nsys]
    if gaps:
        (least, short), (most, long) = (choose(gaps, key=lambda item: item[0]) for choose in (min, max))
        found.append(
            f"Plain time less kernel time under nsys is in the median {number(median([us for us, _ in gaps]))} µs, "
            f"{median(parts):.1%} of the plain time: events and the gaps between kernels are in the plain time, which "
            f"matters for cases of a few microseconds. It is {number(least)} µs at {label(study, short)} and "
            f"{number(most)} µs at {label(study, long)}: the two are different measurements, and differ as rounds do."
        )
    ratios = [case.ncu_us / case.nsys.median_us for case in study.measured if case.nsys and case.ncu_us]
    if ratios:
        found.append(
            f"ncu's time is {spread(ratios)} times nsys's: it flushes the caches (cache control "
            f"{study.info.settings.get('cache_control', 'not recorded')}) and replays. No sentence here compares ncu's "
            "time with a plain one; shares of a roof and stalls are ncu's, speed-ups are plain."
        )
    if l2 := study.l2_bytes:
        warm = [case for case in study.measured if 0 < case.bytes_read + case.bytes_written <= l2]
        above = [case for case in study.measured if (case.gb_per_s_roof_share or 0) > 1]
        found.append(
            f"Iterations follow each other on the same data: in {count(len(warm), 'case')} all of it fits in the L2 "
            f"cache of {bytes_(l2)}, so their plain times can be those of a warm cache; {count(len(above), 'case')} "
            f"{'moves its' if len(above) == 1 else 'move their'} least bytes faster than DRAM's peak. A server that "
            "does other work in between sees colder caches."
        )
    return found
