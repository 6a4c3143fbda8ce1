"""The sizes of a study as maps: at each the fastest way, and its share of the roof."""

from __future__ import annotations

from collections.abc import Collection

from fiprof.analysis import alternatives
from fiprof.analysis.shapes import fastest_cases
from fiprof.analysis.study import Params, Study, is_number, main_kernel
from fiprof.model import knowledge
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Chart
from fiprof.reports.study_pages.names import axis_name, parameter_word, parameter_words, verdict_title
from fiprof.reports.study_pages.numbers import plain_time


def sweep(study: Study, workload: str, *, anchor: str) -> Chart | None:
    """A map of a problem over its last size, a row for each model shape and value of its other sizes.

    None where no size was varied.
    """
    from fiprof.reports.pages.charts_scaling import Cell, heat_map

    found = [case for case in fastest_cases(study) if _problem(case)[0] == workload]
    defining = [
        name
        for name in dict.fromkeys(name for case in found for name in case.params)
        if len({_problem(case)[1].get(name) for case in found}) > 1
    ]
    sizes = [name for name in defining if all(is_number(case.params.get(name)) for case in found)]
    sizes = [name for name in sizes if not knowledge.of_parameter(name).of]
    if not sizes:
        return None
    *rows, across = sizes
    models = [name for name in defining if name not in sizes]
    cells = []
    order = {word: i for i, word in enumerate(dict.fromkeys(_model(case, models) for case in found))}
    for case in sorted(found, key=lambda case: order[_model(case, models)]):
        kernel = main_kernel(case)
        up = [_model(case, models), *(f"{case.params[name]:,}" for name in rows)]
        details = [("time", plain_time(case)), ("bound", verdict_title(kernel.verdict) if kernel else "")]
        words = _way(study, case)
        share = kernel.roof_share if kernel and kernel.roof else case.gb_per_s_roof_share
        cells.append(
            Cell(f"{case.params[across]:,}", ", ".join(filter(None, up)) or workload, share, words, tuple(details))
        )
    y = ", ".join(["model"] * bool(models) + [axis_name(name) for name in rows]) or "kernel"
    return heat_map(f"{workload}: fastest way, share of the roof", cells, x=axis_name(across), y=y, anchor=anchor)


def _problem(case: CaseResult) -> tuple[str, Params]:
    workload, defining = alternatives.problem(case.workload, case.params)
    names = {name for name, _, _ in defining}
    return workload, {name: value for name, value in case.params.items() if name in names}


def _model(case: CaseResult, models: Collection[str]) -> str:
    """Its shape in words: what defines the problem and is no size."""
    return parameter_words({k: v for k, v in _problem(case)[1].items() if k in models}, case.params)


def _way(study: Study, case: CaseResult) -> str:
    """The options that a case was solved with; the workload where it is another one that solves the same problem."""
    workload, _ = alternatives.problem(case.workload, case.params)
    known = knowledge.of_workload(case.workload)
    words = [case.workload] if case.workload != workload else []
    words += [
        parameter_word(name, case.params[name], case.params)
        for name in study.options(case.workload)
        if name in case.params and name not in _problem(case)[1] and known and name in known.options
    ]
    return ", ".join(filter(None, words))
