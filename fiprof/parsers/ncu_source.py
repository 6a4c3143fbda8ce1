"""ncu's source page as CSV: for each launch a line with its kernel's name, a header, and a row a SASS instruction."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fiprof.model import schemas
from fiprof.parsers.names import short_name
from fiprof.parsers.ncu_csv import Page, read_page
from fiprof.parsers.ncu_profile import Profile, sampled_metrics, source_reason

COLUMNS = {
    "samples": ("# Samples", "Warp Stall Sampling (All Samples)", "Sampling Data (All)"),
    "samples_not_issued": ("Warp Stall Sampling (Not-issued Samples)", "Sampling Data (Not Issued)"),
    "executed": ("Instructions Executed", "# Instructions Executed"),
    "sectors": ("L2 Theoretical Sectors Global",),
    "ideal_sectors": ("L2 Theoretical Sectors Global Ideal",),
}
"""Column of the table ``hotspots`` -> its names on the pages of different versions."""

Instruction = dict[str, Any]
"""A row of the table ``hotspots``, its address as loaded, with ``reasons``: samples by reason, empty without any."""


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
        return sum(instruction["samples"] or 0 for instruction in self.instructions)


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
    launches, kernels = profile.launches["launch"], [short_name(name) for name in profile.launches["kernel_full"]]
    chosen = _without_repetitions(listings, kernels)
    if len(chosen) != len(kernels):
        raise page.error(f"does not fit the raw page: {len(chosen)} listings, {len(kernels)} launches")
    counted = _counts(profile, "smsp__pcsamp_sample_count")
    sampled = {reason: _counts(profile, metric) for reason, metric in sampled_metrics(profile.metrics).items()}
    hotspots = {}
    for place, (listing, launch) in enumerate(zip(chosen, launches, strict=True)):
        if listing.kernel != kernels[place]:
            raise page.error(f"does not fit the raw page: launch {launch} is not {listing.kernel}")
        if counted[place] not in (None, listing.samples):
            samples = f"{counted[place]} samples, its listing {listing.samples}"
            raise page.error(f"does not fit the raw page: launch {launch} has {samples}")
        _name_samples(listing, {reason for reason, counts in sampled.items() if (counts[place] or 0) > 0})
        hotspots[launch] = listing.instructions
    return hotspots_table(hotspots)


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


def _counts(profile: Profile, metric: str) -> list[int | None]:
    """A count of each launch; None where it was not collected."""
    counts = profile.of(metric)
    if counts is None:
        return [None] * len(profile.launches["launch"])
    return [None if count != count else int(count) for count in counts]


def _name_samples(listing: Listing, sampled: set[str]) -> None:
    """Give samples that no column names to the one reason that can be meant, if it is one.

    The page of 2025.3 has no column for warpgroup_arrive. sampled: reasons with samples on the raw page.
    """
    without_column = sampled - listing.reasons
    if len(without_column) == 1:
        (reason,) = without_column
        for instruction in listing.instructions:
            unnamed = (instruction["samples"] or 0) - sum(instruction["reasons"].values())
            if unnamed > 0:
                instruction["reasons"][reason] = unnamed


def _listings(page: Page) -> Iterator[Listing]:
    listing: Listing | None = None
    header: dict[str, int] = {}
    columns: dict[str, int | None] = {}
    reasons: dict[str, int] = {}
    kernel, width = "", 0
    for row in page.records():
        if row[:1] == ["Kernel Name"] and len(row) > 1:
            if listing:
                yield listing
            kernel, listing = short_name(row[1]), None
        elif kernel and listing is None and row[:2] == ["Address", "Source"]:
            # Columns differ between versions and between kernels.
            header, width = {name: place for place, name in enumerate(row)}, len(row)
            columns = {
                column: next((header[name] for name in names if name in header), None)
                for column, names in COLUMNS.items()
            }
            reasons = {reason: place for name, place in header.items() if (reason := source_reason(name))}
            listing = Listing(kernel, frozenset(reasons), [])
        elif listing and row:
            if len(row) != width:
                raise page.cut_short(f"an instruction of {kernel} has {len(row)} of {width} cells")
            try:
                address = int(row[0], 16)
            except ValueError:
                address = -1
            if not 0 <= address < 1 << 63:
                raise page.error(f"has an instruction of {kernel} at {row[0][:40]!r}, which is no address")
            counts = {column: _count(row, place) for column, place in columns.items()}
            sampled = (
                {reason: _count(row, place) or 0 for reason, place in reasons.items()} if counts["samples"] else {}
            )
            instruction = {"address": address, "sass": row[1].strip(), **counts, "reasons": sampled}
            listing.instructions.append(instruction)
    if listing:
        yield listing


def _count(row: list[str], place: int | None) -> int | None:
    """A whole number that the table has room for; None for all else."""
    cell = "" if place is None else row[place].replace(",", "")
    return int(cell) if re.fullmatch("[0-9]{1,18}", cell) else None


def hotspots_table(instructions: Mapping[int, list[Instruction]]) -> pa.Table:
    """The table ``hotspots``. instructions: launch ID -> its instructions, the first one first."""
    rows = [
        {
            **instruction,
            "launch": launch,
            "address": instruction["address"] - listing[0]["address"],
            "top_reason": _top_reason(instruction),
        }
        for launch, listing in instructions.items()
        for instruction in listing
    ]
    return pa.Table.from_pylist(rows, schemas.schema("hotspots"))


def _top_reason(instruction: Instruction) -> str | None:
    """The reason with most samples; None without samples, or where the page does not name it."""
    reasons = instruction["reasons"]
    unnamed = (instruction["samples"] or 0) - sum(reasons.values())
    top: str | None = max(reasons, key=reasons.__getitem__, default=None)
    return None if top is None or unnamed > reasons[top] else top
