"""The steady, repeating part of what each GPU did, told apart from the start-up: by fiprof's own range ``measure``, by
the program's NVTX ranges that come again and again, or by a kernel that comes once in each repetition of the others.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fiprof.analysis.trace import FEWEST_STEPS, calls, marks, of_device
from fiprof.model.arrays import Ints, Quantiles, numbers
from fiprof.model.finding import Wording
from fiprof.model.ranks import COLLECTIVE, ranks_of
from fiprof.model.run import Run, once
from fiprof.model.selection import by_key
from fiprof.model.spans import LONG_AGO, NOTHING, Stretches, split
from fiprof.text import detailed_kernel

FOREVER = -LONG_AGO
FEWEST_PATTERNS = 5  # repetitions of a kernel that are steps
LONGER = 1.5  # times the median step: what takes longer than this, at the beginning, is start-up
COVERED = 0.5  # share of the kernels' time, or of the kernels, that steps, or the layers of a step, hold at least
ODD, FEW_ODD, MANY_STEPS = 5.0, 2, 20
"""One step, or two, of many that take so many times as long as the next longest are left out: they do not repeat."""
REGULAR = 0.25  # (p90 - p10) / median of the number of kernels from one repetition to the next, at most
ALIKE = 0.9  # share of a step's kernels that are those of the step before, at least, where only a variant differs
LAYER_NS, FEW_KERNELS = 1e6, 8
"""A pattern of kernels that repeats sooner is a part of a program's step; pauses tell how many, of no more kernels."""
SAMPLED, LONGEST_STEP, LONGEST_PERIOD = 1 << 20, 1 << 16, 4096
"""Kernels among which a pattern is looked for, of a step in which layers are, and of a layer, at most."""
OPERATORS = ("aten::", "{")
"""How the ranges of PyTorch's operators begin, by its profiler and by PyProf: they are parts of steps."""
STEP = re.compile(r"(^|\s)(profiler|_forward_)?step(?![a-z])|^execute_", re.IGNORECASE)
"""A range that says that it is a step (PyTorch's profiler, TensorRT-LLM, SGLang, vLLM), even if it comes once."""
MOST_LAYERS = 1 << 14  # repetitions that may be layers of longer ones, at most


class By(Wording):
    """How the steady part was found."""

    MEASURE = "measure", "the measured part"
    """fiprof's own phase, or what lies between cudaProfilerStart and cudaProfilerStop."""
    RANGES = "ranges", "ranges {name}"
    PATTERN = "pattern", "repetitions of {name}"  # of a kernel that comes once in each
    WHOLE = "whole", "the whole trace: nothing in it repeats"


@dataclass(frozen=True)
class Steady:
    """The steady part of what a GPU did; times in ns since the trace began."""

    by: By
    begins: Ints
    ends: Ints  # disjoint intervals, by start: one but where cases are measured one after the other
    name: str | None = None  # of the ranges, their numbers as ``*``, or of the kernel
    steps: Ints = field(default_factory=list)  # type: ignore[arg-type]
    """When each of its steps begins on the GPU."""
    early: tuple[int, ...] = ()  # when the steps before it begin, which are start-up; the first of ranges, on the host
    inside: float = 0.0  # share of the kernels' time launched inside its ranges, not between them

    def holds(self, moments: Ints) -> Any:
        return Stretches(self.begins, self.ends, np.zeros(len(self.begins), int)).at(moments) != NOTHING

    @property
    def step_ns(self) -> float | None:
        """Median length of its steps; None without steps."""
        return float(np.median(np.diff(self.steps, append=self.ends[-1]))) if len(self.steps) else None


WHOLE = Steady(By.WHOLE, np.array([LONG_AGO]), np.array([FOREVER]))


