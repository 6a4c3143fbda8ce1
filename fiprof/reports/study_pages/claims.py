"""What others say about these kernels, each as a test on the study's cells.

A claim declares its cells, how each is tested and the limits. Its verdict and its sentences are functions of the
recorded numbers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.model.results import Cell, Kernel
from fiprof.reports.study_pages.data import (
    Params,
    Side,
    Study,
    dram_bytes,
    is_number,
    main_kernel,
    matches,
    pair_label,
    pairs,
    size,
)
from fiprof.reports.study_pages.ratio import Ratio, number, of_cells, spread
from fiprof.text import count, join_words

Verdict = Literal["confirmed", "refuted", "partly", "undecided", "not measured"]
Outcome = Literal["holds", "partly", "fails", "unclear"]

TOLERANCE = 0.10
"""How far from a claimed number, in proportion, a measured one may be and still confirm it. fiprof's own choice."""

SAVING_TOLERANCE = 0.05
"""The same for a claimed saving, as a part of the whole: 40% is confirmed from 35 to 45%."""

FEW = 0.10
"""A claim that holds in no more than this part of the deciding cells is refuted, not true in part. fiprof's choice."""


@dataclass(frozen=True)
class Tested:
    """One cell, or one pair of cells, that a claim was tested on."""

    cells: tuple[Cell, ...]
    outcome: Outcome
    measured: str
    """What was found, in words."""
    ratio: Ratio | None = None
    """Of a pair, first cell over second; None for a single cell."""

    def where(self, study: Study) -> str:
        """What the cells have in common, and the one number that tells them apart: ``batch 1, KV 512 to 2,048``."""
        return pair_label(study, *self.cells) if len(self.cells) == 2 else study.label(self.cells[0], workload=False)


@dataclass(frozen=True)
class Result:
    """What became of a claim."""

    claim: Claim
    verdict: Verdict
    tested: tuple[Tested, ...]
    """In the order of the study."""
    summary: str
    """What was found in all, with the spread; why there is nothing where it was not measured."""

    @property
    def sentence(self) -> str:
        """``«GQA decodes 1.5x faster» is refuted: …``"""
        word = {"not measured": "was not measured", "partly": "holds in part"}.get(self.verdict, f"is {self.verdict}")
        return f"«{self.claim.words}» {word}: {self.summary}."

    def counted(self, outcome: Outcome) -> int:
        return sum(item.outcome == outcome for item in self.tested)


@dataclass(frozen=True)
class Claim:
    """A sentence that others say, and how to test it."""

    name: str
    """To cite it by."""
    words: str
    """The sentence."""
    about: str
    """The cells, in words."""
    how: str
    """The test and its limits, in words."""
    test: Callable[[Study], tuple[tuple[Tested, ...], str]]
    """The cells tested, and what was found in words (or why nothing was)."""
    always: bool = False
    """Whether the sentence says so of every cell: then one that fails refutes it."""

    def result(self, study: Study) -> Result:
        tested, summary = self.test(study)
        return Result(self, _verdict(tested, always=self.always), tested, summary)


def _verdict(tested: Sequence[Tested], *, always: bool) -> Verdict:
    """Confirmed where it holds in every cell that decides, refuted where in none or FEW, else partly."""
    if not tested:
        return "not measured"
    decided = [item.outcome for item in tested if item.outcome != "unclear"]
    if not decided:
        return "undecided"
    if set(decided) == {"holds"}:
        return "confirmed"
    return "refuted" if always or decided.count("fails") >= (1 - FEW) * len(decided) else "partly"


def results(study: Study) -> tuple[Result, ...]:
    """Every claim's."""
    return tuple(claim.result(study) for claim in CLAIMS)


# How the time, or another number, of one cell stands to that of another


@dataclass(frozen=True)
class Limits:
    """Where a ratio has to lie."""

    low: float
    high: float = float("inf")

    def outcome(self, found: Ratio) -> Outcome:
        """Unclear where the interval crosses a limit, or says nothing."""
        if not found.sure:
            return "unclear"
        if self.low <= found.low and found.high <= self.high:
            return "holds"
        return "fails" if found.high < self.low or found.low > self.high else "unclear"

    def __str__(self) -> str:
        return f"above {number(self.low)}x" if self.high == float("inf") else f"{self.low:.2f}x to {self.high:.2f}x"


