"""How often ``fiprof compare --measure`` is wrong, and what it finds, beside the design before it.

``python -m benchmarks.compare_simulation [COMPARISONS]`` simulates processes' times and prints two tables: comparisons
of a thing with itself that call any case different, and those that find a case that is slower. Made-up noise is normal
between processes, unlike on both sides, a drift of at most DRIFT over ten processes in a row, or of a period in turns,
another one in each case. Recorded noise is what differs between processes (SPREAD, of H100 and H200 by the case's
duration) and rounds (those of ``study-flashinfer-quick``, drawn anew).
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fiprof.analysis.comparison import statistics
from fiprof.analysis.comparison.measured_result import Decision, decide
from fiprof.analysis.comparison.statistics import Outcome, differences, relabellings
from fiprof.model.settings import CompareSettings

RESULTS = Path(__file__).parents[1] / "artifacts/recorded/study-flashinfer-quick/results"
SPREAD_US, SPREAD = (7.0, 30.0, 180.0), (0.0054, 0.0026, 0.0009)
DRIFT, PERIODIC, FLOOR = 0.014, 0.01, 0.001
ROUNDS = 6
CASES = (1, 8, 20)
SHORT_US = 30.0

Numbers = np.ndarray
Noise = Callable[[np.random.Generator, Numbers, Numbers, int], Numbers]
"""Of each process, round and case: from the turns [process, round], which processes are B's, and the cases."""


def normal(a: float, b: float) -> Noise:
    """So much between the processes of either side."""

    def noise(chance: np.random.Generator, turns: Numbers, of_b: Numbers, cases: int) -> Numbers:
        found: Numbers = chance.normal(size=(len(turns), 1, cases)) * np.where(of_b, b, a)[:, None, None]
        return found

    return noise


def drifting(chance: np.random.Generator, turns: Numbers, of_b: Numbers, cases: int) -> Numbers:
    drift = chance.uniform(-DRIFT, DRIFT) * turns / turns.max() * len(turns) / 10
    found: Numbers = drift[:, :, None] + normal(FLOOR, FLOOR)(chance, turns, of_b, cases)
    return found


def periodic(period: int) -> Noise:
    def noise(chance: np.random.Generator, turns: Numbers, of_b: Numbers, cases: int) -> Numbers:
        found: Numbers = chance.normal(0, PERIODIC, (period, cases))[turns % period]
        return found + normal(FLOOR, FLOOR)(chance, turns, of_b, cases)

    return noise


def recorded(shorter: bool, *workloads: str) -> Noise:
    """Of the study's cases below SHORT_US, or of the others."""
    studied = [case for name in workloads for case in json.loads((RESULTS / f"{name}.json").read_text())["cases"]]
    timed = [each["plain"] for each in studied if each["plain"] and (each["plain"]["median_us"] < SHORT_US) is shorter]
    rounds = [np.log(each["round_medians_us"]) - np.log(each["median_us"]) for each in timed]

    def noise(chance: np.random.Generator, turns: Numbers, _of_b: Numbers, cases: int) -> Numbers:
        chosen = chance.integers(len(timed), size=cases)
        spread = np.interp([np.log(timed[each]["median_us"]) for each in chosen], np.log(SPREAD_US), SPREAD)
        drawn = np.stack([chance.choice(rounds[each], turns.shape) for each in chosen], axis=-1)
        drift = chance.uniform(-DRIFT, DRIFT) * turns / turns.max() * len(turns) / 10
        found: Numbers = drawn + drift[:, :, None] + chance.normal(0, spread, (len(turns), 1, cases))
        return found

    return noise


def now(a: Numbers, b: Numbers) -> Numbers:
    """Which cases are called different, fail a gate at 3%, and have a spread that grew. a, b: log times of processes x
    cases."""
    found = differences(np.exp(a).tolist(), np.exp(b).tolist())
    different = [each.outcome in (Outcome.SLOWER, Outcome.FASTER) for each in found]
    return np.array(
        [different, [decide(each, 3.0) is Decision.SLOWER for each in found], [x.spread_grew for x in found]]
    )