@once
def steady(run: Run) -> dict[int, Steady]:
    """The steady part on each GPU (-1 where the trace does not say which)."""
    of_device: dict[int, Steady] = {}
    pids = by_key((NOTHING if rank.device is None else rank.device, rank.pid) for rank in ranks_of(run).all)
    seen = {value for piece in run.pieces("kernels", ("device",)) for value, _ in split(numbers(piece["device"]))}
    limits = _profiled(run)
    for device in sorted(seen):
        best, chosen = None, False
        for by, name, edges in _marked(run, pids.get(device), limits):
            # Where what lies between ranges is most of the work, those that say that they are steps are.
            if chosen and not STEP.search(name or ""):
                continue
            one, regular = _of_ranges(run, device, by, name, edges)
            holds = regular and one is not None and (by is By.MEASURE or one.inside >= COVERED)
            if holds or not chosen:
                best, chosen = one if regular else best or one, regular
            if holds:
                break
        best = _of_layers(run, device, best or _of_pattern(run, device, limits))
        best = _of_one_step(run, device, pids.get(device), best) or best
        if best is None and limits != (LONG_AGO, FOREVER):
            best, _ = _of_ranges(run, device, By.MEASURE, None, [limits])
        of_device[device] = best or WHOLE
    return of_device


def _profiled(run: Run) -> tuple[int, int]:
    """When the program asked to be profiled, by cudaProfilerStart and cudaProfilerStop."""
    traced, windows = calls(run), [LONG_AGO, FOREVER]
    for place, (word, times) in enumerate((("Start", "ends"), ("Stop", "starts"))):
        names = [number for number, name in enumerate(traced.names) if re.fullmatch(f"cu(da)?Profiler{word}", name)]
        if names and len(at := np.flatnonzero(np.isin(traced.name, names))):
            windows[place] = int(getattr(traced, times)[at[-place]])
    return (windows[0], windows[1]) if windows[0] < windows[1] else (LONG_AGO, FOREVER)


def _marked(
    run: Run, pids: Sequence[int] | None, limits: tuple[int, int]
) -> Iterator[tuple[By, str | None, list[tuple[int, int]]]]:
    """fiprof's ranges ``measure``; the outermost ranges whose names repeat, running numbers aside, what takes longest
    first, PyTorch's operators left out: begins and ends on the host. pids: processes of the GPU; None for all."""
    if not run.row_count("ranges"):
        return
    ranges = marks(run)
    starts, ends = ranges.starts, ranges.ends
    alike, name, texts = ranges.alike, ranges.name, ranges.texts
    pid = ranges.threads >> 32
    own = ranges.own & (ends != NOTHING) & (np.isin(pid, pids) if pids else True)
    measure = own & np.array([each == "measure" for each in texts])[name]
    measure &= np.array([each == "fiprof" for each in ranges.domains])[ranges.domain]
    if measure.any():
        yield By.MEASURE, None, sorted(zip(starts[measure].tolist(), ends[measure].tolist(), strict=True))
        return
    own &= (starts >= limits[0]) & (ends <= limits[1]) & ~ranges.repeats_parent
    outermost = ranges.repeating(own)
    series = [np.flatnonzero(outermost & (ranges.series == each)) for each in np.unique(ranges.series[outermost])]
    for rows in sorted(series, key=lambda rows: -int((ends[rows] - starts[rows]).sum())):
        if len(rows) >= FEWEST_STEPS and not ranges.folded[alike[rows[0]]].startswith(OPERATORS):
            once_only = len({texts[number] for number in np.unique(name[rows])}) == 1
            title = texts[name[rows[0]]] if once_only else ranges.folded[alike[rows[0]]]
            yield By.RANGES, title, sorted(zip(starts[rows].tolist(), ends[rows].tolist(), strict=True))


