"""The page's timeline: what ran when, exact where that is little, else in bins, so that any trace takes little room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fiprof.analysis.analyses import Analyses
from fiprof.analysis.trace import pieces, rows_of
from fiprof.model.arrays import coded, numbers
from fiprof.model.ranks import ranks_of
from fiprof.model.run import RUN_WARNINGS, Run
from fiprof.model.wording import worded
from fiprof.reports.run_report.rows import Row
from fiprof.text import escape_control, short_kernel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

SAID = (*RUN_WARNINGS, "no_trace", "no_ranges", "other_ranges")
"""What a report says at its beginning."""
BINS = 1_000
"""Of a track that has more than MOST_EXACT pieces."""
TICKS = 100_000
"""A window's length in the page's own unit of time."""
MOST_EXACT, MOST_ROWS_READ = 1_500, 60_000_000
MOST_WINDOWS, MOST_TRACKS, MOST_BYTES = 9, 24, 140_000
LEVELS = 8
"""Steps of a bin's busy share."""


def timeline(measured: Analyses, rows: Sequence[Row]) -> dict[str, Any]:
    """Windows with tracks: the whole trace, and the phase ``measure`` of the cases that take most time.

    A track's ``iv`` is a flat list: gap since the last piece, length, who (a row's place, or -1 - a name's place) and
    how busy, 1 to 8.
    """
    run = measured.run
    if not run.has("kernels") or not rows_of(run, "kernels"):
        return {"windows": [], "names": [], "notes": []}
    names: dict[str, int] = {}
    cases = [part for part in measured.timeline.phases if part.phase == "measure"] if run.cases else []
    longest = sorted(cases, key=lambda part: -part.length_us)[: MOST_WINDOWS - 1]
    windows = [
        (
            f"{part.label}" + (f", GPU {part.device}" if part.several_devices else ""),
            int(part.start_us * 1e3),
            int(part.end_us * 1e3),
        )
        for part in cases
        if part in longest
    ]
    first, last = _ends(run)
    wide = [("the whole trace", first, last)]
    made: list[dict[str, Any]] = []
    left = MOST_BYTES
    for name, start, end in (*wide, *windows) if run.of_program or not windows else (*windows, *wide):
        if end <= start:
            continue
        tracks = list(_tracks(run, rows, start, end, names))[:MOST_TRACKS]
        for track in tracks:
            size = len(msgspec.json.encode(track.get("iv", track.get("levels", []))))
            if size > left:
                track["iv"], track["cut"] = [], True
            left -= min(size, left)
        made.append(
            {"name": escape_control(name), "start_us": start / 1e3, "length_us": (end - start) / 1e3, "tracks": tracks}
        )
    notes = [escape_control(worded(each)) for each in measured.timeline.warnings if each.kind not in SAID]
    return {"windows": made, "names": [escape_control(name)[:120] for name in names], "notes": notes}


def _ends(run: Run) -> tuple[int, int]:
    """The first start and the last end of the GPU's work and of the ranges around it."""
    first, last = 2**62, 0
    for table in ("kernels", "copies"):
        for piece in pieces(run, table, ("start_ns", "end_ns")):
            if piece.num_rows:
                starts, ends = numbers(piece["start_ns"]), numbers(piece["end_ns"])
                first, last = min(first, int(starts.min())), max(last, int(ends.max()))
    return first, last


def _tracks(run: Run, rows: Sequence[Row], start: int, end: int, names: dict[str, int]) -> Iterator[dict[str, Any]]:
    ranks = ranks_of(run)

    def place(device: int) -> str:
        rank = ranks.on(device) if ranks.several else None
        return f"GPU {device}" if rank is None else f"rank {rank}"

    who = _Who(rows)
    for (device, stream), track in sorted(_kernel_tracks(run, who, start, end).items()):
        yield {"name": f"{place(device)} stream {stream}", "kind": "kernel", "iv": track.pieces(names)}
    copies = _gathered(run, "copies", ("device",), "kind" if "kind" in run.columns("copies") else "name", start, end)
    for (device,), track in sorted(copies.items()):
        yield {"name": f"{place(device)} copies", "kind": "copy", "iv": track.pieces(names)}
    for table, kind, keys in (("ranges", "range", ("pid", "tid", "depth")), ("api", "call", ("pid", "tid"))):
        found = _gathered(run, table, keys, "name", start, end)
        longest = sorted(found, key=lambda key: -found[key].total)[:6]
        for key in sorted(longest):
            depth = f" {key[2] + 1}" if kind == "range" and key[2] else ""
            title = f"thread {key[1]} {'ranges' if kind == 'range' else 'calls'}{depth}"
            yield {"name": title, "kind": kind, "iv": found[key].pieces(names)}
    yield from _levels(run, start, end)


