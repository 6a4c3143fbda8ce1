"""What the page shows of a launch: why, source, roofline, stalls, occupancy, counters."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fiprof.analysis import checks, hotspots, instructions
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.instructions import Listing
from fiprof.analysis.occupancy import findings as occupancy_findings
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.roofline import Basis, LaunchRoofline
from fiprof.analysis.sass import brief, parse
from fiprof.analysis.stalls import LaunchStalls, disagreements, state
from fiprof.analysis.stalls import findings as stall_findings
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.errors import FiprofError
from fiprof.model.arrays import Columns, Kinds, arrow, coded, floats, numbers
from fiprof.model.case_quantities import work_factor
from fiprof.model.finding import Finding, join, say, words_of
from fiprof.model.quantities import QUANTITIES, quantity
from fiprof.model.run import Run
from fiprof.model.selection import by_key
from fiprof.model.spans import split
from fiprof.model.work import work_rate, work_share
from fiprof.reports import verdict_words as words
from fiprof.reports.columns import times
from fiprof.reports.run_report.ink import Ink, shortened, significant, text_block
from fiprof.reports.view import Column, View
from fiprof.text import escape_control

MOST_SOURCES, MOST_INSTRUCTIONS = 24, 60_000  # launches whose instructions are in the page, and all of these together
MOST_RAW = 16  # launches whose every counter is in the page, by ncu's names; of others those that fiprof reads
SCATTERED = 1.05  # sectors a request over the ideal ones, from which they are told
SMALLEST_STALL, SMALLEST_MEDIAN = 0.002, 0.01  # share of a reason that is shown, of the launch and as the run's median
LEAST_FOLLOWED = 0.0005  # of the samples, at an instruction whose cause is searched
JUMPS = ("BRA", "JMP", "BSSY", "CALL", "WARPSYNC")
EVIDENCE = (Column("what", "evidence"), Column("value", "value"), Column("limit", "compared with"))
STALLS = (
    Column("reason", "reason"),
    Column("weight", "share of the warps' time", bar=True),
    Column("share", "share", spec=".1%"),
    Column("median", "run's median", spec=".1%", meaning="Over the run's launches: the line in the bar."),
    Column("warps", "warps an issue", spec=".2f"),
    Column("sampled", "sampled", spec=".1%"),
)
LIMITS = (
    Column("resource", "resource"),
    Column("blocks", "blocks it allows", spec=".3g", meaning="Blocks of a multiprocessor by it alone."),
    Column("most", "at most", spec=".3g"),
    Column("occupancy_pct", "occupancy", "%", ".0f"),
    Column("binds", "limits"),
)
MEMORIES = (
    Column("memory", "memory"),
    Column("achieved", "achieved", "GB/s", ",.0f"),
    Column("roof", "roof", "GB/s", ",.0f"),
    Column("share", "share", spec=".0%"),
    Column("intensity", "FLOP/byte", spec=".4g"),
)


def details(measured: Analyses, groups: Sequence[Group], ink: Ink) -> dict[str, Any]:
    """Launch -> its panes, for the groups' launches; under ``keys`` what the counters are."""
    run = measured.run
    sources = _sources(run, [group.shown.launch for group in groups])
    raw_names, raw = _raw(run, [group.shown.launch for group in groups[:MOST_RAW]])
    mixes = measured.stall_mixes
    shares = by_key((stall.reason, stall.weight) for mix in mixes.values() for stall in mix.stalls)
    medians = {reason: median([*found, *[0.0] * (len(mixes) - len(found))]) for reason, found in shares.items()}
    launches = {}
    for group in groups:
        launch = group.shown
        ink.section = f"launch-{launch.launch}"
        verdict, counters = measured.judged.get(launch.launch), []
        for place, each in enumerate(QUANTITIES.values()):
            if (number := launch.traced(each)) is not None:
                # The page puts "ncu, launch N" before the formula.
                ink.numbers.append((ink.section, text := str(number), number))
                counters.append([place, significant(number.value), text, number.source.formula])
        mix, roof = mixes.get(launch.launch), measured.rooflines.get(launch.launch)
        shown = {
            "name": launch.kernel_full,
            "grid": launch.grid,
            "block": launch.block,
            "case": launch.label,
            "alike": group.count,
            "times": times(launch),
            "why": list(_why(measured, verdict)) if verdict else [],
            "stalls": _stalls(mix, medians) if mix else None,
            "roof": _roof(roof, group) if roof and roof.memories else None,
            "occupancy": _occupancy(group),
        }
        asis = {"counters": counters, "raw": raw.get(launch.launch, []), "source": sources["of"].get(launch.launch)}
        launches[str(launch.launch)] = ink.json(shown) | asis
    keys = [[each.key, each.meaning] for each in QUANTITIES.values()]
    return {"launches": launches, "keys": keys, "raw": raw_names, "code": sources["code"]}