def _of_ranges(
    run: Run, device: int, by: By, name: str | None, edges: list[tuple[int, int]], fewest: int = FEWEST_STEPS
) -> tuple[Steady | None, bool]:
    """Ranges of the host as times of the GPU: of the kernels that were launched in them, or until the next one; and
    whether as many are launched in most."""
    begins, ends = np.array(edges, np.int64).T
    begins, ends = begins[(keep := np.append(True, begins[1:] >= ends[:-1]))], ends[keep]
    # Of steps those that lie between two belong to the one before.
    bounds = np.append(begins, ends[-1]) if by is By.RANGES else np.column_stack([begins, ends]).ravel()
    first = np.full(len(bounds) + 1, FOREVER)
    last, count = np.full(len(bounds) + 1, LONG_AGO), np.zeros(len(bounds) + 1)
    own_ns = inside_ns = all_ns = 0  # of kernels
    called_at = calls(run).starts
    # Kernels that wait for other ranks, in a warm-up for long, say little of where the work is.
    waits = ("kernel",) if ranks_of(run).several else ()
    for rows, starts, stops, *kernel in of_device(run, "kernels", device, "start_ns", "end_ns", *waits):
        spent = stops - starts
        for names, place in kernel:
            spent = spent * np.array([not COLLECTIVE.search(each or "") for each in names])[place]
        # A kernel whose call was not traced was launched in none of them.
        called = np.where(rows == NOTHING, LONG_AGO, called_at[rows]) if len(called_at) else starts
        step = np.searchsorted(bounds, called, side="right")
        changes = np.append(np.flatnonzero(step[1:] != step[:-1]), len(step) - 1)
        np.add.at(count, step[changes], np.diff(changes, prepend=-1))
        np.minimum.at(first, step[np.append(0, changes[:-1] + 1)], starts[np.append(0, changes[:-1] + 1)])
        np.maximum.at(last, step[changes], stops[changes])
        held = (step % 2 == 1) if by is By.MEASURE else (step > 0) & (step < len(bounds))
        # Before the first, what other ranges hold is start-up: loading, a warm-up.
        counts = step > 0
        counts[~counts] = calls(run).phases_of(rows[~counts]) == NOTHING
        inside_ns, all_ns = inside_ns + int(spent[held].sum()), all_ns + int(spent[counts].sum())
        if by is By.RANGES:
            own_ns += int(spent[held & (called < ends[np.clip(step, 1, len(ends)) - 1])].sum())
    places = np.arange(1, len(bounds), 1 if by is By.RANGES else 2)
    places = places[first[places] < FOREVER]
    if by is By.MEASURE:
        since = np.maximum.accumulate(np.append(LONG_AGO, last[places]))[:-1]
        return (Steady(by, np.maximum(first[places], since), last[places]) if len(places) else None), True
    if len(places) < fewest or inside_ns < COVERED * all_ns:
        return None, False
    if len(places) < FEWEST_STEPS:
        return Steady(by, first[places], last[places], name, first[places], inside=own_ns / max(all_ns, 1)), True
    usual = begins[-1] + int(np.median(np.diff(begins)))
    if own_ns < COVERED * all_ns and ends[-1] < usual:  # The last step, too, goes on where its range ends.
        ends[-1] = usual
        return _of_ranges(run, device, by, name, list(zip(begins.tolist(), ends.tolist(), strict=True)))
    candidate = _of_steps(by, name, first[places], int(last[places].max()))
    if candidate and candidate.early:  # The first step also prepares its first kernel: nothing before it did.
        candidate = replace(
            candidate, early=(min(int(begins[places[0] - 1]), candidate.early[0]), *candidate.early[1:])
        )
    low, median, high = np.percentile(count[places], (10, 50, 90))
    regular = candidate is not None and bool(high - low <= REGULAR * median)
    return candidate and replace(candidate, inside=own_ns / max(all_ns, 1)), regular


