"""What the page shows of a launch: why, source, roofline, stalls, occupancy, counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from fiprof.analysis import checks, hotspots, instructions
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.instructions import Listing
from fiprof.analysis.occupancy import findings as occupancy_findings
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.reasons import state
from fiprof.analysis.roofline import Basis, LaunchRoofline
from fiprof.analysis.sass import brief, parse
from fiprof.analysis.stalls import LaunchStalls, disagreements
from fiprof.analysis.stalls import findings as stall_findings
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import work_factor
from fiprof.model.quantities import QUANTITIES, metric
from fiprof.model.run import Run
from fiprof.model.wording import worded
from fiprof.model.work import work_rate, work_share
from fiprof.reports import verdict_words as words
from fiprof.reports.run_report.ink import Ink, significant, texts
from fiprof.reports.run_report.rows import gain
from fiprof.reports.view import Column, View
from fiprof.text import escape_control

MOST_SOURCES, MOST_INSTRUCTIONS = 24, 60_000
"""Launches whose instructions are in the page, and all of these together."""
MOST_RAW = 16
"""Launches whose every counter is in the page, by ncu's names; of others those that fiprof reads."""
SCATTERED = 1.05
"""Sectors a request over the ideal ones, from which they are told."""
LEAST_FOLLOWED = 0.0005
"""Of the samples, at an instruction whose cause is searched."""
JUMPS = ("BRA", "JMP", "BSSY", "CALL", "WARPSYNC")

_EVIDENCE = (
    Column("what", "evidence"), Column("value", "value"), Column("limit", "compared with"),
)  # fmt: skip
_LIMITS = (
    Column("resource", "resource"),
    Column("blocks", "blocks it allows", spec=".3g", meaning="Blocks of a multiprocessor by it alone."),
    Column("most", "at most", spec=".3g"),
    Column("occupancy_pct", "occupancy", "%", ".0f"),
    Column("binds", "limits"),
)  # fmt: skip


def details(measured: Analyses, groups: Sequence[Group], ink: Ink) -> dict[str, Any]:
    """Launch -> its panes, for the groups' launches; under ``keys`` what the counters are. Raises FiprofError."""
    run = measured.run
    sources = _sources(run, [group.launch for group in groups])
    raw = _raw(run, [group.launch for group in groups[:MOST_RAW]])
    quantities = list(QUANTITIES.values())
    medians = _medians(list(measured.stall_mixes.values()))
    found = {str(group.launch): _details(measured, group, ink, quantities, sources, raw) for group in groups}
    reasons = sorted({reason for launch in found.values() for reason, *_ in launch["stalls"]})
    meanings = {reason: [f"warps {state(reason).meaning}", state(reason).short] for reason in reasons}
    return {
        "launches": found,
        "keys": [[each.key, each.unit, each.spec, each.meaning] for each in quantities],
        "raw": raw["names"],
        "reasons": meanings,
        "medians": medians,
        "code": sources["code"],
    }


def _details(
    measured: Analyses, group: Group, ink: Ink, quantities: Sequence[Any], sources: dict[str, Any], raw: dict[str, Any]
) -> dict[str, Any]:
    row, verdict = group.median, measured.verdicts.of(group.launch)
    ink.section = f"launch-{group.launch}"
    mix, roof = measured.stall_mixes.get(group.launch), measured.rooflines.get(group.launch)
    counters = []
    for place, quantity in enumerate(quantities):
        number = row.traced(quantity)
        if number is not None:
            # The page puts «ncu, launch N» before the formula.
            ink.number(number)
            counters.append([place, significant(number.value), str(number), number.source.formula])
    return {
        "name": escape_control(group.kernel_full),
        "grid": group.grid,
        "block": group.block,
        "case": escape_control(group.label),
        "launches": [each.launch for each in group.launches],
        "why": _why(measured, verdict, ink) if verdict else None,
        "stalls": list(_stalls(mix, ink)) if mix else [],
        "stall_texts": texts(ink, map(worded, (*stall_findings(mix), *disagreements(mix)))) if mix else [],
        "roof": _roof(roof, group, ink) if roof else None,
        "occupancy": _occupancy(group, ink),
        "counters": counters,
        "raw": raw["values"].get(group.launch, []),
        "source": sources["of"].get(group.launch),
    }  # fmt: skip


