"""The answers of every reading command about every recorded run, as programs get them.

``python -m tests.golden`` writes tests/data/golden.json.xz anew and prints what differs from before: each difference
wants a reason in the commit that makes it.
"""

import functools
import json
import lzma
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fiprof.model.run import Run
from fiprof.reports.report import report
from tests.recorded_runs import PROGRAMS, RUNS, STUDY_RUNS, a_study, invoke, parsed, session_folder, two_ranks

GOLDEN = Path(__file__).parent / "data/golden.json.xz"

NAMES = (*RUNS, *PROGRAMS, *STUDY_RUNS, "two-ranks")
READERS = ("show", "stalls", "roofline", "verdict", "expected", "hotspots", "timeline", "top", "comm", "story")
VOLATILE = {"bytes", "size_bytes", "user", "started", "fiprof"}
"""Keys whose values depend on the machine that made the tables."""

Answer = dict[str, Any]


def folder(name: str) -> Path:
    """That with the tables of a recorded run, or for ``archive`` of them all."""
    if name == "archive":
        for each in NAMES:
            folder(each)
        return session_folder()
    return (two_ranks() if name == "two-ranks" else parsed(name)).path


def asked(command: str, *words: str) -> Answer:
    """A command's exit status and rows, with the folders of the runs that are named in braces; its strings name no folder of
    this machine."""
    filled = [re.sub("{(.+)}", lambda name: str(folder(name[1])), word) for word in words]
    status, printed = invoke(command, *filled, "--format", "json")
    said = printed.replace(str(session_folder()), "ARCHIVE")
    return {"status": status, **(json.loads(said) if said else {})}


def reading() -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Each reading command of each run."""
    for name in NAMES:
        for command in READERS:
            yield f"{command} {name}", partial(asked, command, f"{{{name}}}")
    ways = {("top", name): ("kernel", "range", "rank") for name in ("llama", "ranks", "graph")}
    for (command, name), every in (ways | {("comm", "two-ranks"): ("collective", "rank", "cause")}).items():
        for by in every:
            yield f"{command} {name} --by {by}", partial(asked, command, f"{{{name}}}", "--by", by)
    pairs = {
        "tensor cores": ("{decode}:tensor_cores=false", "{decode}:tensor_cores=true"),
        "five kernels, three": ("{all}", "{prefill-decode-rope}"), "servers": ("{server}", "{server again}"),
        "programs": ("{llama}", "{window}"), "ranks": ("{ranks}", "{tworanks}"),
    }  # fmt: skip
    for name, sides in pairs.items():
        yield f"compare {name}", partial(asked, "compare", *sides)


def keeping() -> Iterator[tuple[str, Callable[[], Answer]]]:
    """What is asked of an archive, which holds every recorded run."""
    questions = {
        "runs": "runs", "runs --kernel": "runs --kernel decode --metric dram_share --sort -dram_share",
        "runs --where": "runs --where batch=128 --gpu H200", "trend": "trend --kernel decode",
        "trend dram": "trend --kernel prefill --metric dram_share", "verify": "verify",
    }  # fmt: skip
    for name, words in questions.items():
        yield name, partial(asked, *words.split(), "--artifacts", "{archive}")
    yield "kernels", partial(asked, "kernels")


def study_results() -> Answer:
    """The recorded study's results, made again from its runs in a copy."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = a_study(Path(temporary) / "study")
        words = ("study", "flashinfer", "--quick", "--results-only", "--no-documents", "--out", str(copy))
        assert invoke(*words)[0] == 0
        results = sorted((copy / "results").glob("*.json"))
        return {path.name: json.loads(path.read_bytes()) for path in results if path.name != "environment_info.json"}


