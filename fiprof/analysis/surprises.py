"""What in a program's steps surprises: slow ones with their causes, changes of kernels, leaks; and how steps grow."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from fiprof.analysis.comm import COMMUNICATION, Delay
from fiprof.analysis.host import HostWork, host_times
from fiprof.analysis.idle import between
from fiprof.analysis.moments import Does, Launched, Moments, does
from fiprof.analysis.program import ALLOCATES, COMPILES, LOADS, WAITS
from fiprof.analysis.requests import FEW_STEPS, line, short_name
from fiprof.analysis.trace import SEPARATOR, calls, marks, phases
from fiprof.model.arrays import Floats, Ints
from fiprof.model.finding import Finding, finding, words_of
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.selection import by_key
from fiprof.model.spans import NOTHING, split

NEIGHBOURS = 15  # steps whose median a step is compared with: what is usual may change as a sequence grows
SPREADS, LEAST_SHARE, LEAST_NS = 6.0, 0.5, 50_000
"""A step surprises that takes longer than its neighbours by so many standard deviations (1.4826 median absolute
deviations), by this share of them, and by so much."""
NEARBY = 3  # steps by which a running median may err
MOST_SURPRISES, MOST_CHANGES = 8, 4
"""Steps of one name that are explained, the longest first, and changes of their kernels and of their time."""
JITS = re.compile(rf"{COMPILES.pattern}|(?i:\b_?jit\w*\b)")  # those too that compile only what is new to them
GARBAGE = "gc generation"  # beginning of the ranges in which Python collects garbage, as ``fiprof.range`` marks them
EXPLAINS, MOST_OF = 0.4, 0.8
"""Share of a step's excess from which on something is its cause, and from which on it is not said to be a part."""
MEANWHILE = ", meanwhile {doing}"
FEWEST_PLACES = 4  # ranges of a name in a step from which on their places are told apart
FEWEST_GAPS, IN_TIME = 3, 0.05
"""Distances of slow steps from which on these come regularly, and share of one by which it may vary, or by a step."""
LATE_SHARE, LEAST_GROWTH = 0.1, 0.02
"""Share of steps by which a rank is late in them, and of the first step by which they grow to the last, to be told."""
Part = tuple[str, str]  # what a step's time is made of (kernel, call, host, host work, range), and which


def usual_length(lengths: Floats) -> Floats:
    """Of each step the median length of its neighbours."""
    half = min(NEIGHBOURS, len(lengths)) // 2
    padded = np.pad(lengths, half, mode="reflect") if len(lengths) > half else lengths
    found: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    return found


def slow_steps(moments: Moments, rows: Ints, least_ns: float = 0.0) -> dict[int, int]:
    """The steps that take longer than their neighbours, each with the nearest usual one: by number. least_ns: what each
    of these takes beyond what is usual."""
    lengths = moments.length[rows].astype(float)
    usual = usual_length(lengths)
    excess = lengths - usual
    spread = 1.4826 * float(np.median(np.abs(excess - np.median(excess))))
    least = np.maximum(np.maximum(SPREADS * spread, LEAST_SHARE * usual), max(LEAST_NS, least_ns))
    late = np.flatnonzero(excess > least)
    late = np.sort(late[np.argsort(-excess[late], kind="stable")][:MOST_SURPRISES])
    others = np.setdiff1d(np.arange(len(rows)), late)
    away = 1e-3 * np.abs(excess[others])
    return {int(n): int(others[np.argmin(np.abs(others - n) + away)]) for n in late if len(others)}


