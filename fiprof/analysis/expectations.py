"""What is expected of kernels, read from a TOML file and checked: where the figures come from, and what they are."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from fiprof.analysis.reasons import REASONS
from fiprof.errors import FiprofError
from fiprof.model import packs
from fiprof.model.quantities import DRAM_GB_PER_S, DRAM_SHARE
from fiprof.model.work import work_share

Params = Mapping[str, bool | int | float | str]

EXAMPLE = "docs/packs.md describes such files"


class RoofKind(StrEnum):
    """Whose roof a share is of."""

    TENSOR = "tensor"
    DRAM = "dram"


class Expectation(StrEnum):
    """What is expected."""

    STALL = "stall"
    """A stall reason's share of the warps' time."""
    TENSOR_ROOF = "tensor_roof"
    DRAM_ROOF = "dram_roof"
    """A share of these roofs."""
    BANDWIDTH = "bandwidth"
    """Of DRAM, at least."""


def unit_of(kind: Expectation) -> str:
    """Of the numbers that are expected."""
    return "TB/s" if kind == Expectation.BANDWIDTH else "%"


class Unlike(StrEnum):
    """Why a figure is not compared."""

    GPU = "gpu"
    """It is of another compute capability."""
    SHAPE = "shape"
    """It is for other parameters."""
    SIZE = "size"
    """It is for other sizes of the work."""


class Figured(StrEnum):
    """A figure as it is stated, and what it is for."""

    RANGE = "range"
    AT_LEAST = "at_least"
    NUMBER = "number"
    BY_SIZE = "by_size"
    PARAMETER = "parameter"


@dataclass(frozen=True)
class ExpectationSource:
    """Where figures come from."""

    title: str
    reference: str
    gpu: str
    """The GPU that they are of."""
    compute_capability: str
    """E.g. ``8.0``."""
    dram_tb_per_s: float | None
    """DRAM's roof on that GPU, in TB/s; None where the file does not say."""


@dataclass(frozen=True)
class Roof:
    """The share of a roof that is expected."""

    kind: RoofKind
    shares_pct: Mapping[float, float]
    """Size of the work -> % of the roof."""


@dataclass(frozen=True)
class Family:
    """Kernels of which the same is expected."""

    name: str
    workloads: tuple[str, ...]
    source: ExpectationSource
    params: Params
    """What the figures are for."""
    size: str
    """The parameter that the roof's shares depend on; empty for none."""
    stalls_pct: Mapping[str, tuple[float, float]]
    """Reason -> lowest and highest share of the warps' time, in %."""
    roof: Roof | None
    least_tb_per_s: float | None
    """DRAM bandwidth that a good kernel reaches on the source's GPU."""


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure of a family."""

    kind: Expectation
    quantity: str
    low: float = 0.0
    high: float | None = None
    by_size: Mapping[float, float] = field(default_factory=dict)
    """Of a roof: size of the work -> % of it."""


def figures(family: Family) -> Iterator[Figure]:
    """What a family states, each figure by itself."""
    for reason, (low, high) in family.stalls_pct.items():
        yield Figure(Expectation.STALL, reason, low, high)
    if family.roof is not None:
        tensor = family.roof.kind == RoofKind.TENSOR
        kind = Expectation.TENSOR_ROOF if tensor else Expectation.DRAM_ROOF
        yield Figure(kind, (work_share("tensor") if tensor else DRAM_SHARE).key, by_size=family.roof.shares_pct)
    if family.least_tb_per_s is not None:
        yield Figure(Expectation.BANDWIDTH, DRAM_GB_PER_S.key, family.least_tb_per_s)


def unlike(family: Family, figure: Figure, params: Params, capability: str) -> Unlike | None:
    """Why a figure is not compared with a case of these parameters; None where they are alike."""
    if family.source.compute_capability != capability:
        return Unlike.GPU
    if any(params.get(name, value) != value for name, value in family.params.items()):
        return Unlike.SHAPE
    if figure.by_size and family.size and params.get(family.size) not in figure.by_size:
        return Unlike.SIZE
    return None


def read_expectations(path: Path) -> tuple[Family, ...]:
    """The families of a file.

    Raises FiprofError for a file that cannot be read or is no TOML, for an unknown key, a number that cannot be, an
    unknown stall reason or roof, and a workload that two families claim; the message names the place in the file.
    """
    try:
        return parse_expectations(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", "--expectations takes a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FiprofError(f"{path} is not TOML: {error}", EXAMPLE) from error


def parse_expectations(data: Mapping[str, Any], origin: str) -> tuple[Family, ...]:
    """The families of a file's content, e.g. of a pack. origin: what messages name. Raises as above."""
    file = _Part(origin, "", data)
    file.only("source", "family")
    source = _source(file.table("source"))
    families = tuple(_family(part, source) for part in file.tables("family"))
    if not families:
        raise file.wrong("it has no [[family]]", EXAMPLE)
    owners: dict[str, str] = {}
    for family in families:
        for workload in family.workloads:
            if workload in owners:
                raise file.wrong(
                    f"the families {owners[workload]} and {family.name} both claim the workload {workload}",
                    "a workload belongs to one family",
                )
            owners[workload] = family.name
    return families


def combined(own: Path | None = None) -> tuple[Family, ...]:
    """The packaged families, those of a user's file in place of them for the same workloads.

    Raises as :func:`read_expectations` does.
    """
    packaged = tuple(
        family
        for pack, data in packs.parts("expectations").items()
        for family in parse_expectations(data, f"the pack {pack}")
    )
    if own is None:
        return packaged
    users = read_expectations(own)
    taken = {workload for family in users for workload in family.workloads}
    left = (
        dataclasses.replace(family, workloads=tuple(name for name in family.workloads if name not in taken))
        for family in packaged
    )
    return (*users, *(family for family in left if family.workloads))


