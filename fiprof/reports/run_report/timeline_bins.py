"""The page's timeline: what ran when, exact where that is little, else in bins, so that any trace takes little room."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from fiprof.analysis import samples
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.trace import readable
from fiprof.model.arrays import Ints, Kinds, numbers
from fiprof.model.finding import words_of
from fiprof.model.manifest import RUN_WARNINGS
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import split
from fiprof.reports.run_report.rows import Row
from fiprof.text import escape_control, short_kernel

SAID = (*RUN_WARNINGS, "no_trace", "no_ranges", "other_ranges", "no_cases", "unmarked")
"""What a report says at its beginning, or needs not say: who wants cases of a program."""
BINS = 1_000  # of a track that has more than MOST_EXACT pieces
LEVEL_BINS = BINS // 4
TICKS = 100_000  # a window's length in the page's own unit of time
MOST_EXACT, MOST_WINDOWS, MOST_TRACKS, MOST_BYTES = 1_500, 9, 24, 140_000
MOST_THREADS, MOST_DEPTH = 6, 3  # threads that are shown, those with most time, and nested ranges of each
LEVELS = 8  # steps of a bin's busy share
SAMPLED = {
    "sms_active": "SMs active", "tensor_active": "tensor cores", "dram_read": "DRAM read", "dram_write": "DRAM write",
}  # fmt: skip
Window = tuple[str, int, int]  # name, start and end, ns


def timeline(measured: Analyses, rows: Sequence[Row]) -> dict[str, Any]:
    """Windows with tracks: the whole trace, and the phase ``measure`` of the cases that take most time.

    A track's ``iv`` is a flat list: gap since the last piece, length, who (a row's place, or -1 - a name's place) and
    how busy, 1 to 8.
    """
    run = measured.run
    if not run.row_count("kernels"):
        return {"windows": [], "names": [], "notes": []}
    cases = [part for part in measured.timeline.phases if part.phase == "measure"] if run.cases else []
    longest = sorted(cases, key=lambda part: -part.length_us)[: MOST_WINDOWS - 1]
    windows: list[Window] = []
    for part in (part for part in cases if part in longest):
        where = f", GPU {part.device}" if part.several_devices else ""
        windows.append((part.label + where, int(part.start_us * 1e3), int(part.end_us * 1e3)))
    first, last = 1 << 62, 0
    for table in ("kernels", "copies"):
        for piece in run.pieces(table, ("start_ns", "end_ns")):
            if piece.num_rows:
                first, last = min(first, int(numbers(piece[0]).min())), max(last, int(numbers(piece[1]).max()))
    wide = ("the whole trace", first, last)
    windows = [wide, *windows] if run.of_program or not windows else [*windows, wide]
    names: dict[str, int] = {}
    shown_windows: list[dict[str, Any]] = []
    bytes_left = MOST_BYTES
    windows = [(name, start, end) for name, start, end in windows if end > start]
    for (name, start, end), tracks in zip(windows, _tracks(run, rows, windows, names), strict=True):
        for track in tracks[:MOST_TRACKS]:
            size = len(msgspec.json.encode(track.get("iv", track.get("levels", []))))
            if size > bytes_left:
                track["iv"], track["cut"] = [], True
            bytes_left -= min(size, bytes_left)
        times = {"start_us": start / 1e3, "length_us": (end - start) / 1e3}
        shown_windows.append({"name": escape_control(name), **times, "tracks": tracks[:MOST_TRACKS]})
    notes = [escape_control(words_of(each)) for each in measured.timeline.warnings if each.kind not in SAID]
    return {"windows": shown_windows, "names": [escape_control(name)[:120] for name in names], "notes": notes}


def _tracks(
    run: Run, rows: Sequence[Row], windows: Sequence[Window], names: dict[str, int]
) -> Iterator[list[dict[str, Any]]]:
    ranks = ranks_of(run)
    place = {rank.device: f"rank {rank.rank}" for rank in ranks.all if ranks.on(rank.device) is not None}

    def name(text: str | None) -> str:
        return text or "–"

    which = ("case", "kernel", "kernel_full", "grid")
    kernels = _gathered(run, "kernels", ("device", "stream"), which, _who(rows), windows)
    copies = _gathered(run, "copies", ("device",), ("kind",), name, windows)
    ranges = _gathered(run, "ranges", ("pid", "tid", "depth"), ("name",), lambda text: readable(name(text)), windows)
    calls = _gathered(run, "api", ("pid", "tid"), ("name",), name, windows)
    for number, (_, start, end) in enumerate(windows):
        titled: list[tuple[str, str, _Track]] = []
        for (device, stream), track in sorted(kernels[number].items()):
            titled.append((f"{place.get(device, f'GPU {device}')} stream {stream}", "kernel", track))
        for (device,), track in sorted(copies[number].items()):
            titled.append((f"{place.get(device, f'GPU {device}')} copies", "copy", track))
        for kind, tracks in (("range", ranges[number]), ("call", calls[number])):
            for key in sorted(sorted(tracks, key=lambda key: -tracks[key].total)[:MOST_THREADS]):
                depth = f" {key[2] + 1}" if kind == "range" and key[2] else ""
                titled.append((f"thread {key[1]} {kind}s{depth}", kind, tracks[key]))
        lines = [{"name": title, "kind": kind, "iv": track.pieces(names)} for title, kind, track in titled]
        yield [*lines, *_levels(run, start, end)]


def _who(rows: Sequence[Row]) -> Callable[..., int | str]:
    """Which row of the page a kernel belongs to; its name, where none."""
    by_full: dict[str, int] = {}
    by_case: dict[tuple[str, str], int] = {}
    by_shape: dict[tuple[str, str, str], int] = {}
    program = any(row.about for row in rows)
    for place, row in enumerate(rows):
        if row.kernel:
            by_full.setdefault(row.full, place)
            by_case.setdefault((row.case, row.kernel), place)
            if row.group:
                by_shape[row.case, row.kernel, row.group.shown.grid] = place

    def who(case: str | None, kernel: str | None, full: str | None, grid: str | None) -> int | str:
        key = case or "", kernel or ""
        found = by_full.get(full or key[1]) if program else by_shape.get((*key, grid or ""), by_case.get(key))
        return short_kernel(kernel or "kernel") if found is None else found

    return who


class _Track:
    """The pieces of a track within a window: exact while they are few, summed in bins of the window from then on."""

    def __init__(self, start: int, end: int, labels: Sequence[int | str]) -> None:
        self.start, self.end, self.labels = start, end, labels
        self.count = self.total = 0
        self.parts: list[tuple[Ints, Ints, Ints]] = []
        self.bins: dict[int, Any] = {}  # label -> ns in each bin

    def add(self, starts: Ints, ends: Ints, who: Ints) -> None:
        """More pieces, with the places of their labels."""
        self.total += int((ends - starts).sum())
        self.count += len(starts)
        self.parts.append((starts, ends, who))
        if sum(len(part[0]) for part in self.parts) > MOST_EXACT:
            self._fold()

    def _fold(self) -> None:
        """Sum what is shorter than two bins; what is longer stays."""
        starts, ends, who = map(np.concatenate, zip(*self.parts, strict=True))
        width = max((self.end - self.start) / BINS, 1.0)
        long = ends - starts >= 2 * width
        at = np.clip(((starts + ends) / 2 - self.start) / width, 0, BINS - 1).astype(np.int64)
        short = np.flatnonzero(~long)
        for label, rows in split(who[short]):
            summed = np.bincount(at[short[rows]], (ends - starts)[short[rows]], BINS)
            self.bins[label] = summed + self.bins.get(label, 0)
        self.parts = [(starts[long], ends[long], who[long])]

    def pieces(self, names: dict[str, int]) -> list[int]:
        """The flat list of :func:`timeline`."""
        if self.count > MOST_EXACT:
            self._fold()
        scale = TICKS / (self.end - self.start)
        drawn: list[tuple[int, int, int, int]] = []
        for starts, ends, who in self.parts:
            begin, end = (np.rint((each - self.start) * scale).astype(np.int64) for each in (starts, ends))
            lengths = np.maximum(end - begin, 1).tolist()
            drawn += zip(begin.tolist(), lengths, who.tolist(), itertools.repeat(LEVELS), strict=False)
        if self.bins:
            width = max((self.end - self.start) / BINS, 1.0)
            shares = np.stack(list(self.bins.values()))
            busy, most = shares.sum(0), np.array(list(self.bins))[shares.argmax(0)]
            level = np.where(busy > 0, np.clip(np.round(busy / width * LEVELS), 1, LEVELS), 0).astype(int)
            # Neighbouring bins that look alike are one piece.
            most = np.where(level > 0, most, -1)
            opens = np.append(0, np.flatnonzero((np.diff(level) != 0) | (np.diff(most) != 0)) + 1).tolist()
            for place, stop in zip(opens, [*opens[1:], BINS], strict=True):
                if level[place]:
                    at, until = round(place * width * scale), round(stop * width * scale)
                    drawn.append((at, until - at, int(most[place]), int(level[place])))
        flat, last = [], 0
        for at, length, label, level_of in sorted(drawn):
            label_of = self.labels[label]
            who_is = label_of if isinstance(label_of, int) else -1 - names.setdefault(label_of, len(names))
            flat += [at - last, length, who_is, level_of]
            last = at
        return flat


Tracks = dict[tuple[int, ...], _Track]


def _gathered(
    run: Run,
    table: str,
    keys: Sequence[str],
    label_columns: Sequence[str],
    label: Callable[..., int | str],
    windows: Sequence[Window],
) -> list[Tracks]:
    """The pieces of a table within each window, a track a key. label: of what the columns ``said`` say."""
    by_window: list[Tracks] = [{} for _ in windows]
    kinds, places = Kinds(), Kinds()
    labels: list[int | str] = []
    of_label: dict[int | str, int] = {}
    of_kind: list[int] = []  # kind -> place in ``labels``
    for piece in run.pieces(table, ("start_ns", "end_ns", *keys, *label_columns)):
        starts, ends = numbers(piece["start_ns"]), numbers(piece["end_ns"])
        inside = ends > starts
        if "depth" in keys:
            inside &= numbers(piece["depth"]) < MOST_DEPTH
        kind = kinds.of(piece.select(label_columns))
        for values in list(kinds.numbers)[len(of_kind) :]:
            of_kind.append(of_label.setdefault(label(*values), len(of_label)))
        labels[:] = of_label
        who = np.array(of_kind, np.int64)[kind]
        where = places.of(piece.select([]), **{key: numbers(piece[key]) for key in keys})
        keys_met = list(places.numbers)
        for (_, start, end), tracks in zip(windows, by_window, strict=True):
            within = np.flatnonzero(inside & (ends > start) & (starts < end))
            for place, rows in split(where[within]):
                of_track = within[rows]
                track = tracks.setdefault(keys_met[place], _Track(start, end, labels))
                track.add(np.maximum(starts[of_track], start), np.minimum(ends[of_track], end), who[of_track])
    return by_window


def _levels(run: Run, start: int, end: int) -> Iterator[dict[str, Any]]:
    """What the hardware did, and the device memory that was allocated: a value a bin, 0 to 100, or -1 for unknown."""
    width, bins = (end - start) / LEVEL_BINS, np.arange(LEVEL_BINS)
    for device, sampled in sorted(samples.read(run).items()):
        for key, title in SAMPLED.items():
            times, values = sampled.series.get(key, (np.empty(0), np.empty(0)))
            inside = (times >= start) & (times < end)
            at = ((times[inside] - start) / width).astype(np.int64)
            if not len(at):
                continue
            count = np.bincount(at, minlength=LEVEL_BINS)
            mean = np.bincount(at, values[inside], LEVEL_BINS) / np.maximum(count, 1)
            # A sample is of the time until the next one.
            filled = np.flatnonzero(count)
            spacing = np.diff(filled).max(initial=1) if len(filled) < 3 else 2 * np.median(np.diff(filled))
            before = filled[np.maximum(np.searchsorted(filled, bins, side="right") - 1, 0)]
            held = (before <= bins) & (bins - before < spacing)
            levels = np.clip(np.round(np.where(held, mean[before], -1.0)), -1, 100).astype(int).tolist()
            yield {"name": f"GPU {device} {title}", "kind": "level", "levels": levels, "full": "100 %"}
    edges, memory = start + width * (bins + 1), samples.device_memory(run)
    largest = max((int(totals.max()) for _, totals in memory.values()), default=0) or 1
    for (device, pid), (times, totals) in memory.items():
        held_bytes = np.append(0, totals)[np.searchsorted(times, edges, side="right")]
        several = sum(one == device for one, _ in memory) > 1
        yield {
            "name": f"GPU {device} memory" + (f" of {pid}" if several else ""), "kind": "level",
            "full": f"{largest / 1e9:,.2f} GB", "levels": np.round(100 * held_bytes / largest).astype(int).tolist(),
        }  # fmt: skip