WRONG_USES = """
|nosuch|show|show nosuch|show ALL nosuch|show ALL --format xml|show ALL --launch x|show ALL --launch 99|show ALL --top 0
show ALL --kernel nosuch|stalls ALL --reasons 0|stalls SERVER|stalls ALL --kernel (|verdict|verdict nosuch|verdict SERVER
hotspots SERVER|hotspots ALL --lines -1|roofline SERVER|expected SERVER|expected ALL --expectations nosuch.toml|top nosuch
top ALL --by nosuch|comm ALL|comm GRAPH --by nosuch|timeline nosuch|timeline ALL --zoom x|report nosuch|report ALL --format pdf
compare ALL|compare ALL nosuch|compare ALL:batch=9999 ALL|compare ALL LLAMA|compare --measure here|gate|gate --against nosuch
gate --against main --max-slowdown x|baseline|baseline set|baseline set ../x ALL|baseline nosuch|runs --since never
runs --where x|runs --metric nosuch|runs --sort nosuch|runs --limit 0|runs --status good|trend --metric nosuch|tag ALL
tag nosuch x|note|note nosuch x|export ALL|export ALL --to nosuch|export nosuch --to csv|verify nosuch|pack nosuch|prune
prune --older-than x|parse nosuch|import|import nosuch.nsys-rep|import README.md|collect --kernel nosuch|collect --tool nosuch
collect --replay nosuch|collect --kernel decode --batch x|collect --kernel decode --batch 0|collect --timeout -1|profile
profile --cover 0 -- true|profile --session|capture nosuch|study|study nosuch|jit --format nosuch|kernels nosuch|env --format x
index --catalog nosuch://x|publish|verdict ALL --launch 99|top ALL --range nosuch|story LLAMA --step 999|story LLAMA --rank 7
story LLAMA --request x|import tests
""".replace("\n", "|").strip("|")


def wrong_uses() -> Answer:
    """Command line -> exit status."""
    names = {each.upper(): parsed(each).path for each in ("all", "server", "llama", "graph")}
    filled = {line: re.sub("|".join(names), lambda name: str(names[name[0]]), line) for line in WRONG_USES.split("|")}
    return {line: invoke(*words.split())[0] for line, words in filled.items()}


def report_numbers(name: str) -> Answer:
    """Where each traced number of a run's report comes from -> its value, of those that the net holds."""
    held = read().get(f"report {name}", {})
    found = {str(fact.source): fact.value for _, _, fact in report([Run(folder(name))]).numbers}
    return {source: value for source, value in found.items() if source in held or not held}


@functools.cache
def questions() -> dict[str, Callable[[], Answer]]:
    """Name -> what gives the answer."""
    reports = {f"report {name}": partial(report_numbers, name) for name in NAMES}
    return {
        **dict(reading()), **reports, **dict(keeping()), "study results": study_results, "wrong uses": wrong_uses
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Without what depends on the machine; None for numbers that JSON has not."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where two answers differ; floats may by one part in 10^12."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if key not in after or key not in before:
                yield f"{at}.{key}: {'gone' if key in before else 'new'}"
            else:
                yield from differences(before[key], after[key], f"{at}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{at}: {len(before)} items, now {len(after)}"
        for place, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, f"{at}[{place}]")
    elif isinstance(before, int | float) and isinstance(after, int | float) and not isinstance(before, bool):
        if not math.isclose(before, after, rel_tol=1e-12, abs_tol=1e-300):
            yield f"{at}: {before!r}, now {after!r}"
    elif before != after:
        yield f"{at}: {before!r}, now {after!r}"


@functools.cache
def read() -> dict[str, Answer]:
    found: dict[str, Answer] = json.loads(lzma.decompress(GOLDEN.read_bytes()))
    return found


def main(*only: str) -> None:
    """Write the answers anew; only: those whose names begin so."""
    known = read() if GOLDEN.exists() else {}
    made = {name: plain(ask()) for name, ask in questions().items() if not only or name.startswith(only)}
    for name, answer in made.items():
        for line in differences(known.get(name), answer, name):
            print(line[:300])
    kept = {name: known[name] for name in questions() if name in known and name not in made} if only else {}
    text = json.dumps({**kept, **made}, separators=(",", ":"), sort_keys=True)
    GOLDEN.write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    os.environ.setdefault("FIPROF_TEST_SESSION", f"golden-{os.getpid()}")
    os.environ.setdefault("FIPROF_CLOCK", "2026-11-23T12:00:00+01:00@0")
    try:
        main(*sys.argv[1:])
    finally:
        shutil.rmtree(session_folder(), ignore_errors=True)
