"""``kernel-dev-guide``: how each kernel is called, works and is chosen, its code and parameters; then how to work."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fiprof.analysis import scaling
from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.shapes import worth_a_look
from fiprof.analysis.study import Pair, Study, Value, is_number, main_kernel, matches, pairs_of, size, top_stalls
from fiprof.model import knowledge, packs
from fiprof.model.results import CaseResult, Kernel
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages.page import Block, Caution, Code, Page, PageLink, Section, Table, Text, bullets
from fiprof.reports.study_pages.analysis import is_baseline
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.kernel_findings import occupancy
from fiprof.reports.study_pages.names import cite, short, short_pair, title, value_word
from fiprof.reports.study_pages.numbers import spread
from fiprof.reports.study_pages.scaling import unit_of
from fiprof.reports.study_pages.tables import stall_words
from fiprof.reports.view import Column, Narrow, View
from fiprof.reports.words import entry, phrase
from fiprof.text import short_kernel

TOP_REASONS = 3
"""Warp states of a kernel that are explained."""


def page(study: Study) -> Page:
    """A section a kernel, then what holds for all of them."""
    own = [name for name in study.by_workload if not is_baseline(name)]
    sections = [_workload(study, name) for name in own]
    sections += packs.joined("guide_sections", study)
    sections += [section for section in (_states(study), _change(own), _checks(study, own)) if section]
    if len(own) < len(study.by_workload):
        others = tuple(_baseline(name) for name in study.by_workload if name not in own)
        sections.append(Section("baselines", "Appendix: baselines", (), others))
    every = [each for name in study.by_workload for each in effects(study, name)]
    if every:
        sections.append(
            Section("pairs", "Appendix: every pair", (Table(_pairs_view(study, every), "effects", appendix=True),))
        )
    return Page(
        f"{study.info.title or study.info.study}: guide for kernel developers", tuple(sections), facts=facts(study)
    )


def _workload(study: Study, workload: str) -> Section:
    about = knowledge.of_workload(workload)
    parts = {part.anchor: part for part in packs.joined("guide", study, workload)}
    known = about.algorithm if about and about.algorithm else (phrase("study_guide.own"),)
    sections = [
        *([parts.pop(f"{workload}-call")] if f"{workload}-call" in parts else []),
        Section(
            f"{workload}-algorithm",
            f"{workload}: how it works",
            (bullets(known), *(parts.pop(f"{workload}-drawings").blocks if f"{workload}-drawings" in parts else ())),
        ),
        *parts.values(),
        Section(f"{workload}-parameters", f"{workload}: parameters, and what each did", _parameters(study, workload)),
        *_stalls(study, workload),
    ]
    lead = Text((f"{title(workload)}. ", PageLink("Figures", f"analysis#{workload}")))
    return Section(workload, workload, (lead,), tuple(sections))


def _baseline(workload: str) -> Section:
    about = knowledge.of_workload(workload)
    lead = Text((f"{title(workload)}. ", PageLink("Figures", f"analysis#{workload}")))
    return Section(workload, workload, (lead, *([bullets(about.algorithm)] if about else [])))


# Parameters


@dataclass(frozen=True)
class Effect:
    """What one value of an option did against another, all else the same."""

    workload: str
    name: str
    change: str
    """``MHA 32/32 to GQA 32/8``."""
    pairs: tuple[tuple[Pair, Ratio], ...]
    """Cases after and before, and the time after over the time before; the largest effect first."""

    def counted(self, direction: Direction) -> int:
        """Pairs in which the time grew (MORE), shrank (LESS), or no difference is seen."""
        return sum(ratio.direction is direction for _, ratio in self.pairs)


def effects(study: Study, workload: str) -> list[Effect]:
    """Every option's values against its first one: cases that differ in this alone, by plain time."""
    found = []
    for name in study.options(workload):
        values = study.varied(workload)[name]
        for value in values[1:]:
            pairs = pairs_of(study, workload, name, value, values[0])
            ratios = [(pair, ratio) for pair in pairs if (ratio := of_cases(*pair)) is not None]
            if ratios:
                params = ratios[0][0][0].params
                words = [value_word(name, item, {**params, name: item}) for item in (values[0], value)]
                ordered = tuple(sorted(ratios, key=lambda item: -item[1].factor))
                found.append(Effect(workload, name, f"{words[0]} to {words[1]}", ordered))
    return found