def _why(measured: Analyses, verdict: LaunchVerdict, ink: Ink) -> dict[str, Any]:
    evidence = (
        *verdict.evidence,
        *(shown for cause in verdict.causes for shown in cause.evidence),
        *(item.comparison for item in verdict.resources if item.comparison and item.comparison not in verdict.evidence),
    )
    rows = tuple(
        (words.what(of.quantity.key, of.of), of.number, ", ".join(filter(None, (words.limit(of), words.origin(of)))))
        for of in evidence
    )
    case = measured.run.case(verdict.case)
    factor = work_factor(measured.run, case) if case else None
    marks = [check.finding for check in checks.failed(measured.run) if check.launch == verdict.launch]
    listing = instructions.by_launch(measured.run).get(verdict.launch)
    accesses = []
    for kind in ("loads", "stores"):
        ideal = listing.ideal_sectors(*instructions.ACCESSES[kind]) if listing else None
        sectors = (
            verdict.row.traced(QUANTITIES[key]) if (key := f"global_{kind}_sectors_per_request") in QUANTITIES else None
        )
        if ideal is not None and sectors is not None and sectors.value > ideal[1] * SCATTERED:
            accesses.append(f"global {kind} touch {sectors} sectors a request, ideal {ideal[1]:.0f}")
    return {
        "said": texts(ink, (words.reason(verdict), words.runner_up(verdict))),
        "confidence": ink.text(words.confidence(verdict)),
        "limit": [escape_control(words.short_title(verdict)), ink.text(words.distance(verdict))],
        "steps": [[ink.text(words.step(step)), ink.text(gain(step))] for step in verdict.steps],
        "evidence": ink.view(View(_EVIDENCE, rows)),
        "rules": texts(ink, map(words.rule, verdict.rules)),
        "notes": texts(ink, (*map(worded, (*verdict.notes, *marks)), *accesses)),
        "factor": None if factor is None else ink.text(factor),
    }  # fmt: skip


# Stalls


def _stalls(mix: LaunchStalls, ink: Ink) -> Iterator[list[Any]]:
    """Reason, share of the warps' time, place of its source, warps per issue, share of the samples."""
    for stall in mix.stalls:
        traced = mix.traced(stall)
        yield [
            stall.reason, significant(stall.weight), -1 if traced is None else ink.number(traced),
            stall.warps_per_issue and significant(stall.warps_per_issue),
            stall.sampled_share and significant(stall.sampled_share),
        ]  # fmt: skip


def _medians(mixes: Sequence[LaunchStalls]) -> dict[str, float | None]:
    """Reason -> its median share over the run's launches."""
    shares: dict[str, list[float]] = {}
    for mix in mixes:
        for stall in mix.stalls:
            shares.setdefault(stall.reason, []).append(stall.weight)
    return {
        reason: significant(median([*found, *[0.0] * (len(mixes) - len(found))])) for reason, found in shares.items()
    }


# Roofline and occupancy


def _roof(item: LaunchRoofline, group: Group, ink: Ink) -> dict[str, Any]:
    said = [worded(item.remark)] if item.remark else []
    if item.work is not None and item.basis == Basis.COUNTED:
        rate, share = group.median.traced(work_rate(item.work.kind)), group.median.traced(work_share(item.work.kind))
        if rate is not None and share is not None:
            said.insert(0, worded(_sentence(item.work.kind, rate, share)))
    return {
        "roof": item.roof,
        "share": item.share,
        "basis": str(item.basis),
        "work": item.work and [item.work.kind, item.work.ops_per_second, item.work.peak_ops_per_second],
        "memories": [
            [memory.level, memory.bytes_per_second, memory.peak_bytes_per_second, memory.flop_per_byte]
            for memory in item.memories
        ],
        "model": item.model_flop_per_byte,
        "said": texts(ink, said),
    }  # fmt: skip


def _sentence(kind: str, rate: Any, share: Any) -> str:
    from fiprof.model.wording import say

    return say("{kind} work runs at {rate}, {share} of its roof.", kind=kind, rate=rate, share=share)


def _occupancy(group: Group, ink: Ink) -> dict[str, Any]:
    found = occupancy(group.median)
    rows = tuple(
        (worded(each.resource), each.blocks, each.most_blocks, each.occupancy_pct, each.binds) for each in found.limits
    )
    of = partial(group.median.traced, spec=".0f")
    achieved, possible = of(metric("achieved_occupancy_pct")), of(metric("theoretical_occupancy_pct"))
    waves = found.waves
    return {
        "achieved": achieved and [achieved.value, ink.number(achieved)],
        "possible": possible and [possible.value, ink.number(possible)],
        "said": texts(ink, map(worded, occupancy_findings(found))),
        "limits": ink.view(View(_LIMITS, rows)),
        "waves": waves
        and f"{waves.waves:.2f} waves of {waves.wave_blocks:,} blocks; a partial last wave costs at most "
        f"{waves.loss_share or 0:.0%} of the time.",
    }  # fmt: skip


