"""The settings of a measurement: a field of a class below, and a row of ``settings.csv`` that says the rest.

They make the option of ``fiprof collect``, the key of a study's ``[settings]``, the field of the request and of
``run.json``, the row of a report's settings and the words of its reproduction guide. A setting that only goes on to a
tool names the tool's option there, and no other file knows of it.
"""

import csv
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

ToolName = Literal["nsys", "ncu"]
Declaring: TypeAlias = "Settings | ProfileSettings | CompareSettings"


@dataclass(frozen=True)
class Settings:
    """What a collect and a study have in common."""

    ncu_set: Literal["full", "quick"] = "full"
    iterations: int = 20
    warmup: int = 3
    seed: int = 0
    check: bool = True
    clock_control: Literal["none", "base", "boost"] = "none"
    cache_control: Literal["all", "none"] = "all"
    warp_sampling_interval: int | None = None
    timeout_s: float = 1800.0
    gpu_metrics_hz: int = 10_000
    rounds: int = 1
    budget_ms: float | None = None


@dataclass(frozen=True)
class CollectSettings(Settings):
    """How ``fiprof collect`` measures."""

    tools: tuple[ToolName, ...] = ("nsys", "ncu")
    measure_iterations: int = 1
    gpu: int | None = None
    python: str = sys.executable
    keep_going: bool = False


@dataclass(frozen=True)
class ProfileSettings:
    """How ``fiprof profile`` measures a program."""

    tools: tuple[ToolName, ...] = ("nsys", "ncu")
    cover_pct: float = 80.0
    launches: int | None = None
    ncu_budget_s: float | None = None
    kernel: str | None = None
    ranges: tuple[str, ...] = ()
    by_range: bool = False
    skip: int | None = None
    count: int = 1
    ncu_set: Literal["full", "quick"] = "quick"
    sections: tuple[str, ...] = ()
    replay_mode: Literal["kernel", "application"] = "kernel"
    clock_control: Literal["none", "base", "boost"] = "none"
    cache_control: Literal["all", "none"] = "all"
    delay_s: float | None = None
    duration_s: float | None = None
    capture: str | None = None
    keep_running: bool = False
    gpu_metrics_hz: int = 0
    python_hz: int = 200
    torch_memory: bool = False
    torch_modules: bool = False
    nsys_args: tuple[str, ...] = ()
    ncu_args: tuple[str, ...] = ()
    timeout_s: float = 1800.0


@dataclass(frozen=True)
class StudySettings(Settings):
    """How every case of a study is measured: ``[settings]`` in its file."""

    rounds: int = 6
    budget_ms: float = 20.0
    gpu_metrics_hz: int = 0
    timeout_s: float = 3600.0
    batch_cases: int = 120
    extras: bool = True

    def measuring(self) -> dict[str, Any]:
        """Name -> value of what the measurements depend on: with others, cases do not belong to one study."""
        return {each.name: getattr(self, each.name) for each in settings_of(type(self)) if each.measuring}


@dataclass(frozen=True)
class CompareSettings:
    """How ``fiprof compare --measure`` measures; no tool is involved."""

    processes: int = 7
    rounds: int = 6
    order_seed: int | None = None
    iterations: int = 20
    budget_ms: float = 20.0
    warmup: int = 3
    seed: int = 0
    check: bool = True
    timeout_s: float = 1800.0
    gpu: int | None = None
    python: str = sys.executable


with (Path(__file__).parent / "settings.csv").open(encoding="utf-8", newline="") as _file:
    ROWS = {row.pop("setting"): row for row in csv.DictReader(_file)}
"""Setting, or class and setting where it is said otherwise -> what ``settings.csv`` says of it."""
NCU_CONDITIONS = {
    field.name: ROWS[field.name]["title"] for field in dataclasses.fields(Settings) if ROWS[field.name]["tool"] == "ncu"
}
"""What decides how ncu measures, by its title: settings of a collect and of a study."""