def _why(measured: Analyses, verdict: LaunchVerdict) -> Iterator[View]:
    """Reason, steps, confidence, evidence, and what ncu's rules say."""
    far, runner_up = words.distance(verdict), words.runner_up(verdict)
    yield text_block(
        join(" · ", (words.short_title(verdict), far)),
        words.reason(verdict),
        *([f"Runner-up: {runner_up}"] if runner_up else []),
    )
    if verdict.steps:
        steps = [say("{n}. {step}", n=n, step=words.step(step)) for n, step in enumerate(verdict.steps, 1)]
        yield View(title="What to do next", summary=tuple(steps))
    yield text_block(say("Confidence {confidence}", confidence=words.confidence(verdict)))
    evidence = [*verdict.evidence, *(shown for cause in verdict.causes for shown in cause.evidence)]
    used = [item.comparison for item in verdict.resources if item.comparison]
    compared = {(each.quantity, each.of) for each in evidence}
    rows = tuple(
        (words.what(of), of.number, ", ".join(words.limits(of)))
        for of in (*evidence, *(each for each in used if (each.quantity, each.of) not in compared))
    )
    failed = [check.finding for check in checks.failed(measured.run) if check.launch == verdict.launch]
    notes: list[Finding | str] = [*verdict.notes, *failed]
    listing = instructions.by_launch(measured.run).get(verdict.launch)
    for kind, families in instructions.ACCESSES.items():
        ideal = listing.ideal_sectors(*families) if listing else None
        sectors = verdict.row.traced(QUANTITIES[f"global_{kind}_sectors_per_request"])
        if ideal is not None and sectors is not None and sectors.value > ideal[1] * SCATTERED:
            template = "global {kind} touch {sectors} sectors a request, ideal {ideal:.0f}"
            notes.append(say(template, kind=kind, sectors=sectors, ideal=ideal[1]))
    if (case := measured.run.case(verdict.case)) and (factor := work_factor(measured.run, case)):
        notes.append(say("Counted work over what the algorithm needs: {factor}", factor=factor))
    yield View(EVIDENCE, rows, title="Evidence", notes=tuple(notes))
    if verdict.rules:
        title = f"What ncu's rules say ({len(verdict.rules)})"
        yield View(title=title, notes=tuple(map(words.rule, verdict.rules)), folded=True)


def _stalls(mix: LaunchStalls, medians: Mapping[str, float]) -> View:
    longest = max(0.01, *(stall.weight for stall in mix.stalls))
    rows = []
    for stall in mix.stalls:
        usual = medians[stall.reason]
        if max(stall.weight, stall.sampled_share or 0.0) >= SMALLEST_STALL or usual >= SMALLEST_MEDIAN:
            name, bar = f"{stall.reason}: {state(stall.reason).short}", (stall.weight / longest, usual / longest)
            share = mix.traced(stall) or stall.weight
            rows.append((name, bar, share, usual, stall.warps_per_issue, stall.sampled_share))
    return View(STALLS, tuple(rows), summary=stall_findings(mix), notes=disagreements(mix))  # type: ignore[arg-type]


def _roof(item: LaunchRoofline, group: Group) -> dict[str, Any]:
    """What the roofline is drawn from, and its table."""
    summary, notes = [], [words_of(item.remark)] if item.remark else []
    if item.share is not None:
        by = ", by the cost model's operations" if item.basis is Basis.MODEL else ""
        summary.append(f"{item.share:.0%} of what the {item.roof} roof allows{by}.")
    if item.work is not None and item.basis is Basis.COUNTED:
        kind = item.work.kind
        rate, share = group.shown.traced(work_rate(kind)), group.shown.traced(work_share(kind))
        if rate is not None and share is not None:
            template = "{kind} work runs at {rate}, {share} of its roof."
            notes.insert(0, say(template, kind=kind, rate=rate, share=share))
    rows = tuple(
        (each.level, each.bytes_per_second / 1e9, each.peak_bytes_per_second / 1e9, each.share, each.flop_per_byte)
        for each in item.memories
    )
    return {
        "roof": item.roof,
        "work": item.work and (item.work.kind, item.work.ops_per_second, item.work.peak_ops_per_second),
        "memories": [(each.level, each.peak_bytes_per_second, each.flop_per_byte) for each in item.memories],
        "table": View(MEMORIES, rows, summary=tuple(summary), notes=tuple(notes)),
    }


def _occupancy(group: Group) -> dict[str, Any] | None:
    achieved = group.shown.traced(quantity("achieved_occupancy_pct"), spec=".0f")
    possible = group.shown.traced(quantity("theoretical_occupancy_pct"), spec=".0f")
    if achieved is None:
        return None
    limits = occupancy(group.shown)
    of = say(" of a possible {possible}", possible=possible) if possible else ""
    first = say("Achieved {achieved}{of}.", achieved=achieved, of=of)
    summary: list[Finding | str] = [first, *occupancy_findings(limits)]
    if (waves := limits.waves) is not None:
        loss = f"a partial last wave costs at most {waves.loss_share or 0:.0%} of the time"
        summary.append(f"{waves.waves:.2f} waves of {waves.wave_blocks:,} blocks; {loss}.")
    each = limits.limits.values()
    rows = tuple((words_of(of.resource), of.blocks, of.most_blocks, of.occupancy_pct, of.binds) for of in each)
    bar = {"b": achieved.value / 100, "m": possible.value / 100 if possible else None}
    return {"bar": bar, "table": View(LIMITS, rows, summary=tuple(summary))}


