"""ncu's source page as CSV: for each launch a line with its kernel's name, a header, and a row a SASS instruction."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.model import schemas
from fiprof.parsers.names import short_name
from fiprof.parsers.ncu_csv import Page, read_page
from fiprof.parsers.ncu_stalls import sampled_metrics, source_reason

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.parsers.ncu_profile import Profile

_SAMPLES = ("# Samples", "Warp Stall Sampling (All Samples)", "Sampling Data (All)")
_NOT_ISSUED = ("Warp Stall Sampling (Not-issued Samples)", "Sampling Data (Not Issued)")
_EXECUTED = ("Instructions Executed", "# Instructions Executed")
_SECTORS = ("L2 Theoretical Sectors Global",)
_IDEAL_SECTORS = ("L2 Theoretical Sectors Global Ideal",)


@dataclass(frozen=True)
class Instruction:
    """A SASS instruction with its samples."""

    address: int
    """As loaded."""
    sass: str
    samples: int | None
    samples_not_issued: int | None
    reasons: Mapping[str, int]
    """Samples by reason; empty without samples."""
    executed: int | None = None
    """Times that a warp executed it."""
    sectors: int | None = None
    """Of global memory, of 32 bytes, that it touched."""
    ideal_sectors: int | None = None
    """Those that it would touch if the threads of a warp accessed neighbours."""
    source_file: str | None = None
    source_line: int | None = None

    @property
    def top_reason(self) -> str | None:
        """The reason with most samples; None without samples, or where the page does not name it."""
        unnamed = (self.samples or 0) - sum(self.reasons.values())
        top = max(self.reasons, key=self.reasons.__getitem__, default=None)
        return None if top is None or unnamed > self.reasons[top] else top


@dataclass(frozen=True)
class Listing:
    """The instructions of a launch."""

    kernel: str
    """Short name."""
    reasons: frozenset[str]
    """Those that the page has a column for."""
    instructions: list[Instruction]

    @property
    def samples(self) -> int:
        return sum(instruction.samples or 0 for instruction in self.instructions)


def read_hotspots(path: Path, profile: Profile) -> pa.Table:
    """The table ``hotspots`` from a source page.

    The page does not say which launch a listing belongs to. Listings are given to the launches in order, and each
    must have the kernel and the number of samples that the raw page gives its launch. ncu prints a listing more than
    once where several kernels of a module were profiled; repetitions count once.
    Raises FiprofError where the file is missing, empty, cut short, no source page, or does not fit the launches.
    """
    page = read_page(path, "source")
    page.check_end()
    listings = list(_listings(page))
    if not listings:
        raise page.error("is not a source page of ncu: it has no line Kernel Name")
    kernels = [short_name(launch.kernel_full) for launch in profile.launches]
    chosen = _without_repetitions(listings, kernels)
    if len(chosen) != len(kernels):
        raise page.error(f"does not fit the raw page: {len(chosen)} listings, {len(kernels)} launches")
    for listing, launch, samples in zip(chosen, profile.launches, _samples(profile), strict=True):
        if listing.kernel != short_name(launch.kernel_full):
            raise page.error(f"does not fit the raw page: launch {launch.id} is not {listing.kernel}")
        if samples is not None and samples != listing.samples:
            raise page.error(
                f"does not fit the raw page: launch {launch.id} has {samples} samples, its listing {listing.samples}"
            )
    return hotspots_table(
        {
            launch.id: _with_unnamed(listing, sampled)
            for listing, launch, sampled in zip(chosen, profile.launches, _sampled_reasons(profile), strict=True)
        }
    )


def _without_repetitions(listings: list[Listing], kernels: list[str]) -> list[Listing]:
    """A listing a launch, where the repetitions can be told.

    kernels: the launches' short names. Where a kernel's listings in a row are a multiple of its launches in a row,
    each launch has as many copies: launches that really have the same samples stay apart. Otherwise neighbours that
    are equal count once.
    """
    if len(listings) == len(kernels):
        return listings
    printed = [(kernel, list(group)) for kernel, group in itertools.groupby(listings, key=lambda each: each.kernel)]
    launched = [(kernel, len(list(group))) for kernel, group in itertools.groupby(kernels)]
    if [kernel for kernel, _ in printed] == [kernel for kernel, _ in launched]:
        blocks = [_every_copy_once(group, count) for (_, group), (_, count) in zip(printed, launched, strict=True)]
        return [listing for block in blocks for listing in block]
    return _neighbours_once(listings)


def _every_copy_once(listings: list[Listing], count: int) -> list[Listing]:
    """The listings of one kernel that was launched count times in a row."""
    copies, rest = divmod(len(listings), count)
    starts = range(0, len(listings), max(copies, 1))
    if rest or any(listings[start] != copy for start in starts for copy in listings[start : start + copies]):
        return _neighbours_once(listings)
    return [listings[start] for start in starts]


def _neighbours_once(listings: list[Listing]) -> list[Listing]:
    return [listing for listing, _ in itertools.groupby(listings)]


def _samples(profile: Profile) -> list[int | None]:
    counts = profile.of("smsp__pcsamp_sample_count")
    if counts is None:
        return [None] * len(profile.launches)
    return [None if count != count else int(count) for count in counts]


def _sampled_reasons(profile: Profile) -> list[frozenset[str]]:
    """Of each launch, the reasons that have samples on the raw page."""
    found = {reason: profile.of(metric) for reason, metric in sampled_metrics(profile.metrics).items()}
    return [
        frozenset(reason for reason, counts in found.items() if counts is not None and counts[i] > 0)
        for i in range(len(profile.launches))
    ]


def _with_unnamed(listing: Listing, sampled: frozenset[str]) -> list[Instruction]:
    """The instructions, samples that no column names given to the one reason that can be meant, if it is one.

    The page of 2025.3 has no column for warpgroup_arrive.
    """
    without_column = sampled - listing.reasons
    if len(without_column) != 1:
        return listing.instructions
    (reason,) = without_column
    return [
        dataclasses.replace(instruction, reasons={**instruction.reasons, reason: unnamed})
        if (unnamed := (instruction.samples or 0) - sum(instruction.reasons.values())) > 0
        else instruction
        for instruction in listing.instructions
    ]


def _listings(page: Page) -> Iterator[Listing]:
    listing: Listing | None = None
    columns: _Columns | None = None
    kernel = ""
    for row in page.records():
        if row[:1] == ["Kernel Name"] and len(row) > 1:
            if listing:
                yield listing
            kernel, listing, columns = short_name(row[1]), None, None
        elif kernel and columns is None and row[:2] == ["Address", "Source"]:
            columns = _Columns.of(row)
            listing = Listing(kernel, frozenset(columns.reasons), [])
        elif listing and columns and row:
            if len(row) != columns.count:
                raise page.cut_short(f"an instruction of {kernel} has {len(row)} of {columns.count} cells")
            try:
                listing.instructions.append(columns.instruction(row))
            except ValueError as error:
                raise page.error(f"has an instruction of {kernel} at {row[0][:40]!r}, which is no address") from error
    if listing:
        yield listing


@dataclass(frozen=True)
class _Columns:
    """Where a listing has what; the columns differ between versions and between kernels."""

    count: int
    samples: int | None
    not_issued: int | None
    executed: int | None
    sectors: int | None
    ideal_sectors: int | None
    reasons: dict[str, int]

    @classmethod
    def of(cls, header: list[str]) -> _Columns:
        place = {name: i for i, name in enumerate(header)}

        def find(names: tuple[str, ...]) -> int | None:
            return next((place[name] for name in names if name in place), None)

        return cls(
            count=len(header),
            samples=find(_SAMPLES),
            not_issued=find(_NOT_ISSUED),
            executed=find(_EXECUTED),
            sectors=find(_SECTORS),
            ideal_sectors=find(_IDEAL_SECTORS),
            reasons={reason: i for name, i in place.items() if (reason := source_reason(name))},
        )

    def instruction(self, row: list[str]) -> Instruction:
        """Raises ValueError for an address that is none of 63 bits."""
        address = int(row[0], 16)
        if not 0 <= address < 1 << 63:
            raise ValueError
        samples = _count(row, self.samples)
        reasons = {reason: _count(row, i) or 0 for reason, i in self.reasons.items()} if samples else {}
        return Instruction(
            address=address,
            sass=row[1].strip(),
            samples=samples,
            samples_not_issued=_count(row, self.not_issued),
            reasons=reasons,
            executed=_count(row, self.executed),
            sectors=_count(row, self.sectors),
            ideal_sectors=_count(row, self.ideal_sectors),
        )


def _count(row: list[str], place: int | None) -> int | None:
    """A whole number that the table has room for; None for all else."""
    cell = "" if place is None else row[place].replace(",", "")
    return int(cell) if re.fullmatch("[0-9]{1,18}", cell) else None


def hotspots_table(instructions: Mapping[int, list[Instruction]]) -> pa.Table:
    """The table ``hotspots``. instructions: launch ID -> its instructions, the first one first."""
    import pyarrow as pa

    rows = [
        (
            launch,
            instruction.address - listing[0].address,
            instruction.sass,
            instruction.source_file,
            instruction.source_line,
            instruction.samples,
            instruction.samples_not_issued,
            instruction.top_reason,
            instruction.executed,
            instruction.sectors,
            instruction.ideal_sectors,
        )
        for launch, listing in instructions.items()
        for instruction in listing
    ]
    schema = schemas.schema("hotspots")
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(cells, field.type) for field, cells in zip(schema, columns, strict=True)], schema=schema
    )