def explained(
    moments: Moments, rows: Ints, slow: Mapping[int, int], kernels: Mapping[int, Launched]
) -> Iterator[Finding]:
    """Of the slow steps of a name what each did more of than a usual one. kernels: of these and of the usual ones."""
    lengths = moments.length[rows].astype(float)
    others = np.setdiff1d(np.arange(len(rows)), [*slow])
    usual = np.interp(np.arange(len(rows)), others, usual_length(lengths[others])) if slow else lengths
    for number, other in slow.items():
        place, like, excess = int(rows[number]), int(rows[other]), float(lengths[number] - usual[number])
        where = _where(moments, place)
        cause = _cause(moments, ([place], [like]), kernels, excess, where["of"])
        late = max(moments.delays.get(place, ()), key=lambda delay: delay.exposed_ns, default=None)
        waits = cause.kind == "kernels" and COLLECTIVE.search(cause.values["name"])
        if waits and late and late.exposed_ns >= EXPLAINS * excess:
            of_rank = {"late_rank": late.rank, "doing": late.doing, "name": f"rank {late.rank} {words_of(late.doing)}"}
            of_rank |= {"more_ms": late.exposed_ns / 1e6, "range": ""}
            cause = finding("late_rank", "waiting for rank {late_rank}" + MEANWHILE, **of_rank)
        first = tuple(name for name, moment in moments.first_used.items() if moment == place)
        words = "{what}, step {number}" if where["what"] == where["of"] else "{what}"
        words += ": {length_ms:,.3f} ms where {usual_ms:,.3f} are usual: {cause}"
        words += " (of it {cause_ms:,.3f} ms)" if cause.values.get("more_ms", np.inf) < MOST_OF * excess / 1e6 else ""
        words += "; first to run {new:kernel|kernels}, {longest}" if first else ""
        words += " one of them." if len(first) > 1 else "."
        values: dict[str, Any] = {"length_ms": float(lengths[number]) / 1e6, "usual_ms": float(usual[number]) / 1e6}
        values |= {"more_ms": excess / 1e6, "cause_ms": cause.values.get("more_ms"), "cause": cause}
        values |= {"first_use": first, "new": len(first), "longest": first[0] if first else ""}
        yield finding("slow_step", words, **where, number=number, place=place, **values)


