"""The settings of a measurement, each declared once.

A declaration makes the option of ``fiprof collect``, the key of a study's ``[settings]``, the field of the request and
of ``run.json``, the row of a report's settings and the words of its reproduction guide. A setting that only goes on to
a tool names the tool's option here, and no other file knows of it.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

ToolName = Literal["nsys", "ncu"]
Declaring: TypeAlias = "Settings | ProfileSettings | CompareSettings"


@dataclass(frozen=True)
class Setting:
    """A setting of one of the classes below: its field, and what :func:`declare` says of it."""

    name: str
    type: type
    """Of its value, or of each of several."""
    several: bool
    """It takes a list."""
    choices: tuple[str, ...]
    """Empty where any value of the type will do."""
    default: Any
    help: str
    """What it is, for the command line."""
    option_name: str = ""
    """Of ``fiprof collect``; empty for ``--`` and the setting's name, ``-`` for none."""
    metavar: str = ""
    otherwise: str = ""
    """The default in words, where its value says nothing."""
    variable: str = ""
    """Environment variable that the option is taken from otherwise."""
    low: float | None = None
    """Least value."""
    above: float | None = None
    """Bound that the value is above."""
    high: float | None = None
    """Largest value."""
    title: str = ""
    """What a report calls it; empty where it shows it not."""
    unit: str = ""
    """Behind the value in a report."""
    tool: ToolName | None = None
    """The tool without which it means nothing."""
    passed_as: str = ""
    """The tool's option that takes the value; it is left out where the value is None."""
    measuring: bool = True
    """Whether what is measured depends on it: a guide repeats it, and the cases of one study share it."""

    @property
    def option(self) -> str:
        """The command line's; empty for none."""
        return {"-": "", "": f"--{self.name.replace('_', '-')}"}.get(self.option_name, self.option_name)

    @property
    def listed(self) -> bool:
        """The option may be given several times, with a value each; no comma list of choices."""
        return self.several and not self.choices

    def words(self, value: Any) -> list[str]:
        """The option and the value, as the command line has them."""
        if self.type is bool:
            return [self.option if value else self.option.replace("--", "--no-", 1)]
        if self.listed:
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


def declare(default: T, help: str, *, option: str = "", **declared: Any) -> T:
    """A field of a dataclass of settings. declared: further fields of :class:`Setting`."""
    about = {"help": help, "option_name": option, **declared}
    field: T = dataclasses.field(default=default, metadata={"declared": about})
    return field


@dataclass(frozen=True)
class Settings:
    """What a collect and a study have in common."""

    ncu_set: Literal["full", "quick"] = declare(
        "full",
        "ncu's metrics: all, or those that stalls and show need (about half the time).",
        option="--set",
        title="ncu set",
        tool="ncu",
    )
    iterations: int = declare(20, "Launches, plain and nsys.", low=1, title="iterations, plain and nsys")
    warmup: int = declare(3, "Launches before the measured; one under ncu.", low=0, title="warm-up iterations")
    seed: int = declare(0, "Seed of the random inputs.", title="seed of the inputs")
    check: bool = declare(True, "Compare with the float32 reference first.")
    clock_control: Literal["none", "base", "boost"] = declare(
        "none",
        "ncu: leave the GPU's clocks alone, or lock them while it measures.",
        title="ncu clock control",
        tool="ncu",
        passed_as="--clock-control",
    )
    cache_control: Literal["all", "none"] = declare(
        "all",
        "ncu: flush the caches before every pass, or leave them warm.",
        title="ncu cache control",
        tool="ncu",
        passed_as="--cache-control",
    )
    warp_sampling_interval: int | None = declare(
        None,
        "ncu: sample the warps every 2^(5 + this) cycles; short kernels get more samples with less",
        otherwise="ncu's choice",
        low=0,
        high=31,
        title="ncu warp sampling interval",
        tool="ncu",
        passed_as="--warp-sampling-interval",
    )
    timeout_s: float = declare(
        1800.0, "Seconds that each tool may take.", option="--timeout", metavar="S", above=0, measuring=False
    )
    gpu_metrics_hz: int = declare(
        10_000,
        "nsys's GPU metric samples a second; 0 for none.",
        low=0,
        high=200_000,
        title="GPU metric samples",
        unit="a second",
        tool="nsys",
    )
    rounds: int = declare(1, "Turns of each case in the plain run and under nsys.", option="-", low=1)
    budget_ms: float | None = declare(
        None, "GPU time of a turn's launches, which may make them fewer, down to three.", option="-", above=0
    )


