"""Tables of launches: columns over rows, headings, and what is said of launches that are left out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.finding import TracedNumber, TracedText, say
from fiprof.model.quantities import DURATION, QUANTITIES
from fiprof.model.selection import NO_CASE, Alike
from fiprof.reports.view import Column, Narrow, Value, View, left_out, view_of
from fiprof.text import detailed_kernel, escape_control

T = TypeVar("T")


def measured(key: str, title: str = "", unit: str = "", spec: str = "") -> Column:
    """A column of the quantity with a key. unit, spec: where people read it not as usual."""
    quantity = QUANTITIES[key]
    return Column(key, title, unit or quantity.unit, spec or quantity.spec, quantity.meaning)


NAMES = (
    Column("launch", "#"),
    Column("label", "case", narrow=Narrow.ABOVE),
    Column("kernel", "kernel", narrow=Narrow.ABOVE),
)
"""Which launch it is."""
TIMES = (Column("nsys_duration_us", "nsys", "µs", ",.2f"), Column("duration_us", "ncu", "µs", ",.2f"))
"""Of a launch, in this order on every page."""
HOW_TIMED = "nsys: in the program, the median; ncu: this launch alone, with the clocks and caches set for it."


def grouped(
    columns: Sequence[Column], groups: Sequence[Alike[T]], row: Callable[[T, str], Value], **texts: Any
) -> View:
    """A table of groups of like launches: the one that stands for each, how many they are and how far apart.

    columns: begin with NAMES; of TIMES a tool that timed none of them has none. row: gives what stands in a column of a
    launch, by its key. texts: as of ``view_of``.
    """
    rows: list[Mapping[str, Value]] = [
        {column.key: row(group.shown, column.key) for column in columns}
        | {"kernel": _kernel(group.shown), "count": group.count, "range_us": _time_range(group)}
        for group in groups
    ]
    shown = [each for each in columns if each not in TIMES or any(row[each.key] for row in rows)]
    if any(group.count > 1 for group in groups):
        shown.insert(len(NAMES), Column("count", "x", spec=",d"))
        place = next((place for place, column in enumerate(shown) if column.key == DURATION.key), None)
        if place is not None:
            shown.insert(place + 1, Column("range_us", "range, ncu", narrow=Narrow.BELOW))
    if all(row["label"] == NO_CASE for row in rows):
        shown = [each for each in shown if each.key != "label"]
    return view_of(shown, rows, **texts)


def heading(item: Any, like: Alike[Any] | None = None) -> str:
    """``launch 3 · prefill · PrefillWithKVCacheKernel · 300.05 µs under nsys, 307.87 µs under ncu``.

    item: has launch, label, kernel, iteration, the TIMES, and whether its case launched the kernel in several
    iterations (repeated). like: the launches that it stands for.
    """
    of_case = [] if item.label == NO_CASE else [escape_control(item.label)]
    parts = [f"launch {item.launch}", *of_case, escape_control(_kernel(item))]
    alone = like is None or like.count == 1
    if alone and item.repeated and item.iteration is not None:
        parts.append(f"iteration {item.iteration}")
    parts += filter(None, [times(item)])
    if like is not None and not alone:
        parts.append(say("median of {count} alike, {range} under ncu", count=like.count, range=_time_range(like)))
    return " · ".join(parts)


def _kernel(item: Any) -> str:
    return detailed_kernel(item.kernel, item.kernel_full or "")


def times(item: Any) -> str:
    """``300.05 µs under nsys, 307.87 µs under ncu``."""
    timed = [(column.title, getattr(item, column.key)) for column in TIMES]
    return ", ".join(f"{us:,.2f} µs under {tool}" for tool, us in timed if us is not None)


def _time_range(of: Alike[T]) -> str | None:
    """``85.10–92.30 µs``; None of a single launch."""
    return None if of.range_us is None else "–".join(f"{us:,.2f}" for us in of.range_us) + " µs"


def bounded(groups: Sequence[Alike[T]], most: int | None) -> tuple[Sequence[Alike[T]], tuple[TracedText, ...]]:
    """At most so many groups of launches, and the sentence about the rest; all of them where most is None."""
    rest = groups[most:] if most is not None else ()
    share = sum(each.total_us for each in rest) / (sum(each.total_us for each in groups) or 1.0)
    words = "{count:launch|launches} left out, {share:.1%} of the time: --top N, --launch, --kernel or --all shows "
    words += "them."
    return groups[:most], left_out(words, sum(each.count for each in rest), share=share)


def change_words(a: TracedNumber, b: TracedNumber) -> str:
    """From a to b, in points of a percentage, in percent of others; empty where that is negligible."""
    share = a.spec.endswith("%")
    if share or a.unit == "%":
        points = (b.value - a.value) * (100 if share else 1)
        return f"{points:+.0f} points" if abs(points) >= WORTH_CHANGING else ""
    change = 100 * (b.value / a.value - 1) if a.value else 0.0
    return f"{change:+.1f}%" if abs(change) >= WORTH_CHANGING else ""