def _parameters(study: Study, workload: str) -> tuple[Block, ...]:
    about = knowledge.of_workload(workload)
    varied = study.varied(workload)
    meanings = dict(about.parameters) if about else {}
    rows = [
        (name, meanings.get(name, "–"), _tried(study, workload, name), _slope(study, workload, name))
        for name in dict.fromkeys([*meanings, *varied])
    ]
    columns = (
        Column("parameter", "parameter"),
        Column("decides", "what it decides", wrap=True),
        Column("tried", "here", wrap=True),
        Column("slope", "time for one more"),
    )
    blocks: list[Block] = [Table(View(columns, tuple(rows)), f"parameters-{workload}")]
    if found := effects(study, workload):
        blocks.append(Table(_effects(study, found), f"effects-{workload}"))
    return tuple(blocks)


def _effects(study: Study, found: Sequence[Effect]) -> View:
    columns: list[Cell] = [
        (Column("change", "change"), lambda item: item.change),
        (Column("pairs", "pairs"), lambda item: len(item.pairs)),
        (Column("faster", "faster"), lambda item: item.counted(Direction.LESS)),
        (Column("slower", "slower"), lambda item: item.counted(Direction.MORE)),
        (Column("median", "time", "x, median", ".2f"), lambda item: median(ratio.value for _, ratio in item.pairs)),
        (Column("low", "from", "x", ".2f"), lambda item: min(ratio.value for _, ratio in item.pairs)),
        (Column("high", "to", "x", ".2f"), lambda item: max(ratio.value for _, ratio in item.pairs)),
        (
            Column("largest", "largest at"),
            lambda item: cite(study, item.pairs[0][0][0], short_pair(study, *item.pairs[0][0])),
        ),
    ]
    return filled(columns, found, title="What each change did to the time")


def _pairs_view(study: Study, found: Sequence[Effect]) -> View:
    """Every pair, the largest effects of each change first."""
    rows = [
        (effect.workload, effect.change, short_pair(study, *pair), ratio.value, ratio.low, ratio.high)
        for effect in found
        for pair, ratio in effect.pairs
    ]
    columns = (
        Column("kernel", "kernel"),
        Column("change", "change"),
        Column("cases", "at"),
        Column("ratio", "time", "x", ".3f"),
        Column("low", "from", "x", ".3f"),
        Column("high", "to", "x", ".3f"),
    )
    return View(columns, tuple(rows), title="Every pair")


def _tried(study: Study, workload: str, name: str) -> str:
    values = study.varied(workload).get(name) or tuple(
        dict.fromkeys(case.params[name] for case in study.of(workload) if name in case.params)
    )
    return (
        ", ".join(
            ("on" if each else "off") if isinstance(each, bool) else f"{each:,}" if is_number(each) else str(each)
            for each in values
        )
        or "–"
    )


def _slope(study: Study, workload: str, axis: str) -> str:
    """The slopes of the lines along an axis that hold."""
    growth = scaling.fits(study, workload, axis) if axis in study.axes(workload) else []
    holding = [(item, item.line) for item in growth if item.line is not None and item.line.holds]
    if not holding:
        return "–"
    unit, scale = unit_of(max((item for item, _ in holding), key=lambda item: item.xs[-1]))
    slopes = spread([line.slope_us.value * scale for _, line in holding])
    return phrase("study_guide.slope", slopes=slopes, unit=unit, holding=len(holding), fits=len(growth))


# Stalls


def _stalls(study: Study, workload: str) -> tuple[Section, ...]:
    """What the warps of each kernel wait for."""
    shown = _largest_by_kernel(study, workload)
    if not any(kernel.stalls for _, kernel in shown):
        return ()
    columns: list[Cell] = [
        (Column("kernel", "kernel", narrow=Narrow.KEEP), lambda item: short_kernel(item[1].kernel)),
        (Column("case", "case"), lambda item: cite(study, item[0], short(study, item[0]))),
        (Column("states", "warps"), lambda item: stall_words(item[1])),
        (Column("occupancy", "occupancy", "%"), lambda item: occupancy(item[1])),
    ]
    table = Table(filled(columns, shown), f"stalls-{workload}")
    return (Section(f"{workload}-stalls", f"{workload}: what its warps wait for", (table,)),)