def _work(
    moments: Moments, places: Sequence[int], kernels: Mapping[int, Launched], known: dict[HostWork, str]
) -> dict[Part, Floats]:
    """What some moments are made of, in the mean: ns, and how often. known: what functions are called, by the first
    that has them."""
    totals: dict[Part, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(part: str, names: Iterable[str], ns: Iterable[float]) -> None:
        for name, each in zip(names, ns, strict=True):
            total = totals[part, name]
            total[:] = total[0] + each, total[1] + 1

    for place in places:
        add("kernel", kernels[place].names, kernels[place].ns.tolist())
    run, begin, end = moments.run, moments.begins[[*places]], moments.edges[np.array(places) + 1]
    if calling := calls(run).nested.get(moments.thread):
        _, starts, stops, called = calling.overlaps(begin, end)
        names = calls(run).names
        add("call", [names[name] for name in called], (stops - starts).tolist())
        outside = between(calling.during(int(begin[0]), int(end[-1])), only=True)
        _, starts, stops, _ = outside.overlaps(begin, end)
        work = host_times(run).during(moments.key, starts, stops)
        add("host", (known.setdefault(each.whole, each.label) for each in work), work.values())
        add("host work", [""], [float((stops - starts).sum())])
        if ranges := phases(run).threads.get(moments.key):
            _, starts, stops, labels = ranges.overlaps(begin, end)
            add("range", [phases(run)[label].rpartition(SEPARATOR)[2] for label in labels], (stops - starts).tolist())
    return {part: np.array(each) / len(places) for part, each in totals.items()}


def _cause(
    moments: Moments,
    places: Sequence[Sequence[int]],
    kernels: Mapping[int, Launched],
    excess: float,
    *names: str,
) -> Finding:
    """Of what steps did more than usual ones, and explains most of their excess, the innermost. places: of both, in
    order. names: of ranges that are no cause, beside the steps'."""
    known, enough = dict[HostWork, str](), EXPLAINS * excess
    names = (*map(moments.name, chain.from_iterable(places)), *names)
    done, less = (_work(moments, each, kernels, known) for each in places)
    more = {part: work - less.get(part, 0) for part, work in done.items()}
    sums: dict[str, float] = defaultdict(float)
    for (part, name), (ns, _) in more.items():
        sums[does(name) if part == "call" else part] += float(ns)

    def most(part: str, pattern: str | re.Pattern[str] = "") -> tuple[str, float, int]:
        of_part = ((key[1], float(ns), int(n)) for key, (ns, n) in more.items() if key[0] == part and key[1])
        of_part = (each for each in of_part if re.match(pattern, each[0]))
        return max(of_part, key=lambda each: each[1], default=("", 0.0, 0))

    range_, in_range, _ = most("range")
    range_ = range_ if in_range >= enough and range_ not in names else ""
    inside = ", in {range}" if range_ else ""

    def cause(kind: str, words: str, ns: float, **values: Any) -> Finding:
        return finding(kind, words, more_ms=ns / 1e6, range=range_, **values)

    if range_.startswith(GARBAGE):
        return cause("garbage", "Python's garbage collection ({range})", in_range)
    for what, pattern in ((Does.LOADING, LOADS), (Does.ALLOCATING, ALLOCATES)):
        if sums[what] >= enough:
            name, _, count = most("call", pattern)
            return cause(what.value, "{did} ({name})" + inside, sums[what], did=what, name=name, count=count)
    if sums["kernel"] >= enough:
        name, _, count = most("kernel")
        words = "its kernels take longer, {name} most" + (" ({count:+d} launches)" if count else "")
        return cause("kernels", words, sums["kernel"], name=name, count=count)
    if sums["host work"] >= enough:
        name, ns, _ = most("host")
        if ns >= enough:
            return cause("compiling" if JITS.search(name) else "function", "{name}" + inside, ns, name=name)
        return cause("host", "{did}" + inside, sums["host work"], did=Does.HOST)
    if sums[Does.WAITING] >= enough:
        name, _, count = most("call", WAITS)
        words = "{did} ({name})" + (", {count:call|calls} more" if count > 0 else "")
        return cause("waiting", words, sums[Does.WAITING], did=Does.WAITING, name=name, count=count)
    name, ns, _ = most("call")
    if ns >= enough:
        return cause("call", "{name}" + inside, ns, name=name)
    return finding("unknown", "the trace does not tell why")


def late_rank(latest: Sequence[Delay | None], usual_ns: float) -> Finding | None:
    """The rank that comes late in most of some steps, by a share that counts, other than out of another collective, in
    which it may have waited itself. latest: each step's longest delay."""
    rank, count = Counter(each.rank for each in latest if each).most_common(1)[0] if any(latest) else (None, 0)
    mine = sorted((each for each in latest if each and each.rank == rank), key=lambda each: each.ns)
    if count < max(MOST_OF * len(latest), 1) or (median := mine[count // 2]).ns < LATE_SHARE * usual_ns:
        return None
    if median.doing.values["doing"] == COMMUNICATION:
        return None
    words = "rank {late_rank} comes {late_ms:,.3f} ms late to collectives ({share:.0%} of a step)" + MEANWHILE
    values = {"late_rank": rank, "late_ms": median.ns / 1e6, "share": median.ns / usual_ns, "doing": median.doing}
    return finding("late_rank", words, **values)


def same_cause(slow: Finding) -> tuple[str, Any]:
    """What slow steps of one cause have in common."""
    cause = slow.values["cause"]
    return cause.kind, cause.values.get("name")


def by_cause(slow: Sequence[Finding]) -> Iterator[Finding]:
    """Slow steps of one name and cause as one finding, in the order of the first; other findings as they are."""
    alike = by_key(
        ((each.values["of"], *same_cause(each)) if "cause" in each.values else (number,), each)
        for number, each in enumerate(slow)
    )
    for several in alike.values():
        if len(several) == 1:
            yield several[0]
            continue
        times, of = [each.values["more_ms"] for each in several], several[0].values["of"]
        first = tuple(dict.fromkeys(name for each in several for name in each.values["first_use"]))
        apart = np.diff([each.values["number"] for each in several])
        regular = len(apart) >= FEWEST_GAPS and np.ptp(apart) <= max(1, IN_TIME * np.median(apart))
        words = "{count} x {of} ({steps}" + ("; every {every:,d} steps" if regular else "")
        words += "): {cause}, {from_ms:,.1f} to {to_ms:,.1f} ms more each"
        if first:
            words += "; {using:of them runs|of them run} kernels for the first time ("
            words += ("{new}, {longest} one of them" if len(first) > 1 else "{longest}") + "): "
            words += "a warm-up with such steps takes that away"
        heads = (each.values["number"] if each.values["what"] == of else each.values["what"] for each in several)
        values = {"of": of, "steps": tuple(map(str, heads)), "count": len(several), "cause": several[0].values["cause"]}
        values |= {"from_ms": min(times), "to_ms": max(times), "first_use": first, "new": len(first)}
        values |= {"every": int(np.median(apart))} if regular else {}
        using = sum(bool(each.values["first_use"]) for each in several)
        yield finding("slow_steps", words + ".", **values, using=using, longest=first[0] if first else "")


def changes(moments: Moments, rows: Ints) -> list[tuple[int, int]]:
    """Where steps begin to run other kernels, and FEW_STEPS before and after each run the same: of each change the
    last step before it and the first after it."""
    edges = np.flatnonzero(np.diff(moments.signature[rows])) + 1
    lengths = np.diff(np.concatenate([[0], edges, [len(rows)]]))
    both = (lengths[:-1] >= FEW_STEPS) & (lengths[1:] >= FEW_STEPS)
    return [(int(rows[at - 1]), int(rows[at])) for at in edges[both].tolist()][:MOST_CHANGES]


def changed(moments: Moments, before: int, after: int, kernels: Mapping[int, Launched]) -> Finding:
    """Which kernels a step runs that the one before it does not."""
    old, new = (Counter(kernels[place].names) for place in (before, after))
    more, less = (tuple(f"{count} x {name}" for name, count in each.most_common(3)) for each in (new - old, old - new))
    number = int(np.searchsorted(np.flatnonzero(moments.group == moments.group[after]), after))
    words = "{what}: from step {number} on " + ("{more} more a step" if more else "fewer kernels")
    words += ", and {less} less." if less else "."
    return finding("kernels_change", words, **_where(moments, after), number=number, more=more, less=less)


def paces(moments: Moments, rows: Ints) -> dict[int, tuple[int, int]]:
    """Where steps of one name begin to take another time for good: the number of the first -> a typical step of those
    before it, and one of those from it on.

    A change is abrupt: of the NEIGHBOURS on both sides the slower nine tenths take longer than the faster ones, by what
    a step surprises by, and the FEW_STEPS beside it differ as much as these.
    """
    lengths, moves, parts = moments.length[rows].astype(float), dict[int, tuple[int, int]](), [(0, len(rows))]
    logs = np.log(np.maximum(usual_length(lengths), 1.0))
    while parts and len(moves) < MOST_CHANGES:
        first, stop = parts.pop(0)
        splits = np.arange(FEW_STEPS, stop - first - FEW_STEPS + 1)
        if not len(splits):
            continue
        apart = np.abs(np.cumsum(logs[first:stop] - logs[first:stop].mean())[splits - 1])
        at = first + int(splits[np.argmax(apart / np.sqrt(splits * (stop - first - splits)))])
        sides = np.arange(max(at - NEIGHBOURS, first), at), np.arange(at, min(at + NEIGHBOURS, stop))
        faster, slower = sorted((lengths[side] for side in sides), key=np.median)
        usual, change = float(np.median(faster)), float(np.median(slower) - np.median(faster))
        beside = abs(np.median(lengths[at : at + FEW_STEPS]) - np.median(lengths[at - FEW_STEPS : at]))
        abrupt = beside >= max(LEAST_SHARE * usual, LEAST_NS, MOST_OF * change)
        if abrupt and np.percentile(slower, 10) > np.percentile(faster, 90):
            # Where exactly, near the step that running medians tell.
            log_lengths = np.log(np.maximum(lengths, 1.0))
            old, new = (
                np.median(each)
                for each in (log_lengths[max(at - NEIGHBOURS, 0) : at], log_lengths[at : at + NEIGHBOURS])
            )
            nearer = np.abs(log_lengths - new) - np.abs(log_lengths - old)  # to what comes before, where positive
            near = range(max(at - NEARBY, first + 1), min(at + NEARBY, stop - 1) + 1)
            at = max(near, key=lambda place: nearer[near[0] - 1 : place].sum() - nearer[place : near[-1] + 1].sum())
            sides = np.arange(max(at - NEIGHBOURS, first), at), np.arange(at, min(at + NEIGHBOURS, stop))
            before, after = (side[np.argsort(lengths[side], kind="stable")[len(side) // 2]] for side in sides)
            moves[at] = (int(rows[before]), int(rows[after]))
            parts += [(first, at), (at, stop)]
    return dict(sorted(moves.items()))


def paced(
    moments: Moments,
    rows: Ints,
    slow: Collection[int],
    changes: Mapping[int, tuple[int, int]],
    kernels: Mapping[int, Launched],
) -> Iterator[Finding]:
    """What steps do more of before each change, or from it on. slow: steps that say nothing of what is usual. changes:
    of :func:`paces`. kernels: of their typical steps."""
    usual = np.setdiff1d(np.arange(len(rows)), [*slow])
    parts = np.split(moments.length[rows[usual]], np.searchsorted(usual, [*changes]))
    for (number, typical), (before, after) in zip(changes.items(), pairwise(map(np.median, parts)), strict=True):
        longer = typical if before > after else typical[::-1]
        reason = _cause(moments, [[each] for each in longer], kernels, abs(after - before))
        words = "{of}: {after_ms:,.3f} ms each from step {number}, where {before_ms:,.3f} were usual; "
        words += ("what took longer until then" if before > after else "what takes longer since") + ": {reason}."
        where = _where(moments, place := int(rows[number])) | {"number": number, "place": place}
        each = {"before_ms": float(before) / 1e6, "after_ms": float(after) / 1e6}
        yield finding("pace", words, **where, **each, reason=reason)


def _where(moments: Moments, place: int) -> dict[str, Any]:
    of = moments.names[moments.group[place]].text
    return {"what": short_name(moments.name(place)), "of": of, "at_ms": int(moments.from_[place]) / 1e6}


def leak(moments: Moments, rows: Ints) -> Iterator[Finding]:
    """Memory that grows until the end in steps of one name and is never given back: torch's, else what CUDA gave."""
    held = [("torch's memory", moments.torch.at(moments.edges[1:])), ("device memory", moments.given)]
    for what, memory in held if len(rows) >= 2 * FEW_STEPS else ():
        grown = np.diff(memory[rows]) if memory is not None else np.zeros(1)
        since = int(np.argmax(grown > 0))
        # An allocator that takes much at a time grows seldom, a leak in every quarter all the same; what the first one
        # took may be the program's.
        quarters = np.array_split(grown[since:], 4)
        if (grown < 0)[since:].any() or (grown > 0).sum() < FEW_STEPS or not all(each.any() for each in quarters):
            continue
        if (grown[since:] > 0).mean() < LEAST_SHARE:
            since += len(quarters[0])
            grown = grown * (np.arange(len(grown)) >= since)
        place, count = int(rows[since + 1]), int((grown > 0).sum())
        owners = moments.torch.owners(int(moments.begins[place]), int(moments.edges[rows[-1] + 1]))
        words = f"{{what}}: {what} grows by {{more_mb:,.1f}} MB from step {{number}} to the last, "
        words += "in {count:step|steps}, {each_mb:,.3g} MB a step on average"
        words += (": {owners}; " if owners else ", and ") + "none of it is given back."
        values: dict[str, Any] = {"more_mb": (more_mb := float(grown.sum()) / 1e6), "count": count}
        values |= {"each_mb": more_mb / (len(grown) - since)} | ({"owners": owners} if owners else {})
        yield finding("leak", words, **_where(moments, place), number=since + 1, **values)
        return


def uneven(moments: Moments, rows: Ints) -> Iterator[Finding]:
    """Ranges of one name inside the steps, of which those at some places take longer in all steps."""
    ranges, begins, ends = marks(moments.run), moments.begins[rows], moments.edges[rows + 1]
    on_thread = np.flatnonzero(
        ranges.own & (ranges.threads == moments.key) & (ranges.ends != NOTHING) & ~ranges.repeats_parent
    )
    step = np.searchsorted(begins, ranges.starts[on_thread], side="right") - 1
    within = (step >= 0) & (ranges.ends[on_thread] <= ends[step])
    on_thread, step = on_thread[within], step[within]
    for name, place in split(ranges.alike[on_thread]):
        each = np.arange(len(on_thread))[place]
        counts = np.bincount(step[each], minlength=len(rows))
        count = int(np.median(counts))
        each = each[counts[step[each]] == count]
        numbered = "*" in ranges.folded[name]  # layers, which are told by the time of their kernels
        if numbered or count < FEWEST_PLACES or len(each) < MOST_OF * count * len(rows):
            continue
        each = each[np.lexsort((ranges.starts[on_thread[each]], step[each]))]
        lengths = (ranges.ends - ranges.starts)[on_thread[each]].reshape(-1, count).astype(float)
        ordered = np.sort(typical := np.median(lengths, axis=0))
        apart = int(np.argmax(ordered[1:] / np.maximum(ordered[:-1], 1.0))) + 1
        slow = typical >= ordered[apart]
        low, high = (float(np.median(lengths[:, side])) for side in (~slow, slow))
        uneven_steps = int((lengths[:, slow].min(axis=1) > lengths[:, ~slow].max(axis=1)).sum())
        all_ns = float(lengths.sum() / len(lengths))
        if (
            uneven_steps < MOST_OF * len(rows)
            or high < (1 + LEAST_SHARE) * low
            or all_ns < EXPLAINS * np.median(moments.length[rows])
        ):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate([[0], slow.view(np.int8), [0]])))
        runs = tuple(f"{a} to {b - 1}" if b - a > 1 else str(a) for a, b in zip(edges[::2], edges[1::2], strict=True))
        words = "{what}: of {count} x {name} no. {which} (from 0) take {slow_ms:,.3f} ms each, "
        words += "the others {usual_ms:,.3f}, in {steps} of {of_steps:step|steps}."
        what = moments.names[moments.group[rows[0]]].text
        values: dict[str, Any] = {"what": what, "of": what, "name": ranges.folded[name], "which": runs, "count": count}
        values |= {"steps": uneven_steps, "of_steps": len(rows)}
        yield finding("slow_ranges", words, **values, slow_ms=high / 1e6, usual_ms=low / 1e6)


def growth(moments: Moments, rows: Ints) -> Iterator[Finding]:
    """How the steps grow longer from one to the next: a line through their lengths, where both halves lie on it."""
    lengths = moments.length[rows].astype(float)
    usual = np.flatnonzero(lengths <= (1 + LEAST_SHARE) * usual_length(lengths))
    if len(usual) < 4 * FEW_STEPS:
        return
    half = len(usual) // 2
    fits = [line([each], lengths[each]) for each in (usual, usual[:half], usual[half:])]
    ((first, slope), (_, error), _), *halves = (each for each in fits if each)
    grown = float(slope * (usual[-1] - usual[0]) / max(first, 1.0))
    one_line = all(abs(each[1] - slope) < max(abs(slope) / 2, 2 * errors[1]) for each, errors, _ in halves)
    if abs(slope) < 6 * error or abs(grown) < LEAST_GROWTH or not one_line:
        return
    words = "{what}: {first_ms:,.3f} ms {slope_us:+,.3f} µs (± {error_us:,.3f}) a step over {count} steps, "
    words += "to {last_ms:,.3f} ms: {grown:+.0%}"
    count = min(len(usual) // 8, NEIGHBOURS)
    ends = [rows[each].tolist() for each in (usual[-count:], usual[:count])][:: 1 if slope > 0 else -1]
    more_ns, less_ns = (float(moments.length[each].mean()) for each in ends)
    reason = _cause(moments, ends, moments.launched({*chain.from_iterable(ends)}), more_ns - less_ns)
    words += "." if reason.kind == "unknown" else "; what {more} longer: {reason}."
    values: dict[str, Any] = {"reason": reason, "more": "takes" if slope > 0 else "took"}
    values |= {
        "last_ms": float(first) * (1 + grown) / 1e6,
        "first_ms": float(first) / 1e6,
        "slope_us": float(slope) / 1e3,
        "error_us": float(2 * error) / 1e3,
    }
    what = moments.names[moments.group[rows[0]]].text
    yield finding("law", words, what=what, **values, count=len(usual), grown=grown)
