"""How often ``fiprof compare --measure`` is wrong, and what it finds: simulated from recorded measurements.

``python -m benchmarks.compare_simulation [COMPARISONS]``. A process's time of a case is its recorded median, times what
differs between processes (SPREAD, of H100 and H200 by the case's duration), between rounds (the recorded rounds of
``study-flashinfer-quick``, drawn anew), and over time (a drift of at most DRIFT over ten processes in a row, of all
cases alike). A found difference is one that is called slower. Beside the design stand those that it was chosen over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fiprof.analysis.comparison.measured_result import Decision, decide
from fiprof.analysis.comparison.statistics import Outcome, differences

RESULTS = Path(__file__).parents[1] / "artifacts/recorded/study-flashinfer-quick/results"
SLOWER = (0.0, 0.01, 0.02, 0.05, 0.20)
SPREAD_US, SPREAD = (7.0, 30.0, 180.0), (0.0054, 0.0026, 0.0009)
DRIFT = 0.014
ROUNDS = 6
CASES = 8
"""Of a comparison: as many as fit are drawn of the recorded ones."""
SHORT_US = 30.0

Numbers = np.ndarray


def schedule(processes: int) -> str:
    return ("ABBA" * processes)[: 2 * processes]


@dataclass(frozen=True)
class Recorded:
    """A case of the study."""

    median_us: float
    rounds: Numbers
    """Logarithms of its rounds' times, about 0."""


@dataclass(frozen=True)
class Design:
    """How a comparison measures and decides."""

    name: str
    order: str
    """Processes in the order of time."""
    in_turn: bool
    """Whether each process measures all of its rounds in one go, as a program does."""
    found: Callable[[Numbers, Numbers], bool]
    """Whether the first case is called slower, or any other different. Takes the times of both sides, processes x
    rounds x cases."""


def by_permutation(a: Numbers, b: Numbers) -> bool:
    outcomes = [each.outcome for each in differences(*(np.exp(np.median(side, axis=1)).tolist() for side in (a, b)))]
    return Outcome.SLOWER in outcomes or Outcome.FASTER in outcomes


def by_gate(a: Numbers, b: Numbers) -> bool:
    """Whether a gate with a limit of 3% fails."""
    found = differences(*(np.exp(np.median(side, axis=1)).tolist() for side in (a, b)))
    return any(decide(each, 3.0) is Decision.SLOWER for each in found)


def by_rounds(a: Numbers, b: Numbers) -> bool:
    """One process a side: Mann and Whitney's U over the rounds of each case, 2% in all, and 1% at least."""
    u = (a[0][:, None] < b[0][None]).sum(axis=(0, 1))
    apart = np.abs(np.median(b[0], axis=0) - np.median(a[0], axis=0)) >= 0.01
    return bool((((u == 0) | (u == a.shape[1] ** 2)) & apart).any())


def by_bootstrap(a: Numbers, b: Numbers) -> bool:
    """A bootstrap of three processes a side: the 98% interval of the difference of means, and 1% at least."""
    a, b = np.median(a, axis=1), np.median(b, axis=1)
    drawn = np.random.default_rng(0).integers(0, len(a), (2, 500, len(a)))
    low, high = np.quantile(b[drawn[1]].mean(axis=1) - a[drawn[0]].mean(axis=1), (0.01, 0.99), axis=0)
    return bool((((low > 0) | (high < 0)) & (np.abs(b.mean(axis=0) - a.mean(axis=0)) >= 0.01)).any())


DESIGNS = (
    Design("5 a side, kept warm", schedule(5), False, by_permutation),
    Design("5 a side, a gate at 3%", schedule(5), False, by_gate),
    Design("5 a side, one after the other", schedule(5), True, by_permutation),
    Design("10 a side, kept warm", schedule(10), False, by_permutation),
    Design("1 a side, by its rounds", "AB", True, by_rounds),
    Design("5 a side, all of A first", "A" * 5 + "B" * 5, True, by_permutation),
    Design("3 a side, by a bootstrap", schedule(3), True, by_bootstrap),
)


def recorded(workload: str) -> list[Recorded]:
    cases = []
    for case in json.loads((RESULTS / f"{workload}.json").read_text())["cases"]:
        if case["plain"]:
            logs = np.log(case["plain"]["round_medians_us"])
            cases.append(Recorded(case["plain"]["median_us"], logs - np.median(logs)))
    return cases


def simulated(design: Design, cases: list[Recorded], slower: float, chance: np.random.Generator) -> bool:
    """Whether a comparison whose first case is so much slower on side B calls any case different."""
    chosen = [cases[index] for index in chance.choice(len(cases), min(CASES, len(cases)), replace=False)]
    processes = len(design.order)
    spread = np.interp([np.log(case.median_us) for case in chosen], np.log(SPREAD_US), SPREAD)
    effect = chance.normal(0, spread, (processes, 1, len(chosen)))
    noise = np.stack([chance.choice(case.rounds, (processes, ROUNDS)) for case in chosen], axis=-1)
    place = np.repeat(np.arange(processes)[:, None], ROUNDS, axis=1) / (processes - 1)
    if not design.in_turn:
        # Every second round goes through the processes backwards.
        turned = np.where(np.arange(ROUNDS) % 2, 1 - place, place)
        place = (np.arange(ROUNDS) + turned) / ROUNDS
    drift = chance.uniform(-DRIFT, DRIFT) * place[:, :, None] * processes / 10
    times = effect + noise + drift
    side_b = np.array([letter == "B" for letter in design.order])
    times[side_b, :, 0] += np.log1p(slower)
    return design.found(times[~side_b], times[side_b])


def main() -> None:
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    groups = {
        "decode": [case for case in recorded("decode") if case.median_us >= SHORT_US],
        "prefill": [case for case in recorded("prefill") if case.median_us >= SHORT_US],
        "short kernels": [
            case for name in ("decode", "rmsnorm", "rope") for case in recorded(name) if case.median_us < SHORT_US
        ],
    }
    print(f"{comparisons} comparisons of {CASES} cases each; share that calls a case different")
    print(f"{'design':30} {'cases':14} " + " ".join(f"{'+' if s else ''}{100 * s:.0f} %".rjust(7) for s in SLOWER))
    for design in DESIGNS:
        for name, cases in groups.items():
            chance = np.random.default_rng(13)
            rates = [sum(simulated(design, cases, s, chance) for _ in range(comparisons)) / comparisons for s in SLOWER]
            print(f"{design.name:30} {name:14} " + " ".join(f"{rate:7.3f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
