"""What a reader would want to be told, each with its evidence and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.check_rules import FLOPS_HIGH
from fiprof.analysis.expected import expected
from fiprof.analysis.occupancy import Waves, occupancy
from fiprof.analysis.thresholds import APART, SOME_WAITING
from fiprof.analysis.verdict.model import Kind
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.errors import FiprofError
from fiprof.model import knowledge
from fiprof.model.case_quantities import BUSY, NSYS, kernel_median, work_factor
from fiprof.model.provenance import TracedNumber, TracedText, more
from fiprof.model.quantities import DURATION
from fiprof.reports import verdict_words
from fiprof.reports.expected import NOT_COMPARED, SHOWN, cells, cited, faster_words, unlike_cells
from fiprof.reports.pages.page import Block, Observation, Section, Table, Text
from fiprof.reports.pages.traced import LONG_TABLE
from fiprof.reports.run_report import parameters
from fiprof.reports.run_report.story import Story, share_idle
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase, worded
from fiprof.text import short_kernel

LEAST_SHARE = 0.01
"""Of an iteration's kernel time, from which a second kernel is worth a word."""
MUCH_WORK = 1.25
"""Counted over needed operations from which they are worth a word."""
TAIL_LOSS = 0.05
"""Of the run time that a partial last wave may cost, likewise."""
SMALL_GRID = 0.5
"""Waves below which a grid is called small."""
MOST_KERNELS = 40
"""Second kernels that have a finding of their own: those with the largest shares."""
MOST_LINES = 8
"""Of evidence in a finding."""


def section(measured: Analyses, told: Story, found: Verdicts) -> Section:
    """The findings of a run. found: its verdicts.

    Raises FiprofError for a table that cannot be read.
    """
    blocks: list[Block] = [
        *parameters.findings(measured),
        *waiting(measured, told, found),
        *second_kernels(measured),
        *grids(measured),
        *extra_work(measured, found),
        *cold(measured),
    ]
    if not blocks:
        seen = measured.run.launches or measured.run.trace.cases
        blocks.append(Text((phrase(f"observations.{'nothing' if seen else 'unmeasured'}"),)))
    return Section("observations", "Observations", tuple(blocks), tuple(_expected(measured)))


# Time without kernels, and kernels beside the main one


def waiting(measured: Analyses, told: Story, found: Verdicts) -> Iterable[Observation]:
    """Cases in which the GPU waits for the host: by the loop without a profiler, else by the trace."""
    run, traced = measured.run, {}
    for part in sorted((phase.at for phase in told.measured), key=lambda part: part.busy):
        case = part.spans[0].case if part.spans else None
        if case and part.busy < 1 - SOME_WAITING.share:
            traced[case] = share_idle(part)
    plain = verdict_words.waiting(found)
    shares: list[tuple[str, TracedNumber | str]] = [(case.label, share) for case, share in plain]
    evidence = [
        phrase(
            f"finding_waiting.plain{'_traced' * (case.case in traced)}",
            label=case.label,
            share=share,
            busy=BUSY.traced(run, case.case) or "–",
            traced=traced.get(case.case),
        )
        for case, share in plain
    ]
    if not plain:
        shares = [(run.labels(case), share) for case, share in traced.items()]
        evidence = [phrase("finding_waiting.traced", label=label, share=share) for label, share in shares]
    if not shares:
        return
    others = phrase("finding_waiting.others", others=more(len(shares) - 1, "case")) if len(shares) > 1 else ""
    yield Observation(
        anchor="finding-waiting",
        observation=phrase("finding_waiting.observation", most=shares[0][1], label=shares[0][0], others=others),
        evidence=tuple(evidence[:MOST_LINES]),
        implication=phrase("finding_waiting.implication"),
        sure=phrase(f"finding_waiting.sure_{'plain' if plain else 'traced'}"),
    )


def second_kernels(measured: Analyses) -> Iterable[Observation]:
    """Kernels beside the one that takes most of an iteration."""
    run = measured.run
    shares: dict[str, list[tuple[str, TracedNumber, TracedNumber]]] = defaultdict(list)
    of_case: dict[str, list[str]] = defaultdict(list)
    for case, kernel in run.trace.kernels:
        of_case[case].append(kernel)
    for case, kernels in of_case.items():
        whole = NSYS.traced(run, case)
        times = {kernel: time for kernel in kernels if (time := kernel_median(run, case, kernel)) is not None}
        if whole is None or len(times) < 2:
            continue
        main = max(times, key=lambda kernel: times[kernel].value)
        for kernel, time in times.items():
            share = (time / whole).as_(".1%")
            if kernel != main and share.value >= LEAST_SHARE:
                shares[kernel].append((run.labels(case), share, time))
    for found in shares.values():
        found.sort(key=lambda item: -item[1].value)
    told = sorted(shares, key=lambda kernel: -shares[kernel][0][1].value)[:MOST_KERNELS]
    for kernel in [kernel for kernel in shares if kernel in told]:
        found = shares[kernel]
        label, share, _ = found[0]
        name, merge = short_kernel(kernel), "_merge" if knowledge.merges(kernel) else ""
        others = more(len(found) - 1, "case")
        yield Observation(
            anchor=f"finding-kernel-{parameters.slug(kernel)}",
            observation=phrase(
                "finding_kernel.observation",
                kernel=phrase("finding_kernel.merge", kernel=name) if merge else name,
                share=share,
                label=label,
                others=phrase("finding_kernel.others", share=found[-1][1], others=others) if len(found) > 1 else "",
            ),
            evidence=tuple(
                phrase("finding_kernel.evidence", label=label, time=time, share=share)
                for label, share, time in found[:MOST_LINES]
            ),
            implication=phrase(f"finding_kernel.implication{merge}"),
            sure=phrase("finding_kernel.sure"),
        )


