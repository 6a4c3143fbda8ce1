"""Copies and memory sets of a trace by kind: how much, how fast, and how much of it while no kernel ran."""

import re
from collections import defaultdict

import numpy as np

from fiprof.analysis import samples
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.idle import parts
from fiprof.analysis.steady import steady
from fiprof.model.arrays import Ints, Kinds, numbers
from fiprof.model.finding import Finding, finding
from fiprof.model.quantities import QUANTITIES
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import split

COPIES = columns("copies")
"""memory: of the host, pageable or pinned, where nsys tells. total_ms: one after the other; share: of the GPU's time.
alone_ms: while no kernel ran. peak_gb_per_s: of the link to the host, or of DRAM: a copy in it reads and writes."""
HOST = ("Host-to-Device", "Device-to-Host")
LINKS = ((re.compile(r"\b(A100|A10G?|A30|A40|L4|L40S?)\b"), 31.5), (re.compile(r"\b(H20|H100|H200|B200|B300)\b"), 63.0))
"""GPUs by name, and GB/s of their link to the host in one direction: 16 lanes of PCIe 4 or 5 with 16 or 32 Gbit/s, of
which 128 in 130 are data. Where copies are faster, it is another link."""


def copies(run: Run, *, within_steady: bool = False) -> list[Row]:
    """Rows of COPIES, the most time first. within_steady: those that begin in the steady part, or all."""
    kinds, ranks, gpus = Kinds(), ranks_of(run), parts(run, within_steady=within_steady)
    sums: dict[int, Ints] = defaultdict(lambda: np.zeros(3, np.int64))
    for piece in run.pieces("copies", ("start_ns", "end_ns", "bytes", "device", "kind", "memory")):
        starts, ends, sizes, devices = map(numbers, piece.columns[:4])
        kind, within = kinds.of(piece.select(["device", "kind", "memory"])), np.ones(len(starts), bool)
        for device, each in (steady(run) if within_steady else {}).items():
            within &= (devices != device) | each.holds(starts)
        values = np.stack([np.ones_like(starts), ends - starts, np.maximum(sizes, 0)])[:, within]
        for number, here in split(kind[within]):
            sums[number] += values[:, here].sum(axis=1)
    rows = []
    for (device, kind, memory), number in kinds.numbers.items():
        if number in sums and (part := gpus.get(device)):
            count, ns, size = sums[number].tolist()
            alone = sum(each for what, each in part.copies.items() if (what.kind, what.memory) == (kind, memory))
            rows.append({
                "rank": ranks.on(device), "device": device, "kind": kind, "memory": memory, "count": count,
                "total_ms": ns / 1e6, "share": ns / max(part.window_ns, 1), "alone_ms": alone / 1e6,
                **speed(run, kind or "", size, ns),
            })  # fmt: skip
    return sorted(rows, key=lambda row: -row["total_ms"])


def speed(run: Run, kind: str, size: int, ns: int) -> Row:
    """Bytes and GB/s of copies of a kind, beside the most that their way allows; None where that is not known."""
    rate, peak = size / ns if ns else None, None
    if kind in HOST:
        name = str(run.environment("gpu", "name"))
        peak = next((gb_per_s for names, gb_per_s in LINKS if names.search(name)), None)
    elif "Peer" not in kind and run.launches:
        peak = QUANTITIES["dram_roof_gb_per_s"].of(run.launches[0])
    moved = (rate or 0.0) * (2 if kind == "Device-to-Device" else 1)
    peak = None if peak is None or moved > peak else peak
    return {"bytes": size, "gb_per_s": rate, "peak_gb_per_s": peak, "of_peak": peak and moved / peak}


def dram_rate(run: Run, device: int) -> tuple[float, Finding] | None:
    """GB/s of a GPU's DRAM, and where from: the highest that ncu measured of a launch, else that nsys sampled, else the
    most that it can move; None where nothing tells."""
    rates = {QUANTITIES["dram_gb_per_s"].of(each): each.kernel for each in run.launches or ()}
    if measured := max((each for each in rates if each is not None), default=None):
        return measured, finding("ncu", "measured by ncu of {kernel}", kernel=rates[measured])
    rows = run.rows("processes", ("device", "dram_bytes_per_s"))
    peak = next((row["dram_bytes_per_s"] or 0 for row in rows if row["device"] == max(device, 0)), 0) / 1e9
    if peak <= 0:
        return None
    sampled = samples.read(run).get(max(device, 0))
    if sampled and (share := sampled.largest.get("dram", 0.0) / 100):
        return share * peak, finding("nsys", "the highest that nsys sampled, {share:.0%} of the peak", share=share)
    return peak, finding("peak", "the peak of the GPU: no counter measured it")
