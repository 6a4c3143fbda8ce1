"""Tables that several documents of a study show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.claims import Outcome, Result
from fiprof.analysis.study import Study, kernel_shares, main_kernel, top_stalls
from fiprof.model import knowledge
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import PageLink
from fiprof.reports.study_pages.names import label, run_link, short, short_key, verdict_title
from fiprof.reports.view import Column, View, view_of
from fiprof.reports.words import worded
from fiprof.text import join_words, short_kernel


@dataclass(frozen=True)
class CaseRow:
    """A case as the table of all cases shows it."""

    case: str
    plain_us: float | None
    half_pct: float | None
    nsys_us: float | None
    ncu_us: float | None
    wall_us: float | None
    tokens_per_second: float | None
    tflops: float | None
    gb_per_s: float | None
    roof_pct: float | None
    verdict: str
    run: str


_CASES = (
    Column("case", "case"),
    Column("plain_us", "plain", unit="µs", spec=",.2f", meaning="median between CUDA events, no profiler"),
    Column("half_pct", "±", unit="%", spec=".1f", meaning="half of the confidence interval, of the median"),
    Column("nsys_us", "nsys", unit="µs", spec=",.2f", meaning="kernels of an iteration"),
    Column("ncu_us", "ncu", unit="µs", spec=",.2f", meaning="the same under ncu, caches flushed"),
    Column("wall_us", "host", unit="µs", spec=",.1f", meaning="host time an iteration, back to back"),
    Column("tokens_per_second", "tokens/s", spec=",.0f"),
    Column("tflops", "TFLOP/s", spec=",.1f", meaning="least operations over the plain time"),
    Column("gb_per_s", "GB/s", spec=",.0f", meaning="least bytes over the plain time"),
    Column("roof_pct", "of roof", unit="%", spec=".0f", meaning="of the roof that binds the main kernel, by ncu"),
    Column("verdict", "verdict"),
    Column("run", "run"),
)


def case_table(study: Study, found: Sequence[CaseResult], *, title: str = "") -> View:
    """Every case with its times and rates; those without a time last, with the reason. The run stands in the table
    where there are several."""
    rows = [_row(study, case) for case in sorted(found, key=lambda case: _order(study, case))]
    notes = (
        key(study, found)
        + "plain: median of an iteration between CUDA events, without a profiler, ± half of its interval; nsys: its "
        "kernels; ncu: the same with caches flushed; host: of the calls, back to back. Rates: least work over plain "
        "time, so above DRAM's peak where data stays in L2. of roof, verdict: of the main kernel, counted by ncu.",
    )
    one_run = len({case.run for case in found}) == 1
    columns = tuple(column for column in _CASES if not (one_run and column.key == "run"))
    return view_of(columns, rows, title=title, notes=notes if rows else ())


def _order(study: Study, case: CaseResult) -> tuple[bool, list[str], list[float]]:
    """Cases of the same options after each other, by growing sizes; those without a time last."""
    sizes = [float(case.params[name]) for name in study.axes(case.workload) if name in case.params]
    return case.plain is None, [str(case.params.get(name)) for name in study.options(case.workload)], sizes


def key(study: Study, found: Sequence[CaseResult]) -> str:
    """What the names in the first column are made of."""
    workload = found[0].workload if found else ""
    words = short_key(study, workload) if workload else ""
    switches = [
        f"{known.short_on}: {known.on}"
        for known in map(knowledge.of_parameter, study.options(workload))
        if known.short_on and known.short_on != known.on
    ]
    more = "".join(f"; {words}" for words in switches)
    return f"case: {words} (1k = 1,024){more}. " if words else ""


def _row(study: Study, case: CaseResult) -> CaseRow:
    kernel = main_kernel(case)
    plain = case.plain
    return CaseRow(
        case=short(study, case),
        plain_us=plain.median_us if plain else None,
        half_pct=100 * half_width(case) if plain else None,
        nsys_us=case.nsys.median_us if case.nsys else None,
        ncu_us=case.ncu_us,
        wall_us=case.wall_us,
        tokens_per_second=case.tokens_per_second,
        tflops=case.tflops,
        gb_per_s=case.gb_per_s,
        roof_pct=100 * kernel.roof_share if kernel and kernel.roof_share is not None else None,
        verdict=(verdict_title(kernel.verdict) if kernel else "") or case.skipped,
        run=run_link(study, case.run) if case.run else "",
    )


def half_width(case: CaseResult) -> float:
    """Half of the interval of the plain median, as a part of it; 0 where it has no time."""
    plain = case.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


@dataclass(frozen=True)
class ExecutionRow:
    """A kernel of a case: how it was launched."""

    case: str
    kernel: str
    share_pct: float | None
    grid: str
    block: str
    waves: float | None
    registers: int | None
    shared_kb: float | None


_EXECUTION = (
    Column("case", "case"),
    Column("kernel", "kernel"),
    Column("share_pct", "of time", unit="%", spec=".0f"),
    Column("grid", "grid"),
    Column("block", "block"),
    Column("waves", "waves", spec=".2f"),
    Column("registers", "registers"),
    Column("shared_kb", "shared", unit="kB", spec=".1f"),
)


def execution(study: Study, found: Sequence[CaseResult]) -> View:
    """How the kernels of some cases were launched, in the order of an iteration."""
    rows = []
    for case in found:
        shares = kernel_shares(case)
        for i, kernel in enumerate(case.kernels):
            rows.append(
                ExecutionRow(
                    case=short(study, case) if not i else "",
                    kernel=short_kernel(kernel.kernel),
                    share_pct=100 * shares[i] if shares else None,
                    grid=kernel.grid,
                    block=kernel.block,
                    waves=kernel.waves,
                    registers=kernel.registers_per_thread,
                    shared_kb=None if kernel.shared_bytes_per_block is None else kernel.shared_bytes_per_block / 1e3,
                )
            )
    notes = (
        key(study, found)
        + "of time: of the iteration's kernel time under ncu. shared: memory a block, static and dynamic.",
    )
    return view_of(_EXECUTION, rows, title="Launches", notes=notes if rows else ())


@dataclass(frozen=True)
class HardwareRow:
    """The main kernel of a case: what the hardware did."""

    case: str
    occupancy: str
    tensor_pct: float | None
    dram_pct: float | None
    l2_pct: float | None
    l2_hit_pct: float | None
    roof: str
    roof_pct: float | None
    verdict: str
    stalls: str


_HARDWARE = (
    Column("case", "case"),
    Column("occupancy", "occupancy", unit="%"),
    Column("tensor_pct", "tensor", unit="%", spec=".0f"),
    Column("dram_pct", "DRAM", unit="%", spec=".0f"),
    Column("l2_pct", "L2", unit="%", spec=".0f"),
    Column("l2_hit_pct", "L2 hits", unit="%", spec=".0f"),
    Column("roof", "roof"),
    Column("roof_pct", "of it", unit="%", spec=".0f"),
    Column("verdict", "verdict"),
    Column("stalls", "warps"),
)


def hardware(study: Study, found: Sequence[CaseResult]) -> View:
    """What the hardware did in the main kernels of some cases."""
    rows = []
    for case in found:
        kernel = main_kernel(case)
        if kernel is None:
            continue
        achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
        rows.append(
            HardwareRow(
                case=short(study, case),
                stalls=", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel)) or "–",
                occupancy=f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else "–",
                tensor_pct=kernel.tensor_active_pct,
                dram_pct=kernel.dram_pct,
                l2_pct=kernel.l2_pct,
                l2_hit_pct=kernel.l2_hit_pct,
                roof=kernel.roof or "–",
                roof_pct=None if kernel.roof_share is None else 100 * kernel.roof_share,
                verdict=verdict_title(kernel.verdict) or "–",
            )
        )
    notes = (
        key(study, found)
        + "warps: their largest states, of all their time. occupancy: achieved of theoretical. roof: the lower one at "
        "the kernel's intensity, and how much of what it allows was achieved.",
    )
    return view_of(_HARDWARE, rows, title="Hardware", notes=notes if rows else ())


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what became of it."""

    claim: str
    verdict: str
    tested: int
    holds: int
    partly: int
    fails: int
    unclear: int


