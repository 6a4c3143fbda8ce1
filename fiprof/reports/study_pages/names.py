"""How a study's cases, parameters, pairs and runs are called in its documents, and where they link to."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.study import Absence, Absent, Params, Study, Value, is_number, same
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.model import knowledge
from fiprof.model.results import CaseResult, KernelVerdict
from fiprof.reports.pages.page import Link, PageLink, RowLink
from fiprof.reports.words import phrase, worded

# Cases


def label(study: Study, case: CaseResult, *, workload: bool = True, without: Sequence[str] = ()) -> str:
    """E.g. ``decode batch 32, KV 2,048, GQA 32/8, tensor cores``: what tells a case from its workload's others."""
    varied = study.varied(case.workload)
    words = parameter_words({k: v for k, v in case.params.items() if k in varied and k not in without}, case.params)
    return " ".join([case.workload, *([words] if words else [])]) if workload else words or case.workload


def short(study: Study, case: CaseResult, *, without: Sequence[str] = ()) -> str:
    """The same for a narrow column: ``256x8k GQA TC graph``, the axes' values and then the options."""
    axes = "x".join(
        _short_number(case.params[name])
        for name in study.axes(case.workload)
        if name in case.params and name not in without
    )
    options = [
        _short_option(name, case.params[name], case.params)
        for name in study.options(case.workload)
        if name in case.params and name not in without
    ]
    return " ".join(filter(None, [axes, *options])) or case.workload


def short_key(study: Study, workload: str, *, without: Sequence[str] = ()) -> str:
    """What the numbers of :func:`short` are: ``batch x KV length``."""
    return " x ".join(axis_name(name) for name in study.axes(workload) if name not in without)


def pair_label(study: Study, one: CaseResult, other: CaseResult, *, without: Sequence[str] = ()) -> str:
    """What two cases have in common, and along which axis they differ: ``batch 1, KV 512 to 2,048``.

    Options that differ are left out, because whoever shows the pair has named them; and so are those in ``without``.
    """
    differ = [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]
    axes = [name for name in differ if name in study.axes(one.workload)]
    common = label(study, one, workload=False, without=(*differ, *without))
    moves = [f"{parameter_word(name, other.params[name], other.params)} to {one.params[name]:,}" for name in axes]
    return ", ".join(filter(None, ["" if common == one.workload else common, *moves])) or one.workload


def short_pair(study: Study, one: CaseResult, other: CaseResult) -> str:
    """The same for a narrow column: ``1x512 graph`` in common, or ``1x512 GQA to 1x2k GQA`` along an axis."""
    differ = [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]
    if any(name in study.axes(one.workload) for name in differ):
        return f"{short(study, other)} to {short(study, one)}"
    return short(study, one, without=differ)


def cite(study: Study, case: CaseResult, text: str = "") -> Link:
    """The case's name, leading to its row among all cases. text: in place of its whole name."""
    return RowLink(text or label(study, case), f"analysis#cases-{case.workload}", case_anchor(study, case))


def case_anchor(study: Study, case: CaseResult) -> str:
    """Of its row in the table of all cases."""
    return f"case-{slug(f'{case.workload} {short(study, case)}')}"


def slug(words: str) -> str:
    """Words as a part of an anchor."""
    return "".join(char if char.isalnum() else "-" for char in words.lower()).strip("-")


def run_link(study: Study, run: str) -> str:
    """The name of a run, a link where its folder is beside the results."""
    folder = study.folder / run
    if not run or not (folder / "run.json").is_file():
        return run
    if all((folder / f"report.{suffix}").is_file() for suffix in ("md", "html")):
        return PageLink(run, f"../{run}/report")
    return Link(run, f"../{run}/run.json")


# What is known of them


def title(workload: str) -> str:
    """A workload's name in words."""
    known = knowledge.of_workload(workload)
    return known.title if known else phrase("study.unknown_workload", workload=workload)


def verdict_title(verdict: KernelVerdict | None) -> str:
    """E.g. ``memory-bound (DRAM)``; empty without a verdict."""
    if verdict is None:
        return ""
    return worded(named(Kind(verdict.kind), Part(verdict.part) if verdict.part else None))


def confidence(study: Study) -> str:
    """Of the cases' intervals: ``95%``, or ``75 to 95%``."""
    found = [case.plain.confidence for case in study.measured if case.plain is not None]
    low, high = min(found, default=0.0), max(found, default=0.0)
    return f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{100 * low:.0f} to {high:.0%}"


def absence_words(found: Absence) -> str:
    """Why there is nothing, as the end of a sentence."""
    wanted = dict(found.params)
    others = {knowledge.of_parameter(name).of for name in wanted}
    params = parameter_words({name: value for name, value in wanted.items() if name not in others}, wanted)
    why = found.why if params or found.why is not Absent.PARAMETERS else Absent.WORKLOAD
    more = phrase("study.more_reasons", count=len(found.reasons) - 1) if len(found.reasons) > 1 else ""
    return phrase(
        f"absent.{why.name.lower()}",
        workload=found.workload,
        params=params,
        count=found.count,
        reason="".join([*found.reasons[:1], more]),
        axis=found.axis,
        factor=found.factor,
        of=found.of,
    )


# Parameters


def axis_name(name: str) -> str:
    """A parameter as an axis, e.g. ``KV length``."""
    return knowledge.of_parameter(name).axis or name


def parameter_words(params: Params, everything: Params) -> str:
    """E.g. ``batch 32, KV 2,048, GQA 32/8``. everything: all parameters, to name a ratio by."""
    return ", ".join(filter(None, (parameter_word(name, value, everything) for name, value in params.items())))


def parameter_word(name: str, value: Value, everything: Params) -> str:
    """One parameter's value, as an engineer says it; nothing for a switch that is off and has no other name."""
    known = knowledge.of_parameter(name)
    if kind := _ratio_name(known, value, everything):
        return f"{kind} {everything[known.of]}/{value}"
    if value is False:
        return known.off
    return known.of_value(value) or (name if value is True else f"{name}={value}")


def value_word(name: str, value: Value, params: Params) -> str:
    """A parameter's value in words, a switch that is off too."""
    return parameter_word(name, value, params) or f"no {parameter_word(name, True, params)}"


def _ratio_name(known: knowledge.ParameterName, value: Value, everything: Params) -> str:
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
    known = knowledge.of_parameter(name)
    if isinstance(value, bool):
        return (known.short_on or name) if value else known.short_off
    if kind := _ratio_name(known, value, everything):
        return kind
    return str(value) if known.value == "{}" else f"{name}={_short_number(value)}"
