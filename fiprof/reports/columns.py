"""Tables of launches: columns with what stands in them, which make a table for people and the flat rows for programs,
headings, and what is said of launches that are left out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fiprof.model.finding import TracedText, say
from fiprof.model.quantities import DURATION, QUANTITIES, Quantity, ratio
from fiprof.model.selection import NO_CASE, Alike
from fiprof.reports.view import Column, Narrow, Value, View
from fiprof.text import escape_control

Cell = tuple[Column, Callable[[Any], Value]]
Cells = Sequence[Cell]
T = TypeVar("T")


def attribute(
    key: str,
    title: str = "",
    unit: str = "",
    spec: str = "",
    least: int = 0,
    *,
    of: str = "",
    narrow: Narrow = Narrow.WRAP,
) -> Cell:
    """A column that shows an attribute: that of its key's name, or the one at the path ``of``, e.g. ``work.ops``.

    Without a title it is for programs alone, without a key for people. None where something on the path is.
    """
    path = (of or key).split(".")

    def value(item: Any) -> Value:
        for name in path:
            item = None if item is None else getattr(item, name)
        return item  # type: ignore[no-any-return]

    return Column(key, title, unit, spec, least=least, narrow=narrow), value


def tera(key: str, of: str, title: str = "") -> Cell:
    """A column of operations a second in 10^12. of: the attribute's path."""
    column, value = attribute(key, title, "TFLOP/s", ".2f", of=of)
    return column, lambda item: ratio(value(item), 1e12)  # type: ignore[arg-type]


def measured(quantity: Quantity | str, title: str = "", unit: str = "", spec: str = "") -> Cell:
    """A column of a quantity of what has a launch as its ``row``, or of the quantity with a key. unit, spec: where
    people read it not as usual."""
    quantity = QUANTITIES[quantity] if isinstance(quantity, str) else quantity
    column = Column(quantity.key, title, unit or quantity.unit, spec or quantity.spec, quantity.meaning)
    return column, lambda item: quantity.of(item.row)


NAMES: Cells = (
    attribute("launch", "#"),
    attribute("label", "case", narrow=Narrow.ABOVE),
    attribute("kernel", "kernel", narrow=Narrow.ABOVE),
)
"""Which launch it is."""
TIMES: Cells = (
    attribute("nsys_duration_us", "nsys", "µs", ",.2f"),
    attribute("duration_us", "ncu", "µs", ",.2f"),
)
"""Of a launch, in this order on every page."""
HOW_TIMED = "nsys: in the program, the median; ncu: this launch alone, with the clocks and caches set for it."


def grouped(cells: Cells, groups: Sequence[Alike[Any]]) -> Cells:
    """The columns for groups of like launches: those of the one that stands for them, and how many and how far apart.

    They begin with NAMES and TIMES; a tool that timed none of them has no column.
    """

    def of_shown(cell: Cell) -> Cell:
        column, value = cell
        return column, lambda group: value(group.shown)

    found = [
        of_shown(cell)
        for cell in cells
        if cell[0].key not in {column.key for column, _ in TIMES} or any(cell[1](group.shown) for group in groups)
    ]
    if any(group.count > 1 for group in groups):
        found.insert(len(NAMES), (Column("count", "x", spec=",d"), lambda group: group.count))
        place = next((place for place, (column, _) in enumerate(found) if column.key == DURATION.key), None)
        if place is not None:
            found.insert(place + 1, (Column("range_us", "range, ncu", narrow=Narrow.BELOW), _time_range))
    if all(group.shown.label == NO_CASE for group in groups):
        found = [cell for cell in found if cell[0].key != "label"]
    return found


def filled(cells: Cells, items: Iterable[object], **texts: Any) -> View:
    """The table of these columns, a row an item. texts: the view's title, warnings, summary and notes."""
    rows = tuple(tuple(value(item) for _, value in cells) for item in items)
    return View(tuple(column for column, _ in cells), rows, **texts)


def for_programs(*cells: Cell) -> Cells:
    """The columns that have a key, each once."""
    return tuple({column.key: (column, value) for column, value in cells if column.key}.values())


def heading(item: Any, like: Alike[Any] | None = None) -> str:
    """``launch 3 · prefill · PrefillWithKVCacheKernel · 300.05 µs under nsys, 307.87 µs under ncu``.

    item: has launch, label, kernel, iteration, the TIMES, and whether its case launched the kernel in several
    iterations (repeated). like: the launches that it stands for.
    """
    of_case = [] if item.label == NO_CASE else [escape_control(item.label)]
    parts = [f"launch {item.launch}", *of_case, escape_control(item.kernel)]
    alone = like is None or like.count == 1
    if alone and item.repeated and item.iteration is not None:
        parts.append(f"iteration {item.iteration}")
    parts += filter(None, [times(item)])
    if like is not None and not alone:
        parts.append(say("median of {count} alike, {range} under ncu", count=like.count, range=_time_range(like)))
    return " · ".join(parts)


def times(item: Any) -> str:
    """``300.05 µs under nsys, 307.87 µs under ncu``."""
    timed = [(column.title, value(item)) for column, value in TIMES]
    return ", ".join(f"{us:,.2f} µs under {tool}" for tool, us in timed if us is not None)


def _time_range(of: Alike[T]) -> str | None:
    """``85.10–92.30 µs``; None of a single launch."""
    return None if of.range_us is None else "–".join(f"{us:,.2f}" for us in of.range_us) + " µs"


def bounded(groups: Sequence[Alike[T]], most: int | None) -> tuple[Sequence[Alike[T]], tuple[TracedText, ...]]:
    """At most so many groups of launches, and the sentence about the rest; all of them where most is None."""
    rest = groups[most:] if most is not None else ()
    if not rest:
        return groups, ()
    share = sum(each.total_us for each in rest) / (sum(each.total_us for each in groups) or 1.0)
    said = say(
        "{count:launch|launches} left out, {share:.1%} of the time: --top N, --launch, --kernel or --all shows them.",
        count=sum(each.count for each in rest),
        share=share,
    )
    return groups[:most], (said,)
