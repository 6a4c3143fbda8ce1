"""ncu's units, brought to the base units that ``--print-units base`` prints."""

from __future__ import annotations

import functools

_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
"""ncu scales bytes by 1000 too."""

_TIMES = {
    "ns": 1.0, "nsecond": 1.0,
    "us": 1e3, "usecond": 1e3,
    "ms": 1e6, "msecond": 1e6,
    "s": 1e9, "sec": 1e9, "second": 1e9,
}  # fmt: skip
"""Nanoseconds of each: a time's base unit is the nanosecond, a rate's the second."""

_THINGS = frozenset(
    [
        "%",
        "block",
        "branches",
        "byte",
        "cluster",
        "cycle",
        "hz",
        "inst",
        "pass",
        "register",
        "request",
        "sample",
        "sector",
        "sectors",
        "SM",
        "thread",
        "warp",
    ]
)


@functools.cache
def to_base(unit: str) -> tuple[str, float] | None:
    """The base unit and the factor that brings values to it; None for a unit that is not known.

    ``Mbyte`` -> ``("byte", 1e6)``, ``us`` -> ``("ns", 1e3)``, ``Kbyte/s`` -> ``("byte/s", 1e3)``, ``cycle/nsecond`` ->
    ``("hz", 1e9)``, ``%/Kbyte`` -> ``("%/byte", 1e3)``. A count's unit is empty.
    """
    if not unit:
        return "", 1.0
    numerator, slash, denominator = unit.partition("/")
    above = _thing(numerator)
    if not slash or above is None:
        return above
    if denominator in _TIMES:
        base = f"{above[0]}/s"
        return ("hz" if base == "cycle/s" else base), above[1] * (1e9 / _TIMES[denominator])
    below = _thing(denominator)
    # ncu prints 5,022 %/byte as 5.022 %/Kbyte: its prefix is the whole value's.
    return below and (f"{above[0]}/{below[0]}", above[1] * below[1])


def _thing(unit: str) -> tuple[str, float] | None:
    if unit in _TIMES:
        return "ns", _TIMES[unit]
    if unit in _THINGS:
        return unit, 1.0
    if unit[:1] in _PREFIXES and (rest := unit[1:].lower()) in _THINGS:
        return rest, _PREFIXES[unit[0]]
    if unit.lower() in _THINGS:
        return unit.lower(), 1.0
    return None
