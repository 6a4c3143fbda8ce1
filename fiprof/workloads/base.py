"""What a workload is: parameters, an iteration to launch, its cost and its reference."""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from fiprof.errors import FiprofError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

P = TypeVar("P")
Value = bool | int | float | str

# ':' and '/' would break the NVTX filters of ncu, the others the case's own notation.
FORBIDDEN_IN_VALUES = frozenset("[],=:/@\"'\n\r")


@dataclass(frozen=True)
class Parameter:
    """One declared parameter of a workload, as the command line and ``fiprof kernels`` show it."""

    name: str  # of the field, e.g. ``seq_len``; the option is ``--seq-len``
    kind: type[bool] | type[int] | type[float] | type[str]
    default: Value
    help: str
    low: float | None  # smallest valid value
    high: float | None  # largest
    choices: tuple[str, ...]  # the valid words of a ``str`` parameter; empty means any

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def valid(self) -> str:
        if self.choices or self.kind is bool:
            return "|".join(self.choices or ("true", "false"))
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.high is not None else self.kind.__name__

    def parse(self, text: str) -> Value:
        """The value that a word means.

        Raises FiprofError (exit status 2) for a word that is none or is out of range.
        """
        example = f"for example {self.option} {format_value(self.default)}"
        wrong = FiprofError(f"{self.option}: {text!r} is not valid ({self.valid})", example, exit_code=2)
        text = text.strip()
        value: Value
        if self.kind is bool:
            words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
            if text.lower() not in words:
                raise wrong
            return words[text.lower()]
        if self.kind is str:
            if (self.choices and text not in self.choices) or not text or FORBIDDEN_IN_VALUES & set(text):
                raise wrong
            return text
        try:
            value = self.kind(text)
        except ValueError:
            raise wrong from None
        assert isinstance(value, int | float)
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise wrong
        return value


def param(
    default: Value, help: str, *, low: float | None = None, high: float | None = None, choices: Sequence[str] = ()
) -> Any:
    """A field of a workload's parameter dataclass."""
    said = {"help": help, "low": low, "high": high, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=said)


def dtype_param(default: str = "fp16") -> Any:
    """The element type, the same in every kernel."""
    return param(default, "element type of the tensors", choices=("fp16", "bf16"))


BYTES_PER_ELEMENT = {"fp16": 2, "bf16": 2}

# Relative Frobenius error against the float32 reference. An fp16 result is rounded to 11 significant bits
# (rms error about 2.8e-4 of the value), bf16 to 8 (2.3e-3); attention rounds its probabilities too.
TOLERANCE = {"fp16": 2e-3, "bf16": 1e-2}


def torch_dtype(name: str) -> torch.dtype:
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16}[name]


class Random:
    """Standard normal tensors from one seeded generator."""

    def __init__(self, device: str, seed: int) -> None:
        import torch

        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(self, shape: Sequence[int], dtype: str) -> Tensor:
        import torch

        return torch.randn(tuple(shape), generator=self._generator, device=self.device, dtype=torch_dtype(dtype))

    def permutation(self, count: int) -> Tensor:
        """int32, [count]."""
        import torch

        order = torch.randperm(count, generator=self._generator, device=self.device)
        return order.to(torch.int32)


@dataclass(frozen=True)
class Cost:
    """The least that the algorithm needs, per iteration."""

    flops: int  # floating-point operations; a fused multiply-add counts as two
    bytes_read: int  # each input byte once
    bytes_written: int  # each output byte once
    tokens: int | None = None  # that an iteration processes; None where the kernel knows no tokens


class Workload(ABC, Generic[P]):
    """One kernel with one set of parameters: set it up, launch it, know what it costs and what it must give.

    A subclass names itself (``name``, ``summary``), and sets ``Params`` to a frozen dataclass whose fields are
    made by :func:`param`. One of a package imports torch and the kernel's library inside its methods only.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Params: ClassVar[type]
    imports: ClassVar[tuple[str, ...]] = ("torch",)
    """Modules that :meth:`setup` needs; the runner may import them while another process has the GPU."""

    def __init__(self, params: P, *, device: str = "cuda", seed: int = 0) -> None:
        self.params = params
        self.device = device
        self.seed = seed

    @abstractmethod
    def setup(self) -> Callable[[], Sequence[Tensor]]:
        """Make seeded, random, non-zero inputs and plan; return what launches one iteration.

        The callable returns the tensors that it wrote, in the order of :meth:`reference`.
        """

    def cost(self) -> Cost:
        """FLOPs and least bytes of one iteration, from the parameters alone; zeros where they are not modelled."""
        return Cost(0, 0, 0)

    def reference(self) -> Sequence[Tensor] | None:
        """The float32 result for the inputs as they are now, or None where there is no reference.

        Called after :meth:`setup` and before the first launch, so in-place kernels find fresh inputs.
        """
        return None

    def facts(self) -> Mapping[str, Value]:
        """What the library planned for these parameters, as far as it tells. Called after :meth:`setup`."""
        return {}

    @property
    def tolerance(self) -> float:
        """Largest relative error, ``norm(got - expected) / norm(expected)``, that passes."""
        return TOLERANCE[str(getattr(self.params, "dtype", "fp16"))]

    @classmethod
    def check_params(cls, params: P) -> None:
        """Raise FiprofError (exit status 2) for parameters that do not go together."""


def parameters(workload: type[Workload[Any]]) -> tuple[Parameter, ...]:
    try:
        hints = typing.get_type_hints(workload.Params)
        return tuple(
            Parameter(field.name, hints[field.name], cast(Value, field.default), **field.metadata)
            for field in dataclasses.fields(workload.Params)
        )
    except (TypeError, AttributeError) as error:
        remedy = "Params is a frozen dataclass, each field of it made by param(default, help, …)"
        raise FiprofError(f"workload {workload.name!r}: its Params cannot be read: {error}", remedy) from error


def format_value(value: Value) -> str:
    """A value as a case id and the command line write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