@dataclass(frozen=True)
class CollectSettings(Settings):
    """How ``fiprof collect`` measures."""

    tools: tuple[ToolName, ...] = declare(("nsys", "ncu"), "nsys, ncu or both.", option="--tool", title="tools")
    measure_iterations: int = declare(1, "Launches under ncu.", low=1, title="iterations, ncu", tool="ncu")
    gpu: int | None = declare(None, "GPU as nvidia-smi counts", otherwise="the first visible", low=0, measuring=False)
    python: str = declare(
        sys.executable,
        "Interpreter that has torch and flashinfer",
        otherwise="fiprof's own",
        variable="FIPROF_PYTHON",
        metavar="PATH",
        measuring=False,
    )
    keep_going: bool = declare(
        False,
        "A case that fails by itself is left out and named, instead of failing the run.",
        option="-",
        measuring=False,
    )


def _changed(name: str, default: T, help: str = "", **declared: Any) -> T:
    """A setting of :class:`CollectSettings` with another default; help, declared: where they are other too."""
    before = CollectSettings.__dataclass_fields__[name].metadata["declared"]
    about = {**before, **({"help": help} if help else {}), **declared}
    field: T = dataclasses.field(default=default, metadata={"declared": about})
    return field


@dataclass(frozen=True)
class ProfileSettings:
    """How ``fiprof profile`` measures a program."""

    tools: tuple[ToolName, ...] = declare(("nsys", "ncu"), "nsys, or nsys and ncu.", option="--tool", title="tools")
    cover_pct: float = declare(
        80.0,
        "Share of the GPU's time that the profiled launches stand for.",
        option="--cover",
        metavar="PCT",
        above=0,
        high=100,
        unit="%",
        title="share of GPU time to cover",
        tool="ncu",
    )
    launches: int | None = declare(
        None, "Most launches under ncu", otherwise="as many as --cover takes", low=1, title="most launches", tool="ncu"
    )
    ncu_budget_s: float = declare(
        120.0,
        "Seconds that ncu may take beyond the program's own.",
        option="--ncu-budget",
        metavar="S",
        above=0,
        unit="s",
        title="time for ncu",
        tool="ncu",
    )
    kernel: str | None = declare(
        None,
        "Only kernels with a name like this, under ncu",
        otherwise="all",
        metavar="REGEX",
        title="kernels",
        tool="ncu",
    )
    ranges: tuple[str, ...] = declare(
        (),
        "Only kernels launched in this NVTX range (NAME or DOMAIN@NAME), under ncu.",
        option="--range",
        metavar="NVTX",
        title="NVTX ranges",
        tool="ncu",
    )
    by_range: bool = declare(
        False, "Choose launches of each --range by itself; ncu runs the program once for each.", tool="ncu"
    )
    skip: int | None = declare(
        None, "Launches of each that ncu skips", otherwise="1 where there are more", low=0, title="skipped", tool="ncu"
    )
    count: int = declare(1, "Launches of each kernel, grid and block under ncu.", low=1, title="of each", tool="ncu")
    ncu_set: Literal["full", "quick"] = _changed("ncu_set", "quick")
    sections: tuple[str, ...] = declare(
        (), "ncu's sections, instead of --set's.", option="--section", metavar="NAME", tool="ncu"
    )
    replay_mode: Literal["kernel", "application"] = declare(
        "kernel",
        "ncu: repeat each kernel, or the whole program, for each pass.",
        title="ncu replay mode",
        tool="ncu",
        passed_as="--replay-mode",
    )
    clock_control: Literal["none", "base", "boost"] = _changed("clock_control", "none")
    cache_control: Literal["all", "none"] = _changed("cache_control", "all")
    delay_s: float | None = declare(
        None,
        "Seconds before nsys begins",
        option="--delay",
        otherwise="0",
        metavar="S",
        low=0,
        unit="s",
        title="delay",
        tool="nsys",
    )
    duration_s: float | None = declare(
        None,
        "Seconds that nsys traces; then the program is ended",
        option="--duration",
        otherwise="to the program's end",
        metavar="S",
        above=0,
        unit="s",
        title="duration",
        tool="nsys",
    )
    capture: str | None = declare(
        None,
        "cudaProfilerApi: only between its start and stop; nvtx:NAME: only in this NVTX range",
        otherwise="everything",
        metavar="WHAT",
        title="traced",
        tool="nsys",
    )
    keep_running: bool = declare(
        False, "Let the program go on after the window: no ncu.", option="--keep-running", tool="nsys"
    )
    gpu_metrics_hz: int = _changed("gpu_metrics_hz", 0)
    nsys_args: tuple[str, ...] = declare(
        (), "A word for nsys profile, as it is.", option="--nsys-arg", metavar="WORD", tool="nsys"
    )
    ncu_args: tuple[str, ...] = declare((), "A word for ncu, as it is.", option="--ncu-arg", metavar="WORD", tool="ncu")
    timeout_s: float = _changed("timeout_s", 1800.0)


