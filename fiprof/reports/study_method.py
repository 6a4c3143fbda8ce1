"""How a study was measured, on which machine, and how sure its times are: figures for its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from fiprof.analysis.study import Study, half_width, label, least_bytes
from fiprof.model import kernel_info, packs
from fiprof.model.manifest import read_manifest
from fiprof.model.results import ENVIRONMENT, CaseResult
from fiprof.reports.markdown_html import Markdown, link
from fiprof.reports.view import Value
from fiprof.text import byte_words, duration, join_words, number, spread

DRIFT = 0.02
"""Spread of a case's rounds, as a part of its time, from which it is named. fiprof's own choice."""
MOST_WARNINGS = 3
"""Warnings that are shown; more are counted."""


@dataclass(frozen=True)
class Method:
    """A study's machine, settings and spread."""

    study: Study

    def value(self, *path: str) -> Any:
        """A value of the environment by its path of keys; None where it is not there."""
        found: Any = self.study.info.environment
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    @property
    def facts(self) -> str:
        """GPU, versions, when it was measured, and how much, in a line."""
        info = self.study.info
        names = {name: words for found in packs.parts("packages").values() for name, words in found.items()}
        versions = [f"{words} {found}" for name, words in names.items() if (found := self.value("packages", name))]
        cuda = self.value("gpu", "cuda")
        driver = (self.value("gpu_state", "before") or {}).get("driver") or self.value("driver")
        when = info.started.replace("T", " ").partition("+")[0]
        machine = [self.value("gpu", "name"), *versions, cuda and f"CUDA {cuda}", driver and f"driver {driver}"]
        cases = f"{info.cases:,} cases measured, {info.skipped:,} skipped"
        return " · ".join([*map(str, filter(None, machine)), cases, f"{when}, {duration(info.duration_s * 1e6)}"])

    @property
    def cautions(self) -> list[str]:
        """What makes the study's numbers doubtful, or says what is missing; many are counted."""
        info = self.study.info
        missing = join_words([f"{count} {name}" for name, count in info.missing.items()])
        skipped = [case for cases in self.study.by_workload.values() for case in cases if case.skipped]
        found = [
            *(f"Not all runs had the same {what}: {join_words(values)}." for what, values in info.mixed.items()),
            *(f"{case.id}: {case.skipped}" for case in skipped),
            *(f"{run}: {text}" for run, texts in info.run_warnings.items() for text in texts),
        ]
        if (more := len(found) - MOST_WARNINGS) > 0:
            found = [*found[:MOST_WARNINGS], f"{more} more warnings are in results/{ENVIRONMENT}."]
        if info.status != "complete":
            found.insert(0, f"The study is not complete: not measured yet are {missing or 'some'} cases.")
        return found

    def run(self, name: str) -> Markdown | str:
        """The name of a run, a link where its folder is beside the results."""
        folder = self.study.folder / name
        if not name or not (folder / "run.json").is_file():
            return name
        whole = all((folder / f"report.{suffix}").is_file() for suffix in ("md", "html"))
        return link(name, f"../{name}/{'report.md' if whole else 'run.json'}")

    @property
    def runs(self) -> list[tuple[Value, ...]]:
        """Run, how many cases, and of which workloads."""
        found: dict[str, list[str]] = {name: [] for name in self.study.info.runs}
        for case in self.study.measured:
            found.setdefault(case.run, []).append(case.workload)
        return [(self.run(name), len(cases), ", ".join(dict.fromkeys(cases)) or "–") for name, cases in found.items()]

    @property
    def files(self) -> list[tuple[Value, ...]]:
        """Results file, what it holds, and how many measurements."""
        rows: list[tuple[Value, ...]] = [
            (
                f"{each.workload}.json",
                kernel_info.title(each.workload),
                sum(case.plain is not None for case in each.cases),
            )
            for each in self.study.results
        ]
        rows += [*packs.joined("files", self.study), (ENVIRONMENT, "where and how it was measured", None)]
        return [(link(name, f"../results/{name}"), *rest) for name, *rest in rows]

    # The machine

    @property
    def versions(self) -> list[tuple[str, str]]:
        """What and which version, of the GPU, packages, tools and host."""
        rows = []
        for group in ("gpu", "packages", "tools", "host"):
            found = self.value(group)
            for key, item in found.items() if isinstance(found, dict) else ():
                if _known(key, item):
                    shown = (
                        byte_words(item) if key.endswith("_bytes") and isinstance(item, int | float) else _word(item)
                    )
                    prefix = "GPU " if group == "gpu" else ""
                    rows.append((f"{prefix}{key.removesuffix('_bytes').replace('_', ' ')}", shown))
        return [*rows, ("fiprof", self.study.info.fiprof or "–")]

    @property
    def settings(self) -> str:
        return ", ".join(
            f"{name} {_word(item)}" for name, item in self.study.info.settings.items() if _known(name, item)
        )

    @property
    def clocks(self) -> list[tuple[Value, ...]]:
        """Clocks and temperature before and after."""
        states = [self.value("gpu_state", when) or {} for when in ("before", "after")]
        names = ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "temperature_c")
        found = [(name.replace("_", " "), *(state.get(name) for state in states)) for name in names]
        return [row for row in found if any(value is not None for value in row[1:])]

    @property
    def others(self) -> bool:
        """Whether something else was on the GPU before or after."""
        return any((self.value("gpu_state", when) or {}).get("other_processes") for when in ("before", "after"))

    @property
    def slow_clocks(self) -> tuple[int, int] | None:
        """Rounds that began before the SM clock was back, and all of them; None where that was not recorded."""
        counted = [case.slow_clock_rounds for case in self.study.measured if case.slow_clock_rounds is not None]
        rounds = sum(case.plain.rounds for case in self.study.measured if case.plain)
        return (sum(counted), rounds) if counted else None

    @property
    def actions(self) -> list[tuple[Value, ...]]:
        """Run, step, start, seconds and outcome of every command; none where the runs are not beside the results."""
        return [
            (self.run(run), action.step, action.started.partition("T")[2][:8], action.duration_s, action.outcome)
            for run in self.study.info.runs
            if (self.study.folder / run / "run.json").is_file()
            for action in read_manifest(self.study.folder / run).actions
        ]

    # Measuring

    @property
    def rounds(self) -> str:
        return _range([case.plain.rounds for case in self.study.measured if case.plain])

    @property
    def counts(self) -> str:
        return _range([case.plain.count for case in self.study.measured if case.plain])

    @property
    def confidence(self) -> str:
        """Confidence of the cases' intervals: ``95%``, or ``75% to 95%``."""
        found = {f"{case.plain.confidence:.0%}": case.plain.confidence for case in self.study.measured if case.plain}
        low, high = (choose(found, key=lambda word: found[word]) for choose in (min, max))
        return low if low == high else f"{low} to {high}"

    @property
    def checked(self) -> list[float]:
        """Relative errors against the references."""
        return [case.relative_error for case in self.study.measured if case.relative_error is not None]

    @property
    def widths(self) -> str:
        return spread([half_width(case) for case in self.study.measured], ".1%")

    @property
    def widest(self) -> str:
        return label(self.study, max(self.study.measured, key=half_width))

    @cached_property
    def drifts(self) -> list[tuple[float, CaseResult]]:
        """How far each case's rounds are apart, as a part of its time; the largest first."""
        found = [
            ((max(case.plain.round_medians_us) - min(case.plain.round_medians_us)) / case.plain.median_us, case)
            for case in self.study.measured
            if case.plain and len(case.plain.round_medians_us) > 1
        ]
        return sorted(found, key=lambda item: -item[0])

    @property
    def drift(self) -> dict[str, Any]:
        """How far rounds are apart, which case moved most, and whether the last round is slower than the first."""
        rounds = [case.plain.round_medians_us for _, case in self.drifts if case.plain]
        moves = [each[-1] / each[0] - 1 for each in rounds if each[0] > 0] or [0.0]
        return {
            "spread": spread([part for part, _ in self.drifts], ".1%"),
            "moved": sum(part >= DRIFT for part, _ in self.drifts),
            "cases": len(self.drifts),
            "limit": f"{DRIFT:.0%}",
            "most": f"{self.drifts[0][0]:.1%}",
            "case": label(self.study, self.drifts[0][1]),
            "trend": f"{median(moves):+.2%}",
            "slower": sum(move > 0 for move in moves),
        }

    @property
    def gaps(self) -> dict[str, str] | None:
        """How much longer an iteration's plain time is than its kernels' under nsys."""
        cases = [
            (case, case.plain.median_us, case.nsys.median_us)
            for case in self.study.measured
            if case.nsys and case.plain
        ]
        found = sorted(
            ((plain - nsys, label(self.study, case)) for case, plain, nsys in cases), key=lambda item: item[0]
        )
        if not found:
            return None
        (least, short), (most, long) = found[0], found[-1]
        return {
            "median": number(median(gap for gap, _ in found)),
            "part": f"{median(1 - nsys / plain for _, plain, nsys in cases):.1%}",
            "least": number(least),
            "short": short,
            "most": number(most),
            "long": long,
        }

    @property
    def flushed(self) -> str:
        """ncu's times over nsys's; empty where one is missing."""
        found = [case.ncu_us / case.nsys.median_us for case in self.study.measured if case.nsys and case.ncu_us]
        return spread(found) if found else ""

    @property
    def warm(self) -> tuple[int, int]:
        """Cases whose data fits in L2, and cases that move their least bytes faster than DRAM's peak."""
        fits = sum(0 < least_bytes(case) <= (self.study.l2_bytes or 0) for case in self.study.measured)
        return fits, sum((case.gb_per_s_roof_share or 0) > 1 for case in self.study.measured)


def _known(key: str, item: object) -> bool:
    """Neither what is unknown nor the interpreter's path."""
    return item is not None and not key.endswith("executable") and not (key == "python" and "/" in str(item))


def _word(item: object) -> str:
    if isinstance(item, list | tuple):
        return " and ".join(map(str, item))
    if isinstance(item, bool):
        return "yes" if item else "no"
    return f"{item:,}" if isinstance(item, int) else str(item)


def _range(values: Sequence[int]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
