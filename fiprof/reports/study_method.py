"""How a study was measured, on which machine, and how sure its times are: figures for its documents."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from fiprof.analysis.study import Study, half_width, label, least_bytes
from fiprof.model import kernel_info, packs
from fiprof.model.manifest import read_manifest
from fiprof.model.results import ENVIRONMENT
from fiprof.reports.markdown_html import Markdown, link
from fiprof.text import byte_words, duration, join_words, number, spread

DRIFT = 0.02
"""Spread of a case's rounds, as a part of its time, from which it is named. fiprof's own choice."""
MOST_WARNINGS = 3
"""Warnings that are shown; more are counted."""


def machine(study: Study) -> dict[str, Any]:
    """What the documents say of the machine, the runs and the files, by the templates' names."""
    info, environment = study.info, study.info.environment
    groups = ("gpu", "packages", "tools", "host")
    gpu, packages, *_ = known = [environment.get(group) or {} for group in groups]
    states = [(environment.get("gpu_state") or {}).get(when) or {} for when in ("before", "after")]

    names = {name: words for found in packs.parts("packages").values() for name, words in found.items()}
    cuda, driver = gpu.get("cuda"), states[0].get("driver") or environment.get("driver")
    versions = [f"{words} {packages[name]}" for name, words in names.items() if packages.get(name)]
    facts = [gpu.get("name"), *versions, cuda and f"CUDA {cuda}", driver and f"driver {driver}"]
    facts += [f"{info.cases:,} cases measured, {info.skipped:,} skipped"]
    facts += [f"{info.started.replace('T', ' ').partition('+')[0]}, {duration(info.duration_s * 1e6)}"]

    skipped = [case for cases in study.by_workload.values() for case in cases if case.skipped]
    cautions = [
        *(f"Not all runs had the same {what}: {join_words(values)}." for what, values in info.mixed.items()),
        *(f"{case.id}: {case.skipped}" for case in skipped),
        *(f"{run}: {text}" for run, texts in info.run_warnings.items() for text in texts),
    ]
    if (more := len(cautions) - MOST_WARNINGS) > 0:
        cautions = [*cautions[:MOST_WARNINGS], f"{more} more warnings are in results/{ENVIRONMENT}."]
    if info.status != "complete":
        missing = join_words([f"{count} {name}" for name, count in info.missing.items()])
        cautions.insert(0, f"The study is not complete: not measured yet are {missing or 'some'} cases.")

    def run_link(name: str) -> Markdown | str:
        """The name of a run, a link where its folder is beside the results."""
        folder = study.folder / name
        if not name or not (folder / "run.json").is_file():
            return name
        whole = all((folder / f"report.{suffix}").is_file() for suffix in ("md", "html"))
        return link(name, f"../{name}/{'report.md' if whole else 'run.json'}")

    held: dict[str, list[str]] = {name: [] for name in info.runs}
    for case in study.measured:
        held.setdefault(case.run, []).append(case.workload)
    files: list[tuple[str, str, int | None]] = [
        (f"{each.workload}.json", kernel_info.title(each.workload), len(study.of(each.workload)))
        for each in study.results
    ]
    files += [*packs.joined("files", study), (ENVIRONMENT, "where and how it was measured", None)]

    rows = []
    for group, table in zip(groups, known, strict=True):
        for key, item in table.items() if isinstance(table, dict) else ():
            if _known(key, item):
                of_bytes = key.endswith("_bytes") and isinstance(item, int | float)
                shown = byte_words(item) if of_bytes else _word(item)
                name = key.removesuffix("_bytes").replace("_", " ")
                rows.append((f"{'GPU ' if group == 'gpu' else ''}{name}", shown))
    clocks = ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "temperature_c")
    return {
        "facts": " · ".join(map(str, filter(None, facts))),
        "cautions": cautions,
        "runs": [(run_link(name), len(cases), ", ".join(dict.fromkeys(cases)) or "–") for name, cases in held.items()],
        "files": [(link(name, f"../results/{name}"), *rest) for name, *rest in files],
        "versions": [*rows, ("fiprof", info.fiprof or "–")],
        "settings": ", ".join(f"{name} {_word(item)}" for name, item in info.settings.items() if _known(name, item)),
        "clocks": [
            (name.replace("_", " "), *(state.get(name) for state in states))
            for name in clocks
            if any(state.get(name) is not None for state in states)
        ],
        # Whether something else was on the GPU before or after.
        "others": any(state.get("other_processes") for state in states),
        # None where the runs are not beside the results.
        "actions": [
            (run_link(run), action.step, action.started.partition("T")[2][:8], action.duration_s, action.outcome)
            for run in info.runs
            if (study.folder / run / "run.json").is_file()
            for action in read_manifest(study.folder / run).actions
        ],
    }