def _around(value: float) -> Limits:
    return Limits(value * (1 - TOLERANCE), value * (1 + TOLERANCE))


def _by_time(one: Side, other: Side, limits: Limits, what: str) -> Callable[[Study], tuple[tuple[Tested, ...], str]]:
    """Tests the plain time of one side over that of the other, pair by pair. what: how that ratio is called."""

    def test(study: Study) -> tuple[tuple[Tested, ...], str]:
        return _judged(study, pairs(study, one, other), limits, what) or ((), _absent(study, one, other))

    return test


def _by_growth(
    workload: str, axis: str, factor: int, limits: Limits
) -> Callable[[Study], tuple[tuple[Tested, ...], str]]:
    """Tests the plain time at ``factor`` times an axis' value over that at the value itself."""

    def test(study: Study) -> tuple[tuple[Tested, ...], str]:
        found: list[tuple[Cell, Cell]] = []
        for value in study.varied(workload).get(axis, ()):
            if is_number(value):
                assert isinstance(value, int | float)
                found += pairs(study, Side(workload, ((axis, value * factor),)), Side(workload, ((axis, value),)))
        what = f"the time at {factor}x the {'KV length' if axis == 'kv_len' else 'sequence'} over that before"
        absent = study.why_absent(workload)
        if study.of(workload):
            absent = f"no two measured {workload} cells have {axis} {factor}x apart and all else the same"
        return _judged(study, found, limits, what) or ((), absent)

    return test


def _judged(
    study: Study, found: Sequence[tuple[Cell, Cell]], limits: Limits, what: str
) -> tuple[tuple[Tested, ...], str] | None:
    ratios = [(pair, of_cells(*pair)) for pair in found]
    tested = tuple(
        Tested(pair, limits.outcome(ratio), str(ratio), ratio) for pair, ratio in ratios if ratio is not None
    )
    return (tested, _ratio_summary(study, tested, str(limits), what)) if tested else None


def _ratio_summary(study: Study, tested: Sequence[Tested], limits: str, what: str) -> str:
    known = [(item, item.ratio) for item in tested if item.ratio is not None]
    values = [ratio.value for _, ratio in known]
    if len(known) == 1:
        item, ratio = known[0]
        return f"{what} is {ratio} ({item.where(study)}), and the claim needs {limits}"
    least, most = (choose(known, key=lambda pair: pair[1].value) for choose in (min, max))
    words = [
        f"{what} is {spread(values)}, over {count(len(known), 'pair')} of cells",
        f"{_of(sum(i.outcome == 'holds' for i in tested), len(tested))} {limits}"
        + _but_unclear(tested)
        + f"; {_directions([ratio for _, ratio in known])}",
        f"the least is {least[1]} at {least[0].where(study)}, the most {most[1]} at {most[0].where(study)}",
    ]
    return "; ".join(words)


def _of(n: int, total: int) -> str:
    return "all are" if n == total else "none is" if not n else f"{n} of {total} are"


def _but_unclear(tested: Sequence[Tested]) -> str:
    unclear = sum(item.outcome == "unclear" for item in tested)
    return f" (of {unclear} the interval crosses a limit)" if unclear else ""


def _directions(ratios: Sequence[Ratio]) -> str:
    """How many of the intervals lie above 1, below it, or hold it."""
    directions: Counter[str] = Counter(ratio.direction for ratio in ratios)
    words = {"more": "above 1x", "less": "below 1x", "same": "with no difference seen (1x in the interval)"}
    return join_words([f"{directions[key]} {word}" for key, word in words.items() if directions[key]])


def _absent(study: Study, *sides: Side) -> str:
    for side in sides:
        measured = [cell for cell in study.of(side.workload) if matches(cell, dict(side.params))]
        if not measured:
            return study.why_absent(side.workload, dict(side.params))
    return "no two measured cells differ in this alone"


# How much DRAM traffic one saves over the other


