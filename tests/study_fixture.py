"""Results of a study to be changed: those of the recorded one (artifacts/recorded/study-flashinfer-quick)."""

import dataclasses
import random
from pathlib import Path
from typing import Any

from fiprof.model import json_file
from fiprof.model.results import CaseResult, EnvironmentInfo, KernelResults, Times, read
from tests.recorded_runs import STUDY


def times(median_us: float, *, relative: float = 0.005, seed: str = "") -> Times:
    """Times around a median, with an interval of ± relative."""
    noise = random.Random(seed)
    each = [median_us * (1 + relative * (noise.random() - 0.5)) for _ in range(6)]
    return Times(median_us, median_us * (1 - relative), median_us * (1 + relative), 0.97, 60, 6, each)


INFO = read(STUDY / "results/environment_info.json", EnvironmentInfo)
CASES = {name: read(STUDY / f"results/{name}.json", KernelResults).cases for name in INFO.workloads}
"""Workload -> its cases."""


def make_case(workload: str, params: dict[str, Any], us: float) -> CaseResult:
    """A case of these parameters with the results of another one and this time."""
    words = (f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in params.items())
    case = f"{workload}[{','.join(words)}]"
    plain = times(us, seed=case)
    return dataclasses.replace(CASES["rope"][0], id=case, workload=workload, params=params, plain=plain)


def write_study(folder: Path, cases: dict[str, list[CaseResult]], **info: Any) -> Path:
    """A study folder with these results and no runs. info: fields of environment_info.json that differ."""
    (folder / "results").mkdir(parents=True)
    for workload, found in cases.items():
        results = KernelResults(workload, "flashinfer", found, fiprof="0.1.0")
        json_file.write(folder / f"results/{workload}.json", results)
    environment = dataclasses.replace(INFO, workloads=list(cases), **info)
    json_file.write(folder / "results/environment_info.json", environment)
    return folder