def certainty(study: Study) -> dict[str, Any]:
    """How the cases were timed, and how far their times can be trusted, by the templates' names."""
    cases = [(case, case.plain) for case in study.measured if case.plain]
    if not cases:
        return {"checked": [], "drift": None, "gaps": None, "flushed": "", "slow_clocks": None, "warm": (0, 0)}
    confidences = sorted({plain.confidence for _, plain in cases})
    slow = [case.slow_clock_rounds for case, _ in cases if case.slow_clock_rounds is not None]
    flushed = [case.ncu_us / case.nsys.median_us for case, _ in cases if case.nsys and case.ncu_us]
    found = {
        "rounds": _range(plain.rounds for _, plain in cases),
        "counts": _range(plain.count for _, plain in cases),
        "confidence": " to ".join(dict.fromkeys(f"{each:.0%}" for each in (confidences[0], confidences[-1]))),
        # Relative errors against the references.
        "checked": [case.relative_error for case, _ in cases if case.relative_error is not None],
        "widths": spread([half_width(case) for case, _ in cases], ".1%"),
        "widest": label(study, max((case for case, _ in cases), key=half_width)),
        # Rounds that began before the SM clock was back, and all of them; None where that was not recorded.
        "slow_clocks": (sum(slow), sum(plain.rounds for _, plain in cases)) if slow else None,
        # ncu's times over nsys's.
        "flushed": spread(flushed) if flushed else "",
        # Cases whose data fits in L2, and cases that move their least bytes faster than DRAM's peak.
        "warm": (
            sum(0 < least_bytes(case) <= (study.l2_bytes or 0) for case, _ in cases),
            sum((case.gb_per_s_roof_share or 0) > 1 for case, _ in cases),
        ),
    }

    drift = gaps = None
    rounds = [(plain.round_medians_us, case, plain) for case, plain in cases if len(plain.round_medians_us) > 1]
    if drifts := [((max(each) - min(each)) / plain.median_us, case) for each, case, plain in rounds]:
        most, moved = max(drifts, key=lambda item: item[0])
        moves = [each[-1] / each[0] - 1 for each, _, _ in rounds if each[0] > 0] or [0.0]
        drift = {
            "spread": spread([part for part, _ in drifts], ".1%"),
            "moved": sum(part >= DRIFT for part, _ in drifts),
            "cases": len(drifts),
            "limit": f"{DRIFT:.0%}",
            "most": f"{most:.1%}",
            "case": label(study, moved),
            "trend": f"{median(moves):+.2%}",
            "slower": sum(move > 0 for move in moves),
        }
    # How much longer an iteration's plain time is than its kernels' under nsys.
    traced = [(plain.median_us, case.nsys.median_us, case) for case, plain in cases if case.nsys]
    if longer := sorted(((plain - nsys, case) for plain, nsys, case in traced), key=lambda item: item[0]):
        (least, short), (most, long) = longer[0], longer[-1]
        gaps = {
            "median": number(median(gap for gap, _ in longer)),
            "part": f"{median(1 - nsys / plain for plain, nsys, _ in traced):.1%}",
            "least": number(least),
            "short": label(study, short),
            "most": number(most),
            "long": label(study, long),
        }
    return {**found, "drift": drift, "gaps": gaps}


def _known(key: str, item: object) -> bool:
    """Neither what is unknown nor the interpreter's path."""
    return item is not None and not key.endswith("executable") and not (key == "python" and "/" in str(item))


def _word(item: object) -> str:
    if isinstance(item, list | tuple):
        return " and ".join(map(str, item))
    if isinstance(item, bool):
        return "yes" if item else "no"
    return f"{item:,}" if isinstance(item, int) else str(item)


def _range(values: Iterable[int]) -> str:
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(f"{each:,}" for each in (ordered[0], ordered[-1])))
