"""What is expected of kernels: a TOML file (docs/packs.md describes it), decoded and checked by msgspec."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from fiprof.analysis.reasons import REASONS
from fiprof.errors import FiprofError
from fiprof.model import packs
from fiprof.model.json_file import in_words
from fiprof.model.quantities import DRAM_GB_PER_S, DRAM_SHARE
from fiprof.model.work import work_share

Percent = Annotated[float, Meta(ge=0, le=100)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
Name = Annotated[str, Meta(min_length=1)]
Params = dict[str, bool | int | float | str]

EXAMPLE = "docs/packs.md describes such files"


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures come from."""

    title: Name
    gpu: Name
    """GPU on which they hold."""
    compute_capability: Name
    """Compute capability of that GPU, e.g. ``8.0``."""
    reference: str = ""
    dram_tb_per_s: Positive | None = None
    """DRAM's roof on that GPU in TB/s."""


class Roof(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a roof (percent) by size of the work."""

    kind: Literal["tensor", "dram"]
    shares: Annotated[dict[Positive, Percent], Meta(min_length=1)]


class Bandwidth(Struct, frozen=True, forbid_unknown_fields=True):
    """The DRAM bandwidth that a good kernel reaches on the source's GPU."""

    least_tb_per_s: Annotated[float, Meta(ge=0)]


class Figure(NamedTuple):
    """One figure of a family."""

    kind: Literal["stall", "tensor", "dram", "bandwidth"]
    quantity: str
    """A stall reason, or the key of a quantity."""
    what: str
    """The quantity in words, with a place for the kind of work."""
    unit: str = "%"
    low: float = 0.0
    high: float | None = None


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels of which the same is expected."""

    name: Name
    workloads: Annotated[tuple[str, ...], Meta(min_length=1)]
    params: Params = {}
    """Parameters that the figures are for."""
    size: str = ""
    """The parameter that the roof's shares depend on; empty for none."""
    stalls: dict[str, tuple[Percent, Percent]] = {}
    """Reason -> lowest and highest share of the warps' time (percent)."""
    roof: Roof | None = None
    bandwidth: Bandwidth | None = None

    def __post_init__(self) -> None:
        for reason, (low, high) in self.stalls.items():
            if reason not in REASONS:
                raise ValueError(f"unknown stall reason {reason!r}; known are {', '.join(REASONS)}")
            if low > high:
                raise ValueError(f"stalls.{reason} = [{low:g}, {high:g}] begins above its end")
        if self.roof and len(self.roof.shares) > 1 and not self.size:
            raise ValueError('[family.roof] has several sizes: write size = "batch", say')

    def figures(self) -> Iterator[Figure]:
        """What the family states, each figure by itself."""
        for reason, (low, high) in self.stalls.items():
            yield Figure("stall", reason, reason, low=low, high=high)
        if self.roof is not None:
            tensor = self.roof.kind == "tensor"
            quantity = (work_share("tensor") if tensor else DRAM_SHARE).key
            yield Figure(self.roof.kind, quantity, f"share of the {'{work}' if tensor else 'DRAM'} roof")
        if self.bandwidth is not None:
            yield Figure(
                "bandwidth", DRAM_GB_PER_S.key, "DRAM bandwidth", unit="TB/s", low=self.bandwidth.least_tb_per_s
            )


class Expectations(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of expectations."""

    source: Source
    family: Annotated[tuple[Family, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        names = [name for family in self.family for name in family.workloads]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two families claim {', '.join(sorted(twice))}")


def read_expectations(path: Path) -> Expectations:
    """The expectations of a user's file.

    Raises FiprofError, naming the place in the file, where it cannot be read, is no TOML, has an unknown key or stall
    reason, a number that cannot be, or two families for a workload.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Expectations, strict=False)
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", "--expectations takes a TOML file") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise FiprofError(f"{path}: {in_words(str(error))}", EXAMPLE) from error


def combined(own: Expectations | None = None) -> Iterator[tuple[Source, Family]]:
    """A user's families, then the packs' for the workloads that these leave. Raises FiprofError for a wrong pack."""
    taken: set[str] = set()
    files = [own] if own else []
    for pack, data in packs.parts("expectations").items():
        try:
            files.append(msgspec.convert(data, Expectations, strict=False))
        except msgspec.ValidationError as error:
            raise FiprofError(f"the pack {pack}: {in_words(str(error))}", EXAMPLE) from error
    for each in files:
        for family in each.family:
            if left := tuple(name for name in family.workloads if name not in taken):
                yield each.source, msgspec.structs.replace(family, workloads=left)
        taken |= {name for family in each.family for name in family.workloads}


def check_workloads(expectations: Expectations, workloads: Collection[str]) -> None:
    """Raise FiprofError for a family of a workload that is none of these: a typing error would go unseen."""
    for family in expectations.family:
        for name in set(family.workloads) - {*workloads}:
            close = get_close_matches(name, workloads, 1)
            raise FiprofError(
                f"the family {family.name} is for the workload {name!r}, which is not known",
                f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(workloads))}",
            )