def _raw(run: Run, launches: Sequence[int]) -> tuple[list[list[str]], dict[int, list[tuple[int, Any]]]]:
    """ncu's own metrics of some launches: their names and units once, and of each launch place and value."""
    if not run.has("metrics") or not launches:
        return [], {}
    table = run.table("metrics", ["launch", "metric", "unit", "value", "text"])
    table = table.filter(pc.is_in(table["launch"], value_set=arrow(np.array(launches, np.int32))))
    value, (texts, text) = floats(table["value"]), coded(table["text"])
    filled, kinds = np.flatnonzero(np.isfinite(value) | (text < len(texts) - 1)), Kinds()
    place, value = kinds.of(table.select(["metric", "unit"]), filled), value[filled]
    whole = (np.abs(value) < 1e7) & (value == np.trunc(value))
    shown = np.where(whole, value, 0).astype(np.int64).astype(object)
    apart = np.flatnonzero(~whole & np.isfinite(value))
    for at, each in zip(apart.tolist(), shortened(value[apart].tolist()), strict=True):
        shown[at] = each
    for at in np.flatnonzero(~np.isfinite(value)).tolist():
        shown[at] = escape_control(texts[text[filled[at]]][:200])
    of = split(numbers(table["launch"])[filled])
    values = {each: list(zip(place[rows].tolist(), shown[rows].tolist(), strict=True)) for each, rows in of}
    return [_named(*key) for key in kinds.numbers], values


@functools.lru_cache(1 << 13)  # runs have metrics of the same names
def _named(*name_unit: str | None) -> list[str]:
    return [escape_control(each or "") for each in name_unit]


def _sources(run: Run, launches: Sequence[int]) -> dict[str, Any]:
    """The instructions of launches: each kernel's text once, and what was sampled at each."""
    sources: dict[str, Any] = {"code": [], "of": {}}
    if not run.has("hotspots"):
        return sources
    try:
        listed = instructions.by_launch(run)
    except FiprofError:
        return sources
    places: dict[tuple[str, ...], int] = {}
    room = MOST_INSTRUCTIONS
    for launch in launches[:MOST_SOURCES]:
        listing = listed.get(launch)
        if listing is None or not listing.total or len(listing.code.lines) > room:
            continue
        code, room = listing.code, room - len(listing.code.lines)
        shown = tuple(escape_control(line[: hotspots.LONGEST_SASS]) for line in code.listing)
        if shown not in places:
            places[shown] = len(places)
            step = code.offsets[1] - code.offsets[0] if len(code.offsets) > 1 else 16
            regular = all(offset == place * step for place, offset in enumerate(code.offsets))
            at = {offset: place for place, offset in enumerate(code.offsets)}
            jumps = {n: parsed.target for n, parsed in enumerate(map(parse, code.listing)) if parsed.opcode in JUMPS}
            sources["code"].append({
                "lines": "\n".join(shown),
                "offsets": step if regular else list(code.offsets),
                "jumps": {place: at[target] for place, target in jumps.items() if target in at},
            })  # fmt: skip
        sources["of"][launch] = {"code": places[shown], **_samples(listing)}
    return sources


def _samples(listing: Listing) -> dict[str, Any]:
    columns = Columns(listing.rows)
    reasons = [reason or "" for reason in listing.reasons]
    reason_names = sorted(set(filter(None, reasons)))
    waits: dict[int, int] = {}
    for place, samples in enumerate(listing.samples):
        if samples >= max(LEAST_FOLLOWED * listing.total, 1) and reasons[place]:
            cause = listing.code.waits_for(place, reasons[place])
            if cause is not None:
                waits[place] = cause
    files = sorted({each for each in columns["source_file"] if each})
    return {
        "total": listing.total,
        "samples": listing.samples,
        "reasons": reason_names,
        "reason": [reason_names.index(reason) + 1 if reason else 0 for reason in reasons],
        "executed": [count or 0 for count in columns["executed"]],
        "sectors": [count or 0 for count in columns["sectors"]],
        "waits": waits,
        "causes": {cause: escape_control(brief(listing.code.shown(cause))) for cause in waits.values()},
        "files": [escape_control(each.replace("\\", "/").rpartition("/")[2]) for each in files],
        "lines": [
            [files.index(file) if file else -1, line or 0]
            for file, line in zip(columns["source_file"], columns["source_line"], strict=True)
            if files
        ],
    }
