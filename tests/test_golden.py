"""The golden net: what every reading command says of every recorded run is what it said before, number by number.

``pytest tests/test_golden.py -k "show or stalls"`` asks some of it; ``python -m tests.golden`` writes it anew.
"""

import pytest

from tests import golden

KNOWN = golden.read()


@pytest.mark.parametrize("name", KNOWN)
def test_the_answer_is_what_it_was(name: str) -> None:
    found = golden.plain(golden.questions()[name]())
    assert list(golden.differences(KNOWN[name], found))[:20] == []


def test_nothing_is_asked_that_is_not_held() -> None:
    assert list(golden.questions()) and set(golden.questions()) == set(KNOWN)