def _in_order(
    run: Run, device: int, column: str = "kernel", limits: tuple[int, int] = (LONG_AGO, FOREVER)
) -> tuple[Ints, Ints, list[str]]:
    """When each kernel of a GPU starts that was launched in some time, in order; the number of its name; the names."""
    numbered: dict[str, int] = {}
    count, at, called_at = run.row_count("kernels"), 0, calls(run).starts
    starts, code = np.empty(count, np.int64), np.empty(count, np.int32)
    for rows, times, (names, place) in of_device(run, "kernels", device, "start_ns", column):
        own = np.array([numbered.setdefault(each or "", len(numbered)) for each in names], np.int32)[place]
        if limits != (LONG_AGO, FOREVER) and len(called_at):
            kept = (called_at[rows] >= limits[0]) & (called_at[rows] <= limits[1])
            own, times = own[kept], times[kept]
        here = slice(at, at := at + len(own))
        starts[here], code[here] = times, own
    starts, code = starts[:at], code[:at]
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, code = starts[order], code[order]
    return starts, code, list(numbered)


def _of_one_step(run: Run, device: int, pids: Sequence[int] | None, repeating: Steady | None) -> Steady | None:
    """The step, where a range that says that it is one holds what was found to repeat, and that are its layers: nothing
    repeats inside them. None where there is no such range, or as many as are steps by their number."""
    if repeating and (repeating.by is By.MEASURE or (repeating.by is By.RANGES and STEP.search(repeating.name or ""))):
        return None
    ranges = marks(run)
    says = np.array([bool(STEP.search(text)) for text in ranges.folded], bool)[ranges.alike]
    of_steps = ranges.own & says & ~ranges.repeats_parent & (ranges.ends != NOTHING)
    of_steps &= np.isin(ranges.threads >> 32, pids) if pids else True
    rows = np.flatnonzero(of_steps & ~ranges.inside(of_steps) if of_steps.any() else of_steps)
    if not 0 < len(rows) < FEWEST_STEPS:
        return None
    if repeating and len(repeating.steps):
        starts, code, _ = _in_order(run, device)
        first, last = np.append(repeating.steps, repeating.ends[-1])[len(repeating.steps) // 2 :][:2]
        if repeated(code[slice(*np.searchsorted(starts, (first, last)))]):
            return None
    edges = sorted(zip(ranges.starts[rows].tolist(), ranges.ends[rows].tolist(), strict=True))
    return _of_ranges(run, device, By.RANGES, ranges.folded[ranges.alike[rows[0]]], edges, fewest=1)[0]


def _of_layers(run: Run, device: int, repeating: Steady | None) -> Steady | None:
    """The steps, where what was found are their layers, and no ranges around steps: some differ from the others, again
    and again at the same distance, and nothing repeats inside them."""
    if repeating is None or repeating.inside >= COVERED or not FEWEST_STEPS < len(repeating.steps) <= MOST_LAYERS:
        return repeating
    starts, code, _ = _in_order(run, device)
    first = np.searchsorted(starts, [*repeating.early, *repeating.steps.tolist(), repeating.ends[-1]])
    sizes = np.diff(first)
    layer = int(np.median(sizes))
    usual = np.flatnonzero(sizes == layer)
    middle = int(usual[len(usual) // 2]) if len(usual) else 0
    # The others may run more or less from some step on; at which places they come does not change.
    if not layer or repeated(code[first[middle] : first[middle + 1]]) or not (longer := repeated(sizes != layer)):
        return repeating
    begin, period, count = longer
    if begin + period * (count + 1) <= len(sizes):  # Only its end, that of the trace, may differ.
        count += 1
    # A step begins with its first layer: behind the last kernel that is not of them.
    step = code[first[begin] : first[begin + period] + layer]
    other = np.flatnonzero(step[layer:] != step[:-layer])
    between = len(step) - layer - 1 - int(other[-1]) if len(other) else 0
    edges = first[begin : begin + period * count + 1 : period] - between
    end = repeating.ends[-1] if begin + period * count == len(sizes) else starts[edges[-1]]
    return (
        _of_steps(repeating.by, f"{period} x {repeating.name}", starts[np.maximum(edges[:-1], 0)], int(end))
        or repeating
    )


def _of_steps(by: By, name: str | None, steps: Ints, end: int) -> Steady | None:
    """The steps after those at the beginning that take much longer than the median. steps: each begin on the GPU."""
    steps = np.unique(steps)
    lengths = np.diff(steps, append=end)
    median = np.median(lengths)
    count = int(np.flatnonzero(lengths <= LONGER * median)[0])
    while len(late := np.flatnonzero(lengths[count : 2 * count] > ODD * median)):  # with usual ones between them
        count += int(late[-1]) + 1
    if len(steps) - count < 2:
        return None
    early, steps, lengths = tuple(steps[:count].tolist()), steps[count:], lengths[count:]
    longest = np.sort(lengths)[::-1]
    few = range(1, 1 + (FEW_ODD if len(steps) >= MANY_STEPS else 0))
    odd = lengths > min((longest[n] for n in few if longest[n - 1] > ODD * longest[n]), default=longest[0])
    ends = steps + lengths
    begins = steps[~odd & np.append(True, odd[:-1])]
    return Steady(by, begins, ends[~odd & np.append(odd[1:], True)], name, steps[~odd], early)


def _of_pattern(run: Run, device: int, limits: tuple[int, int]) -> Steady | None:
    """The repetitions of a kernel that comes as regularly as any and as seldom: once a step."""
    starts, codes, names = _in_order(run, device, "kernel_full", limits)
    middle = max(len(codes) - SAMPLED, 0) // 2
    sample = codes[middle : middle + SAMPLED].astype(np.int64)
    if len(sample) <= FEWEST_PATTERNS:
        return None
    count, anchors = len(names), []
    for size, grams in enumerate((sample, sample[:-1] * count + sample[1:]), 1):
        distinct, group = np.unique(grams, return_inverse=True)
        if len(distinct) >= 1 << 21:
            continue
        order = np.argsort(group, kind="stable")
        same = group[order][1:] == group[order][:-1]
        between = Quantiles(len(group))
        between.add(group[order][1:][same], np.diff(order)[same])
        held = np.bincount(group[order][1:][same], np.diff(order)[same], len(distinct))
        for number, (repeated, low, median, high) in between.spreads().items():
            holds = held[number] > COVERED * len(grams) and repeated * median > COVERED * held[number]
            if repeated >= FEWEST_PATTERNS and high - low <= REGULAR * median and holds:
                anchors.append((held[number] / len(grams), repeated, size, int(distinct[number])))
    if not anchors:
        return None
    most, anchor_rows, size, gram = max(anchors)[0], np.empty(0, np.int64), 0, 0
    # Of each count the first, the most seldom first.
    seldom = sorted((each for each in anchors if each[0] >= 0.9 * most), key=lambda each: each[1:], reverse=True)
    for often, one in sorted({often: one for _, often, *one in seldom}.items()):
        if often < LONGER * len(anchor_rows):
            continue
        first = codes == one[1] if one[0] == 1 else (codes[:-1] == one[1] // count) & (codes[1:] == one[1] % count)
        places = np.flatnonzero(first)
        if not len(anchor_rows) or _varies(codes, anchor_rows, places):
            anchor_rows, (size, gram) = places, one
    # A pair begins a step with its second kernel.
    times = starts[anchor_rows + size - 1]
    title = full = names[int(gram % count if size == 2 else gram)]
    for _, (shorts, short), (texts, text) in of_device(run, "kernels", device, "kernel", "kernel_full"):
        if len(places := np.flatnonzero(np.array([each == full for each in texts])[text])):
            title = detailed_kernel(str(shorts[short[places[0]]]), full)
            break
    steps, every = _between_pauses(starts, times)
    return _of_steps(By.PATTERN, f"{every} x {title}" if every > 1 else title, steps[:-1], int(steps[-1]))


def _between_pauses(starts: Ints, times: Ints) -> tuple[Ints, int]:
    """When steps begin, and how many repetitions each holds: those between two pauses, where these are about as many
    again and again. starts: of all kernels; times: of each repetition."""
    every, few = 1, len(starts) <= FEW_KERNELS * len(times)
    while few and len(long := _pauses(np.diff(times))):
        # The pause is where its repetition has the most time from one kernel to the next.
        edges = np.searchsorted(starts, times)
        pauses = zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True)
        resumed = [first + 1 + int(np.argmax(np.diff(starts[first : last + 1]))) for first, last in pauses]
        # The first of the repetitions may have been taken for none.
        kernels, count = int(np.median(np.diff(resumed))), int(np.median(np.diff(long)))
        begin = max(resumed[0] - kernels, int(edges[0]) - kernels // count, 0)
        times, every = starts[[begin, *resumed]], every * count
    return times, every


def _pauses(lengths: Ints) -> Ints:
    """Which repetitions end with a pause: they take far longer than the others, for a good part of the time; none where
    repetitions are long, or do not end so at about the same distance. Of several cuts the most regular, then lowest."""
    rising, regular = np.sort(np.maximum(lengths, 1)), [(0.0, lengths[:0])]
    for cut in np.flatnonzero(rising[1:-FEWEST_PATTERNS] >= LONGER * rising[: -1 - FEWEST_PATTERNS]).tolist():
        apart = np.diff(long := np.flatnonzero(lengths > rising[cut]))
        low, median, high = np.percentile(apart, (10, 50, 90))
        alike = median >= 2 and high - low <= COVERED * median
        if alike and rising[cut // 2] < LAYER_NS and lengths[long].sum() >= REGULAR * lengths.sum():
            regular.append((float(np.mean(apart == median)) + 1, long))
    return max(regular, key=lambda each: each[0])[1]


def _varies(codes: Ints, seldom: Ints, often: Ints) -> bool:
    """Whether a kernel that comes seldom, at each of some places, stands there for another one, as where a pointer is
    aligned for wider loads: from one place of the other kernel to the next all else is as it is without it."""
    gaps, marked = np.diff(often), np.diff(np.searchsorted(seldom, often)) > 0
    if marked.all() or not marked.any() or np.median(gaps[marked]) != (usual := np.median(gaps[~marked])):
        return False
    alike = np.add.reduceat(codes == np.roll(codes, int(usual)), often)[:-1] / gaps
    return bool(np.median(alike[marked]) >= ALIKE)


def repeated(names: Sequence[str] | Ints) -> tuple[int, int, int] | None:
    """Where a sequence begins to repeat, the length of what repeats, and how often: the shortest that holds COVERED of
    it and comes FEWEST_STEPS times or more; None where nothing does, or too long. One kernel alone is no layer."""
    if len(names) > LONGEST_STEP:
        return None
    distinct, codes = np.unique(names, return_inverse=True)
    best: tuple[int, int, int] | None = None
    for period in range(2, min(len(codes) // FEWEST_STEPS, LONGEST_PERIOD) + 1) if len(distinct) > 1 else ():
        if best and len(codes) <= 1.1 * best[1] * best[2]:
            break
        same = codes[period:] == codes[:-period]
        if np.count_nonzero(same) + period < COVERED * len(codes):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same.view(np.int8), [0]])))
        if not len(edges):
            continue
        lengths = edges[1::2] - edges[::2]
        longest = int(np.argmax(lengths))
        count = (int(lengths[longest]) + period) // period
        start = int(edges[2 * longest])
        if count < FEWEST_STEPS or count * period < COVERED * len(codes):
            continue
        if (codes[start : start + period] == codes[start]).all():
            continue
        if best is None or count * period > 1.1 * best[1] * best[2]:
            best = start, period, count
    return best
