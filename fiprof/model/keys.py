"""Every key of the JSON output, with its unit and meaning: one key a quantity, the same in every command.

Numbers of launches and cases say theirs where they are declared, ``keys.csv`` says those of the rest. docs/keys.md is
made from all of them and from the columns that are declared with a meaning; a test holds page and output together.
"""

from __future__ import annotations

import csv
from pathlib import Path

from fiprof.model import case_quantities, floors, quantities
from fiprof.model.quantities import Key


def _read() -> list[Key]:
    with (Path(__file__).parent / "keys.csv").open(encoding="utf-8", newline="") as file:
        return [Key(**row) for row in csv.DictReader(file)]


KEYS: dict[str, Key] = {
    key.key: key
    for key in (
        *_read(),
        quantities.STALL_SHARE,
        quantities.BESIDE,
        *quantities.QUANTITIES.values(),
        *(found for found in vars(case_quantities).values() if isinstance(found, case_quantities.CaseQuantity)),
        floors.DRAM_FLOOR,
        floors.LARGEST_SAVING,
    )
}
"""Key -> what it is."""