# Counters and source


def _raw(run: Run, launches: Sequence[int]) -> dict[str, Any]:
    """ncu's own metrics of some launches: their names and units once, values by place."""
    if not run.has("metrics") or not launches:
        return {"names": [], "values": {}}
    import pyarrow.compute as pc

    table = run.table("metrics", ["launch", "metric", "unit", "value", "text"])
    kept = table.filter(pc.is_in(table["launch"], value_set=pc.cast(pa_array(launches), table["launch"].type)))
    names: dict[tuple[str, str], int] = {}
    values: dict[int, list[list[Any]]] = {}
    for row in kept.to_pylist():
        value = row["value"] if row["value"] is not None else row["text"]
        if value is None:
            continue
        place = names.setdefault((escape_control(row["metric"] or ""), escape_control(row["unit"] or "")), len(names))
        shown = significant(value) if isinstance(value, int | float) else escape_control(str(value)[:200])
        values.setdefault(row["launch"], []).append([place, shown])
    return {"names": [list(name) for name in names], "values": values}


def pa_array(launches: Sequence[int]) -> Any:
    import pyarrow as pa

    return pa.array(launches, pa.int64())


def _sources(run: Run, launches: Sequence[int]) -> dict[str, Any]:
    """The instructions of launches: each kernel's text once, and what was sampled at each."""
    found: dict[str, Any] = {"code": [], "of": {}}
    if not run.has("hotspots"):
        return found
    try:
        table = run.table("hotspots", [*instructions.COLUMNS, "source_file", "source_line"])
        listed = dict(instructions.listings(table, set(launches[:MOST_SOURCES])))
    except FiprofError:
        return found
    places: dict[tuple[str, ...], int] = {}
    total = 0
    for launch in launches:
        listing = listed.get(launch)
        if listing is None or total + len(listing.code.lines) > MOST_INSTRUCTIONS or not listing.total:
            continue
        total += len(listing.code.lines)
        shown = tuple(
            escape_control(listing.code.shown(place)[: hotspots.LONGEST_SASS])
            for place in range(len(listing.code.lines))
        )
        if shown not in places:
            places[shown] = len(places)
            found["code"].append(
                {"lines": "\n".join(shown), "offsets": _steps(listing.code.offsets), "jumps": _jumps(listing)}
            )
        found["of"][launch] = {"code": places[shown], **_samples(listing)}
    return found


def _samples(listing: Listing) -> dict[str, Any]:
    rows, total = listing.rows, listing.total
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    reasons = [reason or "" for reason in columns["top_reason"]]
    known = sorted(set(filter(None, reasons)))
    waits, causes = {}, {}
    for place, samples in enumerate(listing.samples):
        if samples >= max(LEAST_FOLLOWED * total, 1) and reasons[place]:
            cause = listing.code.waits_for(place, reasons[place])
            if cause is not None:
                waits[place] = cause
                causes[cause] = brief(listing.code.shown(cause))
    files = sorted({each for each in columns.get("source_file", ()) if each})
    return {
        "total": total,
        "samples": listing.samples,
        "reasons": known,
        "reason": [known.index(reason) + 1 if reason else 0 for reason in reasons],
        "executed": [count or 0 for count in columns.get("executed", ())],
        "sectors": [count or 0 for count in columns.get("sectors", ())],
        "waits": waits,
        "causes": {place: escape_control(text) for place, text in causes.items()},
        "files": [escape_control(each.replace("\\", "/").rpartition("/")[2]) for each in files],
        "lines": [
            [files.index(file) if file else -1, line or 0]
            for file, line in zip(columns["source_file"], columns["source_line"], strict=True)
            if files
        ],
    }  # fmt: skip


def _steps(offsets: Sequence[int]) -> int | list[int]:
    """Offsets, or their step where all have the same."""
    step = offsets[1] - offsets[0] if len(offsets) > 1 else 16
    return step if all(at == place * step for place, at in enumerate(offsets)) else list(offsets)


def _jumps(listing: Listing) -> dict[int, int]:
    """Place of a jump -> place of its target, as far as that is in the code."""
    code, found = listing.code, {}
    at = {offset: place for place, offset in enumerate(code.offsets)}
    for place in range(len(code.lines)):
        shown = parse(code.shown(place))
        if shown.opcode in JUMPS and shown.target in at:
            found[place] = at[shown.target]
    return found