@dataclass(frozen=True)
class Setting:
    """A setting of one of the classes: its field and its row."""

    name: str
    type: type  # of its value, or of each of several
    several: bool  # it takes a list
    choices: tuple[str, ...]  # empty where any value of the type will do
    default: Any
    option: str  # of the command line; empty for none (``-`` in the file, where nothing stands for ``--`` and the name)
    metavar: str
    title: str  # what a report calls it; empty where it shows it not
    unit: str  # behind the value in a report
    tool: ToolName | None  # the tool without which it means nothing
    passed_as: str  # the tool's option that takes the value; it is left out where the value is None
    low: float | None  # least value
    above: float | None  # bound that the value is above
    high: float | None  # largest value
    variable: str  # environment variable that the option is taken from otherwise
    otherwise: str  # the default in words, where its value says nothing
    measuring: bool  # whether what is measured depends on it: a guide repeats it, and the cases of one study share it
    help: str  # what it is, for the command line

    @property
    def repeatable(self) -> bool:
        """The option may be given several times, with a value each; no comma list of choices."""
        return self.several and not self.choices

    def words(self, value: Any) -> list[str]:
        """The option and the value, as the command line has them."""
        if self.type is bool:
            return [self.option if value else self.option.replace("--", "--no-", 1)]
        if self.repeatable:
            return [word for each in value for word in (self.option, str(each))]
        return [self.option, ",".join(map(str, value)) if self.several else str(value)]

    def problem(self, value: Any) -> str:
        """What is wrong with a value of the right type; empty for nothing."""
        if value is None:
            return ""
        if self.choices and value not in self.choices:
            return f"is none of {', '.join(self.choices)}"
        if isinstance(value, float) and not math.isfinite(value):
            return "is no finite number"
        if self.above is not None and value <= self.above:
            return f"is not above {self.above:g}"
        if self.low is not None and value < self.low:
            return f"is below {self.low:g}"
        return f"is above {self.high:g}" if self.high is not None and value > self.high else ""


def _settings_of(kind: type[Declaring]) -> tuple[Setting, ...]:
    """Every setting of a class, in the declared order. What a request adds is keyword-only, and no setting."""
    hints, settings = get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        if field.kw_only:
            continue
        hint = hints[field.name]
        several = get_origin(hint) is tuple
        each = get_args(hint)[0] if several else hint
        if get_origin(each) is UnionType:
            (each,) = (part for part in get_args(each) if part is not NoneType)
        choices = get_args(each) if get_origin(each) is Literal else ()
        names = (*(f"{each.__name__}.{field.name}" for each in kind.__mro__), field.name)
        declared: dict[str, Any] = {**next(ROWS[name] for name in names if name in ROWS)}
        declared["option"] = {"": f"--{field.name.replace('_', '-')}", "-": ""}.get(
            declared["option"], declared["option"]
        )
        declared |= {bound: int(declared[bound]) if declared[bound] else None for bound in ("low", "above", "high")}
        declared |= {"tool": declared["tool"] or None, "measuring": declared["measuring"] != "no"}
        settings.append(Setting(field.name, str if choices else each, several, choices, field.default, **declared))
    return tuple(settings)


settings_of: Callable[[type[Declaring]], tuple[Setting, ...]] = functools.cache(_settings_of)  # type: ignore[assignment]


def recorded(settings: Declaring) -> dict[str, Any]:
    values = {each.name: getattr(settings, each.name) for each in settings_of(type(settings))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_manifest(values: Mapping[str, Any]) -> CollectSettings:
    """The settings of a recorded run; the default where it says nothing."""
    present = [each for each in settings_of(CollectSettings) if values.get(each.name) is not None]
    given: dict[str, Any] = {each.name: values[each.name] for each in present}
    return CollectSettings(**given | {each.name: tuple(values[each.name]) for each in present if each.several})


def tool_words(settings: Declaring, tool: ToolName) -> tuple[str, ...]:
    """The words of a tool's command line that come from declarations alone."""
    passed = [each for each in settings_of(type(settings)) if each.tool == tool and each.passed_as]
    values = ((each.passed_as, getattr(settings, each.name)) for each in passed)
    return tuple(word for option, value in values if value is not None for word in (option, str(value)))


def option_words(values: Mapping[str, Any], kind: type[Declaring]) -> Iterable[str]:
    """The options of the command with these settings that ask for a recorded run's, those at their default left out."""
    for each in settings_of(kind):
        value = values.get(each.name, each.default)
        same = (tuple(value) if each.several else value) == each.default
        if each.option and each.measuring and not same:
            yield from each.words(value)