def _by_saving(one: Side, other: Side, low: float, high: float) -> Callable[[Study], tuple[tuple[Tested, ...], str]]:
    """Tests 1 - (counted DRAM bytes of one side / of the other). Counted once a cell: there is no interval.

    Pairs whose least bytes fit in L2 are left out: what stays there is traffic that DRAM does not see.
    """

    def test(study: Study) -> tuple[tuple[Tested, ...], str]:
        everything = pairs(study, one, other)
        found = [pair for pair in everything if min(sum(_least(cell)) for cell in pair) > (study.l2_bytes or 0)]
        tested: list[Tested] = []
        saved: list[float] = []
        for pair in found:
            mine, theirs = map(dram_bytes, pair)
            if mine is not None and theirs:
                saving = 1 - mine / theirs
                outcome: Outcome = "holds" if low <= saving <= high else "fails"
                saved.append(saving)
                tested.append(Tested(pair, outcome, f"{saving:.1%} less"))
        if not tested:
            if not everything:
                return (), _absent(study, one, other)
            if not found:
                return (
                    (),
                    f"in {count(len(everything), 'pair')} of cells all data fits in L2, and DRAM sees little of it",
                )
            return (), f"ncu counted no DRAM bytes of {count(len(found), 'pair')}"
        largest = max(range(len(tested)), key=lambda i: size(tested[i].cells[1]))
        modelled = [1 - sum(_least(pair[0])) / sum(_least(pair[1])) for pair in (item.cells for item in tested)]
        return tuple(tested), (
            f"the counted DRAM bytes are less by {spread(saved, '.1%')}, over {count(len(tested), 'pair')} of cells, "
            f"and by {saved[largest]:.1%} at the largest ({tested[largest].where(study)}); "
            f"{_of(sum(item.outcome == 'holds' for item in tested), len(tested))} {low:.0%} to {high:.0%}; the least "
            f"bytes that the two need differ by {spread(modelled, '.1%')}"
        )

    return test


def _least(cell: Cell) -> tuple[int, int]:
    return cell.bytes_read, cell.bytes_written


# What bounds a kernel


def _by_bound(
    workload: str, bound: Literal["compute", "memory"], at_least: Params
) -> Callable[[Study], tuple[tuple[Tested, ...], str]]:
    """Tests the verdict of the kernel that takes most of an iteration's time."""

    def test(study: Study) -> tuple[tuple[Tested, ...], str]:
        cells = [
            cell
            for cell in study.of(workload)
            if all(
                is_number(cell.params.get(name)) and float(cell.params[name]) >= float(value)
                for name, value in at_least.items()
            )
        ]
        tested = []
        for cell in cells:
            kernel = main_kernel(cell)
            if kernel is not None and kernel.verdict:
                tested.append(Tested((cell,), _bound_outcome(kernel, bound), _bound_words(kernel)))
        if not tested:
            return (), "ncu gave no verdict of any of these cells" if cells else study.why_absent(workload)
        return tuple(tested), _bound_summary(tested, bound)

    return test


def _bound_outcome(kernel: Kernel, bound: str) -> Outcome:
    """Partly where the roof is of that kind and the kernel does not come near it: something else holds it back."""
    if kernel.verdict.lower().startswith("not enough evidence"):
        return "unclear"
    if kernel.verdict.lower().startswith(f"{bound}-bound"):
        return "holds"
    return "partly" if kernel.roof is not None and roof_kind(kernel.roof) == bound else "fails"


def roof_kind(roof: str) -> str:
    """compute or memory."""
    return "memory" if roof.startswith(MEMORY_ROOFS) else "compute"


def _bound_words(kernel: Kernel) -> str:
    roof = "" if kernel.roof is None or kernel.roof_share is None else f", {kernel.roof_share:.0%} of {kernel.roof}"
    return f"{kernel.verdict}{roof}"


MEMORY_ROOFS = ("DRAM", "L2", "L1", "shared")