def _largest_by_kernel(study: Study, workload: str) -> list[tuple[CaseResult, Kernel]]:
    """Each kernel of a workload, with the largest case that ran it; one that nothing solves faster where there is."""
    kept = {case.id for case in worth_a_look(study)}
    ordered = sorted(study.of(workload), key=lambda case: (case.id in kept, size(case)))
    return list({kernel.kernel: (case, kernel) for case in ordered for kernel in case.kernels}.values())


def _states(study: Study) -> Section | None:
    """The states that are named above: what they are, and what would change them."""
    reasons: dict[str, float] = {}
    for workload in study.by_workload:
        for _, kernel in _largest_by_kernel(study, workload):
            for name, share in top_stalls(kernel, TOP_REASONS):
                reasons[name] = max(share, reasons.get(name, 0.0))
    if not reasons:
        return None
    columns: list[Cell] = [
        (Column("state", "state"), lambda item: str(item[0])),
        (Column("share", "up to", "%", ".0f"), lambda item: 100 * item[1]),
        (Column("is", "warps", wrap=True), lambda item: entry("stall_meaning", item[0])),
        (Column("helps", "what helps", wrap=True), lambda item: _helps(item[0])),
    ]
    found: list[tuple[str, float]] = sorted(reasons.items(), key=lambda item: -item[1])
    view = filled(columns, found)
    return Section("states", "Warp states, and what changes them", (Table(view, "states-table"),))


def _helps(reason: str) -> str:
    words = entry("stall_helps", reason)
    return words if kind_of(reason) == ReasonKind.STALL else phrase("study_guide.no_stall", words=words)


# How to work


def _change(workloads: Sequence[str]) -> Section:
    """How to add a variant, and the loop of a change."""
    known = {name: about.variant for name in workloads if (about := knowledge.of_workload(name)) and about.variant}
    blocks: list[Block] = []
    for steps in dict.fromkeys(known.values()):
        blocks.append(Text((f"{', '.join(name for name in known if known[name] == steps)}:",)))
        blocks.append(bullets(steps))
    if len(known) < len(workloads):
        blocks.append(Text((phrase("study_guide.own_variant"),)))
    loop = bullets(phrase(f"study_loop.{step}") for step in ("before", "one", "after", "again"))
    return Section("variant", "How to change a kernel", (*blocks, Text((phrase("study_loop.title"),)), loop))


def _checks(study: Study, workloads: Sequence[str]) -> Section:
    """The commands that check and profile a kernel, and the cases to give them."""
    rows = []
    before: dict[str, None] = {}
    for workload in workloads:
        kept = [case for case in worth_a_look(study) if case.workload == workload] or list(study.of(workload))
        if not kept:
            continue
        case = max([case for case in kept if case.kernels] or kept, key=size)
        options = {name: case.params[name] for name in study.options(workload) if name in case.params}
        least = min((each for each in study.of(workload) if matches(each, options)), key=size)
        kernel = main_kernel(case)
        known = knowledge.of_workload(workload)
        before |= dict.fromkeys(known.before_profiling if known else ())
        words = _options(study, case)
        rows.append(
            f"# {workload}\nLARGE={shlex.quote(case.id)}\nSMALL={shlex.quote(least.id)}\n"
            f"OPTIONS={shlex.quote(f'--kernel {workload} {words}'.strip())}\n"
            f"KERNEL={shlex.quote(kernel.kernel if kernel else workload)}"
        )
    if not rows:
        return Section("checks", "Checks to run", (Caution(phrase("study_guide.no_case")),))
    commands = phrase("study_guide.commands", before="".join(f"{line}\n" for line in before)).strip()
    blocks = (
        Text((phrase("study_guide.cases"),)),
        Code("\n".join(rows)),
        Text((phrase("study_guide.then"),)),
        Code(commands),
    )
    return Section("checks", "Checks to run", blocks)


def _options(study: Study, case: CaseResult) -> str:
    named = study.varied(case.workload)
    return " ".join(
        f"--{name.replace('_', '-')} {_option_value(value)}" for name, value in case.params.items() if name in named
    )


def _option_value(value: Value) -> str:
    return shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))
