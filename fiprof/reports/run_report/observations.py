"""What a reader would want to be told, each with its evidence and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.check_rules import FLOPS_HIGH
from fiprof.analysis.expected import expected
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import APART, SOME_WAITING
from fiprof.analysis.verdict.model import Kind
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import KERNEL_TIME, NSYS, kernel_median, work_factor
from fiprof.model.provenance import TracedNumber, TracedText, more, sentence
from fiprof.model.quantities import DURATION
from fiprof.reports import verdict_words
from fiprof.reports.expected import SHOWN, cells
from fiprof.reports.pages.page import Block, Observation, Section, Table, Text
from fiprof.reports.pages.traced import LONG_TABLE
from fiprof.reports.run_report import parameters
from fiprof.reports.run_report.story import Story, share_idle
from fiprof.reports.view import Column, View
from fiprof.reports.words import worded
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
    findings = [
        *parameters.findings(measured),
        *waiting(measured, told, found),
        *second_kernels(measured),
        *grids(measured),
        *extra_work(measured, found),
        *cold(measured),
    ]
    blocks: list[Block] = list(findings)
    if not findings:
        what = "Nothing stands out: no kernel beside the main one, no waiting GPU, no cases to compare."
        seen = measured.run.launches or measured.run.trace.cases
        blocks.append(Text((what if seen else "Nothing was measured of any case: there is nothing to observe.",)))
    return Section("observations", "Observations", tuple(blocks), tuple(_expected(measured)))


# Time without kernels, and kernels beside the main one


def waiting(measured: Analyses, told: Story, found: Verdicts) -> Iterable[Observation]:
    """Cases in which the GPU waits for the host: by the loop without a profiler, else by the trace."""
    idle = {
        phase.at.spans[0].case or "": phase.at
        for phase in sorted(told.measured, key=lambda phase: phase.at.busy)
        if phase.at.spans and phase.at.spans[0].case and phase.at.busy < 1 - SOME_WAITING.share
    }
    traced = {case: share_idle(part) for case, part in idle.items()}
    plain = verdict_words.waiting(found)
    if plain:
        label, most = plain[0][0].label, sentence("{}", plain[0][1])
        evidence = [
            sentence(
                "{}: {} without a profiler, kernels {} an iteration{}",
                case.label,
                fact,
                KERNEL_TIME.traced(measured.run, case.case) or "–",
                sentence("; under nsys {}", traced[case.case]) if case.case in traced else "",
            )
            for case, fact in plain
        ]
        sure = "the host's time of an iteration, back to back, against nsys's kernel time. nsys itself makes launches "
        sure += "longer, so that its own shares are larger."
    elif traced:
        first = next(iter(traced))
        label, most = measured.run.labels(first or None), traced[first]
        evidence = [
            sentence("{}: {} under nsys", measured.run.labels(case or None), fact) for case, fact in traced.items()
        ]
        sure = "by nsys, which itself makes each launch longer: without it the share is smaller."
    else:
        return
    others = f", and for a tenth or more in {more(len(evidence) - 1, 'case')}" if len(evidence) > 1 else ""
    yield Observation(
        anchor="finding-waiting",
        observation=sentence("The GPU waits for {} of the time of {}{}.", most, label, others),
        evidence=tuple(evidence[:MOST_LINES]),
        implication="There the host's launches set the pace: a CUDA graph, fewer launches or more work in each gains "
        "up to this share; a faster kernel does not.",
        sure=sure,
    )


def second_kernels(measured: Analyses) -> Iterable[Observation]:
    """Kernels beside the one that takes most of an iteration."""
    shares: dict[str, list[tuple[str, TracedNumber, TracedNumber]]] = defaultdict(list)
    of_case: dict[str, list[str]] = defaultdict(list)
    for case, kernel in measured.run.trace.kernels:
        of_case[case].append(kernel)
    for case, kernels in of_case.items():
        whole = NSYS.traced(measured.run, case)
        times = {kernel: time for kernel in kernels if (time := kernel_median(measured.run, case, kernel)) is not None}
        if whole is None or len(times) < 2:
            continue
        main = max(times, key=lambda kernel: times[kernel].value)
        for kernel, time in times.items():
            share = (time / whole).as_(".1%")
            if kernel != main and share.value >= LEAST_SHARE:
                shares[kernel].append((case, share, time))
    largest = {kernel: max(share.value for _, share, _ in found) for kernel, found in shares.items()}
    told = sorted(largest, key=lambda kernel: -largest[kernel])[:MOST_KERNELS]
    for kernel, found in shares.items():
        if kernel not in told:
            continue
        found.sort(key=lambda item: -item[1].value)
        case, share, _ = found[0]
        rest = sentence(", and {} or more of {}", found[-1][1], more(len(found) - 1, "case")) if len(found) > 1 else ""
        merge = "MergeStates" in kernel
        yield Observation(
            anchor=f"finding-kernel-{parameters.slug(kernel)}",
            observation=sentence(
                "{}{} takes {} of the kernel time of {}{}.",
                short_kernel(kernel), " (the merge after split-KV)" * merge, share, measured.run.labels(case), rest,
            ),
            evidence=tuple(
                sentence("{}: {}, {} of the iteration", measured.run.labels(c), t, s) for c, s, t in found[:MOST_LINES]
            ),
            implication="Without the split there is nothing to merge: it pays where it fills the GPU, and costs this "
            "share where the grid would fill it anyway."
            if merge
            else "Fusing it into its neighbour, or leaving it out, gains at most this share.",
            sure="medians by nsys; kernels that are launched ahead of the other's end overlap a little.",
        )  # fmt: skip


# Grids, extra work, cold caches


def _named(group: Group) -> str:
    return f"{short_kernel(group.kernel)} · {group.label}"


def grids(measured: Analyses) -> Iterable[Observation]:
    """Grids that fill a small part of the GPU, and tails that cost time."""
    small: list[tuple[Group, str]] = []
    tails: list[tuple[Group, str]] = []
    for group in measured.longest:
        waves = occupancy(group.median).waves
        if waves is None:
            continue
        if waves.waves < SMALL_GRID:
            small.append((group, f"{waves.last_blocks:,} of the {waves.wave_blocks:,} blocks that fit at once"))
        elif waves.loss_share is not None and waves.loss_share >= TAIL_LOSS:
            tails.append((group, f"{waves.waves:.2f} waves, the tail costs at most {waves.loss_share:.1%} of the time"))
    if small:
        others = f", and so do {len(small) - 1} more" if len(small) > 1 else ""
        yield Observation(
            anchor="finding-small-grids",
            observation=f"The grid of {_named(small[0][0])} fills less than half of the GPU{others}.",
            evidence=tuple(f"{_named(group)}: {text}" for group, text in small[:MOST_LINES]),
            implication="More blocks gain here before anything inside the kernel does: split the work further, or put "
            "more of it into a launch.",
            sure="blocks a multiprocessor by ncu's occupancy limits.",
        )
    if tails:
        others = f", and so is that of {len(tails) - 1} more" if len(tails) > 1 else ""
        yield Observation(
            anchor="finding-tail",
            observation=f"The last wave of {_named(tails[0][0])} is partly empty{others}.",
            evidence=tuple(f"{_named(group)}: {text}" for group, text in tails[:MOST_LINES]),
            implication="Blocks of another size, or a persistent kernel that hands out tiles, would fill it.",
            sure="an upper bound: it holds where every block takes the same time.",
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
            bound = f", {verdict_words.title(verdict)}" if verdict is not None else ""
            found.append((factor, measured.run.labels(case.id), bound))
    if not found:
        return
    found.sort(key=lambda item: -item[0].value)
    (most, label, _), others = found[0], len(found) - 1
    rest = sentence(", and {} {} times or more", more(others, "case"), found[-1][0]) if others else ""
    yield Observation(
        anchor="finding-extra-work",
        observation=sentence("{} does {} times the operations that its algorithm needs{}.", label, most, rest),
        evidence=tuple(sentence("{}: {} times{}", label, factor, bound) for factor, label, bound in found[:MOST_LINES]),
        implication="Masked, padded or repeated work, or operations that the cost model leaves out (exponentials, "
        "conversions). Saving it gains where compute binds, and nothing where memory does.",
        sure="ncu's counters over the workload's cost model: tensor operations where there are any.",
    )


def cold(measured: Analyses) -> Iterable[Observation]:
    """Kernels that ncu saw run much longer than nsys did."""
    found: list[tuple[TracedNumber, Group, TracedText]] = []
    for group in measured.longest:
        ncu, nsys = group.median.traced(DURATION), kernel_median(measured.run, group.case, group.kernel)
        if ncu is not None and nsys is not None and nsys.value and (ratio := ncu / nsys).value >= APART.value:
            found.append((ratio, group, sentence("{}: {} under ncu, {} under nsys", _named(group), ncu, nsys)))
    if not found:
        return
    found.sort(key=lambda item: -item[0].value)
    ratio, group, _ = found[0]
    others = (
        sentence(", and {} {} times or more", more(len(found) - 1, "kernel"), found[-1][0]) if len(found) > 1 else ""
    )
    flushed = measured.run.settings.cache_control == "all"
    yield Observation(
        anchor="finding-cold",
        observation=sentence("ncu saw {} run {} times as long as nsys did{}.", _named(group), ratio, others),
        evidence=tuple(text for *_, text in found[:MOST_LINES]),
        implication="Under ncu the caches are flushed first: in the loop these kernels find data in L2. Read their "
        "rates, hit rates and stalls as those of a first use; --cache-control none shows the warm case."
        if flushed
        else "Clocks or the replays differ: hold the rates of these kernels against nsys's times.",
    )


# Against what is expected


def _expected(measured: Analyses) -> Iterable[Section]:
    """What is expected of the kernel families beside what was measured."""
    try:
        found = expected(measured.run)
    except FiprofError as error:
        if not measured.run.launches:
            return
        text = f"{error.message[:1].upper()}{error.message[1:]}."
        yield Section("expected", "Against what is expected", (Text((text,)),))
        return
    columns = (Column("case", "case"), *SHOWN)
    rows = tuple((case.at.label, *cells(item)) for case in found.cases for item in case.values)
    families = defaultdict(list)
    for case in found.cases:
        families[case.source.title].append(case.family)
    notes = tuple(f"Expected of {', '.join(dict.fromkeys(names))}: {title}." for title, names in families.items())
    view = View(columns, rows, notes=notes)
    blocks: list[Block] = [
        Text((" ".join(map(worded, found.summary)),)),
        Table(view, anchor="expected-measured", appendix=len(rows) > LONG_TABLE),
    ]
    yield Section("expected", "Against what is expected", tuple(blocks))
