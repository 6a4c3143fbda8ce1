"""What repeats inside a program's step: its layers, by the ranges around them or by the order of the kernels."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from fiprof.analysis.frames import Row, columns
from fiprof.analysis.moments import Launched, Moments
from fiprof.analysis.requests import says, short_name
from fiprof.analysis.steady import COVERED, LONGEST_STEP, REGULAR, repeated
from fiprof.analysis.trace import FEWEST_STEPS, SEPARATOR, folded, phases
from fiprof.model.arrays import Ints
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING

OTHER_LAYER = 1.25  # times the median layer: what takes longer than that, in the middle of the steps looked at, differs
LAYER_STEPS = 20  # steps that the layers are the median of, at most
UNEVEN = 2.0  # times the median work of a layer that the largest has, from which on their time is told by it

LAYERS = columns("layers")


def typical_steps(moments: Moments, rows: Ints) -> Ints:
    """Some steps from the middle of those that run the same kernels as most; none where layers are not looked for."""
    values, counts = np.unique(moments.signature[rows], return_counts=True)
    alike: Ints = rows[moments.signature[rows] == values[np.argmax(counts)]]
    if not 2 * FEWEST_STEPS <= moments.kernels[alike[0]] <= LONGEST_STEP:
        return alike[:0]
    return alike[max(len(alike) // 2 - LAYER_STEPS // 2, 0) :][:LAYER_STEPS]


def layers(run: Run, of: str, steps: Sequence[Launched]) -> tuple[Finding, list[Row], list[Finding]] | None:
    """What repeats in the kernels of some steps, in the median over those that have the same as the first: as a finding
    and as rows of LAYERS; and the layers that take longer in every step. of: the steps' name."""
    if not steps or not (found := _by_ranges(run, steps[0]) or _by_order(steps[0].names)):
        return None
    (names, layer), (order, ns, _, starts, blocks) = found, steps[0]
    gaps = np.maximum(starts - np.append(starts[:1], np.maximum.accumulate(starts + ns)[:-1]), 0)
    # What is waited for in collectives is told of ranks.
    times = np.array([step.ns for step in steps if step.names == order])
    times = times * [not COLLECTIVE.search(name) for name in order]
    of_layer = [np.flatnonzero(layer == number) for number in range(len(names))]
    median = np.median([times[:, each].sum(axis=1) for each in of_layer], axis=1)
    whole, usual = float(np.median(times.sum(axis=1))), float(np.median(median))
    sizes = np.array([len(each) for each in of_layer])
    period = int(np.median(sizes))
    low, high = np.percentile(median, (10, 90)).tolist()
    counted = [next(((word, n) for word, n in says(name).items() if isinstance(n, int)), ("", None)) for name in names]
    names = [short_name(name) for name in names]
    rows: list[Row] = [
        {
            "of": of, "layer": number, "name": names[number], "busy_us": busy_ns / 1e3, "share": busy_ns / whole,
            "waits_us": int(gaps[each].sum()) / 1e3, "work": counted[number][1],
            "blocks": int(blocks[each][np.argmax(ns[each])]),
        }
        for number, (each, busy_ns) in enumerate(zip(of_layer, median.tolist(), strict=True))
    ]  # fmt: skip
    load = _load(counted[0][0], rows)
    others = [] if load else np.flatnonzero(median > OTHER_LAYER * usual).tolist()
    longer = {"longest_us": float(median.max()) / 1e3, "usual_us": usual / 1e3}
    which = tuple(f"no. {names[other]}" if names[other].isdigit() else names[other] for other in others)
    words = "{what}: {count} x the same {period:kernel|kernels}, {usual_us:,.1f} µs each, spread {spread:.0%}, "
    words += "{share:.0%} of the kernels' time" + ("; {load}" if load else "")
    words += "; longer: {others} ({longest_us:,.1f} µs at most)." if others else "."
    kernels = tuple(order[each] for each in of_layer[int(np.argmin(np.abs(sizes - period)))])
    values = {"what": of, "count": len(names), "period": period, "kernels": kernels, "others": which, "load": load}
    values |= {"spread": (high - low) / usual if usual else 0.0, "share": float(median.sum()) / whole}
    sentence = finding("layers", words, **values, **longer)
    if not others:
        return sentence, rows, []
    most = int(max(sizes[others]))
    words = "{what}: {which} takes {longest_us:,.1f} µs of kernels in every step where the others take {usual_us:,.1f}"
    words += ", with {kernels:kernel|kernels} instead of {usual_kernels}." if most > period else "."
    values = {"what": of, "of": of, "which": which, "kernels": most, "usual_kernels": period}
    return sentence, rows, [finding("slow_layer", words, **values, **longer)]