def check_workloads(families: Collection[Family], known: Collection[str]) -> None:
    """Raise FiprofError for a family of which no workload is known: a slip of the pen would go unseen."""
    for family in families:
        for name in family.workloads:
            if name not in known:
                close = get_close_matches(name, known, 1)
                raise FiprofError(
                    f"the family {family.name} is for the workload {name!r}, which is not known",
                    f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}",
                )


@dataclass(frozen=True)
class _Part:
    """A table of the file, with its place for messages."""

    path: str
    place: str
    data: Mapping[str, Any]

    def wrong(self, what: str, remedy: str) -> FiprofError:
        where = f"{self.path}, {self.place}" if self.place else str(self.path)
        return FiprofError(f"{where}: {what}", remedy)

    def only(self, *keys: str) -> None:
        for key in self.data:
            if key not in keys:
                close = get_close_matches(key, keys, 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise self.wrong(f"unknown key {key!r}", f"{hint}keys here are {', '.join(keys)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(f"{key} is missing or no text", f'write {key} = "…"')
        return value

    def number(self, key: str, highest: float | None = None) -> float:
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise self.wrong(f"{key} = {value!r} is no number from 0 on", f"write {key} = 1.5, say")
        if highest is not None and value > highest:
            raise self.wrong(f"{key} = {value!r} is more than {highest:g}", "shares are in %, from 0 to 100")
        return float(value)

    def table(self, key: str) -> _Part:
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise self.wrong(f"[{key}] is missing or no table", EXAMPLE)
        return _Part(self.path, f"{self.place}.{key}" if self.place else key, value)

    def tables(self, key: str) -> list[_Part]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(f"{key} is no list of tables", f"write [[{key}]] above each")
        return [_Part(self.path, f"{key} {item.get('name', number)}", item) for number, item in enumerate(value, 1)]


def _source(part: _Part) -> ExpectationSource:
    part.only("title", "reference", "gpu", "compute_capability", "dram_tb_per_s")
    return ExpectationSource(
        title=part.text("title"),
        reference=part.text("reference", ""),
        gpu=part.text("gpu"),
        compute_capability=part.text("compute_capability"),
        dram_tb_per_s=part.number("dram_tb_per_s") or None if "dram_tb_per_s" in part.data else None,
    )


def _family(part: _Part, source: ExpectationSource) -> Family:
    part.only("name", "workloads", "params", "size", "stalls", "roof", "bandwidth")
    workloads = part.data.get("workloads")
    if not isinstance(workloads, list) or not workloads or not all(isinstance(name, str) for name in workloads):
        raise part.wrong("workloads is missing or no list of names", 'write workloads = ["prefill"], say')
    params = part.table("params").data if "params" in part.data else {}
    for key, value in params.items():
        if not isinstance(value, bool | int | float | str):
            raise part.wrong(f"the parameter {key} is {value!r}", "a parameter has one value: a number, a text, true")
    size = part.text("size", "")
    roof = _roof(part.table("roof")) if "roof" in part.data else None
    if roof is not None and len(roof.shares_pct) > 1 and not size:
        raise part.wrong("[family.roof] has several sizes, and no size says of what", 'write size = "batch", say')
    bandwidth = None
    if "bandwidth" in part.data:
        target = part.table("bandwidth")
        target.only("least_tb_per_s")
        bandwidth = target.number("least_tb_per_s")
    return Family(
        name=part.text("name"),
        workloads=tuple(workloads),
        source=source,
        params=params,
        size=size,
        stalls_pct=_stalls(part.table("stalls")) if "stalls" in part.data else {},
        roof=roof,
        least_tb_per_s=bandwidth,
    )


def _stalls(part: _Part) -> dict[str, tuple[float, float]]:
    found = {}
    for reason, limits in part.data.items():
        if reason not in REASONS:
            close = get_close_matches(reason, REASONS, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise part.wrong(f"unknown stall reason {reason!r}", f"{hint}known are {', '.join(REASONS)}")
        if not isinstance(limits, list) or len(limits) != 2:
            raise part.wrong(f"{reason} = {limits!r} is no range", f"write {reason} = [35, 45]: lowest and highest %")
        low, high = (_Part(part.path, part.place, {reason: value}).number(reason, 100.0) for value in limits)
        if low > high:
            raise part.wrong(f"{reason} = {limits!r} begins above its end", "the lowest share comes first")
        found[reason] = (low, high)
    return found


def _roof(part: _Part) -> Roof:
    part.only("kind", "shares")
    kind = next((kind for kind in RoofKind if kind == part.data.get("kind")), None)
    if kind is None:
        raise part.wrong(f"kind = {part.data.get('kind')!r} is no roof", f"roofs are {', '.join(RoofKind)}")
    shares = part.table("shares")
    found = {}
    for key in shares.data:
        try:
            size = float(key)
        except ValueError:
            raise shares.wrong(f"{key!r} is no size", "write shares = { 1 = 70, 32 = 75 }: size = %") from None
        if not 0 < size < float("inf"):
            raise shares.wrong(f"{key!r} is no size above 0", "write shares = { 1 = 70, 32 = 75 }: size = %")
        found[size] = shares.number(key, 100.0)
    if not found:
        raise shares.wrong("it is empty", "write shares = { 1 = 70, 32 = 75 }: size = %")
    return Roof(kind, dict(sorted(found.items())))
