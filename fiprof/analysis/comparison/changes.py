"""The one table of a comparison: whatever both sides have, and how much longer side B takes for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fiprof.analysis.frames import Column
from fiprof.model.finding import plain

COLUMNS = tuple(
    Column(key, unit=unit, meaning=meaning)
    for key, unit, meaning in (
        (
            "about",
            "",
            "What the row is about: side, outcome (same or cannot_tell), case, outside_kernels, kernel, verdict, "
            "factor, counter, stall or hot_code; of programs also work (executions of B over those of A), window, "
            "part, idle and range.",
        ),
        ("case", "", "Case id on side B; null of what is no case's."),
        ("rank", "", "Rank; null where there is one, and for all together."),
        ("device", "", "GPU, as CUDA counts them; null for all together."),
        ("range", "", "NVTX range, outermost first."),
        ("call", "", "CUDA call that the GPU waited for."),
        ("kernel", "", "Kernel, on side B where it has it."),
        ("match", "", "How the kernel was found on the other side: same, renamed, replaced, new or gone."),
        ("item", "", "What a and b are: key of a quantity, kind of a factor, a stall reason, or a place in the code."),
        ("unit", "", "Unit of a and b."),
        ("a", "", "On side A, in the row's unit; null where it was not measured."),
        ("b", "", "On side B."),
        ("change", "", "b - a."),
        ("accounts_us", "µs", "How much longer side B takes for it, of programs at equal work; negative where less."),
        ("by", "", "Whose time that is a part of: plain, nsys or ncu."),
    )
)


@dataclass(frozen=True)
class Change:
    """A row of COLUMNS."""

    about: str
    item: str | None = None
    a: Any = None
    """A number, a traced one, or an enum."""
    b: Any = None
    accounts_us: float | None = None
    unit: str | None = None
    by: str | None = None
    case: str | None = None
    rank: int | None = None
    device: int | None = None
    range: str | None = None
    call: str | None = None
    kernel: str | None = None
    match: str | None = None
    detail: Any = None
    """What only people are shown: the kind of a factor, the executions in a range, the place and wait of hot code."""

    @property
    def change(self) -> float | None:
        """B - A of measured numbers, in the row's unit."""
        a, b = plain(self.a), plain(self.b)
        return b - a if isinstance(a, float) and isinstance(b, float) else None

    @property
    def us(self) -> float:
        """How much longer side B takes for it; 0 where that is not known."""
        return self.accounts_us or 0.0
