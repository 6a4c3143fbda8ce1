"""docs/faults.md: what was done to fiprof and what happened, made from the tests. ``python -m tests.docs_faults`` writes it.

A test that injects a fault says so with ``@pytest.mark.fault("what is done", "what happens")``, once a fault; in a
parametrized test ``pytest.param(…, marks=pytest.mark.fault(…))`` does the same.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs/faults.md"

HEAD = """# Faults

What was done to fiprof, and what happens. Each row is a test that injects the fault.

| what is done | what happens | test |
| --- | --- | --- |
"""


def faults() -> Iterator[tuple[str, str, str]]:
    """What is done, what happens and the test's name, for each mark in the order of the files.

    Raises ValueError for a mark that has anything but two texts without a line break or a bar.
    """
    for path in sorted(TESTS.glob("test_*.py")):
        for test in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(test, ast.FunctionDef):
                continue
            for call in (each for decorator in test.decorator_list for each in ast.walk(decorator)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault":
                    texts = [ast.literal_eval(argument) for argument in call.args]
                    if len(texts) != 2 or call.keywords or any(set("|\n") & set(text) for text in texts):
                        raise ValueError(f"{path.name}:{call.lineno}: a fault is two texts on one line without a bar")
                    yield texts[0], texts[1], f"{path.name}::{test.name}"


def page() -> str:
    """The page as the tests have it."""
    return HEAD + "".join(f"| {done} | {happens} | `{test}` |\n" for done, happens, test in faults())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