_CLAIMS = (
    Column("claim", "claim"),
    Column("verdict", "verdict"),
    Column("tested", "tested", meaning="cases, or pairs of cases"),
    Column("holds", "hold"),
    Column("partly", "in part"),
    Column("fails", "fail"),
    Column("unclear", "unclear", meaning="the interval crosses a limit"),
)


def claims(results: Sequence[Result], *, to: str = "") -> View:
    """The claims and their verdicts. to: document whose sections the claims link to; empty for the same page."""
    rows = [
        ClaimRow(
            claim=PageLink(f"«{item.claim.words}»", f"{to}#claim-{item.claim.name}") if to else f"«{item.claim.words}»",
            verdict=worded(item.verdict),
            tested=len(item.tested),
            holds=item.counted(Outcome.HOLDS),
            partly=item.counted(Outcome.PARTLY),
            fails=item.counted(Outcome.FAILS),
            unclear=item.counted(Outcome.UNCLEAR),
        )
        for item in results
    ]
    return view_of(_CLAIMS, rows)


@dataclass(frozen=True)
class AbsentRow:
    """Cases without a time, of one reason."""

    workload: str
    cases: int
    examples: str
    why: str


def absent(study: Study) -> View:
    """Cases that have no time, by reason."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for workload, found in study.by_workload.items():
        for case in found:
            if case.plain is None:
                groups.setdefault((workload, case.skipped or "it has no plain time"), []).append(case)
    rows = [
        AbsentRow(
            workload,
            len(found),
            join_words([label(study, case, workload=False) for case in found[:2]]) + (" …" if len(found) > 2 else ""),
            why,
        )
        for (workload, why), found in groups.items()
    ]
    columns = (
        Column("workload", "kernel"),
        Column("cases", "cases"),
        Column("examples", "which"),
        Column("why", "why"),
    )
    return view_of(columns, rows)
