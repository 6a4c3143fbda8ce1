"""Results of a study to be changed: those of the recorded one (artifacts/recorded/study-flashinfer-quick)."""

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fiprof.flashinfer.data import JitResults
from fiprof.model import json_file
from fiprof.model.results import CaseResult, EnvironmentInfo, KernelResults, Times, read
from tests.recorded_runs import STUDY

Change = Callable[[CaseResult], CaseResult]


def times(median_us: float, *, relative: float = 0.005, rounds: int = 6, seed: str = "") -> Times:
    """Times around a median, with an interval of ± relative."""
    noise = random.Random(seed)
    each = [median_us * (1 + relative * (noise.random() - 0.5)) for _ in range(rounds)]
    return Times(median_us, median_us * (1 - relative), median_us * (1 + relative), 0.97, 10 * rounds, rounds, each)


@functools.cache
def whole_matrix() -> dict[str, list[CaseResult]]:
    """Workload -> its cases, every one of the packaged study."""
    return {name: read(STUDY / f"results/{name}.json", KernelResults).cases for name in INFO.workloads}


INFO = read(STUDY / "results/environment_info.json", EnvironmentInfo)
JIT_RESULTS = read(STUDY / "results/jit_analysis.json", JitResults)


def make_case(workload: str, params: dict[str, Any], us: float) -> CaseResult:
    """A case of these parameters with the results of another one and this time."""
    words = (f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in params.items())
    case = f"{workload}[{','.join(words)}]"
    plain = times(us, seed=case)
    return dataclasses.replace(whole_matrix()["rope"][0], id=case, workload=workload, params=params, plain=plain)


def write_study(
    folder: Path,
    cases: dict[str, list[CaseResult]] | None = None,
    *,
    change: Change | None = None,
    only: Iterable[str] | None = None,
    jit: JitResults | None = JIT_RESULTS,
    **info: Any,
) -> Path:
    """A study folder with results and no runs.

    change: applied to every case. only: these workloads. info: fields of environment_info.json that differ.
    """
    results = folder / "results"
    results.mkdir(parents=True)
    everything = whole_matrix() if cases is None else cases
    chosen = {name: found for name, found in everything.items() if only is None or name in set(only)}
    for workload, found in chosen.items():
        changed = [change(case) if change else case for case in found]
        json_file.write(results / f"{workload}.json", KernelResults(workload, "flashinfer", changed, fiprof="0.1.0"))
    if jit is not None:
        json_file.write(results / "jit_analysis.json", jit)
    json_file.write(results / "environment_info.json", dataclasses.replace(INFO, workloads=list(chosen), **info))
    return folder
