"""``kernel-dev-guide``: each kernel's algorithm, code, parameters and what they did, stalls, and how to change it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis import scaling
from fiprof.analysis.ratio import Ratio, of_cases
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.shapes import of_study, shapes, worth_a_look
from fiprof.analysis.study import (
    Pair,
    Study,
    Value,
    absence,
    is_number,
    main_kernel,
    matches,
    pairs_of,
    size,
    top_stalls,
)
from fiprof.model import knowledge, packs
from fiprof.model.results import CaseResult, Kernel
from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Page, PageLink, Section, Table, Text, bullets
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.kernel_findings import avoid_words, occupancy, taken, value_word
from fiprof.reports.study_pages.names import (
    absence_words,
    axis_name,
    cite,
    pair_label,
    short,
    short_pair,
    title,
)
from fiprof.reports.study_pages.numbers import faster_slower, ratio_words, spread
from fiprof.reports.study_pages.scaling import unit_of
from fiprof.reports.study_pages.tables import key
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import join_words

TOP_REASONS = 3
"""Warp states of a kernel that are explained."""

LOOP = (
    "Measure before: fiprof collect of the case that matters, twice, to see how far two runs differ.",
    "Change one thing; the runner compares with the float32 reference before it measures.",
    "Measure after with the same settings; believe a difference that is larger than that of the two.",
    "Look at stalls and roofline again: did what you meant to change change?",
)


def page(study: Study) -> Page:
    """A section a kernel."""
    sections = tuple(_workload(study, workload) for workload in study.by_workload)
    return Page(
        f"{study.info.title or study.info.study}: guide for kernel developers",
        (*sections, Section("loop", "The loop of a change", (bullets(LOOP),))),
        facts=facts(study),
    )


def _workload(study: Study, workload: str) -> Section:
    about = knowledge.of_workload(workload)
    algorithm = bullets(about.algorithm) if about and about.algorithm else Text((phrase("study_guide.own"),))
    variant = bullets(about.variant) if about and about.variant else Text((phrase("study_guide.own_variant"),))
    sections: dict[str, tuple[str, tuple[Block, ...]]] = {
        "algorithm": ("algorithm", (algorithm,)),
        "code": ("where its code lives", _code(study, workload)),
        "parameters": ("parameters, and what each did", _parameters(study, workload)),
        "stalls": ("what its warps wait for", _stalls(study, workload)),
        "variant": ("how to add a variant", (variant,)),
        "debug": ("how to debug and profile it", _debug(study, workload)),
    }
    return Section(
        workload,
        workload,
        (Text((f"{title(workload)}. Figures: ", PageLink("its analysis", f"analysis#{workload}"), ".")),),
        tuple(Section(f"{workload}-{key}", f"{workload}: {what}", blocks) for key, (what, blocks) in sections.items()),
    )


# Code


def _code(study: Study, workload: str) -> tuple[Block, ...]:
    names = list(dict.fromkeys(kernel.kernel for case in study.of(workload) for kernel in case.kernels))
    ran = (bullets([f"ran here: {join_words(names)}"]),) if names else ()
    return (*ran, *packs.joined("code", study, workload))


# Parameters


@dataclass(frozen=True)
class Effect:
    """What one value of an option did against another, all else the same."""

    change: str
    """``MHA 32/32 to GQA 32/8``."""
    pairs: tuple[tuple[Pair, Ratio], ...]
    """Cases after and before, and the time after over the time before."""


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
                found.append(Effect(f"{words[0]} to {words[1]}", tuple(ratios)))
    return found


def _effect_words(study: Study, effect: Effect) -> str:
    largest, ratio = max(effect.pairs, key=lambda item: item[1].factor)
    where = pair_label(study, *largest)
    return phrase(
        "study_guide.effect",
        change=effect.change,
        seen=faster_slower(ratio for _, ratio in effect.pairs),
        pairs=len(effect.pairs),
        spread=spread([item.value for _, item in effect.pairs]),
        ratio=ratio_words(ratio),
        where=f", at {where}" if where else "",
    )


def _pairs_view(study: Study, found: Sequence[Effect]) -> View:
    """Every pair, the largest effects of each change first."""
    rows = [
        (effect.change, short_pair(study, *pair), ratio.value, ratio.low, ratio.high)
        for effect in found
        for pair, ratio in sorted(effect.pairs, key=lambda item: -item[1].factor)
    ]
    columns = (
        Column("change", "change"),
        Column("cases", "at"),
        Column("ratio", "time after / before", spec=".3f"),
        Column("low", "from", spec=".3f"),
        Column("high", "to", spec=".3f"),
    )
    notes = tuple(filter(None, [key(study, found[0].pairs[0][0])]))
    return View(columns, tuple(rows), title="Every pair", notes=notes)


def _parameters(study: Study, workload: str) -> tuple[Block, ...]:
    about = knowledge.of_workload(workload)
    varied = study.varied(workload)
    meanings = dict(about.parameters) if about else {}
    lines = []
    for name in dict.fromkeys([*meanings, *varied]):
        values = varied.get(name)
        tried = (
            "varied here: " + ", ".join(_tried(value) for value in values)
            if values
            else f"not varied here{_only_value(study, workload, name)}"
        )
        lines.append(f"{name}: {meanings[name]}; {tried}." if name in meanings else f"{name}: {tried}.")
    blocks: list[Block] = [bullets(lines)]
    found = effects(study, workload)
    if found:
        blocks.append(Text((phrase("study_guide.effects"),)))
        blocks.append(bullets(_effect_words(study, item) for item in found))
        blocks.append(Table(_pairs_view(study, found), f"effects-{workload}", appendix=True, uncut=True))
    for axis in study.axes(workload):
        growth = scaling.fits(study, workload, axis)
        holding = [(item, item.line) for item in growth if item.line is not None and item.line.holds]
        if holding:
            unit, scale = unit_of(max((item for item, _ in holding), key=lambda item: item.xs[-1]))
            slopes = spread([line.slope_us.value * scale for _, line in holding])
            counts = {"holding": len(holding), "fits": len(growth)}
            words = phrase("study_guide.growth", axis=axis, slopes=slopes, unit=unit, name=axis_name(axis), **counts)
            blocks.append(Text((words, PageLink("fits", f"analysis#fits-{workload}-{axis}"), ".")))
    return tuple(blocks)


def _tried(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if is_number(value) else str(value)


def _only_value(study: Study, workload: str, name: str) -> str:
    values = list(dict.fromkeys(case.params[name] for case in study.of(workload) if name in case.params))
    return f" ({_tried(values[0])})" if len(values) == 1 else ""


# Stalls


def _stalls(study: Study, workload: str) -> tuple[Block, ...]:
    shown = _largest_by_kernel(study, workload)
    avoid = _avoid(study, workload)
    if not any(kernel.stalls for _, kernel in shown):
        if avoid:
            return avoid
        why = phrase("study_guide.no_states") if study.of(workload) else absence_words(absence(study, workload))
        return (Caution(f"Not measured: {why}."),)
    lines: list[Text] = []
    reasons: dict[str, float] = {}
    for case, kernel in shown:
        top = top_stalls(kernel, TOP_REASONS)
        for name, share in top:
            reasons[name] = max(share, reasons.get(name, 0.0))
        words = ", ".join(f"{name} {share:.0%}" for name, share in top) or "stalls not collected"
        held = f"; {occupancy(kernel)}" if occupancy(kernel) else ""
        lines.append(Text((f"{kernel.kernel}: {words}{held}; ", cite(study, case))))
    meanings = bullets(
        phrase(f"study_guide.{'stall' if kind_of(name) == ReasonKind.STALL else 'no_stall'}", reason=name, share=share)
        for name, share in sorted(reasons.items(), key=lambda item: -item[1])
    )
    about = Text(("What these states are, and what would change them:",))
    return (Text((phrase("study_guide.largest"),)), Bullets(tuple(lines)), *avoid, about, meanings)


def _avoid(study: Study, workload: str) -> tuple[Block, ...]:
    """A workload's options that others solve faster: at the largest size of each model shape, and all as a table."""
    faster = of_study(study)
    slower = [(case, faster[case.id]) for case in study.of(workload) if case.id in faster]
    if not slower:
        return ()
    largest = {case.id for shape in shapes(study) for case, _ in shape.avoid}
    rows = [
        (short(study, case), taken(case, found), found.factor.value, found.factor.low, found.factor.high, found.measure)
        for case, found in sorted(slower, key=lambda item: -item[1].factor.value)
    ]
    columns = (
        Column("case", "avoid"),
        Column("instead", "take"),
        Column("factor", "times as long", spec=".3f"),
        Column("low", "from", spec=".3f"),
        Column("high", "to", spec=".3f"),
        Column("measure", "time"),
    )
    notes = tuple(filter(None, [key(study, [slower[0][0]])]))
    view = View(columns, tuple(rows), title=phrase("study_guide.avoid"), notes=notes)
    lines = bullets(avoid_words(study, *item) for item in slower if item[0].id in largest)
    return lines, Table(view, f"avoid-{workload}", appendix=True)