# Grids, extra work, cold caches


def _named(group: Group) -> str:
    return f"{short_kernel(group.kernel)} · {group.label}"


def grids(measured: Analyses) -> Iterable[Observation]:
    """Grids that fill a small part of the GPU, and tails that cost time."""
    found = [(group, waves) for group in measured.longest if (waves := occupancy(group.median).waves) is not None]
    yield from _waves("small-grids", [pair for pair in found if pair[1].waves < SMALL_GRID])
    large = [pair for pair in found if pair[1].waves >= SMALL_GRID]
    yield from _waves("tail", [pair for pair in large if (pair[1].loss_share or 0.0) >= TAIL_LOSS])


def _waves(what: str, found: Sequence[tuple[Group, Waves]]) -> Iterable[Observation]:
    table = f"finding_{what.replace('-', '_')}"
    if found:
        others = phrase(f"{table}.others", count=len(found) - 1) if len(found) > 1 else ""
        yield Observation(
            anchor=f"finding-{what}",
            observation=phrase(f"{table}.observation", kernel=_named(found[0][0]), others=others),
            evidence=tuple(
                phrase(
                    f"{table}.evidence",
                    kernel=_named(group),
                    blocks=waves.last_blocks,
                    wave=waves.wave_blocks,
                    waves=waves.waves,
                    loss=waves.loss_share,
                )
                for group, waves in found[:MOST_LINES]
            ),
            implication=phrase(f"{table}.implication"),
            sure=phrase(f"{table}.sure"),
        )


def extra_work(measured: Analyses, verdicts: Verdicts) -> Iterable[Observation]:
    """Cases for which ncu counted many more operations than the algorithm needs: where that can cost time, or is very
    much."""
    found = []
    for case in measured.run.manifest.cases:
        factor = work_factor(measured.run, case)
        main = next((group for group in measured.longest if group.case == case.id), None)
        verdict = verdicts.of(main.launch) if main is not None else None
        costs = verdict is not None and verdict.kind in (Kind.COMPUTE, Kind.LATENCY)
        if factor is not None and factor.value >= (MUCH_WORK if costs else FLOPS_HIGH):
            bound = phrase("finding_extra_work.bound", verdict=verdict_words.title(verdict)) if verdict else ""
            found.append((factor, measured.run.labels(case.id), bound))
    if not found:
        return
    found.sort(key=lambda item: -item[0].value)
    most, label, _ = found[0]
    others = more(len(found) - 1, "case")
    rest = phrase("finding_extra_work.others", others=others, factor=found[-1][0]) if len(found) > 1 else ""
    yield Observation(
        anchor="finding-extra-work",
        observation=phrase("finding_extra_work.observation", label=label, factor=most, others=rest),
        evidence=tuple(
            phrase("finding_extra_work.evidence", label=label, factor=factor, bound=bound)
            for factor, label, bound in found[:MOST_LINES]
        ),
        implication=phrase("finding_extra_work.implication"),
        sure=phrase("finding_extra_work.sure"),
    )


def cold(measured: Analyses) -> Iterable[Observation]:
    """Kernels that ncu saw run much longer than nsys did."""
    found: list[tuple[TracedNumber, str, TracedText]] = []
    for group in measured.longest:
        ncu, nsys = group.median.traced(DURATION), kernel_median(measured.run, group.case, group.kernel)
        if ncu is not None and nsys is not None and nsys.value and (ratio := ncu / nsys).value >= APART.value:
            text = phrase("finding_cold.evidence", kernel=_named(group), ncu=ncu, nsys=nsys)
            found.append((ratio, _named(group), text))
    if not found:
        return
    found.sort(key=lambda item: -item[0].value)
    ratio, kernel, _ = found[0]
    others = more(len(found) - 1, "kernel")
    rest = phrase("finding_cold.others", others=others, ratio=found[-1][0]) if len(found) > 1 else ""
    flushed = measured.run.settings.cache_control == "all"
    yield Observation(
        anchor="finding-cold",
        observation=phrase("finding_cold.observation", kernel=kernel, ratio=ratio, others=rest),
        evidence=tuple(text for *_, text in found[:MOST_LINES]),
        implication=phrase(f"finding_cold.{'flushed' if flushed else 'differs'}"),
    )


# Against what is expected


def _expected(measured: Analyses) -> Iterable[Section]:
    """What is expected of the kernel families beside what was measured."""
    title = "Against what is expected"
    try:
        found = expected(measured.run)
    except FiprofError as error:
        if measured.run.launches:
            text = f"{error.message[:1].upper()}{error.message[1:]}."
            yield Section("expected", title, (Text((text,)),))
        return
    said = [*map(faster_words, found.faster), *map(worded, found.summary)]
    blocks: list[Block] = [Text((line,)) for line in said]
    if found.cases:
        rows = tuple((case.at.label, *cells(item)) for case in found.cases for item in case.values)
        view = View((Column("case", "case"), *SHOWN), rows)
        blocks.append(Table(view, anchor="expected-measured", appendix=len(rows) > LONG_TABLE))
    if found.not_compared:
        rows = tuple(map(unlike_cells, found.not_compared))
        view = View(NOT_COMPARED, rows, title=phrase("expected.not_compared"), notes=tuple(map(cited, found.sources)))
        blocks.append(Table(view, anchor="expected-not-compared", appendix=True))
    else:
        blocks += [Text((cited(source),)) for source in found.sources]
    yield Section("expected", title, tuple(blocks))