def _load(word: str, rows: Sequence[Row]) -> Finding | None:
    """How the time of layers goes with their work, where that is uneven: experts, as a rule. word: what it counts."""
    work, busy_us = np.array([[row["work"] or np.nan, row["busy_us"]] for row in rows]).T
    if not work.max() > UNEVEN * np.median(work):
        return None
    each_us, base_us = np.polyfit(work, busy_us, 1).tolist()
    small, blocks = np.argsort(work, kind="stable")[: len(work) // 2], [row["blocks"] for row in rows]
    words = "{most} has {work_share:.0%} of the {work:,d} {word} and takes {busy_share:.0%} of their time, the "
    words += "{small_count} with fewest have {small_work_share:.0%} and take {small_busy_share:.0%}: {base_us:,.1f} µs "
    words += "each and {each_ns:,.1f} ns for each of the {word}. The GPU runs {busy_us:,.0f} µs of them, in grids of "
    words += "{least_blocks:,d} to {most_blocks:,d} blocks, and waits {waits_us:,.0f} µs for their launches"
    values: Row = {"base_us": base_us, "each_ns": 1e3 * each_us, "busy_us": float(busy_us.sum())}
    for key, share in (("work_share", work / work.sum()), ("busy_share", busy_us / busy_us.sum())):
        values |= {key: float(share[np.argmax(work)]), f"small_{key}": float(share[small].sum())}
    most, waits_us = rows[int(np.argmax(work))]["name"], sum(row["waits_us"] for row in rows)
    values |= {"most": most, "work": int(work.sum()), "word": word, "small_count": len(small), "waits_us": waits_us}
    return finding("load", words, **values, least_blocks=min(blocks), most_blocks=max(blocks))


def _by_ranges(run: Run, kernels: Launched) -> tuple[list[str], Ints] | None:
    """The outermost ranges in a step whose names are the same but for their numbers: three or more of them, with
    COVERED of its kernels' time. Their names, and which of them each kernel is of, NOTHING outside."""
    labels, place = np.unique(kernels.labels, return_inverse=True)
    paths = [phases(run)[label].split(SEPARATOR) if label != NOTHING else [] for label in labels.tolist()]
    of_name: dict[tuple[int, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for of, ns in zip(place.tolist(), kernels.ns.tolist(), strict=True):
        for depth, name in enumerate(paths[of]):
            of_name[depth, folded(name)][name] += ns
    least = COVERED * kernels.ns.sum()
    many = [key for key, names in of_name.items() if "*" in key[1] and len(names) >= FEWEST_STEPS]
    numbered = [key for key in many if sum(of_name[key].values()) >= least]
    if not numbered:
        return None
    depth, _ = found = min(numbered)
    places = {name: number for number, name in enumerate(of_name[found])}
    of_path = [places.get(path[depth], NOTHING) if len(path) > depth else NOTHING for path in paths]
    return [*places], np.array(of_path)[place]


def _by_order(kernels: Sequence[str]) -> tuple[list[str], Ints] | None:
    """The same for what repeats in the order of the kernels: numbers as names. The first and the last differ a little
    from the others, and so does one in between: most kernels that come once in each say how many there are."""
    if not (found := repeated(kernels)):
        return None
    start, period, count = found
    order, chains = np.array(kernels), list[Ints]()
    for name, times in Counter(kernels[start : start + period]).items():
        if times == 1:
            places = np.flatnonzero(order == name)
            apart = np.flatnonzero(np.abs(np.diff(places) - period) > REGULAR * period) + 1
            chain = next(each for each in np.split(places, apart) if each[-1] >= start)
            chains.append(chain - (chain[np.searchsorted(chain, start)] - start))
    most = Counter(map(len, chains)).most_common(1)[0][0] if chains else count
    begins = next((chain for chain in chains if len(chain) == most), start + period * np.arange(count))
    layer: Ints = np.searchsorted(np.maximum(begins, 0), np.arange(len(kernels)), side="right") - 1
    layer[begins[-1] + period :] = NOTHING
    return [str(number) for number in range(most)], layer