class _Who:
    """Which row of the page a kernel belongs to."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.by_full: dict[str, int] = {}
        self.by_case: dict[tuple[str, str], int] = {}
        self.by_shape: dict[tuple[str, str, str], int] = {}
        self.program = any(row.about for row in rows)
        for place, row in enumerate(rows):
            if row.kernel:
                self.by_full.setdefault(row.full, place)
                self.by_case.setdefault((row.case, row.kernel), place)
                if row.group:
                    self.by_shape[row.case, row.kernel, row.group.grid] = place

    def of(self, case: str | None, kernel: str | None, full: str | None, grid: str | None) -> int | None:
        if self.program:
            return self.by_full.get(full or kernel or "")
        key = case or "", kernel or ""
        found = self.by_shape.get((*key, grid or ""))
        return self.by_case.get(key) if found is None else found


class _Track:
    """The pieces of a track within a window: exact while they are few, summed in bins of the window from then on."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end, self.total = start, end, 0
        self.count = 0
        self.parts: list[tuple[Ints, Ints, Ints]] = []
        self.labels: list[int | str] = []
        self.places: dict[int | str, int] = {}
        self.bins: dict[int, Any] = {}

    def label(self, who: int | str) -> int:
        if who not in self.places:
            self.places[who] = len(self.labels)
            self.labels.append(who)
        return self.places[who]

    def add(self, starts: Ints, ends: Ints, who: Ints) -> None:
        """More pieces, with the places of their labels."""
        self.total += int((ends - starts).sum())
        self.count += len(starts)
        self.parts.append((starts, ends, who))
        if sum(len(part[0]) for part in self.parts) > MOST_EXACT:
            self._fold()

    def _fold(self) -> None:
        """Sum what is shorter than a bin; what is longer stays."""
        import numpy as np

        starts, ends, who = map(np.concatenate, zip(*self.parts, strict=True))
        width = max((self.end - self.start) / BINS, 1.0)
        long = ends - starts >= 2 * width
        at = np.clip(((starts + ends) / 2 - self.start) / width, 0, BINS - 1).astype(np.int64)
        for label in np.unique(who[~long]).tolist():
            mine = (who == label) & ~long
            summed = np.bincount(at[mine], (ends - starts)[mine], BINS)
            self.bins[label] = summed + self.bins[label] if label in self.bins else summed
        self.parts = [(starts[long], ends[long], who[long])]

    def pieces(self, names: dict[str, int]) -> list[int]:
        """The flat list of :func:`timeline`."""
        import numpy as np

        if self.count > MOST_EXACT:
            self._fold()
        scale, found = TICKS / (self.end - self.start), []
        for starts, ends, who in self.parts:
            for one, other, label in zip(starts.tolist(), ends.tolist(), who.tolist(), strict=True):
                at = round((one - self.start) * scale)
                found.append((at, max(round((other - self.start) * scale) - at, 1), label, LEVELS))
        if self.bins:
            width = max((self.end - self.start) / BINS, 1.0)
            labels = np.array(list(self.bins))
            shares = np.stack(list(self.bins.values()))
            busy, most = shares.sum(0), labels[shares.argmax(0)]
            level = np.where(busy > 0, np.clip(np.round(busy / width * LEVELS), 1, LEVELS), 0).astype(int)
            edges = [round(place * width * scale) for place in range(BINS + 1)]
            place = 0
            while place < BINS:
                stop = place + 1
                while stop < BINS and level[stop] == level[place] and (most[stop] == most[place] or not level[place]):
                    stop += 1
                if level[place]:
                    found.append((edges[place], edges[stop] - edges[place], int(most[place]), int(level[place])))
                place = stop
        flat, last = [], 0
        for at, length, label, level_of in sorted(found):
            label_of = self.labels[label]
            who_is = label_of if isinstance(label_of, int) else -1 - names.setdefault(label_of, len(names))
            flat += [at - last, length, who_is, level_of]
            last = at
        return flat


Tracks = dict[tuple[int, ...], _Track]


def _kernel_tracks(run: Run, who: _Who, start: int, end: int) -> Tracks:
    import numpy as np

    found: Tracks = {}
    names = ("case", "kernel", "kernel_full", "grid")
    known: dict[tuple[Any, ...], int | str] = {}
    for piece in pieces(run, "kernels", ("start_ns", "end_ns", "device", "stream", *names)):
        starts, ends = numbers(piece["start_ns"]), numbers(piece["end_ns"])
        kept = np.flatnonzero((ends > start) & (starts < end))
        if not len(kept):
            continue
        starts, ends = np.maximum(starts[kept], start), np.minimum(ends[kept], end)
        texts, codes = zip(*(coded(piece[name]) for name in names), strict=True)
        combined = np.zeros(len(kept), np.int64)
        for text, code in zip(texts, codes, strict=True):
            combined = combined * (len(text) + 1) + code[kept]
        shapes, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
        kinds: list[int | str] = []
        for at in first.tolist():
            row = tuple(text[code[kept[at]]] for text, code in zip(texts, codes, strict=True))
            if row not in known:
                place = who.of(*row)
                known[row] = short_kernel(row[1] or "kernel") if place is None else place
            kinds.append(known[row])
        devices, streams = numbers(piece["device"])[kept], numbers(piece["stream"])[kept]
        del shapes
        for key in np.unique(np.stack([devices, streams], 1), axis=0).tolist():
            mine = (devices == key[0]) & (streams == key[1])
            track = found.setdefault((key[0], key[1]), _Track(start, end))
            labels = np.array([track.label(kind) for kind in kinds])
            track.add(starts[mine], ends[mine], labels[inverse[mine]])
    return found