def _bound_summary(tested: Sequence[Tested], bound: str) -> str:
    kernels = [kernel for item in tested if (kernel := main_kernel(item.cells[0])) is not None]
    verdicts = Counter(kernel.verdict for kernel in kernels)
    said = join_words([f"{name} {n}" for name, n in verdicts.most_common()])
    below = [kernel for kernel in kernels if kernel.roof is not None and roof_kind(kernel.roof) == bound]
    known = [kernel for kernel in kernels if kernel.roof is not None]
    shares = [kernel.roof_share for kernel in below if kernel.roof_share is not None]
    words = f"verdicts of the main kernels of {count(len(kernels), 'cell')}: {said}"
    if not known:
        return f"{words}; no roofs are known"
    words += f"; by the roofline alone, a {bound} roof is the lowest in {len(below)} of {len(known)}"
    return words + (f", and they reach {spread(shares, '.0%')} of it" if shares else "")


# The claims

_GQA = (("kv_heads", 8), ("q_heads", 32))
_MHA = (("kv_heads", 32), ("q_heads", 32))
_SAVING = (0.40 - SAVING_TOLERANCE, 0.40 + SAVING_TOLERANCE)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "prefill-compute-bound",
        "prefill is compute-bound from 1,024 tokens",
        "prefill cells with a sequence of 1,024 or more",
        "the verdict of the kernel that takes most of the time is compute-bound; partly, where a compute roof is the "
        "lowest at its intensity, and something else keeps it from there",
        _by_bound("prefill", "compute", {"seq_len": 1024}),
    ),
    Claim(
        "decode-memory-bound",
        "decode is always memory-bound",
        "every decode cell",
        "the verdict of the kernel that takes most of the time is memory-bound; one cell with another refutes «always»",
        _by_bound("decode", "memory", {}),
        always=True,
    ),
    Claim(
        "gqa-faster",
        "GQA decodes 1.5x faster",
        "pairs of decode cells with 32 and with 8 KV heads of 32 query heads",
        f"time of MHA over time of GQA, plain; {_around(1.5)} confirms (the number ± {TOLERANCE:.0%} of it)",
        _by_time(Side("decode", _MHA), Side("decode", _GQA), _around(1.5), "the time of MHA over that of GQA"),
    ),
    Claim(
        "fusing-saves-traffic",
        "fusing saves 40% of the traffic",
        "pairs of fused_add_rmsnorm and add_then_rmsnorm cells of one size whose data does not fit in the L2 cache",
        "one less the ratio of the DRAM bytes that ncu counted (caches flushed before each kernel, so what the first "
        f"operation leaves in L2 counts again in the second); {_SAVING[0]:.0%} to {_SAVING[1]:.0%} confirms",
        _by_saving(Side("fused_add_rmsnorm"), Side("add_then_rmsnorm"), *_SAVING),
    ),
    Claim(
        "cos-sin-cache-faster",
        "the cos/sin cache is 5–10% faster",
        "pairs of rope cells with angles computed and with angles from the cache",
        "time without the cache over time with it, plain; 1.05x to 1.10x confirms",
        _by_time(
            Side("rope", (("variant", "inplace"),)),
            Side("rope", (("variant", "cos_sin_cache"),)),
            Limits(1.05, 1.10),
            "the time without the cache over that with it",
        ),
    ),
    Claim(
        "fa3-beats-fa2",
        "FA3 beats FA2",
        "pairs of prefill cells with the backends fa2 and fa3",
        "time of FA2 over time of FA3, plain; an interval above 1x confirms",
        _by_time(
            Side("prefill", (("backend", "fa2"),)),
            Side("prefill", (("backend", "fa3"),)),
            Limits(1.0),
            "the time of FA2 over that of FA3",
        ),
    ),
    Claim(
        "four-times-the-kv",
        "4x the sequence, 3.8x the time (decode)",
        "pairs of decode cells whose KV lengths are 4x apart",
        f"the longer's time over the shorter's, plain; {_around(3.8)} confirms (the number ± {TOLERANCE:.0%} of it)",
        _by_growth("decode", "kv_len", 4, _around(3.8)),
    ),
    Claim(
        "four-times-the-sequence",
        "4x the sequence, 3.8x the time (prefill)",
        "pairs of prefill cells whose sequences are 4x apart",
        f"the longer's time over the shorter's, plain; {_around(3.8)} confirms (the number ± {TOLERANCE:.0%} of it)",
        _by_growth("prefill", "seq_len", 4, _around(3.8)),
    ),
)
"""Heard in other people's documents on these kernels; each is tested as it is said, with the limits in ``how``."""
