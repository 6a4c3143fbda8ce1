"""How a study's cases, pairs of cases and parameters are called, by what packs know of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fiprof.model import kernel_info
from fiprof.model.results import CaseResult

Value = bool | int | float | str
Params = Mapping[str, Value]


class Varying(Protocol):
    """What says which parameters tell a workload's cases apart: a :class:`~fiprof.analysis.study.Study`."""

    def varied(self, workload: str) -> Mapping[str, Sequence[Value]]: ...
    def axes(self, workload: str) -> Sequence[str]: ...
    def options(self, workload: str) -> Sequence[str]: ...


def is_number(value: Value | None) -> bool:
    """Whether a value is a size; a switch is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Value, other: Value) -> bool:
    """Whether two values of a parameter are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


# Cases


def label(study: Varying, case: CaseResult, *, workload: bool = True, without: Sequence[str] = ()) -> str:
    """E.g. ``decode batch 32, KV 2,048, GQA 32/8, tensor cores``: what tells a case from its workload's others."""
    varied = study.varied(case.workload)
    words = parameter_words({k: v for k, v in case.params.items() if k in varied and k not in without}, case.params)
    return " ".join([case.workload, *([words] if words else [])]) if workload else words or case.workload


def short(study: Varying, case: CaseResult, *, without: Sequence[str] = ()) -> str:
    """The same for a narrow column: ``256x8k GQA TC graph``, the axes' values and then the options."""
    params = {name: value for name, value in case.params.items() if name not in without}
    axes = "x".join(_short_number(params[name]) for name in study.axes(case.workload) if name in params)
    options = (
        _short_option(name, params[name], case.params) for name in study.options(case.workload) if name in params
    )
    return " ".join(filter(None, [axes, *options])) or case.workload


def pair_label(study: Varying, one: CaseResult, other: CaseResult, *, without: Sequence[str] = ()) -> str:
    """What two cases have in common, and along which axis they differ: ``batch 1, KV 512 to 2,048``.

    Options that differ are left out, because whoever shows the pair has named them; and so are those in ``without``.
    """
    differ = _different(one, other)
    axes = [name for name in differ if name in study.axes(one.workload)]
    common = label(study, one, workload=False, without=(*differ, *without))
    moves = [f"{parameter_word(name, other.params[name], other.params)} to {one.params[name]:,}" for name in axes]
    return ", ".join(filter(None, ["" if common == one.workload else common, *moves])) or one.workload


def short_pair(study: Varying, one: CaseResult, other: CaseResult) -> str:
    """The same for a narrow column: ``1x512 graph`` in common, or ``1x512 GQA to 1x2k GQA`` along an axis."""
    differ = _different(one, other)
    if any(name in study.axes(one.workload) for name in differ):
        return f"{short(study, other)} to {short(study, one)}"
    return short(study, one, without=differ)


def _different(one: CaseResult, other: CaseResult) -> list[str]:
    return [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]


# Parameters


def title(workload: str) -> str:
    """A workload's name in words."""
    known = kernel_info.of_workload(workload)
    return known.title if known else f"Workload {workload}"


def axis_name(name: str) -> str:
    """A parameter as an axis, e.g. ``KV length``; a switch by what it switches on."""
    known = kernel_info.of_parameter(name)
    return known.axis or known.on or name


def parameter_words(params: Params, everything: Params) -> str:
    """E.g. ``batch 32, KV 2,048, GQA 32/8``. everything: all parameters, to name a ratio by."""
    return ", ".join(filter(None, (parameter_word(name, value, everything) for name, value in params.items())))


def parameter_word(name: str, value: Value, everything: Params) -> str:
    """One parameter's value, as an engineer says it; nothing for a switch that is off and has no other name."""
    known = kernel_info.of_parameter(name)
    if kind := _ratio_name(known, value, everything):
        return f"{kind} {everything[known.of]}/{value}"
    if value is False:
        return known.off
    return known.of_value(value) or (name if value is True else f"{name}={value}")


def value_word(name: str, value: Value, params: Params) -> str:
    """A parameter's value in words, a switch that is off too."""
    return parameter_word(name, value, params) or f"no {parameter_word(name, True, params)}"


def _ratio_name(known: kernel_info.ParameterName, value: Value, everything: Params) -> str:
    whole = everything.get(known.of)
    if not known.of or not is_number(whole):
        return ""
    equal, one, between = known.ratios
    return equal if whole == value else one if value == 1 else between


def _short_number(value: Value) -> str:
    """``8k`` for 8,192: powers of two are read so."""
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value // 1024}k"
    return str(value)


def _short_option(name: str, value: Value, everything: Params) -> str:
    known = kernel_info.of_parameter(name)
    if isinstance(value, bool):
        return (known.short_on or name) if value else known.short_off
    if kind := _ratio_name(known, value, everything):
        return kind
    return str(value) if known.value == "{}" else f"{name}={_short_number(value)}"