def _gathered(run: Run, table: str, keys: Sequence[str], name: str, start: int, end: int) -> Tracks:
    """The pieces of a table within a window, a track a key."""
    import numpy as np

    found: Tracks = {}
    there = run.columns(table)
    if name not in there or not {"start_ns", "end_ns", *keys} <= there:
        return found
    for piece in pieces(run, table, ("start_ns", "end_ns", *keys, name)):
        starts, ends = numbers(piece["start_ns"]), numbers(piece["end_ns"])
        of_keys = [numbers(piece[key]) for key in keys]
        kept = np.flatnonzero((ends > start) & (starts < end) & (ends > starts))
        if "depth" in keys:
            kept = kept[of_keys[-1][kept] < 3]
        if not len(kept):
            continue
        texts, codes = coded(piece[name])
        starts, ends, codes = np.maximum(starts[kept], start), np.minimum(ends[kept], end), codes[kept]
        columns = np.stack([each[kept] for each in of_keys], 1)
        for key in np.unique(columns, axis=0).tolist():
            mine = (columns == key).all(1)
            track = found.setdefault(tuple(key), _Track(start, end))
            labels = {code: track.label(texts[code] or "–") for code in np.unique(codes[mine]).tolist()}
            track.add(starts[mine], ends[mine], np.array([labels[code] for code in codes[mine].tolist()]))
    return found


SAMPLED: Mapping[str, str] = {
    "SMs Active": "SMs active", "Tensor Active": "tensor cores", "DRAM Read Bandwidth": "DRAM read",
    "DRAM Write Bandwidth": "DRAM write",
}  # fmt: skip


def _levels(run: Run, start: int, end: int) -> Iterator[dict[str, Any]]:
    """What the hardware did, and the device memory that was allocated: a value a bin, 0 to 100, or -1 for unknown.

    A sample of the hardware is of the time since the one before it: it fills the bins back to that.
    """
    import numpy as np

    width = (end - start) / (BINS // 4)
    if {"time_ns", "device", "metric", "value"} <= run.columns("gpu_metrics"):
        sums: dict[tuple[int, str], list[Any]] = defaultdict(lambda: [np.zeros(BINS // 4), np.zeros(BINS // 4)])
        for piece in pieces(run, "gpu_metrics", ("time_ns", "device", "metric", "value")):
            times = numbers(piece["time_ns"])
            texts, codes = coded(piece["metric"])
            devices, values = numbers(piece["device"]), np.nan_to_num(piece["value"].to_numpy())
            inside = (times >= start) & (times < end)
            for code, text in enumerate(texts):
                title = next((shown for raw, shown in SAMPLED.items() if text and text.startswith(raw)), None)
                if title is None:
                    continue
                for device in np.unique(devices[inside & (codes == code)]).tolist():
                    mine = inside & (codes == code) & (devices == device)
                    at = ((times[mine] - start) / width).astype(np.int64)
                    sums[device, title][0] += np.bincount(at, values[mine], BINS // 4)
                    sums[device, title][1] += np.bincount(at, minlength=BINS // 4)
        for (device, title), (total, count) in sorted(sums.items()):
            sampled = np.flatnonzero(count)
            spacing = np.diff(sampled).max(initial=1) if len(sampled) < 3 else 2 * np.median(np.diff(sampled))
            bins = np.arange(BINS // 4)
            following = sampled[np.minimum(np.searchsorted(sampled, bins), len(sampled) - 1)]
            held = (following >= bins) & (following - bins < spacing)
            mean = np.where(held, (total / np.maximum(count, 1))[following], -1.0)
            yield {
                "name": f"GPU {device} {title}",
                "kind": "level",
                "levels": np.clip(np.round(mean), -1, 100).astype(int).tolist(),
                "full": "100 %",
            }
    if {"time_ns", "total_bytes", "device", "pid"} <= run.columns("memory"):
        table = run.table("memory", ["time_ns", "total_bytes", "device", "pid"])
        times, totals, devices, pids = map(numbers, table.columns)
        order = np.argsort(times, kind="stable")
        edges = start + width * np.arange(1, BINS // 4 + 1)
        largest = max(int(totals.max()), 1) if len(totals) else 1
        holders = np.unique(np.stack([devices, pids], 1), axis=0).tolist()
        for device, pid in holders:
            mine = order[((devices == device) & (pids == pid))[order]]
            at = np.searchsorted(times[mine], edges, side="right") - 1
            held = np.where(at >= 0, totals[mine][np.maximum(at, 0)], 0)
            yield {
                "name": f"GPU {device} memory" + (f" of {pid}" if sum(one == device for one, _ in holders) > 1 else ""),
                "kind": "level", "full": f"{largest / 1e9:,.2f} GB",
                "levels": np.round(100 * held / largest).astype(int).tolist(),
            }  # fmt: skip