def before(a: Numbers, b: Numbers) -> Numbers:
    """The test before: max-t permutation of Student's t alone."""
    times, count = np.concatenate([a, b]), len(a)
    moved = np.abs(relabellings(count) @ times)
    within = np.maximum(((times - times.mean(axis=0)) ** 2).sum(axis=0) - moved**2 * count / 2, 0)
    t = moved / np.sqrt((within / (count - 1) + 2 * math.log1p(0.001) ** 2) / count)
    p = (t.max(axis=1)[:, None] >= t[0] * (1 - 1e-9)).mean(axis=0)
    found: Numbers = ((p <= 0.02) & (moved[0] >= math.log1p(0.01)))[None]
    return found


@dataclass(frozen=True)
class Design:
    """How a comparison measures and decides."""

    name: str
    found: Callable[[Numbers, Numbers], Numbers]
    processes: int = CompareSettings.processes
    fixed: bool = False
    """ABBA, and each further round backwards; else every round in an order drawn anew."""
    warm: bool = True
    """Every process measures in each round; else all of its rounds in one go, as a program does."""

    def compare(self, noise: Noise, cases: int, slower: float, chance: np.random.Generator) -> Numbers:
        """What is said of the cases, of which the first is so much slower on side B."""
        total = 2 * self.processes
        of_b = np.array([letter == "B" for letter in ("ABBA" * total)[:total]])
        orders = []
        for turn in range(ROUNDS):
            order = np.arange(total)[:: -1 if turn % 2 else 1] if self.fixed else chance.permutation(total)
            orders.append(np.argsort(order) + turn * total)
        turns = np.stack(orders, axis=1) if self.warm else np.tile(orders[0][:, None], (1, ROUNDS))
        times = np.median(noise(chance, turns, of_b, cases), axis=1)
        times[of_b, 0] += math.log1p(slower)
        return self.found(times[~of_b], times[of_b])


NOW, BEFORE = Design("now", now), Design("before", before, 5, fixed=True)
PROGRAMS = Design("now, programs", now, warm=False), Design("before, programs", before, 5, fixed=True, warm=False)
SPREADS = {f"{100 * a:g}% against {100 * b:g}%": normal(a, b) for a, b in ((0.001, 0.02), (0.005, 0.02), (0.01, 0.02))}
EQUAL = {f"spread {100 * each:g}%": normal(each, each) for each in (0.001, 0.003, 0.005, 0.007, 0.02)}
TIMES = {"drift": drifting, **{f"period {each}": periodic(each) for each in range(2, 9)}}
RECORDED = {
    "decode from 30 µs": recorded(False, "decode"),
    "prefill from 30 µs": recorded(False, "prefill"),
    "kernels below 30 µs": recorded(True, "decode", "rmsnorm", "rope"),
}


def row(design: Design, noise: Noise, slower: float, comparisons: int) -> list[str]:
    """For each number of cases the shares of comparisons in which it is said of any, or of the slower one."""
    found = []
    for cases in CASES:
        chance = np.random.default_rng(13)
        said = np.array([design.compare(noise, cases, slower, chance) for _ in range(comparisons)])
        found.append((said[:, :, 0] if slower else said.any(axis=2)).mean(axis=0))
    return [" ".join(f"{share:.3f}" for share in shares) for shares in zip(*found, strict=True)]


def main() -> None:
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    tables = (
        (0.0, {**EQUAL, **SPREADS}, (NOW, BEFORE)),
        (0.0, {**TIMES, **RECORDED}, (NOW, BEFORE, *PROGRAMS)),
        (0.02, EQUAL, (NOW, BEFORE)),
        (0.02, RECORDED, (NOW, BEFORE, *PROGRAMS)),
        (0.05, RECORDED, (NOW, BEFORE)),
    )
    for slower, noises, designs in tables:
        print(f"\n{comparisons} comparisons of {', '.join(map(str, CASES))} cases, the first slower by {slower:.0%}")
        heads = [
            head
            for each in designs
            for head in (each.name, "  gate at 3%", "  spread grew")[: 3 if each.found is now else 1]
        ]
        print(f"{'noise':22}" + "".join(f"{each:20}" for each in heads))
        for name, noise in noises.items():
            shares = [each for design in designs for each in row(design, noise, slower, comparisons)]
            print(f"{name:22}" + "".join(f"{each:20}" for each in shares), flush=True)


if __name__ == "__main__":
    statistics.relabellings = functools.cache(relabellings)
    main()