@dataclass(frozen=True)
class StudySettings(Settings):
    """How every case of a study is measured: ``[settings]`` in its file."""

    rounds: int = _changed("rounds", 6)
    budget_ms: float = _changed("budget_ms", 20.0)
    gpu_metrics_hz: int = _changed("gpu_metrics_hz", 0)
    timeout_s: float = _changed("timeout_s", 3600.0)
    batch_cases: int = declare(120, "Most cases that share one process per tool.", low=1, measuring=False)
    extras: bool = declare(True, "Measure the study's extras too where no part of it is asked for.", measuring=False)

    def measuring(self) -> dict[str, Any]:
        """Name -> value of what the measurements depend on: with others, cases do not belong to one study."""
        declared = settings_of(type(self))
        return {each.name: getattr(self, each.name) for each in declared if each.measuring}


@dataclass(frozen=True)
class CompareSettings:
    """How ``fiprof compare --measure`` measures; no tool is involved."""

    processes: int = declare(5, "Processes a side; more tell smaller differences.", low=5, title="processes a side")
    rounds: int = declare(6, "Rounds that each process measures.", low=1, title="rounds")
    iterations: int = _changed("iterations", 20, "Most launches of a case in a round.")
    budget_ms: float = _changed("budget_ms", 20.0, "GPU time of a case in a round, for fewer launches.", option_name="")
    warmup: int = _changed("warmup", 3, "Launches before them.")
    seed: int = _changed("seed", 0)
    check: bool = _changed("check", True, "Compare with the float32 reference, after the measuring.")
    timeout_s: float = _changed("timeout_s", 1800.0, "Seconds that each process may take.")
    gpu: int | None = _changed("gpu", None)
    python: str = _changed("python", sys.executable)


def settings_of(kind: type[Declaring]) -> tuple[Setting, ...]:
    """Every setting of a class, in the declared order."""
    hints = get_type_hints(kind)
    return tuple(
        _setting(field, hints[field.name]) for field in dataclasses.fields(kind) if "declared" in field.metadata
    )


def _setting(field: dataclasses.Field[Any], hint: Any) -> Setting:
    several = get_origin(hint) is tuple
    each = get_args(hint)[0] if several else hint
    if get_origin(each) is UnionType:
        (each,) = (part for part in get_args(each) if part is not NoneType)
    choices = get_args(each) if get_origin(each) is Literal else ()
    kind = str if choices else each
    return Setting(field.name, kind, several, choices, field.default, **field.metadata["declared"])


def recorded(settings: Declaring) -> dict[str, Any]:
    """Name -> value, for a manifest."""
    values = {each.name: getattr(settings, each.name) for each in settings_of(type(settings))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_manifest(values: Mapping[str, Any]) -> CollectSettings:
    """The settings of a recorded run; the default where it says nothing."""
    known: dict[str, Any] = {
        each.name: tuple(values[each.name]) if each.several else values[each.name]
        for each in settings_of(CollectSettings)
        if values.get(each.name) is not None
    }
    return CollectSettings(**known)


def shared(settings: Settings) -> dict[str, Any]:
    """Name -> value of what a collect and a study have in common."""
    return {each.name: getattr(settings, each.name) for each in settings_of(Settings)}


def tool_words(settings: Declaring, tool: ToolName) -> tuple[str, ...]:
    """The words of a tool's command line that come from declarations alone."""
    return tuple(
        word
        for each in settings_of(type(settings))
        if each.tool == tool and each.passed_as
        if (value := getattr(settings, each.name)) is not None
        for word in (each.passed_as, str(value))
    )


def option_words(values: Mapping[str, Any], kind: type[Declaring]) -> Iterable[str]:
    """The options of the command with these settings that ask for a recorded run's, those at their default left out."""
    for each in settings_of(kind):
        value = values.get(each.name, each.default)
        same = (tuple(value) if each.several else value) == each.default
        if each.option and each.measuring and not same:
            yield from each.words(value)
