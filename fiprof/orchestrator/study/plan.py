"""What a session of a study measures: the cases that fit and are not done yet, in batches that share processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fiprof.model.manifest import CaseEntry
from fiprof.workloads.case import Case, short_name

FIXED_BYTES = 2 << 30
"""CUDA's context, the kernels' code, a library's workspaces of 128 MiB, fragments."""

CHECK_COPIES = 7
"""Times that an output takes while it is compared: itself, the float32 reference and its parts, their difference."""


@dataclass(frozen=True)
class Plan:
    """A session."""

    batches: tuple[tuple[Case, ...], ...]
    skipped: Mapping[str, str]
    """Case id -> why it is not measured on this GPU."""
    done: Mapping[str, str]
    """Case id -> the run that holds it, or why it failed."""

    @property
    def cases(self) -> int:
        """Still to be measured."""
        return sum(map(len, self.batches))


def make_plan(
    cases: Sequence[Case],
    entries: Mapping[str, CaseEntry],
    *,
    done: Mapping[str, str],
    free_bytes: int | None,
    batch_cases: int,
) -> Plan:
    """entries: case id -> its cost. free_bytes: of the GPU's memory; None where the driver does not say."""
    skipped = {}
    for case in cases:
        needed = needed_bytes(entries[case.id])
        if case.id not in done and free_bytes is not None and needed > free_bytes:
            skipped[case.id] = (
                f"does not fit: it needs some {needed / 2**30:.1f} GiB of device memory, "
                f"{free_bytes / 2**30:.1f} GiB are free"
            )
    left = [case for case in cases if case.id not in done and case.id not in skipped]
    return Plan(
        tuple(batches(left, batch_cases)),
        skipped,
        {case.id: done[case.id] for case in cases if case.id in done},
    )


def needed_bytes(entry: CaseEntry) -> int:
    """Device memory that a case takes, roughly: inputs, outputs, the comparison with the reference, FIXED_BYTES."""
    return entry.bytes_read + CHECK_COPIES * entry.bytes_written + FIXED_BYTES


def batches(cases: Iterable[Case], size: int) -> list[tuple[Case, ...]]:
    """The cases in groups that share processes, each of at most ``size``, in their order.

    A workload's cases stay together where they fit, and are split evenly where not; small workloads share a group up
    to half of that number.
    """
    by_workload: dict[str, list[Case]] = {}
    for case in cases:
        by_workload.setdefault(case.workload, []).append(case)
    found: list[tuple[Case, ...]] = []
    for group in by_workload.values():
        parts = -(-len(group) // size)
        for part in range(parts):
            piece = tuple(group[part * len(group) // parts : (part + 1) * len(group) // parts])
            if found and len(found[-1]) + len(piece) <= size // 2:
                found[-1] += piece
            else:
                found.append(piece)
    return found


def label(batch: Sequence[Case]) -> str:
    """``prefill (64)``; of several workloads ``rmsnorm (10), rope (12)``."""
    counts = Counter(short_name(case.workload) for case in batch)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