def _largest_by_kernel(study: Study, workload: str) -> list[tuple[CaseResult, Kernel]]:
    """Each kernel of a workload, with the largest case that ran it and that nothing solves faster."""
    ordered = sorted((case for case in worth_a_look(study) if case.workload == workload), key=size)
    return list({kernel.kernel: (case, kernel) for case in ordered for kernel in case.kernels}.values())


# Commands


def _debug(study: Study, workload: str) -> tuple[Block, ...]:
    kept = [case for case in worth_a_look(study) if case.workload == workload] or list(study.of(workload))
    seen = [case for case in kept if case.kernels] or kept
    if not seen:
        return (Caution(f"No case to start from: {absence_words(absence(study, workload))}."),)
    case = max(seen, key=size)
    options = {name: case.params[name] for name in study.options(workload) if name in case.params}
    least = min((each for each in study.of(workload) if matches(each, options)), key=size)
    kernel = main_kernel(case)
    known = knowledge.of_workload(workload)
    named = study.varied(workload)
    words = "".join(
        f"--{name.replace('_', '-')} {_option_value(value)} " for name, value in case.params.items() if name in named
    )
    commands = phrase(
        "study_guide.commands",
        largest=shlex.quote(case.id),
        small=shlex.quote(least.id),
        before="".join(f"{line}\n" for line in known.before_profiling) if known else "",
        workload=workload,
        options=words,
        kernel=shlex.quote(kernel.kernel) if kernel else workload,
    )
    return (Text((phrase("study_guide.with"), cite(study, case), ":")), Code(commands.strip()))


def _option_value(value: Value) -> str:
    return shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))
